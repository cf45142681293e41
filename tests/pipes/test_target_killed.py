"""The target killed at a random moment and run again from its last STATE, with Spark."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time

import pyarrow.parquet as pq
import pytest

pytestmark = [pytest.mark.pipe, pytest.mark.soak]

COUNT = 31_000
"""The last rows fill no batch, so that the run cannot end before it is killed."""
STEP = 1_000
SCHEMA = {"id": {"type": ["integer", "null"]}, "t": {"type": ["string", "null"]}}


def messages(first: int) -> bytes:
    head = {"type": "SCHEMA", "stream": "s", "schema": {"properties": SCHEMA}, "key_properties": []}
    lines = [json.dumps(head)]
    for number in range(first, COUNT):
        lines.append(f'{{"type":"RECORD","stream":"s","record":{{"id":{number},"t":"x"}}}}')
        if number % STEP == STEP - 1:
            lines.append(f'{{"type":"STATE","value":{number + 1}}}')
    return ("\n".join(lines) + "\n").encode()


def stored(folder) -> list[int]:
    files = sorted((folder / "s").glob("[!_.]*.parquet"))
    return [number for file in files for number in pq.read_table(file)["id"].to_pylist()]


def test_nothing_that_state_covers_is_lost(programs, tmp_path, seed):
    chance = random.Random(seed)
    config = {"path": str(tmp_path / "out"), "batch_size_rows": 2500}
    config["staging"] = {"root": str(tmp_path / "staging")}
    target = subprocess.Popen(
        programs.target_command(config),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
    )
    assert target.stdin is not None
    assert target.stdout is not None
    target.stdin.write(messages(0))
    target.stdin.flush()
    line = target.stdout.readline()
    time.sleep(chance.uniform(0.0, 1.0))
    target.kill()
    states = [int(text) for text in (line + target.communicate()[0]).splitlines()]
    kept = stored(tmp_path / "out")
    assert target.returncode == -signal.SIGKILL
    assert 0 < states[-1] <= len(kept) < COUNT
    assert len(kept) == len(set(kept))
    assert set(kept) >= set(range(states[-1]))
    result = programs.run(programs.target_command(config), stdin=messages(states[-1]))
    assert result.returncode == 0, result.stderr.decode()
    assert result.stdout.splitlines()[-1:] == [b"%d" % COUNT]
    assert set(stored(tmp_path / "out")) == set(range(COUNT))
    assert list((tmp_path / "staging").iterdir()) == []
