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
COUNT = 5


MOMENTS = [name for name, _ in inspect.getmembers(Guard, inspect.isfunction) if name[0] != "_"]


def witness_of(moments: list[str]) -> Guard:
    """Return a guard that notes the moments that it sees."""

    def noting(name: str) -> Any:
        def see(self: Guard, *arguments: Any) -> Any:
            moments.append(name)
            return getattr(Guard, name)(self, *arguments)

        return see

    witness: Guard = type("Witness", (Guard,), {name: noting(name) for name in MOMENTS})()
    return witness


def loader_of(folder: Path, **settings: Any) -> Loader:
    return Loader(target_config({"path": str(folder), **settings}), threads())


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, "Lease Version Balance Lineage Expectation"),
        ({"overlapping_runs": {"policy": "allow"}}, "Version Balance Lineage Expectation"),
        ({"activate_version": False}, "Lease Balance Lineage Expectation"),
        ({"load_method": "overwrite"}, "Lease Held Version Balance Lineage Expectation"),
        ({"streams": {"a*": {"load_method": "overwrite"}}},
         "Lease Held Version Balance Lineage Expectation"),
        ({"format": "delta"}, "Lease Replay Version Balance Lineage Expectation"),
        ({"format": "delta", "load_method": "upsert"}, "Lease Version Balance Lineage Expectation"),
        ({"format": "delta", "replays": {"detect": False}},
         "Lease Version Balance Lineage Expectation"),
        ({"format": "delta", "write_audit_publish": True},
         "Lease Replay Held Version Balance Lineage Expectation Audit"),
    ],
)  # fmt: skip
def test_only_guards_that_the_settings_ask_for_are_in_the_list(
    tmp_path: Path, settings: dict[str, Any], names: str
) -> None:
    loader = loader_of(tmp_path / "tables", **settings)
    short = [type(guard).__name__.replace("Guard", "") for guard in loader._guards]
    assert " ".join(short).replace("HeldFlushes", "Held") == names


@pytest.mark.parametrize("left_out", range(COUNT))
def test_each_guard_can_be_left_out(tmp_path: Path, left_out: int) -> None:
    loader = loader_of(tmp_path / "tables")
    guards = loader._guards
    assert len(guards) == COUNT
    loader._watch((*guards[:left_out], *guards[left_out + 1 :]))
    states = run_target(loader._config, loader, tmp_path, MESSAGES)
    assert [json.loads(line) for line in states] == [{"a": 1}]
    assert len(list((tmp_path / "tables" / "s").glob("*.parquet"))) == 1


def test_moments_come_in_order(tmp_path: Path) -> None:
    loader, moments = loader_of(tmp_path / "tables"), list[str]()
    loader._watch((witness_of(moments),))
    run_target(loader._config, loader, tmp_path, MESSAGES)
    assert moments == [
        "before_stream",
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
