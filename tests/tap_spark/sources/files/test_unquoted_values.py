"""Unquoted JSON values in text fields are quoted as they are written, and nothing else is."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from tap_spark.sources.files.json_kinds import text_fields_of, unquoted_values


def struct(**types):
    return StructType([StructField(name, dtype) for name, dtype in types.items()])


TEXT, NUMBER = StringType(), DoubleType()
RECORD = struct(
    t=TEXT,
    f=NUMBER,
    s=struct(t=TEXT),
    l=ArrayType(TEXT),
    m=MapType(TEXT, TEXT),
    n=ArrayType(NUMBER),
)


def changed(line: str, dtype=RECORD) -> str:
    change = unquoted_values(dtype)
    (actual,) = change(pa.array([line.encode()])).to_pylist()
    return actual.decode()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"t": 1.10, "f":1.50}', '{"t": "1.10", "f":1.50}'),
        ('{"t":-0}', '{"t":"-0"}'),
        ('{"t" : {"a" : 1.0}}', '{"t" : "{\\"a\\" : 1.0}"}'),
        ('{"s":{"x":1.0,"t":1e2}}', '{"s":{"x":1.0,"t":"1e2"}}'),
        ('{"l":[1.0,"a", null ]}', '{"l":["1.0","a", null ]}'),
        ('{"m":{"k":1.0,"é":"1.0"}}', '{"m":{"k":"1.0","é":"1.0"}}'),
        (' [{"t":1.0}, {} ,{"t":[ ]}]', ' [{"t":"1.0"}, {} ,{"t":"[ ]"}]'),
        ('{"\\u0074":1.10}', '{"\\u0074":"1.10"}'),
        ('{"s":[],"l":{},"t":["é"]}', '{"s":[],"l":{},"t":"[\\"é\\"]"}'),
    ],
)
def test_bare_values_get_quotes(line, expected):
    assert changed(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "", " ", "x", "1.0", "{", '{"t":1.0', '{"t" 1.0}', '{"l":[1.0', "{'t':1.0}",
        '{"t":"1.0"}', '{"t":null,"n":[1.50],"f":1.50}',
        '{"t":' + "[" * 5000 + "1.0",
    ],
)  # fmt: skip
def test_other_lines_stay(line):
    assert changed(line) == line


def test_not_utf8_and_no_text_at_all():
    change = unquoted_values(RECORD)
    lines = pa.array([b'{"t":1.0,"x":"\xff"}', b'{"t":1.0}', None], pa.binary())
    assert change(lines).to_pylist() == [lines[0].as_py(), b'{"t":"1.0"}', None]
    assert text_fields_of(struct(a=NUMBER, b=ArrayType(struct(c=NUMBER)))) is None


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner,
                                                                max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(
    st.dictionaries(st.sampled_from(["t", "f", "x"]), JSON_VALUES),
    st.booleans(),
    st.sampled_from([None, 1]),
)
def test_every_record_keeps_its_values(record, ascii_only, indent):
    line = json.dumps(record, ensure_ascii=ascii_only, indent=indent)
    actual = json.loads(changed(line))
    assert actual.keys() == record.keys()
    assert {k: v for k, v in actual.items() if k != "t"} == {
        k: v for k, v in record.items() if k != "t"
    }
    before, after = record.get("t"), actual.get("t")
    assert after == before or json.loads(after) == before
