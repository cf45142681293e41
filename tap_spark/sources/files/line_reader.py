"""Lines of file ranges as Arrow batches, split without a Python object per line; on executors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from shared.arrow_start import arrow_in_task
from shared.storage import limits
from shared.storage.files import open_random
from tap_spark.sources.files.file_inspector import next_line_start
from tap_spark.sources.source_failures import row_failure

CHUNK = 4 * 1024 * 1024
BOM = b"\xef\xbb\xbf"
LINES_SCHEMA = "value binary, file int"

FilePart = tuple[str, int, int]
"""A file, a line start in it, and a later line start or the end of the file."""


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
    """

    url: str
    number: int
    start: int
    stop: int
    limit: int
    aligned: bool
    header: bool = False
    comment: bytes = b""


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
    """Read the lines of a range, without their line ends."""
    try:
        with open_random(line_range.url) as file:
            header = line_range.header
            for values in _lines(file, line_range):
                kept = values.slice(_header_lines(values, line_range.comment)) if header else values
                header = header and not len(kept) and _only_blank(values, line_range.comment)
                numbers = pa.repeat(pa.scalar(line_range.number, pa.int32()), len(kept))
                yield pa.RecordBatch.from_arrays([kept, numbers], ["value", "file"])
    except OSError as error:
        raise RuntimeError(
            row_failure(problem=f"the file cannot be read: {error}", file=line_range.url)
        ) from error


def _changed(lines: pa.RecordBatch, change: Callable[[pa.Array], pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [change(lines.column(0)), lines.column(1)], lines.schema.names
    )


def has_line(url: str, end: int, comment: bytes = b"") -> bool:
    """Return whether a file has a line before `end` that is neither blank nor a comment."""
    line_range = LineRange(url, 0, 0, end, end, aligned=True)
    with open_random(url) as file:
        return any(not _only_blank(values, comment) for values in _lines(file, line_range))


def split_lines(data: bytes) -> pa.Array:
    """Split whole lines at every kind of line end; the last line end may be missing."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if not data:
        return pa.array([], pa.binary())
    if data.endswith(b"\n"):
        data = data[:-1]
    return pc.split_pattern(pa.array([data], pa.binary()), b"\n").flatten()


def _lines(file: pa.NativeFile, line_range: LineRange) -> Iterator[pa.Array]:
    at = (
        line_range.start
        if line_range.aligned
        else next_line_start(file, line_range.start, line_range.limit)
    )
    end = line_range.limit
    if line_range.stop < line_range.limit:
        end = next_line_start(file, line_range.stop, line_range.limit)
    carried: list[bytes] = []
    while at < end:
        wanted = min(CHUNK, end - at)
        block = bytes(file.read_at(wanted, at))
        if len(block) < wanted:
            raise OSError("it was truncated while it was read")
        block = block[len(BOM) :] if at == 0 and block.startswith(BOM) else block
        at = min(at + CHUNK, end)
        last = _last_line_end(block, final=at >= end)
        if last < 0:
            carried.append(block)
            if sum(map(len, carried)) > limits.MAX_LINE_BYTES:
                raise OSError(limits.long_text("a line"))
            continue
        yield split_lines(b"".join([*carried, block[: last + 1]]))
        carried = [block[last + 1 :]]
    rest = b"".join(carried)
    if rest:
        yield split_lines(rest)


def _last_line_end(block: bytes, *, final: bool) -> int:
    """Find the last line end; a final CR may be half of a CRLF and waits for what follows."""
    searched = len(block) if final or not block.endswith(b"\r") else len(block) - 1
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
