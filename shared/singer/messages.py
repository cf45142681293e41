"""Singer messages as bytes: one compact JSON object a line, keys in a fixed order.

The target distinguishes RECORD lines by their first bytes, so the order of keys in
`record_head` is a contract between both programs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import orjson

STREAM_BOOKMARKED = "stream_bookmarked"
"""Key of a SCHEMA message by which a tap says that STATE will have a bookmark of the stream, as
`bookmark_properties` says of one that is taken from columns."""

STREAM_FAILED = "stream_failed"
"""Key of a repeated SCHEMA message by which a tap reports that the stream failed and that the run
goes on. Targets that do not know it see a SCHEMA without a change."""

DELETED_AT = "_sdc_deleted_at"
"""Column by which a RECORD message says that its row was deleted."""

STREAM_SOURCE = "stream_source"
"""Key of a SCHEMA message by which a tap names what the stream has all rows of. Rows of an older
version of the table may then go, if they come from there, too."""

STREAM_LETTERS = "dead_letters"
"""Key of a SCHEMA message whose RECORDs are dead letters: a part of a stream, not all of it."""


_OF_SETTINGS = (
    *("batch_config", "connections", "format", "jdbc", "load_method", "path"),
    *("stream_map_config", "stream_maps"),
)


def is_of_settings(state: Mapping[str, Any]) -> bool:
    """Return whether an object that is given as a STATE is of settings, or a catalog."""
    if "bookmarks" in state:
        return False
    return isinstance(state.get("streams"), list) or not state.keys().isdisjoint(_OF_SETTINGS)


def encode(value: Any) -> bytes:
    """Write a value as compact JSON, without a newline.

    Args:
        value: JSON values, with any mapping as an object. Integers of any size are kept; a lone
            surrogate, which UTF-8 cannot hold, is written as an escape.

    Raises:
        TypeError: The value holds something that JSON cannot represent.
    """
    try:
        return orjson.dumps(value, default=_plain)
    except orjson.JSONEncodeError:
        return json.dumps(value, default=_plain, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def schema_line(
    stream: str,
    schema: Mapping[str, Any],
    key_properties: Sequence[str],
    bookmark_properties: Sequence[str] = (),
    *,
    has_failed: bool = False,
    has_bookmark: bool = False,
    source: str | None = None,
    are_letters: bool | str = False,
) -> bytes:
    """Write a SCHEMA message, with its newline.

    Args:
        key_properties: Primary key; may be empty.
        bookmark_properties: Columns its bookmark is taken from; omitted if empty.
        has_failed: Report that the stream failed.
        has_bookmark: Say that STATE will have a bookmark of it, though not of columns.
        source: Name of what the stream has all rows of; None if it may lack some.
        are_letters: Say that its records are dead letters; if of one output, its name.
    """
    message: dict[str, Any] = {
        "type": "SCHEMA",
        "stream": stream,
        "schema": schema,
        "key_properties": list(key_properties),
    }
    if bookmark_properties:
        message["bookmark_properties"] = list(bookmark_properties)
    if has_bookmark:
        message[STREAM_BOOKMARKED] = True
    if has_failed:
        message[STREAM_FAILED] = True
    if source is not None:
        message[STREAM_SOURCE] = source
    if are_letters:
        message[STREAM_LETTERS] = are_letters
    return encode(message) + b"\n"


def state_line(value: Any) -> bytes:
    """Write a STATE message around any JSON value."""
    return encode({"type": "STATE", "value": value}) + b"\n"


def activate_version_line(stream: str, version: int) -> bytes:
    """Write an ACTIVATE_VERSION message."""
    return encode({"type": "ACTIVATE_VERSION", "stream": stream, "version": version}) + b"\n"


def batch_line(
    stream: str,
    encoding: Mapping[str, Any],
    manifest: Sequence[str],
    version: int | None = None,
) -> bytes:
    """Write a BATCH message, with its newline.

    Args:
        encoding: `format` and `compression` of the files.
        manifest: URLs of the files.
        version: Table version; left out if None.
    """
    message: dict[str, Any] = {
        "type": "BATCH",
        "stream": stream,
        "encoding": encoding,
        "manifest": list(manifest),
    }
    if version is not None:
        message["version"] = version
    return encode(message) + b"\n"


def keys_line(
    stream: str,
    encoding: Mapping[str, Any] | None = None,
    manifest: Sequence[str] = (),
) -> bytes:
    """Write a KEYS message: all keys that the source has. Rows with other keys are to be deleted.

    Args:
        encoding: `format` and `compression` of the files; None to announce a later message, so
            that a target that cannot follow it ends before it has loaded anything.
        manifest: URLs of the files with the key properties of all rows.
    """
    message: dict[str, Any] = {"type": "KEYS", "stream": stream}
    if encoding is not None:
        message |= {"encoding": encoding, "manifest": list(manifest)}
    return encode(message) + b"\n"


def record_head(stream: str) -> str:
    """Write the part of a RECORD line before the record."""
    return '{"type":"RECORD","stream":' + encode(stream).decode() + ',"record":'


def record_tail(extracted_at: datetime, version: int | None = None) -> str:
    """Write the part of a RECORD line after the record, with its newline.

    Args:
        extracted_at: When reading of the record's slice began; must have a zone.
        version: Table version; left out if None.
    """
    text = ',"time_extracted":"' + timestamp(extracted_at) + '"'
    if version is not None:
        text += f',"version":{version}'
    return text + "}\n"


def timestamp(moment: datetime) -> str:
    """Write a moment in UTC as `2026-11-21T06:20:21.224137+00:00`."""
    return moment.astimezone(timezone.utc).isoformat(timespec="microseconds")
