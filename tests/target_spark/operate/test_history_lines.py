"""The table of `target-spark history`. No Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from terminals import on_terminal

from target_spark.destinations.lakes.lake_table import Mark, Place
from target_spark.operate.rewind import history_lines
from target_spark.operate.table_history import TableCommit, TableHistory

RUN, SNAPSHOT = "0123456789abcdef", "8744736658442914487"


class Tables:
    """Tables with known histories."""

    def __init__(self, name: str, version: str, state: str) -> None:
        mark = Mark(RUN, name, f"{RUN}-000001", state=state, rows=1_234_567)
        self._history = TableHistory(
            name, Place(name, name), [TableCommit(version, 1e9, mark, None)]
        )

    def histories(self) -> list[TableHistory]:
        return [self._history]


def lines(name: str, version: str, width: int | None) -> list[str]:
    state = json.dumps({"bookmarks": {name: {"replication_key_value": "2026-01-31T00:00:00"}}})
    tables: Any = Tables(name, version, state)
    return list(history_lines(tables, (), 20, as_json=False, width=width))


@pytest.mark.parametrize(("name", "version"), [("orders", "12"), ("a_long_name" * 9, SNAPSHOT)])
def test_a_terminal_gets_80_columns(name: str, version: str) -> None:
    head, line = lines(name, version, 80)
    assert head.startswith("time (UTC)")
    assert max(len(head), len(line)) <= 80
    # What `rewind --to` takes stays whole.
    assert line.startswith("2001-09-09T01:46:40")
    assert RUN[:12] in line


def test_a_pipe_gets_everything() -> None:
    _, line = lines("a_long_name" * 9, SNAPSHOT, None)
    assert SNAPSHOT in line
    assert "a_long_name" * 9 in line


OF_A_PROGRAM = f"""
import contextlib, sys
sys.path[:] = {sys.path!r}
import target_spark.cli
from test_history_lines import SNAPSHOT, Tables
tables = Tables("a_long_name" * 9, SNAPSHOT, "{{}}")
target_spark.cli._tables = lambda _: contextlib.nullcontext(tables)
sys.exit(target_spark.cli.main(["history"]))
"""


@pytest.mark.pipe
def test_the_command_knows_a_terminal(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OF_A_PROGRAM]
    shown = on_terminal(command, tmp_path).splitlines()
    assert [len(line) <= 80 for line in shown] == [True, True]
    piped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert SNAPSHOT in piped
