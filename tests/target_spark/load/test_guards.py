"""The guards of a load: each can be left out alone, and sees its moments in order."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from engines import threads
from whole_runs import run_target

from target_spark.config import target_config
from target_spark.load.guards.guard import Guard
from target_spark.load.loader import Loader

MESSAGES = [
    {"type": "SCHEMA", "stream": "s", "schema": {"properties": {"id": {"type": "integer"}}}},
    {"type": "RECORD", "stream": "s", "record": {"id": 1}},
    {"type": "STATE", "value": {"a": 1}},
]
COUNT = 8


class Witness(Guard):
    """Notes the moments that it sees."""

    def __init__(self) -> None:
        self.moments: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name in MOMENTS:
            self.moments.append(name)
        return super().__getattribute__(name)


MOMENTS = [name for name, _ in inspect.getmembers(Guard, inspect.isfunction) if name[0] != "_"]


def loader_of(folder: Path) -> Loader:
    return Loader(target_config({"path": str(folder)}), threads())


@pytest.mark.parametrize("left_out", range(COUNT))
def test_each_guard_can_be_left_out(tmp_path: Path, left_out: int) -> None:
    loader = loader_of(tmp_path / "tables")
    guards = loader._guards
    assert len(guards) == COUNT
    loader._guards = (*guards[:left_out], *guards[left_out + 1 :])
    states = run_target(loader._config, loader, tmp_path, MESSAGES)
    assert [json.loads(line) for line in states] == [{"a": 1}]
    assert len(list((tmp_path / "tables" / "s").glob("*.parquet"))) == 1


def test_moments_come_in_order(tmp_path: Path) -> None:
    loader, witness = loader_of(tmp_path / "tables"), Witness()
    loader._guards = (witness,)
    run_target(loader._config, loader, tmp_path, MESSAGES)
    assert witness.moments == [
        "must_see",
        "before_conversion",
        "after_conversion",
        "before_change",
        "before_commit",
        "after_commit",
        "before_state",
        "before_change",
        "before_end",
        "after_end",
        "check",
        "close",
    ]
