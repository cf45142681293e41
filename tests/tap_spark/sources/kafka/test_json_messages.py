"""JSON of messages as rows: each value as it is written, or an error that names its message."""

from __future__ import annotations

import json
import pickle
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812
from test_exact_values import REJECTED

from tap_spark.sources.kafka.message_columns import JsonMessages, MessagePart

ROW = T.StructType().add("user", "string").add("n", "long")
GOOD = b'{"user":"a","n":1}'
NO_ROWS = {
    "two lines": (GOOD + b"\n" + GOOD, "Extra data"),
    "two objects": (GOOD + GOOD, "Extra data"),
    "half of a second object": (GOOD + b'{"user":"b"', "Extra data"),
    "other text": (GOOD + b" trailing", "Extra data"),
    "a name twice": (b'{"user":"a","user":"b"}', "has the name 'user' twice"),
    "single quotes": (b"{'user':'a'}", "not JSON"),
    "a line end in a text": (b'{"user":"x\ny"}', "not JSON"),
    "a lone surrogate": (b'{"user":"\\ud800"}', "lone surrogate"),
    "another case": (b'{"User":"a"}', "by case only"),
    "no UTF-8": (b'{"user":"\xff"}', "not UTF-8"),
    "an array": (b'[{"user":"a"}]', "not a JSON object"),
    "null": (b"null", "not a JSON object"),
    "nothing": (b"", "not a JSON object"),
}
TYPES = {
    "DECIMAL(10,2)": T.DecimalType(10, 2),
    "INT": T.IntegerType(),
    "TINYINT": T.ByteType(),
    "DOUBLE": T.DoubleType(),
    "FLOAT": T.FloatType(),
    "DATE": T.DateType(),
    "TIMESTAMP": T.TimestampType(),
    "TIMESTAMP_NTZ": T.TimestampNTZType(),
    "BOOLEAN": T.BooleanType(),
}


def read(part: MessagePart, *texts: bytes | None) -> list[Any]:
    none = [None] * len(texts)
    columns = {
        "topic": pa.array(["t"] * len(texts)),
        "partition": pa.array([7] * len(texts), pa.int32()),
        "offset": pa.array(range(len(texts))),
        "timestamp": pa.array([datetime(2024, 1, 1, tzinfo=timezone.utc)] * len(texts)),
        **{name: pa.array(none, pa.binary()) for name in ("key", "value")},
        part.name: pa.array(texts, pa.binary()),
    }
    task = pickle.loads(pickle.dumps(JsonMessages((part,), case_sensitive=False)))
    (batch,) = task([pa.RecordBatch.from_pydict(columns)])
    actual: list[Any] = batch.column(part.name).to_pylist()
    return actual


def failure(part: MessagePart, *texts: bytes | None) -> dict[str, str]:
    with pytest.raises(RuntimeError) as caught:
        read(part, *texts)
    parts: dict[str, str] = json.loads(str(caught.value).split("]", 1)[1].rsplit("[", 1)[0])
    return parts


def test_rows_keep_the_order_of_messages() -> None:
    row = T.StructType([*ROW, T.StructField("o", T.StructType().add("e", T.StructType()))])
    pretty = json.dumps({"user": "b", "o": {"e": {}, "x": 1}}, indent=2).replace("\n", "\r\n")
    texts = [None, GOOD, b" {} \n", None, pretty.encode(), b'{"user":1.10,"n":1e2}', None]
    empty = {"user": None, "n": None, "o": None}
    assert read(MessagePart("value", "json", row), *texts) == [
        *(None, {**empty, "user": "a", "n": 1}, empty, None),
        *({**empty, "user": "b", "o": {"e": {}}}, {**empty, "user": "1.10", "n": 100}, None),
    ]
    assert read(MessagePart("value", "json", ROW), None, None) == [None, None]
    assert read(MessagePart("value", "json", ROW), b'{"user":{\r\n"b":[1.0,\n2]}}') == [
        {"user": '{  "b":[1.0, 2]}', "n": None}
    ]
    (nothing,) = read(MessagePart("value", "json", T.StructType()), GOOD)
    assert nothing is not None


@pytest.mark.parametrize(("text", "reason"), NO_ROWS.values(), ids=NO_ROWS)
def test_a_value_that_is_no_row(text: bytes, reason: str) -> None:
    actual = failure(MessagePart("value", "json", ROW), None, GOOD, text, GOOD)
    assert actual["problem"].startswith("the value of a message is not JSON of the stream's")
    assert reason in actual["problem"]
    assert actual["file"] == "topic t, partition 7, offset 2"
    assert actual["value"] == text.decode("utf-8", "replace")


@pytest.mark.parametrize("ddl", REJECTED)
def test_values_that_a_type_cannot_keep(ddl: str) -> None:
    """The same ones as in text, but for spaces, and integers that are written as fractions."""
    part = MessagePart("value", "json", T.StructType([T.StructField("a", TYPES[ddl])]))
    for text in {*REJECTED[ddl]} - {"1.0", "1e2"}:
        bare = [] if " " in text else [text]
        for value in (*bare, json.dumps(text)):
            assert "offset 1" in failure(part, b"{}", b'{"a":%b}' % value.encode())["file"]


@pytest.mark.parametrize(
    ("dtype", "kept", "refused"),
    [
        (T.LongType(), {"1": 1, " 7\n": 7}, ["1.5", '"5"', "true", "1 2", '1,"key":2', "null"]),
        (T.DecimalType(10, 2), {"1.5": 1.5, '"2"': 2}, ["1.239", "[1]", ""]),
        (T.StringType(), {"1.10": "1.10", "1" * 41: "1" * 41, '"a"': "a"}, ['"a" x', "a"]),
    ],
)
def test_keys_that_are_single_values(
    dtype: T.DataType, kept: dict[str, Any], refused: list[str]
) -> None:
    part = MessagePart("key", "json", dtype)
    assert read(part, *map(str.encode, kept)) == [{"key": value} for value in kept.values()]
    for text in refused:
        actual = failure(part, None, b"1", text.encode())
        assert actual["file"] == "topic t, partition 7, offset 2"
