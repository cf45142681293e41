"""The target killed (SIGKILL) at random moments and run again from its last STATE."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from kill_runs import (
    ADDED,
    COUNT,
    KEPT,
    REPLACED,
    STEP,
    Seen,
    added,
    kept,
    messages,
    moment_of_replacing,
    moments,
    noted,
    replaced,
    replacement,
    run,
    state_message,
)
from model_source import line_of
from model_stores import Store
from table_files import check_data_files

pytestmark = [pytest.mark.pipe, pytest.mark.server, pytest.mark.soak, pytest.mark.costly]
# Which destination also has a table replaced, by seed: that takes two runs more.
REPLACES = ("delta", "iceberg", "postgresql")


def settings(store: Store, folder: Path, seed: int) -> dict[str, Any]:
    return {
        **store.settings(seed),
        "staging": {"root": str(folder / "staging")},
        # The one seed of `.ci/run` has half of the commits, each of which takes a lake seconds.
        "batch_size_rows": 500 if seed else 1_000,
        "hard_delete": True,
        "streams": {KEPT: {"load_method": "upsert"}, REPLACED: {"load_method": "overwrite"}},
    }


def test_a_killed_target_leaves_what_a_whole_run_does(
    programs: Any, store: Store, tmp_path: Path, kill_seed: int
) -> None:
    chance = random.Random(f"{store.name} {kill_seed}")
    command = programs.target_command(settings(store, tmp_path, kill_seed))
    replaces = REPLACES[kill_seed % len(REPLACES)] == store.name
    files = tmp_path / "batches"
    # After the last STATE, which would wait for it.
    last = replacement(files, 0) if replaces else b""
    seen: Seen = {
        "commit": lambda: store.commits(kill_seed),
        "file": lambda: store.files(kill_seed),
    }
    at, reported, windows = 0, [], list[int]()
    for kill in [*moments(chance, kill_seed), None]:
        ended = run(command, messages(files, at) + last, tmp_path, kill, seen)
        assert list(ended.states) == sorted(ended.states)
        at = max([at, *ended.states])
        reported.append(f"{kill} -> {at}")
        if store.once and is_before_state(store, kill_seed, at):
            windows.append(at)
        if ended.code is not None:
            assert ended.code == 0, ended.log
            break
    assert at == COUNT
    rows = store.rows(kill_seed, ADDED) or []
    loaded = Counter(row["n"] for row in rows)
    twice = sorted(number for number, times in loaded.items() if times > 1)
    assert sorted(loaded) == added(), reported
    assert not twice or twice[0] in windows, (reported, windows)
    assert max(loaded.values()) <= 1 + len(windows), (reported, windows)
    rows = store.rows(kill_seed, KEPT) or []
    assert sorted((row["id"], row["n"]) for row in rows) == sorted(kept().items()), reported
    if replaces:
        old, new = replaced(0), replaced(1)
        assert whole(store, kill_seed) == old
        data = replacement(files, 1) + line_of(state_message(ADDED, COUNT + 1))
        kill = moment_of_replacing(chance)
        ended = run(command, data, tmp_path, kill, seen)
        left = whole(store, kill_seed)
        assert left == new or (left == old and not ended.states), kill
        ended = run(command, data, tmp_path, None, seen)
        assert (ended.code, ended.states) == (0, [COUNT + 1]), ended.log
        assert whole(store, kill_seed) == new
    if store.name != "postgresql":
        assert check_data_files(tmp_path)
    assert store.leftovers(kill_seed) == []
    assert list((tmp_path / "staging").iterdir()) == []


def is_before_state(store: Store, seed: int, at: int) -> bool:
    """Return whether a kill fell between the change of the note and the STATE after it.

    Only then are records loaded twice (docs/guarantees.md). The note begins at the STATE that
    nobody got, or is gone if that STATE covers all rows.
    """
    note = store.note(seed)
    if note:
        return (noted(note, ADDED) or at) > at
    last = max((row["n"] for row in store.rows(seed, ADDED) or []), default=-2) + 2
    return last > at and (last % STEP == 0 or last == COUNT)


def whole(store: Store, seed: int) -> list[dict[str, Any]]:
    """Return the table that is replaced, without the columns of the record metadata."""
    rows = store.rows(seed, REPLACED) or []
    actual = [{"id": row["id"], "n": row["n"]} for row in rows]
    return sorted(actual, key=lambda row: row["id"])
