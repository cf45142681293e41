"""Flattened records beside the SDK's, over random schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from map_cases import TEXT, by_sdk, flat, mapped, plain, planned
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812

from shared.errors import InvalidSettingsError
from shared.formats.json_schema import spark_to_json_schema
from shared.formats.record_text import record_json
from shared.formats.schema_nodes import json_schema_to_spark
from shared.maps.map_settings import Flattening, TransformSettings
from shared.maps.stream_maps import outputs

pytestmark = pytest.mark.spark

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('aé"\\ \n', max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2)
    ),
    max_leaves=4,
)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text('a"é', max_size=3)
OBJECTS = st.fixed_dictionaries({"a": st.text("b", max_size=2)})
OBJECT = {"type": "object", "properties": {"a": TEXT}}
KEYS = st.text("ab", min_size=1, max_size=2)
LEAVES: list[tuple[dict[str, Any], st.SearchStrategy[Any]]] = [
    ({"type": ["integer", "null"]}, st.none() | INTEGERS),
    ({"type": ["string", "null"]}, st.none() | st.text(max_size=5)),
    ({"type": ["number", "null"]}, st.none() | NUMBERS),
    ({"type": "boolean"}, st.booleans()),
    ({"type": ["array", "null"], "items": TEXT}, st.none() | st.lists(TEXTS, max_size=3)),
    ({"type": ["array", "null"], "items": OBJECT}, st.none() | st.lists(OBJECTS, max_size=2)),
    ({"type": ["object", "null"]}, st.none() | st.dictionaries(KEYS, JSON, max_size=2)),
    (
        {"type": ["object", "null"], "additionalProperties": {"type": "integer"}},
        st.none() | st.dictionaries(KEYS, st.integers(0, 9), max_size=2),
    ),
    ({}, JSON.filter(lambda value: not isinstance(value, str))),
]
Part = tuple[dict[str, Any], st.SearchStrategy[Any]]


@st.composite
def nodes(draw: st.DrawFn, depth: int) -> Part:
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(LEAVES))
    node, values = draw(objects(depth))
    return {**node, "type": ["object", "null"]}, st.none() | values


@st.composite
def objects(draw: st.DrawFn, depth: int) -> Part:
    names = ["id", "name", "a_b", "b", "Total", "nested_name", "c.d"]
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True))
    parts = {name: draw(nodes(depth - 1)) for name in chosen}
    properties = {name: node for name, (node, _) in parts.items()}
    values = st.fixed_dictionaries({}, optional={n: values for n, (_, values) in parts.items()})
    return {"type": "object", "properties": properties}, values


@st.composite
def streams(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    schema, values = draw(objects(4))
    return schema, draw(st.lists(values, min_size=4, max_size=8))


def as_text(value: Any) -> Any:
    """Return the text that a column holds for a value that the SDK leaves unchanged."""
    if value is None or isinstance(value, str | dict | list):
        return value
    return json.dumps(value)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    stream=streams(),
    depth=st.integers(1, 4),
    separator=st.sampled_from(["__", "."]),
    longest=st.sampled_from([8, 14, 255]),
)
def test_as_the_sdk_flattens(
    spark: SparkSession, stream: Any, depth: int, separator: str, longest: int
) -> None:
    schema, records = stream
    values = flat(depth, flattening_separator=separator, flattening_max_key_length=longest)
    try:
        [output] = planned(schema=schema, keys=(), **values)
    except InvalidSettingsError:
        assume(False)
    [sdk] = by_sdk({}, schema=schema, keys=(), **values)
    actual = mapped(spark, output, schema, records)
    texts = {name for name, node in output.schema["properties"].items() if node == TEXT}
    for record, ours in zip(records, actual, strict=True):
        theirs = {
            k: v for k, v in sdk.transform(record).items() if k in output.schema["properties"]
        }
        theirs = {k: as_text(v) if k in texts else v for k, v in theirs.items()}
        assert plain(ours) == plain(theirs)


def test_types_that_only_a_tap_has(spark: SparkSession) -> None:
    """Variants, maps of numbers and binary inside, with the text that they have in a record."""
    frame = spark.sql(
        """select parse_json('{"a": [1, "x"]}') v, parse_json('"text"') t, parse_json('5') n,
        parse_json(null) z, map(1, date '2026-01-01') m, named_struct('b', x'00ff', 'd',
        named_struct('i', interval '1' day, 'v', parse_json('[1]'))) s, cast(null as struct<a int>)
        e, array(named_struct('t', timestamp '2026-01-01 00:00:00Z')) l"""
    )
    schema = spark_to_json_schema(frame.schema)
    rules = TransformSettings(flattening=Flattening(True, 2))
    [output] = outputs(rules, "s", schema, frame.schema, [])
    assert output.transform is not None
    result = output.transform.apply(frame)
    assert output.transform.struct() == json_schema_to_spark(output.schema)
    [text] = result.select(record_json(output.transform.struct())).first() or [""]
    assert json.loads(text) == {
        "v": '{"a":[1,"x"]}',
        "t": "text",
        "n": "5",
        "z": None,
        "m": '{"1":"2026-01-01"}',
        "s__b": "AP8=",
        "s__d__i": "P1DT0H0M0.000000S",
        "s__d__v": "[1]",
        "e__a": None,
        "l": '[{"t":"2026-01-01T00:00:00.000000+00:00"}]',
    }
    assert all(not isinstance(f.dataType, T.StructType) for f in output.transform.struct())
