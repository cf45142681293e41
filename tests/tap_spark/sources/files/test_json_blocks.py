"""Files of JSON lines in blocks that threads read: as tasks of Spark do, or left to Spark."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from engines import threads
from pyspark.sql import types as T  # noqa: N812

from tap_spark.sources.files import json_rows
from tap_spark.sources.files.json_files import JsonSource
from tap_spark.sources.files.json_kinds import merged_all, type_of
from tap_spark.sources.files.json_rows import JsonRows, JsonTask, kinds_of
from tap_spark.sources.files.line_reader import LineRange, line_blocks
from tap_spark.state.stream_plans import RowForm, StreamPlan
from tap_spark.stream_config import StreamConfig


def source(tmp_path: Path, data: bytes) -> JsonSource:
    (tmp_path / "a.json").write_bytes(data)
    return JsonSource(StreamConfig("s", "json", path=str(tmp_path / "a.json")))


def by_threads(source: JsonSource, struct: T.StructType, form: RowForm) -> list[Any] | None:
    """Return the rows as dictionaries or texts; None if they are left to Spark."""
    plan = StreamPlan(
        *("s", "s", source.stream, {}, tuple(struct.names)), source_schema=struct.json()
    )
    rows = source.read_on_driver(plan, form, threads())
    if rows is None:
        return None
    assert (rows.blocks is None) == (form is RowForm.RECORDS)
    blocks = rows.records if rows.blocks is None else [read() for read in rows.blocks.readers]
    read = list(blocks or ())
    return None if None in read else [row for block in read for row in block.to_pylist()]


def in_task(source: JsonSource, struct: T.StructType) -> list[dict[str, Any]] | None:
    """Return the rows that a task of Spark reads; None if it fails."""
    path = source.paths[0]
    size = Path(path).stat().st_size
    part = LineRange(path, 0, 0, size, size, aligned=True)
    try:
        batches = list(JsonTask(JsonRows(struct))([part]))
    except RuntimeError:
        return None
    return [row for batch in batches for row in batch.to_pylist()]


def test_types(tmp_path: Path) -> None:
    data = """{"z": 1, "s": "2024-01-01", "null": null, "none": [null], "in": {"y": [], "X": true}}

{"z": 1.0, "in": {"y": [{"b": 1}, null, {"a": -9223372036854775808}]}, "\ufb01": "", "🎉": "-0"}
"""
    actual = source(tmp_path, data.encode().replace(b"\n", b"\r\n")).schema_on_driver(threads())
    assert actual is not None
    assert actual.simpleString() == (
        "struct<in:struct<X:boolean,y:array<struct<a:bigint,b:bigint>>>,none:array<string>,"
        "null:string,s:string,z:double,🎉:string,\ufb01:string>"
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}\n",
        b'[{"a":1}]',
        b"1",
        b'{"a":1',
        b'{"a":1} x',
        b"{'a':1}",
        b'\xef\xbb\xbf{"a":1}',
        b'{"a":"\xff"}',
        b'{"a":1}\r{"a":2}',
        b'{"a":"\t"}',
        b'{"a":"\\u0001"}',
        b'{"a":"\\ud800"}',
        b'{"a":1,"a":1}',
        b'{"a":{"b":1,"b":1}}',
        b'{"a":1}\n{"A":1}',
        b'{"":1}',
        b'{"a\\tb":1}',
        b'{"_tap_spark_corrupt":"x"}',
        b'{"a":01}',
        b'{"a":%b1%b}' % (b"[" * 600, b"]" * 600),
    ],
)
def test_what_is_inferred_by_spark(tmp_path: Path, data: bytes) -> None:
    assert source(tmp_path, data).schema_on_driver(threads()) is None


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":{}}',
        b'{"a":1}\n \n',
        b'{"a":"x"}\n{"a":1}',
        b'{"a":""}\n{"a":1}',
        b'{"a":true}\n{"a":1}',
        b'{"a":[1,"x"]}',
        b'{"a":[1]}\n{"a":1}',
        b'{"a":{"b":1}}\n{"a":[]}',
        b'{"a":9223372036854775808}',
        b'{"a":-99999999999999999999}',
        b'{"a":-0}',
        b'{"a":NaN}',
        b'{"a":1e400}',
        b'{"a":0.%b}' % (b"1" * 100),
        b'{"%b":1}' % (b"a" * 10_001),
        b'{"a":[%b]}' % b",".join([b"[]"] * 1000),
        b'{"a":%b1%b}' % (b"[" * 60, b"]" * 60),
    ],
)
def test_odd_values_are_read_as_in_tasks(tmp_path: Path, data: bytes) -> None:
    of_threads = source(tmp_path, data)
    struct = of_threads.schema_on_driver(threads())
    assert isinstance(struct, T.StructType)
    size = len(data)
    (block,) = line_blocks(LineRange(of_threads.paths[0], 0, 0, size, size, aligned=True))
    kinds = [pickle.loads(b["kinds"][0].as_py()) for b in kinds_of(block)]
    assert struct == type_of(merged_all(kinds))
    # NaN differs from itself.
    assert repr(by_threads(of_threads, struct, RowForm.BLOCKS)) == repr(in_task(of_threads, struct))
    records, rows = by_threads(of_threads, struct, RowForm.RECORDS), in_task(of_threads, struct)
    assert (records is None) == (rows is None)
    assert len(records or ()) == len(rows or ())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1", "1.0"),
        ("0", "0.0"),
        ("-0.0", "-0.0"),
        ("1.10", "1.1"),
        ("0.001", "0.001"),
        ("9999999.0", "9999999.0"),
        ("1e7", "1.0E7"),
        ("-123456789.5", "-1.234567895E8"),
        ("0.00099", "9.9E-4"),
        ("999999999999999", "9.99999999999999E14"),
        ("0.30000000000000004", "0.30000000000000004"),
        ("1e15", "1.0E15"),
        ("1e-16", "1.0E-16"),
    ],
)
@pytest.mark.parametrize("is_nested", [False, True])
def test_doubles_are_written_as_java_does(
    tmp_path: Path, value: str, text: str, is_nested: bool
) -> None:
    dtype: T.DataType = T.DoubleType()
    if is_nested:
        value, text, dtype = f'{{"b":[{value}]}}', f'{{"b":[{text}]}}', T.ArrayType(dtype)
        dtype = T.StructType([T.StructField("b", dtype)])
    actual = source(tmp_path, f'{{"a":{value}}}'.encode())
    struct = T.StructType([T.StructField("a", dtype)])
    assert by_threads(actual, struct, RowForm.RECORDS) == [f'{{"a":{text}}}']


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (T.DoubleType(), "1"),
        (T.DoubleType(), True),
        (T.LongType(), True),
        (T.LongType(), 2**63),
        (T.IntegerType(), 2**31),
        (T.StructType([T.StructField("b", T.LongType())]), []),
        (T.StructType([T.StructField("b", T.LongType())]), {"B": 1}),
        (T.TimestampType(), "2024-01-01T00:00:00.1234567Z"),
    ],
)
@pytest.mark.parametrize("form", RowForm)
def test_values_of_another_type_are_left_to_spark(
    tmp_path: Path, dtype: T.DataType, value: object, form: RowForm
) -> None:
    struct = T.StructType([T.StructField("a", dtype)])
    actual = source(tmp_path, json.dumps({"a": value}).encode())
    assert by_threads(actual, struct, form) is None
    assert in_task(actual, struct) is None


@pytest.mark.parametrize(
    ("dtype", "value", "text"),
    [
        (T.StringType(), 1, '"1"'),
        (T.StringType(), {}, '"{}"'),
        (T.DateType(), None, "null"),
        (T.DateType(), "2024-02-29", '"2024-02-29"'),
        (T.TimestampType(), "2024-02-29T01:00:00+01:00", '"2024-02-29T00:00:00.000000+00:00"'),
        (T.DecimalType(10, 2), 1.5, "1.50"),
    ],
)
def test_types_of_the_catalog(tmp_path: Path, dtype: T.DataType, value: object, text: str) -> None:
    struct = T.StructType([T.StructField("a", dtype)])
    actual = source(tmp_path, json.dumps({"a": value}).encode())
    assert by_threads(actual, struct, RowForm.RECORDS) == [f'{{"a":{text}}}']
    assert by_threads(actual, struct, RowForm.BLOCKS) == in_task(actual, struct)


NESTED = T.StructType(
    [T.StructField("d", T.DecimalType(38, 7)), T.StructField("m", T.DecimalType(9, 2))]
)


def test_nested_decimals_are_written_as_spark_does(tmp_path: Path) -> None:
    """Without zeros at the end if there are more than six places."""
    struct = T.StructType([T.StructField("a", T.ArrayType(NESTED))])
    lines = b'{"a":[{"d":0,"m":1.5},{"d":1.50,"m":0},{"d":0.0000001,"m":null}]}'
    assert by_threads(source(tmp_path, lines), struct, RowForm.RECORDS) == [
        '{"a":[{"d":0,"m":1.50},{"d":1.5,"m":0.00},{"d":0.0000001,"m":null}]}'
    ]


@pytest.mark.parametrize("kind", [T.TimestampType(), T.DateType()])
def test_nested_years_beyond_pythons(tmp_path: Path, kind: T.DataType) -> None:
    """Python has no such date."""
    value = "9999-12-31T23:00:00-05:00" if kind == T.TimestampType() else "+10000-01-01"
    nested = T.StructType([T.StructField("a", kind), T.StructField("b", T.ArrayType(kind))])
    lines = source(tmp_path, json.dumps({"a": value, "b": [value]}).encode())
    sent = "+10000-01-01T04:00:00.000000+00:00" if kind == T.TimestampType() else value
    expected = [f'{{"a":"{sent}","b":["{sent}"]}}']
    assert by_threads(lines, nested, RowForm.RECORDS) == expected


def test_types_of_sparse_lines_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a name of its own in each line, Arrow's table grows by the square of the lines."""
    data = b"".join(b'{"k%d":{"x" :[%d]}}\n' % (n, n) for n in range(100))
    whole = json_rows.kind_of_lines(data)
    monkeypatch.setattr(json_rows, "ROW_BYTES", 10_000)
    parts = list(json_rows.bounded_parts(data))
    assert b"".join(parts) == data
    assert all(part.count(b"\n") * part.count(b":") * 32 <= 10_000 for part in parts)
    assert json_rows.kind_of_lines(data) == whole
    assert list(json_rows.bounded_parts(b'{"a":[%b]}' % (b'{"b":1},' * 900))) != []


def test_rows_far_larger_than_the_file_are_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    struct = T.StructType([T.StructField(f"c{number}", T.LongType()) for number in range(10)])
    actual = source(tmp_path, b"{}\n" * 100)
    assert len(by_threads(actual, struct, RowForm.RECORDS) or ()) == 100
    monkeypatch.setattr(json_rows, "ROW_BYTES", 30_000)
    assert by_threads(actual, struct, RowForm.RECORDS) is None


def test_no_lines(tmp_path: Path) -> None:
    struct = T.StructType([T.StructField("a", T.LongType())])
    assert by_threads(source(tmp_path, b"\n\r\n"), struct, RowForm.RECORDS) == []
    assert by_threads(source(tmp_path, b"\n"), struct, RowForm.BLOCKS) == []
