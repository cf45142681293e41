from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from shared.storage import owned_folders
from shared.storage.owned_folders import (
    ENDED,
    LIVING,
    LOCK_NAME,
    UNKNOWN,
    OwnedFolder,
    is_locked,
    is_trusted,
    owner_status,
    process_owner,
    remove_stale,
)

ROOT = Path(__file__).resolve().parents[3]
PREFIX = "mine-"


def dead_folder(root: Path, *, locked: bool = True) -> Path:
    """Create a folder as a killed owner leaves it."""
    path = root / f"{PREFIX}{socket.gethostname()}-dead"
    path.mkdir(mode=0o700)
    if locked:
        (path / LOCK_NAME).touch()
        (path / "sub").mkdir()
        (path / "sub" / "file").write_text("x")
    return path


def test_a_folder_is_private_and_goes(tmp_path: Path) -> None:
    with OwnedFolder(tmp_path, PREFIX) as folder:
        assert folder.path.parent == tmp_path
        assert folder.path.name.startswith(f"{PREFIX}{socket.gethostname()}-")
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        assert stat.S_IMODE(folder.lock.stat().st_mode) == 0o600
        assert is_locked(folder.lock)
        assert is_locked(str(folder.lock))
        (folder.path / "file").write_text("x")
    assert list(tmp_path.iterdir()) == []
    assert not is_locked(folder.lock)
    folder.close()


@pytest.mark.parametrize(
    ("code", "status"),
    [(None, UNKNOWN), (errno.EPERM, UNKNOWN), (errno.ESRCH, ENDED)],
    ids=["ours", "of another user", "gone"],
)
def test_a_process_that_the_system_hides_may_live(
    monkeypatch: pytest.MonkeyPatch, code: int | None, status: str
) -> None:
    owner = process_owner()
    assert owner_status(owner) == LIVING

    def kill(pid: int, number: int) -> None:
        assert (pid, number) == (os.getpid(), 0)
        if code is not None:
            raise OSError(code, os.strerror(code))

    def hidden(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(owned_folders, "_place", lambda: owner["place"])
    monkeypatch.setattr(owned_folders.Path, "read_text", hidden)
    monkeypatch.setattr(owned_folders.os, "kill", kill)
    assert owner_status(owner) == status


def test_two_folders_of_one_process(tmp_path: Path) -> None:
    with OwnedFolder(tmp_path, PREFIX) as one, OwnedFolder(tmp_path, PREFIX) as two:
        assert one.path != two.path
        assert remove_stale(tmp_path, PREFIX) == []


def test_the_root_must_exist(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        OwnedFolder(tmp_path / "file", PREFIX)


def test_a_closed_folder_does_not_close_the_descriptors_of_others(tmp_path: Path) -> None:
    folder = OwnedFolder(tmp_path, PREFIX)
    number = folder.fd
    folder.close()
    taken = os.open(tmp_path, os.O_RDONLY)
    assert taken == number
    folder.close()
    os.fstat(taken)
    os.close(taken)


def test_what_a_killed_owner_left_goes(tmp_path: Path) -> None:
    dead = dead_folder(tmp_path)
    with OwnedFolder(tmp_path, PREFIX) as living:
        assert remove_stale(tmp_path, PREFIX) == [dead]
        assert list(tmp_path.iterdir()) == [living.path]


def test_a_removal_that_was_killed_goes_on(tmp_path: Path) -> None:
    gone = dead_folder(tmp_path).rename(tmp_path / f"{PREFIX}{socket.gethostname()}-dead.gone")
    (gone / LOCK_NAME).unlink()
    assert remove_stale(tmp_path, PREFIX) == [gone]
    assert list(tmp_path.iterdir()) == []


def test_an_owner_that_died_before_the_lock(tmp_path: Path) -> None:
    dead = dead_folder(tmp_path, locked=False)
    assert remove_stale(tmp_path, PREFIX) == [dead]
    assert not dead.exists()


def test_without_a_lock_nothing_but_an_empty_folder_goes(tmp_path: Path) -> None:
    folder = dead_folder(tmp_path, locked=False)
    (folder / "file").write_text("x")
    assert remove_stale(tmp_path, PREFIX) == []
    assert (folder / "file").exists()


def test_others_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = dead_folder(tmp_path)
    elsewhere = tmp_path / f"{PREFIX}another-machine-x"
    shutil.copytree(dead, elsewhere)
    other_prefix = tmp_path / f"theirs-{socket.gethostname()}-x"
    shutil.copytree(dead, other_prefix)
    link = tmp_path / f"{PREFIX}{socket.gethostname()}-link"
    link.symlink_to(other_prefix, target_is_directory=True)
    (tmp_path / f"{PREFIX}{socket.gethostname()}-file").touch()
    assert remove_stale(tmp_path, PREFIX) == [dead]
    assert (other_prefix / "sub" / "file").exists()
    assert link.is_symlink()
    assert elsewhere.exists()

    dead_folder(tmp_path)
    monkeypatch.setattr(owned_folders.os, "getuid", lambda: os.geteuid() + 1)
    assert remove_stale(tmp_path, PREFIX) == []


def test_a_root_that_is_not_there(tmp_path: Path) -> None:
    assert remove_stale(tmp_path / "absent", PREFIX) == []


@pytest.mark.parametrize("moment", ["before the lock file", "before the lock"])
def test_a_folder_taken_for_a_dead_one_while_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    taken: list[Path] = []
    if moment == "before the lock":
        real_lock = owned_folders.fcntl.flock

        def flock(fd: int, how: int) -> None:
            if not taken:
                monkeypatch.setattr(owned_folders.fcntl, "flock", real_lock)
                taken.extend(remove_stale(tmp_path, PREFIX))
            real_lock(fd, how)

        monkeypatch.setattr(owned_folders.fcntl, "flock", flock)
    else:
        real_make = owned_folders.tempfile.mkdtemp

        def mkdtemp(**supplied: str) -> str:
            path = real_make(**supplied)
            if not taken:
                taken.extend(remove_stale(tmp_path, PREFIX))
            return path

        monkeypatch.setattr(owned_folders.tempfile, "mkdtemp", mkdtemp)
    with OwnedFolder(tmp_path, PREFIX) as folder:
        assert len(taken) == 1
        assert taken[0] != folder.path
        assert list(tmp_path.iterdir()) == [folder.path]
        assert is_locked(folder.lock)


def test_many_at_once(tmp_path: Path) -> None:
    """Makers and removers of several threads never take a folder that is owned."""
    lost: list[Path] = []

    def make_and_remove() -> None:
        for _ in range(40):
            with OwnedFolder(tmp_path, PREFIX) as folder:
                remove_stale(tmp_path, PREFIX)
                if not folder.lock.exists():
                    lost.append(folder.path)

    threads = [threading.Thread(target=make_and_remove) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lost == []
    remove_stale(tmp_path, PREFIX)
    assert list(tmp_path.iterdir()) == []


def owner(root: Path, then: str) -> subprocess.Popen[str]:
    """Return a process that owns a folder and prints its lock."""
    code = (
        "import subprocess, sys, time\n"
        "from shared.storage.owned_folders import OwnedFolder\n"
        f"folder = OwnedFolder({str(root)!r}, {PREFIX!r})\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(60)']\n"
        f"{then}\n"
        "print(folder.lock, child.pid if 'child' in globals() else 0, flush=True)\n"
        "time.sleep(60)\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("shared", [False, True])
def test_a_killed_owner_and_its_child(tmp_path: Path, shared: bool) -> None:
    """The child owns the folder as well only where it was given the descriptor."""
    passed = "pass_fds=[folder.fd]" if shared else ""
    with owner(tmp_path, f"child = subprocess.Popen(sleep, {passed})") as process:
        assert process.stdout is not None
        lock, child = process.stdout.readline().split()
        try:
            assert is_locked(lock)
            process.kill()
            process.wait()
            assert is_locked(lock) is shared
            assert [path.name for path in remove_stale(tmp_path, PREFIX)] == (
                [] if shared else [Path(lock).parent.name]
            )
        finally:
            os.kill(int(child), signal.SIGKILL)


def test_nobody_adds_to_a_folder_that_is_being_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = OwnedFolder(tmp_path, PREFIX)
    real = shutil.rmtree

    def rmtree(path: Path, *, ignore_errors: bool) -> None:
        with pytest.raises(FileNotFoundError):
            (folder.path / "late").touch()
        assert remove_stale(tmp_path, PREFIX) == []
        real(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(owned_folders.shutil, "rmtree", rmtree)
    folder.close()
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


def test_only_what_nobody_else_can_have_written_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    assert not is_trusted(file)
    file.touch(0o644)
    assert is_trusted(file)
    assert is_trusted(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(file)
    assert not is_trusted(link)
    file.chmod(0o666)
    assert not is_trusted(file)
    file.chmod(0o644)
    real = os.lstat

    def lstat(path: Path) -> os.stat_result:
        actual = list(real(path))
        actual[stat.ST_UID] = os.getuid() + 1
        return os.stat_result(actual)

    monkeypatch.setattr(owned_folders.os, "lstat", lstat)
    assert not is_trusted(file)
