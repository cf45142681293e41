"""Settings files of three formats: one meaning, and errors that name the line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from shared.settings.loading import read_settings_file
from shared.settings.yaml_text import yaml_value

SETTINGS = {
    "streams": [{"name": "orders", "options": {"header": True, "sep": ";"}, "key": ["id"]}],
    "start_date": "2026-01-01T00:00:00+00:00",
    "spool": {"bytes": 2097152},
    "rate": 0.5,
}
TEXTS = {
    "a.json": """{"$schema": "tap.schema.json", // not here
}""".replace(
        " // not here\n",
        """
// a comment
"streams": [{"name": "orders", "options": {"header": true, "sep": ";"}, "key": ["id"]}],
"start_date": "2026-01-01T00:00:00+00:00", "spool": {"bytes": 2097152}, "rate": 0.5""",
    ),
    "a.yaml": """$schema: tap.schema.json
# a comment
streams:
- name: orders
  options: {header: true, sep: ;}
  key: [id]
start_date: 2026-01-01T00:00:00+00:00
spool: {bytes: 2097152}
rate: 0.5
""",
    "a.YML": """%YAML 1.2
---
common: &common {header: true, sep: ","}
streams: [{name: orders, options: {<<: *common, sep: ";"}, key: [id]}]
start_date: "2026-01-01T00:00:00+00:00"
spool: {bytes: 2097152}
rate: 0.5
""",
    "a.toml": """"$schema" = "tap.schema.json"
start_date = 2026-01-01T00:00:00Z
rate = 0.5
spool.bytes = 2_097_152
[[streams]]
name = "orders"
options = {header = true, sep = ";"}
key = ["id"]
""",
}


def read(folder: Path, name: str, text: str | bytes) -> dict[str, Any]:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_settings_file(path)


@pytest.mark.parametrize("name", TEXTS)
def test_one_meaning_in_every_format(tmp_path: Path, name: str) -> None:
    actual = read(tmp_path, name, TEXTS[name])
    actual.pop("common", None)
    assert actual == SETTINGS


@pytest.mark.parametrize(
    "word",
    [
        *("no", "on", "Y", "Off", "010", "0o17", "0x1F", "1_000", "1:30", "2026-01-01"),
        *("+1", ".5", ".inf", ".NaN", "=", "1e3", "v1.10"),
    ],
)
def test_what_json_does_not_call_a_value_is_text_in_yaml(tmp_path: Path, word: str) -> None:
    actual = read(tmp_path, "a.yaml", f"a: {word}\n{word}: b\nc: ['{word}']")
    assert actual == {"a": word, word: "b", "c": [word]}


def test_values_of_yaml(tmp_path: Path) -> None:
    text = "a: true\nb: FALSE\nc: ~\nd:\ne: -12\nf: 1.50\ng: 'true'\nh: !!str 1\n1: |\n  x\n  y\n"
    assert read(tmp_path, "a.yaml", text) == {
        "a": True, "b": False, "c": None, "d": None, "e": -12, "f": 1.5, "g": "true", "h": "1",
        "1": "x\ny\n",
    }  # fmt: skip


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text("ab0-1:.~#e\n'\"\\ no", max_size=6),
        lambda inner: st.lists(inner) | st.dictionaries(st.text("ab0 :#", max_size=4), inner),
        max_leaves=8,
    ),
    st.booleans(),
)
def test_what_pyyaml_writes_is_read(value: Any, flow: bool) -> None:
    assert yaml_value(yaml.safe_dump(value, default_flow_style=flow).encode()) == value


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("a.yaml", "a: 1\nb: 2\na: 3", "the key 'a' is given twice at line 3, column 1"),
        ("a.yaml", "a:\n- b: {c: 1, c: 2}", "the key 'c' is given twice at line 2, column 13"),
        ("a.json", '{"a": [{"b": 1, "b": 2}]}', "the key 'b' is given twice in one object"),
        ("a.yaml", "a: [1,\nb: 2", "at line [23]"),
        ("a.yaml", "a: 1\n\tb: 2", "at line 2, column 1"),
        ("a.yaml", "a: !!python/name:os.system x", "the tag .* is not supported at line 1"),
        ("a.yaml", "a: !!binary aGk=", "the tag .* is not supported at line 1"),
        ("a.yaml", "? [a]\n: b", "a key must be text at line 1, column 3"),
        ("a.yaml", "a: *b", "undefined alias .*at line 1"),
        ("a.yaml", "a: &b [*b]", "nested too deeply"),
        ("a.yaml", "a: 1\n---\nb: 2", "at line 2"),
        ("a.yaml", "- a", "must hold one YAML mapping"),
        ("a.yaml", "", "must hold one YAML mapping"),
        ("a.yaml", b"a: \xff", "not valid YAML: "),
        ("a.toml", "a = 1\na = 2", r"not valid TOML: .*at (line 2|end of document)"),
        ("a.toml", "a = no", r"not valid TOML: .*at line 1"),
        ("a.toml", "a = 010", r"not valid TOML: .*at line 1"),
        ("a.toml", "a = nan", "nan is not a number of JSON"),
        ("a.toml", b"a = '\xff'", "not valid TOML: not Unicode text"),
        ("a.json", "[" * 100_000, "nested too deeply"),
    ],
)  # fmt: skip
def test_errors_name_the_line(tmp_path: Path, name: str, text: str | bytes, error: str) -> None:
    with pytest.raises(ValueError, match=error) as caught:
        read(tmp_path, name, text)
    assert "\n" not in str(caught.value)
