"""Reading of a batch's files on executors: rows of the stream, and rejected rows.

Rows that a stream map makes can fail long after they were read. Their origin, one number in a
column, encodes the piece and the line (or row) in it; `convert.rejected_originals` finds the input
line again if a row fails.
"""

from __future__ import annotations

import bisect
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from heapq import merge
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shared.formats.arrow_types import conform
from shared.formats.csv_encoding import RefusedRow, read_csv, row_numbers
from shared.formats.file_formats import (
    FORMATS,
    ContentError,
    check_lines,
    numbered_lines,
    packed_lines,
)
from shared.formats.json_lines import LineReader, LinesRead
from shared.formats.line_encodings import LongLineError
from shared.formats.row_groups import ROW_GROUPS
from shared.formats.row_values import plain_rows, row_text
from shared.formats.typed_rows import RowReader
from shared.maps.record_metadata import DELETED_AT, METADATA, RecordMetadata
from shared.storage.access import StorageOptions, failures, remote
from shared.storage.files import codec_of, open_random
from shared.storage.storage_errors import is_trouble
from shared.storage.urls import local_path
from target_spark.convert.task_reports import Rejects
from target_spark.core.load_plans import InputFile, Reject
from target_spark.destinations.destination import ROW_ORIGIN
from target_spark.tables.row_layout import line_documents, row_documents
from target_spark.validation.row_checks import Key, LineChecker, LineKeys, RowChecker, RowKeys

_LINES = 1 << 40


def origin_of(piece: int, line: int) -> int:
    """Return the origin of a line or row (from 0) of a piece."""
    return piece * _LINES + line


def split_origin(origin: int) -> tuple[int, int]:
    """Return piece and line of an origin."""
    return divmod(origin, _LINES)


def line_origins(piece: int, block: bytes, before: int, result: LinesRead) -> pa.Array:
    """Return the origins of the records read from a block of lines.

    Args:
        piece: Number of the piece.
        block: The lines.
        before: Number of lines read from the file before the block.
        result: The rows that were read.
    """
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    gone = [place for place, _ in result.rejects]
    if result.rows_read < lines:
        texts = enumerate(block.split(b"\n"))
        gone += [number for number, text in texts if not text.strip() and number < lines]
    return _without(origin_of(piece, before), lines, gone)


def row_origins(
    piece: int, before: int, rows: int, refused: Sequence[RefusedRow], gone: Sequence[int]
) -> pa.Array:
    """Return the origins of the rows taken from a table of a file.

    Args:
        piece: Number of the piece.
        before: Number of rows of the file before the table.
        rows: Number of rows of the table.
        refused: Malformed rows that came with the table.
        gone: Rejected rows of the table, from 0.
    """
    number = row_numbers(before, refused)
    missing = [row.number - 1 - before for row in refused]
    missing += [number(place) - 1 - before for place in gone]
    return _without(origin_of(piece, before), rows + len(refused), missing)


def _without(first: int, count: int, gone: Sequence[int]) -> pa.Array:
    """Return `count` numbers from `first` on, without some of them (counted from 0)."""
    numbers = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count), start=first - 1)
    if gone:
        missing = pa.array([first + place for place in gone], pa.int64())
        numbers = numbers.filter(pc.invert(pc.is_in(numbers, missing)))
    return numbers


_COUNTED = 1 << 20
SMALL_BYTES = 16 << 20
"""Size up to which a task fetches a remote file at once."""
_Rejected = tuple[tuple[int, str], ...]


class UnreadableInputError(Exception):
    """A file to load cannot be opened or has the wrong format; has its URL and the reason."""


class StorageTroubleError(UnreadableInputError):
    """The storage of a file fails or rejects; has the file's URL, the reason and the errno."""

    def __init__(self, url: str, reason: str, number: int) -> None:
        super().__init__(url, reason)
        self.number = number


@dataclass(frozen=True)
class Piece:
    """A file to read, the lines that begin within a range of its bytes, or some row groups.

    Attributes:
        file: The file.
        start: First byte, or first row group of a columnar file.
        length: Bytes or row groups; None for all.
        rows_before: Rows of a columnar file before the piece.
        number: Identifies the piece within a conversion.
        copy: URL of a copy to read in place of the file.
    """

    file: InputFile
    start: int = 0
    length: int | None = None
    rows_before: int = 0
    number: int = 0
    copy: str | None = None

    @property
    def url(self) -> str:
        """Return what is opened."""
        return self.copy or self.file.url


@dataclass(frozen=True)
class ReadPlan:
    """How rows are read.

    Attributes:
        tasks: The pieces of each task, in order.
        schema: JSON Schema that rows are read with.
        columns: Columns and types that leave the reader.
        metadata: Values of the `_sdc_*` columns, or None.
        strict: Check every record against the schema.
        options: Options of the storage of the files.
        rejects: Folder for files of rejected records, or None.
        reject_options: Options of the storage of that folder.
        document: Name of an added column for the record as one text, or None.
        row_origin: Name of an added column for the origin of each row, or None.
        names: Columns of the stream that a file may have; None for those of `schema`.
        reports_rejects: Report rejected records; else skip them silently, unless a key is the
            reason.
        keys: Key properties that need a value in each record.
        refused: Origins of records that the store refuses, each with the reason.
    """

    tasks: tuple[tuple[Piece, ...], ...]
    schema: Mapping[str, Any]
    columns: pa.Schema
    metadata: RecordMetadata | None = None
    strict: bool = True
    options: StorageOptions = field(default_factory=StorageOptions)
    rejects: str | None = None
    reject_options: StorageOptions = field(default_factory=StorageOptions)
    document: str | None = None
    row_origin: str | None = None
    names: tuple[str, ...] | None = None
    reports_rejects: bool = True
    keys: tuple[Key, ...] = ()
    refused: Mapping[int, str] = field(default_factory=dict)


def with_origins(read: ReadPlan) -> ReadPlan:
    """Return how records are read with their origins, so that those that fail can be named."""
    pieces = iter(range(sum(map(len, read.tasks))))
    tasks = tuple(tuple(replace(p, number=next(pieces)) for p in task) for task in read.tasks)
    origin = pa.field(ROW_ORIGIN, pa.int64())
    return replace(read, tasks=tasks, row_origin=ROW_ORIGIN, columns=read.columns.append(origin))


def read_task(read: ReadPlan, pieces: Iterable[Piece], rejects: Rejects) -> Iterator[pa.Table]:
    """Yield the completed rows of some pieces, in bounded tables with the plan's columns.

    Raises:
        UnreadableInputError: A file is missing, truncated or has another format.
        StorageTroubleError: Its storage does not answer, or rejects the request.
    """
    for piece in pieces:
        yield from _readable(piece.url, _read(read, piece, rejects), read.options)


def _read(read: ReadPlan, piece: Piece, rejects: Rejects) -> Iterator[pa.Table]:
    lines = FORMATS[piece.file.encoding.format].text
    with _fetched(piece, read.options) as near:
        yield from (_read_lines if lines else _read_rows)(read, near, rejects)


@contextmanager
def _fetched(piece: Piece, options: StorageOptions) -> Iterator[Piece]:
    """Copy a small remote file to the local disk: its parts would take a request each."""
    size = piece.file.size or 0
    is_small = piece.length is None and 0 < size <= SMALL_BYTES
    if local_path(piece.url) is not None or not is_small:
        yield piece
        return
    with tempfile.NamedTemporaryFile(prefix="singer-spark-") as copy:
        filesystem, inside = remote(piece.url, options)
        with failures(piece.url, options):
            # With a start, s3fs does not ask for the size first.
            copy.write(filesystem.cat_file(inside, start=0))
        copy.flush()
        yield replace(piece, copy=copy.name)


def line_of(file: InputFile, line: int) -> int:
    """Return the stdin line of a staged file's line (both 1-based); else the line itself."""
    if not file.line_map:
        return line
    run = bisect.bisect_right(file.line_map, line, key=lambda pair: pair[0]) - 1
    first, origin = file.line_map[max(0, run)]
    return origin + line - first


def _readable(url: str, tables: Iterator[Any], options: StorageOptions) -> Iterator[Any]:
    """Yield the tables of one file; wrap failures to read it, not those of the consumer."""
    while True:
        try:
            table = next(tables, None)
        except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            if local_path(url) is None and isinstance(error, OSError) and is_trouble(error):
                number = error.errno or 0
                raise StorageTroubleError(url, error.strerror or "", number) from error
            raise UnreadableInputError(url, _reason(error, options)) from error
        except Exception as error:
            if local_path(url) is not None:
                raise
            # Packages of object stores have exceptions of their own.
            raise UnreadableInputError(url, _reason(error, options)) from error
        if table is None:
            return
        yield table


def _reason(error: BaseException, options: StorageOptions) -> str:
    message = (error.strerror if isinstance(error, OSError) else None) or str(error)
    text = " ".join(message.split()) or type(error).__name__
    return options.without_secrets(text)


def _read_lines(read: ReadPlan, piece: Piece, rejects: Rejects) -> Iterator[pa.Table]:
    staged = piece.file.encoding.format == "singer"
    checker = LineChecker(read.schema, envelope=staged) if read.strict else None
    looks = _looks_for_undeclared(read)
    named = read.names is None or set(read.names) <= set(read.schema.get("properties", ()))
    closed = (looks and named) or (checker is not None and checker.closed)
    reader = LineReader(read.schema, envelope=staged, strict=read.strict, closed=closed)
    keys = LineKeys(read.schema, read.keys, envelope=staged)
    url, options = piece.file.url, read.options
    for block, before in blocks_of(piece, options):
        result = reader.read(block)
        rejects.read += result.rows_read
        rejects.cut |= result.cut
        if looks:
            _add_undeclared(read, reader.undeclared(block, result), rejects)
        fitting = result if checker is None else checker.check(result, block)
        result = keys.check(fitting, block)
        reported = _reported_rejects(read, fitting.rejects, result.rejects)
        if reported:
            first = before + lines_before(piece, options)
            texts = block.split(b"\n")
            for position, reason in reported:
                line = line_of(piece.file, first + position + 1)
                rejects.add(Reject(url, line, reason), texts[position])
        table = result.table
        if read.document is not None:
            places = [place for place, _ in result.rejects]
            texts = line_documents(block, places, envelope=staged)
            table = _with_column(table, read.document, texts)
        if read.row_origin is not None:
            table = _with_column(
                table, read.row_origin, line_origins(piece.number, block, before, result)
            )
        yield _completed(read, table, result.extracted_at, result.versions)


def blocks_of(piece: Piece, options: StorageOptions | None) -> Iterator[tuple[bytes, int]]:
    """Yield blocks of lines, each with the number of lines read before it.

    Raises:
        ContentError: The file has another format, or a line that is too long.
        OSError: It cannot be opened, or its compression is damaged or truncated.
    """
    try:
        yield from _blocks(piece, options)
    except LongLineError as error:
        raise LongLineError(error.line + lines_before(piece, options)) from None


def _blocks(piece: Piece, options: StorageOptions | None) -> Iterator[tuple[bytes, int]]:
    url, is_labelled = piece.url, piece.file.encoding.format != "singer" and piece.start == 0
    blocks = numbered_lines(url, piece.start, piece.length, options=options)
    if piece.length is not None and _is_packed(piece, options):
        blocks, is_labelled = packed_lines(url, piece.start, piece.length, options=options), True
    for block, before in blocks:
        if is_labelled and before == 0:
            check_lines(block)
        yield block, before


def _is_packed(piece: Piece, options: StorageOptions | None) -> bool:
    return piece.file.encoding.format == "jsonl" and codec_of(piece.url, options) is not None


def _read_rows(read: ReadPlan, piece: Piece, rejects: Rejects) -> Iterator[pa.Table]:
    name = piece.file.encoding.format
    reader = RowReader(read.schema, strict=read.strict, texts=FORMATS[name].flat)
    checker = RowChecker(read.schema, frozenset(read.names or ())) if read.strict else None
    before, looks = piece.rows_before, _looks_for_undeclared(read)
    existing = None if read.names is None else frozenset(read.names)
    keys = RowKeys(read.schema, read.keys)
    for table, refused in tables_of(piece, read.options):
        names = table.column_names
        if not (
            reader.fits(names) if existing is None else not names or existing.intersection(names)
        ):
            raise ContentError("it has none of the stream's columns")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ContentError(f"two of its columns are named '{twice}'")
        rejects.read += table.num_rows + len(refused)
        if looks:
            _add_undeclared(read, reader.undeclared(table), rejects)
        result = reader.read(table)
        rejects.cut |= result.cut
        fitting = result if checker is None else checker.check(result, table)
        result = keys.check(fitting, table)
        reported = _reported_rejects(read, fitting.rejects, result.rejects)
        if reported or (refused and read.reports_rejects):
            number = row_numbers(before, refused)
            # A generator: the texts of many rows are not held at once.
            others = (
                RefusedRow(number(place), reason, row_at(table, place) if read.rejects else b"")
                for place, reason in reported
            )
            for row in merge(refused if read.reports_rejects else (), others, key=_number):
                rejects.add(Reject(piece.file.url, row.number, row.reason), row.text)
        accepted = result.table
        if read.document is not None:
            texts = row_documents(table, [place for place, _ in result.rejects])
            accepted = _with_column(accepted, read.document, texts)
        if read.row_origin is not None:
            gone = [place for place, _ in result.rejects]
            places = row_origins(piece.number, before, table.num_rows, refused, gone)
            accepted = _with_column(accepted, read.row_origin, places)
        before += table.num_rows + len(refused)
        yield _completed(read, accepted)


def _looks_for_undeclared(read: ReadPlan) -> bool:
    """Return whether properties that the SCHEMA lacks would be dropped without a word."""
    is_rejected = read.strict and read.schema.get("additionalProperties") is False
    return read.reports_rejects and read.document is None and not is_rejected


def _add_undeclared(
    read: ReadPlan, fields: Mapping[tuple[str, ...], int], rejects: Rejects
) -> None:
    declared = frozenset(read.names or ())
    for path, count in fields.items():
        if path[0] not in declared and not path[0].startswith(METADATA):
            rejects.add_undeclared(".".join(path), count)


def _reported_rejects(read: ReadPlan, unfit: _Rejected, every: _Rejected) -> _Rejected:
    """Return the rejected records to report: those without a key, and the others if asked."""
    others = frozenset(() if read.reports_rejects else unfit)
    return tuple(one for one in every if one not in others)


def _number(row: RefusedRow) -> int:
    return row.number


def row_at(table: pa.Table, place: int) -> bytes:
    return row_text(plain_rows(table.slice(place, 1))[0])


def tables_of(
    piece: Piece, options: StorageOptions
) -> Iterator[tuple[pa.Table, Sequence[RefusedRow]]]:
    """Yield the tables of a file, each with its malformed rows."""
    url, name = piece.url, piece.file.encoding.format
    if name == "csv":
        yield from read_csv(url, options)
        return
    if piece.length is None:
        tables = FORMATS[name].read(url, options)
    else:
        groups = range(piece.start, piece.start + piece.length)
        tables = ROW_GROUPS[name].read_groups(url, groups, options)
    for table in tables:
        yield table, ()


def lines_before(piece: Piece, options: StorageOptions | None) -> int:
    """Return how many lines begin before the piece; called only if a record is rejected."""
    if piece.start == 0 or _is_packed(piece, options):
        return 0
    with open_random(piece.url, options) as source:
        left, count, last = piece.start, 0, b"\n"
        while left and (chunk := source.read(min(left, _COUNTED))):
            left, count, last = left - len(chunk), count + chunk.count(b"\n"), chunk[-1:]
    return count if last == b"\n" else count + 1


def _completed(
    read: ReadPlan,
    table: pa.Table,
    extracted_at: pa.ChunkedArray | None = None,
    versions: pa.ChunkedArray | None = None,
) -> pa.Table:
    """Return the rows with their metadata columns, in the table's types."""
    if read.metadata is not None:
        deleted = table.column(DELETED_AT) if DELETED_AT in table.column_names else None
        added = read.metadata.columns(table.num_rows, extracted_at, deleted, versions)
        for name, column in added.items():
            table = _with_column(table, name, column)
    return conform(table, read.columns)


def _with_column(table: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return the table with a column added or replaced."""
    position = table.schema.get_field_index(name)
    if position < 0:
        return table.append_column(name, column)
    return table.set_column(position, name, column)
