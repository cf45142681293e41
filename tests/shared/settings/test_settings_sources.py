"""Files, environment and .env: read, merged and brought to one spelling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import InvalidSettingsError
from shared.settings.loading import (
    coerce,
    environment_settings,
    load_settings,
    merge,
    normalize,
    read_dotenv,
    read_settings_file,
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string"},
        "path": {"type": ["string", "array"], "items": {"type": "string"}},
        "count": {"type": "integer"},
        "rate": {"type": "number"},
        "active": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "streams": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "options": {
                        "type": "object",
                        "additionalProperties": {"type": ["string", "number", "boolean"]},
                    },
                },
            },
        },
        "spark": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "master": {"type": "string"},
                "app_name": {"type": "string"},
                "remote": {"type": "string", "secret": True},
                "conf": {
                    "type": "object",
                    "additionalProperties": {"type": ["string", "number", "boolean"]},
                },
            },
        },
    },
}

NESTED = st.recursive(
    st.integers() | st.text(max_size=3) | st.booleans(),
    lambda below: st.dictionaries(st.text(max_size=3), below, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=3), NESTED, max_size=4)


def write(folder: Path, name: str, value: Any) -> str:
    path = folder / name
    path.write_text(json.dumps(value))
    return str(path)


def load(sources: list[str], environ: dict[str, str], dotenv: Path) -> dict[str, Any]:
    return load_settings(SCHEMA, sources, "X_", environ, dotenv)


def from_env(**variables: str) -> dict[str, Any]:
    settings, problems = environment_settings(SCHEMA, "X_", variables)
    assert problems == []
    return settings


def env_problems(**variables: str) -> list[str]:
    return environment_settings(SCHEMA, "X_", variables)[1]


class TestMerge:
    def test_later_scalar_wins(self) -> None:
        assert merge({"a": 1, "b": 2}, {"a": 3}) == {"a": 3, "b": 2}

    def test_objects_merge_at_every_depth(self) -> None:
        old = {"a": {"b": {"c": 1, "d": 2}}}
        assert merge(old, {"a": {"b": {"d": 3}}}) == {"a": {"b": {"c": 1, "d": 3}}}

    def test_arrays_are_replaced(self) -> None:
        assert merge({"a": [1, 2]}, {"a": [3]}) == {"a": [3]}

    def test_null_takes_a_setting_back(self) -> None:
        assert merge({"a": 1, "b": {"c": 1}}, {"a": None, "b": {"c": None}}) == {"b": {}}

    def test_null_of_nothing_is_nothing(self) -> None:
        assert merge({}, {"a": None, "b": {"c": None}}) == {"b": {}}

    def test_object_replaces_scalar_and_scalar_object(self) -> None:
        assert merge({"a": 1}, {"a": {"b": 2}}) == {"a": {"b": 2}}
        assert merge({"a": {"b": 2}}, {"a": 1}) == {"a": 1}

    def test_inputs_stay_as_they_are(self) -> None:
        old, new = {"a": {"b": 1}}, {"a": {"c": 2}}
        merge(old, new)
        assert (old, new) == ({"a": {"b": 1}}, {"a": {"c": 2}})

    @given(OBJECTS)
    def test_merging_with_nothing_or_itself_changes_nothing(self, value: dict[str, Any]) -> None:
        assert merge(value, {}) == merge({}, value) == merge(value, value) == value

    @given(OBJECTS, OBJECTS)
    def test_the_later_one_stays_whole(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        merged = merge(old, new)
        assert merge(merged, new) == merged
        assert set(merged) == set(old) | set(new)

    @given(OBJECTS, OBJECTS, OBJECTS)
    def test_order_of_grouping_does_not_matter(
        self, a: dict[str, Any], b: dict[str, Any], c: dict[str, Any]
    ) -> None:
        def leaves(value: dict[str, Any]) -> set[str]:
            return {k for k, v in value.items() if not isinstance(v, dict)}

        # A scalar between two objects cuts the merge; grouping shows only there.
        if not (leaves(b) & {*a, *c}):
            assert merge(merge(a, b), c).keys() == merge(a, merge(b, c)).keys()


class TestNormalize:
    def test_dotted_keys_of_declared_objects_nest(self) -> None:
        assert normalize(SCHEMA, {"spark.master": "x"}) == {"spark": {"master": "x"}}

    def test_dotted_and_nested_spelling_join(self) -> None:
        value = {"spark": {"master": "a"}, "spark.app_name": "b"}
        assert normalize(SCHEMA, value) == {"spark": {"master": "a", "app_name": "b"}}

    def test_dotted_path_into_free_form(self) -> None:
        value = {"spark.conf.spark.sql.ansi.enabled": True}
        assert normalize(SCHEMA, value) == {"spark": {"conf": {"spark.sql.ansi.enabled": True}}}

    def test_nested_free_form_becomes_dotted(self) -> None:
        value = {"spark": {"conf": {"spark": {"sql": {"x": 1}}, "spark.y": 2}}}
        assert normalize(SCHEMA, value)["spark"]["conf"] == {"spark.sql.x": 1, "spark.y": 2}

    def test_free_form_inside_array_items(self) -> None:
        value = {"streams": [{"name": "a", "options": {"parquet": {"x": 1}}}]}
        assert normalize(SCHEMA, value)["streams"][0]["options"] == {"parquet.x": 1}

    def test_nulls_in_array_items_are_dropped(self) -> None:
        value = {"streams": [{"name": None, "options": {"x": None, "y": 1}}]}
        assert normalize(SCHEMA, value) == {"streams": [{"options": {"y": 1}}]}

    def test_unknown_keys_pass_for_validation_to_name(self) -> None:
        value = {"nope": 1, "nope.x": 2, "name.x": 3, "spark": {"zzz": 4}}
        assert normalize(SCHEMA, value) == value

    @pytest.mark.parametrize("value", [1, "x", None, [1], {"spark": 3}, {"streams": {"a": 1}}])
    def test_wrong_shapes_pass_for_validation_to_name(self, value: Any) -> None:
        assert normalize(SCHEMA, value) == value


class TestFiles:
    def test_later_file_wins_and_objects_merge(self, tmp_path: Path) -> None:
        first = write(tmp_path, "a.json", {"name": "a", "spark": {"master": "m", "app_name": "n"}})
        second = write(tmp_path, "b.json", {"name": "b", "spark": {"master": "k"}})
        assert load([first, second], {}, tmp_path / ".env") == {
            "name": "b",
            "spark": {"master": "k", "app_name": "n"},
        }

    def test_two_spellings_of_one_conf_key_merge(self, tmp_path: Path) -> None:
        first = write(tmp_path, "a.json", {"spark": {"conf": {"spark.a": 1, "spark.b": 1}}})
        second = write(tmp_path, "b.json", {"spark": {"conf": {"spark": {"b": 2}}}})
        merged = load([first, second], {}, tmp_path / ".env")
        assert merged["spark"]["conf"] == {"spark.a": 1, "spark.b": 2}

    def test_null_in_a_later_file_gives_the_default_back(self, tmp_path: Path) -> None:
        first = write(tmp_path, "a.json", {"name": "a", "count": 1})
        second = write(tmp_path, "b.json", {"name": None})
        assert load([first, second], {}, tmp_path / ".env") == {"count": 1}

    @pytest.mark.parametrize("order", [["ENV", "a"], ["a", "ENV"]])
    def test_env_wins_over_files_wherever_it_stands(self, tmp_path: Path, order: list[str]) -> None:
        path = write(tmp_path, "a.json", {"name": "file", "count": 1})
        sources = [path if name == "a" else name for name in order]
        loaded = load(sources, {"X_NAME": "env"}, tmp_path / ".env")
        assert loaded == {"name": "env", "count": 1}

    def test_environment_is_left_alone_without_env(self, tmp_path: Path) -> None:
        path = write(tmp_path, "a.json", {"name": "file"})
        (tmp_path / ".env").write_text("X_COUNT=3\n")
        assert load([path], {"X_NAME": "env"}, tmp_path / ".env") == {"name": "file"}

    @pytest.mark.parametrize(
        ("content", "text"),
        [
            (b"{", "not valid JSON: Expecting property name"),
            (b'{"a": 1,\n  x}', "at line 2, column 3"),
            (b"[1]", "must hold one JSON object"),
            (b"", "not valid JSON"),
            (b'{"a": NaN}', "NaN is not a JSON value"),
            (b'{"a": "\xff"}', "not Unicode"),
        ],
    )
    def test_unreadable_content(self, tmp_path: Path, content: bytes, text: str) -> None:
        path = tmp_path / "a.json"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r".") as caught:
            read_settings_file(path)
        assert text in str(caught.value)

    def test_a_folder_is_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="cannot be read"):
            read_settings_file(tmp_path)

    def test_all_bad_files_are_named_at_once(self, tmp_path: Path) -> None:
        bad = tmp_path / "bad.json"
        bad.write_text("{")
        missing = str(tmp_path / "missing.json")
        with pytest.raises(InvalidSettingsError) as caught:
            load([missing, str(bad), "ENV"], {"X_TAGS": "[", "X_NMAE": "x"}, tmp_path / ".env")
        assert [problem.split(":")[0] for problem in caught.value.problems] == [
            f"config file {missing!r}",
            f"config file {str(bad)!r}",
            "environment X_NMAE",
            "environment X_TAGS",
        ]
        assert "does not exist" in caught.value.problems[0]
        assert caught.value.exit_code == 2


class TestEnvironment:
    def test_types_follow_the_schema(self) -> None:
        assert from_env(
            X_NAME="007", X_COUNT="7", X_RATE="0.5", X_ACTIVE="true", X_TAGS='["a","b"]'
        ) == {"name": "007", "count": 7, "rate": 0.5, "active": True, "tags": ["a", "b"]}

    def test_nested_by_two_underscores(self) -> None:
        assert from_env(X_SPARK__APP_NAME="n") == {"spark": {"app_name": "n"}}

    def test_nested_by_one_underscore_as_meltano_does(self) -> None:
        assert from_env(X_SPARK_APP_NAME="n") == {"spark": {"app_name": "n"}}

    def test_object_as_json_and_members_join(self) -> None:
        actual = from_env(X_SPARK='{"master": "m", "app_name": "a"}', X_SPARK__APP_NAME="b")
        assert actual == {"spark": {"master": "m", "app_name": "b"}}

    def test_streams_as_json(self) -> None:
        actual = from_env(X_STREAMS='[{"name": "a", "options": {"x": {"y": 1}}}]')
        assert actual == {"streams": [{"name": "a", "options": {"x.y": 1}}]}

    @pytest.mark.parametrize(
        ("variable", "key"),
        [
            ("X_SPARK__CONF__spark.sql.shuffle.partitions", "spark.sql.shuffle.partitions"),
            ("X_SPARK__CONF__SPARK__DRIVER__MEMORY", "spark.driver.memory"),
            ("X_SPARK__CONF__spark__sql__caseSensitive", "spark.sql.caseSensitive"),
        ],
    )
    def test_keys_of_spark_conf(self, variable: str, key: str) -> None:
        assert from_env(**{variable: "4"}) == {"spark": {"conf": {key: "4"}}}

    def test_conf_as_json(self) -> None:
        actual = from_env(X_SPARK__CONF='{"spark.a": true, "spark": {"b": 1}}')
        assert actual == {"spark": {"conf": {"spark.a": True, "spark.b": 1}}}

    def test_lower_case_names_match_too(self) -> None:
        assert from_env(X_spark__master="m") == {"spark": {"master": "m"}}

    def test_empty_means_not_set(self) -> None:
        assert from_env(X_NAME="", X_COUNT="") == {}

    @pytest.mark.parametrize("name", ["X_LOGLEVEL", "X_LOG_FORMAT", "X__SELECT", "OTHER", "XNAME"])
    def test_names_that_are_no_settings(self, name: str) -> None:
        assert from_env(**{name: "debug"}) == {}

    def test_string_or_array(self) -> None:
        assert from_env(X_PATH="a/*.csv") == {"path": "a/*.csv"}
        assert from_env(X_PATH='["a", "b"]') == {"path": ["a", "b"]}

    def test_unknown_name_gives_the_nearest(self) -> None:
        assert env_problems(X_SPARK__MASTR="m") == [
            "environment X_SPARK__MASTR: unknown setting; did you mean X_SPARK__MASTER?"
        ]

    def test_unknown_name_without_a_near_one(self) -> None:
        assert env_problems(X_QQQQQ="m") == ["environment X_QQQQQ: unknown setting"]

    def test_free_form_needs_a_key(self) -> None:
        assert len(env_problems(X_SPARK__CONF__="m")) == 1

    def test_json_with_a_key_twice(self) -> None:
        [problem] = env_problems(X_STREAMS='[{"name": "a", "name": "b"}]')
        assert problem == "environment X_STREAMS: the key 'name' is given twice in one object"

    def test_json_that_is_none_is_named_without_its_value(self) -> None:
        [problem] = env_problems(X_SPARK='{"remote": "sc://h;token=hunter2"')
        assert problem.startswith("environment X_SPARK: not valid JSON")
        assert "hunter2" not in problem

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("true", True),
            ("TRUE", True),
            ("1", True),
            ("yes", True),
            ("on", True),
            ("false", False),
            ("0", False),
            ("No", False),
            (" off ", False),
            ("maybe", "maybe"),
        ],
    )
    def test_booleans(self, text: str, value: Any) -> None:
        assert coerce({"type": "boolean"}, text) == value

    @pytest.mark.parametrize(
        ("kind", "text", "value"),
        [
            ("integer", "12", 12),
            ("integer", "-3", -3),
            ("integer", "1.5", "1.5"),
            ("integer", "x", "x"),
            ("number", "12", 12),
            ("number", "1e3", 1000.0),
            ("number", "nan", "nan"),
            ("number", "inf", "inf"),
            ("number", "x", "x"),
        ],
    )
    def test_numbers_that_do_not_fit_stay_for_validation(
        self, kind: str, text: str, value: Any
    ) -> None:
        assert coerce({"type": kind}, text) == value

    @given(st.text())
    def test_strings_are_taken_as_they_are(self, text: str) -> None:
        assert coerce({"type": "string"}, text) == text

    @given(st.lists(st.text()))
    def test_arrays_of_text_come_back(self, value: list[str]) -> None:
        assert coerce(SCHEMA["properties"]["tags"], json.dumps(value)) == value


class TestDotenv:
    def read(self, folder: Path, text: str) -> dict[str, str]:
        (folder / ".env").write_text(text, encoding="utf-8")
        return read_dotenv(folder / ".env")

    def test_a_quote_of_another_variable_closes_none(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="line 1 has no closing quote"):
            self.read(tmp_path, 'A="b\nB="# c"\nC=1\n')
        for value in ('"QUJD\nREU="', '"QUJD\nREU=" # c', "'[x]\nkey=\"v\"'"):
            actual = self.read(tmp_path, f"A={value}\nC=1\n")
            assert actual == {"A": value.removesuffix(" # c")[1:-1], "C": "1"}

    def test_missing_file_is_empty(self, tmp_path: Path) -> None:
        assert read_dotenv(tmp_path / ".env") == {}

    @pytest.mark.parametrize(
        ("line", "value"),
        [
            ("A=b", "b"),
            ("  A = b  ", "b"),
            ("export A=b", "b"),
            ("A=", ""),
            ("A=b # comment", "b"),
            ("A=b#c", "b#c"),
            ("A=# comment", ""),
            ("A='b # c'", "b # c"),
            ('A="b # c" # d', "b # c"),
            ('A="b\\nc\\t\\"d\\" \\\\"', 'b\nc\t"d" \\'),
            ("A='b\\nc'", "b\\nc"),
            ("A=b=c", "b=c"),
            ('A=[{"x": "y z"}]', '[{"x": "y z"}]'),
            ("A='[{\"x\": 1}]'", '[{"x": 1}]'),
            ("A='--- KEY\n b  \n#c\n---'  # d", "--- KEY\n b  \n#c\n---"),
            ('A="b\n\\"c\\"\\\\"', 'b\n"c"\\'),
            ("A=b\x0c\x85c\u2028d", "b\x0c\x85c\u2028d"),
            ("A=$HOME", "$HOME"),
        ],
    )
    def test_lines(self, tmp_path: Path, line: str, value: str) -> None:
        assert self.read(tmp_path, f"# head\n\n{line}\n") == {"A": value}

    def test_files_of_notepad_and_docker(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        for _ in range(2):
            assert self.read(tmp_path, "\ufeffA=b\nB\nexport C\nD=e\n") == {"A": "b", "D": "e"}
        (warning,) = caplog.messages
        assert warning == f"'{tmp_path / '.env'}': line 2 has a name without =VALUE: it is left out"

    def test_names_with_dots(self, tmp_path: Path) -> None:
        text = "X_SPARK__CONF__spark.a.b=1\n"
        assert self.read(tmp_path, text) == {"X_SPARK__CONF__spark.a.b": "1"}

    @pytest.mark.parametrize("line", ["no sense", "1A=b", "=b", 'A="b', "A='b", "A='b'c"])
    def test_bad_lines_are_named(self, tmp_path: Path, line: str) -> None:
        with pytest.raises(ValueError, match="line 2"):
            self.read(tmp_path, f"A=b\n{line}\n")

    def test_environment_wins_over_dotenv(self, tmp_path: Path) -> None:
        (tmp_path / ".env").write_text("X_NAME=dotenv\nX_COUNT=3\n")
        loaded = load(["ENV"], {"X_NAME": "real"}, tmp_path / ".env")
        assert loaded == {"name": "real", "count": 3}

    def test_bad_dotenv_is_one_problem_and_hides_the_value(self, tmp_path: Path) -> None:
        (tmp_path / ".env").write_text("X_NAME='hunter2\n")
        with pytest.raises(InvalidSettingsError) as caught:
            load(["ENV"], {"X_BAD": "1"}, tmp_path / ".env")
        assert len(caught.value.problems) == 2
        assert "hunter2" not in str(caught.value)

    def test_folder_named_dotenv(self, tmp_path: Path) -> None:
        (tmp_path / ".env").mkdir()
        assert read_dotenv(tmp_path / ".env") == {}

    @given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=20))
    def test_quoted_values_come_back(self, value: str) -> None:
        import tempfile

        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / ".env").write_text(f'A="{quoted}"\n', encoding="utf-8")
            assert read_dotenv(Path(folder) / ".env") == {"A": value}
