"""The summary and the report of both programs, of a good run and of a failed one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pipe_programs import Programs

pytestmark = pytest.mark.pipe


def test_what_one_program_sends_the_other_commits(programs: Programs) -> None:
    folder = programs.folder
    (folder / "orders.csv").write_text("id,name\n" + "".join(f"{n},x{n}\n" for n in range(1000)))
    tap = {"streams": [{"name": "orders", "path": str(folder / "orders.csv"), "format": "csv"}]}
    sent = programs.run([*programs.tap_command(tap), "--summary", "tap.json"])
    assert sent.returncode == 0, sent.stderr
    target = programs.target_command(
        {"path": str(folder / "out"), "streams": {"orders": {"expect": {"min_rows": 1001}}}}
    )
    files = ["--summary", "target.json", "--report", "target.html"]
    done = programs.run([*target, *files], stdin=sent.stdout)
    assert done.returncode == 11, done.stderr
    assert b"1000 rows, at least 1001 are expected" in done.stderr
    tap_summary, summary = (
        json.loads((folder / f"{p}.json").read_text()) for p in ("tap", "target")
    )
    assert tap_summary["streams"]["orders"]["sent"] == 1000
    assert (summary["exit_code"], summary["state_messages"]) == (11, len(done.stdout.splitlines()))
    [table] = summary["streams"]["orders"]["tables"].values()
    assert (table["received"], table["committed"], table["unconfirmed"]) == (1000, 1000, 0)
    assert summary["columns"]["orders"]["id"] == {"null_share": 0.0, "min": 0, "max": 999}
    assert "exit code 11" in (folder / "target.html").read_text()


def test_a_run_that_cannot_begin(programs: Programs, tmp_path: Path) -> None:
    done = programs.run([*programs.target_command({"format": "nothing"}), "--summary", "s.json"])
    summary = json.loads((tmp_path / "s.json").read_text())
    assert done.returncode == summary["exit_code"] == 2
    assert "nothing" in summary["error"]
    assert summary["streams"] == {}
