"""`__explode__`: streams of elements, their schemas, and what does not fit. No Spark."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from map_cases import INTEGER, TEXT, flat, names, planned, settings

from shared.errors import InvalidSettingsError
from shared.maps.stream_maps import StreamOutput

ITEM = {
    "type": ["object", "null"],
    "properties": {
        "sku": {"type": "string", "maxLength": 9},
        "qty": INTEGER,
        "by": {"type": "object", "properties": {"email": TEXT}},
    },
    "required": ["sku"],
}
NESTED = {"type": "array", "items": TEXT}
ORDERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "country": TEXT,
        "items": {"type": ["array", "null"], "items": ITEM},
        "tags": {"type": ["array", "null"], "items": TEXT},
        "payload": {
            "type": ["object", "null"],
            "properties": {"no": INTEGER, "phones": NESTED, "deep": {
                "type": "object", "properties": {"lines": {"type": "array", "items": ITEM}}}},
        },
        "more": {"type": "array", "items": {"type": "object", "properties": {"codes": NESTED}}},
        "text": TEXT,
    },
    "required": ["id"],
}  # fmt: skip


def child(array: str = "items", more: dict[str, Any] | None = None, **values: Any) -> StreamOutput:
    maps = {"orders": None, "lines": {"__source__": "orders", "__explode__": array, **values}}
    [output] = planned({**maps, **(more or {})}, ORDERS)
    return output


def problem(array: str = "items", more: dict[str, Any] | None = None, **values: Any) -> str:
    with pytest.raises(InvalidSettingsError) as failed:
        child(array, more, **values)
    [text] = failed.value.problems
    return text


def reads(output: StreamOutput) -> set[str]:
    assert output.transform is not None
    return set(output.transform.reads)


def test_properties_of_objects_are_those_of_the_records() -> None:
    output = child()
    assert output.stream == "lines"
    assert output.schema["properties"] == ITEM["properties"]
    assert output.schema["required"] == ["sku"]
    assert (output.key_properties, reads(output)) == ((), {"items"})
    assert output.transform is not None
    assert output.transform.leaves_out
    assert not output.transform.only_copies, "Spark makes the rows"


def test_the_stream_itself_stays_as_it_is() -> None:
    first, second = planned({"lines": {"__source__": "orders", "__explode__": "items"}}, ORDERS)
    assert (first.stream, first.transform, first.key_properties) == ("orders", None, ("id",))
    assert second.stream == "lines"


@pytest.mark.parametrize(
    ("array", "name", "node"),
    [("tags", "tags", {"type": "string"}), ("payload.phones", "phones", {"type": "string"})],
)
def test_other_elements_are_one_property(array: str, name: str, node: dict[str, Any]) -> None:
    output = child(array)
    assert output.schema["properties"] == {name: node}
    assert output.schema["required"] == [name]


def test_place_and_record_are_properties_too() -> None:
    output = child(
        __index__="position",
        __key_properties__=["order", "position"],
        order="__parent__['id']",
        total="qty * __parent__.payload['no']",
    )
    actual = output.schema["properties"]
    assert names(output) == ["sku", "qty", "by", "position", "order", "total"]
    assert actual["order"] == {"type": "integer", "minimum": 1}
    assert actual["position"] == {"type": "integer", "minimum": 0}
    assert set(output.schema["required"]) == {"sku", "position", "order"}
    assert output.key_properties == ("order", "position")
    assert reads(output) == {"items", "id", "payload"}


def test_only_named_properties_keep_keys_and_place() -> None:
    values = {"__index__": "n", "__else__": None, "__key_properties__": ["sku"], "q": "qty"}
    assert names(child(**values)) == ["sku", "n", "q"]


def test_what_holds_the_array_is_named_without_it() -> None:
    output = child("payload.deep.lines", whole="__parent__['payload']", no="__parent__.payload.no")
    whole = output.schema["properties"]["whole"]
    assert set(whole["properties"]) == {"no", "phones"}
    assert output.schema["properties"]["no"]["type"] == ["integer", "null"]


def test_flattening_comes_after() -> None:
    maps = {"orders": None, "lines": {"__source__": "orders", "__explode__": "items"}}
    [output] = planned(maps, ORDERS, **flat(2))
    assert names(output) == ["sku", "qty", "by__email"]


class TestPatterns:
    """Patterns that hide personal data hide it in the elements too."""

    @pytest.mark.parametrize("pattern", ["*sku*", "*.sku", "items.s*"])
    def test_of_other_entries(self, pattern: str) -> None:
        assert names(child(more={"*": {pattern: None}})) == ["qty", "by"]

    @pytest.mark.parametrize("pattern", ["*.email", "by.*mail", "items.by.*"])
    def test_inside_objects(self, pattern: str) -> None:
        output = child(more={"*": {pattern: "md5(self) if self else 'x'"}})
        assert output.transform is not None
        assert [created.label for created in output.transform.computed] == ["property 'by'"]

    def test_of_elements_that_are_no_objects(self) -> None:
        masked = {"*": {"*phones": "md5(self)", "pay*.phones": "md5(self)"}}
        output = child("payload.phones", more=masked)
        assert output.transform is not None
        [created] = output.transform.computed
        assert created.label == "property 'phones'"

    @pytest.mark.parametrize(
        ("array", "pattern"),
        [("items", "it*"), ("payload.deep.lines", "pay*"), ("payload.deep.lines", "*.deep")],
    )
    def test_that_would_hide_the_array(self, array: str, pattern: str) -> None:
        text = problem(array, {"*": {pattern: None}})
        assert text.startswith(f"setting 'stream_maps.*.{pattern}': it would not hide the elements")

    def test_the_place_is_not_hidden(self) -> None:
        assert names(child(more={"*": {"*pos*": None}}, __index__="pos"))[-1] == "pos"


@pytest.mark.parametrize(
    ("array", "values", "text"),
    [
        ("itms", {}, "__explode__': the stream has no property 'itms' (did you mean 'items'?)"),
        ("text", {}, "__explode__': 'text' is not an array of known contents but string"),
        ("payload", {}, "'payload' is not an array of known contents but struct"),
        ("more.codes", {}, "'more.codes' is inside an array of objects; only one array"),
        (
            "items",
            {"__index__": "qty"},
            "__index__': the elements of 'items' have a property 'qty'",
        ),
        ("items", {"x": "__parent__['ident']"}, "lines.x': __parent__ has no property 'ident'"),
        ("items", {"x": "__parent__['items']"}, "lines.x': __parent__ has no property 'items'"),
        ("items", {"x": "country"}, "lines.x': at column 1: unknown name 'country'"),
        ("items", {"__filter__": "__parent__.idd == 1"}, "__filter__': __parent__ has no property"),
        ("items", {"__key_properties__": ["id"]}, "the key property 'id' is not a property of"),
    ],
)
def test_what_does_not_fit_the_stream(array: str, values: dict[str, Any], text: str) -> None:
    assert text in problem(array, **values)
    assert "\n" not in problem(array, **values)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"__explode__": "items"}, "['__explode__']: needs '__source__' beside it"),
        ({"__source__": "o", "__index__": "n"}, "['__index__']: needs '__explode__' beside it"),
        ({"__source__": "o", "__explode__": 1}, "['__explode__']: must be the name of an array"),
        (
            {"__source__": "o", "__explode__": "a", "__index__": ""},
            "['__index__']: must be the name",
        ),
        ({"__source__": "o", "__explod__": "a"}, "did you mean '__explode__'?"),
    ],
)
def test_what_is_wrong_without_a_stream(rule: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidSettingsError) as failed:
        settings({"lines": rule})
    assert any(text in actual for actual in failed.value.problems)
    assert failed.value.exit_code == 2


def test_the_documented_map_can_be_planned() -> None:
    page = (Path(__file__).parents[3] / "docs" / "stream-maps.md").read_text()
    page = page.split("## Personal data\n")[0]
    _, block = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    line = {"type": "object", "properties": {"quantity": INTEGER, "price": INTEGER}}
    properties = {"id": INTEGER, "country": TEXT, "lines": {"type": "array", "items": line}}
    _, output = planned(**json.loads(block), schema={"properties": properties})
    assert (output.stream, output.key_properties) == ("order_lines", ("order_id", "position"))
    assert names(output) == ["quantity", "price", "position", "order_id", "total"]


def test_the_record_has_that_name_only_beside_elements() -> None:
    with pytest.raises(InvalidSettingsError, match="unknown name '__parent__'"):
        planned({"orders": {"x": "__parent__['id']"}}, ORDERS)
