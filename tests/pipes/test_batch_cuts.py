"""A BATCH run of which one program is killed at a random moment, resumed and compared."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

pytestmark = [pytest.mark.pipe, pytest.mark.soak]

COUNT = 60_000
STREAM = {
    "name": "s",
    "format": "rows",
    "row_count": COUNT,
    "column_count": 8,
    "replication_key": "id",
}


def tap_config(folder: Path) -> dict[str, Any]:
    return {
        "streams": [STREAM],
        "state_interval_seconds": 0.01,
        "batch_config": {
            "encoding": {"format": "jsonl", "compression": "zstd"},
            "storage": {"root": str(folder / "batches")},
            "batch_size": 2000,
        },
    }


def target_config(folder: Path) -> dict[str, Any]:
    return {"path": str(folder / "out"), "batch_size_rows": 4000}


def stored(folder: Path) -> Counter[int]:
    files = sorted((folder / "out" / "s").glob("[!_.]*.parquet"))
    return Counter(number for file in files for number in pq.read_table(file)["id"].to_pylist())


def bookmark(line: bytes | str) -> int:
    entry = json.loads(line)["bookmarks"]["s"]
    return int(entry.get("replication_key_value", -1))


def cut_run(programs: Any, folder: Path, seed: int) -> list[bytes]:
    """Run the pipe, kill the tap or the target soon after the first STATE; give all STATE lines."""
    chance = random.Random(seed)
    with (folder / "tap.log").open("wb") as tap_log, (folder / "target.log").open("wb") as log:
        tap = subprocess.Popen(
            programs.tap_command(tap_config(folder)),
            stdout=subprocess.PIPE,
            stderr=tap_log,
            cwd=folder,
        )
        target = subprocess.Popen(
            programs.target_command(target_config(folder)),
            stdin=tap.stdout,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=folder,
        )
    assert tap.stdout is not None
    assert target.stdout is not None
    tap.stdout.close()
    first = target.stdout.readline()
    time.sleep(chance.uniform(0.0, 1.5))
    victim = tap if seed % 2 else target
    victim.kill()
    rest = target.communicate(timeout=120)[0]
    tap.wait(timeout=120)
    assert first, (folder / "target.log").read_text() + (folder / "tap.log").read_text()
    return [first, *rest.splitlines()]


def test_nothing_is_lost_and_only_rows_after_the_last_state_come_again(programs, tmp_path, seed):
    (tmp_path / "batches").mkdir()
    states = cut_run(programs, tmp_path, seed)
    values = [bookmark(line) for line in states]
    assert values == sorted(values)
    kept = stored(tmp_path)
    assert set(kept) >= set(range(values[-1] + 1))
    assert set(kept.values()) == {1}
    again = programs.pipe(
        tap_config(tmp_path), target_config(tmp_path), state=json.loads(states[-1])
    ).check()
    assert bookmark(json.dumps(again.state)) == COUNT - 1
    every = stored(tmp_path)
    assert set(every) == set(range(COUNT))
    doubled = {number for number, times in every.items() if times > 1}
    assert doubled <= {number for number in kept if number >= values[-1]}
