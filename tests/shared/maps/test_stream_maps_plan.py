"""What leaves of a stream: names, schemas and keys, beside the SDK's. No Spark."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from map_cases import INTEGER, ORDERS, TEXT, by_sdk, fields, names, planned, settings, without_null
from pyspark.sql import types as T  # noqa: N812

from shared.errors import InvalidSettingsError, SettingsError
from shared.formats.schema_nodes import json_schema_to_spark
from shared.maps.stream_maps import outputs, reject_duplicate_names
from shared.settings.checking import tell_unmatched


def problems(stream_maps: dict[str, Any], **values: Any) -> list[str]:
    with pytest.raises(InvalidSettingsError) as failed:
        planned(stream_maps, **values)
    return list(failed.value.problems)


class TestWhichStreams:
    def test_without_maps_rows_go_as_they_are(self) -> None:
        [output] = planned()
        assert (output.stream, output.schema, output.transform) == ("orders", ORDERS, None)
        assert output.key_properties == ("id",)

    @pytest.mark.parametrize("null", [None, "__NULL__"])
    def test_null_removes(self, null: str | None) -> None:
        assert planned({"orders": null}) == ()
        assert planned({"ord*": null}) == ()
        assert planned({"__else__": null}) == ()
        assert planned({"__else__": null, "orders": {"x": "id"}}) != ()

    @pytest.mark.parametrize(
        "stream_maps",
        [
            {"orders": {"a": "id"}, "ord*": {"b": "id"}},
            {"ord*": {"b": "id"}, "orders": {"a": "id"}},
            {"orders": None, "*": {"b": "id"}},
            {"*": {"b": "id"}, "orders": None},
            {"o?ders": {"__alias__": "x"}, "[no]rders": {"y": "id"}},
            {"others": {"b": "id"}},
        ],
    )
    def test_the_last_pattern_wins(self, stream_maps: dict[str, Any]) -> None:
        actual = {output.stream: set(names(output)) for output in planned(stream_maps)}
        expected = {
            sdk.stream_alias: set(sdk.transformed_schema["properties"])
            for sdk in by_sdk(stream_maps)
            if type(sdk).__name__ != "RemoveRecordTransform"
        }
        assert actual == expected

    @pytest.mark.parametrize(
        ("stream_maps", "level", "text"),
        [
            ({"usres": {"email": None}}, "WARNING", "'usres' (did you mean 'users'?)"),
            ({"copy": {"__source__": "Orders"}}, "WARNING", "'copy' (did you mean 'orders'?)"),
            ({"tmp_*": None, "other": None, "*": {"a": "id"}}, "INFO", "'tmp_*', 'other'"),
            ({"order": None, "orders": {"a": "id"}}, "INFO", "'order'"),
            ({"users": {"a": "id"}, "ord*": None, "c": {"__source__": "o*"}}, "", ""),
            ({}, "", ""),
        ],
    )
    def test_entries_that_match_no_stream_are_told(
        self, stream_maps: dict[str, Any], level: str, text: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A mistyped name removes no stream and hides no property."""
        with caplog.at_level("INFO"):
            patterns = settings(stream_maps).maps.patterns
            tell_unmatched("stream_maps", patterns, ["users", "orders"])
        expected = [(level, f"stream_maps: no stream of this run matches {text}")] if level else []
        assert [(line.levelname, line.message) for line in caplog.records] == expected

    def test_patterns_heed_case(self) -> None:
        [output] = planned({"ORD*": None})
        assert output.transform is None

    @pytest.mark.parametrize(
        ("alias", "name"),
        [
            ("sales", "sales"),
            ("'sales'", "sales"),
            ("sales-eu", "sales-eu"),
            ("__stream_name__ + '_v2'", "orders_v2"),
            ("f'eu_{__stream_name__}'", "eu_orders"),
            ("__stream_name__.upper()", "ORDERS"),
            ("__stream_name__.split('d')[1]", "ers"),
            ("'x' if __stream_name__ == 'orders' else 'y'", "x"),
        ],
    )
    def test_alias(self, alias: str, name: str) -> None:
        [output] = planned({"*": {"__alias__": alias}})
        assert output.stream == name == by_sdk({"*": {"__alias__": alias}})[0].stream_alias
        assert output.transform is None
        assert output.schema == ORDERS

    @pytest.mark.parametrize("alias", ["config['p'] + 'x'", "x + __stream_name__", "1 / 0"])
    def test_an_alias_that_is_neither_an_expression_nor_a_name(self, alias: str) -> None:
        [line] = problems({"o*": {"__alias__": alias}})
        assert "for stream 'orders': cannot be evaluated (" in line
        [line] = problems({"orders": {"__alias__": alias}})
        assert "['__alias__']: cannot be evaluated (" in line

    def test_copies_follow(self) -> None:
        maps = {
            "small": {"__source__": "orders", "id": "id", "__else__": None},
            "orders": {"name": None},
            "every": {"__source__": "ord*"},
            "no": {"__source__": "others"},
        }
        actual = planned(maps)
        assert [output.stream for output in actual] == ["orders", "small", "every"]
        assert [output.stream for output in actual] == [sdk.stream_alias for sdk in by_sdk(maps)]
        assert [names(output) for output in actual[1:]] == [["id"], list(ORDERS["properties"])]

    def test_a_removed_stream_can_be_copied(self) -> None:
        [output] = planned({"orders": None, "copy": {"__source__": "orders"}})
        assert output.stream == "copy"
        [output] = planned({"__else__": None, "copy": {"__source__": "orders"}})
        assert output.stream == "copy"

    def test_two_outputs_under_one_name(self) -> None:
        with pytest.raises(SettingsError, match="two outputs of 'orders' have the name 'x'"):
            planned({"orders": {"__alias__": "x"}, "x": {"__source__": "orders"}})

    def test_self_of_a_property_that_is_mistyped(self) -> None:
        with pytest.raises(
            SettingsError, match=r"maps.orders.emial': .* 'emial' \(nearest: 'email'"
        ):
            planned({"orders": {"emial": "mask(self)"}})
        with pytest.raises(SettingsError, match="a filter has none"):
            planned({"orders": {"__filter__": "self > 1"}})
        # A name that a comprehension binds.
        assert planned({"orders": {"new": "[self + 1 for self in [id]]"}}) != ()

    def test_two_streams_under_one_name(self) -> None:
        maps = {"*": {"__alias__": "all"}}
        actual = {stream: planned(maps, stream=stream) for stream in ("a", "b")}
        with pytest.raises(SettingsError) as failed:
            reject_duplicate_names(actual)
        assert str(failed.value) == (
            "setting 'stream_maps': two outputs of streams 'a' and 'b' have the name 'all' "
            "(give one of them another '__alias__' or key)"
        )
        reject_duplicate_names({"a": actual["a"]})


class TestProperties:
    @pytest.mark.parametrize(
        "rule",
        [
            {"name": None},
            {"name": "__NULL__", "email": None},
            {"who": "name"},
            {"name": "email"},
            {"price": "price", "new": "id"},
            {"name": "self"},
            {"who": "name", "name": None},
            {"__key_properties__": ["name"], "id": None},
            {"__key_properties__": None, "id": None},
            {"__key_properties__": []},
            {"id": "id", "__else__": None},
            {"id": "id", "mail": "email", "__else__": "__NULL__"},
            {"__filter__": "id > 3", "name": None},
        ],
    )
    def test_as_the_sdk_plans(self, rule: dict[str, Any]) -> None:
        [output] = planned({"orders": rule})
        [sdk] = by_sdk({"orders": rule})
        expected = sdk.transformed_schema["properties"]
        assert list(output.schema["properties"]) == list(expected)
        assert output.key_properties == tuple(sdk.transformed_key_properties or ())
        for name, node in output.schema["properties"].items():
            types = without_null(node)["type"]
            assert types == without_null(expected[name])["type"] or rule.get(name) == "email"

    def test_untouched_properties_keep_their_schema(self) -> None:
        [output] = planned({"orders": {"email": None, "who": "name"}})
        actual = output.schema["properties"]
        assert {**actual, "email": TEXT} == {
            **ORDERS["properties"], "who": ORDERS["properties"]["name"]
        }  # fmt: skip
        assert output.schema["required"] == ["id", "name", "who"]

    def test_what_they_are_made_of_stays_typed(self) -> None:
        schema = copy.deepcopy(ORDERS)
        schema["properties"]["customer"]["type"] = "object"
        schema["required"] = ["id", "customer"]
        maps = {"orders": {"who": "name", "at": "record['customer']['address']"}}
        [output] = planned(maps, schema=schema)
        assert output.transform is not None
        struct = output.transform.struct()
        assert struct == json_schema_to_spark(output.schema)
        address = ORDERS["properties"]["customer"]["properties"]["address"]
        assert output.schema["properties"]["at"] == address
        assert output.schema["required"] == ["id", "customer", "at"]
        assert fields(struct)["at"] == json_schema_to_spark(address)
        assert output.transform.reads == frozenset(ORDERS["properties"])

    def test_only_what_is_needed_is_read(self) -> None:
        rule = {"x": "name", "id": "id", "__filter__": "price > 3", "__else__": None}
        [output] = planned({"orders": rule})
        assert output.transform is not None
        assert output.transform.reads == {"id", "name", "price"}

    def test_a_property_made_anew_is_no_longer_required(self) -> None:
        [output] = planned({"orders": {"name": "email"}})
        assert output.schema["required"] == ["id"]

    def test_keywords_about_the_whole_record_go(self) -> None:
        schema = {**ORDERS, "minProperties": 6, "anyOf": [{"required": ["name"]}], "title": "Order"}
        [output] = planned({"orders": {"name": None}}, schema=schema)
        assert set(output.schema) == {"type", "properties", "required", "title"}

    def test_new_ones_come_last_and_old_ones_stay_in_place(self) -> None:
        [output] = planned({"orders": {"first": "id", "email": "name", "last": "id"}})
        assert names(output) == [*ORDERS["properties"], "first", "last"]

    def test_else_keeps_the_keys(self) -> None:
        """The SDK wants them to be named, although its records have them."""
        [output] = planned({"orders": {"who": "name", "__else__": None}})
        assert names(output) == ["id", "who"]
        assert output.schema["required"] == ["id", "who"]

    def test_a_deletion_mark_stays(self) -> None:
        mark = {"type": ["string", "null"], "format": "date-time"}
        schema = {**ORDERS, "properties": {**ORDERS["properties"], "_sdc_deleted_at": mark}}
        maps = {"*": {"*": "self"}, "orders": {"id": "id", "__else__": None}}
        [output] = planned(maps, schema=schema)
        assert names(output) == ["id", "_sdc_deleted_at"]

    def test_what_rows_get_later_stays_in_the_schema(self) -> None:
        struct = T.StructType(json_schema_to_spark(ORDERS).fields[:2])
        [output] = outputs(settings({"orders": {"who": "name"}}), "orders", ORDERS, struct, ["id"])
        assert output.transform is not None
        assert output.transform.struct().names == ["id", "name", "who"]
        assert set(names(output)) == {*ORDERS["properties"], "who"}

    def test_references_are_followed(self) -> None:
        schema = {
            "$defs": {"it": ORDERS, "text": TEXT},
            "$ref": "#/$defs/it",
            "x-note": 1,
        }
        [output] = planned({"orders": {"name": None}}, schema=schema)
        assert names(output) == [name for name in ORDERS["properties"] if name != "name"]
        assert set(output.schema) == {"type", "properties", "required", "$defs", "x-note"}

    def test_a_property_with_dots_and_spaces(self) -> None:
        schema = {"type": "object", "properties": {"a.b": TEXT, "c d": INTEGER, "e`f": TEXT}}
        maps = {"orders": {"a.b": None, "x.y": "record['c d']", "z": "record['e`f']"}}
        [output] = planned(maps, schema=schema, keys=())
        assert names(output) == ["c d", "e`f", "x.y", "z"]


class TestPatternsOfProperties:
    def test_they_apply_to_what_no_line_names(self) -> None:
        schema = {"properties": {"id": INTEGER, "email": TEXT, "email_2": TEXT, "mail": TEXT}}
        maps = {"orders": {"email*": None, "email_2": "mail"}}
        [output] = planned(maps, schema=schema)
        assert names(output) == ["id", "email_2", "mail"]

    def test_they_add_up_over_all_patterns_of_streams(self) -> None:
        maps = {
            "*": {"*mail": None},
            "orders": {"who": "name"},
            "o*": {"pri*": None},
            "copy": {"__source__": "orders", "__else__": None, "id": "id", "*a*": "self"},
        }
        primary, copy = planned(maps)
        assert names(primary) == ["id", "name", "customer", "tags", "who"]
        assert names(copy) == ["id", "name", "email", "tags"]  # its own pattern is the last

    def test_a_rule_of_patterns_alone_hides_no_other(self) -> None:
        [output] = planned({"orders": {"name": None}, "*": {"*mail": None}})
        assert names(output) == ["id", "price", "customer", "tags"]

    def test_the_last_one_wins(self) -> None:
        [output] = planned({"*": {"*mail": None, "e*": "name"}})
        assert "email" in names(output)
        [output] = planned({"*": {"e*": "name", "*mail": None}})
        assert "email" not in names(output)

    def test_they_bring_back_nothing_that_else_leaves_out(self) -> None:
        [output] = planned({"*": {"*mail": "self"}, "orders": {"id": "id", "__else__": None}})
        assert names(output) == ["id"]
        [output] = planned({"orders": {"*mail": "self", "__else__": None}})
        assert names(output) == ["id", "email"]

    def test_a_property_can_have_such_a_name(self) -> None:
        schema = {"properties": {"is_ok?": TEXT, "is_okay": TEXT}}
        [output] = planned({"orders": {"is_ok?": None}}, schema=schema, keys=())
        assert names(output) == ["is_okay"]

    def test_metadata_is_left_alone(self) -> None:
        schema = {"properties": {"id": INTEGER, "_sdc_sequence": INTEGER}}
        [output] = planned({"*": {"*s*": None}}, schema=schema)
        assert names(output) == ["id", "_sdc_sequence"]


class TestProblems:
    def test_all_at_once_over_all_outputs(self) -> None:
        maps = {
            "orders": {
                "id": None,
                "total": "prise * 2",
                "x": "record['nam']",
                "__filter__": "pice > 2",
            },
            "copy": {"__source__": "orders", "y": "emial"},
        }
        actual = problems(maps)
        assert [line.split(":")[0] for line in actual] == [
            "setting 'stream_maps.orders.__filter__'",
            "setting 'stream_maps.orders.id'",
            "setting 'stream_maps.orders.total'",
            "setting 'stream_maps.orders.x'",
            "setting 'stream_maps.copy.y'",
        ]
        assert "'prise'" in actual[2]
        assert "'price'" in actual[2]

    def test_dropping_a_key(self) -> None:
        assert problems({"orders": {"id": None}}) == [
            "setting 'stream_maps.orders.id': 'id' is a key property of 'orders' and cannot be "
            "dropped (list the remaining keys in '__key_properties__', or set it to null)"
        ]
        assert len(problems({"*": {"i*": None}})) == 1

    def test_keys_that_are_not_there(self) -> None:
        assert problems({"orders": {"__key_properties__": ["emial"]}}) == [
            "setting 'stream_maps.orders.__key_properties__': the key property 'emial' is not "
            "a property of the mapped stream (did you mean 'email'?)"
        ]

    def test_flattening_takes_a_key_apart(self) -> None:
        [line] = problems({}, keys=("customer",), flattening_enabled=True, flattening_max_depth=1)
        assert "the key property 'customer' is not a property of the mapped stream" in line

    def test_a_drop_of_nothing_is_told_only(self) -> None:
        """The SDK takes it: a map may serve streams that do not all have the property."""
        [output] = planned({"orders": {"emial": None}})
        assert output.notes == (
            "stream_maps.orders.emial: cannot drop an unknown property; did you mean 'email'?",
        )

    @pytest.mark.parametrize("schema", [{}, {"type": "object"}])
    def test_streams_without_properties_cannot_be_mapped(self, schema: dict[str, Any]) -> None:
        [line] = problems({"*": {"*mail*": None}}, schema=schema, keys=())
        assert line.startswith("setting 'stream_maps.*.*mail*': the schema of stream 'orders' has")
        [line] = problems({"orders": {"a": "b"}}, schema=schema, keys=())
        assert line == (
            "setting 'stream_maps.orders': the schema of stream 'orders' has no properties to map"
        )
        [output] = planned({"orders": {"__alias__": "x"}}, schema=schema, keys=())
        assert (output.stream, output.transform) == ("x", None)


class TestPersonalData:
    def test_one_entry_hides_it_in_every_stream(self) -> None:
        maps = {"*": {"*mail*": "hash_value(self)"}, "orders": {"id": "id", "mail_2": "email"}}
        config = {"stream_map_config": {"hash_salt": "s"}}
        [output] = planned(maps, **config)
        assert output.transform is not None
        [created] = output.transform.computed
        assert (created.label, created.in_python) == ("property 'email'", False)
        assert created.reads == {"email"}
        assert output.schema["properties"]["email"] == TEXT
        [other] = planned(maps, stream="others", **config)
        assert other.transform is not None
        assert len(other.transform.computed) == 1

    def test_the_salt_has_to_be_there(self) -> None:
        [line] = problems({"*": {"*mail*": "hash_value(self)"}})
        assert line.startswith("setting 'stream_maps.*.*mail*': ")
        assert "salt" in line

    def test_each_property_is_its_own_self(self) -> None:
        schema = {"properties": {"email": TEXT, "mail": TEXT, "id": INTEGER}}
        [output] = planned({"*": {"*mail": "self.lower()"}}, schema=schema)
        assert output.transform is not None
        assert [created.reads for created in output.transform.computed] == [{"email"}, {"mail"}]


def test_what_is_random_is_made_for_each_property() -> None:
    [output] = planned({"orders": {"a": "rand()", "b": "rand()", "c": "id + 1", "d": "id + 1"}})
    assert output.transform is not None
    assert len(output.transform.computed) == 3


def test_the_documented_maps_can_be_planned() -> None:
    page = (Path(__file__).parents[3] / "docs" / "stream-maps.md").read_text()
    page = page.split("## Personal data\n")[0]
    block, _ = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    properties = dict.fromkeys(("note", "country", "email", "phone_2", "old_password"), TEXT)
    numbers = {name: {"type": "number"} for name in ("price", "quantity", "id")}
    schema = {"properties": {**properties, **numbers, "ordered_at": TEXT}}
    supplied = json.loads(block)
    del supplied["stream_maps"]["orders"]["month"]  # SQL needs Spark
    first, second = planned(schema=schema, **supplied)
    assert (first.stream, second.stream) == ("sales", "german_orders")
    assert "old_password" not in names(first)
    assert names(second) == ["id", "total"]
    assert planned(schema=schema, stream="tmp_1", **supplied) == ()
