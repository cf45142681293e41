"""RECORD lines on their way to Spark: files in a private folder, removed after the run."""

from __future__ import annotations

import contextlib
import os
import tempfile
from array import array
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from shared.encodings.encoding_format import Encoding
from shared.errors import DISK_FULL, DestinationError, SettingsError, Where
from shared.settings.checking import redacted
from shared.storage.owned_folders import OwnedFolder, remove_stale
from target_spark.core.load_plans import STAGED, InputFile
from target_spark.core.reader import Lines
from target_spark.destinations.folders.table_folder import WORK_PREFIX

OPEN_FILES = 64
BLOCK_BYTES = 1024 * 1024
BUFFER_BYTES = 128 * 1024
REUSED_BYTES = 16 * 1024 * 1024
"""Size from which a file is written over once its lines are loaded: for the system, new pages in
memory are most of the work of a write."""
REUSED_FILES = 2
STAGED_LINES = Encoding(STAGED)


@dataclass
class StagedFile:
    """A staging file being written; the line map is two plain integers per run of lines."""

    path: Path
    handle: BufferedWriter | None = None
    lines: int = 0
    size: int = 0
    next_line: int = 0
    runs: array[int] = field(default_factory=lambda: array("q"))


class Staging:
    """The staging files of one run.

    Used as a context manager: entering removes folders that killed runs have left in the same root,
    the first line makes the private folder, and leaving removes all files. Batch files need none.

    Args:
        root: Folder (or `file://` URL) for it. It is in the system's temporary folder if this is
            None, or the URL of an object store.
        open_files: Files kept open at a time; others are reopened for new lines.

    Raises:
        SettingsError: `root` is a `file:` URL of another machine.
        DestinationError: It cannot be written, or is full.
    """

    def __init__(self, root: str | None, *, open_files: int = OPEN_FILES) -> None:
        self.root = (_local_path(root) if root else None) or Path(tempfile.gettempdir())
        self._limit = open_files
        self._owned: OwnedFolder | None = None
        self._files: dict[int, StagedFile] = {}
        self._handles: OrderedDict[int, StagedFile] = OrderedDict()
        self._paths: dict[int, Path] = {}
        self._free: list[Path] = []

    def __enter__(self) -> Staging:
        with _named(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            remove_stale(self.root, WORK_PREFIX)
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            _abandon(file)
        if self._owned is not None:
            self._owned.close()

    def append(self, number: int, data: bytes | memoryview, lines: int, first_line: int) -> None:
        """Append lines to a file; create it if `number` is new.

        Raises:
            DestinationError: The disk is full, or the folder cannot be written.
        """
        file = self._files.get(number)
        if file is None:
            if self._owned is None:
                with _named(self.root):
                    self._owned = OwnedFolder(self.root, WORK_PREFIX)
            path = self._owned.path / f"{number:08d}.jsonl"
            file = self._files[number] = StagedFile(path)
            self._paths[number] = path
        with _named(file.path):
            if file.handle is None:
                while len(self._handles) >= self._limit:
                    _close(self._handles.popitem(last=False)[1])
                if self._free and not file.size:
                    self._free.pop().rename(file.path)
                mode = "r+b" if file.path.exists() else "xb"
                file.handle = BufferedWriter(FileIO(file.path, mode), BUFFER_BYTES)
                file.handle.seek(file.size)
            self._handles[number] = file
            self._handles.move_to_end(number)
            file.handle.write(data)
        if first_line != file.next_line:
            file.runs.extend((file.lines + 1, first_line))
        file.next_line = first_line + lines
        file.lines += lines
        file.size += len(data)

    def complete(self, number: int) -> InputFile:
        """Close a file for good; return it for the executors.

        Raises:
            DestinationError: The disk is full.
        """
        file = self._files.pop(number)
        self._handles.pop(number, None)
        with _named(file.path):
            _close(file)
            # It may be longer: an earlier file that was written over.
            os.truncate(file.path, file.size)
        line_map = tuple(zip(file.runs[::2], file.runs[1::2], strict=True))
        return InputFile(str(file.path), STAGED_LINES, file.lines, file.size, line_map)

    def cut(self, file: InputFile, before: int) -> InputFile:
        """Remove the lines from a line of stdin on from a completed file.

        Raises:
            DestinationError: The file cannot be changed.
        """
        lines = _lines_before(file, before)
        with _named(Path(file.url)), Path(file.url).open("rb+") as staged:
            size = _size_of(staged, lines)
            staged.truncate(size)
        return replace(file, rows=lines, size=size)

    def remove(self, number: int) -> None:
        """Delete a completed file, or keep it to be written over.

        One that cannot be deleted is removed with the folder.
        """
        path = self._paths.pop(number)
        with contextlib.suppress(OSError):
            if len(self._free) < REUSED_FILES and path.stat().st_size >= REUSED_BYTES:
                self._free.append(path)
            else:
                path.unlink()


def _lines_before(file: InputFile, before: int) -> int:
    """Return the number of lines of a staged file before a line of stdin."""
    count, runs = 0, [first for first, _ in file.line_map[1:]]
    for (first, stdin), after in zip(file.line_map, [*runs, (file.rows or 0) + 1], strict=True):
        count += max(0, min(after - first, before - stdin))
    return count


def _size_of(staged: IO[bytes], lines: int) -> int:
    """Return the bytes of the first lines of a file."""
    size = 0
    while lines and (block := staged.read(BLOCK_BYTES)):
        result = block.count(b"\n")
        data = Lines(block, result + 1).take(lines) if lines <= result else block
        size, lines = size + len(data), lines - min(lines, result)
    return size


def _close(file: StagedFile) -> None:
    handle, file.handle = file.handle, None
    if handle is None:
        return
    try:
        handle.close()
    except OSError:
        file.handle = handle
        _abandon(file)
        raise


def _abandon(file: StagedFile) -> None:
    """Close without writing what is still buffered (the disk may be full)."""
    handle, file.handle = file.handle, None
    if handle is not None:
        with contextlib.suppress(OSError, ValueError):
            handle.raw.close()


def _local_path(root: str) -> Path | None:
    """Return the folder that a path or `file:` URL names; None for an object store."""
    where = Where(setting="staging.root")
    try:
        parts = urlsplit(root)
    except ValueError:
        raise SettingsError(f"'{redacted(root)}' is not a URL", where=where) from None
    if parts.scheme == "file" and parts.netloc in {"", "localhost"}:
        return Path(unquote(parts.path))
    if parts.scheme == "file":
        raise SettingsError(
            f"'{root}' is not a local folder",
            where=where,
            hint="give a local folder, one that all executors share, or the URL of an object store",
        )
    return None if "://" in root else Path(root).absolute()


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Convert failures of the disk to an error with the path and a hint."""
    try:
        yield
    except OSError as error:
        full = error.errno in DISK_FULL
        what = "no space left" if full else f"cannot be written ({error.strerror or error})"
        raise DestinationError(
            f"staging: {what}",
            where=Where(file=str(path)),
            hint="free some space, or set staging.root to a writable folder with file locks",
        ) from error
