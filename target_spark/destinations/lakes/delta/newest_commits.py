"""The newest commits of a Delta table on a local disk, read without Spark."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from shared.storage.files import local_path

_DIGITS = 20
_MOST_COMMITS = 20
_MOST_BYTES = 8 << 20
_CHANGES_TABLE = (b'"metaData"', b'"protocol"')


@dataclass(frozen=True)
class LogEnd:
    """The newest commit of a table.

    Attributes:
        version: Its number.
        identity: What another file of the same name would not have.
    """

    version: int
    identity: tuple[int, int, int]


def log_end(folder: str | None) -> LogEnd | None:
    """Return the newest commit of a table; None if it is not on a local disk, or has no log.

    Args:
        folder: Folder of the table; None if only a catalog knows it.
    """
    log = _log(folder)
    try:
        names = () if log is None else os.listdir(log)  # noqa: PTH208 - long logs: names alone
        version = max((int(name[:_DIGITS]) for name in names if _is_commit(name)), default=None)
        return None if log is None or version is None else LogEnd(version, _identity(log, version))
    except OSError:
        return None


def same_columns(folder: str | None, old: LogEnd, new: LogEnd) -> bool:
    """Return whether the commits after `old` up to `new` have left columns and properties alone.

    False if that would take long to tell.
    """
    log = _log(folder)
    if log is None or not old.version <= new.version <= old.version + _MOST_COMMITS:
        return False
    try:
        if _identity(log, old.version) != old.identity:
            return False
        commits = [_commit(log, number) for number in range(old.version + 1, new.version + 1)]
        if sum(path.stat().st_size for path in commits) > _MOST_BYTES:
            return False
        texts = [path.read_bytes() for path in commits]
        return not any(mark in text for text in texts for mark in _CHANGES_TABLE)
    except OSError:
        return False


def log_bytes(folder: str | None) -> int | None:
    """Return the size of a table's log, 0 without one; None if it is not on a local disk."""
    log = _log(folder)
    if log is None:
        return None
    try:
        with os.scandir(log) as entries:
            return sum(entry.stat().st_size for entry in entries)
    except OSError:
        return 0


def _log(folder: str | None) -> Path | None:
    path = None if folder is None else local_path(folder)
    return None if path is None else Path(path, "_delta_log")


def _commit(log: Path, version: int) -> Path:
    return log / f"{version:0{_DIGITS}}.json"


def _identity(log: Path, version: int) -> tuple[int, int, int]:
    stat = _commit(log, version).stat()
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _is_commit(name: str) -> bool:
    return name.endswith(".json") and name[:_DIGITS].isdigit() and len(name) == _DIGITS + 5
