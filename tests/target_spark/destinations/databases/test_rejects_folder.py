"""The folder for rejected records of a database run is removed at every end of the run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shared.errors import DestinationError
from target_spark.config import target_config
from target_spark.destinations.databases.database_destination import jdbc_destination
from target_spark.run_settings import TargetConfig

MAKE = """
import json, sys, time
from target_spark.config import target_config
from target_spark.destinations.databases.database_destination import jdbc_destination
destination = jdbc_destination(target_config(json.loads(sys.argv[1])))
(destination._pending.path / "rejects-1").touch()
print(destination._pending.path, flush=True)
time.sleep(60)
"""


def settings(folder: Path) -> dict[str, Any]:
    return {
        "format": "jdbc",
        "jdbc": {"url": "jdbc:postgresql://127.0.0.1:1/none"},
        "staging": {"root": str(folder / "staging")},
        "failure": {"policy": "SendToDLQ", "dead_letter_path": str(folder / "letters")},
    }


def config(folder: Path, policy: str) -> TargetConfig:
    supplied = settings(folder)
    if policy != "SendToDLQ":
        supplied["failure"] = {"policy": policy}
    return target_config(supplied)


@pytest.mark.parametrize("policy", ["SendToDLQ", "FailBatch"])
def test_what_a_killed_run_leaves_goes_with_the_next_one(tmp_path: Path, policy: str) -> None:
    command = [sys.executable, "-c", MAKE, json.dumps(settings(tmp_path))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        # Of a run that lives nothing is taken.
        jdbc_destination(config(tmp_path, policy)).close()
        assert [path.name for path in (tmp_path / "staging").iterdir()] == [folder.name]
        process.kill()
    assert (folder / "rejects-1").exists()
    jdbc_destination(config(tmp_path, policy)).close()
    assert list((tmp_path / "staging").iterdir()) == []


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DestinationError, match=r"cannot write to '.*/file/staging': Not a dir"):
        jdbc_destination(config(tmp_path / "file", "SendToDLQ"))
