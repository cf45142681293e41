"""What executors do with the files of a batch: read, complete and write, all in Arrow.

Plans are plain data; functions are pickled by reference, so `shared` and `target_spark` must be
installed where executors run.
"""

from __future__ import annotations

import bisect
import errno
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from shared.conform import conform
from shared.encodings import FORMATS, Encoding, read_lines
from shared.json_lines import LineReader
from shared.storage import join, make_durable, open_random, size_of
from shared.transforms.record_metadata import DELETED_AT, RecordMetadata
from target_spark.plans import InputFile

MAX_REJECTS = 100
"""Rejected records of one task that are told apart; further ones are counted."""

REJECT_COLUMN = "__reject"
"""Text column that carries rejected records through transforms."""

RESULTS = pa.schema(
    [("kind", pa.string()), ("url", pa.string()), ("rows", pa.int64()), ("size", pa.int64()),
     ("text", pa.string())]
)  # fmt: skip
"""What tasks tell the driver: `part`, `reject` (line in rows, reason in text), `more`, failures."""

RESULTS_DDL = "kind string, url string, rows bigint, size bigint, text string"

_LASTING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR,
     errno.EEXIST, errno.ENOENT, errno.EISDIR, errno.ENAMETOOLONG}
)  # fmt: skip


class UnreadableInputError(Exception):
    """A file to load cannot be opened or is not what it should be: its URL and why."""


@dataclass(frozen=True)
class Piece:
    """A file to read, or the lines that begin within a range of its bytes."""

    file: InputFile
    start: int = 0
    length: int | None = None


@dataclass(frozen=True)
class ReadPlan:
    """How rows are read.

    Attributes:
        tasks: The pieces of each task, in order.
        schema: JSON Schema that lines are read with.
        columns: Columns and types that leave the reader.
        metadata: Values of the `_sdc_*` columns, or None for none.
        strict: Check every record against the schema.
    """

    tasks: tuple[tuple[Piece, ...], ...]
    schema: Mapping[str, Any]
    columns: pa.Schema
    metadata: RecordMetadata | None = None
    strict: bool = True


@dataclass(frozen=True)
class WritePlan:
    """How rows are written: one file per task in a hidden folder."""

    pending: str
    encoding: Encoding
    columns: pa.Schema


@dataclass
class Rejects:
    """Records of one task that do not fit, bounded."""

    found: list[tuple[str, int, str]] = field(default_factory=list)
    count: int = 0

    def add(self, url: str, line: int, reason: str) -> None:
        """Notes one record."""
        self.count += 1
        if len(self.found) < MAX_REJECTS:
            self.found.append((url, line, reason))

    def rows(self) -> list[dict[str, Any]]:
        """As result rows; the last one counts those that are not listed."""
        rows = [
            {"kind": "reject", "url": url, "rows": line, "text": reason}
            for url, line, reason in self.found
        ]
        more = self.count - len(self.found)
        return [*rows, {"kind": "more", "rows": more}] if more else rows


def load(read: ReadPlan, write: WritePlan, batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    """`mapInArrow` function: reads and writes the tasks named by the incoming numbers."""
    pa.set_cpu_count(1)
    for number in _numbers(batches):
        rejects = Rejects()
        try:
            rows = _write(write, read_task(read, read.tasks[number], rejects))
        except UnreadableInputError as error:
            rows = [_unreadable(error)]
        except OSError as error:
            rows = [_failure(error, write.pending)]
        yield _results([*rows, *rejects.rows()])


def read_frame(read: ReadPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """`mapInArrow` function: the rows, then the rejects in a column of their own."""
    pa.set_cpu_count(1)
    columns = read.columns.append(pa.field(REJECT_COLUMN, pa.string()))
    for number in _numbers(batches):
        rejects = Rejects()
        failed: list[dict[str, Any]] = []
        try:
            for table in read_task(read, read.tasks[number], rejects):
                yield from conform(table, columns).to_batches()
        except UnreadableInputError as error:
            failed = [_unreadable(error)]
        texts = [json.dumps(row) for row in (*failed, *rejects.rows())]
        if texts:
            yield from conform(pa.table({REJECT_COLUMN: texts}), columns).to_batches()


def write_frame(write: WritePlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """`mapInArrow` function: writes rows of a frame that `read_frame` has begun."""
    pa.set_cpu_count(1)
    rejects: list[dict[str, Any]] = []
    try:
        rows = _write(write, _without_rejects(batches, write.columns, rejects))
    except OSError as error:
        rows = [_failure(error, write.pending)]
    yield _results([*rows, *rejects])


def rewrite(
    pairs: Sequence[tuple[str, str]], write: WritePlan, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """`mapInArrow` function: files of a table written anew with the columns of `write`."""
    pa.set_cpu_count(1)
    form = FORMATS[write.encoding.format]
    columns = write.columns
    if write.encoding.format == "csv":
        columns = pa.schema([(name, pa.string()) for name in columns.names])
    for number in _numbers(batches):
        source, target = pairs[number]
        try:
            tables = (conform(table, columns) for table in form.read(source))
            form.write(target, columns, tables, write.encoding.compression)
            make_durable(target)
        except OSError as error:
            yield _results([_failure(error, write.pending)])


def read_task(read: ReadPlan, pieces: Iterable[Piece], rejects: Rejects) -> Iterator[pa.Table]:
    """The completed rows of some pieces, in bounded tables with the columns of the plan.

    Raises:
        UnreadableInputError: A file is missing, cut or of another format.
    """
    for piece in pieces:
        try:
            if piece.file.encoding.format in {"singer", "jsonl"}:
                yield from _read_lines(read, piece, rejects)
            else:
                for table in FORMATS[piece.file.encoding.format].read(piece.file.url):
                    yield _completed(read, table)
        except (OSError, pa.ArrowInvalid) as error:
            raise UnreadableInputError(piece.file.url, str(error)) from error


def _read_lines(read: ReadPlan, piece: Piece, rejects: Rejects) -> Iterator[pa.Table]:
    reader = LineReader(
        read.schema, envelope=piece.file.encoding.format == "singer", strict=read.strict
    )
    lines = 0
    for block in read_lines(piece.file.url, piece.start, piece.length):
        found = reader.read(block)
        if found.rejects:
            before = lines + _lines_before(piece)
            for position, reason in found.rejects:
                line = line_of(piece.file, before + position + 1)
                rejects.add(piece.file.url, line, reason)
        lines += block.count(b"\n")
        yield _completed(read, found.table, found.extracted_at, found.versions)


def line_of(file: InputFile, line: int) -> int:
    """The line of stdin (both 1-based) that a line of a staged file was; else the line itself."""
    if not file.line_map:
        return line
    run = bisect.bisect_right(file.line_map, line, key=lambda pair: pair[0]) - 1
    first, origin = file.line_map[max(0, run)]
    return origin + line - first


def _lines_before(piece: Piece) -> int:
    """Lines of the file that begin before the piece does; read only where a record is rejected."""
    if piece.start == 0:
        return 0
    with open_random(piece.file.url) as source:
        left, count, last = piece.start, 0, b"\n"
        while left and (chunk := source.read(min(left, 1 << 20))):
            left, count, last = left - len(chunk), count + chunk.count(b"\n"), chunk[-1:]
    return count if last == b"\n" else count + 1


def _completed(
    read: ReadPlan,
    table: pa.Table,
    extracted_at: pa.ChunkedArray | None = None,
    versions: pa.ChunkedArray | None = None,
) -> pa.Table:
    """The rows with their metadata columns, as the table stores them."""
    if read.metadata is not None:
        deleted = table.column(DELETED_AT) if DELETED_AT in table.column_names else None
        added = read.metadata.columns(table.num_rows, extracted_at, deleted, versions)
        for name, column in added.items():
            position = table.schema.get_field_index(name)
            if position < 0:
                table = table.append_column(name, column)
            else:
                table = table.set_column(position, name, column)
    return conform(table, read.columns)


def _write(write: WritePlan, tables: Iterator[pa.Table]) -> list[dict[str, Any]]:
    """Writes all rows into one new file, which is durable then; no file for no rows."""
    first = next((table for table in tables if table.num_rows), None)
    if first is None:
        return []
    form = FORMATS[write.encoding.format]
    ending = form.extension(write.encoding.compression)
    url = join(write.pending, f"{uuid.uuid4().hex}{ending}")
    rows = 0

    def counted() -> Iterator[pa.Table]:
        nonlocal rows
        for table in _chain(first, tables):
            rows += table.num_rows
            yield table

    form.write(url, write.columns, counted(), write.encoding.compression)
    make_durable(url)
    return [{"kind": "part", "url": url, "rows": rows, "size": size_of(url)}]


def _chain(first: pa.Table, rest: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield first
    yield from rest


def _without_rejects(
    batches: Iterable[pa.RecordBatch], columns: pa.Schema, rejects: list[dict[str, Any]]
) -> Iterator[pa.Table]:
    for batch in batches:
        table = pa.Table.from_batches([batch])
        notes = table.column(REJECT_COLUMN)
        if notes.null_count < table.num_rows:
            rejects += [json.loads(text) for text in notes.drop_null().to_pylist()]
            table = table.filter(notes.is_null())
        rows = table.drop_columns([REJECT_COLUMN]).rename_columns(columns.names)
        yield conform(rows, columns)


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _results(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, RESULTS)


def _unreadable(error: UnreadableInputError) -> dict[str, Any]:
    url, reason = error.args
    return {"kind": "unreadable", "url": url, "text": reason}


def _failure(error: OSError, pending: str) -> dict[str, Any]:
    """A failure that trying again would not mend, as a result; any other goes on as it is."""
    if error.errno not in _LASTING:
        raise error
    place = str(error.filename) if error.filename else pending
    reason = os.strerror(error.errno or 0)
    return {"kind": "error", "url": place, "rows": error.errno, "text": reason}
