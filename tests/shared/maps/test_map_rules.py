"""`stream_maps` as a setting: what is understood, and every problem in it. No Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from map_cases import settings

from shared.errors import InvalidSettingsError
from shared.maps.expressions.syntax import Expression
from shared.maps.map_settings import Flattening, MapRules, Property, TransformSettings
from shared.maps.sql_expressions import Sql
from shared.settings.loading import load_settings
from tap_spark.config import PROGRAM as TAP
from tap_spark.config import SETTINGS_SCHEMA as TAP_SCHEMA
from tap_spark.config import tap_config
from target_spark.config import PROGRAM as TARGET
from target_spark.config import SETTINGS_SCHEMA, target_config

STREAM = {"name": "a", "format": "csv", "path": "x.csv"}
MAPS: dict[str, Any] = {
    "or.d*": {
        "a.b": "price * 2",
        "c": None,
        "d": "__NULL__",
        "e": {"sql": "upper(name)"},
        "*mail*": "md5(self)",
        "__filter__": "price > 3",
        "__alias__": "sales",
        "__else__": None,
        "__key_properties__": ["id"],
    },
    "gone": None,
    "copy.1": {"__source__": "or.d*"},
    "__else__": "__NULL__",
}


def problems(stream_maps: Any = None, **values: Any) -> list[str]:
    with pytest.raises(InvalidSettingsError) as failed:
        settings(stream_maps, **values)
    return list(failed.value.problems)


class TestRules:
    def test_everything_is_read(self) -> None:
        actual = settings(MAPS).maps
        mapped, gone, copy = actual.rules
        assert actual.others_removed
        assert (mapped.key, mapped.alias, mapped.only_named) == ("or.d*", "sales", True)
        assert mapped.keys == ("id",)
        assert isinstance(mapped.filter, Expression)
        assert [line.name for line in mapped.properties] == ["a.b", "c", "d", "e", "*mail*"]
        kinds = [type(line.definition) for line in mapped.properties]
        assert kinds == [Expression, type(None), type(None), Sql, Expression]
        assert gone.removed
        assert copy.source == "or.d*"
        assert copy.matches("or.ders")
        assert not copy.matches("copy.1")

    @pytest.mark.parametrize("keys", [None, "__NULL__", []])
    def test_no_keys(self, keys: Any) -> None:
        [rule] = settings({"a": {"__key_properties__": keys}}).maps.rules
        assert rule.keys == ()

    @pytest.mark.parametrize("condition", [None, "__NULL__"])
    def test_no_filter(self, condition: Any) -> None:
        [rule] = settings({"a": {"__filter__": condition}}).maps.rules
        assert rule.filter is None
        assert rule.keys is None

    def test_a_filter_in_sql(self) -> None:
        [rule] = settings({"a": {"__filter__": {"sql": "x > 1"}}}).maps.rules
        assert isinstance(rule.filter, Sql)

    @pytest.mark.parametrize(
        ("name", "is_pattern"),
        [("a", False), ("a*", True), ("a?", True), ("[ab]", True), ("a.b c", False)],
    )
    def test_patterns_of_properties(self, name: str, is_pattern: bool) -> None:
        assert Property(name, None).is_pattern is is_pattern

    @pytest.mark.parametrize(
        ("rule", "only_adds"),
        [
            ({"*a": None}, True),
            ({"*a": None, "b": "c"}, False),
            ({"*a": None, "__else__": None}, False),
            ({"*a": None, "__alias__": "x"}, False),
            ({"*a": None, "__filter__": "x"}, False),
            ({"*a": None, "__source__": "x"}, False),
            ({}, False),
        ],
    )
    def test_rules_that_only_add(self, rule: dict[str, Any], only_adds: bool) -> None:
        [actual] = settings({"x*": rule}).maps.rules
        assert actual.only_adds is only_adds


class TestProblems:
    @pytest.mark.parametrize(
        ("stream_maps", "lines"),
        [
            ([], ["config['stream_maps']: a list is not of type 'object'"]),
            (
                {"a": "x"},
                [
                    "config['stream_maps']['a']: must be an object with the stream's properties, "
                    "or null to remove it"
                ],
            ),
            (
                {"a": {"b": 1}},
                [
                    "config['stream_maps']['a']['b']: must be an expression, "
                    '{"sql": "..."}, or null to drop the property'
                ],
            ),
            (
                {"a": {"__filtre__": "x"}},
                [
                    "config['stream_maps']['a']['__filtre__']: unknown option; did you mean "
                    "'__filter__'?"
                ],
            ),
            (
                {"__elze__": None},
                ["config['stream_maps']['__elze__']: unknown option; did you mean '__else__'?"],
            ),
            (
                {"__else__": "x", "a": {"__else__": True}},
                [
                    "config['stream_maps']['__else__']: must be null, which drops everything "
                    "without an entry of its own",
                    "config['stream_maps']['a']['__else__']: must be null, which drops "
                    "everything without an entry of its own",
                ],
            ),
            (
                {"a": {"__key_properties__": "id"}},
                [
                    "config['stream_maps']['a']['__key_properties__']: must be an array of "
                    "property names, or null for none"
                ],
            ),
            (
                {"a": {"__source__": "b", "__alias__": "c"}},
                [
                    "config['stream_maps']['a']['__alias__']: cannot be combined with "
                    "'__source__': the key is the name of the copy"
                ],
            ),
            (
                {"a": {"__alias__": "1 + 1"}, "b*": {"__alias__": "__stream_name__[9]"}},
                ["config['stream_maps']['a']['__alias__']: gives 2, which is not a name"],
            ),
        ],
    )
    def test_each(self, stream_maps: Any, lines: list[str]) -> None:
        supplied: dict[str, Any] = {"stream_maps": stream_maps}
        with pytest.raises(InvalidSettingsError) as failed:
            target_config({"path": "x", **supplied})
        assert list(failed.value.problems) == lines

    def test_syntax_with_its_position(self) -> None:
        maps = {
            "a": {"b": "price *", "c": {"sql": "a +"}, "__filter__": "lambda: 1"},
            "d": {"e": "().__class__", "__alias__": "a b"},
        }
        actual = problems(maps)
        assert [line.split(": ")[0] for line in actual] == [
            "config['stream_maps']['a']['b']",
            "config['stream_maps']['a']['c']",
            "config['stream_maps']['a']['__filter__']",
            "config['stream_maps']['d']['e']",
            "config['stream_maps']['d']['__alias__']",
        ]
        assert all("at column" in line or "at line" in line for line in actual[:2])

    def test_flattening_needs_a_depth(self) -> None:
        assert problems(flattening_enabled=True) == [
            "config: 'flattening_max_depth' is required if 'flattening_enabled' is true"
        ]


class TestSettings:
    def test_nothing_is_to_be_done_by_default(self) -> None:
        assert not TransformSettings().active
        assert not settings().active
        assert not tap_config({"streams": [STREAM]}).transforms.active
        assert not target_config({"path": "x"}).transforms.active
        assert not settings(flattening_enabled=True, flattening_max_depth=0).active

    def test_both_programs_take_them(self) -> None:
        supplied = {
            "stream_maps": {"a": {"b": "c"}},
            "stream_map_config": {"hash_salt": "s"},
            "faker_config": {"seed": 4, "locale": ["de_DE"]},
            "flattening_enabled": True,
            "flattening_max_depth": 2,
            "flattening_max_key_length": 30,
            "flattening_separator": ".",
        }
        both = (
            tap_config({"streams": [STREAM], **supplied}),
            target_config({"path": "x", **supplied}),
        )
        for actual in both:
            assert actual.transforms.active
            assert actual.transforms.config == {"hash_salt": "s"}
            assert actual.transforms.faker == {"seed": 4, "locale": ["de_DE"]}
            assert actual.transforms.flattening == Flattening(True, 2, 30, ".")
            assert "hash_salt" not in repr(actual)

    def test_capabilities(self) -> None:
        for program in (TAP, TARGET):
            assert {"stream-maps", "schema-flattening"} <= set(program.capabilities)

    def test_maps_that_do_nothing(self) -> None:
        assert settings({}).maps == MapRules()


def load(*documents: dict[str, Any], tmp_path: Path, **environ: str) -> dict[str, Any]:
    paths = []
    for number, document in enumerate(documents):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(document))
        paths.append(str(path))
    return load_settings(SETTINGS_SCHEMA, [*paths, "ENV"], "TARGET_SPARK_", environ)


class TestSources:
    def test_a_file_is_taken_as_it_is(self, tmp_path: Path) -> None:
        actual = load({"path": "x", "stream_maps": MAPS}, tmp_path=tmp_path)
        assert actual["stream_maps"] == MAPS
        assert list(actual["stream_maps"]["or.d*"]) == list(MAPS["or.d*"])
        assert target_config(actual).transforms.maps.rules[0].key == "or.d*"

    def test_a_variable_too(self, tmp_path: Path) -> None:
        actual = load(tmp_path=tmp_path, TARGET_SPARK_STREAM_MAPS=json.dumps(MAPS))
        assert actual["stream_maps"] == MAPS

    def test_nested_values_for_expressions(self, tmp_path: Path) -> None:
        values = {"hash_salt": "s", "a.b": None, "lists": {"c": [1, {"d": None}]}}
        actual = load({"stream_map_config": values}, tmp_path=tmp_path)
        assert actual["stream_map_config"] == values

    def test_files_add_up_stream_by_stream(self, tmp_path: Path) -> None:
        first = {"orders": {"a": "b", "c": "d"}, "*": None, "gone": {"x": "y"}}
        second = {"orders": {"c": None, "e": {"sql": "f"}}, "gone": None}
        actual = load({"stream_maps": first}, {"stream_maps": second}, tmp_path=tmp_path)
        maps = actual["stream_maps"]
        assert maps == {
            "*": None,
            "orders": {"a": "b", "c": None, "e": {"sql": "f"}},
            "gone": None,
        }
        assert list(maps) == ["*", "orders", "gone"]  # what a later file says comes last, and wins

    def test_null_for_the_whole_setting_takes_it_back(self, tmp_path: Path) -> None:
        actual = load({"stream_maps": MAPS}, {"stream_maps": None}, tmp_path=tmp_path)
        assert "stream_maps" not in actual

    def test_a_dotted_name(self, tmp_path: Path) -> None:
        document = {"stream_maps.orders": {"a": None}, "stream_maps.b*": None}
        actual = load(document, tmp_path=tmp_path)
        assert actual["stream_maps"] == {"orders": {"a": None}, "b*": None}

    def test_faker_by_names(self, tmp_path: Path) -> None:
        environ = {"TARGET_SPARK_FAKER_CONFIG__LOCALE": '["de_DE"]'}
        actual = load({"faker_config.seed": 3}, tmp_path=tmp_path, **environ)
        assert actual["faker_config"] == {"seed": 3, "locale": ["de_DE"]}

    def test_flattening_by_variables(self, tmp_path: Path) -> None:
        environ = {
            "TARGET_SPARK_FLATTENING_ENABLED": "true",
            "TARGET_SPARK_FLATTENING_MAX_DEPTH": "3",
        }
        actual = load({"path": "x"}, tmp_path=tmp_path, **environ)
        assert target_config(actual).transforms.flattening == Flattening(True, 3)


def test_checking_the_settings_does_not_load_spark() -> None:
    code = (
        "import sys, json; from tap_spark.config import tap_config;"
        "tap_config({**json.loads(sys.argv[2]), 'stream_maps': json.loads(sys.argv[1])});"
        "print([name for name in sys.modules if name.split('.')[0] in ('pyspark', 'numpy')])"
    )
    maps = {key: value for key, value in MAPS.items() if key != "copy.1"}
    command = [sys.executable, "-c", code, json.dumps(maps), json.dumps({"streams": [STREAM]})]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_tap_has_the_same_properties() -> None:
    names = ("stream_maps", "stream_map_config", "faker_config", "flattening_separator")
    assert all(TAP_SCHEMA["properties"][n] == SETTINGS_SCHEMA["properties"][n] for n in names)
