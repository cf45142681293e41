"""A BATCH run of which one program is killed at a random moment, resumed and compared."""

from __future__ import annotations

import fcntl
import json
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

pytestmark = [pytest.mark.pipe, pytest.mark.soak, pytest.mark.costly]

COUNT = 30_000
PIPE_BYTES = 4096
MOST_STATES = 12
STREAM = {
    "name": "s",
    "format": "rows",
    "row_count": COUNT,
    "column_count": 3,
    "replication_key": "id",
}


def tap_config(folder: Path) -> dict[str, Any]:
    return {
        "streams": [STREAM],
        "state_interval_seconds": 0.01,
        "batch_config": {
            "encoding": {"format": "jsonl", "compression": "zstd"},
            "storage": {"root": str(folder / "batches")},
            "batch_size": 1000,
        },
    }


def target_config(folder: Path) -> dict[str, Any]:
    return {"path": str(folder / "out"), "batch_size_rows": 2000}


def stored(folder: Path) -> Counter[int]:
    files = sorted((folder / "out" / "s").glob("[!_.]*.parquet"))
    return Counter(number for file in files for number in pq.read_table(file)["id"].to_pylist())


def bookmark(line: bytes | str) -> int:
    entry = json.loads(line)["bookmarks"]["s"]
    return int(entry.get("replication_key_value", -1))


def cut_run(programs: Any, folder: Path, seed: int) -> list[bytes]:
    """Run the pipe, kill the tap or the target after the first STATE; give all STATE lines.

    The tap's output goes through a small pipe, and not all of it is handed on before: neither can
    have ended by then.
    """
    chance = random.Random(seed)
    with (folder / "tap.log").open("wb") as tap_log, (folder / "target.log").open("wb") as log:
        tap = subprocess.Popen(
            programs.tap_command(tap_config(folder)),
            bufsize=0,
            stdout=subprocess.PIPE,
            stderr=tap_log,
            cwd=folder,
        )
        target = subprocess.Popen(
            programs.target_command(target_config(folder)),
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=folder,
        )
    assert tap.stdout is not None
    assert target.stdin is not None
    assert target.stdout is not None
    target.stdin.write(tap.stdout.readline())
    # Only now: the tap itself makes the pipe larger when it starts.
    fcntl.fcntl(tap.stdout, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    wanted = chance.randint(4, MOST_STATES)
    while wanted and (line := tap.stdout.readline()):
        target.stdin.write(line)
        wanted -= line.startswith(b'{"type":"STATE"')
    first = target.stdout.readline()
    if seed % 2:
        tap.kill()
        # The last line of it may be cut.
        target.stdin.write(tap.stdout.read())
    else:
        time.sleep(chance.uniform(0.0, 1.5))
        target.kill()
        tap.stdout.close()
    rest = target.communicate(timeout=120)[0]
    tap.wait(timeout=120)
    logs = (folder / "target.log").read_text() + (folder / "tap.log").read_text()
    assert first, logs
    assert (tap if seed % 2 else target).returncode == -signal.SIGKILL, logs
    return [first, *rest.splitlines()]


def test_nothing_is_lost_and_only_rows_after_the_last_state_come_again(programs, tmp_path, seed):
    (tmp_path / "batches").mkdir()
    states = cut_run(programs, tmp_path, seed)
    values = [bookmark(line) for line in states]
    assert values == sorted(values)
    assert 0 < values[-1] < COUNT - 1
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
