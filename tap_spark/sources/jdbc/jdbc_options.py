"""A stream's `options` for JDBC, in Spark's own names. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from shared.errors import SettingsError, Where
from tap_spark.sources.declared import jdbc
from tap_spark.sources.reader_options import option_problems

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tap_spark.stream_config import StreamConfig

KIND, READER = jdbc.SOURCE.name, jdbc.SOURCE.options or ()
COLUMN, PARTS = "partitionColumn", "numPartitions"
SPLIT = (COLUMN, "lowerBound", "upperBound", PARTS)


@dataclass(frozen=True)
class JdbcOptions:
    """The stream's options, parsed.

    Attributes:
        reader: Options for Spark's reader in any case.
        split_column: Column whose ranges are the parts; None if tap-spark chooses the parts.
        split: Spark's options for these ranges, without the column.
        partitions: Number of parts to read in parallel; None lets tap-spark choose.
    """

    reader: Mapping[str, str] = field(default_factory=dict)
    split_column: str | None = None
    split: Mapping[str, str] = field(default_factory=dict)
    partitions: int | None = None


def jdbc_options(stream: StreamConfig) -> JdbcOptions:
    """Check the options of a stream.

    Raises:
        SettingsError: An option is unknown (names the nearest one), has a wrong value, or needs
            another one.
    """
    names = {option.name.lower(): option.name for option in READER}
    given = {names.get(name.lower(), name): value for name, value in stream.options.items()}
    for name, text in chain(
        option_problems(KIND, READER, stream.options), _problems(given, stream)
    ):
        where = Where(stream=stream.name, setting=f"options['{name}']")
        raise SettingsError(text, where=where)
    database = stream.database
    wanted = int(given[PARTS]) if PARTS in given else database.partitions if database else None
    return JdbcOptions(
        reader={name: value for name, value in given.items() if name not in SPLIT},
        split_column=given.get(COLUMN),
        split={name: given[name] for name in SPLIT[1:] if name in given},
        partitions=wanted,
    )


def _problems(given: Mapping[str, str], stream: StreamConfig) -> Iterator[tuple[str, str]]:
    bounds = [name for name in SPLIT[:3] if name in given]
    if bounds and any(name not in given for name in SPLIT):
        yield bounds[0], "also needs " + ", ".join(name for name in SPLIT if name not in given)
    for name in ("fetchsize", PARTS):
        if name in given and int(given[name]) < 1:
            yield name, "must be at least 1"
    if "customSchema" in given and stream.query is None:
        yield "customSchema", "applies only to a 'query': the types of a table are known; remove it"
