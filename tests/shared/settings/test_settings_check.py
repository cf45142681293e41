"""Validation: every problem at once, each with its place, none with a secret."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from shared.errors import InvalidSettingsError, SettingsError
from shared.settings.checking import (
    INVALID,
    Problem,
    complete_settings,
    declared_names,
    holds_secret,
    nearest,
    read,
    schema_problems,
    setting_place,
    with_defaults,
)
from shared.settings.kinds import (
    SECRET_VALUES,
    TEXT,
    TEXTS,
    at_least,
    group,
    schema_of,
    setting,
    typed,
)

ITEM: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "format": {"type": "string", "enum": ["csv", "json", "parquet"]},
        "row_count": {"type": "integer", "minimum": 0},
        "keys": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "default": []},
        "password": {"type": "string"},
    },
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["streams"],
    "properties": {
        "streams": {"type": "array", "minItems": 1, "items": ITEM},
        "wait": {"type": "number", "exclusiveMinimum": 0, "maximum": 100, "default": 10},
        "prefix": {"type": "string", "pattern": "^[a-z]*$", "x-pattern-meaning": "a word"},
        "code": {"type": "string", "pattern": "^x"},
        "even": {"type": "integer", "multipleOf": 2},
        "spark": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "master": {"type": "string", "default": "local[*]"},
                "remote": {"type": "string", "secret": True},
                "conf": {
                    "type": "object",
                    "default": {},
                    "additionalProperties": {"type": ["string", "number"], "secret": True},
                },
            },
        },
    },
}
GOOD: dict[str, Any] = {"streams": [{"name": "a"}]}


def problems(settings: Mapping[str, Any], *rules: Any) -> list[str]:
    with pytest.raises(InvalidSettingsError) as caught:
        complete_settings(SCHEMA, settings, rules)
    return list(caught.value.problems)


def stream(**fields: Any) -> dict[str, Any]:
    return {"streams": [{"name": "a", **fields}]}


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({}, "config: 'streams' is a required property"),
        ({"streams": []}, "config['streams']: a list must have at least 1 item(s)"),
        ({"streams": {}}, "config['streams']: an object is not of type 'array'"),
        ({"streams": ["x"]}, "config['streams'][0]: 'x' is not of type 'object'"),
        ({"streams": [{}]}, "config['streams'][0]: 'name' is a required property"),
        ({"streams": [{"name": ""}]}, "config['streams'][0]['name']: must not be empty"),
        (stream(row_count="x"), "config['streams'][0]['row_count']: 'x' is not of type 'integer'"),
        (
            stream(row_count=True),
            "config['streams'][0]['row_count']: true is not of type 'integer'",
        ),
        (stream(row_count=1.5), "config['streams'][0]['row_count']: 1.5 is not of type 'integer'"),
        (
            stream(row_count=-1),
            "config['streams'][0]['row_count']: -1 is less than the minimum of 0",
        ),
        (
            stream(format="csvv"),
            "config['streams'][0]['format']: 'csvv' is not one of 'csv', 'json', 'parquet'; "
            "did you mean 'csv'?",
        ),
        (stream(format=3), "config['streams'][0]['format']: 3 is not of type 'string'"),
        (
            stream(format="zzz"),
            "config['streams'][0]['format']: 'zzz' is not one of 'csv', 'json', 'parquet'",
        ),
        (
            stream(keys=["a", "a"]),
            "config['streams'][0]['keys']: a list must not hold the same item twice",
        ),
        (stream(keys=[1]), "config['streams'][0]['keys'][0]: 1 is not of type 'string'"),
        ({**GOOD, "wait": 0}, "config['wait']: 0 must be greater than 0"),
        ({**GOOD, "wait": 101}, "config['wait']: 101 is greater than the maximum of 100"),
        ({**GOOD, "prefix": "A"}, "config['prefix']: 'A' is not a word"),
        ({**GOOD, "code": "A"}, "config['code']: 'A' is not '^x'"),
        ({**GOOD, "even": 3}, "config['even']: 3 breaks the rule 'multipleOf'"),
        (
            {**GOOD, "spark": {"conf": {"a": []}}},
            "config['spark']['conf']['a']: a list is not of type 'string', 'number'",
        ),
    ],
)
def test_one_problem_is_one_line(settings: dict[str, Any], line: str) -> None:
    assert problems(settings) == [line]


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({**GOOD, "wiat": 1}, "config['wiat']: unknown setting; did you mean 'wait'?"),
        ({**GOOD, "WAIT": 1}, "config['WAIT']: unknown setting; did you mean 'wait'?"),
        ({**GOOD, "master": 1}, "config['master']: unknown setting; did you mean 'spark.master'?"),
        (
            {**GOOD, "row_cuont": 1},
            "config['row_cuont']: unknown setting; did you mean 'streams[].row_count'?",
        ),
        (
            stream(nmae="x"),
            "config['streams'][0]['nmae']: unknown setting; did you mean 'name'?",
        ),
        (
            {**GOOD, "spark": {"mastr": "x"}},
            "config['spark']['mastr']: unknown setting; did you mean 'master'?",
        ),
        (
            {**GOOD, "spark": {"qqqqqq": "x"}},
            "config['spark']['qqqqqq']: unknown setting; known are 'master', 'remote', 'conf'",
        ),
    ],
)
def test_unknown_keys_name_the_nearest(settings: dict[str, Any], line: str) -> None:
    assert problems(settings) == [line]


def test_all_problems_at_once() -> None:
    actual = problems(
        {
            "streams": [{"nmae": "a", "row_count": "x"}, {"name": "b", "format": 3}],
            "wait": "soon",
            "zzz": 1,
            "yyy": 2,
            "spark": {"master": 1},
        }
    )
    places = sorted(line.split(": ")[0] for line in actual)
    assert places == [
        "config['spark']['master']",
        "config['streams'][0]",
        "config['streams'][0]['nmae']",
        "config['streams'][0]['row_count']",
        "config['streams'][1]['format']",
        "config['wait']",
        "config['yyy']",
        "config['zzz']",
    ]


def test_two_missing_keys_are_two_lines() -> None:
    schema = {"type": "object", "required": ["a", "b"]}
    with pytest.raises(InvalidSettingsError) as caught:
        complete_settings(schema, {})
    assert caught.value.problems == (
        "config: 'a' is a required property",
        "config: 'b' is a required property",
    )


@pytest.mark.parametrize(
    "settings",
    [
        {**GOOD, "spark": {"remote": ["hunter2"]}},
        {**GOOD, "spark": {"remote": 1234567}},
        {**GOOD, "spark": "sc://host;token=hunter2"},
        {**GOOD, "spark": ["hunter2"]},
        {**GOOD, "spark": {"conf": {"spark.hadoop.fs.s3a.secret.key": ["hunter2"]}}},
        {**GOOD, "spark": {"conf": {"anything": True}}},
        {**GOOD, "spark": {"conf": "hunter2"}},
        {**GOOD, "hunted": "hunter2"},
        stream(password=1234567),
    ],
)
def test_secrets_are_never_shown(settings: dict[str, Any]) -> None:
    text = "\n".join(problems(settings))
    assert text
    for secret in ("hunter2", "1234567", "true"):
        assert secret not in text


def test_long_values_are_cut_and_stay_one_line() -> None:
    [line] = problems(stream(format="x\n" * 500))
    assert "\n" not in line
    assert len(line) < 200


class TestRules:
    def test_rules_see_invalid_marks_not_wrong_values(self) -> None:
        seen: list[Mapping[str, Any]] = []

        def rule(settings: Mapping[str, Any]) -> Iterator[Problem]:
            seen.append(settings)
            return iter(())

        given_settings = stream(row_count="x", format=[], surplus=1)
        before = copy.deepcopy(given_settings)
        problems(given_settings, rule)
        assert seen[0]["streams"][0]["row_count"] is INVALID
        assert seen[0]["streams"][0]["format"] is INVALID
        assert seen[0]["streams"][0]["surplus"] == 1
        assert given_settings == before

    def test_whole_invalid_containers_are_marked(self) -> None:
        seen: list[Mapping[str, Any]] = []

        def rule(settings: Mapping[str, Any]) -> Iterator[Problem]:
            seen.append(settings)
            return iter(())

        problems({"streams": {"a": 1}, "spark": []}, rule)
        assert seen[0]["streams"] is INVALID
        assert seen[0]["spark"] is INVALID

    def test_rules_add_to_schema_problems(self) -> None:
        actual = problems({**GOOD, "wait": "x"}, lambda _: [Problem(("streams", 0), "bad pair")])
        assert actual == [
            "config['wait']: 'x' is not of type 'number'",
            "config['streams'][0]: bad pair",
        ]

    def test_the_same_problem_is_told_once(self) -> None:
        same = Problem(("wait",), "bad")
        assert problems(GOOD, lambda _: [same], lambda _: [same]) == ["config['wait']: bad"]

    def test_rules_see_settings_without_defaults(self) -> None:
        def rule(settings: Mapping[str, Any]) -> Iterator[Problem]:
            assert "wait" not in settings
            return iter(())

        complete_settings(SCHEMA, GOOD, [rule])


class TestDefaults:
    def test_every_default_at_its_place(self) -> None:
        assert complete_settings(SCHEMA, GOOD) == {
            "streams": [{"name": "a", "keys": []}],
            "wait": 10,
            "spark": {"master": "local[*]", "conf": {}},
        }

    def test_given_values_stay(self) -> None:
        settings = {**GOOD, "wait": 3, "spark": {"master": "yarn", "conf": {"a": "b"}}}
        completed = complete_settings(SCHEMA, settings)
        assert (completed["wait"], completed["spark"]) == (
            3,
            {"master": "yarn", "conf": {"a": "b"}},
        )

    def test_defaults_are_copies(self) -> None:
        first = complete_settings(SCHEMA, GOOD)
        first["spark"]["conf"]["x"] = 1
        first["streams"][0]["keys"].append("y")
        second = complete_settings(SCHEMA, GOOD)
        assert second["spark"]["conf"] == {}
        assert second["streams"][0]["keys"] == []

    def test_input_is_not_changed(self) -> None:
        settings = copy.deepcopy(GOOD)
        complete_settings(SCHEMA, settings)
        assert settings == GOOD

    @given(st.dictionaries(st.sampled_from(["wait", "spark", "prefix"]), st.just({}), max_size=3))
    def test_completing_twice_changes_nothing(self, value: dict[str, Any]) -> None:
        once = with_defaults(SCHEMA, value)
        assert with_defaults(SCHEMA, once) == once


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "streams", "spark", "conf", "master", "x", "format"]),
            below,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["streams", "spark", "wait", "x"]), JSON, max_size=4))
def test_any_json_is_answered_without_a_crash(settings: dict[str, Any]) -> None:
    try:
        complete_settings(SCHEMA, settings)
    except InvalidSettingsError as error:
        assert error.problems
        assert all("\n" not in line and line.startswith("config") for line in error.problems)
    else:
        assert not list(schema_problems(SCHEMA, settings))


@given(st.dictionaries(st.sampled_from(["streams", "spark", "wait", "x"]), JSON, max_size=4))
def test_the_check_agrees_with_jsonschema(settings: dict[str, Any]) -> None:
    if "nan" not in repr(settings) and "inf" not in repr(settings):
        accepted = Draft202012Validator(SCHEMA).is_valid(settings)
        assert (not list(schema_problems(SCHEMA, settings))) is accepted


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_json_does_not_have_are_wrong(value: float) -> None:
    assert problems({**GOOD, "wait": value}) == [f"config['wait']: {value} is not of type 'number'"]


@pytest.mark.parametrize("keyword", ["oneOf", "anyOf", "const", "maxLength"])
def test_a_keyword_that_is_not_checked_is_rejected(keyword: str) -> None:
    with pytest.raises(ValueError, match=f"keyword '{keyword}' is not supported"):
        list(schema_problems({"type": "object", keyword: []}, {}))


@pytest.mark.parametrize(("value", "count"), [(1, 0), ("a", 0), (None, 0), (2, 1), ("b", 1)])
def test_a_choice_may_be_of_any_type(value: object, count: int) -> None:
    assert len(list(schema_problems({"enum": [1, "a", None]}, value))) == count


def test_values_are_read_into_one_type_each() -> None:
    schema = {
        "type": "object",
        "properties": {
            "rows": {"type": "integer"},
            "seconds": {"type": "number"},
            "names": {"type": "array", "items": {"type": "string"}},
            "conf": SECRET_VALUES,
            "any": {"type": "object", "additionalProperties": True},
            "each": {"type": "object", "additionalProperties": {"properties": {"n": TEXTS}}},
        },
    }
    given_values = {
        "rows": 5.0,
        "seconds": 2,
        "names": ["a"],
        "conf": {"a": True, "b": 8, "c": "x"},
        "any": {"a": [1]},
        "each": {"a*": {"n": ["b"]}},
    }
    actual = read(schema, given_values)
    assert actual == {
        "rows": 5,
        "seconds": 2.0,
        "names": ("a",),
        "conf": {"a": "true", "b": "8", "c": "x"},
        "any": {"a": [1]},
        "each": {"a*": {"n": ("b",)}},
    }
    assert (type(actual["rows"]), type(actual["seconds"])) == (int, float)


def test_a_dataclass_declares_its_settings() -> None:
    @dataclass(frozen=True)
    class Place:
        name: str = setting(TEXT, "Name.", required=True, examples=["a"])
        rows: int = setting(at_least(1), "Rows.", default=5)
        conf: Mapping[str, str] = setting(SECRET_VALUES, "Conf.", default={"a": 1})
        root: str | None = setting(TEXT, "Folder.", key="storage.root", repr=False)

    schema = schema_of(Place, "A place.", rows=7)
    assert schema == {
        "type": "object",
        "description": "A place.",
        "additionalProperties": False,
        "required": ["name"],
        "properties": {
            "name": {**TEXT, "description": "Name.", "examples": ["a"]},
            "rows": {"type": "integer", "minimum": 1, "description": "Rows.", "default": 7},
            "conf": {**SECRET_VALUES, "description": "Conf.", "default": {"a": 1}},
            "storage": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"root": {**TEXT, "description": "Folder."}},
            },
        },
    }
    assert (Place("x").rows, Place("x").conf, Place("x").root) == (5, {"a": "1"}, None)


def test_a_dataclass_may_hold_another_one() -> None:
    @dataclass(frozen=True)
    class Place:
        root: str = setting(TEXT, "Folder.", default="/tmp")
        rows: int = setting(at_least(1), "Rows.", default=5, key="row_count")

    @dataclass(frozen=True)
    class Run:
        place: Place = group(Place, "A place.", root="/x")
        words: tuple[str, ...] = setting(TEXT, "Words.", default="ab", make=tuple)
        actual: str = "nothing"

    assert schema_of(Run)["properties"]["place"] == schema_of(Place, "A place.", root="/x")
    assert typed(Run, with_defaults(schema_of(Run), {})) == Run()
    assert (Run().place, Run().words) == (Place("/x"), ("a", "b"))
    given_values = {"place": {"row_count": 3.0}, "words": "c", "actual": "unknown to Run"}
    assert typed(Run, given_values) == Run(Place(rows=3), ("c",))


def test_error_is_a_settings_error_and_lists_all_in_its_text() -> None:
    error = InvalidSettingsError(["a: x\ny", "b: z"])
    assert isinstance(error, SettingsError)
    assert error.problems == ("a: x y", "b: z")
    assert str(error) == "a: x y; b: z"


def test_place_is_an_expression() -> None:
    assert setting_place(()) == "config"
    assert setting_place(("a", 0, "b.c")) == "config['a'][0]['b.c']"


def test_nearest() -> None:
    assert nearest("fromat", ["format", "name"]) == "format"
    assert nearest("xyz", ["format", "name"]) is None
    assert nearest("NAME", ["format", "name"]) == "name"


def test_declared_names_are_dotted() -> None:
    names = [name for name, _ in declared_names(SCHEMA)]
    assert names[:3] == ["streams", "streams[].name", "streams[].format"]
    assert "spark.conf" in names


def test_secrets_are_found_below() -> None:
    assert holds_secret(SCHEMA["properties"]["spark"])
    assert holds_secret(SCHEMA)
    assert not holds_secret(SCHEMA["properties"]["streams"])
