"""The table of `target-spark history`. No Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest

from target_spark.destinations.lakes.commit_marks import Mark
from target_spark.destinations.lakes.lake_format import Place
from target_spark.destinations.lakes.table_history import TableCommit, TableHistory
from target_spark.rewind.commands import history_lines

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
