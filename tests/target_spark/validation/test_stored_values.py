"""Values in columns of files are converted back to the JSON that they represent."""

from __future__ import annotations

import json
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from shared.formats.json_lines import LineReader
from shared.formats.typed_rows import RowReader, RowsRead
from target_spark.validation.checks import RowChecker

TEXT = {"type": "string"}
ROUND: list[tuple[dict[str, Any], str]] = [
    ({"type": "integer"}, "-5"),
    ({"type": "integer", "minimum": 0, "maximum": 255, "x-spark-type": "short"}, "7"),
    ({"type": "integer", "maximum": 10**30}, "123456789012345678901234567890"),
    ({"type": "number"}, "0.1"),
    ({"type": "number", "x-spark-type": "float"}, "0.1"),
    ({"type": "number", "x-spark-type": "decimal(10,3)"}, "1.125"),
    ({"type": "boolean"}, "true"),
    (TEXT, '"a\\nb😀"'),
    ({**TEXT, "contentEncoding": "base64"}, '"AP8Q"'),
    ({**TEXT, "format": "date"}, '"2020-02-29"'),
    ({**TEXT, "format": "date-time"}, '"2020-02-29T01:02:03.000004+00:00"'),
    ({**TEXT, "format": "date-time", "x-spark-type": "timestamp_ntz"},
     '"2020-02-29T01:02:03.000000"'),
    ({**TEXT, "format": "time", "x-spark-type": "time(6)"}, '"01:02:03"'),
    ({**TEXT, "format": "duration", "x-spark-type": "interval day to second"}, '"-PT5.250000S"'),
    ({**TEXT, "format": "duration", "x-spark-type": "interval year to month"}, '"-P1Y2M"'),
    ({**TEXT, "format": "singer.decimal", "precision": 9, "scale": 2}, '"1.50"'),
    ({"type": "array", "items": {"type": "integer"}}, "[1,2]"),
    ({"type": "object", "properties": {"a": TEXT, "b": {"type": "number"}}}, '{"a":"x","b":1.5}'),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, '{"x":1,"y":2}'),
    ({"type": ["object", "array"]}, '{"a":[1,null]}'),
    ({"type": ["object", "array", "string", "number", "boolean"], "x-spark-type": "variant"},
     '[1.5,"x"]'),
    ({"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}}},
     '[{"a":1},{"a":2}]'),
]  # fmt: skip


@pytest.mark.parametrize(("node", "value"), ROUND)
def test_values_come_back(node: dict[str, Any], value: str) -> None:
    schema = {"properties": {"v": node}}
    line = f'{{"v":{value}}}\n'.encode()
    read = LineReader(schema, envelope=False, strict=True).read(line)
    assert read.rejects == ()
    fits = RowChecker({"properties": {"v": {**node, "enum": [json.loads(value)]}}})
    assert fits.fitting(RowsRead(read.table), read.table).rejects == ()
    other = RowChecker({"properties": {"v": {**node, "enum": ["something else"]}}})
    assert [row for row, _ in other.fitting(RowsRead(read.table), read.table).rejects] == [0]


def check(schema: dict[str, Any], table: pa.Table, *, texts: bool = False) -> RowsRead:
    actual = RowReader(schema, strict=True, texts=texts).read(table)
    return RowChecker(schema).fitting(actual, table)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([date(2020, 1, 2)], "2020-01-02"),
        ([datetime(2020, 1, 2, tzinfo=timezone.utc)], "2020-01-02T00:00:00.000000+00:00"),
        ([time(1, 2)], "01:02:00"),
    ],
)
def test_other_types_in_text_columns(values: list[Any], text: str) -> None:
    table = pa.table({"v": pa.array(values)})
    assert check({"properties": {"v": {**TEXT, "const": text}}}, table).rejects == ()
    assert len(check({"properties": {"v": {**TEXT, "const": "x"}}}, table).rejects) == 1


def test_reasons_after_rows_that_the_reader_refused() -> None:
    table = pa.table({"v": ["x", "5", "y", "1", None]})
    schema = {"properties": {"v": {"type": "integer", "minimum": 2}}, "required": ["v"]}
    actual = check(schema, table, texts=True)
    assert [row for row, _ in actual.rejects] == [0, 2, 3, 4]
    assert actual.rejects[2][1] == "property 'v': 1 is less than the minimum of 2"
    assert actual.table.column("v").to_pylist() == [5]


def test_texts_of_nested_values_in_csv() -> None:
    inner = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}}
    table = pa.table({"v": ['{"a":1}', '{"a":0}', '{"a":1,"b":2}', None]})
    assert [row for row, _ in check({"properties": {"v": inner}}, table, texts=True).rejects] == [1]
    closed = {"properties": {"v": {**inner, "additionalProperties": False}}}
    assert [row for row, _ in check(closed, table, texts=True).rejects] == [1, 2]


def test_decimals_of_files_are_exact() -> None:
    node = {"type": "number", "x-spark-type": "decimal(20,10)", "exclusiveMaximum": 0.3}
    values = [Decimal("0.3"), Decimal("0.2999999999"), Decimal("0.3000000001")]
    table = pa.table({"v": pa.array(values, pa.decimal128(20, 10))})
    assert [row for row, _ in check({"properties": {"v": node}}, table).rejects] == [0, 2]


def test_columns_of_other_outputs_do_not_count() -> None:
    schema = {"properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    table = pa.table({"a": [1], "b": [2]})
    actual = RowReader(schema, strict=True).read(table)
    assert len(RowChecker(schema).fitting(actual, table).rejects) == 1
    assert RowChecker(schema, frozenset({"a", "b"})).fitting(actual, table).rejects == ()


def test_an_empty_table() -> None:
    schema = {"properties": {"a": {"type": "integer", "minimum": 5}}, "required": ["a"]}
    assert check(schema, pa.table({"a": pa.array([], pa.int64())})).rejects == ()
