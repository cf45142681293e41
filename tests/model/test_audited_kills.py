"""The target killed (SIGKILL) while it loads rows that it audits before it publishes them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from kill_runs import ADDED, COUNT, KEPT, Moment, Seen, added, kept, messages, run
from model_stores import IcebergStore

pytestmark = [pytest.mark.pipe, pytest.mark.server, pytest.mark.soak, pytest.mark.slow]


def test_a_killed_run_publishes_whole_tables_or_nothing(
    programs: Any, tmp_path: Path, kill_seed: int
) -> None:
    store, chance = IcebergStore(tmp_path), random.Random(kill_seed)
    command = programs.target_command(
        {
            **store.settings(0),
            "staging": {"root": str(tmp_path / "staging")},
            "batch_size_rows": 500,
            "hard_delete": True,
            "streams": {KEPT: {"load_method": "upsert"}},
            "write_audit_publish": True,
        }
    )
    seen: Seen = {"commit": lambda: store.commits(0)}
    kills = [Moment("commit", chance.randint(*of), chance.uniform(0, 0.5)) for of in FEW_AND_MANY]
    at, told = 0, []
    for kill in [*kills, None]:
        ended = run(command, messages(tmp_path / "batches", at), tmp_path, kill, seen)
        assert ended.code in {None, 0}, ended.log
        assert list(ended.states) in ([], [COUNT])
        numbers = sorted(row["n"] for row in store.rows(0, ADDED) or [])
        merged = {row["id"]: row["n"] for row in store.rows(0, KEPT) or []}
        told.append(f"{kill} -> {list(ended.states)}, {len(numbers)} and {len(merged)} rows")
        assert numbers in ([], added()), told
        assert merged in ({}, kept()), told
        at = max([at, *ended.states])
        assert not at or (numbers and merged), told
    assert (at, numbers, merged) == (COUNT, added(), kept()), told


FEW_AND_MANY = ((4, 15), (15, 40))
"""Commits, of metadata too, after which a run is killed: as it loads, and around its end."""
