"""Random maps beside the SDK's mapper (names, order, keys), and random texts of SQL. No Spark."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from map_cases import INTEGER, TEXT, by_sdk, planned
from singer_sdk.exceptions import MapExpressionError, StreamMapConfigError

from shared.errors import InvalidSettingsError, SettingsError, Where
from shared.formats.schema_nodes import node_types, object_node, resolved_node
from shared.maps.sql_expressions import sql_expression

NAMES = ["id", "name", "email", "a b"]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": TEXT, "email": TEXT, "a b": INTEGER},
    "required": ["id", "name"],
}
LINES = st.sampled_from([None, "__NULL__", "id", "name", "email", "record['a b']", "_['id']"])
PROPERTIES = st.dictionaries(st.sampled_from([*NAMES, "new", "x.y"]), LINES, max_size=4)
STREAMS = ["orders", "ord*", "*", "o?ders", "other", "[x]*"]


@st.composite
def rules(draw: st.DrawFn) -> Any:
    if draw(st.integers(0, 5)) == 0:
        return draw(st.sampled_from([None, "__NULL__"]))
    rule: dict[str, Any] = dict(draw(PROPERTIES))
    if draw(st.booleans()):
        rule["__key_properties__"] = draw(st.sampled_from([[], ["name"], ["id", "new"], ["id"]]))
    if draw(st.integers(0, 3)) == 0:
        rule["__else__"] = None
    if draw(st.integers(0, 3)) == 0:
        rule["__filter__"] = "id > 1"
    return rule


@st.composite
def maps(draw: st.DrawFn) -> dict[str, Any]:
    actual: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(STREAMS), unique=True, max_size=3)):
        actual[name] = draw(rules())
    for name in draw(st.lists(st.sampled_from(["copy", "more"]), unique=True, max_size=2)):
        rule = draw(rules())
        if isinstance(rule, dict):
            actual[name] = {**rule, "__source__": draw(st.sampled_from(STREAMS))}
    for rule in actual.values():
        if isinstance(rule, dict) and "__source__" not in rule and draw(st.booleans()):
            rule["__alias__"] = draw(st.sampled_from(["renamed", "__stream_name__ + '_2'"]))
    if draw(st.integers(0, 4)) == 0:
        actual["__else__"] = None
    return actual


def has_keys(rule: Any) -> bool:
    """Return whether the SDK accepts a rule: it wants keys to be named again under `__else__`."""
    if not isinstance(rule, dict) or "__else__" not in rule:
        return True
    return set(rule.get("__key_properties__", ["id"])) <= set(rule)


@settings(deadline=None)
@given(stream_maps=maps().filter(lambda maps: all(map(has_keys, maps.values()))))
def test_as_the_sdk_plans(stream_maps: dict[str, Any]) -> None:
    try:
        sdk = by_sdk(stream_maps, schema=SCHEMA)
    except (StreamMapConfigError, MapExpressionError):
        # It also plans entries that a later one replaces.
        if len(stream_maps) == 1:
            with pytest.raises(SettingsError):
                planned(stream_maps, schema=SCHEMA)
        return
    left = [item for item in sdk if type(item).__name__ != "RemoveRecordTransform"]
    expected = [(item.stream_alias, tuple(item.transformed_key_properties or ())) for item in left]
    ours = planned(stream_maps, schema=SCHEMA)
    assert [(output.stream, output.key_properties) for output in ours] == expected
    for output, item in zip(ours, left, strict=True):
        record = {"id": 5, "name": "n", "email": "e", "a b": 2}
        assert set(output.schema["properties"]) == set(item.transformed_schema["properties"])
        assert set(output.schema["properties"]) == set(item.transform(record) or ())
        assert set(output.schema.get("required", ())) <= set(output.schema["properties"])


SQL_PARTS = st.sampled_from(
    [*["name", "(", ")", "'", '"', "`", "select", " ", ",", "1", "+", "reflect", "--", "/*", "*/"],
     *["\\", "from t", "upper", ".", "$", "{", "}", "exists", "x -> x", ";", "over", "\n", "é"]]
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(SQL_PARTS, max_size=12).map("".join) | st.text(max_size=20))
def test_any_text_of_sql_is_taken_or_refused(text: str) -> None:
    try:
        actual = sql_expression(text, Where(setting="here"))
    except SettingsError as error:
        assert str(error).startswith("setting 'here': the SQL expression is ")
        return
    assert not re.search(r"reflect[`\s]*\(", text)
    assert "select" not in re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "", text).split()
    assert actual.text == text


@settings(deadline=None)
@given(text=st.text("abc'\"(){}[]*+. \n", max_size=12))
def test_any_text_of_an_expression_is_taken_or_told(text: str) -> None:
    try:
        planned({"orders": {"new": text, "__filter__": text}}, schema=SCHEMA)
    except InvalidSettingsError as error:
        places = ("setting 'stream_maps.orders.", "config['stream_maps']['orders']['")
        assert all(line.startswith(places) for line in error.problems)


DOCUMENT = {
    "$defs": {
        "object": {"type": "object", "properties": {"a": TEXT}},
        "again": {"$ref": "#/$defs/object"},
        "circle": {"$ref": "#/$defs/circle"},
    }
}


class TestNodes:
    @pytest.mark.parametrize(
        "node",
        [
            {"$ref": "#/$defs/object"},
            {"$ref": "#/$defs/again"},
            {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/again"}]},
            {"oneOf": [{"type": "object", "properties": {"a": TEXT}}]},
            {"allOf": [{"$ref": "#/$defs/object"}]},
        ],
    )
    def test_objects_are_found(self, node: dict[str, Any]) -> None:
        actual = object_node(DOCUMENT, node)
        assert actual is not None
        assert actual["properties"] == {"a": TEXT}

    @pytest.mark.parametrize(
        "node", [{}, TEXT, {"type": "object"}, {"$ref": "#/$defs/circle"}, {"$ref": "x.json"}]
    )
    def test_what_is_none(self, node: dict[str, Any]) -> None:
        assert object_node(DOCUMENT, node) is None
        assert resolved_node(DOCUMENT, TEXT) == TEXT

    @pytest.mark.parametrize(
        ("node", "types"),
        [
            (TEXT, {"string", "null"}),
            ({}, None),
            ({"properties": {}}, {"object", "null"}),
            ({"enum": [1, "a"]}, {"integer", "string"}),
            ({"anyOf": [{"type": "array"}, {"type": "null"}]}, {"array", "null"}),
            ({"anyOf": [{"type": "array"}, {}]}, None),
        ],
    )
    def test_types(self, node: dict[str, Any], types: set[str] | None) -> None:
        assert node_types(node) == types
