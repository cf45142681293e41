"""docs/schema-evolution.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from table_plans import plan

from target_spark.run_settings import NAME_STYLES, TYPE_CONFLICTS
from target_spark.tables.table_changes import NameRules, legal_name

PAGE = (Path(__file__).resolve().parents[2] / "docs/schema-evolution.md").read_text()


def table_rows(heading: str) -> list[list[str]]:
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def test_every_style_is_shown_with_what_it_does() -> None:
    head, _, *styles = table_rows("Names")
    assert [row[0] for row in styles] == list(NAME_STYLES)
    for style, *created, _ in styles:
        assert created == [legal_name(name, NameRules(style)) for name in head[1:4]]


def test_every_rule_for_conflicts_is_told() -> None:
    assert re.findall(r"^- `(\w+)`", PAGE, re.MULTILINE) == list(TYPE_CONFLICTS)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("BIGINT", "integer"),
        ("DECIMAL(3,2)", "decimal"),
        ("FLOAT", "double"),
        ("STRING", "string"),
        ("BOOLEAN", "boolean"),
        ("TIMESTAMP", "timestamp"),
        ("STRUCT<a: INT>", "struct"),
    ],
)
def test_suffixes_are_those_of_the_page(kind: str, name: str) -> None:
    [column] = plan("x DATE", f"x {kind}", "suffix").add
    assert column.name == f"x__{name}"
    assert f"`__{name}`" in PAGE
