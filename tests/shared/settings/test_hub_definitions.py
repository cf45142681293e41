"""The programs as plugins of Meltano: the sample project, and the definitions for the Hub."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import InvalidSettingsError
from shared.settings.about import Program, about_data
from shared.settings.checking import complete_settings
from shared.settings.config_text import yaml_lines
from shared.settings.kinds import SECRET_VALUES
from tap_spark.config import PROGRAM as TAP
from tap_spark.config import tap_config
from target_spark.config import PROGRAM as TARGET
from target_spark.config import target_config
from tools.meltano import hub_path, plugin_definition, read_project, sample_project

pytestmark = pytest.mark.once

ROOT = Path(__file__).resolve().parents[3]
BOTH = pytest.mark.parametrize("program", [TAP, TARGET], ids=["tap", "target"])
CHECKS = {TAP.name: tap_config, TARGET.name: target_config}

# What the schemas of plugin definitions in the Hub's repository allow (November 2026).
REQUIRED_KEYS = {"name", "namespace", "variant", "quality"}
KEYS = REQUIRED_KEYS | {
    *("pip_url", "label", "description", "executable", "settings", "docs", "repo", "logo_url"),
    *("hidden", "python", "settings_group_validation", "commands", "capabilities", "requires"),
    *("maintenance_status", "domain_url", "keywords", "definition", "next_steps", "prereq"),
    *("settings_preamble", "usage", "supported_python_versions", "log_parser"),
}
KEYS_OF_TYPE = {
    TAP.name: {"metadata", "schema", "select"},
    TARGET.name: {"dialect", "target_schema"},
}
CAPABILITIES_OF_BOTH = {
    *("about", "stream-maps", "activate-version", "batch", "schema-flattening"),
    "structured-logging",
}
CAPABILITIES = {
    TAP.name: {"properties", "catalog", "discover", "state", "test", "log-based"},
    TARGET.name: {
        *("soft-delete", "hard-delete", "datatype-failsafe", "target-schema", "validate-records"),
    },
}
SETTING_TYPES = {
    **{"name": str, "label": str, "kind": str, "description": str, "sensitive": bool},
    **{"options": list, "value": object},
}
KINDS = {
    *("oauth", "hidden", "password", "date_iso8601", "file", "email", "integer", "options"),
    *("object", "array", "boolean", "string"),
}
TYPES_OF_KINDS = {
    **{"integer": int | float, "options": str, "object": dict, "array": list},
    **{"boolean": bool, "string": str, "date_iso8601": str},
}

SECRETS_OF_BOTH = {
    *("spark.conf", "spark.remote", "stream_map_config", "batch_config.storage.options"),
    "openlineage.api_key",
}
SECRETS = {
    TAP.name: {"connections"},
    TARGET.name: {"jdbc.url", "jdbc.password", "jdbc.options", "options", "storage_options"},
}

TINY = Program(
    name="tap-tiny",
    description="Tiny.",
    schema={
        "type": "object",
        "properties": {
            "a": {"type": "string", "description": "One.", "secret": True},
            "b": {"type": "object", "properties": {"c_d": {"type": "integer", "default": 3}}},
            "e": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"f": {"type": ["string", "array"], "enum": ["x", "y"]}},
                },
            },
            "g": {"type": "array", "items": {"properties": {"h": {"secret": True}}}},
            "s": {"type": "array", "items": {"properties": {"options": SECRET_VALUES}}},
            "t": SECRET_VALUES,
            "i": {"type": ["number", "string"]},
            "j": {"type": "number"},
            "k": {"type": "string", "format": "date-time"},
        },
    },
    rules=(),
    capabilities=("about",),
)


def hub(program: Program) -> dict[str, Any]:
    """Read the definition that lies in the repository."""
    text = (ROOT / "docs" / "hub" / hub_path(program)).read_text(encoding="utf-8")
    actual = yaml.safe_load(text)
    assert isinstance(actual, dict)
    return actual


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nest dotted names, as Meltano does in the file that it gives to a plugin."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        *blocks, last = name.split(".")
        inner = result
        for block in blocks:
            inner = inner.setdefault(block, {})
        inner[last] = value
    return result


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Lay settings over others."""
    both = {key: merged(below[key], above[key]) for key in below.keys() & above.keys()
            if isinstance(below[key], dict) and isinstance(above[key], dict)}  # fmt: skip
    return {**below, **above, **both}


def defaults(program: Program) -> dict[str, Any]:
    return nested({one["name"]: one["value"] for one in hub(program)["settings"] if "value" in one})


class TestDefinition:
    def test_kinds_and_secrets(self) -> None:
        assert plugin_definition(TINY) == {
            "name": "tap-tiny",
            "namespace": "tap_tiny",
            "executable": "tap-tiny",
            "capabilities": ["about"],
            "settings": [
                {"name": "a", "kind": "string", "sensitive": True, "description": "One."},
                {"name": "b.c_d", "kind": "integer", "description": ""},
                {"name": "e", "kind": "array", "description": ""},
                {"name": "g", "kind": "array", "sensitive": True, "description": ""},
                {"name": "s", "kind": "array", "description": ""},
                {"name": "t", "kind": "object", "sensitive": True, "description": ""},
                {"name": "i", "kind": "string", "description": ""},
                {"name": "j", "kind": "integer", "description": ""},
                {"name": "k", "kind": "date_iso8601", "description": ""},
            ],
        }

    @BOTH
    def test_the_slim_one_has_main_and_sensitive_settings(self, program: Program) -> None:
        path = ROOT / "docs" / "hub" / hub_path(program, slim=True)
        slim = {one["name"]: one for one in yaml.safe_load(path.read_text())["settings"]}
        whole = {one["name"]: one for one in hub(program)["settings"]}
        assert {name for name, one in whole.items() if "sensitive" in one} <= slim.keys()
        assert {name for group in program.setting_groups for name in group} <= slim.keys()
        assert slim.keys() < whole.keys()
        # As docs/running.md says.
        assert len(path.read_text().splitlines()) <= 110

    def test_choices_are_options(self) -> None:
        settings = {s["name"]: s for s in plugin_definition(TARGET)["settings"]}
        assert settings["load_method"]["kind"] == "options"
        assert [o["value"] for o in settings["load_method"]["options"]] == [
            "append-only",
            "upsert",
            "history",
            "overwrite",
        ]
        assert settings["spark.conf"]["kind"] == "object"
        assert "spark" not in settings

    def test_the_sample_project_is_valid(self) -> None:
        plugins = sample_project(TAP, TARGET)["plugins"]
        assert tap_config(plugins["extractors"][0]["config"]).streams[0].name == "orders"
        assert target_config(plugins["loaders"][0]["config"]).path == "output/"


@BOTH
class TestHub:
    def test_keys_are_those_of_the_hub(self, program: Program) -> None:
        assert hub(program).keys() >= REQUIRED_KEYS
        assert hub(program).keys() <= KEYS | KEYS_OF_TYPE[program.name]

    def test_values_are_those_of_the_hub(self, program: Program) -> None:
        actual = hub(program)
        assert actual["maintenance_status"] in {"active", "beta", "development", "inactive"}
        assert actual["quality"] in {"gold", "silver", "bronze", "unknown"}
        assert all(re.fullmatch(r"3\.\d+", one) for one in actual["supported_python_versions"])
        texts = ("name", "namespace", "variant", "label", "description", "pip_url", "repo", "docs")
        for key in (*texts, "executable", "domain_url", "usage", "log_parser"):
            assert isinstance(actual[key], str), key
        assert set(map(type, actual["keywords"])) == {str}
        assert hub_path(program).stem == actual["variant"]

    def test_it_agrees_with_about(self, program: Program) -> None:
        actual, about = hub(program), about_data(program)
        assert set(actual["capabilities"]) == set(about["capabilities"])
        assert actual["supported_python_versions"] == about["supported_python_versions"]
        assert actual["description"] == about["description"]
        for name in (one["name"] for one in actual["settings"]):
            schema = about["settings"]
            for part in name.split("."):
                schema = schema["properties"][part]

    def test_capabilities_are_words_of_the_hub(self, program: Program) -> None:
        words = CAPABILITIES_OF_BOTH | CAPABILITIES[program.name]
        assert set(hub(program)["capabilities"]) <= words

    def test_settings_are_those_of_the_hub(self, program: Program) -> None:
        for one in hub(program)["settings"]:
            assert {"name", "label", "kind", "description"} <= one.keys()
            for key, value in one.items():
                assert isinstance(value, SETTING_TYPES[key]), one
            assert one["kind"] in KINDS, one
            assert ("options" in one) == (one["kind"] == "options"), one
            for option in one.get("options", ()):
                assert set(map(type, option.values())) == {str}, one
            if "value" in one:
                assert isinstance(one["value"], TYPES_OF_KINDS[one["kind"]]), one

    def test_secrets_are_sensitive_and_have_no_default(self, program: Program) -> None:
        sensitive = {one["name"]: one for one in hub(program)["settings"] if "sensitive" in one}
        assert sensitive.keys() == SECRETS_OF_BOTH | SECRETS[program.name]
        assert not [name for name, one in sensitive.items() if "value" in one]

    def test_the_docs_are_a_page_of_the_repository(self, program: Program) -> None:
        actual = hub(program)
        assert actual["docs"].startswith(f"{actual['repo']}/blob/main/")
        assert (ROOT / actual["docs"].removeprefix(f"{actual['repo']}/blob/main/")).is_file()

    def test_pip_url_names_extras_that_exist(self, program: Program) -> None:
        extras = read_project(ROOT)["optional-dependencies"]
        name, _, asked = hub(program)["pip_url"].rstrip("]").partition("[")
        assert name == "singer-spark"
        assert set(filter(None, asked.split(","))) <= extras.keys()

    def test_keys_are_sorted_and_lists_not_indented(self, program: Program) -> None:
        actual = hub(program)
        for one in (actual, *actual["settings"]):
            assert list(one) == sorted(one)
        lines = (ROOT / "docs" / "hub" / hub_path(program)).read_text().splitlines()
        for before, line in itertools.pairwise(lines):
            if before.endswith(":") and line.lstrip().startswith("- "):
                assert line.index("- ") == len(before) - len(before.lstrip("- ")), line


SAMPLES = sorted((ROOT / "sample_configs").glob("ta[pr]*-*.json"))
BOUNDS = {"batch": {"strategy": "fixed_size", "size": 10}}
REMOTE = {"remote": "sc://localhost"}
MORE = [
    (TAP, {"connections": [{"name": "lake", "path": "/lake"}]}),
    (TAP, {"connections": [{"name": "lake", "path": "/lake"}], "spark": REMOTE}),
    (TARGET, {"path": "out", "spark": REMOTE}),
    (TARGET, {"path": "out", **BOUNDS}),
    *((TARGET, {"path": "out", "format": name}) for name in ("parquet", "csv", "json", "orc")),
    (TARGET, {"catalog": "lake", "format": "iceberg", "denormalized": False}),
    *((TAP if path.name.startswith("tap") else TARGET, json.loads(path.read_text()))
      for path in SAMPLES),
]  # fmt: skip


@pytest.mark.parametrize(("program", "settings"), MORE)
def test_defaults_of_the_definition_change_nothing(
    program: Program, settings: dict[str, Any]
) -> None:
    given = merged(defaults(program), settings)
    assert given != settings
    with_them, without = (
        complete_settings(program.schema, one, program.rules) for one in (given, settings)
    )
    assert with_them == without
    CHECKS[program.name](given)


VALUES: dict[str, Any] = {
    "streams": [{"name": "orders", "format": "csv", "path": "data/*.csv"}],
    "connections": [{"name": "lake", "path": "/lake"}],
    "path": "out",
    "catalog": "lake",
    "jdbc.url": "jdbc:postgresql://localhost/warehouse",
}


def of_group(group: list[str]) -> dict[str, Any]:
    """Return a value for each setting of a group."""
    form = "jdbc" if "jdbc.url" in group else "iceberg"
    return {name: form if name == "format" else VALUES[name] for name in group}


@BOTH
def test_a_run_needs_the_settings_of_one_group(program: Program) -> None:
    check = CHECKS[program.name]
    for group in hub(program)["settings_group_validation"]:
        given = of_group(group)
        check(nested(given))
        for left_out in group:
            kept = {name: value for name, value in given.items() if name != left_out}
            with pytest.raises(InvalidSettingsError):
                check(nested(kept))


class TestYaml:
    def test_lines(self) -> None:
        value = {
            "a": 1,
            "b": [],
            "c": {},
            "d": [{"e": "x y", "f": [1, "two"]}, "g: h", [1, [2]]],
            "i": None,
            "j": "true",
            "k": {"l": True, "spark.x": "1.0"},
        }
        assert yaml_lines(value) == [
            "a: 1",
            "b: []",
            "c: {}",
            "d:",
            "- e: x y",
            "  f:",
            "  - 1",
            "  - two",
            '- "g: h"',
            "- - 1",
            "  - - 2",
            "i: null",
            'j: "true"',
            "k:",
            "  l: true",
            '  spark.x: "1.0"',
        ]
        assert yaml.safe_load("\n".join(yaml_lines(value))) == value

    @given(st.text() | st.sampled_from(["true", "No", "null", "1e3", "~", "a: b", "x\ny", ".5"]))
    def test_text_is_a_plain_word_or_json(self, text: str) -> None:
        [line] = yaml_lines(text)
        if line.startswith('"'):
            assert yaml.safe_load(line) == text
        else:
            assert line == text
            assert text[0].isalpha()
            assert text.lower() not in {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
            assert ": " not in text
            assert " #" not in text
