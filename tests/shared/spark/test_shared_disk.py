"""Whether executors see our files: a local Spark, and the user's own server beside us."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from shared.spark.conf import SparkSettings
from shared.spark.connect import (
    ServerRecord,
    executors_share_disk,
    record_path,
    running_server,
    visible_files,
)

OURS = SparkSettings(remote="sc://localhost:15002")


@pytest.mark.parametrize(
    ("settings", "shared"),
    [
        (SparkSettings(), True),
        (SparkSettings(master="local[4]"), True),
        (SparkSettings(remote="local[2]"), True),
        (OURS, False),
        (SparkSettings(master="yarn"), False),
    ],
)
def test_without_a_server(settings: SparkSettings, shared: bool, record: Path) -> None:
    assert executors_share_disk(settings) is shared
    record.write_text("")
    assert executors_share_disk(settings) is shared


@pytest.mark.parametrize("machine", ["same", "other"])
def test_a_record_of_another_machine_is_not_seen(
    machine: str, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is seen in containers and on machines to which the number of the process is not."""
    environ = {"SINGER_SPARK_CLASS_ARCHIVE": str(record.parents[1])}
    server = ServerRecord(1, 15002, "token")
    record.write_text(json.dumps(asdict(server)))
    if machine == "other":
        monkeypatch.setattr("shared.storage.owned_folders.boot_id", lambda: "other")
    assert running_server(environ) == (server if machine == "same" else None)


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The locked record of a server that has not told of itself yet."""
    environ = {"SINGER_SPARK_CLASS_ARCHIVE": str(tmp_path / "cache")}
    monkeypatch.setenv(*next(iter(environ.items())))
    path = record_path(environ)
    assert path is not None
    path.parent.mkdir(mode=0o700, parents=True)
    path.touch(mode=0o600)
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield path


@pytest.mark.parametrize(
    ("url", "files", "shared"),
    [
        (OURS.remote, visible_files(), True),
        (f"{OURS.remote}/", visible_files(), True),
        (OURS.remote, "mnt:[1] 2:3", False),
        (OURS.remote, None, False),
        ("sc://localhost:15003", visible_files(), False),
        ("sc://elsewhere:15002", visible_files(), False),
    ],
    ids=["ours", "with a slash", "in a container", "a cluster's driver", "a port", "a host"],
)
def test_a_server(url: str, files: str | None, shared: bool, record: Path) -> None:
    record.write_text(json.dumps(asdict(ServerRecord(1, 15002, "token", files))))
    assert executors_share_disk(SparkSettings(remote=url)) is shared


def test_a_server_of_an_older_version(record: Path) -> None:
    record.write_text('{"pid": 1, "port": 15002, "token": "token"}')
    assert not executors_share_disk(OURS)


def test_other_mounts_are_other_files() -> None:
    code = "from shared.spark.connect import visible_files; print(visible_files())"
    command = [sys.executable, "-c", code]
    same = subprocess.run(command, capture_output=True, text=True, check=True)
    assert same.stdout.strip() == visible_files()
    apart = subprocess.run(["unshare", "--mount", *command], capture_output=True, text=True)
    if apart.returncode:
        pytest.skip(f"no other mounts: {apart.stderr.strip()}")
    assert apart.stdout.strip() not in ("None", visible_files())


def test_a_system_that_does_not_tell(monkeypatch: pytest.MonkeyPatch, record: Path) -> None:
    def fail(path: str) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr("os.readlink", fail)
    assert visible_files() is None
    record.write_text(json.dumps(asdict(ServerRecord(1, 15002, "token"))))
    assert not executors_share_disk(OURS)
