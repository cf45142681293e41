"""Table folders on local disks and in object stores.

On a disk every change is one step for readers, and durable. A single new file is renamed into the
folder. Any larger change builds a complete new folder of hard links beside the old one and
exchanges the two, atomically if the system supports it, so that a listing shows all or nothing,
while paths that a reader already holds stay valid.

Object stores and other fsspec systems cannot rename folders: each file appears in one step, and a
flush of several files file by file. The side file is written first: readers never find columns that
it does not list.
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
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, cached_property, lru_cache
from inspect import signature
from pathlib import Path
from typing import Any

from shared.storage.access import NO_OPTIONS, StorageOptions, delete_all, make_durable, remote
from shared.storage.owned_folders import NameLock, lock_name, without_locks_too
from shared.storage.urls import S3_SCHEMES, join, local_path
from target_spark.destinations.folders.table_folder import (
    SIDE,
    FolderChange,
    announced,
    holding,
    is_partition,
    is_settled,
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
    rename = libc_function("renameat2")
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
    record = put_right(second)
    parent = str(record.parent)
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


def put_right(folder: str) -> Path:
    """Restore a folder if a killed run has moved it aside, and not put another one in its place.

    Otherwise a folder that is missing was removed by others, and stays removed.

    Returns:
        The file beside it that says which folders are exchanged, as long as they are.
    """
    parent, name = os.path.split(folder)
    record = Path(parent, f".{name}.exchange")
    if record.exists():
        with suppress(ValueError):  # Cut off, as no rename had begun.
            new, old = (os.path.join(parent, path) for path in json.loads(record.read_bytes()))  # noqa: PTH118
            if os.path.lexists(new) and os.path.lexists(old) and not os.path.lexists(folder):
                os.rename(old, folder)  # noqa: PTH104
        os.unlink(record)  # noqa: PTH108
    return record


@cache
def libc_function(name: str) -> Callable[..., int] | None:
    """Return a function of the C library, which sets `ctypes.get_errno`; None if it is missing."""
    try:
        function: Callable[..., int] = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (AttributeError, OSError, TypeError):
        return None
    return function


GRACE_SECONDS = 0.2
"""How long a replaced folder is kept for readers that have already listed it."""
_RUN = ".run-"
_KEPT = re.compile(r"pending|schema|(?:next|replaced)-\d+")


class LocalFolder:
    """A table's folder on a disk, and what is hidden beside it: the folder of this run.

    For a table `t` these are `.t.schema`, `.t.lock` and `.t.run-<run>/`.

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
        self._side = Path(f"{self._beside}{SIDE}")
        self._run = Path(f"{self._beside}{_RUN}{run}")
        self._search = search or run
        self.pending = str(self._run / "pending")
        self._alive: NameLock | None = None
        self._retired: list[tuple[Path, float]] = []
        self._serial = 0

    def open(self, *, restores: bool = True) -> LocalFolder:
        """Create this run's hidden folder and remove those of dead runs.

        With `restores`, complete or undo changes of the table that a killed run has begun: needed
        if tables change by `publish`.

        Raises:
            DestinationError: The folder cannot be written.
        """
        with writing(self.table):
            make_folders(self._path.parent)
            if self._path.exists() and not self._path.is_dir():
                raise NotADirectoryError(20, os.strerror(20), self.table)
            with self.locked():
                # Under the lock: a living run may be between its two renames.
                if restores:  # First a table that was lost between two renames.
                    put_right(self.table)
                for run in _runs_in(self._path.parent, self._search).get(self._beside.name, ()):
                    if run != self._run and _is_of_run(run) and _dead(run):
                        shutil.rmtree(run, ignore_errors=True)
                Path(self.pending).mkdir(parents=True)
                with without_locks_too():
                    self._alive = lock_name(self._run.parent, self._run.name)
                if restores:
                    self._settle()
        return self

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the table against other target processes; wait for them."""
        with writing(self.table):
            descriptor = os.open(f"{self._beside}.lock", os.O_CREAT | os.O_RDWR, 0o666)
            try:
                with without_locks_too():
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)

    def files(self) -> tuple[str, ...]:
        """Return the names of all visible files, sorted; none if there is not a folder yet.

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
        return holding(_content(self._side), self.files())

    def publish(self, change: FolderChange) -> None:
        """Apply a change in one step.

        Raises:
            DestinationError: The disk failed; nothing has changed for readers.
        """
        with writing(self.table):
            self._remove_retired()
            self._settle()
            # One more file: its rename is the one step.
            one_file = len(change.add) == 1 and not change.drop and change.side is None
            if one_file and self._path.exists():
                [(pending, name)] = change.add.items()
                place = self._path / name
                make_folders(place.parent)
                Path(pending).rename(place)
                make_durable(str(place.parent))
            elif change.add or change.drop or change.side is not None:
                self._replace(change.add, change.drop, change.side)

    def close(self) -> None:
        """Remove the hidden folder of this run."""
        with writing(self.table):
            self._remove_retired()
        shutil.rmtree(self._run, ignore_errors=True)
        if self._alive is not None:
            self._alive.release()
            self._alive = None

    def _settle(self) -> None:
        """Write what holds after a change of the folder that has failed."""
        content = _content(self._side)
        if content is not None and not is_settled(content):
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

    def _replace(self, add: Mapping[str, str], drop: frozenset[str], side: bytes | None) -> None:
        """Replace the table by a folder with a change applied, in one step."""
        # 1. Build it aside, of hard links.
        self._serial += 1
        complete = self._run / f"next-{self._serial}"
        complete.mkdir()
        if self._path.exists():
            link_tree(self._path, complete, drop)
        for pending, name in add.items():
            make_folders((complete / name).parent)
            os.link(pending, complete / name)
        for inside in {(complete / name).parent for name in add.values()} - {complete}:
            make_durable(str(inside))
        make_durable(str(complete))
        # 2. Announce the new side file beside the one that holds. Whoever comes after a crash knows
        #    by the first new file which of the two holds.
        if side is not None:
            self._write_side(announced(side, self.side(), next(iter(add.values()), None)))
        # 3. Exchange the folders.
        if self._path.exists():
            spare = self._run / f"replaced-{self._serial}"
            exchange(str(complete), self.table, str(spare))
            self._retired.append((spare, time.monotonic()))
        else:
            complete.rename(self._path)
        make_durable(str(self._path.parent))
        # Also the folder that the old table has moved to, or a crash of the machine might show it
        # twice.
        make_durable(str(self._run))
        # 4. Readers have the change. `_settle` and the end of the run do what fails now.
        with suppress(OSError):
            if side is not None:
                self._write_side(side)
            for pending in add:
                Path(pending).unlink()

    def _remove_retired(self) -> None:
        while self._retired:
            folder, since = self._retired.pop()
            time.sleep(max(0.0, since + GRACE_SECONDS - time.monotonic()))
            shutil.rmtree(folder, ignore_errors=True)


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
    """Fill an empty folder with hard links to everything in another one, except files to drop.

    Their names are below the folder that the first call names; `above` is that of `source` there.
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
    """Return whether a run is known to be dead: a living run holds the name of its folder."""
    with suppress(BlockingIOError), without_locks_too():
        lock_name(run.parent, run.name).release()
        return True
    return False


COPIERS = 16
"""Files that the storage copies at the same time."""


class RemoteFolder:
    """See `LocalFolder`. Hidden siblings of a table `t`: `.t.schema`, `.t.run-<run>/`."""

    def __init__(self, table: str, run: str, options: StorageOptions = NO_OPTIONS) -> None:
        self.table = table
        self.options = options
        parent, _, name = table.rstrip("/").rpartition("/")
        self._run = join(parent, f".{name}.run-{run}")
        self.pending = join(self._run, "pending")
        self._seen: dict[str, Any] | None = None

    @cached_property
    def _place(self) -> tuple[Any, str]:
        return remote(self.table, self.options)

    def open(self, *, restores: bool = True) -> RemoteFolder:  # noqa: ARG002
        """Check that the file system of the URL can be used.

        Raises:
            DestinationError: It cannot be used.
        """
        with writing(self.table, self.options):
            _ = self._place
        return self

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Read the folder once within the block: object stores do not have a common lock."""
        with writing(self.table, self.options):
            self._seen = {}
            try:
                yield
            finally:
                self._seen = None

    def files(self) -> tuple[str, ...]:
        names = set(map(_listed_remotely, self._names()))
        return tuple(sorted(name for name in names if all(map(visible, name.split("/")))))

    def side(self) -> bytes | None:
        return self._found_side()[0]

    def publish(self, change: FolderChange) -> None:
        """Write the side file, copy every file, then remove the files that they replace.

        Files that are not in the hidden folder of this run stay: they belong to others. May be
        repeated after a failure: files are removed only after all others are there.

        Raises:
            DestinationError: The storage failed; some of the files may be visible.
        """
        filesystem, path = self._place
        with writing(self.table, self.options):
            before, must_write = self._found_side()
            side = before if change.side is None and must_write else change.side
            if side is not None:
                self._make(path)
                marker = next(iter(change.add.values()), None)
                filesystem.pipe_file(self._side, announced(side, before, marker))
            moves = {filesystem._strip_protocol(p): join(path, n) for p, n in change.add.items()}
            inside = {place.rpartition("/")[0] for place in moves.values()} - {path.rstrip("/")}
            for folder in sorted(inside):
                self._make(folder)
            with ThreadPoolExecutor(COPIERS, "copy") as copiers:
                list(copiers.map(filesystem.cp_file, moves, moves.values()))
            own = (url for url in change.add if url.startswith(f"{self._run}/"))
            gone = [*(join(self.table, name) for name in change.drop), *own]
            for _, error in delete_all(gone, self.options):
                raise error
            if side is not None:
                filesystem.pipe_file(self._side, side)
            filesystem.invalidate_cache(path)
            self._seen = None

    def close(self) -> None:
        filesystem, _ = self._place
        inside = filesystem._strip_protocol(self._run)
        with writing(self.table, self.options):
            if self._paths(inside):
                filesystem.rm(inside, recursive=True)

    def _found_side(self) -> tuple[bytes | None, bool]:
        """Return the content that holds, and whether the next change must write it anew."""
        content = self._once("side", self._content)
        if content is None:
            return None, False
        return holding(content, self.files()), not is_settled(content)

    def _names(self) -> list[str]:
        """Return the names of all files below the folder."""
        _, path = self._place
        paths = self._once("names", lambda: self._paths(path))
        return [name.removeprefix(path).strip("/") for name in paths]

    def _once(self, what: str, read: Callable[[], Any]) -> Any:
        """Return what a request tells: within `locked` the first one of its kind."""
        if self._seen is None:
            return read()
        if what not in self._seen:
            self._seen[what] = read()
        return self._seen[what]

    def _paths(self, path: str) -> list[str]:
        """Return the paths of all files below one, without the objects that stand for folders."""
        filesystem, _ = self._place
        filesystem.invalidate_cache()
        # By its own path, a folder without files takes two requests more.
        parent, _, name = path.rstrip("/").rpartition("/")
        wanted, more = (parent, {"prefix": f"{name}/"}) if self._is_s3 else (path, {})
        try:
            names = filesystem.find(wanted, **more)
        except FileNotFoundError:
            return []
        # An older s3fs names the parent if there is nothing.
        return [one for one in names if one != wanted and not one.endswith("/")]

    def _make(self, folder: str) -> None:
        if not self._is_s3:  # There, none has to exist, and a request looks for the bucket.
            self._place[0].makedirs(folder, exist_ok=True)

    @property
    def _is_s3(self) -> bool:
        return self.table.startswith(S3_SCHEMES)

    @property
    def _side(self) -> str:
        parent, _, name = self._place[1].rstrip("/").rpartition("/")
        return join(parent, f".{name}{SIDE}")

    def _content(self) -> bytes | None:
        """Return the side file; None if there is none."""
        filesystem, table = self._place
        filesystem.invalidate_cache(table)
        # In one piece, S3 need not be asked for the size before; an older s3fs does not ask.
        read = getattr(filesystem, "_cat_file", filesystem.cat_file)
        is_divided = "max_concurrency" in signature(read).parameters
        whole = {"max_concurrency": 1} if is_divided else {}
        try:
            return bytes(filesystem.cat_file(self._side, **whole))
        except FileNotFoundError:
            return None


def _listed_remotely(name: str) -> str:
    """Return what the listing of a table shows for a file below it: itself, or a folder."""
    *folders, _ = name.split("/")
    for number, folder in enumerate(folders, 1):
        if not is_partition(folder):
            return "/".join(folders[:number])
    return name


TableFolder = LocalFolder | RemoteFolder


def folder_at(table: str, run: str, options: StorageOptions, search: str = "") -> TableFolder:
    """Return the folder of a path or URL, not opened; for `run` and `search` see `LocalFolder`."""
    path = local_path(table)
    return RemoteFolder(table, run, options) if path is None else LocalFolder(path, run, search)
