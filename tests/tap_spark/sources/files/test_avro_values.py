"""What raw values of Avro mean, without Spark."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812

from tap_spark.sources.files.avro_values import (
    BadValueError,
    UnclearUnionError,
    avro_duration,
    big_decimal_text,
    converted,
    decimal_text,
    forms_of,
    readable,
)

NANOS = {"type": "long", "logicalType": "timestamp-nanos"}


def schema(kind: Any, **more: Any) -> bytes:
    fields = [{"name": "a", "type": kind}]
    return json.dumps({"type": "record", "name": "r", "fields": fields, **more}).encode()


@pytest.mark.parametrize(
    ("value", "scale", "text"),
    [
        (b"\x7b", 2, "1.23"),
        (b"\xff", 3, "-0.001"),
        (b"\x00", 2, "0.00"),
        (b"\x05", -2, "500"),
        (b"", 0, "0"),
        (b"\x7f" + b"\xff" * 31, 0, str(2**255 - 1)),
    ],
)
def test_decimals(value: bytes, scale: int, text: str) -> None:
    assert decimal_text(value, scale) == text
    zigzag = (scale << 1) ^ (scale >> 63)
    assert big_decimal_text(bytes([len(value) * 2]) + value + bytes([zigzag])) == text


@pytest.mark.parametrize(
    "value", [b"", b"\x02", b"\x02\x01", b"\x02\x01\x00\x00", b"\x01\x00", b"\xff" * 11]
)
def test_what_is_no_decimal(value: bytes) -> None:
    with pytest.raises(BadValueError, match="is not a big-decimal"):
        big_decimal_text(value)


@pytest.mark.parametrize(
    ("months", "days", "millis", "text"),
    [
        (0, 0, 0, "PT0S"),
        (14, 0, 0, "P14M"),
        (0, 1, 1, "P1DT0.001S"),
        (2**32 - 1, 2**32 - 1, 2**32 - 1, "P4294967295M4294967295DT4294967.295S"),
    ],
)
def test_durations(months: int, days: int, millis: int, text: str) -> None:
    value = b"".join(number.to_bytes(4, "little") for number in (months, days, millis))
    assert avro_duration(value) == text


def test_names_are_those_of_their_space() -> None:
    other = {"type": "fixed", "size": 16, "name": "u", "logicalType": "uuid", "namespace": "o"}
    inner = {
        "type": "record",
        "name": "in",
        "fields": [{"name": "u", "type": other}, {"name": "v", "type": "o.u"}],
    }
    raw = T.StructType().add("a", T.StructType().add("u", "binary").add("v", "binary"))
    form = forms_of(schema(inner, namespace="n"), raw)["a"]
    assert form.dtype == T.StructType().add("u", "string").add("v", "string")
    plain = T.StructType().add("a", "binary")
    # Another type of this name, in another space.
    own = {"type": "fixed", "size": 16, "name": "u"}
    assert forms_of(schema(own), plain)["a"].dtype == T.BinaryType()


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "int", "logicalType": "timestamp-nanos"},
        {"type": "fixed", "size": 11, "name": "d", "logicalType": "duration"},
        {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 60},
    ],
)
def test_logical_types_that_avro_ignores(kind: dict[str, Any]) -> None:
    raw = T.LongType() if kind["type"] == "int" else T.BinaryType()
    assert forms_of(schema(kind), T.StructType().add("a", raw))["a"].dtype == raw
    assert readable(schema(kind)) is None


def test_unions() -> None:
    longs = T.StructType().add("a", "long")
    assert not forms_of(schema(["int", "long"]), longs)["a"].is_raw
    with pytest.raises(UnclearUnionError, match=r"^a\[\]$"):
        forms_of(
            schema({"type": "array", "items": ["int", NANOS]}),
            T.StructType().add("a", T.ArrayType(T.LongType())),
        )


def test_values_inside_others() -> None:
    kind = {"type": "map", "values": {"type": "array", "items": ["null", NANOS]}}
    raw = T.StructType().add("a", T.MapType(T.StringType(), T.ArrayType(T.LongType())))
    form = forms_of(schema(kind), raw)["a"]
    array = pa.array([[("x", [1000, None])], None, []], pa.map_(pa.string(), pa.list_(pa.int64())))
    wanted = pa.map_(pa.string(), pa.list_(pa.field("element", pa.string())))
    assert converted(array, form, wanted).to_pylist() == [
        [("x", ["1970-01-01T00:00:00.000001000Z", None])],
        None,
        [],
    ]
    assert converted(array, form, array.type) is array
