"""Small files of JSON lines on the driver: what is read, and what is left to Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import types as T  # noqa: N812

from tap_spark.sources.files import small_json
from tap_spark.sources.files.line_reader import FilePart
from tap_spark.sources.files.small_json import UnsureError, inferred_struct, record_texts


def part(tmp_path: Path, data: bytes) -> FilePart:
    (tmp_path / "a.json").write_bytes(data)
    return str(tmp_path / "a.json"), 0, len(data)


def test_types(tmp_path: Path) -> None:
    data = """{"z": 1, "s": "2024-01-01", "null": null, "none": [null], "in": {"y": [], "X": true}}

{"z": 1.0, "in": {"y": [{"b": 1}, null, {"a": -9223372036854775808}]}, "\ufb01": "", "🎉": "-0"}
"""
    actual = inferred_struct([part(tmp_path, data.encode().replace(b"\n", b"\r\n"))])
    assert actual.simpleString() == (
        "struct<in:struct<X:boolean,y:array<struct<a:bigint,b:bigint>>>,none:array<string>,"
        "null:string,s:string,z:double,🎉:string,\ufb01:string>"
    )


UNSURE_LINES = [
    b"",
    b"{}\n",
    b'{"a":{}}',
    b'[{"a":1}]',
    b"1",
    b'{"a":1',
    b'{"a":1} x',
    b"{'a':1}",
    b'{"a":1}\n \n',
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
    b'{"a":01}',
    b'{"a":1e400}',
    b'{"a":0.%b}' % (b"1" * 100),
    b'{"%b":1}' % (b"a" * 10_001),
    b'{"a":[%b]}' % b",".join([b"[]"] * 1000),
    b'{"a":%b1%b}' % (b"[" * 60, b"]" * 60),
]


@pytest.mark.parametrize("data", UNSURE_LINES)
def test_what_is_inferred_by_spark(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(UnsureError):
        inferred_struct([part(tmp_path, data)])


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
    ],
)
def test_doubles_are_written_as_java_does(tmp_path: Path, value: str, text: str) -> None:
    actual = part(tmp_path, f'{{"a":{value}}}'.encode())
    struct = T.StructType([T.StructField("a", T.DoubleType())])
    assert record_texts([actual], struct).to_pylist() == [f'{{"a":{text}}}']


@pytest.mark.parametrize("value", ["0.30000000000000004", "1e15", "1e-16", "5e-324", '"1"', "true"])
def test_other_doubles_are_left_to_spark(tmp_path: Path, value: str) -> None:
    actual = part(tmp_path, f'{{"a":{value}}}'.encode())
    with pytest.raises(UnsureError):
        record_texts([actual], T.StructType([T.StructField("a", T.DoubleType())]))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (T.LongType(), 1.0),
        (T.LongType(), True),
        (T.LongType(), 2**63),
        (T.IntegerType(), 2**31),
        (T.StringType(), 1),
        (T.StringType(), {}),
        (T.StructType([T.StructField("b", T.LongType())]), []),
        (T.StructType([T.StructField("b", T.LongType())]), {"B": 1}),
        (T.DateType(), None),
    ],
)
def test_values_of_another_type_are_left_to_spark(
    tmp_path: Path, dtype: T.DataType, value: object
) -> None:
    struct = T.StructType([T.StructField("a", dtype)])
    actual = part(tmp_path, json.dumps({"a": value}).encode())
    with pytest.raises(UnsureError):
        record_texts([actual], struct)
    assert small_json.record_batch(actual, struct) is None


def test_rows_far_larger_than_the_file_are_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    struct = T.StructType([T.StructField(f"c{number}", T.LongType()) for number in range(10)])
    actual = part(tmp_path, b"{}\n" * 100)
    assert len(record_texts([actual], struct)) == 100
    monkeypatch.setattr(small_json, "ROW_BYTES", 30_000)
    with pytest.raises(UnsureError):
        record_texts([actual], struct)


def test_no_lines(tmp_path: Path) -> None:
    struct = T.StructType([T.StructField("a", T.LongType())])
    assert record_texts([part(tmp_path, b"\n\r\n")], struct).to_pylist() == []
    batch = small_json.record_batch(part(tmp_path, b"\n"), struct)
    assert batch is not None
    assert batch.num_rows == 0
