"""The target killed (SIGKILL) at random moments and run again from its last STATE."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from kill_runs import ADDED, COUNT, KEPT, added, kept, moments, run
from model_stores import Store

pytestmark = [pytest.mark.pipe, pytest.mark.server, pytest.mark.soak]


def settings(store: Store, folder: Path, seed: int) -> dict[str, Any]:
    return {
        **store.settings(seed),
        "staging": {"root": str(folder / "staging")},
        "batch_size_rows": 500,
        "hard_delete": True,
        "streams": {KEPT: {"load_method": "upsert"}},
    }


def test_a_killed_target_leaves_what_a_whole_run_does(
    programs: Any, store: Store, tmp_path: Path, kill_seed: int
) -> None:
    chance = random.Random(f"{store.name} {kill_seed}")
    command = programs.target_command(settings(store, tmp_path, kill_seed))
    at, told = 0, []
    for kill in [*moments(chance, kill_seed), None]:
        ended = run(command, at, tmp_path, kill, lambda: store.commits(kill_seed))
        assert list(ended.states) == sorted(ended.states)
        at = max([at, *ended.states])
        told.append(f"{kill} -> {at}")
        if ended.code is not None:
            assert ended.code == 0, ended.log
            break
    assert at == COUNT
    rows = store.rows(kill_seed, ADDED) or []
    assert sorted(row["n"] for row in rows) == added(), told
    rows = store.rows(kill_seed, KEPT) or []
    assert sorted((row["id"], row["n"]) for row in rows) == sorted(kept().items()), told
    assert store.leftovers(kill_seed) == []
    assert list((tmp_path / "staging").iterdir()) == []
