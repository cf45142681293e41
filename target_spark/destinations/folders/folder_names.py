"""Folder names derived from stream names: safe on every file system and visible to every reader."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from shared.storage.urls import join

MAX_BYTES = 200
"""Longest folder name in bytes: leaves room for the hidden names that contain it."""

WORK_PREFIX = "target-spark-"
"""How the private folders of a run begin."""

_ESCAPED = frozenset('/\\:*?"<>|%\x7f') | {chr(code) for code in range(32)}
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
    return _shortened(text or "%")


def stream_file(table: str, kind: str, stream: str) -> str:
    """Return the hidden file beside a table's folder that belongs to one of its streams.

    Args:
        table: Folder or URL of the table.
        kind: What the file is for.
        stream: Name of the stream.
    """
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


def _shortened(text: str) -> str:
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= MAX_BYTES:
        return text
    digest = hashlib.sha256(data).hexdigest()[:16]
    kept = data[: MAX_BYTES - len(digest) - 1].decode("utf-8", "ignore")
    return f"{kept}~{digest}"
