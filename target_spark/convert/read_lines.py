"""Reading of JSON lines and staged messages: a range of the bytes of a file."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from shared.formats.fast_json import LinesRead
from shared.formats.file_formats import check_lines, packed_lines, read_lines
from shared.formats.json_lines import LineReader
from shared.formats.json_text import newlines
from shared.formats.line_encodings import LongLineError
from shared.storage.access import StorageOptions
from shared.storage.files import codec_of, open_random
from target_spark.convert.read_plan import Piece, ReadPlan, origin_of, with_column, without
from target_spark.convert.task_reports import Rejects
from target_spark.core.load_plans import STAGED, InputFile, Reject
from target_spark.validation.columns import are_filled, columns_to_fill

if TYPE_CHECKING:
    from target_spark.validation.checks import LineChecker

_COUNTED = 1 << 20


def rows_of_lines(read: ReadPlan, piece: Piece, rejects: Rejects) -> Iterator[pa.Table]:
    staged = piece.file.encoding.format == STAGED
    columns = columns_to_fill(read.schema, read.keys, strict=read.strict)
    checker = _checker(read, envelope=staged) if columns is None else None
    looks = read.looks_for_undeclared
    named = read.names is None or set(read.names) <= set(read.schema.get("properties", ()))
    closed = (looks and named) or (checker is not None and checker.closed)
    reader = LineReader(read.schema, envelope=staged, strict=read.strict, closed=closed)
    url, options = piece.file.url, read.options
    before = 0
    for block, place in _blocks(piece, options):
        before = before if place is None else place
        result = reader.read(block)
        lines = result.lines
        rejects.read += result.rows_read
        rejects.cut |= result.cut
        if looks and result.unexpected:
            read.add_undeclared(reader.undeclared(block, result), rejects)
        documents = None if read.document is None else _document_reader(staged).read(block)
        if documents is not None and documents.rejects:
            # They also hold properties that no column has, whose values may not be text.
            checker = checker or _checker(read, envelope=staged)
            result = checker.without_lines(result, block, documents)
        fitting = result
        if not are_filled(result.table, columns):
            checker = checker or _checker(read, envelope=staged)
            fitting = checker.fitting(result, block)
            result = checker.with_keys(fitting, block)
        if read.is_narrow and (unheld := read.unheld(result.table)):
            checker = checker or _checker(read, envelope=staged)
            result = checker.without(result, block, unheld)
        if result.rejects and (reported := read.reported(fitting.rejects, result.rejects)):
            first = before + lines_before(piece, options)
            texts = block.split(b"\n")
            for position, reason, output in reported:
                line = line_of(piece.file, first + position + 1)
                rejects.add(Reject(url, line, reason, output), texts[position])
        table = result.table
        if documents is not None and read.document is not None:
            if result.rejects:
                checker = checker or _checker(read, envelope=staged)
                documents = checker.without_lines(documents, block, result)
            table = with_column(table, read.document, documents.table.column(0))
        if read.row_origin is not None:
            table = with_column(
                table, read.row_origin, line_origins(piece.number, block, before, result)
            )
        yield read.completed(table, result.extracted_at, result.versions)
        before += lines


def _checker(read: ReadPlan, *, envelope: bool) -> LineChecker:
    from target_spark.validation.checks import LineChecker  # noqa: PLC0415

    return LineChecker(read.schema, read.keys, envelope=envelope, strict=read.strict)


@cache
def _document_reader(envelope: bool) -> LineReader:
    return LineReader({}, envelope=envelope, strict=False)


def line_origins(piece: int, block: bytes, before: int, result: LinesRead) -> pa.Array:
    """Return the origins of the records read from a block of lines.

    Args:
        before: Number of lines read from the file before the block.
    """
    gone = [place for place, _ in result.rejects]
    if result.rows_read < result.lines:
        texts = enumerate(block.split(b"\n"))
        gone += [number for number, text in texts if not text.strip() and number < result.lines]
    return without(origin_of(piece, before), result.lines, gone)


def blocks_of(piece: Piece, options: StorageOptions | None) -> Iterator[tuple[bytes, int]]:
    """Yield blocks of lines, each with the number of lines read before it.

    Raises:
        ContentError: The file has another format, or a line that is too long.
        OSError: It cannot be opened, or its compression is damaged or truncated.
    """
    lines = 0
    for block, before in _blocks(piece, options):
        lines = lines if before is None else before
        yield block, lines
        lines += newlines(block)


def _blocks(piece: Piece, options: StorageOptions | None) -> Iterator[tuple[bytes, int | None]]:
    """Yield blocks as `blocks_of`; the lines before them are counted only in a compressed file."""
    url, is_staged, length = piece.url, piece.file.encoding.format == STAGED, piece.length
    if is_staged and length is None:
        length = piece.file.size  # A range is not looked at for a compression.
    is_labelled = not is_staged and piece.start == 0
    if piece.length is not None and _is_packed(piece, options):
        for block, before in packed_lines(url, piece.start, piece.length, options=options):
            if before == 0:
                check_lines(block)
            yield block, before
        return
    try:
        for block in read_lines(url, piece.start, length, options=options):
            if is_labelled:
                check_lines(block)
            is_labelled = False
            yield block, None
    except LongLineError as error:
        raise LongLineError(error.line + lines_before(piece, options)) from None


def _is_packed(piece: Piece, options: StorageOptions | None) -> bool:
    return piece.file.encoding.format == "jsonl" and codec_of(piece.url, options) is not None


def line_of(file: InputFile, line: int) -> int:
    """Return the stdin line of a staged file's line (both 1-based); else the line itself."""
    if not file.line_map:
        return line
    run = bisect.bisect_right(file.line_map, line, key=lambda pair: pair[0]) - 1
    first, origin = file.line_map[max(0, run)]
    return origin + line - first


def lines_before(piece: Piece, options: StorageOptions | None) -> int:
    """Return how many lines begin before the piece; called only if a record is rejected."""
    if piece.start == 0 or _is_packed(piece, options):
        return 0
    with open_random(piece.url, options) as source:
        left, count, last = piece.start, 0, b"\n"
        while left and (chunk := source.read(min(left, _COUNTED))):
            left, count, last = left - len(chunk), count + newlines(chunk), chunk[-1:]
    return count if last == b"\n" else count + 1
