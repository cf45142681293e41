"""Table folders on a local disk: every change is one step for readers, and durable.

A single new file is renamed into the folder. Any larger change builds a complete new folder of
hard links beside the old one and exchanges the two, atomically if the system supports it, so that a
listing shows all or nothing, while paths that a reader already holds stay valid.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path

from shared.storage.access import NO_OPTIONS, make_durable
from shared.storage.owned_folders import NameLock, lock_name
from target_spark.destinations.folders.table_folder import (
    OLD_SIDE_FILE,
    FolderChange,
    announced,
    holding,
    is_partition,
    is_settled,
    side_name,
    visible,
    writing,
)

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM})


def exchange(first: str, second: str, spare: str) -> None:
    """Exchange two existing folders; afterwards `spare` holds what `second` held.

    On Linux file systems with `RENAME_EXCHANGE` (ext4, xfs, btrfs, tmpfs, overlayfs) this is one
    step. Elsewhere `second` is moved aside and `first` to `second`: in between, readers do not find
    the folder; `put_right` mends what a run leaves that is killed there.

    Raises:
        OSError: One of the folders cannot be renamed.
    """
    rename = _renameat2()
    if rename is not None:
        code = rename(
            _AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE
        )
        if code == 0:
            os.rename(first, spare)  # noqa: PTH104
            return
        number = ctypes.get_errno()
        if number not in _UNSUPPORTED:
            raise OSError(number, os.strerror(number), second)
    exchange_in_two_steps(first, second, spare)


def exchange_in_two_steps(first: str, second: str, spare: str) -> None:
    """Exchange by two renames: `second` becomes `spare`, then `first` becomes `second`.

    A record beside `second` says so as long as they last.
    """
    put_right(second)
    parent, record = _record(second)
    record.write_text(json.dumps([os.path.relpath(path, parent) for path in (first, spare)]))
    make_durable(str(record))
    make_durable(parent)
    os.rename(second, spare)  # noqa: PTH104
    try:
        os.rename(first, second)  # noqa: PTH104
    except OSError:
        os.rename(spare, second)  # noqa: PTH104
        raise
    os.unlink(record)  # noqa: PTH108


def put_right(folder: str) -> None:
    """Restore a folder if a killed run has moved it aside, and not put another one in its place.

    Otherwise a folder that is missing was removed by others, and stays removed.
    """
    parent, record = _record(folder)
    if not record.exists():
        return
    with suppress(ValueError):  # Cut off, as no rename had begun.
        new, old = (os.path.join(parent, name) for name in json.loads(record.read_bytes()))  # noqa: PTH118
        if os.path.lexists(new) and os.path.lexists(old) and not os.path.lexists(folder):
            os.rename(old, folder)  # noqa: PTH104
    os.unlink(record)  # noqa: PTH108


def _record(folder: str) -> tuple[str, Path]:
    """Return the parent of a folder, and the file there that says which folders are exchanged."""
    parent, name = os.path.split(folder)
    return parent, Path(parent, f".{name}.exchange")


@cache
def _renameat2() -> Callable[..., int] | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return None
    function.argtypes = [
        ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint,
    ]  # fmt: skip
    function.restype = ctypes.c_int
    return function


GRACE_SECONDS = 0.2
"""How long a replaced folder is kept for readers that have already listed it."""
_RUN = ".run-"
_KEPT = re.compile(r"pending|schema|(?:next|replaced)-\d+")


class LocalFolder:
    """See `TableFolder`. Hidden beside a table `t`: `.t.schema`, `.t.lock`, `.t.run-<run>/`.

    Args:
        table: Path of the folder.
        run: What tells it from others of the same table.
        search: What tables have in common that look for dead runs once; the run if empty.
    """

    options = NO_OPTIONS

    def __init__(self, table: str, run: str, search: str = "") -> None:
        self.table = os.path.realpath(table)
        self._path = Path(self.table)
        self._beside = self._path.parent / f".{self._path.name}"
        self._side = self._path.with_name(side_name(self._path.name))
        self._run = Path(f"{self._beside}{_RUN}{run}")
        self._search = search or run
        self.pending = str(self._run / "pending")
        self._alive: NameLock | None = None
        self._retired: list[tuple[Path, float]] = []
        self._serial = 0

    def open(self) -> LocalFolder:
        """Create this run's hidden folder and remove those of dead runs.

        Raises:
            DestinationError: The folder cannot be written.
        """
        with writing(self.table):
            make_folders(self._path.parent)
            if self._path.exists() and not self._path.is_dir():
                raise NotADirectoryError(20, os.strerror(20), self.table)
            with self._lock():
                self._recover()
                Path(self.pending).mkdir(parents=True)
                self._alive = lock_name(self._run.parent, self._run.name)
                self._settle()
        return self

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the table against other target processes; wait for them."""
        with writing(self.table), self._lock():
            yield

    def files(self) -> tuple[str, ...]:
        """Return the names of all visible files, sorted; empty if there is not a folder yet.

        Those in folders of partitions have names like `day=2026-01-31/part-1.parquet`.
        """
        try:
            return tuple(sorted(_listed(self.table)))
        except FileNotFoundError:
            return ()

    def side(self) -> bytes | None:
        """Return the content of the side file that holds; None if there is none."""
        if not self._path.exists():
            return None
        content = _content(self._side)
        old = _content(self._path / OLD_SIDE_FILE) if content is None else None
        return holding(content, self.files()) if old is None else old

    def publish(self, change: FolderChange) -> None:
        """Apply a change in one step.

        Raises:
            DestinationError: The disk failed; nothing has changed for readers.
        """
        with writing(self.table):
            self._remove_retired()
            self._settle()
            side, drop = change.side, change.drop
            if (self._path / OLD_SIDE_FILE).exists():
                side, drop = side or self.side(), drop | {OLD_SIDE_FILE}
            one_file = len(change.add) == 1 and not drop and side is None
            if one_file and self._path.exists():
                [(pending, name)] = change.add.items()
                place = self._path / name
                make_folders(place.parent)
                Path(pending).rename(place)
                make_durable(str(place.parent))
            elif change.add or drop or side is not None:
                complete = self._built(change.add, drop)
                if side is not None:
                    marker = next(iter(change.add.values()), None)
                    self._write_side(announced(side, self.side(), marker))
                self._put(complete)
                if side is not None:
                    self._write_side(side)
                for pending in change.add:
                    Path(pending).unlink()

    def close(self) -> None:
        """Remove the hidden folder of this run."""
        with writing(self.table):
            self._remove_retired()
        shutil.rmtree(self._run, ignore_errors=True)
        if self._alive is not None:
            self._alive.release()
            self._alive = None

    @contextmanager
    def _lock(self) -> Iterator[None]:
        descriptor = os.open(f"{self._beside}.lock", os.O_CREAT | os.O_RDWR, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _settle(self) -> None:
        """Write what holds after a change of the folder that has failed."""
        if not is_settled(_content(self._side)):
            self._write_side(self.side())

    def _write_side(self, content: bytes | None) -> None:
        """Replace the side file durably in one step; None removes it."""
        if content is None:
            self._side.unlink(missing_ok=True)
            return
        complete = self._run / "schema"
        complete.write_bytes(content)
        make_durable(str(complete))
        complete.rename(self._side)
        make_durable(str(self._side.parent))

    def _built(self, add: Mapping[str, str], drop: frozenset[str]) -> Path:
        """Return a complete folder of hard links with a change applied, beside the table."""
        self._serial += 1
        target = self._run / f"next-{self._serial}"
        target.mkdir()
        if self._path.exists():
            link_tree(self._path, target, drop)
        for pending, name in add.items():
            make_folders((target / name).parent)
            os.link(pending, target / name)
        for inside in {(target / name).parent for name in add.values()} - {target}:
            make_durable(str(inside))
        make_durable(str(target))
        return target

    def _put(self, complete: Path) -> None:
        """Replace the table by a complete folder, in one step."""
        self._serial += 1
        spare = self._run / f"replaced-{self._serial}"
        if self._path.exists():
            exchange(str(complete), self.table, str(spare))
            self._retired.append((spare, time.monotonic()))
        else:
            complete.rename(self._path)
        make_durable(str(self._path.parent))
        make_durable(str(self._run))

    def _remove_retired(self) -> None:
        while self._retired:
            folder, since = self._retired.pop()
            time.sleep(max(0.0, since + GRACE_SECONDS - time.monotonic()))
            shutil.rmtree(folder, ignore_errors=True)

    def _recover(self) -> None:
        """Remove the folders of dead runs; first restore a table lost between two renames."""
        put_right(self.table)
        for run in _runs_in(self._path.parent, self._search).get(self._beside.name, ()):
            if run != self._run and _is_of_run(run) and _dead(run):
                shutil.rmtree(run, ignore_errors=True)


@lru_cache(maxsize=8)
def _runs_in(folder: Path, search: str) -> Mapping[str, Sequence[Path]]:  # noqa: ARG001
    """Return the folders of runs that are there at the first look.

    One search serves all tables in the folder: one for each would take minutes with thousands.

    Returns:
        Hidden name of the table → its folders.
    """
    runs: dict[str, list[Path]] = {}
    for name in os.listdir(folder):  # noqa: PTH208
        table, begin, other = name.rpartition(_RUN)
        # With a dot it is the file of a table whose name has `.run-` in it.
        if begin and "." not in other:
            runs.setdefault(table, []).append(folder / name)
    return runs


def make_folders(path: Path) -> None:
    """Create a folder and its missing parents, each one durable."""
    if path.is_dir():
        return
    make_folders(path.parent)
    path.mkdir(exist_ok=True)
    make_durable(str(path.parent))


def link_tree(
    source: Path, target: Path, drop: frozenset[str] = frozenset(), above: str = ""
) -> None:
    """Fill `target` with hard links to everything in `source` except the names in `drop`.

    Args:
        source: A folder.
        target: An empty folder.
        drop: Names of files, below the folder that the first call names.
        above: What comes before the names of files in this folder.
    """
    for entry in os.scandir(source):
        name, place = above + entry.name, target / entry.name
        if entry.is_dir(follow_symlinks=False):
            place.mkdir()
            link_tree(Path(entry.path), place, drop, f"{name}/")
            make_durable(str(place))
            if is_partition(entry.name):
                with suppress(OSError):
                    place.rmdir()  # Only if nothing is left in it.
        elif name not in drop:
            os.link(entry.path, place, follow_symlinks=False)
    shutil.copystat(source, target)


def _listed(folder: str, above: str = "") -> Iterator[str]:
    """Yield the names of visible files in a folder, and in its folders of partitions."""
    for entry in os.scandir(folder):
        if not visible(entry.name):
            continue
        if is_partition(entry.name) and entry.is_dir(follow_symlinks=False):
            yield from _listed(entry.path, f"{above}{entry.name}/")
        else:
            yield above + entry.name


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _is_of_run(folder: Path) -> bool:
    """Return whether a folder has nothing but what a run keeps there."""
    try:
        return all(map(_KEPT.fullmatch, os.listdir(folder)))  # noqa: PTH208
    except OSError:  # It has been removed, or is a file of others.
        return False


def _dead(run: Path) -> bool:
    """Return whether a run is dead: a living run holds the name of its folder."""
    try:
        lock_name(run.parent, run.name).release()
    except BlockingIOError:
        return False
    return True
