"""The type table: round trips of every Spark type, and schemas of other taps."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from pyspark.sql import types as T  # noqa: N812

from shared.formats.arrow_types import struct_to_arrow
from shared.formats.json_schema import spark_to_json_schema, spark_type_to_json_schema
from shared.formats.schema_nodes import FREE_FORM_COLUMN, HINT, json_schema_to_spark

F = T.StructField
LEAVES = [
    T.ByteType(), T.ShortType(), T.IntegerType(), T.LongType(), T.FloatType(), T.DoubleType(),
    T.StringType(), T.StringType("UTF8_LCASE"), T.CharType(3), T.VarcharType(9), T.BinaryType(),
    T.BooleanType(), T.DateType(), T.TimestampType(), T.TimestampNTZType(), T.VariantType(),
    T.NullType(), T.CalendarIntervalType(), T.StructType([]), T.GeometryType(4326),
    *(T.TimeType(p) for p in range(7)),
    *(T.DayTimeIntervalType(a, b) for a in range(4) for b in range(a, 4)),
    *(T.YearMonthIntervalType(a, b) for a in range(2) for b in range(a, 2)),
    *(T.DecimalType(p, s) for p, s in ((1, 0), (10, 0), (38, 0), (10, 2), (18, 18), (38, 38))),
]  # fmt: skip
SCALARS = [leaf for leaf in LEAVES if not isinstance(leaf, T.StructType | T.NullType)]
NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=5)


def _nullable(leaf: T.DataType, flag: bool) -> bool:
    return flag or isinstance(leaf, T.NullType)


def _structs(inner: st.SearchStrategy[T.DataType]) -> st.SearchStrategy[T.DataType]:
    fields = st.lists(
        st.builds(lambda n, t, f: F(n, t, _nullable(t, f)), NAMES, inner, st.booleans()),
        max_size=3,
        unique_by=lambda field: field.name,
    )
    return st.builds(T.StructType, fields)


def _containers(inner: st.SearchStrategy[T.DataType]) -> st.SearchStrategy[T.DataType]:
    flag = st.booleans()
    keys = st.sampled_from(SCALARS) | st.builds(lambda t: T.StructType([F("k", t)]), inner)
    arrays = st.builds(lambda t, f: T.ArrayType(t, _nullable(t, f)), inner, flag)
    maps = st.builds(lambda k, v, f: T.MapType(k, v, _nullable(v, f)), keys, inner, flag)
    return arrays | maps | _structs(inner)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(_structs(st.recursive(st.sampled_from(LEAVES), _containers, max_leaves=6)))
def test_every_type_comes_back_from_its_schema(struct: T.StructType) -> None:
    schema = json.loads(json.dumps(spark_to_json_schema(struct)))
    Draft7Validator.check_schema(schema)
    assert json_schema_to_spark(schema) == struct


@pytest.mark.parametrize("leaf", LEAVES, ids=str)
@pytest.mark.parametrize("nullable", [True, False])
def test_every_leaf_comes_back_with_its_nullability(leaf: T.DataType, nullable: bool) -> None:
    struct = T.StructType([F("a", leaf, _nullable(leaf, nullable))])
    assert json_schema_to_spark(spark_to_json_schema(struct)) == struct


@pytest.mark.parametrize(
    ("leaf", "plain"),
    [
        (T.FloatType(), T.DoubleType()),
        (T.DecimalType(10, 2), T.DoubleType()),
        (T.DecimalType(10, 0), T.LongType()),
        (T.DecimalType(38, 0), T.DecimalType(38, 0)),
        (T.VarcharType(9), T.StringType()),
        (T.TimestampNTZType(), T.TimestampType()),
        (T.DayTimeIntervalType(0, 3), T.StringType()),
        (T.VariantType(), T.StringType()),
        (T.MapType(T.LongType(), T.DateType()), T.MapType(T.StringType(), T.DateType())),
    ],
)
def test_without_the_hint_the_standard_keywords_still_say_the_right_kind(
    leaf: T.DataType, plain: T.DataType
) -> None:
    node = spark_type_to_json_schema(leaf)
    node.pop(HINT, None)
    node.pop("propertyNames", None)
    assert json_schema_to_spark({"properties": {"a": node}})["a"].dataType == plain


def test_a_user_defined_type_has_no_schema() -> None:
    from pyspark.testing.objects import ExamplePointUDT

    with pytest.raises(TypeError, match="no JSON Schema"):
        spark_type_to_json_schema(ExamplePointUDT())


TEXT = T.StringType()
FOREIGN: list[tuple[dict[str, Any] | bool, T.DataType]] = [
    ({}, TEXT),
    (True, TEXT),
    (False, TEXT),
    ({"type": "integer"}, T.LongType()),
    ({"type": ["null", "integer"]}, T.LongType()),
    ({"type": "integer", "minimum": 0, "maximum": 100}, T.LongType()),
    ({"type": "integer", "minimum": -32768, "maximum": 32767}, T.ShortType()),
    ({"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}, T.IntegerType()),
    ({"type": "integer", "maximum": 2**63}, T.DecimalType(38, 0)),
    ({"type": "integer", "exclusiveMaximum": 2**64}, T.DecimalType(38, 0)),
    ({"type": "integer", "maximum": 2**63 - 1}, T.LongType()),
    ({"type": "integer", "minimum": 0, "maximum": 18446744073709551615}, T.DecimalType(38, 0)),
    ({"type": "integer", "maximum": 10**40}, TEXT),
    ({"type": "integer", "maximum": 10, "exclusiveMaximum": True}, T.LongType()),
    ({"type": "number"}, T.DoubleType()),
    ({"type": ["integer", "number", "null"]}, T.DoubleType()),
    ({"type": "number", "multipleOf": 1e-10}, T.DecimalType(38, 10)),
    ({"type": "number", "multipleOf": 0.01}, T.DecimalType(38, 2)),
    ({"type": "number", "multipleOf": 0.25}, T.DecimalType(38, 2)),
    ({"type": "number", "multipleOf": 1}, T.DecimalType(38, 0)),
    ({"type": "number", "multipleOf": 1e-38}, TEXT),
    ({"type": "number", "multipleOf": 1e-30, "minimum": -9, "maximum": 9}, T.DecimalType(38, 30)),
    ({"type": "number", "multipleOf": "x"}, T.DoubleType()),
    ({"type": "string"}, TEXT),
    ({"type": "string", "maxLength": 255}, TEXT),
    ({"type": "string", "format": "date"}, T.DateType()),
    ({"type": ["string", "null"], "format": "date-time"}, T.TimestampType()),
    *(({"type": "string", "format": f}, TEXT) for f in ("time", "duration", "uuid", "email", "x")),
    ({"type": "string", "contentEncoding": "base64"}, T.BinaryType()),
    ({"type": "string", "format": "singer.decimal", "precision": 9, "scale": 3},
     T.DecimalType(9, 3)),
    ({"type": "string", "format": "singer.decimal"}, TEXT),
    ({"type": "string", "format": "singer.decimal", "precision": 9, "scale": "3"}, TEXT),
    ({"type": "boolean"}, T.BooleanType()),
    ({"type": "null"}, T.NullType()),
    ({"type": ["null", "integer", "string"]}, TEXT),
    ({"type": ["integer", "boolean"]}, TEXT),
    ({"type": "whatever"}, TEXT),
    ({"enum": ["a", "b", None]}, TEXT),
    ({"enum": [1, 2]}, T.LongType()),
    ({"const": True}, T.BooleanType()),
    ({"enum": [1, "a"]}, TEXT),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, T.LongType()),
    ({"oneOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}, T.TimestampType()),
    ({"anyOf": [{"type": "string", "format": "date-time"}, {"type": "string"}]}, TEXT),
    ({"anyOf": [{"type": "integer"}, {"type": "number"}]}, T.DoubleType()),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, TEXT),
    ({"anyOf": [{"type": "null"}]}, T.NullType()),
    ({"type": ["string", "null"], "anyOf": [{"format": "date"}, {}]}, TEXT),
    ({"allOf": [{"type": "integer"}, {"description": "x"}]}, T.LongType()),
    ({"type": "object"}, TEXT),
    ({"type": "object", "properties": {}}, TEXT),
    ({"type": "object", "additionalProperties": True}, TEXT),
    ({"type": "object", "additionalProperties": {}}, TEXT),
    ({"type": "object", "additionalProperties": {"type": "integer"}},
     T.MapType(TEXT, T.LongType(), False)),
    ({"type": "object", "patternProperties": {"^a": {"type": "integer"}}}, TEXT),
    ({"properties": {"x": {"type": "integer"}}}, T.StructType([F("x", T.LongType())])),
    ({"allOf": [{"properties": {"x": {"type": "integer"}}, "required": ["x"]},
                {"properties": {"y": {"type": "boolean"}}}], "type": "object"},
     T.StructType([F("x", T.LongType(), False), F("y", T.BooleanType())])),
    ({"type": "array"}, TEXT),
    ({"type": "array", "items": {}}, T.ArrayType(TEXT)),
    ({"type": "array", "items": [{"type": "integer"}]}, TEXT),
    ({"items": {"type": ["null", "number"]}}, T.ArrayType(T.DoubleType())),
    ({"type": "integer", "x-sql-datatype": "bigint"}, T.LongType()),
    ({"type": "integer", "x-sql-datatype": "SMALLINT"}, T.ShortType()),
    ({"type": "number", "x-sql-datatype": "numeric(12, 3)"}, T.DecimalType(12, 3)),
    ({"type": "number", "x-sql-datatype": "numeric(12)"}, T.DecimalType(12, 0)),
    ({"type": "number", "x-sql-datatype": "numeric(99,3)"}, T.DoubleType()),
    ({"type": "number", "x-sql-datatype": "real"}, T.FloatType()),
    ({"type": "string", "x-sql-datatype": "jsonb"}, TEXT),
    ({"type": "string", "format": "date-time", "x-sql-datatype": "timestamp without time zone"},
     T.TimestampNTZType()),
    ({"type": "string", "x-sql-datatype": "timestamp"}, TEXT),
    ({"type": "string", "x-sql-datatype": "bigint"}, TEXT),
    ({"type": "integer", "x-sql-datatype": "geometry"}, T.LongType()),
    ({"type": "integer", "x-sql-datatype": 5}, T.LongType()),
    ({"type": "string", HINT: "float"}, TEXT),
    ({"type": "string", HINT: "variant"}, TEXT),
    ({"type": "string", HINT: "no such type"}, TEXT),
    ({"type": "string", HINT: {"x": 1}}, TEXT),
    ({"$ref": "#/definitions/key"}, T.LongType()),
    ({"$ref": "#/$defs/na~1me"}, T.DateType()),
    ({"$ref": "#/definitions/list"}, T.ArrayType(T.LongType(), False)),
    ({"$ref": "#/nowhere"}, TEXT),
    ({"$ref": "http://example.org/x"}, TEXT),
    ({"anyOf": [{"$ref": "#/definitions/key"}, {"type": "null"}]}, T.LongType()),
    ({"$ref": "#/definitions/tree"},
     T.StructType([F("value", T.LongType()), F("child", TEXT), F("more", T.ArrayType(TEXT))])),
    ({"$ref": "#/definitions/loop"}, TEXT),
]  # fmt: skip
DEFINITIONS = {
    "key": {"type": "integer"},
    "list": {"type": "array", "items": {"$ref": "#/definitions/key"}},
    "loop": {"$ref": "#/definitions/loop"},
    "tree": {
        "type": "object",
        "properties": {
            "value": {"type": "integer"},
            "child": {"$ref": "#/definitions/tree"},
            "more": {"type": "array", "items": {"$ref": "#/definitions/tree"}},
        },
    },
}


@pytest.mark.parametrize(("node", "expected"), FOREIGN, ids=lambda v: json.dumps(v, default=str))
def test_schemas_of_other_taps(node: Any, expected: T.DataType) -> None:
    schema = {
        "type": "object",
        "properties": {"a": node},
        "definitions": DEFINITIONS,
        "$defs": {"na/me": {"type": "string", "format": "date"}},
    }
    assert json_schema_to_spark(schema) == T.StructType([F("a", expected, True)])


@pytest.mark.parametrize(
    "schema",
    [{}, {"type": "object"}, {"properties": {}}, {"type": ["object", "null"],
     "additionalProperties": {"type": "integer"}}],
)  # fmt: skip
def test_a_stream_without_properties_is_one_column_of_text(schema: dict[str, Any]) -> None:
    assert json_schema_to_spark(schema) == T.StructType([F(FREE_FORM_COLUMN, TEXT, True)])


def test_a_stream_may_be_a_reference() -> None:
    schema = {"$ref": "#/definitions/tree", "definitions": DEFINITIONS}
    assert json_schema_to_spark(schema).names == ["value", "child", "more"]


def test_required_and_null() -> None:
    schema = {
        "properties": {
            "both": {"type": "integer"},
            "nullable": {"type": ["integer", "null"]},
            "optional": {"type": "integer"},
            "union": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        },
        "required": ["both", "nullable", "union"],
    }
    actual = {field.name: field.nullable for field in json_schema_to_spark(schema)}
    assert actual == {"both": False, "nullable": True, "optional": True, "union": True}


def test_arrow_storage_names_what_parquet_cannot() -> None:
    struct = T.StructType(
        [F("i", T.ArrayType(T.DayTimeIntervalType(0, 3))), F("variant", T.VariantType())]
    )
    schema = struct_to_arrow(struct)
    assert schema.field("i").type == pa.list_(pa.field("element", pa.int64()))
    assert schema.field("variant").type == pa.string()
    footer = json.loads(schema.metadata[b"org.apache.spark.sql.parquet.row.metadata"])
    assert [field["name"] for field in footer["fields"]] == ["i", "variant"]
    assert footer["fields"][0]["type"]["elementType"] == "interval day to second"
    assert footer["fields"][1]["type"] == "string"


def test_arrow_storage_of_ordinary_types_needs_no_footer() -> None:
    struct = T.StructType([F("a", T.LongType(), False), F("b", T.DecimalType(9, 2))])
    schema = struct_to_arrow(struct)
    assert schema.metadata is None
    assert schema == pa.schema(
        [pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.decimal128(9, 2))]
    )


@pytest.mark.parametrize("levels", [1, 31, 32, 33, 190])
@pytest.mark.parametrize("kind", ["array", "object"])
def test_deep_levels_are_json_text(kind: str, levels: int) -> None:
    node: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        inner = {"items": node} if kind == "array" else {"properties": {"a": node}}
        node = {"type": kind, **inner}
    column = json_schema_to_spark({"properties": {"v": node}})["v"].dataType
    depth = 0
    while isinstance(column, T.ArrayType | T.StructType):
        column = column.elementType if isinstance(column, T.ArrayType) else column["a"].dataType
        depth += 1
    assert (depth, column) == ((levels, T.LongType()) if levels <= 32 else (32, T.StringType()))
