"""At the SCHEMA message: schemas that are none, and keywords that are slow."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import pytest
from pyspark.sql.types import LongType

from shared.errors import MessageError
from shared.formats.json_text import shown_value
from shared.formats.schema_nodes import JsonText, json_schema_to_spark
from target_spark.core.load_plans import LoadPlan, StreamSchema
from target_spark.validation.columns import SlowKeywords, checked, filled_properties, readable


def test_a_schema_that_is_none_is_refused_with_its_place() -> None:
    planned: list[str] = []

    def plan(stream: StreamSchema) -> LoadPlan:
        planned.append(stream.stream)
        return LoadPlan()

    check = partial(checked, plan)
    assert check(StreamSchema("good", {"properties": {"a": {"type": "integer"}}}))
    with pytest.raises(MessageError) as refused:
        check(StreamSchema("orders", {"properties": {"total": {"type": "decimal"}}}))
    assert str(refused.value) == (
        "stream 'orders': the SCHEMA is not a valid JSON Schema (draft 2020-12): at "
        "'properties.total.type': 'decimal' is not valid under any of the given schemas "
        "(records cannot be validated; fix the tap, or set `validate_records: false`)"
    )
    assert planned == ["good"]


def test_what_the_plan_says_is_passed_on() -> None:
    assert checked(lambda _: None, StreamSchema("s", {})) is None


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"properties": 5}, "properties"),
        ({"properties": {"a": {"enum": 5}}}, "properties.a.enum"),
        ({"properties": {"a": {"type": "object", "properties": [1]}}}, "properties.a.properties"),
        ({"properties": {"a": {}}, "required": True}, "required"),
    ],
)
def test_without_validation_a_schema_must_have_columns(schema: Any, place: str) -> None:
    with pytest.raises(MessageError, match=f"at '{place}': .* fix the tap"):
        readable(lambda _: LoadPlan(), StreamSchema("s", schema))
    assert readable(lambda _: None, StreamSchema("s", schema)) is None
    odd = {"properties": {"a": {"type": "decimal", "minimum": "x"}}}
    assert readable(lambda _: LoadPlan(), StreamSchema("s", odd)) == LoadPlan()


@pytest.mark.parametrize("check", [checked, readable])
@pytest.mark.parametrize(
    ("stream", "schema"),
    [
        ("\ud800", {"properties": {"a": {}}}),
        ("s", {"properties": {"\ud800": {"type": "string"}}}),
        ("s", {"anyOf": [{"properties": {"a": {"properties": {"\ud800": {}}}}}]}),
    ],
)
def test_names_with_lone_surrogates_are_refused(check: Any, stream: str, schema: Any) -> None:
    with pytest.raises(MessageError, match=r"the name '\\ud800' has a lone surrogate"):
        check(lambda _: LoadPlan(), StreamSchema(stream, schema))
    fine = {"properties": {"\\ud800": {"type": "string", "enum": ["\ud800"]}}}
    assert check(lambda _: LoadPlan(), StreamSchema("s", fine)) == LoadPlan()


def test_slow_keywords_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    slow = SlowKeywords()
    node: dict[str, Any] = {"properties": {"a": {"type": "integer", "not": {"const": 1}}}}
    for _ in range(3):
        slow.log("orders", node, files=False)
    slow.log("plain", {"properties": {"a": {"type": "integer"}}}, files=False)
    slow.log("orders", {**node, "unevaluatedProperties": False}, files=True)
    assert [record.message for record in caplog.records] == [
        "stream 'orders': every record is validated by the jsonschema library, which is slow, "
        "because of 'not' (property 'a')",
        "stream 'orders': every record is validated by the jsonschema library, which is slow, "
        "because of 'unevaluatedProperties'",
    ]


@pytest.mark.parametrize(
    ("node", "filled"),
    [
        ({"properties": {"a": {"type": ["string", "null"]}}}, ()),
        ({"$schema": "x", "properties": {"a": {"type": ["string", "null"]}}}, ()),
        ({"properties": {"a": {"type": "string"}, "b": {"type": ["string"]}}}, ("a", "b")),
        ({"properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]}, ()),
        ({"properties": {"a": {"type": ["string", "null"]}}, "required": ["b"]}, None),
        ({"properties": {"a": {"type": ["string", "null"], "$ref": "#/$defs/b"}}}, None),
        ({"$ref": "#/$defs/b", "properties": {}}, None),
        ({"properties": {"a": {"type": ["string", "null"], "pattern": "a"}}}, None),
        ({"properties": {"a": True}}, None),
    ],
)
def test_files_are_not_taken_over_unread_where_more_than_types_is_asked(
    node: Any, filled: tuple[str, ...] | None
) -> None:
    assert filled_properties(node) == filled


def test_alternatives_inside_of_all_of_end() -> None:
    inner = {"allOf": [{"anyOf": [{"type": "integer"}, {"type": "null"}]}]}
    struct = json_schema_to_spark({"properties": {"a": {"allOf": [inner]}}}, JsonText())
    assert struct["a"].dataType == LongType()


def test_arrays_with_items_of_their_own_kind_stay_json() -> None:
    node = {"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}}
    assert isinstance(
        json_schema_to_spark({"properties": {"a": node}}, JsonText())["a"].dataType, JsonText
    )


def test_values_with_line_ends_are_shown_in_one_line() -> None:
    assert shown_value("a\nb\x85\u2028é") == r"'a\nb\x85\u2028é'"
