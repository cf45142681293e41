"""Records of CSV: lines, and what quotes hold together, found without a Python object per line."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from shared.storage import limits
from tap_spark.sources.source_failures import row_failure

OPEN = "a quoted value has no end"
SPANS_HINT = "set the option 'multiLine' if values have line ends, or correct 'quote' and 'escape'"
OPEN_HINT = "the file is cut off, or has a quote too many; or correct 'quote' and 'escape'"
_SHOWN = 200


@dataclass(frozen=True)
class Quotes:
    """How values are quoted.

    A quote opens a value at its start only. One that neither a separator nor a line end follows
    closes nothing, and the value goes on to the next separator, as for Spark's parser.

    Attributes:
        separator: Between values.
        quote: Around values.
        escape: Before a quote inside of them.
        spans_lines: Whether values may have line ends.
    """

    separator: bytes
    quote: bytes
    escape: bytes
    spans_lines: bool = False

    def records(self, blocks: Iterable[tuple[int, bytes]], url: str) -> Iterator[pa.Array]:
        """Yield the records of text, without their line ends.

        Args:
            blocks: Text that ends with a line (if values span lines, anywhere), and where it began.
            url: The file, for errors.

        Raises:
            RuntimeError: A quoted value does not end.
            OSError: A record is too long.
        """
        carried, began = b"", 0
        for at, block in blocks:
            began = began if carried else at
            data = carried + block
            used, arrays = self._scanned(data, final=not self.spans_lines)
            yield from arrays
            carried, began = data[used:], began + used
            if carried and not self.spans_lines:
                raise self._open(carried, began, url)
            if len(carried) > limits.MAX_LINE_BYTES:
                raise OSError(limits.long_text("a record"))
        used, arrays = self._scanned(carried, final=True)
        yield from arrays
        if used < len(carried):
            raise self._open(carried[used:], began + used, url)

    def values(self, record: str) -> list[str]:
        """Return the values of one record, without their quotes."""
        data, at, found = record.encode(), 0, []
        while True:
            value = self._value.match(data, at)
            stop = value.end() if value else at
            text = data[at:stop]
            if value and value["close"] and value.end("close") == stop:
                text = text[len(self.quote) : -len(self.quote)]
                text = text.replace(self.escape + self.quote, self.quote)
            found.append(text.decode())
            if not data.startswith(self.separator, stop):
                return found
            at = stop + len(self.separator)

    def _open(self, data: bytes, at: int, url: str) -> RuntimeError:
        text = data[:_SHOWN].decode(errors="replace")
        hint = OPEN_HINT if self.spans_lines else SPANS_HINT
        problem = f"{OPEN} in the record at byte {at}"
        return RuntimeError(row_failure(problem=problem, value=text, file=url, hint=hint))

    def _scanned(self, data: bytes, *, final: bool) -> tuple[int, list[pa.Array]]:
        """Return the bytes of complete records, and the records."""
        if not data:
            return 0, []
        end = len(data) if final else data.rfind(b"\n") + 1
        if self.quote not in data:
            end -= not final and data[:end].endswith(b"\r")
            return end, [_lines(data[:end])] if end else []
        return self._walked(data, end, final=final)

    def _walked(self, data: bytes, end: int, *, final: bool) -> tuple[int, list[pa.Array]]:
        """Take runs of lines whose quotes are closed as they are; look at each other line."""
        split = pc.split_pattern(pa.array([data[:end].removesuffix(b"\n")], pa.binary()), b"\n")
        lines = split.flatten() if end else pa.array([], pa.binary())
        offsets = memoryview(lines.buffers()[1] or b"").cast("i") if end else [0]
        numbers = range(len(lines) + 1)
        closed = pc.match_substring_regex(lines, self._closed_line)
        unclosed = pc.indices_nonzero(pc.invert(closed)).to_pylist()

        def start_of(line: int) -> int:
            # A line feed stood after each line.
            return min(offsets[line] + line, len(data))

        at = number = 0
        arrays: list[pa.Array] = []
        while number < len(lines):
            following = bisect_left(unclosed, number)
            stop = unclosed[following] if following < len(unclosed) else len(lines)
            if stop > number:
                arrays.append(_without_returns(lines.slice(number, stop - number)))
                number, at = stop, start_of(stop)
                continue
            records: list[bytes] = []
            while not records or at < start_of(number):
                ending = self._record_end(data, at, final=final)
                if ending is None:
                    return at, [*arrays, pa.array(records, pa.binary())]
                records.append(data[at : ending[0]])
                at = ending[1]
                # A value may end behind the last line feed.
                number = min(bisect_left(numbers, at, key=start_of), len(lines))
            arrays.append(pa.array(records, pa.binary()))
        return at, arrays

    def _record_end(self, data: bytes, at: int, *, final: bool) -> tuple[int, int] | None:
        """Return the end of the record that begins here, and the next one's start.

        None if it is not complete.
        """
        while True:
            value = self._value.match(data, at)
            stop = value.end() if value else at
            if data.startswith(self.quote, at) and value and not value["close"]:
                return None
            if data.startswith(self.separator, stop):
                at = stop + len(self.separator)
                continue
            if not final and stop >= len(data) - 1:
                # What follows may be another quote, or the second half of a line end.
                return (stop, stop + 1) if data.startswith(b"\n", stop) else None
            return stop, min(len(data), stop + 1 + data.startswith(b"\r\n", stop))

    @cached_property
    def _closed_line(self) -> str:
        """Return a pattern of lines whose quotes all stand around values."""
        separator, quote, escape = (
            re.escape(part.decode()) for part in (self.separator, self.quote, self.escape)
        )
        kept = "" if self.spans_lines else r"\r"
        inner = rf"(?:[^{quote}{kept}]|{quote}{quote})*"
        if self.escape != self.quote:
            inner = rf"(?:[^{quote}{escape}{kept}]|{escape}.)*"
        first = re.escape(self.separator.decode()[0])
        value = rf"(?:{quote}{inner}{quote}|(?:[^{quote}{first}\r][^{first}\r]*)?)"
        return rf"\A(?:{value}{separator})*{value}\r?\z"

    @cached_property
    def _value(self) -> re.Pattern[bytes]:
        separator, quote, escape = (
            re.escape(part) for part in (self.separator, self.quote, self.escape)
        )
        ends = b"" if self.spans_lines else rb"\r\n"
        inner = rb"[^%b%b]*(?:%b%b[^%b%b]*)*" % (quote, ends, quote, quote, quote, ends)
        if self.escape != self.quote:
            both = escape + quote + ends
            inner = rb"[^%b]*(?:%b.[^%b]*)*" % (both, escape, both)
        rest = rb"[^%b\r\n]*" % separator
        if len(self.separator) > 1:
            rest = rb"(?:(?!%b)[^\r\n])*" % separator
        return re.compile(
            rb"%b%b(?P<close>%b)?%b|%b" % (quote, inner, quote, rest, rest), re.DOTALL
        )


def _lines(data: bytes) -> pa.Array:
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return pc.split_pattern(pa.array([data.removesuffix(b"\n")], pa.binary()), b"\n").flatten()


def _without_returns(lines: pa.Array) -> pa.Array:
    ends = pc.ends_with(lines, b"\r")
    if not ends.true_count:
        return lines
    return pc.if_else(ends, pc.binary_slice(lines, 0, -1), lines)
