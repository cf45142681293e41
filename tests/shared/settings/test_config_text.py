"""Settings files with comments: what is written can be read, and the comments switched on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import SettingsError
from shared.settings.config_text import Comment, check_new, config_text, without_comments
from shared.settings.loading import json_object, read_settings_file
from shared.settings.yaml_text import yaml_value

DRAFT: dict[str, Any] = {
    "streams": [
        Comment("orders/: a folder with\na name of two lines"),
        {"name": "a", Comment("key_properties: [id]"): None, "path": "x//y"},
        {"name": "b", "options": {"sep": ";"}, "path": ["long " * 12, "c"]},
    ],
    Comment("the last word"): None,
    "spark": {},
}

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner | st.builds(Comment, st.text()), max_size=4)
        | st.dictionaries(st.text() | st.builds(Comment, st.text()), inner, max_size=4)
    ),
    max_leaves=12,
)


def test_the_text() -> None:
    assert config_text(["for 'x'", "  run it"], DRAFT) == (
        """# for 'x'
#   run it
streams:
# orders/: a folder with?a name of two lines
- name: a
  # key_properties: [id]
  path: x//y
- name: b
  options: {sep: ";"}
  path:
  - "long long long long long long long long long long long long "
  - c
# the last word
spark: {}
"""
    )


@given(st.dictionaries(st.text() | st.builds(Comment, st.text()), VALUES, max_size=4), st.text())
def test_what_is_written_is_read(settings: dict[str, Any], head: str) -> None:
    bare = without_comments(settings)
    assert yaml_value(config_text([head], settings).encode("utf-8")) == bare
    assert json_object(config_text([head], settings, "JSON").encode("utf-8")) == bare


def test_settings_in_comments_can_be_switched_on() -> None:
    text = re.sub(r"# (?=\w+: \[)", "", config_text([], DRAFT))
    assert yaml_value(text.encode())["streams"][0]["key_properties"] == ["id"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_comments_in_every_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes('{"a": "//x",\r\n\t// "b": 2,\r\n"c": "⼯⼯"}'.encode(encoding))
    assert read_settings_file(path) == {"a": "//x", "c": "⼯⼯"}


def test_comments_do_not_move_errors(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('// one\n// two\n{"a": 1, // not here\n}')
    with pytest.raises(ValueError, match="at line 3, column 10"):
        read_settings_file(path)


def test_a_file_is_replaced_only_by_force(tmp_path: Path) -> None:
    path = tmp_path / "tap.json"
    check_new(str(path), force=False)
    path.touch()
    with pytest.raises(SettingsError, match=r"'.*tap.json' exists \(.*--force"):
        check_new(str(path), force=False)
    check_new(str(path), force=True)
    with pytest.raises(SettingsError, match=r"would be TOML \(name a file that ends in .yaml"):
        check_new(str(tmp_path / "tap.toml"), force=False)
    for folder in ("missing", "x" * 300):
        with pytest.raises(SettingsError, match=r"its folder does not exist \(make it"):
            check_new(f"{tmp_path}/{folder}/tap.json", force=False)
