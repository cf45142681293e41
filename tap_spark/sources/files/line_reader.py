"""Lines of file ranges as Arrow batches, split without a Python object per line; on executors."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from lzma import LZMAError

import pyarrow as pa
import pyarrow.compute as pc

from shared.arrow_start import arrow_in_task
from shared.storage import limits
from shared.storage.files import open_input, open_random
from tap_spark.sources.files.file_inspector import next_line_start
from tap_spark.sources.files.file_kinds import ENCODING_HINT
from tap_spark.sources.files.quoted_lines import Quotes
from tap_spark.sources.source_failures import row_failure

CHUNK = 4 * 1024 * 1024
HEAD = 64 * 1024
BOM = b"\xef\xbb\xbf"
UTF8 = "utf-8"
LINES_SCHEMA = "value binary, file int"

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
        header: Whether to skip the first line that is not blank.
        comment: Prefix of lines that do not count as the header.
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
    header: bool = False
    comment: bytes = b""
    rules: LineRules = field(default_factory=LineRules)
    is_stream: bool = False


def cut_ranges(
    url: str,
    number: int,
    start: int,
    end: int,
    *,
    range_bytes: int,
    header: bool,
    comment: bytes = b"",
) -> list[LineRange]:
    """Cut a line-aligned part of a file into ranges of about `range_bytes` bytes."""
    return [
        LineRange(
            url,
            number,
            at,
            min(at + range_bytes, end),
            end,
            aligned=at == start,
            header=header and at == 0,
            comment=comment,
        )
        for at in range(start, end, range_bytes)
    ]


def reader(
    tasks: Sequence[Sequence[LineRange]],
    change: Callable[[pa.Array], pa.Array] | None = None,
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Return a function for `mapInArrow`: ids of tasks in, the lines of their ranges out.

    Args:
        tasks: The ranges of each task.
        change: Changes the lines before Spark reads them.
    """

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrow_in_task()
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for line_range in tasks[task]:
                    for lines in read_range(line_range):
                        yield lines if change is None else _changed(lines, change)

    return read


def read_range(line_range: LineRange) -> Iterator[pa.RecordBatch]:
    """Read the lines of a range, without their line ends, as UTF-8."""
    try:
        header = line_range.header
        for values in _records(line_range):
            kept, header = without_header(values, line_range.comment, header=header)
            numbers = pa.repeat(pa.scalar(line_range.number, pa.int32()), len(kept))
            yield pa.RecordBatch.from_arrays([kept, numbers], ["value", "file"])
    except (OSError, pa.ArrowInvalid, LZMAError, EOFError) as error:
        raise RuntimeError(
            row_failure(problem=f"the file cannot be read: {error}", file=line_range.url)
        ) from error


def without_header(values: pa.Array, comment: bytes, *, header: bool) -> tuple[pa.Array, bool]:
    """Return lines without a header that is still to come, and whether it is then still to come."""
    if not header:
        return values, False
    kept = values.slice(_header_lines(values, comment))
    return kept, not len(kept) and _only_blank(values, comment)


def decoded(lines: pa.Array, url: str, rules: LineRules) -> pa.Array:
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
            if not _ignored(value.as_py(), line_range.comment):
                return bytes(value.as_py())
    return None


def _records(line_range: LineRange) -> Iterator[pa.Array]:
    rules, url = line_range.rules, line_range.url
    if line_range.is_stream:
        with open_input(url) as stream:
            yield from _split(texts(stream, url, rules), url, rules)
        return
    with open_random(url) as file:
        blocks = (
            (at, utf8_of(block, at, url, rules.encoding))
            for at, block in _line_blocks(file, line_range)
        )
        yield from _split(blocks, url, rules)


def _split(blocks: Iterable[tuple[int, bytes]], url: str, rules: LineRules) -> Iterator[pa.Array]:
    if rules.quotes is not None:
        yield from rules.quotes.records(blocks, url)
        return
    for _, block in blocks:
        yield split_lines(block, rules.line_end)


def utf8_of(block: bytes, at: int, url: str, encoding: str) -> bytes:
    """Return text as UTF-8, whose bytes are checked.

    Args:
        block: The text.
        at: Where it begins in the file.
        url: The file.
        encoding: Python's name of its encoding; empty for the bytes as they are.

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


def texts(stream: pa.NativeFile, url: str, rules: LineRules) -> Iterator[tuple[int, bytes]]:
    """Yield the text of a stream as UTF-8 that ends with a line, and the byte where it began.

    Raises:
        OSError: The file cannot be read.
        RuntimeError: A byte is not text.
    """
    decoder = codecs.getincrementaldecoder(rules.encoding)()
    carried: list[bytes] = []
    at = began = 0
    spans = rules.quotes is not None and rules.quotes.spans_lines
    while True:
        block = bytes(stream.read(CHUNK))
        pending = decoder.getstate()[0]
        try:
            text = decoder.decode(block, final=not block).encode()
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


def _changed(lines: pa.RecordBatch, change: Callable[[pa.Array], pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [change(lines.column(0)), lines.column(1)], lines.schema.names
    )


def has_line(url: str, end: int, comment: bytes = b"") -> bool:
    """Return whether a file has a line before `end` that is neither blank nor a comment."""
    line_range = LineRange(url, 0, 0, end, end, aligned=True)
    with open_random(url) as file:
        return any(
            not _only_blank(split_lines(block), comment)
            for _, block in _line_blocks(file, line_range)
        )


def split_lines(data: bytes, line_end: bytes = b"") -> pa.Array:
    """Split whole lines at every kind of line end; the last line end may be missing."""
    if not line_end and b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if not data:
        return pa.array([], pa.binary())
    data = data.removesuffix(line_end or b"\n")
    return pc.split_pattern(pa.array([data], pa.binary()), line_end or b"\n").flatten()


def line_blocks(line_range: LineRange) -> Iterator[bytes]:
    """Read the lines of a range as blocks of whole lines in UTF-8, each line end a LF.

    Raises:
        OSError: The file cannot be read.
        RuntimeError: A byte is not text.
    """
    with open_random(line_range.url) as file:
        for at, read in _line_blocks(file, line_range):
            block = utf8_of(read, at, line_range.url, line_range.rules.encoding)
            yield block.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in block else block


def _line_blocks(file: pa.NativeFile, line_range: LineRange) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of whole lines, and where each begins in the file."""
    at = (
        line_range.start
        if line_range.aligned
        else next_line_start(file, line_range.start, line_range.limit)
    )
    end = line_range.limit
    if line_range.stop < line_range.limit:
        end = next_line_start(file, line_range.stop, line_range.limit)
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


def _header_lines(values: pa.Array, comment: bytes) -> int:
    """Count the lines at the start that are blank, comments, or the header itself."""
    for index in range(len(values)):
        if not _ignored(values[index].as_py(), comment):
            return index + 1
    return len(values)


def _only_blank(values: pa.Array, comment: bytes) -> bool:
    return all(_ignored(value.as_py(), comment) for value in values)


def _ignored(line: bytes, comment: bytes) -> bool:
    return not line.strip() or bool(comment and line.startswith(comment))
