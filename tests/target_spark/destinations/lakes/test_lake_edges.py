"""Commits that are done again, and where parts wait. No Spark."""

from __future__ import annotations

import getpass
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from shared.errors import DestinationError, SettingsError, Where
from shared.spark.conf import SparkSettings
from shared.storage.owned_folders import LOCK_NAME, is_locked
from target_spark.core.load_plans import TableName, TableRequest
from target_spark.destinations.destination import Tools
from target_spark.destinations.folders.stored_folder import TableFolder
from target_spark.destinations.lakes.delta.delta_format import delta_destination
from target_spark.destinations.lakes.lake_table import ATTEMPTS, LostCommit, past_conflicts
from target_spark.run_settings import StagingSettings, TargetConfig

ROOT = Path(__file__).resolve().parents[4]
LOST = re.compile("Concurrent")
STREAM = Where(stream="s")


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that this thread made, none of them waited for."""
    created: list[float] = []
    test, sleep = threading.get_ident(), time.sleep

    def noted(pause: float) -> None:
        if threading.get_ident() == test:
            created.append(pause)
        else:
            sleep(pause)

    monkeypatch.setattr(time, "sleep", noted)
    return created


def test_work_that_loses_against_others_is_done_again(pauses: list[float]) -> None:
    def work(attempt: int) -> int:
        if attempt < 3:
            raise RuntimeError("ConcurrentAppendException")
        return attempt

    assert past_conflicts(work, LOST, STREAM, shown="t") == 3
    assert len(pauses) == 3
    assert all(0 <= pause <= 10 for pause in pauses)


def test_a_table_found_changed_is_a_conflict_too(pauses: list[float]) -> None:
    def work(attempt: int) -> int:
        if not attempt:
            raise LostCommit
        return attempt

    assert past_conflicts(work, LOST, STREAM, shown="t") == 1
    assert len(pauses) == 1


def test_other_failures_are_explained_at_once() -> None:
    attempts: list[int] = []

    def work(attempt: int) -> None:
        attempts.append(attempt)
        raise RuntimeError("[DELTA_SOMETHING] It is so. SQLSTATE: 42000")

    with pytest.raises(DestinationError, match="It is so") as caught:
        past_conflicts(work, LOST, STREAM, shown="t")
    assert caught.value.where.stream == "s"
    assert attempts == [0]


def test_errors_of_ours_stay_what_they_are() -> None:
    error = SettingsError("Concurrent")

    def work(_: int) -> None:
        raise error

    with pytest.raises(SettingsError) as caught:
        past_conflicts(work, LOST, STREAM, shown="t")
    assert caught.value is error


@pytest.mark.usefixtures("pauses")
def test_an_endless_fight_ends() -> None:
    attempts: list[int] = []

    def work(attempt: int) -> None:
        attempts.append(attempt)
        raise RuntimeError("Concurrent")

    text = "'t': gave up after 30 attempts: other writers keep committing"
    with pytest.raises(DestinationError, match=text):
        past_conflicts(work, LOST, STREAM, shown="'t'")
    assert len(attempts) == ATTEMPTS


def no_spark(*_: Any, **__: Any) -> Any:
    raise AssertionError("opening a folder needs no Spark")


def pending_folder(config: TargetConfig) -> TableFolder:
    """Return the folder for the parts of a table, opened by a run of its own."""
    destination = delta_destination(config, Tools(no_spark, no_spark))
    request = TableRequest("s", StructType().add("id", "long"), TableName("t", "s"))
    return destination.open_table(request).folder


def test_parts_of_a_table_in_a_folder_wait_beside_it(tmp_path: Path) -> None:
    config = TargetConfig(path=str(tmp_path), format="delta")
    first, second = pending_folder(config), pending_folder(config)
    assert Path(first.pending).parent.parent == tmp_path / "s"
    assert Path(first.pending).is_dir()
    assert first.pending != second.pending
    first.close()
    assert not Path(first.pending).exists()
    assert Path(second.pending).is_dir()
    second.close()


def test_parts_of_a_table_in_a_catalog_wait_where_all_executors_look(tmp_path: Path) -> None:
    cluster = SparkSettings(master="spark://host:7077")
    config = TargetConfig(catalog="c", format="delta", spark=cluster)
    with pytest.raises(SettingsError, match="all executors share") as caught:
        pending_folder(config)
    assert caught.value.where.setting == "staging.root"
    staging = StagingSettings(root=str(tmp_path))
    config = TargetConfig(catalog="c", format="delta", spark=cluster, staging=staging)
    folder = pending_folder(config)
    assert Path(folder.pending).is_relative_to(tmp_path)
    folder.close()


def test_parts_in_the_temporary_folder_are_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are, even if another user has created folders of every name that could be guessed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    planted = tmp_path / f"target-spark-{getpass.getuser()}"
    planted.mkdir()
    config = TargetConfig(catalog="c", format="delta")
    folders = [pending_folder(config) for _ in range(2)]
    tops = [tmp_path / Path(folder.pending).relative_to(tmp_path).parts[0] for folder in folders]
    assert len({planted, *tops}) == 3
    for top in tops:
        assert (stat.S_IMODE(top.stat().st_mode), top.stat().st_uid) == (0o700, os.getuid())
        assert is_locked(top / LOCK_NAME)
    for folder in folders:
        folder.close()
    assert list(planted.iterdir()) == []


def test_private_parts_go_with_their_process(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from target_spark.run_settings import TargetConfig\n"
        "from pyspark.sql.types import StructType\n"
        "from target_spark.core.load_plans import TableName, TableRequest\n"
        "from target_spark.destinations.destination import Tools\n"
        "from target_spark.destinations.lakes.delta.delta_format import delta_destination\n"
        "from target_spark.receive.staging import Staging\n"
        "with Staging(None) as staging:\n"
        "    staging.append(1, b'x\\n', 1, 1)\n"
        "    config = TargetConfig(catalog='c', format='delta')\n"
        "    destination = delta_destination(config, Tools(None, None))\n"
        "    request = TableRequest('s', StructType().add('id', 'long'), TableName('t'))\n"
        "    folder = destination.open_table(request).folder\n"
        "    assert os.path.isdir(folder.pending)\n"
        "    if sys.argv[1] == 'killed':\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    killed = subprocess.run([sys.executable, "-c", code, "killed"], env=environ, cwd=ROOT)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    subprocess.run([sys.executable, "-c", code, "ended"], env=environ, cwd=ROOT, check=True)
    assert list(tmp_path.iterdir()) == []
