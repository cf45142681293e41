"""Flattening without Spark: names and schemas, beside the SDK's."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from map_cases import ORDERS, TEXT, by_sdk, flat, names, planned, without_null
from pyspark.sql import types as T  # noqa: N812
from singer_sdk.helpers._flattening import flatten_key, flatten_schema

from shared.errors import InvalidSettingsError
from shared.formats.schema_nodes import json_schema_to_spark
from shared.maps.flattening import flattened_name, nullable_node
from shared.maps.map_settings import Flattening

WORDS = st.text("abcXYZ_09 é.-", min_size=1, max_size=12)


class TestNames:
    @settings(deadline=None)
    @given(
        path=st.lists(WORDS, min_size=1, max_size=5),
        separator=st.sampled_from(["__", ".", "_", "", "---"]),
        longest=st.integers(1, 40),
    )
    def test_as_the_sdk_names(self, path: list[str], separator: str, longest: int) -> None:
        ours = flattened_name(path, Flattening(True, 9, longest, separator))
        assert ours == flatten_key(path[-1], path[:-1], separator, max_key_length=longest)

    @pytest.mark.parametrize(
        ("path", "longest", "name"),
        [
            (["customer", "city"], 255, "customer__city"),
            (["customer", "city"], 14, "cus__city"),  # as long as the limit is too long
            (["customer", "city"], 15, "customer__city"),
            (["shippingAddress", "city"], 10, "sa__city"),
            (["shipping_address", "city_name"], 6, "sa__cn"),
            (["name"], 4, "nam"),
        ],
    )
    def test_shortened_from_the_front(self, path: list[str], longest: int, name: str) -> None:
        assert flattened_name(path, Flattening(True, 1, longest)) == name


def nodes(depth: int) -> st.SearchStrategy[dict[str, Any]]:
    scalars = st.sampled_from(
        [
            {"type": "integer"},
            {"type": ["string", "null"]},
            {"type": "string", "format": "date-time"},
            {"type": ["null", "number"]},
            {"type": "boolean"},
            {"type": ["array", "null"], "items": {"type": "string"}},
            {"type": "array", "items": {"type": "object", "properties": {"a": TEXT}}},
            {"type": "object"},
            {"type": ["object", "null"], "additionalProperties": {"type": "integer"}},
            {"type": ["object", "array", "null"]},
            {},
        ]
    )
    if depth == 0:
        return scalars
    return st.one_of(scalars, objects(depth))


def objects(depth: int) -> st.SearchStrategy[dict[str, Any]]:
    names = st.sampled_from(["id", "name", "a_b", "b", "Total", "long_nested_name", "c d"])
    return st.builds(
        lambda properties, types: {"type": types, "properties": properties},
        st.dictionaries(names, nodes(depth - 1), min_size=1, max_size=4),
        st.sampled_from(["object", ["object", "null"]]),
    )


class TestSchemas:
    @settings(deadline=None)
    @given(
        schema=objects(4),
        depth=st.integers(1, 5),
        separator=st.sampled_from(["__", "."]),
        longest=st.integers(5, 30),
    )
    def test_as_the_sdk_flattens(
        self, schema: dict[str, Any], depth: int, separator: str, longest: int
    ) -> None:
        given = copy.deepcopy(schema)
        values = flat(depth, flattening_separator=separator, flattening_max_key_length=longest)
        try:
            expected = flatten_schema(given, depth, separator, max_key_length=longest)
        except ValueError:
            with pytest.raises(InvalidSettingsError, match="both become"):
                planned(schema=schema, keys=(), **values)
            return
        try:
            [output] = planned(schema=schema, keys=(), **values)
        except InvalidSettingsError as error:
            # The SDK loses one of two columns where they come from different levels.
            assert "both become" in str(error)
            return
        actual = output.schema["properties"]
        assert list(actual) == list(expected["properties"])
        for name, node in actual.items():
            assert without_null(node) == without_null(expected["properties"][name])

    @settings(deadline=None)
    @given(schema=objects(4), depth=st.integers(1, 5))
    def test_the_schema_tells_the_types_of_the_columns(
        self, schema: dict[str, Any], depth: int
    ) -> None:
        try:
            [output] = planned(schema=schema, keys=(), **flat(depth))
        except InvalidSettingsError:
            return
        struct = json_schema_to_spark(output.schema)
        if output.transform is None:
            assert output.schema == schema
        else:
            assert output.transform.struct() == struct
        if depth == 5:
            assert not [f for f in struct if isinstance(f.dataType, T.StructType | T.ArrayType)]

    def test_deeper_objects_become_text(self) -> None:
        [output] = planned(**flat(1))
        assert names(output) == [
            "id", "name", "email", "price", "customer__email", "customer__address", "tags"
        ]  # fmt: skip
        assert output.schema["properties"]["customer__address"] == TEXT
        assert output.schema["properties"]["tags"] == TEXT

    def test_what_may_be_missing_may_be_null(self) -> None:
        """The SDK keeps the inner type, under which no record without a customer is valid."""
        [output] = planned(**flat(2))
        assert output.schema["properties"]["customer__email"] == {"type": ["string", "null"]}
        assert output.schema["required"] == ["id", "name"]

    def test_required_all_the_way_stays_required(self) -> None:
        schema = copy.deepcopy(ORDERS)
        schema["properties"]["customer"]["type"] = "object"
        schema["required"] = ["id", "customer"]
        [output] = planned(schema=schema, **flat(1))
        assert output.schema["required"] == ["id", "customer__email", "customer__address"]
        assert output.schema["properties"]["customer__email"] == {"type": "string"}

    def test_properties_that_are_flat_are_left_alone(self) -> None:
        schema = {"type": "object", "properties": {"a": TEXT, "b": {"type": "integer"}}}
        [output] = planned(schema=schema, keys=("b",), **flat(3))
        assert output.transform is None
        assert output.schema is schema

    def test_depth_nothing_switches_it_off(self) -> None:
        [output] = planned(**flat(0))
        assert output.transform is None

    def test_objects_behind_references_and_choices(self) -> None:
        """The SDK takes these for text, under a schema that says object."""
        schema = {
            "type": "object",
            "$defs": {"place": {"type": "object", "properties": {"city": TEXT}}},
            "properties": {
                "home": {"$ref": "#/$defs/place"},
                "work": {"anyOf": [{"$ref": "#/$defs/place"}, {"type": "null"}]},
            },
        }
        [output] = planned(schema=schema, keys=(), **flat(1))
        assert names(output) == ["home__city", "work__city"]
        assert output.schema["$defs"] == schema["$defs"]

    def test_key_properties_get_their_new_names(self) -> None:
        schema = {"type": "object", "properties": {"orderNumber": TEXT, "o": ORDERS}}
        values = flat(1, flattening_max_key_length=8)
        [output] = planned(schema=schema, keys=("orderNumber",), **values)
        assert output.key_properties == ("on",)

    def test_a_flattened_name_can_be_a_key(self) -> None:
        rule = {"__key_properties__": ["customer__email"]}
        [output] = planned({"orders": rule}, **flat(1))
        assert output.key_properties == ("customer__email",)

    def test_colliding_names_are_told_with_both_paths(self) -> None:
        schema = {
            "type": "object",
            "properties": {"a": {"type": "object", "properties": {"b": TEXT}}, "a__b": TEXT},
        }
        with pytest.raises(InvalidSettingsError) as failed:
            planned(schema=schema, keys=(), **flat(1))
        assert (
            str(failed.value) == "stream 'orders': flattening: 'a.b' and 'a__b' both become 'a__b'"
        )

    def test_after_the_maps(self) -> None:
        rule = {"who": "customer", "customer": None}
        [output] = planned({"orders": rule}, **flat(1))
        [sdk] = by_sdk({"orders": {**rule, "who": "customer"}}, **flat(1))
        assert names(output)[-2:] == ["who__email", "who__address"]
        assert set(sdk.transformed_schema["properties"]) == set(names(output))


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({"type": "string"}, {"type": ["string", "null"]}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"type": "string", "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"const": 1}, {"anyOf": [{"const": 1}, {"type": "null"}]}),
        ({"$ref": "#/x"}, {"anyOf": [{"$ref": "#/x"}, {"type": "null"}]}),
        ({"type": "string", "oneOf": [{"const": "a"}]},
         {"anyOf": [{"type": "string", "oneOf": [{"const": "a"}]}, {"type": "null"}]}),
        ({}, {}),
    ],
)  # fmt: skip
def test_null_is_allowed_too(node: dict[str, Any], expected: dict[str, Any]) -> None:
    assert nullable_node(node) == expected
