"""Table folders on a local disk: one step for readers, durable, safe against SIGKILL."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

import shared
from shared.errors import DestinationError
from shared.storage import owned_folders
from shared.storage.owned_folders import LOCKS_NAME
from target_spark.destinations.folders import stored_folder
from target_spark.destinations.folders.stored_folder import (
    LocalFolder,
    exchange,
    exchange_in_two_steps,
    link_tree,
    make_folders,
)
from target_spark.destinations.folders.table_folder import FolderChange

pytestmark = pytest.mark.once

FILES_PER_FLUSH = 3


def put(folder: LocalFolder, flush: int, count: int = FILES_PER_FLUSH, **change: object) -> None:
    add = {}
    for number in range(count):
        pending = Path(folder.pending) / f"{flush}-{number}"
        pending.write_text(str(flush))
        add[str(pending)] = f"part-{flush:013d}-{number}.x"
    folder.publish(FolderChange(add, **change))


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_folder, "GRACE_SECONDS", 0.02)


@pytest.fixture
def folder(tmp_path: Path) -> LocalFolder:
    opened = LocalFolder(str(tmp_path / "t"), "run").open()
    yield opened
    opened.close()


@pytest.fixture
def _grace_of_a_busy_machine(monkeypatch: pytest.MonkeyPatch, _short_grace: None) -> None:
    """A listing may be kept waiting between its two steps."""
    monkeypatch.setattr(stored_folder, "GRACE_SECONDS", 0.4)


def hidden(place: Path) -> list[str]:
    return sorted(name for name in os.listdir(place) if name.startswith("."))


def test_nothing_is_visible_before_a_commit(folder: LocalFolder, tmp_path: Path) -> None:
    (Path(folder.pending) / "part").write_text("x")
    assert folder.files() == ()
    assert folder.side() is None
    assert [name for name in os.listdir(tmp_path) if not name.startswith(".")] == []


def test_one_file(folder: LocalFolder) -> None:
    put(folder, 1, 1)
    inode = os.stat(folder.table).st_ino
    put(folder, 2, 1)
    assert os.stat(folder.table).st_ino == inode
    assert folder.files() == tuple(f"part-{flush:013d}-0.x" for flush in (1, 2))


def test_several_files_with_a_side_file(folder: LocalFolder) -> None:
    put(folder, 1, side=b"{}")
    put(folder, 2)
    put(folder, 3, side=b"[]")
    assert len(folder.files()) == 3 * FILES_PER_FLUSH
    assert folder.side() == b"[]"
    assert os.listdir(folder.pending) == []


def test_dropped_files_go_in_the_same_step(folder: LocalFolder) -> None:
    put(folder, 1)
    put(folder, 2, drop=frozenset(folder.files()))
    assert folder.files() == tuple(f"part-{2:013d}-{n}.x" for n in range(3))


def test_a_path_that_a_reader_holds_stays_valid(folder: LocalFolder) -> None:
    put(folder, 1)
    held = Path(folder.table) / folder.files()[0]
    put(folder, 2)
    put(folder, 3)
    assert held.read_text() == "1"


def test_a_listing_begun_before_the_exchange_is_whole(folder: LocalFolder) -> None:
    put(folder, 1)
    with os.scandir(folder.table) as begun:
        put(folder, 2)
        names = {entry.name for entry in begun}
    assert len(names) in (FILES_PER_FLUSH, 2 * FILES_PER_FLUSH)


def test_closing_leaves_only_the_lock(folder: LocalFolder, tmp_path: Path) -> None:
    put(folder, 1)
    put(folder, 2)
    folder.close()
    assert hidden(tmp_path) == [".t.lock"]


def test_a_disk_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What may be of a living run stays."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(owned_folders.fcntl, "flock", fail)
    monkeypatch.setattr(owned_folders, "_set_lock", fail)
    (tmp_path / ".t.run-other").mkdir()
    opened = LocalFolder(str(tmp_path / "t"), "run").open()
    with opened.locked():
        put(opened, 1)
    opened.close()
    assert len(opened.files()) == FILES_PER_FLUSH
    assert (tmp_path / ".t.run-other").is_dir()


def test_an_empty_change_does_nothing(folder: LocalFolder) -> None:
    folder.publish(FolderChange({}))
    assert not Path(folder.table).exists()


def test_a_side_file_alone_makes_the_table(folder: LocalFolder) -> None:
    folder.publish(FolderChange({}, side=b"{}"))
    assert os.listdir(folder.table) == []
    assert folder.side() == b"{}"


def test_parents_are_made(tmp_path: Path) -> None:
    opened = LocalFolder(str(tmp_path / "a" / "b" / "t"), "run").open()
    put(opened, 1)
    opened.close()
    assert len(os.listdir(tmp_path / "a" / "b" / "t")) == FILES_PER_FLUSH


def test_a_linked_table_is_changed_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "disk" / "real").mkdir(parents=True)
    (tmp_path / "t").symlink_to(tmp_path / "disk" / "real")
    opened = LocalFolder(str(tmp_path / "t"), "run").open()
    put(opened, 1)
    opened.close()
    assert (tmp_path / "t").is_symlink()
    assert len(os.listdir(tmp_path / "t")) == FILES_PER_FLUSH


def test_folders_inside_the_table_are_kept(folder: LocalFolder) -> None:
    put(folder, 1)
    (Path(folder.table) / "_notes" / "deep").mkdir(parents=True)
    (Path(folder.table) / "_notes" / "deep" / "a").write_text("kept")
    put(folder, 2)
    assert (Path(folder.table) / "_notes" / "deep" / "a").read_text() == "kept"


def test_permissions_of_the_folder_are_kept(folder: LocalFolder) -> None:
    put(folder, 1)
    Path(folder.table).chmod(0o750)
    put(folder, 2)
    assert Path(folder.table).stat().st_mode & 0o777 == 0o750


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("x")
    with pytest.raises(
        DestinationError, match=r"Not a directory.*a file exists where a folder is needed"
    ):
        LocalFolder(str(tmp_path / "t"), "run").open()
    with pytest.raises(DestinationError, match="a file exists where a folder is needed"):
        LocalFolder(str(tmp_path / "t" / "deeper"), "run").open()


@pytest.mark.parametrize("written", [0, 1])
def test_a_disk_that_is_full_during_a_change(
    folder: LocalFolder, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """The second side file only confirms what readers have: its failure is none of the commit."""
    put(folder, 1, side=b"before")
    write, left = Path.write_bytes, [written]

    def fill(path: Path, data: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        left[0] -= 1
        return write(path, data)

    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", fill)
        with nullcontext() if written else pytest.raises(DestinationError, match="No space"):
            put(folder, 2, side=b"after")
    assert len(folder.files()) == FILES_PER_FLUSH * (1 + written)
    assert folder.side() == (b"after" if written else b"before")
    put(folder, 3, side=b"last")
    assert len(folder.files()) == FILES_PER_FLUSH * (2 + written)
    assert folder.side() == b"last"


def test_a_place_that_cannot_be_written() -> None:
    with pytest.raises(DestinationError, match=r"cannot write to '/proc/nowhere/t': "):
        LocalFolder("/proc/nowhere/t", "run").open()


def test_folders_of_living_runs_stay_and_of_dead_ones_go(tmp_path: Path) -> None:
    living = LocalFolder(str(tmp_path / "t"), "living").open()
    dead = tmp_path / ".t.run-dead" / "pending"
    dead.mkdir(parents=True)
    other = tmp_path / ".u.run-other"
    other.mkdir()
    opened = LocalFolder(str(tmp_path / "t"), "new").open()
    assert hidden(tmp_path) == [
        LOCKS_NAME,
        ".t.lock",
        ".t.run-living",
        ".t.run-new",
        ".u.run-other",
    ]
    opened.close()
    living.close()


def test_hidden_folders_of_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_folder, "libc_function", lambda _: None)
    theirs = [tmp_path / f".t.{name}" for name in ("old", "next", "run-backup")]
    for path in theirs:
        path.mkdir()
        (path / "part-1.x").touch()
    for flush, run in enumerate(("a", "b")):
        opened = LocalFolder(str(tmp_path / "t"), run).open()
        put(opened, flush)
        opened.close()
    assert all((path / "part-1.x").exists() for path in theirs)


def test_names_with_glob_characters(tmp_path: Path) -> None:
    (tmp_path / ".a.run-x").mkdir()
    opened = LocalFolder(str(tmp_path / "[a]*"), "run").open()
    put(opened, 1)
    opened.close()
    assert (tmp_path / ".a.run-x").is_dir()


def test_two_runs_on_one_table(tmp_path: Path) -> None:
    runs = [LocalFolder(str(tmp_path / "t"), name).open() for name in ("a", "b")]

    def work(place: LocalFolder, base: int) -> None:
        for flush in range(base, base + 10):
            with place.locked():
                put(place, flush)

    threads = [threading.Thread(target=work, args=(run, 100 * i)) for i, run in enumerate(runs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(runs[0].files()) == 20 * FILES_PER_FLUSH
    for run in runs:
        run.close()


@pytest.mark.usefixtures("_grace_of_a_busy_machine")
def test_a_busy_reader_sees_whole_flushes_only(folder: LocalFolder) -> None:
    seen: list[int] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            names = [n for n in os.listdir(folder.table) if not n.startswith((".", "_"))]
            for name in names[:2]:
                (Path(folder.table) / name).read_text()
            seen.append(len(names))

    put(folder, 0)
    reader = threading.Thread(target=read)
    reader.start()
    for flush in range(1, 7):
        put(folder, flush, side=b"x" if flush % 4 == 0 else None)
    stop.set()
    reader.join()
    assert seen == sorted(seen)
    assert {count % FILES_PER_FLUSH for count in seen} == {0}


@pytest.mark.usefixtures("_grace_of_a_busy_machine")
def test_replacing_everything_never_shows_a_mixture(folder: LocalFolder) -> None:
    views: set[frozenset[str]] = set()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            views.add(frozenset(name[:10] for name in os.listdir(folder.table)))

    put(folder, 0)
    reader = threading.Thread(target=read)
    reader.start()
    for flush in range(1, 7):
        put(folder, flush, drop=frozenset(folder.files()))
    stop.set()
    reader.join()
    assert {len(view) for view in views} == {1}


def test_link_tree_shares_the_data(tmp_path: Path) -> None:
    make_folders(tmp_path / "a" / "b")
    (tmp_path / "a" / "b" / "f").write_text("x")
    (tmp_path / "a" / "g").write_text("y")
    (tmp_path / "c").mkdir()
    link_tree(tmp_path / "a", tmp_path / "c", frozenset({"g"}))
    assert os.listdir(tmp_path / "c") == ["b"]
    assert (tmp_path / "c" / "b" / "f").samefile(tmp_path / "a" / "b" / "f")


class TestExchange:
    @pytest.fixture
    def pair(self, tmp_path: Path) -> tuple[str, str, str]:
        for name in ("new", "table"):
            (tmp_path / name).mkdir()
            (tmp_path / name / name).touch()
        return str(tmp_path / "new"), str(tmp_path / "table"), str(tmp_path / "spare")

    @pytest.mark.parametrize("function", [exchange, exchange_in_two_steps])
    def test_exchange(self, pair: tuple[str, str, str], function: object) -> None:
        function(*pair)
        assert os.listdir(pair[1]) == ["new"]
        assert os.listdir(pair[2]) == ["table"]
        assert not Path(pair[0]).exists()

    def test_without_support(self, pair: tuple[str, str, str], monkeypatch: object) -> None:
        monkeypatch.setattr(stored_folder, "libc_function", lambda _: None)
        exchange(*pair)
        assert os.listdir(pair[1]) == ["new"]

    def test_refused_by_the_file_system(
        self, pair: tuple[str, str, str], monkeypatch: object
    ) -> None:
        import ctypes
        import errno

        def refuse(*_: object) -> int:
            ctypes.set_errno(errno.EINVAL)
            return -1

        monkeypatch.setattr(stored_folder, "libc_function", lambda _: refuse)
        exchange(*pair)
        assert os.listdir(pair[1]) == ["new"]

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            exchange(str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "c"))

    def test_second_step_fails(self, pair: tuple[str, str, str]) -> None:
        Path(pair[0], "new").unlink()
        Path(pair[0]).rmdir()
        with pytest.raises(FileNotFoundError):
            exchange_in_two_steps(*pair)
        assert os.listdir(pair[1]) == ["table"]


def killed_at_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, steps: str, rename: int
) -> None:
    """Load twice into a table; die at one of the steps of the second load."""
    if steps == "two":
        monkeypatch.setattr(stored_folder, "libc_function", lambda _: None)
    killed = LocalFolder(str(tmp_path / name), "killed").open()
    put(killed, 1)

    steps_left = iter([True] * (rename - 1))

    def dying(*paths: str) -> None:
        if not next(steps_left, False):
            raise KeyboardInterrupt
        (os.rename if len(paths) > 1 else os.unlink)(*paths)

    steps_of = {"rename": dying, "unlink": dying}
    monkeypatch.setattr(stored_folder, "os", SimpleNamespace(**{**vars(os), **steps_of}))
    with pytest.raises(KeyboardInterrupt):
        put(killed, 2)
    monkeypatch.undo()
    assert killed._alive is not None
    killed._alive.release()  # as the end of the process does


NAMES = (
    "t",
    "t.run-old",
    "old-1",
    "t.old-1",
    "t.next-1",
    "replaced-1",
    "t.lock",
    "t.old",
    "t.next",
    "t.exchange",
    "t.run-killed",
    "t.run-killed.run-x",
    "[t].*",
    "t+(a|b)$",
)
"""Of tables; some look like what runs leave."""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rename", [1, 2, 3])
def test_a_run_killed_between_two_renames_is_put_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rename: int, name: str
) -> None:
    killed_at_rename(tmp_path, monkeypatch, name, "two", rename)
    for other in NAMES:
        if other != name:
            opened = LocalFolder(str(tmp_path / other), "run").open()
            assert opened.files() == ()
            opened.close()
    opened = LocalFolder(str(tmp_path / name), "run").open()
    assert {file[:18] for file in opened.files()} >= {f"part-{1:013d}"}
    assert len(opened.files()) == (2 if rename == 3 else 1) * FILES_PER_FLUSH
    opened.close()
    assert not (tmp_path / f".{name}.run-killed").exists()


@pytest.mark.parametrize(("steps", "rename"), [("one", 1), ("two", 3)])
def test_a_table_that_was_removed_after_a_kill_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: str, rename: int
) -> None:
    killed_at_rename(tmp_path, monkeypatch, "t", steps, rename)
    assert len(os.listdir(tmp_path / "t")) == 2 * FILES_PER_FLUSH
    shutil.rmtree(tmp_path / "t")
    opened = LocalFolder(str(tmp_path / "t"), "run").open()
    assert opened.files() == ()
    assert not (tmp_path / ".t.run-killed").exists()
    opened.close()


WRITER = """
import sys
from pathlib import Path
from target_spark.destinations.folders.table_folder import FolderChange
from target_spark.destinations.folders.stored_folder import LocalFolder
from target_spark.destinations.folders import stored_folder
stored_folder.GRACE_SECONDS = 0.0
if sys.argv[2] == "two steps":
    stored_folder.libc_function = lambda _: None
folder = LocalFolder(sys.argv[1], sys.argv[3]).open()
flush = len(folder.files()) // 3
print("ready", flush, flush=True)
while True:
    add = {}
    for number in range(3):
        pending = Path(folder.pending) / f"{flush}-{number}"
        pending.write_text(str(flush))
        add[str(pending)] = f"part-{flush:013d}-{number}.x"
    with folder.locked():
        folder.publish(FolderChange(add, side=str(flush).encode()))
    print(flush, flush=True)
    flush += 1
"""


@pytest.mark.parametrize("variant", ["one step", "two steps"])
def test_killed_at_random_points(tmp_path: Path, variant: str, seed: int) -> None:
    chance = random.Random(seed)
    root = Path(shared.__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(root)}
    reported = -1
    for attempt in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "t"), variant, f"{seed}-{attempt}"],
            stdout=subprocess.PIPE,
            env=env,
        )
        assert process.stdout is not None
        ready = process.stdout.readline().split()
        assert int(ready[1]) > reported
        reported = int(ready[1]) - 1  # A flush may have ended before its line was written.
        time.sleep(chance.random() * 0.2)
        process.send_signal(signal.SIGKILL)
        lines = process.stdout.read().split()
        process.wait()
        reported = max([reported, *map(int, lines)])
        check = LocalFolder(str(tmp_path / "t"), f"check-{attempt}").open()
        names = check.files()
        check.close()
        flushes = len(names) // FILES_PER_FLUSH
        assert flushes in (reported + 1, reported + 2)
        expected = [f"part-{f:013d}-{n}.x" for f in range(flushes) for n in range(FILES_PER_FLUSH)]
        assert list(names) == expected
    assert hidden(tmp_path) == [".t.lock", ".t.schema"]
