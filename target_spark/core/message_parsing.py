"""The exact path: one parsed Singer message becomes an event, or an error that says why not."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeGuard, TypeVar

import orjson

from shared.formats.file_formats import Encoding
from shared.singer.messages import STREAM_BOOKMARKED, STREAM_FAILED, STREAM_SOURCE
from target_spark.core import events as ev

MOST_LEVELS = 200
"""Deepest schema: functions over schemas recurse once per level."""

_Parsed = TypeVar("_Parsed")
_STATE = re.compile(rb'\s*\{\s*"type"\s*:\s*"STATE"\s*,\s*"value"\s*:')


class MalformedError(Exception):
    """A message is malformed; the text says how."""


INVALID = object()


def loads(text: bytes) -> Any:
    """Return parsed JSON, or `INVALID`.

    Python's parser accepts what orjson rejects although taps write it (NaN, lone surrogates,
    integers of any length).
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(text.decode())
    except (ValueError, RecursionError):
        return INVALID


def _stream(message: dict[str, Any]) -> str:
    name = message.get("stream")
    if not isinstance(name, str) or not name:
        raise MalformedError("without a 'stream'")
    return name


def is_version(value: object) -> TypeGuard[int | None]:
    """Return whether a value can be a table version: tables store it as an integer of 64 bits."""
    return value is None or (type(value) is int and -(1 << 63) <= value < 1 << 63)


def _version(message: dict[str, Any]) -> int | None:
    value = message.get("version")
    if not is_version(value):
        raise MalformedError("with a 'version' that is not an integer of 64 bits")
    return value


def _strings(message: dict[str, Any], key: str) -> tuple[str, ...]:
    value = message.get(key)
    values = [] if value is None else value
    if not isinstance(values, list) or not all(isinstance(item, str) for item in values):
        raise MalformedError(f"with a '{key}' that is not a list of strings")
    return tuple(values)


def _schema(message: dict[str, Any], line: bytes, number: int) -> ev.SchemaSeen:
    stream = _stream(message)
    if not isinstance(message.get("schema"), dict):
        raise MalformedError("without a 'schema' object")
    # orjson makes floats of bounds beyond 64 bits.
    schema = _exactly("schema", lambda: json.loads(line)["schema"])
    if _is_deep(schema):
        raise MalformedError(f"with a 'schema' that is nested more than {MOST_LEVELS} levels deep")
    has_failed = message.get(STREAM_FAILED) is True
    keys = _strings(message, "key_properties")
    is_marked = bool(message.get("bookmark_properties") or message.get(STREAM_BOOKMARKED))
    source = message.get(STREAM_SOURCE)
    source = source if isinstance(source, str) else None
    return ev.SchemaSeen(stream, schema, keys, number, has_failed, is_marked, source)


def _record(message: dict[str, Any], line: bytes, number: int) -> ev.RecordsSeen:
    stream = _stream(message)
    if not isinstance(message.get("record"), dict):
        raise MalformedError("without a 'record' object")
    return ev.RecordsSeen(stream, line, 1, number, _version(message))


def _batch(message: dict[str, Any], line: bytes, number: int) -> ev.BatchSeen:  # noqa: ARG001
    stream, (encoding, manifest) = _stream(message), _files(message)
    return ev.BatchSeen(stream, encoding, manifest, number, _version(message))


def _keys(message: dict[str, Any], line: bytes, number: int) -> ev.KeysSeen:  # noqa: ARG001
    if "manifest" not in message and "encoding" not in message:
        return ev.KeysSeen(_stream(message), None, (), number)
    if message.get("manifest") is None:
        # Never an empty key set by mistake.
        raise MalformedError("without a 'manifest'")
    return ev.KeysSeen(_stream(message), *_files(message), number)


def _files(message: dict[str, Any]) -> tuple[Encoding, tuple[str, ...]]:
    """Return the files that a message names."""
    encoding = message.get("encoding")
    if not isinstance(encoding, dict) or not isinstance(encoding.get("format"), str):
        raise MalformedError("without an 'encoding' object with a 'format'")
    compression = encoding.get("compression") or "none"
    if not isinstance(compression, str):
        raise MalformedError("with a 'compression' that is not a string")
    if "manifest" not in message:
        raise MalformedError("without a 'manifest'")
    return Encoding(encoding["format"], compression), _strings(message, "manifest")


def _state(message: dict[str, Any], line: bytes, number: int) -> ev.StateSeen:
    if "value" not in message:
        raise MalformedError("without a 'value'")
    return ev.StateSeen(_state_text(line), number)


def _activate(message: dict[str, Any], line: bytes, number: int) -> ev.VersionSeen:  # noqa: ARG001
    stream, version = _stream(message), _version(message)
    if version is None:
        raise MalformedError("without a 'version'")
    return ev.VersionSeen(stream, version, number)


PARSERS: dict[str, Callable[[dict[str, Any], bytes, int], ev.InputEvent]] = {
    "SCHEMA": _schema,
    "RECORD": _record,
    "BATCH": _batch,
    "KEYS": _keys,
    "STATE": _state,
    "ACTIVATE_VERSION": _activate,
}


def _state_text(line: bytes) -> bytes:
    """Return the text of `value` in a valid STATE line, byte for byte."""
    found = _STATE.match(line)
    if found is not None:
        value = line[found.end() :].rstrip().removesuffix(b"}").strip()
        # `value` is the last key only if the rest alone is JSON.
        if loads(value) is not INVALID:
            return value
    return _exactly("value", lambda: _member(line.decode().strip(), "value")).encode()


def _exactly(key: str, parse: Callable[[], _Parsed]) -> _Parsed:
    """Return the value from Python's parser, which rejects some lines that orjson accepts."""
    try:
        return parse()
    except (ValueError, RecursionError):
        why = "is nested too deeply, or has too long a number"
        raise MalformedError(f"with a '{key}' that {why}") from None


def _is_deep(schema: object) -> bool:
    level = [schema]
    for _ in range(MOST_LEVELS):
        level = [part for value in level for part in _parts(value)]
    return bool(level)


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def shown_type(line: bytes) -> object:
    """Return the `type` of a damaged JSON object, if it is complete before the damage."""
    text, found = line.decode(errors="replace").strip(), None
    with contextlib.suppress(ValueError, IndexError, RecursionError):
        for name, value, _ in _members(text):
            found = value if name == "type" else found
    return found


def _member(text: str, key: str) -> str:
    """Return the text of a member of a JSON object; of the last one if the key occurs twice."""
    return [value for name, _, value in _members(text) if name == key][-1]


def _members(text: str) -> Iterator[tuple[str, Any, str]]:
    """Yield the members of a JSON object: name, value and the text of the value.

    Raises:
        ValueError, IndexError, RecursionError: It is damaged; earlier members have been yielded.
    """
    decoder = json.JSONDecoder()
    position = _skip(text, 1)
    while text[position] != "}":
        name, position = decoder.raw_decode(text, position)
        position = _skip(text, position)
        if not isinstance(name, str) or text[position] != ":":
            raise ValueError(text)
        start = _skip(text, position + 1)
        value, position = decoder.raw_decode(text, start)
        yield name, value, text[start:position]
        position = _skip(text, position)
        if text[position] == ",":
            position = _skip(text, position + 1)


def _skip(text: str, position: int) -> int:
    while text[position] in " \t\r\n":
        position += 1
    return position
