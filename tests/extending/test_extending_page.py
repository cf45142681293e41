"""What docs/extending.md says of the code."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from extension_packages import EXAMPLES, ROOT, install_examples

from shared.encodings.encoding_format import ENCODINGS, SOURCES, SWITCH, EncodingFormat
from tap_spark.sources.source_declaration import SHARED, SourceFormat

PAGE = (ROOT / "docs" / "extending.md").read_text().split("\n## Adding a destination\n")[0]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_code_of_the_page_is_that_of_the_examples() -> None:
    files = ("calendar_source.py", "stream_encoding.py", "test_examples.py")
    lines = {line for name in files for line in (EXAMPLES / name).read_text().splitlines()}
    assert len(blocks("python")) == len(files)
    for line in (line for block in blocks("python") for line in block.splitlines()):
        assert "..." in line or line in lines


def test_the_page_shows_the_entry_points() -> None:
    project = (EXAMPLES / "pyproject.toml").read_text()
    assert len(blocks("toml")) == 2
    assert all(block in project for block in blocks("toml"))
    assert f'"{SOURCES}"' in project
    assert f'"{ENCODINGS}"' in project


@pytest.mark.parametrize("kind", [SourceFormat, EncodingFormat])
def test_the_page_has_every_field_of_a_declaration(kind: type) -> None:
    section = PAGE[PAGE.index(f"`{kind.__name__}`") :].split("\n### ")[0]
    named = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (.*?) \|", section, re.M))))
    assert named == {field.name for field in dataclasses.fields(kind)}


def test_the_page_has_every_shared_setting() -> None:
    assert all(f"`{name}`" in PAGE for name in SHARED)


def test_settings_on_the_page_are_valid(tmp_path: Path) -> None:
    install_examples(tmp_path)
    days, batches = map(json.loads, blocks("json"))
    assert refusal(tmp_path, days) == ""
    assert refusal(tmp_path, {**days, **batches}) == ""
    assert "calendars" in refusal(tmp_path, {"streams": [{"name": "s", "format": "calendars"}]})


def refusal(packages: Path, settings: dict[str, Any]) -> str:
    """What tap-spark says of settings that it refuses, with the packages of a folder."""
    config = packages / "config.json"
    config.write_text(json.dumps(settings))
    paths = [str(packages), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "tap_spark.cli", "--config", str(config), "--validate-config"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        cwd=ROOT,
    )
    return done.stderr if done.returncode else ""


def test_the_page_names_what_there_is() -> None:
    assert f"`{SWITCH}=off`" in PAGE
    for link in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (ROOT / "docs" / link).exists(), link
    for place in re.findall(r"`((?:tap_spark|shared)(?:\.\w+)+)`", PAGE):
        parts = place.split(".")
        modules = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
        assert (
            any((ROOT / f"{module}.py").exists() for module in modules[1:])
            or (ROOT / modules[-1]).is_dir()
        ), place
