"""Lines of file ranges as Arrow batches, split without a Python object per line; on executors.

A record of CSV is a line, or the lines that quotes hold together.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from shared.storage import limits
from shared.storage.files import open_input, open_random
from tap_spark.sources.source_failures import row_failure

ENCODING_HINT = (
    "set the option 'encoding' (such as windows-1252, GBK or UTF-16LE), or mend the file"
)
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
        comment: Prefix of lines whose quotes mean nothing; empty if there are none.
    """

    separator: bytes
    quote: bytes
    escape: bytes
    spans_lines: bool = False
    comment: bytes = b""

    def records(self, blocks: Iterable[tuple[int, bytes]], url: str) -> Iterator[pa.Array]:
        """Yield the records of blocks of text, without their line ends.

        A block begins at a byte of the file, and ends with a line; if values span lines, anywhere.

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
        data, at, values = record.encode(), 0, []
        while True:
            value = self._value.match(data, at)
            stop = value.end() if value else at
            text = data[at:stop]
            if value and value["close"] and value.end("close") == stop:
                text = text[len(self.quote) : -len(self.quote)]
                text = text.replace(self.escape + self.quote, self.quote)
            values.append(text.decode())
            if not data.startswith(self.separator, stop):
                return values
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
            return end, [split_lines(data[:end])] if end else []
        return self._walked(data, end, final=final)

    def _walked(self, data: bytes, end: int, *, final: bool) -> tuple[int, list[pa.Array]]:
        """Take runs of lines whose quotes are closed as they are; look at each other line."""
        split = pc.split_pattern(pa.array([data[:end].removesuffix(b"\n")], pa.binary()), b"\n")
        lines = split.flatten() if end else pa.array([], pa.binary())
        offsets = memoryview(lines.buffers()[1] or b"").cast("i") if end else [0]
        numbers = range(len(lines) + 1)
        closed = pc.match_substring_regex(lines, self._closed_line)
        if self.comment:
            whole = pc.match_substring_regex(lines, r"\A[^\r]*\r?\z")
            closed = pc.if_else(pc.starts_with(lines, self.comment), whole, closed)
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
        is_comment = bool(self.comment) and data.startswith(self.comment, at)
        pattern = _LINE if is_comment else self._value
        while True:
            value = pattern.match(data, at)
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


def _without_returns(lines: pa.Array) -> pa.Array:
    ends = pc.ends_with(lines, b"\r")
    if not ends.true_count:
        return lines
    return pc.if_else(ends, pc.binary_slice(lines, 0, -1), lines)


CHUNK = 4 * 1024 * 1024
HEAD = 64 * 1024
BOM = b"\xef\xbb\xbf"
UTF8 = "utf-8"
LINES_SCHEMA = "value binary, file int"
_LINE_END = re.compile(rb"\r\n|\n|\r")
_LINE = re.compile(rb"(?P<close>[^\r\n]*)")
"""A comment, matched like a value that is closed."""

FilePart = tuple[str, int, int]
"""A file, a line start in it, and a later line start or the end of the file."""


@dataclass(frozen=True)
class LineRules:
    """How the text of a format is split into lines.

    Attributes:
        header: Whether each file starts with a header line.
        comment: Prefix of lines to skip.
        encoding: Python's name of the encoding; empty if bytes stay as they are.
        quotes: How values are quoted; None if they never are.
        line_end: What ends a line instead of a line feed, a carriage return, or both.
    """

    header: bool = False
    comment: bytes = b""
    encoding: str = ""
    quotes: Quotes | None = None
    line_end: bytes = b""

    @property
    def in_parts(self) -> bool:
        """Return whether a line can be found from the middle of a file."""
        spans = self.quotes is not None and self.quotes.spans_lines
        return not spans and not self.line_end and is_ascii_based(self.encoding)


def is_ascii_based(encoding: str) -> bool:
    """Return whether bytes of ASCII, line ends among them, mean the same in an encoding."""
    ascii_bytes = bytes(range(128))
    try:
        return ascii_bytes.decode(encoding or UTF8) == ascii_bytes.decode()
    except UnicodeError:
        return False


@dataclass(frozen=True)
class LineRange:
    """A range of a file that is read on its own.

    Attributes:
        url: The file.
        number: Index of the file among those of the job.
        start: First byte at which a line may start.
        stop: Byte before which a line must start.
        limit: Byte before which reading ends.
        aligned: Whether a line starts at `start`.
        rules: How the text is split.
        is_stream: Whether the file is read from its start to its end, by its content: compressed,
            or in an encoding whose line ends take several bytes.
    """

    url: str
    number: int
    start: int
    stop: int
    limit: int
    aligned: bool
    rules: LineRules = LineRules()
    is_stream: bool = False

    def bounds(self, file: pa.NativeFile) -> tuple[int, int]:
        """Return where the lines that begin in the range start and end.

        It looks for the first line start after its own start, and goes on to the first one after
        its stop, as splits of Hadoop do.
        """
        start, end = self.start, self.limit
        if not self.aligned:
            start = next_line_start(file, start, self.limit)
        if self.stop < end:
            end = next_line_start(file, self.stop, self.limit)
        return start, end


def cut_ranges(
    url: str,
    number: int,
    start: int,
    end: int,
    *,
    range_bytes: int,
    rules: LineRules = LineRules(),
    is_stream: bool = False,
) -> list[LineRange]:
    """Cut a line-aligned part of a file into ranges of about `range_bytes` bytes."""
    return [
        LineRange(url, number, at, min(at + range_bytes, end), end, at == start, rules, is_stream)
        for at in range(start, end, range_bytes)
    ]


def next_line_start(file: pa.NativeFile, at: int, limit: int) -> int:
    """Find the first line start at or after `at` in an open file; `limit` if there is none.

    Lines end with a line feed, a carriage return, or both, as for Spark's own readers.

    Raises:
        OSError: The file ends before `limit`.
    """
    # From the byte before: if it ends a line, a line starts right at `at`.
    position = at - 1
    if position < 0:
        return 0
    while position < limit:
        block = bytes(file.read_at(min(HEAD, limit - position), position))
        if not block:
            raise OSError("it was truncated while it was read")
        match = _LINE_END.search(block)
        if match:
            end = position + match.end()
            # A CR at the end of a block may be half of a CRLF whose LF is in the next one.
            half = match.group() == b"\r" and match.end() == len(block) and end < limit
            return end + (half and bytes(file.read_at(1, end)) == b"\n")
        position += len(block)
    return limit


def unfinished_line(url: str, start: int, end: int) -> int | None:
    """Find the start of the last line before `end`, if it has no line end; at least `start`."""
    with open_random(url) as file:
        at = end
        while at > start:
            begin = max(start, at - HEAD)
            block = bytes(file.read_at(at - begin, begin))
            if at == end and block[-1:] in (b"\n", b"\r"):
                return None
            last = max(block.rfind(b"\n"), block.rfind(b"\r"))
            if last >= 0:
                return begin + last + 1
            at = begin
    return start


def read_range(line_range: LineRange) -> Iterator[pa.RecordBatch]:
    """Read the lines of a range, without their line ends, as UTF-8."""
    try:
        header = line_range.rules.header and not line_range.start
        for values in _split(line_texts(line_range), line_range.url, line_range.rules):
            kept, header = without_header(values, line_range.rules.comment, header=header)
            numbers = pa.repeat(pa.scalar(line_range.number, pa.int32()), len(kept))
            yield pa.RecordBatch.from_arrays([kept, numbers], ["value", "file"])
    except (OSError, pa.ArrowInvalid) as error:
        problem = f"the file cannot be read: {error}"
        raise RuntimeError(row_failure(problem=problem, file=line_range.url)) from error


def without_header(values: pa.Array, comment: bytes, *, header: bool) -> tuple[pa.Array, bool]:
    """Return lines without a header that is still to come, and whether it is then still to come."""
    if not header:
        return values, False
    for index, line in enumerate(values):
        if not _ignored(line.as_py(), comment):
            return values.slice(index + 1), False
    return values.slice(len(values)), True


def decoded_lines(lines: pa.Array, url: str, rules: LineRules) -> pa.Array:
    """Return lines of one file as UTF-8, whose bytes are checked, and whose quotes are closed.

    Raises:
        RuntimeError: A byte is not text, or a quoted value has no end.
    """
    end = rules.line_end or b"\n"
    one = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    text = utf8_of(pc.binary_join(one, end)[0].as_py() + end, 0, url, rules.encoding)
    return pa.concat_arrays(_split([(0, text)], url, rules))


def first_record(line_range: LineRange) -> bytes | None:
    """Return the first record of a range that is neither blank nor a comment.

    Raises:
        RuntimeError: As `read_range` does.
    """
    for batch in read_range(line_range):
        for value in batch.column(0):
            if not _ignored(value.as_py(), line_range.rules.comment):
                return bytes(value.as_py())
    return None


def _split(blocks: Iterable[tuple[int, bytes]], url: str, rules: LineRules) -> Iterator[pa.Array]:
    if rules.quotes is not None:
        yield from rules.quotes.records(blocks, url)
        return
    for _, block in blocks:
        yield split_lines(block, rules.line_end)


def utf8_of(block: bytes, at: int, url: str, encoding: str) -> bytes:
    """Return text that begins at a byte of a file as UTF-8, whose bytes are checked.

    Without the name of an encoding, the bytes stay as they are.

    Raises:
        RuntimeError: A byte is not text.
    """
    if not encoding or (block.isascii() and is_ascii_based(encoding)):
        return block
    try:
        text = block.decode(encoding)
        return block if encoding == UTF8 else text.encode()
    except UnicodeDecodeError as error:
        raise _not_text(url, at + error.start, error) from error


def _not_text(url: str, at: int, error: UnicodeDecodeError) -> RuntimeError:
    shown = bytes(error.object[error.start : error.start + 1]).hex()
    problem = f"byte {at} (0x{shown}) is not text in {error.encoding}"
    return RuntimeError(row_failure(problem=problem, file=url, hint=ENCODING_HINT))


def line_texts(line_range: LineRange) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a range as blocks of whole lines in UTF-8, and the byte where each begins.

    Without an encoding, the bytes stay as they are.

    Raises:
        OSError: The file cannot be read.
        RuntimeError: A byte is not text.
    """
    url, rules = line_range.url, line_range.rules
    if line_range.is_stream:
        with open_input(url) as stream:
            yield from _streamed_texts(stream, url, rules)
        return
    with open_random(url) as file:
        for at, block in _line_blocks(file, line_range):
            yield at, utf8_of(block, at, url, rules.encoding)


def line_blocks(line_range: LineRange) -> Iterator[bytes]:
    """Yield the blocks of `line_texts` alone, with a LF for each line end; raise as it does."""
    return (with_line_feeds(text) for _, text in line_texts(line_range))


def _streamed_texts(
    stream: pa.NativeFile, url: str, rules: LineRules
) -> Iterator[tuple[int, bytes]]:
    decoder = codecs.getincrementaldecoder(rules.encoding)() if rules.encoding else None
    # Lines of EBCDIC end with 0x15, too, which Java decodes to a line feed.
    is_ebcdic = "\n".encode(rules.encoding or UTF8) == b"\x25"
    next_line = "\x85" if is_ebcdic and not rules.line_end else "\n"
    carried: list[bytes] = []
    at = began = 0
    spans = rules.quotes is not None and rules.quotes.spans_lines
    while True:
        block = bytes(stream.read(CHUNK))
        pending = decoder.getstate()[0] if decoder else b""
        try:
            text = block
            if decoder:
                text = decoder.decode(block, final=not block).replace(next_line, "\n").encode()
        except UnicodeDecodeError as error:
            raise _not_text(url, at - len(pending) + error.start, error) from error
        text = text.removeprefix(BOM) if not at else text
        at += len(block)
        if not block:
            rest = b"".join([*carried, text])
            if rest:
                yield began, rest
            return
        last = len(text) - 1 if spans else _last_line_end(text, rules.line_end)
        carried.append(text if last < 0 else text[: last + 1])
        if sum(map(len, carried)) > limits.MAX_LINE_BYTES:
            raise OSError(limits.long_text("a line"))
        if last >= 0:
            yield began, b"".join(carried)
            carried, began = [text[last + 1 :]], at


def has_line(url: str, end: int, comment: bytes = b"") -> bool:
    """Return whether a file has a line before `end` that is neither blank nor a comment."""
    return any(
        not _ignored(line.as_py(), comment)
        for block in line_blocks(LineRange(url, 0, 0, end, end, aligned=True))
        for line in split_lines(block)
    )


def split_lines(data: bytes, line_end: bytes = b"") -> pa.Array:
    """Split whole lines at every kind of line end; the last line end may be missing."""
    if not data:
        return pa.array([], pa.binary())
    data = (data if line_end else with_line_feeds(data)).removesuffix(line_end or b"\n")
    return pc.split_pattern(pa.array([data], pa.binary()), line_end or b"\n").flatten()


def with_line_feeds(data: bytes) -> bytes:
    """Return lines whose ends are line feeds."""
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data


def _line_blocks(file: pa.NativeFile, line_range: LineRange) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of whole lines, and where each begins in the file."""
    at, end = line_range.bounds(file)
    carried: list[bytes] = []
    began = at
    while at < end:
        wanted = min(CHUNK, end - at)
        block = bytes(file.read_at(wanted, at))
        if len(block) < wanted:
            raise OSError("it was truncated while it was read")
        if at == 0 and block.startswith(BOM):
            block, began = block[len(BOM) :], len(BOM)
        at = min(at + CHUNK, end)
        # What follows the last line end waits for the next block, at most a line's limit of bytes.
        last = _last_line_end(block) if at < end else len(block) - 1
        if last < 0 and at < end:
            carried.append(block)
            if sum(map(len, carried)) > limits.MAX_LINE_BYTES:
                raise OSError(limits.long_text("a line"))
            continue
        yield began, b"".join([*carried, block[: last + 1]])
        carried, began = [block[last + 1 :]], at - len(block) + last + 1


def _last_line_end(block: bytes, line_end: bytes = b"") -> int:
    """Find the last byte of a line end; a last CR may be half of a CRLF and waits."""
    if line_end:
        at = block.rfind(line_end)
        return at if at < 0 else at + len(line_end) - 1
    searched = len(block) - block.endswith(b"\r")
    return max(block.rfind(b"\n", 0, searched), block.rfind(b"\r", 0, searched))


def _ignored(line: bytes, comment: bytes) -> bool:
    return not line.strip() or bool(comment and line.startswith(comment))
