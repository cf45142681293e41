"""The driver's side of the spool: private, locked, removed, and cleaned up after a killed run."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shared.errors import DestinationError
from tap_spark import spool as spools
from tap_spark.config import SpoolSettings
from tap_spark.line_chunks import KeyMax, pack_meta
from tap_spark.spool import LOCK_NAME, PREFIX, Spool, remove_stale, spool_error

MIB = 1024 * 1024
KILLED_OWNER = """
import os, signal, sys
from tap_spark.config import SpoolSettings
from tap_spark.spool import Spool
spool = Spool(SpoolSettings(root=sys.argv[1]))
(spool.new_folder().path / "a.lines").write_text("x")
print(spool.path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def make(root: Path, room: int = MIB) -> Spool:
    return Spool(SpoolSettings(root=str(root), bytes=room))


def put(folder: Path, name: str, text: str, key: KeyMax | None = None) -> None:
    (folder / f"{name}.meta").write_text(pack_meta(text.count("\n"), key))
    (folder / f"{name}.lines").write_text(text)


def test_the_folder_is_private_and_goes_away(tmp_path: Path) -> None:
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
        assert folder.finished() == []
        put(folder.path, "a", "1\n2\n", KeyMax(2, "two"))
        (chunk,) = folder.finished()
        assert (chunk.rows, chunk.key) == (2, KeyMax(2, "two"))
        chunk.remove()
        assert [path.name for path in folder.path.iterdir()] == ["b.part"]
        chunk.remove()


def test_jobs_do_not_see_each_others_chunks(tmp_path: Path) -> None:
    with make(tmp_path) as spool:
        first = spool.new_folder()
        put(first.path, "late", "1\n")
        assert spool.new_folder().finished() == []
        first.remove()
        assert not first.path.exists()
        with pytest.raises(DestinationError, match="spool"):
            first.finished()


def test_room_is_no_more_than_half_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(spools.shutil, "disk_usage", lambda _: usage)
    with make(tmp_path) as spool:
        assert spool.room == 500
    with make(tmp_path, room=7) as spool:
        assert spool.room == 7


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
        cwd=Path(__file__).parents[2],
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
        assert remove_stale(tmp_path) == []


def test_a_folder_not_locked_yet_gets_time(tmp_path: Path) -> None:
    young, old, other = (tmp_path / name for name in (PREFIX + "y", PREFIX + "o", "other"))
    for folder in (young, old, other):
        folder.mkdir()
    os.utime(old, (time.time() - 7200,) * 2)
    assert remove_stale(tmp_path) == [old]
    assert young.exists()
    assert other.exists()


def test_a_link_is_never_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / LOCK_NAME).write_text("")
    (tmp_path / (PREFIX + "link")).symlink_to(precious)
    assert remove_stale(tmp_path) == []
    assert precious.exists()
