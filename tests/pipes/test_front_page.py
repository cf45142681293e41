"""The recipes of README.md run as they stand, by a bare install."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from own_environments import WheelEnvironments
from tutorial_pages import recipe, run_script

SECONDS = 600

pytestmark = [pytest.mark.pipe, pytest.mark.costly]


def loaded(table: Path) -> list[dict]:
    from deltalake import DeltaTable

    return sorted(DeltaTable(table).to_pyarrow_table().to_pylist(), key=lambda row: row["id"])


def test_files_into_a_lake(environments: WheelEnvironments, tmp_path: Path) -> None:
    programs = environments.of().programs
    script = recipe("Files into a lake")
    (tmp_path / "data").mkdir()
    orders = tmp_path / "data" / "orders.csv"
    orders.write_text("id,amount\n1,0.50\n2,7.25\n")
    run_script(script, tmp_path, seconds=SECONDS, programs=programs)
    assert [row["id"] for row in loaded(tmp_path / "lake" / "orders")] == [1, 2]
    with orders.open("a") as file:
        file.write("3,1.00\n")
    run_script(script, tmp_path, seconds=SECONDS, programs=programs)
    assert [row["id"] for row in loaded(tmp_path / "lake" / "orders")] == [1, 2, 3]
    sent = json.loads((tmp_path / "state.json").read_text())
    assert "orders" in sent["bookmarks"]


def test_any_tap_into_delta(environments: WheelEnvironments, tmp_path: Path) -> None:
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
    other = tmp_path / "programs"
    other.mkdir()
    tap = other / "tap-github"
    tap.write_text("#!/bin/sh\ncat messages.jsonl\n")
    tap.chmod(0o755)
    path = os.pathsep.join([str(other), os.environ["PATH"]])
    programs = environments.of().programs
    script = recipe("Any tap into Delta")
    run_script(script, tmp_path, {"PATH": path}, seconds=SECONDS, programs=programs)
    assert [row["id"] for row in loaded(tmp_path / "lake" / "github" / "issues")] == [1]
    assert [row["id"] for row in loaded(tmp_path / "lake" / "github" / "issue_events")] == [1, 1]
    (letters,) = (tmp_path / "rejected").glob("*.jsonl")
    assert "seven" in letters.read_text()
