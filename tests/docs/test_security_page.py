"""docs/security.md promises nothing that no test shows, and tests that pages name exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
GUARANTEES = (ROOT / "docs" / "guarantees.md").read_text()


def named(page: str) -> list[tuple[str, str]]:
    return sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)))


NAMED = named(PAGE)


@pytest.mark.parametrize(("file", "name"), [*NAMED, *named(GUARANTEES)])
def test_the_test_is_there(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text())
    actual = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert name.startswith("test_")
    assert name in {node.name for node in actual}


def test_every_line_of_a_table_names_one() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|")]
    rows = [line for line in rows if not re.match(r"\|:?-|\| what .* \| answer \| test \|", line)]
    assert len(rows) >= len(NAMED) - 5 > 20
    assert [line for line in rows if not re.search(r"`tests/[\w/]+\.py::\w+` \|$", line)] == []


def test_an_audit_is_no_part_of_the_tests() -> None:
    """It needs other hosts, and what it finds changes without a change here."""
    assert "\naudit:" in (ROOT / "Makefile").read_text()
    assert "audit" not in (ROOT / ".ci" / "run").read_text()
