"""Rows of Parquet, CSV and Avro files are judged as the records that they represent."""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator
from pyspark.sql import types as T  # noqa: N812
from test_keyword_cases import Collected
from validation_cases import CASES, COMMON, DEFINITIONS, OBJECT

from shared.formats.arrow_types import struct_to_arrow
from shared.formats.file_formats import FORMATS, Encoding
from shared.formats.json_lines import LineReader
from shared.formats.schema_nodes import JsonText, json_schema_to_spark
from target_spark.convert.read_plan import Piece, ReadPlan
from target_spark.convert.read_rows import read_task
from target_spark.core.load_plans import InputFile

pytestmark = pytest.mark.once

KEPT = {"type", "format", "x-spark-type", "contentEncoding", "precision", "scale", "multipleOf"}


def bare(node: Any) -> Any:
    """Return only the keywords that determine the type of a column."""
    if not isinstance(node, dict):
        return node
    actual = {key: value for key, value in node.items() if key in KEPT}
    if isinstance(node.get("items"), dict):
        actual["items"] = bare(node["items"])
    if node.get("properties"):
        actual["properties"] = {name: bare(below) for name, below in node["properties"].items()}
    if "minimum" in node and "maximum" in node and node.get("type") == "integer":
        actual |= {key: node[key] for key in ("minimum", "maximum")}
    return actual


def has_odd(data_type: T.DataType) -> bool:
    if isinstance(data_type, T.StructType):
        return any(has_odd(field.dataType) for field in data_type)
    if isinstance(data_type, T.ArrayType):
        return has_odd(data_type.elementType)
    return isinstance(data_type, JsonText | T.MapType | T.NullType | T.VariantType)


def refused(path: Path, schema: dict[str, Any], table: pa.Table, form: str) -> dict[int, str]:
    """Return the rows, from 0, that are rejected when the table arrives as a batch file."""
    FORMATS[form].write(str(path), table.schema, [table], "none")
    columns = struct_to_arrow(json_schema_to_spark(schema))
    plan = ReadPlan(tasks=(), schema=schema, columns=columns, strict=True)
    rejects = Collected()
    piece = Piece(InputFile(str(path), Encoding(form)))
    kept = sum(t.num_rows for t in read_task(plan, [piece], rejects))  # type: ignore[arg-type]
    assert kept + len(rejects) == table.num_rows
    return {reject.line - 1: reject.reason for reject in rejects}


def in_columns(value: Any, data_type: T.DataType) -> Any:
    """Return a value as columns hold it: with every field, and only those."""
    if isinstance(value, dict) and isinstance(data_type, T.StructType):
        return {f.name: in_columns(value.get(f.name), f.dataType) for f in data_type}
    if isinstance(value, list) and isinstance(data_type, T.ArrayType):
        return [in_columns(item, data_type.elementType) for item in value]
    return value


def stands_for(value: Any) -> list[Any]:
    """Return all values that it may represent: a null may be missing."""
    if isinstance(value, dict):
        parts = [
            [(key, part) for part in stands_for(actual)] + ([None] if actual is None else [])
            for key, actual in value.items()
        ]
        return [dict(filter(None, chosen)) for chosen in product(*parts)]
    if isinstance(value, list):
        return [list(chosen) for chosen in product(*map(stands_for, value))]
    return [value]


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    data = pa.array([b"a", b"\xff", None, b"b"])
    table = pa.table({"v": pa.Array.from_buffers(pa.string(), 4, data.buffers())})
    schema = {"properties": {"v": {"type": ["string", "null"]}}}
    rejected = refused(tmp_path / "f", schema, table, "parquet")
    assert rejected == {1: "text that is not UTF-8 is not Unicode text"}


TYPED = [
    (name, place)
    for name, cases in CASES.items()
    for place, (node, _) in enumerate(cases)
    if isinstance(node, dict) and "type" in node
    and not has_odd(json_schema_to_spark({"properties": {"v": node}}, JsonText()))
    and json_schema_to_spark({"properties": {"v": node}}, JsonText())["v"].dataType
    == json_schema_to_spark({"properties": {"v": bare(node)}}, JsonText())["v"].dataType
]  # fmt: skip


@pytest.mark.parametrize(("name", "place"), TYPED)
def test_rows_as_their_records(tmp_path: Path, name: str, place: int) -> None:
    node, own = CASES[name][place]
    records = [f'{{"v":{value}}}' for value in ("null", *COMMON, *own) if "NaN" not in value
               and "Infinity" not in value]  # fmt: skip
    data = "\n".join(records).encode()
    typed = LineReader({"properties": {"v": bare(node)}}, envelope=False, strict=True).read(data)
    gone = {place for place, _ in typed.rejects}
    numbered = typed.table.append_column("id", pa.array(range(typed.table.num_rows)))
    records = [record for place, record in enumerate(records) if place not in gone]
    types = Draft202012Validator({"properties": {"v": bare(node)}})
    struct = json_schema_to_spark({"properties": {"v": bare(node)}}, JsonText())
    is_float = "float" in str(node.get("x-spark-type"))
    schema = {"type": "object", "properties": {"v": node}, "$defs": DEFINITIONS}
    library = Draft202012Validator(schema)
    for form in ("parquet", "csv", "avro"):
        if form == "avro" and b"\xc3\xa9" in json.dumps(schema, ensure_ascii=False).encode():
            continue  # names of fields are plain there
        if form == "csv" and pa.types.is_nested(typed.table.schema.field("v").type):
            continue  # Arrow writes none
        actual = refused(tmp_path / form, schema, numbered, form)
        for row, text in enumerate(records):
            record = json.loads(text)
            if form == "csv" and record["v"] == "":
                continue  # a text is never null there
            taken = stands_for(in_columns(record, struct))
            if not any(map(types.is_valid, taken)) or (is_float and "0999" in text):
                continue  # texts become decimals, and single precision rounds, before the file
            valid = any(map(library.is_valid, taken))
            assert (row not in actual) == valid, f"{form} {node} {text}: {actual.get(row)}"


def supplied(tmp_path: Path, schema: dict[str, Any], table: pa.Table) -> dict[int, str]:
    return refused(tmp_path / "f", schema, table, "parquet")


def test_null_stands_for_what_is_left_out(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([1, None]), "b": pa.array([None, "x"])})
    assert supplied(tmp_path, {"properties": OBJECT}, table) == {}
    actual = supplied(tmp_path, {"properties": OBJECT, "required": ["a", "b"]}, table)
    assert list(actual) == [1]


def test_a_column_that_the_file_lacks(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2]})
    assert supplied(tmp_path, {"properties": OBJECT}, table) == {}
    actual = supplied(tmp_path, {"properties": OBJECT, "required": ["b"]}, table)
    assert actual == {0: "'b' is a required property", 1: "'b' is a required property"}


def test_columns_and_fields_that_the_schema_does_not_name(tmp_path: Path) -> None:
    nested = {"a": {"type": "object", "properties": OBJECT, "additionalProperties": False}}
    inner = pa.array([{"a": 1, "c": 1}, {"a": 1, "c": None}])
    assert list(supplied(tmp_path, {"properties": nested}, pa.table({"a": inner}))) == [0]
    closed = {"properties": OBJECT, "additionalProperties": False}
    table = pa.table({"a": [1, 2], "c": pa.array([None, "x"])})
    assert list(supplied(tmp_path, closed, table)) == [1]
    typed = {"properties": OBJECT, "additionalProperties": {"type": "integer"}}
    table = pa.table({"a": [1, 2], "c": pa.array([5, 6])})
    assert supplied(tmp_path, typed, table) == {}


TEXT = pa.string()
MAP_OF_JSON = {"additionalProperties": {"type": ["string", "object"]}}


@pytest.mark.parametrize(
    ("node", "values", "wrong"),
    [
        ({"type": "object"}, ['{"a":1}', "[1]", "x", None], [1, 2]),
        ({"type": ["array", "null"], "minItems": 1}, ["[1]", "[]", None], [1]),
        ({"type": ["integer", "string"], "minimum": 3}, ["5", "1", "x"], []),
        ({"type": ["integer", "boolean"]}, ["5", "true", "x", "1.5"], [2, 3]),
        ({"anyOf": [{"type": "integer"}, {"type": "object"}]}, ["5", "{}", "[]"], [2]),
        ({"type": ["integer", "string", "null"], "minimum": 3}, [5, 1, None], [1]),
        ({"type": ["number", "string", "null"]}, [True, None], [0]),
        ({"type": ["array", "string"], "maxItems": 1}, [[1], [1, 2]], [1]),
        ({"type": ["integer", "string"], "minimum": 3}, [b"\xd3]4"], []),
        (MAP_OF_JSON, pa.array([[("x", "1")], [("x", "{}")]], pa.map_(TEXT, TEXT)), []),
        (MAP_OF_JSON, pa.array([[("x", 1)]], pa.map_(TEXT, pa.int64())), [0]),
        ({"type": ["object", "string"], "properties": OBJECT, "additionalProperties": False},
         [{"a": 1, "c": None}, {"a": None, "c": 1}], [1]),
    ],
)  # fmt: skip
def test_columns_of_json(tmp_path: Path, node: Any, values: Any, wrong: list[int]) -> None:
    values = values if isinstance(values, pa.Array) else pa.array(values)
    table = pa.table({"v": values})
    assert list(supplied(tmp_path, {"properties": {"v": node}}, table)) == wrong


def test_whole_records_of_free_form(tmp_path: Path) -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    table = pa.table({"x": [1, 2], "y": pa.array([1, None])})
    assert supplied(tmp_path, schema, table) == {}, "a null may be missing"
    assert list(supplied(tmp_path, {**schema, "required": ["y"]}, table)) == [1]
    table = pa.table({"x": ["1"]})
    assert supplied(tmp_path, schema, table) == {0: "property 'x': '1' is not of type 'integer'"}


def test_exact_decimals(tmp_path: Path) -> None:
    node = {"type": "number", "multipleOf": 0.05, "maximum": 0.1}
    values = [Decimal("0.10"), Decimal("0.15"), Decimal("0.01")]
    table = pa.table({"v": pa.array(values, pa.decimal128(5, 2))})
    assert list(supplied(tmp_path, {"properties": {"v": node}}, table)) == [1, 2]
    text = {"type": "string", "format": "singer.decimal", "precision": 5, "scale": 2}
    assert supplied(tmp_path, {"properties": {"v": text}}, table) == {}


def test_rows_after_others(tmp_path: Path) -> None:
    table = pa.table({"v": pa.array(range(100))})
    pq.write_table(table, tmp_path / "x", row_group_size=30)
    schema = {"properties": {"v": {"type": "integer", "maximum": 94}}}
    plan = ReadPlan((), schema, struct_to_arrow(json_schema_to_spark(schema)))
    rejects = Collected()
    piece = Piece(InputFile(str(tmp_path / "x"), Encoding("parquet")), 2, 2, 60)
    assert sum(t.num_rows for t in read_task(plan, [piece], rejects)) == 35  # type: ignore[arg-type]
    assert [reject.line for reject in rejects] == [96, 97, 98, 99, 100]
    assert rejects[0].reason == "property 'v': 95 is greater than the maximum of 94"
