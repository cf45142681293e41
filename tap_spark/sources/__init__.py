"""Where streams are read from, found by the stream's `format`.

A format is declared by one module of `declared` (`csv.py`), which needs no Spark, and read by the
class that the declaration names. Packages of others declare theirs alike: `docs/extending.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol, cast

from shared.errors import SettingsError, Where
from shared.extensions import imported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from tap_spark.plans import Slice, StreamPlan
    from tap_spark.stream_config import StreamConfig


class Source(Protocol):
    """A stream's source. Building it checks what can be checked without Spark."""

    @property
    def key_properties(self) -> tuple[str, ...]:
        """The primary key: the settings', or what the source itself knows."""
        ...

    def schema(self, spark: SparkSession) -> StructType:
        """Columns and exact types; may read the source.

        Raises:
            SourceError: It cannot be read, or has no columns.
        """
        ...

    def slices(self, spark: SparkSession, plan: StreamPlan) -> Iterator[Slice]:
        """The planned rows, in parts that are each read by one Spark job.

        Raises:
            SourceError: It cannot be read, or a planned column is gone. What Spark finds later,
                while a part is read, goes through `failures.source_error`.
        """
        ...


def source_for(stream: StreamConfig) -> Source:
    """Builds the source of a stream.

    Raises:
        SettingsError: There is no such format.
        SourceError: Its files do not exist.
    """
    # Formats of installed packages import this package, so it does not import them at its top.
    from tap_spark.sources.registry import FORMATS, source_format  # noqa: PLC0415

    form = source_format(stream.format)
    if form is None:
        raise SettingsError(
            f"unknown format '{stream.format}'",
            where=Where(stream=stream.name),
            hint=f"one of {', '.join(FORMATS)}",
        )
    make = cast("Callable[[StreamConfig], Source]", imported(form.implementation))
    return make(stream)
