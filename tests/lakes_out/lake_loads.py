"""Loads into tables of lakes, without the target's core around them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import parquet

from shared.arrow_types import struct_to_arrow
from target_spark.config import TargetConfig
from target_spark.destinations import Flush
from target_spark.plans import Layout, Part, TableName, TableRequest
from target_spark.version_edit import VersionEdit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

Rows = Sequence[dict[str, Any]]


@dataclass
class Load:
    """Runs of a target over one stream, flush by flush, in one destination after another."""

    spark: SparkSession
    config: TargetConfig
    struct: StructType
    make: Callable[..., Any]
    keys: tuple[str, ...] = ()
    method: str = "append-only"
    hard_delete: bool = False
    layout: Layout = field(default_factory=Layout)
    schema: dict[str, Any] = field(default_factory=dict)
    view: StructType | None = None
    stream: str = "orders"
    table: str = "orders"
    run: str = ""
    number: int = 0
    destination: Any = None

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Starts another run; the one before has not ended."""
        self.run = uuid.uuid4().hex[:12]
        self.number = 0
        self.destination = self.make(self.config, lambda: self.spark)

    def other(self, **changes: Any) -> Load:
        """A run of another process on the same table."""
        return replace(self, **changes)

    @property
    def request(self) -> TableRequest:
        return TableRequest(
            stream=self.stream,
            struct=self.struct,
            name=TableName(self.table, self.config.default_target_schema),
            keys=self.keys,
            method=self.method,
            schema=self.schema,
            layout=self.layout,
            hard_delete=self.hard_delete,
            view=self.view,
        )

    def flush(self, *parts: Rows, note: str = "", token: str | None = None) -> Flush:
        """Parts as executors write them."""
        write = self.destination.prepare(self.request)
        self.number += 1
        made = [self._part(write, rows) for rows in parts]
        token = token or f"{self.run}-{self.number:06d}"
        return Flush(self.stream, token, write, self.request, tuple(made), note)

    def load(self, *parts: Rows, note: str = "") -> Flush:
        """Commits the parts as one flush."""
        flush = self.flush(*parts, note=note)
        self.destination.commit(flush)
        return flush

    def end(self) -> None:
        self.destination.finish(self.request)

    def activate(self, version: int, *, at: float = 86400.0) -> None:
        self.destination.activate(self.request, VersionEdit(version, self.hard_delete, at))

    def note(self) -> str | None:
        found: str | None = self.destination.note(self.request)
        return found

    @property
    def name(self) -> str:
        """The table in SQL."""
        return str(self.destination._form.place(self.request.name).table)

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """The table's rows, sorted."""
        frame = self.spark.newSession().table(self.name)
        frame = frame.select(*columns) if columns else frame
        return sorted((tuple(row) for row in frame.collect()), key=repr)

    def columns(self) -> list[tuple[str, str]]:
        struct = self.spark.newSession().table(self.name).schema
        return [(f.name, f.dataType.simpleString()) for f in struct]

    def history(self) -> list[Any]:
        return self.spark.newSession().sql(f"DESCRIBE HISTORY {self.name}").collect()

    def _part(self, write: Any, rows: Rows) -> Part:
        path = Path(write.pending) / f"{uuid.uuid4().hex}.parquet"
        schema = struct_to_arrow(write.struct)
        parquet.write_table(pa.Table.from_pylist(list(rows), schema), path)
        return Part(str(path), len(rows), path.stat().st_size)


def struct(ddl: str) -> StructType:
    """Columns by Spark's short way to write them: `id long, name string`."""
    from pyspark.sql.types import StructType, _parse_datatype_string

    made = _parse_datatype_string(ddl)
    assert isinstance(made, StructType)
    return made
