"""The page on destinations says what the example and the contract say."""

from __future__ import annotations

import json
import re
from dataclasses import fields

from extension_packages import DESTINATION_EXAMPLE as EXAMPLE
from extension_packages import ROOT

from target_spark.destinations.destination import Destination
from target_spark.destinations.destination_declaration import Declaration

PAGE = (ROOT / "docs" / "extending.md").read_text().split("\n## Adding a destination\n")[1]
BLOCKS = re.findall(r"```\w+\n(.*?)```", PAGE, re.DOTALL)


def test_its_code_is_that_of_the_example() -> None:
    files = [path.read_text() for path in EXAMPLE.iterdir() if path.is_file()]
    existing = {line for text in files for line in text.splitlines()}
    settings = json.loads((EXAMPLE / "config.json").read_text())
    assert len(BLOCKS) == 4
    for line in (line for block in BLOCKS for line in block.splitlines()):
        if line.startswith("{"):
            assert json.loads(line) == settings
        elif "..." not in line:
            assert line in existing


def test_it_names_every_method_and_every_attribute() -> None:
    attributes = {"keeps_notes", "holds_rows", "may_refuse", "stores_state"}
    methods = {name for name in vars(Destination) if not name.startswith("_")} - attributes
    assert methods <= set(re.findall(r"`(\w+)\(", PAGE))
    first_cells = re.findall(r"^\| ([^|]+) \|", PAGE, re.MULTILINE)
    named = {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)}
    assert {field.name for field in fields(Declaration)} <= named


def test_the_example_is_short() -> None:
    lines = (EXAMPLE / "sqlite_destination.py").read_text().splitlines()
    assert len(lines) < 50
