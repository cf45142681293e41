"""File tables without Spark: a destination whose parts a test writes by itself."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from shared.formats.arrow_types import arrow_schema
from shared.formats.file_formats import FORMATS, Encoding
from target_spark.convert import write_tasks
from target_spark.convert.write_tasks import rewrite
from target_spark.core.load_plans import Layout, Part, SchemaContract, TableName, TableRequest
from target_spark.destinations.destination import Flush, TableWrite
from target_spark.destinations.files.file_destination import FileDestination
from target_spark.destinations.folders.table_folder import table_path
from target_spark.tables.version_edit import VersionEdit


def struct(ddl: str) -> StructType:
    pairs = (column.split() for column in ddl.split(", "))
    names = {"bigint": "long"}
    fields = [
        {"name": name, "type": names.get(kind, kind), "nullable": True, "metadata": {}}
        for name, kind in pairs
    ]
    return StructType.fromJson({"type": "struct", "fields": fields})


AB = struct("a bigint, b string")


def rewrite_here(
    pairs: Sequence[tuple[str, str]], write: TableWrite, edit: VersionEdit | None = None
) -> dict[str, int]:
    numbers = pa.record_batch({"id": list(range(len(pairs)))})
    rows = [row for batch in rewrite(pairs, write, edit, [numbers]) for row in batch.to_pylist()]
    assert {row["kind"] for row in rows} <= {"part"}
    return {row["url"]: row["rows"] for row in rows}


class Table:
    def __init__(
        self,
        path: str,
        form: str = "parquet",
        overwrite: bool = False,
        partition_by: tuple[str, ...] = (),
    ) -> None:
        self.form = form
        self.contract = SchemaContract()
        self.layout = Layout(partition_by=partition_by)
        encoding = Encoding(form, FORMATS[form].default_compression)
        self.method = "overwrite" if overwrite else "append-only"
        self.destination = FileDestination(path, encoding, rewrite_here)
        self.flushes = 0

    def flush(self, struct: StructType, *parts: Sequence[tuple[Any, ...]]) -> Flush:
        request = self.request(struct)
        write = self.destination.prepare(request)
        self.flushes += 1
        created = self.divided if write.partition_by else self.part
        written = [created(write, rows) for rows in parts]
        flat = [p for actual in written for p in (actual if isinstance(actual, list) else [actual])]
        return Flush("s", f"t{self.flushes}", write, request, tuple(flat))

    def prepare(self, struct: StructType = AB) -> TableWrite:
        return self.destination.prepare(self.request(struct))

    def request(self, struct: StructType = AB) -> TableRequest:
        name = TableName("s")
        return TableRequest(
            "s", struct, name, method=self.method, layout=self.layout, contract=self.contract
        )

    def part(self, write: TableWrite, rows: Sequence[tuple[Any, ...]]) -> Part:
        schema = arrow_schema(write.struct, write.encoding.format)
        names = schema.names
        records = [
            row if isinstance(row, dict) else dict(zip(names, row, strict=False)) for row in rows
        ]
        form = FORMATS[self.form]
        url = f"{write.pending}/{os.urandom(8).hex()}{form.extension(write.encoding.compression)}"
        if form.rows == "lines":
            schema = pa.schema([("value", pa.string())])
            records = [{"value": json.dumps(record) + "\n"} for record in records]
        table = pa.Table.from_pylist(records, schema)
        form.write(url, schema, [table], write.encoding.compression)
        return Part(url, len(rows), 1)

    def divided(self, write: TableWrite, rows: Sequence[tuple[Any, ...]]) -> list[Part]:
        """Write rows as a task does, in folders."""
        schema = arrow_schema(write.struct, write.encoding.format)
        records = [dict(zip(schema.names, row, strict=False)) for row in rows]
        if FORMATS[self.form].rows == "lines":
            beside = [(f"partition {n}", schema.field(n).type) for n in write.partition_by]
            lines = [{k: v for k, v in r.items() if k not in write.partition_by} for r in records]
            records = [
                {"value": json.dumps(line, default=str) + "\n"}
                | {f"partition {name}": record.get(name) for name in write.partition_by}
                for line, record in zip(lines, records, strict=True)
            ]
            schema = pa.schema([("value", pa.string()), *beside])
        table = pa.Table.from_pylist(records, schema)
        actual = write_tasks.written(write, schema, lambda _: iter([table])).to_pylist()
        assert {row["kind"] for row in actual} <= {"part"}, actual
        return [Part(row["url"], row["rows"], row["size"]) for row in actual]

    @property
    def table(self) -> str:
        return table_path(self.destination.path, TableName("s"))

    @property
    def folder(self) -> Path:
        return Path(self.table)

    def rows(self) -> list[dict[str, Any]]:
        actual: list[dict[str, Any]] = []
        for name in sorted(os.listdir(self.folder)):
            if name.startswith(("_", ".")):
                continue
            for table in FORMATS[self.form].read(str(self.folder / name)):
                if self.form == "json":
                    text = b"".join(table.column(0).to_pylist())
                    actual += [json.loads(line) for line in text.splitlines()]
                else:
                    actual += table.to_pylist()
        return actual

    def values(self, name: str = "a") -> list[float]:
        return [float(row[name]) for row in self.rows()]
