"""The side file of a table folder: exact columns and format, beside the folder.

Inside it, readers would take it for data: polars also reads hidden files of a folder. A change of
the side file and one of the folder are two steps, so the first one writes both contents and the
name of a file that tells which one holds. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

OLD_SIDE_FILE = "_schema.json"
"""The side file of earlier versions, inside the folder."""
_OURS = re.compile(r"(part-\d{13}-.*|.*~\d{13})\.[^~]*")
"""Names of files that the target has written or rewritten: with a time in milliseconds."""


def side_name(table: str) -> str:
    """Return the name of the side file of a table's folder, beside it."""
    return f".{table}.schema"


def is_ours(name: str) -> bool:
    """Return whether the target has written or rewritten a file of this name."""
    return _OURS.fullmatch(name.rpartition("/")[2]) is not None


def announced(new: bytes, old: bytes | None, marker: str | None) -> bytes:
    """Return the content before a change of the folder.

    Args:
        new: The content after it.
        old: The content that holds now; None for a new table.
        marker: Name of a file that the change adds; None if it adds none.
    """
    if marker is None:
        return new
    before = None if old is None else old.decode()
    return json.dumps({"marker": marker, "new": new.decode(), "old": before}).encode()


def holding(content: bytes | None, names: Collection[str]) -> bytes | None:
    """Return the content that holds for a folder.

    Args:
        content: That of the side file; None without one.
        names: All visible files of the folder.

    Returns:
        Columns and format; None if the target has not written the folder, such as one that others
        have created after ours was removed.
    """
    if content is None or (names and not any(map(is_ours, names))):
        return None
    change = _change(content)
    if change is None:
        return content
    text = change["new"] if change["marker"] in names else change["old"]
    return None if text is None else str(text).encode()


def is_settled(content: bytes | None) -> bool:
    """Return whether a content holds for every state of the folder."""
    return content is None or _change(content) is None


def _change(content: bytes) -> dict[str, Any] | None:
    try:
        parsed = json.loads(content)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) and "marker" in parsed else None
