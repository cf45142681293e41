"""Whole records in one column, read without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, VariantType

from shared.errors import MessageError
from shared.formats.file_formats import Encoding
from shared.maps.record_metadata import DELETED_AT, RecordMetadata, record_schema
from target_spark.convert.read_plan import Piece, ReadPlan
from target_spark.convert.read_rows import read_task
from target_spark.convert.stream_tables import as_document
from target_spark.convert.task_reports import Rejects
from target_spark.core.load_plans import DOCUMENT, InputFile, TableName, TableRequest

SCHEMA = {"properties": {"id": {"type": "integer"}, "name": {"type": ["string", "null"]}}}
STRUCT = StructType().add("id", LongType()).add("name", StringType()).add(DELETED_AT, StringType())
COLUMNS = pa.schema(
    {"id": pa.int64(), DOCUMENT: pa.string(), DELETED_AT: pa.timestamp("us", "UTC")}
)
RECORDS: list[dict[str, Any]] = [
    {"id": 1, "name": "Zoë", "more": {"a": [1.50, None]}},
    {"id": "x"},
    {"id": 2, DELETED_AT: "2026-01-01T00:00:00+00:00"},
]


def read(file: InputFile) -> tuple[list[dict[str, Any]], Rejects]:
    plan = ReadPlan(
        tasks=(),
        schema=record_schema(SCHEMA, add=True),
        columns=COLUMNS,
        metadata=RecordMetadata(0, 0, 0),
        document=DOCUMENT,
    )
    rejects = Rejects(None)
    return [row for t in read_task(plan, [Piece(file)], rejects) for row in t.to_pylist()], rejects


def check(rows: list[dict[str, Any]], rejects: Rejects) -> None:
    assert [row["id"] for row in rows] == [1, 2]
    assert [json.loads(row[DOCUMENT])["id"] for row in rows] == [1, 2]
    assert [row[DELETED_AT] is None for row in rows] == [True, False]
    assert [row["rows"] for row in rejects.rows() if row["kind"] == "reject"] == [2]


def test_order_columns_stay_columns() -> None:
    name = TableName("s")
    request = TableRequest("s", STRUCT, name, ("id",), "upsert", order_by=("name",))
    assert as_document(request, view=False).struct.names == ["id", "name", DOCUMENT, DELETED_AT]
    with pytest.raises(MessageError, match="order column or key property named 'data'"):
        struct = StructType().add("id", LongType()).add(DOCUMENT, LongType())
        as_document(replace(request, struct=struct, order_by=(DOCUMENT,)), view=False)


def test_staged_lines(tmp_path: Path) -> None:
    lines = [json.dumps({"type": "RECORD", "stream": "s", "record": r}) for r in RECORDS]
    path = tmp_path / "s"
    path.write_text("\n".join(lines) + "\n")
    rows, rejects = read(InputFile(str(path), Encoding("singer")))
    check(rows, rejects)
    assert json.loads(rows[0][DOCUMENT]) == RECORDS[0], "properties outside of the schema stay"


def test_json_files(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in RECORDS))
    check(*read(InputFile(str(path), Encoding("jsonl"))))


def test_parquet_files(tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    columns = {"id": ["1", "x", "2"], DELETED_AT: [None, None, "2026-01-01T00:00:00+00:00"]}
    pq.write_table(pa.table({**columns, "more": [1, 2, 3]}), path)
    rows, rejects = read(InputFile(str(path), Encoding("parquet")))
    assert rows == []  # a text is not an integer, as in JSON
    assert sum(row["rows"] for row in rejects.rows() if row["kind"] == "rejected") == 3
    pq.write_table(pa.table({**columns, "id": [1, None, 2], "more": [1, 2, 3]}), path)
    rows, rejects = read(InputFile(str(path), Encoding("parquet")))
    assert [row["id"] for row in rows] == [1, None, 2]
    assert [json.loads(row[DOCUMENT])["more"] for row in rows] == [1, 2, 3]
    assert json.loads(rows[0][DOCUMENT])["more"] == 1


def test_the_request() -> None:
    request = TableRequest("s", STRUCT, TableName("s"), keys=("id",))
    actual = as_document(request, view=True)
    assert actual.struct.names == ["id", DOCUMENT, DELETED_AT]
    assert actual.struct[DOCUMENT].dataType == VariantType()
    assert actual.view is not None
    assert actual.view.names == ["id", "name"]
    assert as_document(request, view=False).view is None


def test_a_key_with_the_name_of_the_column() -> None:
    struct = StructType([StructField(DOCUMENT, LongType())])
    request = TableRequest("s", struct, TableName("s"), keys=(DOCUMENT,))
    with pytest.raises(MessageError, match=r"stream 's'.*key property named 'data'"):
        as_document(request, view=False)
