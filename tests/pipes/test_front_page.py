"""The recipes of README.md run as they stand."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from tutorial_pages import run_script

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SECONDS = 600

pytestmark = pytest.mark.pipe


def recipe(heading: str) -> str:
    section = README.split(f"### {heading}\n")[1].split("\n## ")[0].split("\n### ")[0]
    (block,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return block


def loaded(table: Path) -> list[dict]:
    from deltalake import DeltaTable

    return sorted(DeltaTable(table).to_pyarrow_table().to_pylist(), key=lambda row: row["id"])


def test_files_into_a_lake(tmp_path: Path) -> None:
    first, later = recipe("Files into a lake").split("tail -n 1 states.jsonl > state.json\n")
    (tmp_path / "data").mkdir()
    orders = tmp_path / "data" / "orders.csv"
    orders.write_text("id,amount\n1,0.50\n2,7.25\n")
    run_script(first, tmp_path, seconds=SECONDS)
    assert [row["id"] for row in loaded(tmp_path / "lake" / "orders")] == [1, 2]
    with orders.open("a") as file:
        file.write("3,1.00\n")
    run_script(f"tail -n 1 states.jsonl > state.json\n{later}", tmp_path, seconds=SECONDS)
    assert [row["id"] for row in loaded(tmp_path / "lake" / "orders")] == [1, 2, 3]
    sent = json.loads((tmp_path / "states.jsonl").read_text().splitlines()[-1])
    assert "orders" in sent["bookmarks"]


def test_any_tap_into_delta(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
    messages = [
        {"type": "SCHEMA", "stream": name, "schema": schema, "key_properties": ["id"]}
        for name in ("issues", "issue_events")
    ]
    for name in ("issues", "issue_events"):
        messages += [{"type": "RECORD", "stream": name, "record": {"id": 1}} for _ in range(2)]
    messages.append({"type": "RECORD", "stream": "issues", "record": {"id": "seven"}})
    messages.append({"type": "STATE", "value": {"bookmarks": {}}})
    (tmp_path / "messages.jsonl").write_text("".join(json.dumps(m) + "\n" for m in messages))
    programs = tmp_path / "programs"
    programs.mkdir()
    tap = programs / "tap-github"
    tap.write_text("#!/bin/sh\ncat messages.jsonl\n")
    tap.chmod(0o755)
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    run_script(recipe("Any tap into Delta"), tmp_path, {"PATH": path}, seconds=SECONDS)
    assert [row["id"] for row in loaded(tmp_path / "lake" / "github" / "issues")] == [1]
    assert [row["id"] for row in loaded(tmp_path / "lake" / "github" / "issue_events")] == [1, 1]
    (letters,) = (tmp_path / "rejected").glob("*.jsonl")
    assert "seven" in letters.read_text()
