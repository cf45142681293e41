"""The typed form of one item of `streams`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.settings.kinds import (
    NAMES,
    SECRET_VALUES,
    SWITCH,
    TEXT,
    at_least,
    one_of,
    setting,
)
from tap_spark.connection_config import ConnectionConfig

PYTHON_SOURCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


@dataclass(frozen=True)
class StreamConfig:
    """One item of `streams`.

    `database` is the item of `connections` that it names; `own` holds the settings that the format
    itself declares, in its typed form.
    """

    name: str = setting(TEXT, "Name of the stream.", required=True, examples=["orders"])
    format: str = setting(
        TEXT,
        "What is read.",
        required=True,
        examples=["csv", "jdbc", "my_sources.weather.WeatherSource"],
    )
    path: str | tuple[str, ...] | None = setting(
        {"type": ["string", "array"], "items": TEXT, "minLength": 1, "minItems": 1},
        "File, folder or glob, or a list of them. For files, and for `delta` and `iceberg` tables "
        "outside a catalog.",
        examples=["data/*.csv", ["2025/", "2026/"]],
    )
    table: str | None = setting(
        TEXT,
        "Table or view: of the connection (`jdbc`), or of a Spark catalog (`table`, `delta`, "
        "`iceberg`). Quote parts with dots or upper case.",
        examples=["public.orders", 'sales."Order Lines"', "lake.db.events"],
    )
    query: str | None = setting(
        TEXT,
        "One statement that only reads, in the database's SQL (`jdbc`) or in Spark's (`sql`).",
        examples=["SELECT id, total FROM orders WHERE total > 0"],
    )
    connection: str | None = setting(
        TEXT,
        "Name of the item of `connections` to read from. Only for `jdbc` and `kafka`; by default "
        "the only connection with a `url`, or with `brokers`.",
    )
    database: ConnectionConfig | None = None
    options: Mapping[str, str] = setting(
        SECRET_VALUES,
        "Options of Spark's reader for the format, or of a Spark DataSource class. Names that the "
        "reader does not know are rejected, except those with a dot (`fs.s3a.endpoint`).",
        default={},
        examples=[{"header": True, "sep": ";"}],
    )
    schema: str | None = setting(
        TEXT,
        "Columns and types in Spark DDL; inferred from the data if not set.",
        examples=["id BIGINT, name STRING"],
    )
    key_properties: tuple[str, ...] = setting(NAMES, "Columns of the primary key.", default=[])
    replication_key: str | None = setting(
        TEXT, "Column whose greatest value is the bookmark.", examples=["updated_at"]
    )
    replication_method: str | None = setting(
        one_of(("FULL_TABLE", "INCREMENTAL", "LOG_BASED")),
        "`INCREMENTAL` if `replication_key` is set, else `FULL_TABLE`. `INCREMENTAL` without a "
        "replication key resumes files by file and line. `LOG_BASED` reads the changes of `delta` "
        "and `iceberg` tables, deletes included; it is the default of `kafka`.",
    )
    end_date: str | float | None = setting(
        {"type": ["string", "number"], "minLength": 1},
        "Upper bound of the replication key (exclusive): a date or timestamp (UTC if it has no "
        "offset), or a value of the key's type. Rows without a key are read, too.",
        examples=["2026-01-01T00:00:00Z", 1000],
    )
    deletes: str | None = setting(
        one_of(("keys",)),
        "`keys`: also send the keys of all rows, so that target-spark deletes rows that the source "
        "has no more. Needs `replication_key`, `key_properties` and `batch_config`; see "
        "`tap-spark docs operate#deletions`.",
    )
    deletes_every: int = setting(at_least(1), "Send the keys once in so many runs.", default=1)
    sort_by_replication_key: bool = setting(
        SWITCH,
        "Sort by the replication key, so that an interrupted run can resume inside the stream.",
        default=False,
    )
    read_unterminated_line: bool = setting(
        SWITCH,
        "`INCREMENTAL` reads a last line without line end at once, instead of waiting for its line "
        "end. For files that never get one. Only for `csv`, `text` and `fixed_width`: a last line "
        "of `json` is read as soon as it is complete.",
        default=False,
    )
    own: Mapping[str, Any] = field(default_factory=dict)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths, as a tuple even if there is only one."""
        if self.path is None:
            return ()
        return (self.path,) if isinstance(self.path, str) else self.path

    @property
    def is_python_source(self) -> bool:
        """Whether the format names a Spark DataSource class."""
        return is_python_source(self.format)


def is_python_source(text: object) -> bool:
    """Return whether a format names an importable class (`package.module.Class`)."""
    return isinstance(text, str) and PYTHON_SOURCE.fullmatch(text) is not None
