"""Two runs of target-spark into one table at once."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.pipe

SCHEMA = {"type": "SCHEMA", "stream": "s", "schema": {"properties": {"n": {"type": "integer"}}},
          "key_properties": []}  # fmt: skip
RECORD = {"type": "RECORD", "stream": "s", "record": {"n": 1}}
HEAD, LINE = (json.dumps(message).encode() + b"\n" for message in (SCHEMA, RECORD))


def test_a_second_run_ends_and_a_killed_one_does_not_block(programs: Any, tmp_path: Path) -> None:
    config = {"path": str(tmp_path / "out")}
    first = subprocess.Popen(
        programs.target_command(config),
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
    )
    assert first.stdin is not None
    first.stdin.write(HEAD)
    first.stdin.flush()
    for _ in range(600):
        if list(tmp_path.glob("out/.s.lease-*")):
            break
        time.sleep(0.1)
    else:
        pytest.fail("the first run has not begun")
    second = programs.run(programs.target_command(config), stdin=HEAD + LINE)
    first.kill()
    first.communicate()
    assert second.returncode == 13
    [line] = [line for line in second.stderr.decode().splitlines() if "another run" in line]
    assert f"process {first.pid} on {socket.gethostname()}, since 20" in line
    assert not list(tmp_path.glob("out/s/*.parquet"))
    assert list(tmp_path.glob("out/.s.lease-*")), "what a killed run leaves"
    # Without a record: Spark is not needed.
    third = programs.run(programs.target_command(config), stdin=HEAD)
    assert third.returncode == 0, third.stderr.decode()
    assert not list(tmp_path.glob("out/.s.lease-*"))
