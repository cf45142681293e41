"""Loads into tables of lakes, without the target's core around them."""

from __future__ import annotations

import datetime as dt
import functools
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest
from pyarrow import parquet

from shared.formats.arrow_types import struct_to_arrow
from shared.spark.conf import SparkSettings
from target_spark.core.load_plans import (
    Backfill,
    Layout,
    Part,
    SchemaContract,
    Segment,
    TableName,
    TableRequest,
)
from target_spark.destinations.destination import Flush, Tools
from target_spark.destinations.lakes.delta.delta_format import delta_destination
from target_spark.destinations.lakes.iceberg.iceberg_format import iceberg_destination
from target_spark.destinations.lakes.iceberg.iceberg_layout import described
from target_spark.destinations.lakes.lake_table import Mark, TableHandle, own_session
from target_spark.destinations.lakes.lake_work import first_able
from target_spark.operate.lake_operations import LakeOperations
from target_spark.replays import Entry, Note
from target_spark.run_settings import TargetConfig
from target_spark.tables.version_edit import VersionEdit

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
    keys: tuple[str, ...] = ()
    method: str = "append-only"
    hard_delete: bool = False
    layout: Layout = field(default_factory=Layout)
    schema: dict[str, Any] = field(default_factory=dict)
    view: StructType | None = None
    order_by: tuple[str, ...] = ()
    contract: SchemaContract = field(default_factory=SchemaContract)
    backfill: Backfill | None = None
    stream: str = "orders"
    table: str = "orders"
    run: str = ""
    number: int = 0
    destination: Any = None
    operations: Any = None
    noted: list[str] = field(default_factory=list)

    make: ClassVar[Callable[..., Any]]

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start another run; the one before has been killed."""
        if self.destination is not None:
            self.destination._close()
        self.noted = []
        self.run = uuid.uuid4().hex[:12]
        self.number = 0
        tools = Tools(lambda: self.spark, pytest.fail)
        self.destination = type(self).make(self.config, tools)
        self.operations = LakeOperations(self.config, self.destination, None)  # type: ignore[arg-type]

    def other(self, **changes: Any) -> Load:
        """Return a run of another process on the same table."""
        return replace(self, **{"destination": None, **changes})

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
            order_by=self.order_by,
            contract=self.contract,
            backfill=self.backfill,
        )

    def flush(
        self,
        *parts: Rows,
        noted: bool = False,
        token: str | None = None,
        state: str | None = None,
    ) -> Flush:
        """Write parts as executors do; return them as a flush."""
        write = self.destination.prepare(self.request)
        self.number += 1
        created = [self._part(write, rows) for rows in parts]
        token = token or f"{self.run}-{self.number:06d}"
        if noted:
            self.noted.append(token)
            self.destination.keep(self.request, note_of(*self.noted))
        return Flush(self.stream, token, write, self.request, tuple(created), state=state)

    def load(self, *parts: Rows, noted: bool = False, state: str | None = None) -> Flush:
        """Commit the parts as one flush, with a note of all noted flushes of the run."""
        if noted and not self.noted:
            self.recall()
        flush = self.flush(*parts, noted=noted, state=state)
        self.destination.commit(flush)
        return flush

    def end(self) -> None:
        self.destination.finish(self.request)

    def activate(self, version: int, *, at: float = 86400.0) -> str | None:
        return self.destination.activate(self.request, VersionEdit(version, self.hard_delete, at))

    def recall(self) -> frozenset[str]:
        """Return the tokens of what an earlier run has left."""
        actual: frozenset[str] = self.destination.recall(self.request).tokens
        return actual

    @property
    def name(self) -> str:
        """Return the table's name in SQL."""
        return str(self.destination._form.place(self.request.name).table)

    def reader(self) -> SparkSession:
        """Return a session that has read nothing yet."""
        return own_session(self.spark, self.config, self.destination._form.conf)

    def handle(self) -> TableHandle:
        """Return the table as another program would open it."""
        place = self.destination._form.place(self.request.name)
        return TableHandle(place, functools.cache(self.reader))

    def sql(self, statement: str) -> list[Any]:
        """Run a statement as another program would; `{t}` is the table."""
        return self.reader().sql(statement.replace("{t}", self.name)).collect()

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """Return the table's rows, sorted."""
        frame = self.reader().table(self.name)
        frame = frame.select(*columns) if columns else frame
        return sorted((tuple(row) for row in frame.collect()), key=repr)

    def columns(self) -> list[tuple[str, str]]:
        struct = self.reader().table(self.name).schema
        return [(f.name, f.dataType.simpleString()) for f in struct]

    def required(self) -> list[str]:
        """Return the columns that are NOT NULL."""
        return [f.name for f in self.reader().table(self.name).schema if not f.nullable]

    def properties(self) -> dict[str, str]:
        return {row[0]: row[1] for row in self.sql("SHOW TBLPROPERTIES {t}")}

    def history(self) -> list[Any]:
        """Return the commits that are known."""
        raise NotImplementedError

    def partitions(self) -> list[str]:
        """Return what the table is partitioned by."""
        raise NotImplementedError

    def marks(self) -> list[Mark]:
        """Return marks of ours, newest first."""
        form = self.destination._form
        actual = tuple(form.marks(self.handle(), 100))
        assert first_able(form, lambda engine: tuple(engine.marks(self.handle(), 100))) == actual
        return [mark for mark in actual if mark is not None]

    def other_reader(self) -> Table:
        """Return what a program other than Spark reads."""
        raise NotImplementedError

    def _part(self, write: Any, rows: Rows) -> Part:
        path = Path(write.pending) / f"{uuid.uuid4().hex}.parquet"
        schema = struct_to_arrow(write.struct)
        parquet.write_table(pa.Table.from_pylist(list(rows), schema), path)
        return Part(str(path), len(rows), path.stat().st_size)


def _as_in_spark(value: Any) -> Any:
    """Return a value as rows of Spark hold it: local times without a zone."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone().replace(tzinfo=None)
    return value


def note_of(*tokens: str) -> Note:
    """Return a note with a segment for each flush."""
    return Note(tuple(Entry(token, Segment(1, f"digest of {token}")) for token in tokens))


@dataclass
class Table:
    """A table as another program reads it."""

    rows: list[dict[str, Any]]
    required: list[str]
    comments: dict[str, str]


@dataclass
class DeltaLoad(Load):
    """Runs of a target over one stream into a Delta table."""

    make = staticmethod(delta_destination)

    def history(self) -> list[Any]:
        """Return the commits, newest first, by delta-rs: Spark takes half a second for them."""
        deltalake = pytest.importorskip("deltalake")
        folder = Path(self.config.path) / self.table
        if not (folder / "_delta_log").is_dir():
            return self.sql("DESCRIBE HISTORY {t}")
        commits = deltalake.DeltaTable(str(folder)).history()
        texts = [{k: str(v) for k, v in one.get("operationMetrics", {}).items()} for one in commits]
        return [{**one, "operationMetrics": t} for one, t in zip(commits, texts, strict=True)]

    def partitions(self) -> list[str]:
        return list(self.sql("DESCRIBE DETAIL {t}")[0]["partitionColumns"])

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """Read by delta-rs: for Spark, each new version of a table is a job, planned anew."""
        deltalake = pytest.importorskip("deltalake")
        folder = Path(self.config.path) / self.table
        if not (folder / "_delta_log").is_dir() or any("." in name for name in columns):
            return super().rows(*columns)
        table = deltalake.DeltaTable(str(folder))
        if set(table.protocol().reader_features or ()) - {"deletionVectors", "timestampNtz"}:
            return super().rows(*columns)
        builder = deltalake.QueryBuilder().register("t", table)
        chosen = ", ".join(f'"{name}"' for name in columns) or "*"
        actual = pa.table(builder.execute(f"SELECT {chosen} FROM t"))
        if any(pa.types.is_nested(dtype) for dtype in actual.schema.types):
            return super().rows(*columns)
        lists = [[_as_in_spark(v) for v in column.to_pylist()] for column in actual.columns]
        return sorted(zip(*lists, strict=True), key=repr)

    def other_reader(self) -> Table:
        deltalake = pytest.importorskip("deltalake")
        actual = deltalake.DeltaTable(f"{self.config.path}/{self.table}")
        fields = actual.schema().fields
        return Table(
            actual.to_pyarrow_table().to_pylist(),
            [field.name for field in fields if not field.nullable],
            {field.name: field.metadata.get("comment", "") for field in fields},
        )


@dataclass
class IcebergLoad(Load):
    """Runs of a target over one stream into an Iceberg table."""

    make = staticmethod(iceberg_destination)

    def history(self) -> list[Any]:
        """Return the commits, oldest first."""
        return self.sql("SELECT * FROM {t}.snapshots ORDER BY committed_at")

    def partitions(self) -> list[str]:
        actual = described(self.handle())
        return [name.strip("`") for name in actual.spec]

    def other_reader(self) -> Table:
        actual = self.pyiceberg()
        fields = actual.schema().fields
        return Table(
            actual.scan().to_arrow().to_pylist(),
            [field.name for field in fields if field.required],
            {field.name: field.doc or "" for field in fields},
        )

    def pyiceberg(self) -> Any:
        """Return the table of `pyiceberg`."""
        if self.config.catalog is None:
            static = pytest.importorskip("pyiceberg.table").StaticTable
            folder = Path(self.config.path) / self.table / "metadata"
            actual = folder.glob("v*.metadata.json")
            newest = max(actual, key=lambda path: int(path.name[1:].partition(".")[0]))
            return static.from_metadata(str(newest))
        sql = pytest.importorskip("pyiceberg.catalog.sql")
        uri = self.config.spark.conf[f"spark.sql.catalog.{self.config.catalog}.uri"]
        catalog = sql.SqlCatalog(self.config.catalog, uri=uri.replace("jdbc:sqlite:", "sqlite:///"))
        name = f"{self.config.default_target_schema or 'default'}.{self.table}"
        try:
            return catalog.load_table(name)
        finally:
            # A connection that is left open may keep the file locked until it is collected.
            catalog.engine.dispose()


CATALOGS = {"delta": "spark_catalog", "iceberg": "warehouse"}


def lake_config(form: str, folder: Path, *, in_catalog: bool, **settings: Any) -> TargetConfig:
    """Return settings for tables below a folder, or in a catalog: JDBC on SQLite for Iceberg."""
    if not in_catalog:
        return TargetConfig(format=form, path=str(folder / "lake"), **settings)
    catalog = CATALOGS[form]
    conf = {}
    if form == "iceberg":
        (folder / "jdbc").mkdir(exist_ok=True)
        supplied = sqlite_catalog(folder / "jdbc")
        conf = {f"spark.sql.catalog.{catalog}{key}": text for key, text in supplied.items()}
    spark = SparkSettings(app_name="tests", conf=conf)
    return TargetConfig(format=form, path="", catalog=catalog, spark=spark, **settings)


def sqlite_catalog(folder: Path) -> dict[str, str]:
    """Return the configuration of a JDBC catalog in a file, without its name."""
    return {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:sqlite:{folder}/catalog.db",
        ".jdbc.schema-version": "V1",
        ".warehouse": str(folder),
    }


def run_together(*works: Callable[[], object]) -> None:
    """Run all of them at the same time; none may fail."""
    failures: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def struct(ddl: str) -> StructType:
    """Return columns of Spark's short DDL: `id long, name string`."""
    from pyspark.sql.types import StructType, _parse_datatype_string

    created = _parse_datatype_string(ddl)
    assert isinstance(created, StructType)
    return created
