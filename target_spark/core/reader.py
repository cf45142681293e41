"""Bytes of stdin become events, without decoding RECORD lines. No I/O: bytes are fed in.

The head of a RECORD line in any usual spelling (`{"type":"RECORD","stream":"s","record":{`, with
or without spaces, `type` and `stream` in either order) says all that the target must know, so the
end of a run of lines with the same head is found by searching for the first line without it. Every
other line, RECORDs of another shape included, is parsed whole: it becomes an event, or an error
that says why not. RECORD lines are passed on as received.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from shared.encodings.encoding_format import Encoding
from shared.errors import MessageError, Where
from shared.formats.json_text import LONG_LINE, newlines
from shared.singer.messages import (
    STREAM_BOOKMARKED,
    STREAM_FAILED,
    STREAM_LETTERS,
    STREAM_SOURCE,
)
from shared.storage.limits import MAX_LINE_BYTES
from target_spark.core import events as ev

MOST_LEVELS = 200
"""Deepest schema: functions over schemas recurse once per level."""

_INEXACT = "that is nested too deeply, or has too long a number"
"""Why Python's parser rejects some lines that orjson accepts."""
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


def _version_of(message: dict[str, Any]) -> int | None:
    value = message.get("version")
    if value is None or (type(value) is int and -(1 << 63) <= value < 1 << 63):
        return value
    # Tables could not store it.
    raise MalformedError("with a 'version' that is not an integer of 64 bits")


def _strings(message: dict[str, Any], key: str) -> tuple[str, ...]:
    value = message.get(key)
    values = [] if value is None else value
    if not isinstance(values, list) or not all(isinstance(item, str) for item in values):
        raise MalformedError(f"with a '{key}' that is not a list of strings")
    return tuple(values)


def _schema(message: dict[str, Any], line: bytes, number: int) -> ev.SchemaSeen:
    if not isinstance(message.get("schema"), dict):
        raise MalformedError("without a 'schema' object")
    try:
        # orjson makes floats of bounds beyond 64 bits.
        schema = json.loads(line)["schema"]
    except (ValueError, RecursionError):
        raise MalformedError(f"with a 'schema' {_INEXACT}") from None
    if _is_deep(schema):
        raise MalformedError(f"with a 'schema' that is nested more than {MOST_LEVELS} levels deep")
    has_failed = message.get(STREAM_FAILED) is True
    keys = _strings(message, "key_properties")
    is_marked = bool(message.get("bookmark_properties") or message.get(STREAM_BOOKMARKED))
    source = message.get(STREAM_SOURCE)
    source = source if isinstance(source, str) else None
    name, letters = message["stream"], message.get(STREAM_LETTERS)
    are_letters = letters if isinstance(letters, str) else letters is True
    return ev.SchemaSeen(name, schema, keys, number, has_failed, is_marked, source, are_letters)


def _record(message: dict[str, Any], line: bytes, number: int) -> ev.RecordsSeen:
    if not isinstance(message.get("record"), dict):
        raise MalformedError("without a 'record' object")
    return ev.RecordsSeen(message["stream"], line, 1, number, _version_of(message))


def _batch(message: dict[str, Any], line: bytes, number: int) -> ev.BatchSeen:  # noqa: ARG001
    encoding, manifest = _files(message)
    return ev.BatchSeen(message["stream"], encoding, manifest, number, _version_of(message))


def _keys(message: dict[str, Any], line: bytes, number: int) -> ev.KeysSeen:  # noqa: ARG001
    if "manifest" not in message and "encoding" not in message:
        return ev.KeysSeen(message["stream"], None, (), number)
    return ev.KeysSeen(message["stream"], *_files(message), number)


def _files(message: dict[str, Any]) -> tuple[Encoding, tuple[str, ...]]:
    encoding = message.get("encoding")
    if not isinstance(encoding, dict) or not isinstance(encoding.get("format"), str):
        raise MalformedError("without an 'encoding' object with a 'format'")
    compression = encoding.get("compression") or "none"
    if not isinstance(compression, str):
        raise MalformedError("with a 'compression' that is not a string")
    if message.get("manifest") is None:  # Never taken for an empty one by mistake.
        raise MalformedError("without a 'manifest'")
    return Encoding(encoding["format"], compression), _strings(message, "manifest")


def _state(message: dict[str, Any], line: bytes, number: int) -> ev.StateSeen:
    if "value" not in message:
        raise MalformedError("without a 'value'")
    match = _STATE.match(line)
    # The value as it came, byte for byte; it is the last key only if the rest alone is JSON.
    text = b"" if match is None else line[match.end() :].rstrip().removesuffix(b"}").strip()
    if loads(text) is INVALID:
        try:
            members = _members(line.decode().strip())
            # Of the last one if the key occurs twice.
            text = [member for name, _, member in members if name == "value"][-1].encode()
        except (ValueError, RecursionError):
            raise MalformedError(f"with a 'value' {_INEXACT}") from None
    return ev.StateSeen(text, number)


def _activate(message: dict[str, Any], line: bytes, number: int) -> ev.VersionSeen:  # noqa: ARG001
    version = _version_of(message)
    if version is None:
        raise MalformedError("without a 'version'")
    return ev.VersionSeen(message["stream"], version, number)


PARSERS: dict[str, Callable[[dict[str, Any], bytes, int], ev.InputEvent]] = {
    "SCHEMA": _schema,
    "RECORD": _record,
    "BATCH": _batch,
    "KEYS": _keys,
    "STATE": _state,
    "ACTIVATE_VERSION": _activate,
}


def _is_deep(schema: object) -> bool:
    level = [schema]
    for _ in range(MOST_LEVELS):
        nested = (value for value in level if isinstance(value, dict | list))
        parts = (value.values() if isinstance(value, dict) else value for value in nested)
        level = [part for values in parts for part in values]
    return bool(level)


def complete_members(line: bytes) -> dict[str, Any]:
    """Return the members of a JSON object that are complete before what damages it."""
    text, result = line.decode(errors="replace").strip(), dict[str, Any]()
    with contextlib.suppress(ValueError, IndexError, RecursionError):
        for name, value, _ in _members(text) if text.startswith("{") else ():
            result[name] = value
    return result


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


EXCERPT = 60
BOM = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")

_SP = rb"[ \t]*"
_TYPE = rb'"type"' + _SP + b":" + _SP + rb'"RECORD"' + _SP + b"," + _SP
_STREAM = (
    rb'"stream"' + _SP + b":" + _SP + rb'("[^"\\\n]*(?:\\.[^"\\\n]*){0,99}")' + _SP + b"," + _SP
)
_RECORD = rb'"record"' + _SP + b":" + _SP + rb"\{"
_HEAD = re.compile(
    _SP + rb"\{" + _SP + b"(?:" + _TYPE + _STREAM + b"|" + _STREAM + _TYPE + b")" + _RECORD
)
_TIME = rb'\s*,\s*"time_extracted"\s*:\s*"[^"\n]{0,60}"'
_NUMBER = rb'\s*,\s*"version"\s*:\s*(\d{1,18})'
_VERSION = re.compile(
    rb"\}(?:" + _NUMBER + b"(?:" + _TIME + b")?|" + _TIME + _NUMBER + rb")\s*\}\s*\Z"
)
_TAIL = 200
_OTHERS = "|".join(name for name in PARSERS if name != "RECORD").encode()
_NEEDED = re.compile(rb'"type"\s*:\s*"(?:' + _OTHERS + rb')"')


@dataclass(frozen=True)
class _Head:
    """A spelling of a stream's RECORD head; `other` finds the end of a run of lines with it."""

    text: bytes
    stream: str
    other: re.Pattern[bytes]

    def run(self, block: bytes, start: int, *, is_likely_all: bool) -> tuple[int, int]:
        """Return where the run of lines that begins at a position ends, and how many it has.

        Args:
            is_likely_all: Whether it is likely to go on to the end of the block. To count heads
                takes less time than to look at each, but is for nothing if another one follows.
        """
        lines, at = 0, block.find(b"\n", start)
        while at - start >= LONG_LINE:
            lines += 1
            if not block.startswith(self.text, at + 1):
                return at + 1, lines
            start, at = at + 1, block.find(b"\n", at + 1)
        if is_likely_all:
            left = newlines(block, start)
            if block.count(b"\n" + self.text, start) == left - 1:
                return len(block), lines + left
        match = self.other.search(block, start)
        end = match.end() if match else len(block)
        return end, lines + newlines(block, start, end)


@dataclass(eq=False)
class Reader:
    """Splits bytes into events.

    Args:
        max_line_bytes: A longer line is an error; bounds memory.
        lenient: Report a line that is not a message, or a malformed RECORD, as `LineRejected`
            instead of raising. A line that may have been a SCHEMA, STATE, BATCH, KEYS or
            ACTIVATE_VERSION always raises: without it the next lines have another meaning.
    """

    max_line_bytes: int = MAX_LINE_BYTES
    lenient: bool = field(default=False, kw_only=True)
    _carry: list[bytes] = field(default_factory=list, init=False)
    _carried: int = field(default=0, init=False)
    _heads: dict[bytes, _Head] = field(default_factory=dict, init=False)
    _head: _Head | None = field(default=None, init=False)
    _is_alone: bool = field(default=False, init=False)
    _line: int = field(default=1, init=False)

    def feed(self, data: bytes) -> Iterator[ev.InputEvent]:
        """Process the next bytes; exhaust the iterator before the next call.

        Args:
            data: Any number of bytes, cut anywhere.

        Yields:
            The messages in order; RECORDs as runs of lines of one stream.

        Raises:
            MessageError: A line is not a Singer message, or is too long. All earlier events have
                been yielded.
        """
        whole = data.rfind(b"\n") + 1
        if not whole:
            self._keep(data)
            return
        block = b"".join((*self._carry, memoryview(data)[:whole])) if self._carry else data[:whole]
        self._carry, self._carried, rest = [], 0, data[whole:]
        view, position, size = memoryview(block), 0, len(block)
        while position < size:
            head = self._head
            if head is None or not block.startswith(head.text, position):
                head = self._head = self._head_at(block, position)
            if head is None:
                end = block.index(b"\n", position) + 1
                event = self._parse(block[position:end])
                self._line += 1
                if event is not None:
                    yield event
            else:
                end, lines = head.run(block, position, is_likely_all=self._is_alone)
                self._is_alone = end == size
                yield from self._run(head.stream, view, block, position, end, lines)
            position = end
        if rest:
            self._keep(rest)

    def end(self) -> Iterator[ev.InputEvent]:
        """Process the end of the input: yield the message in a last line without a newline.

        Raises:
            MessageError: The last line is not a Singer message (the tap died while writing).
        """
        line = b"".join(self._carry)
        self._carry, self._carried = [], 0
        # Parsed whole even if the head is known: it may have been cut off.
        event = self._parse(line, is_last=True)
        if isinstance(event, ev.RecordsSeen):
            event = replace(event, data=bytes(event.data) + b"\n")
        if event is not None:
            yield event

    def _keep(self, rest: bytes) -> None:
        self._carry.append(rest)
        self._carried += len(rest)
        if self._carried > self.max_line_bytes:
            raise self._error(
                f"the line is longer than {self.max_line_bytes} bytes", b"".join(self._carry[:1])
            )

    def _head_at(self, block: bytes, position: int) -> _Head | None:
        match = _HEAD.match(block, position)
        if match is None:
            return None
        text = match.group()
        head = self._heads.get(text)
        if head is None:
            name = loads(match.group(1) or match.group(2))
            if not isinstance(name, str):
                return None
            other = re.compile(rb"\n(?!" + re.escape(text) + rb")")
            head = self._heads[text] = _Head(text, name, other)
        return head

    def _run(
        self, stream: str, view: memoryview, block: bytes, start: int, end: int, lines: int
    ) -> Iterator[ev.InputEvent]:
        """Yield the lines of one head as one event, or as several if their version changes.

        Versions only increase, so the first and the last line show whether there is a change.
        """
        version = _version(block, start, end)
        first = version if lines == 1 else _version(block, start, block.index(b"\n", start) + 1)
        if first != version or not isinstance(version, int | None):
            yield from self._run_by_version(stream, view, block, start, end)
            return
        yield ev.RecordsSeen(stream, view[start:end], lines, self._line, version)
        self._line += lines

    def _run_by_version(
        self, stream: str, view: memoryview, block: bytes, start: int, end: int
    ) -> Iterator[ev.InputEvent]:
        while start < end:
            stop = block.index(b"\n", start) + 1
            version, lines = _version(block, start, stop), 1
            if not isinstance(version, int | None):
                event = self._parse(block[start:stop])
                self._line, start = self._line + 1, stop
                if event is not None:
                    yield event
                continue
            while stop < end:
                after = block.index(b"\n", stop) + 1
                if _version(block, stop, after) != version:
                    break
                stop, lines = after, lines + 1
            yield ev.RecordsSeen(stream, view[start:stop], lines, self._line, version)
            self._line += lines
            start = stop

    def _parse(self, line: bytes, *, is_last: bool = False) -> ev.InputEvent | None:
        """Return the event of one line, which is parsed whole; None for a blank one."""
        if self._line == 1:
            line = line.removeprefix(BOM)
        if not line.strip():
            return None
        message = loads(line)
        try:
            if message is INVALID:
                if self._line == 1 and line.startswith(_UTF_16):
                    raise MessageError(
                        "the input is UTF-16, not UTF-8",
                        where=Where(line=1),
                        hint="PowerShell's `>` writes that: use a pipe, or convert the file",
                    )
                raise self._error("not a valid JSON line", line)
            if not isinstance(message, dict) or not isinstance(message.get("type"), str):
                text = "not a Singer message: an object with a 'type' is expected"
                raise self._error(text, line)
            kind, name = message["type"], message.get("stream")
            if kind not in PARSERS:
                raise self._error(f"unknown message type '{kind[:EXCERPT]}'", line)
            if kind != "STATE" and not (isinstance(name, str) and name):
                raise self._error(f"{kind} without a 'stream'", line, name)
            try:
                return PARSERS[kind](message, line, self._line)
            except MalformedError as problem:
                raise self._error(f"{kind} {problem}", line, name) from None
        except MessageError as error:
            if not self.lenient or _is_needed(line, is_last=is_last):
                raise
            named = error.where.stream or complete_members(line).get("stream")
            stream = named if isinstance(named, str) else None
            return ev.LineRejected(line, self._line, error.message, stream)

    def _error(self, message: str, line: bytes, stream: object = None) -> MessageError:
        text = line[: EXCERPT * 4].decode(errors="replace").strip()
        excerpt = text if len(text) <= EXCERPT else text[:EXCERPT] + "..."
        where = Where(line=self._line, stream=stream if isinstance(stream, str) else None)
        return MessageError(f"{message}: {excerpt}", where=where)


def _is_needed(line: bytes, *, is_last: bool) -> bool:
    """Return whether a malformed line may be a message other than a RECORD.

    A damaged object counts as one unless its type is complete before the damage. The last line,
    which a dying tap may have truncated, counts as one only if its type shows that.
    """
    message = loads(line)
    if isinstance(message, dict):
        return isinstance(message.get("type"), str) and message["type"] != "RECORD"
    if message is not INVALID:
        return False
    if not line.lstrip().startswith(b"{"):
        return _NEEDED.search(line) is not None
    kind = complete_members(line).get("type")
    return kind != "RECORD" and not (is_last and kind is None)


def _version(block: bytes, start: int, end: int) -> object:
    """Return the `version` of the RECORD line that ends at `end`; the first line is at `start`.

    It is an integer, or None without one, or `INVALID`.

    In valid JSON the pattern can only match the envelope's own last keys: quotes inside strings
    are escaped, and the one brace after them closes the line. If it does not match (more keys,
    or a column with this name), the line is parsed.
    """
    last = block.rfind(b"\n", start, end - 1) + 1 or start
    if block.find(b'"version"', last, end) < 0:
        return None
    match = _VERSION.search(block[max(last, end - _TAIL) : end])
    if match:
        return int(match.group(1) or match.group(2))
    message = loads(block[last:end])
    try:
        return _version_of(message) if isinstance(message, dict) else None
    except MalformedError:
        return INVALID


FEW = 32


@dataclass(eq=False)
class Lines:
    """Whole lines, each with its newline, that are taken from the front, some at a time."""

    data: bytes | memoryview
    count: int
    _text: bytes | None = field(default=None, init=False)
    _position: int = field(default=0, init=False)

    def take(self, count: int) -> bytes | memoryview:
        """Cut off 1 to all lines; return their bytes: a view without a copy if these are all."""
        start = self._position
        if count == self.count:
            end = len(self.data)
        else:
            end = self._position = _end_of_line(self._as_bytes(), count, start)
        self.count -= count
        return memoryview(self.data)[start:end]

    def until(self, size: int) -> int:
        """Return how many lines reach a number of bytes, or the number of remaining lines."""
        if len(self.data) - self._position <= size:
            return self.count
        text, start = self._as_bytes(), self._position
        return min(self.count, text.count(b"\n", start, start + size - 1) + 1)

    def _as_bytes(self) -> bytes:
        if self._text is None:
            self._text = self.data if isinstance(self.data, bytes) else bytes(self.data)
        return self._text


def _end_of_line(text: bytes, number: int, start: int) -> int:
    """Return the offset after the newline of line `number`, found by bisection."""
    stop = len(text)
    while number > FEW:
        middle = (start + stop) // 2
        before = text.count(b"\n", start, middle)
        if before < number:
            start, number = middle, number - before
        else:
            stop = middle
    for _ in range(number):
        start = text.index(b"\n", start) + 1
    return start
