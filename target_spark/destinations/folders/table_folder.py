"""Table folders on disks and in object stores: their names, changes, side files and errors.

Names derived from stream names are safe on every file system and visible to every reader.

The side file of a folder, with exact columns and format, is beside it. Inside it, readers would
take it for data: polars also reads hidden files of a folder. A change of the side file and one of
the folder are two steps, so the first one writes both contents and the name of a file that tells
which one holds.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from shared.errors import DestinationError, SingerSparkError, Where
from shared.spark.spark_errors import SHARED_FOLDER
from shared.storage.access import StorageOptions, failures, storage_hint
from shared.storage.urls import join, local_path, shown
from target_spark.core.load_plans import TableName

MAX_BYTES = 200
"""Longest folder name in bytes: leaves room for the hidden names that contain it."""

WORK_PREFIX = "target-spark-"
"""How the private folders of a run begin."""

LONGEST_NAME = 255
"""Bytes that file systems allow in a name."""
NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"

_ESCAPED = frozenset('/\\:*?"<>|%\x7f') | {chr(code) for code in range(32)}
_ESCAPED_BY_HIVE = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(32)}
_RESERVED = {"CON", "PRN", "AUX", "NUL"} | {
    f"{port}{n}" for port in ("COM", "LPT") for n in "123456789"
}
_HIDING = "._"


def folder_name(name: str) -> str:
    """Return a folder name for a stream, schema or table name.

    Ordinary names stay unchanged. Characters that separate paths, end names or are control
    characters become `%XX`, as does a leading `.` or `_` (readers such as Spark skip such
    folders) and a trailing dot or space. `..` therefore cannot occur. Different names give
    different folders. Names above `MAX_BYTES` are cut and end in a digest of the whole name.
    """
    text = "".join(_escape(char) if char in _ESCAPED else char for char in name)
    if text[:1] and text[0] in _HIDING:
        text = _escape(text[0]) + text[1:]
    if text[-1:] in {".", " "}:
        text = text[:-1] + _escape(text[-1])
    if text.partition(".")[0].upper() in _RESERVED:
        text = _escape(text[0]) + text[1:]
    data = (text or "%").encode("utf-8", "surrogatepass")
    if len(data) <= MAX_BYTES:
        return text or "%"
    digest = hashlib.sha256(data).hexdigest()[:16]
    kept = data[: MAX_BYTES - len(digest) - 1].decode("utf-8", "ignore")
    return f"{kept}~{digest}"


def stream_file(table: str, kind: str, stream: str) -> str:
    """Return the hidden file beside a table's folder that belongs to one of its streams."""
    folder, _, name = table.rstrip("/").rpartition("/")
    digest = hashlib.sha256(stream.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return join(folder or "/", f".{name}.{kind}-{digest}")


def case_collisions(names: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Return groups of names that differ by case only: one table for readers that ignore case."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        groups.setdefault(name.casefold(), []).append(name)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _escape(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True)
class FolderChange:
    """The change of a table folder by one commit, atomic if the storage allows it.

    Attributes:
        add: Pending file → name in the table folder, with the folders of its partition.
        drop: Names that the added files replace.
        side: New content of the side file; None keeps it.
    """

    add: Mapping[str, str]
    drop: frozenset[str] = frozenset()
    side: bytes | None = None

    def rest(self, present: Iterable[str]) -> FolderChange:
        """Return what is left of the change for a folder that has these files."""
        names = frozenset(present)
        add = {url: name for url, name in self.add.items() if name not in names}
        return FolderChange(add, self.drop & names, self.side)


def visible(name: str) -> bool:
    """Return whether readers such as Spark, pyarrow and duckdb read a file of this name."""
    return not name.startswith((".", "_"))


def is_partition(name: str) -> bool:
    """Return whether a folder of this name is one of a partition: `country=DE`."""
    return "=" in name


def table_path(path: str, name: TableName) -> str:
    """Return the folder of a table below the folder or URL of all tables."""
    schema = [folder_name(name.schema)] if name.schema else []
    return join(path, *schema, folder_name(name.table))


HINTS = {
    errno.ENOSPC: "free some disk space and run again",
    errno.EDQUOT: "free some disk space and run again",
    errno.ENOENT: SHARED_FOLDER,
    errno.EACCES: "check the permissions of the path",
    errno.EPERM: "check the permissions of the path",
    errno.EROFS: "the file system is read-only; set another `path`",
    errno.ENOTDIR: "a file exists where a folder is needed; set another `path`",
    errno.EEXIST: "a file exists where a folder is needed; set another `path`",
    errno.ENAMETOOLONG: "shorten `path`",
}


def write_error(path: str, error: OSError) -> DestinationError:
    """Return the one-line error for a failed write below `path`."""
    return DestinationError(
        f"cannot write to '{shown(path)}': {reason_of(error)}", hint=failure_hint(path, error)
    )


def read_error(path: str, error: OSError, where: Where | None = None) -> DestinationError:
    """Return the one-line error for a failed read below `path`."""
    return DestinationError(
        f"cannot read '{shown(path)}': {reason_of(error)}",
        where=where,
        hint=failure_hint(path, error),
    )


def reason_of(error: OSError) -> str:
    """Return the text of an OSError, without its number and file."""
    result = error.strerror or (os.strerror(error.errno) if error.errno else str(error))
    return " ".join(result.split())


def failure_hint(path: str, error: OSError) -> str:
    """Return the hint for a failure at `path`."""
    if local_path(path) is None:
        return storage_hint(error.errno)
    return HINTS.get(error.errno or 0, "")


@contextmanager
def writing(path: str, options: StorageOptions | None = None) -> Iterator[None]:
    """Convert failures of the storage in the block to a DestinationError that names `path`."""
    try:
        if local_path(path) is not None:
            yield
            return
        with _storage(path, options):
            yield
    except OSError as error:
        raise write_error(path, error) from error


@contextmanager
def _storage(path: str, options: StorageOptions | None) -> Iterator[None]:
    """Convert errors as `shared.storage.access.failures` does, but pass our own errors on."""
    ours: SingerSparkError | None = None
    with failures(path, options):
        try:
            yield
        except SingerSparkError as error:
            ours = error
    if ours is not None:
        raise ours


_OURS = re.compile(r"(part-\d{13}-.*|.*~\d{13})\.[^~]*")
"""Names of files that the target has written or rewritten: with a time in milliseconds."""


SIDE = ".schema"
"""How the name of a table's side file, hidden beside its folder, ends."""


def is_ours(name: str) -> bool:
    """Return whether the target has written or rewritten a file of this name."""
    return _OURS.fullmatch(name.rpartition("/")[2]) is not None


def announced(new: bytes, old: bytes | None, marker: str | None) -> bytes:
    """Return the content before a change of the folder, which makes `new` of `old`.

    `marker` is the name of a file that the change adds; None if it adds none.
    """
    if marker is None:
        return new
    before = None if old is None else old.decode()
    return json.dumps({"marker": marker, "new": new.decode(), "old": before}).encode()


def holding(content: bytes | None, names: Collection[str]) -> bytes | None:
    """Return the content of a side file that holds for a folder with these visible files.

    None if the target has not written the folder, such as one that others have created after ours
    was removed.
    """
    if content is None or (names and not any(map(is_ours, names))):
        return None
    change = _change(content)
    if change is None:
        return content
    text = change["new"] if change["marker"] in names else change["old"]
    return None if text is None else str(text).encode()


def is_settled(content: bytes) -> bool:
    """Return whether the content of a side file holds for every state of the folder."""
    return _change(content) is None


def _change(content: bytes) -> dict[str, Any] | None:
    try:
        parsed = json.loads(content)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) and "marker" in parsed else None


class PartitionError(Exception):
    """Rows cannot be divided into folders; says why."""


def partition_folder(name: str, value: str | None) -> str:
    """Return the folder of a value, as Hive and Spark name it; null and an empty text share one.

    Raises:
        PartitionError: The name would be too long.
    """
    text = f"{_escaped(name)}={_escaped(value) if value else NULL_VALUE}"
    if len(text.encode()) > LONGEST_NAME:
        raise PartitionError(
            f"a value of the partition column '{name}' is too long for the name of a folder: "
            f"'{(value or '')[:40]}...'"
        )
    return text


def _escaped(text: str) -> str:
    return "".join(_escape(char) if char in _ESCAPED_BY_HIVE else char for char in text)
