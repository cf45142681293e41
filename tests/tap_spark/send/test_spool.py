"""The driver's side of the spool: private, locked, removed, and cleaned up after a killed run."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from shared.errors import DestinationError
from tap_spark.config import SpoolSettings
from tap_spark.send import spool as spools
from tap_spark.send.line_output import spool_error
from tap_spark.send.spool import OrderedSpoolFolder, Spool
from tap_spark.send.spool_files import (
    BEGUN_SUFFIX,
    ENDED_SUFFIX,
    CopyProgress,
    KeyMax,
    SpoolWriter,
    chunk_name,
    marker_name,
    pack_meta,
    read_progress,
)

MIB = 1024 * 1024
KILLED_OWNER = """
import os, signal, sys
from tap_spark.config import SpoolSettings
from tap_spark.send.spool import Spool
spool = Spool(SpoolSettings(root=sys.argv[1]))
(spool.new_folder().path / "a.lines").write_text("x")
print(spool.path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def make(root: Path, limit: int = MIB) -> Spool:
    return Spool(SpoolSettings(root=str(root), bytes=limit))


def put(folder: Path, name: str, text: str, key: KeyMax | None = None) -> None:
    (folder / f"{name}.meta").write_text(pack_meta(text.count("\n"), key))
    (folder / f"{name}.lines").write_text(text)


def test_the_folder_is_private_and_removed_at_the_end(tmp_path: Path) -> None:
    with make(tmp_path / "deep" / "root") as spool:
        folder = spool.new_folder()
        assert spool.path.parent == tmp_path / "deep" / "root"
        assert spool.path.stat().st_mode & 0o777 == 0o700
        assert folder.path.stat().st_mode & 0o777 == 0o700
        put(folder.path, "a", "1\n")
    assert list((tmp_path / "deep" / "root").iterdir()) == []
    spool.close()


def test_only_finished_chunks_are_listed(tmp_path: Path) -> None:
    with make(tmp_path) as spool:
        folder = spool.new_folder()
        (folder.path / "b.part").write_text("half a li")
        assert list(folder.ready(ended=False)) == []
        put(folder.path, "a", "1\n2\n", KeyMax(2, "two"))
        (chunk,) = folder.ready(ended=False)
        assert (chunk.rows, chunk.key) == (2, KeyMax(2, "two"))
        chunk.remove()
        assert [path.name for path in folder.path.iterdir()] == ["b.part"]
        chunk.remove()


def test_a_task_writes_over_a_chunk_that_was_copied(tmp_path: Path) -> None:
    with make(tmp_path) as spool:
        folder = spool.new_folder()

        def written(lines: list[str]) -> tuple[int, str]:
            list(SpoolWriter(folder.task_spool, None, MIB)([pa.record_batch([lines], ["line"])]))
            (chunk,) = folder.ready(ended=False)
            result = chunk.path.stat().st_ino, chunk.path.read_text()
            chunk.release(MIB)
            chunk.release(MIB)
            assert list(folder.ready(ended=True)) == []
            return result

        first, text = written(["long line\n"] * 1000)
        assert text == "long line\n" * 1000
        assert written(["a\n"]) == (first, "a\n")
        assert written(["b\n"] * 5000) == (first, "b\n" * 5000)
        assert len(list(folder.path.iterdir())) == 1


def test_files_to_be_written_over_take_a_quarter_of_the_space(tmp_path: Path) -> None:
    with make(tmp_path) as spool:
        folder = spool.new_folder()
        for number in range(10):
            put(folder.path, chunk_name(number, number, 0), "long line\n" * 10_000)
        for chunk in folder.ready(ended=False):
            chunk.release(folder.task_spool.limit)
        assert 0 < sum(path.stat().st_size for path in folder.path.iterdir()) <= MIB // 4


def test_jobs_do_not_see_each_others_chunks(tmp_path: Path) -> None:
    with make(tmp_path) as spool:
        first = spool.new_folder()
        put(first.path, "late", "1\n")
        assert list(spool.new_folder().ready(ended=False)) == []
        first.remove()
        assert not first.path.exists()
        with pytest.raises(DestinationError, match="spool"):
            list(first.ready(ended=True))


def test_the_limit_is_at_most_half_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(spools.shutil, "disk_usage", lambda _: usage)
    with make(tmp_path) as spool:
        assert spool.limit == 500
    with make(tmp_path, limit=7) as spool:
        assert spool.limit == 7


def test_the_system_folder_is_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(spools.tempfile, "gettempdir", lambda: str(tmp_path))
    with Spool(SpoolSettings()) as spool:
        assert spool.path.parent == tmp_path


def test_a_root_that_is_a_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DestinationError, match=r"spool\.root"):
        make(tmp_path / "file")


@pytest.mark.parametrize(("number", "hint"), [(errno.ENOSPC, "larger disk"), (errno.EACCES, "may")])
def test_errors_say_what_to_do(number: int, hint: str) -> None:
    error = spool_error(OSError(number, os.strerror(number)), Path("/x"))
    assert hint in str(error)
    assert os.strerror(number) in str(error)
    assert "'/x'" in str(error)


def test_the_spool_of_a_killed_run_is_removed_by_the_next(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_OWNER, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
        timeout=60,
    )
    left = Path(done.stdout.strip())
    assert left.parent == tmp_path, done.stderr
    assert (left / "1" / "a.lines").exists()
    with make(tmp_path):
        assert not left.exists()


def test_the_spool_of_a_living_run_stays(tmp_path: Path) -> None:
    with make(tmp_path) as first, make(tmp_path) as second:
        assert first.path.exists()
        assert second.path.exists()


def ordered(root: Path, limit: int = 100) -> tuple[Spool, OrderedSpoolFolder]:
    spool = make(root, limit)
    folder = spool.new_folder(ordered=True)
    assert isinstance(folder, OrderedSpoolFolder)
    return spool, folder


def mark(folder: OrderedSpoolFolder, partition: int, suffix: str) -> Path:
    path = folder.path / marker_name(partition, suffix)
    path.touch()
    return path


def take(folder: OrderedSpoolFolder, *, ended: bool = False) -> str:
    text = ""
    for chunk in folder.ready(ended=ended):
        text += chunk.path.read_text()
        chunk.remove()
    return text


def test_chunks_come_partition_after_partition(tmp_path: Path) -> None:
    spool, folder = ordered(tmp_path)
    with spool:
        put(folder.path, chunk_name(1, 5, 0), "c")
        assert take(folder) == ""
        put(folder.path, chunk_name(0, 4, 1), "b")
        put(folder.path, chunk_name(0, 4, 0), "a")
        assert take(folder) == "ab"
        assert take(folder) == ""
        mark(folder, 0, ENDED_SUFFIX)
        assert take(folder) == "c"
        assert read_progress(str(folder.path)) == CopyProgress(1)


def test_empty_partitions_are_passed(tmp_path: Path) -> None:
    spool, folder = ordered(tmp_path)
    with spool:
        for partition in (0, 1, 2, 4):
            mark(folder, partition, BEGUN_SUFFIX)
            mark(folder, partition, ENDED_SUFFIX)
        put(folder.path, chunk_name(3, 0, 0), "d")
        put(folder.path, chunk_name(4, 0, 0), "e")
        assert take(folder) == "d"
        assert [path.name for path in folder.path.glob("*.ended")] == ["0000000004.ended"]
        mark(folder, 3, ENDED_SUFFIX)
        assert take(folder) == "e"


def test_the_end_of_the_job_ends_every_partition(tmp_path: Path) -> None:
    spool, folder = ordered(tmp_path)
    with spool:
        for partition in (12, 2, 5):
            put(folder.path, chunk_name(partition, 0, 0), f"{partition} ")
        assert take(folder) == ""
        assert take(folder, ended=True) == "2 5 12 "


def test_an_attempt_that_failed_is_followed_by_the_next(tmp_path: Path) -> None:
    spool, folder = ordered(tmp_path)
    with spool:
        put(folder.path, chunk_name(0, 3, 0), "a")
        put(folder.path, chunk_name(0, 8, 0), "a")
        put(folder.path, chunk_name(0, 8, 1), "b")
        assert take(folder) == "aab"


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "GRACE_SECONDS", 0.0)


@pytest.mark.usefixtures("no_grace")
def test_tasks_started_too_early_get_space(tmp_path: Path) -> None:
    spool, folder = ordered(tmp_path, limit=100)
    with spool:
        put(folder.path, chunk_name(7, 0, 0), "x" * 60)
        assert folder.task_spool.is_full_for(7)
        for _ in range(3):
            assert take(folder) == ""
        assert not folder.task_spool.is_full_for(7)
        granted = read_progress(str(folder.path))
        take(folder)
        assert read_progress(str(folder.path)) == granted == CopyProgress(0, 50)


@pytest.mark.usefixtures("no_grace")
def test_no_space_is_granted_while_the_partition_is_written(tmp_path: Path) -> None:
    spool, folder = ordered(tmp_path, limit=100)
    with spool:
        put(folder.path, chunk_name(1, 0, 0), "x" * 60)
        with mark(folder, 0, BEGUN_SUFFIX).open("r+") as begun:
            fcntl.flock(begun, fcntl.LOCK_SH)
            for _ in range(3):
                take(folder)
            assert read_progress(str(folder.path)) == CopyProgress()
        for _ in range(3):  # its task is dead, and the next attempt must wait for a core
            take(folder)
        assert read_progress(str(folder.path)).granted > 0


def test_space_is_granted_only_after_a_while(tmp_path: Path) -> None:
    spool, folder = ordered(tmp_path, limit=100)
    with spool:
        put(folder.path, chunk_name(1, 0, 0), "x" * 60)
        take(folder)
        take(folder)
        assert read_progress(str(folder.path)) == CopyProgress()
