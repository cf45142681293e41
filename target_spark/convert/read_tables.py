"""Reading of columnar files and CSV: some groups of the rows of a file, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from typing import TYPE_CHECKING

import pyarrow as pa

from shared.encodings.encoding_format import GROUPED, grouped_encoding
from shared.formats.file_formats import FORMATS, ContentError
from shared.formats.typed_rows import (
    RefusedRow,
    RowReader,
    plain_values,
    row_numbers,
    row_text,
    without_bad_text,
)
from shared.storage.access import StorageOptions
from target_spark.convert.read_plan import Piece, ReadPlan, origin_of, with_column, without
from target_spark.convert.task_reports import Rejects
from target_spark.core.load_plans import Reject
from target_spark.validation.columns import are_filled, columns_to_fill

if TYPE_CHECKING:
    from target_spark.validation.checks import RowChecker


def rows_of_tables(read: ReadPlan, piece: Piece, rejects: Rejects) -> Iterator[pa.Table]:
    name = piece.file.encoding.format
    reader = RowReader(read.schema, strict=read.strict, texts=FORMATS[name].rows == "texts")
    columns = columns_to_fill(read.schema, read.keys, strict=read.strict)
    checker: RowChecker | None = None
    before, looks = piece.rows_before, read.looks_for_undeclared
    declared = reader.declared if read.names is None else frozenset(read.names)
    for table, refused in tables_of(piece, read.options):
        names = table.column_names
        if names and declared is not None and declared.isdisjoint(names):
            raise ContentError("it has none of the stream's columns")
        is_flat = len(set(names)) == len(names) and not any(
            map(pa.types.is_nested, table.schema.types)
        )
        if not is_flat and (twice := _named_twice(list(table.schema))):
            raise ContentError(f"two of its columns are named '{twice}'")
        rejects.read += table.num_rows + len(refused)
        if looks and (undeclared := reader.undeclared(table)):
            read.add_undeclared(undeclared, rejects)
        result = reader.read(table)
        rejects.cut |= result.cut
        fitting = result
        if not are_filled(result.table, columns):
            checker = checker or _checker(read)
            fitting = checker.fitting(result, table)
            result = checker.with_keys(fitting, table)
        if read.is_narrow and (unheld := read.unheld(result.table)):
            checker = checker or _checker(read)
            result = checker.without(result, unheld)
        rejected = result.rejects
        reported = read.reported(fitting.rejects, rejected) if rejected else ()
        if reported or (refused and read.reports_rejects):
            number = row_numbers(before, refused)
            # A generator: the texts of many rows are not held at once.
            others = (
                (
                    Reject(piece.file.url, number(place), reason, output),
                    reader.row_at(table, place) if read.rejects else b"",
                )
                for place, reason, output in reported
            )
            malformed = (
                (Reject(piece.file.url, row.number, row.reason), row.text)
                for row in (refused if read.reports_rejects else ())
            )
            for reject, text in merge(malformed, others, key=lambda pair: pair[0].line):
                rejects.add(reject, text)
        accepted = result.table
        if read.document is not None:
            texts = _documents(table, [place for place, _ in result.rejects])
            accepted = with_column(accepted, read.document, texts)
        if read.row_origin is not None:
            gone = [place for place, _ in result.rejects]
            places = row_origins(piece.number, before, table.num_rows, refused, gone)
            accepted = with_column(accepted, read.row_origin, places)
        before += table.num_rows + len(refused)
        yield read.completed(accepted)


def _named_twice(fields: Sequence[pa.Field]) -> str | None:
    """Return a name that two fields of one struct have, after the names of its parents."""
    names = {field.name for field in fields}
    for field in fields:
        if field.name not in names:
            return str(field.name)
        names.remove(field.name)
        within = _named_twice([field.type.field(n) for n in range(field.type.num_fields)])
        if within:
            return f"{field.name}.{within}"
    return None


def _checker(read: ReadPlan) -> RowChecker:
    from target_spark.validation.checks import RowChecker  # noqa: PLC0415

    names = frozenset(read.names or ())
    return RowChecker(read.schema, names, read.keys, strict=read.strict)


def _documents(table: pa.Table, rejected: Sequence[int]) -> pa.Array:
    """Return the rows of a table as JSON texts, without the rejected rows (0-based)."""
    gone = set(rejected)
    texts = (row_text(row).decode() for row in plain_values(table))
    return pa.array([text for place, text in enumerate(texts) if place not in gone], pa.string())


def row_origins(
    piece: int, before: int, rows: int, refused: Sequence[RefusedRow], gone: Sequence[int]
) -> pa.Array:
    """Return the origins of the rows taken from a table of a file.

    Args:
        before: Number of rows of the file before the table.
        refused: Malformed rows that came with the table.
        gone: Rejected rows of the table, from 0.
    """
    number = row_numbers(before, refused)
    missing = [row.number - 1 - before for row in refused]
    missing += [number(place) - 1 - before for place in gone]
    return without(origin_of(piece, before), rows + len(refused), missing)


def tables_of(
    piece: Piece, options: StorageOptions
) -> Iterator[tuple[pa.Table, Sequence[RefusedRow]]]:
    """Yield the tables of a file, each with its malformed rows."""
    url, name = piece.url, piece.file.encoding.format
    if name == "csv":
        from shared.formats.csv_encoding import read_csv  # noqa: PLC0415

        yield from read_csv(url, options)
        return
    if name in GROUPED:
        length, start = piece.length, piece.start
        groups = None if length is None else range(start, start + length)
        tables = grouped_encoding(name).read_groups(url, groups, options)
    else:
        tables = FORMATS[name].read(url, options)
    before = piece.rows_before
    for table in tables:
        texts, refused = without_bad_text(table, before)
        before += table.num_rows
        yield texts, refused
