"""What tasks read of a batch's files, and how they complete its rows.

Rows that a stream map makes can fail long after they were read. Their origin, one number in a
column, encodes the piece and the line (or row) in it; `convert.rejected_originals` finds the input
line again if a row fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shared.formats.arrow_types import MOST_EXACT, ORC_TIMES, conform, unheld_values
from shared.maps.record_metadata import DELETED_AT, METADATA, RecordMetadata
from shared.storage.access import StorageOptions
from target_spark.convert.task_reports import Rejects
from target_spark.core.load_plans import InputFile
from target_spark.destinations.destination import ROW_ORIGIN
from target_spark.validation.columns import Key

_LINES = 1 << 40


def origin_of(piece: int, line: int) -> int:
    """Return the origin of a line or row (from 0) of a piece."""
    return piece * _LINES + line


def split_origin(origin: int) -> tuple[int, int]:
    """Return piece and line of an origin."""
    return divmod(origin, _LINES)


def without(first: int, count: int, gone: Sequence[int]) -> pa.Array:
    """Return `count` numbers from `first` on, without some of them (counted from 0)."""
    numbers = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count), start=first - 1)
    if gone:
        missing = pa.array([first + place for place in gone], pa.int64())
        numbers = numbers.filter(pc.invert(pc.is_in(numbers, missing)))
    return numbers


_Rejected = tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Piece:
    """A file to read, the lines that begin within a range of its bytes, or some row groups.

    Attributes:
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
        rejects: Folder for files of rejected records, or None.
        document: Name of an added column for the record as one text, or None.
        row_origin: Name of an added column for the origin of each row, or None.
        names: Columns of the stream that a file may have; None for those of `schema`.
        output: Name of the output, if its stream may have others.
        reports_rejects: Report rejected records; else skip those silently that no output has.
        keys: Key properties that need a value in each record.
        refused: Origins of records that the store refuses, each with the reason.
        filled: Columns of Parquet files become those of the table, and only metadata is added, if
            these columns have a value in each row; None if all rows must be read.
        is_narrow: Whether a column is a double, or has one inside: not every integer fits; or holds
            times of ORC files.
        in_orc: Whether the rows become ORC files.
        copied: Columns that the table gets as they are, if a map makes its rows; None for all.
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
    output: str | None = None
    reports_rejects: bool = True
    keys: tuple[Key, ...] = ()
    refused: Mapping[int, str] = field(default_factory=dict)
    filled: tuple[str, ...] | None = None
    is_narrow: bool = False
    in_orc: bool = False
    copied: frozenset[str] | None = None

    @property
    def looks_for_undeclared(self) -> bool:
        """Return whether properties that the SCHEMA lacks would be dropped without a word."""
        is_rejected = self.strict and self.schema.get("additionalProperties") is False
        return self.reports_rejects and self.document is None and not is_rejected

    def add_undeclared(self, fields: Mapping[tuple[str, ...], int], rejects: Rejects) -> None:
        """Count the values of properties that the stream does not declare."""
        declared = frozenset(self.names or ())
        for path, count in fields.items():
            if path[0] not in declared and not path[0].startswith(METADATA):
                rejects.add_undeclared(".".join(path), count)

    def reported(
        self, unfit: _Rejected, every: _Rejected
    ) -> tuple[tuple[int, str, str | None], ...]:
        """Return the rejected records to report, each with the only output that lacks it.

        Args:
            unfit: Those that no output has; the others lack a key, or do not fit the columns.
        """
        others = frozenset(unfit)
        return tuple(
            (*one, None if one in others else self.output)
            for one in every
            if self.reports_rejects or one not in others
        )

    def unheld(self, table: pa.Table) -> dict[int, str]:
        """Return the rows that the table's columns cannot hold, in order, each with the reason."""
        times = "{:%Y-%m-%d} and {:%Y-%m-%d}, as times of ORC files are".format(*ORC_TIMES)
        bounds = {int: f"{-MOST_EXACT} and {MOST_EXACT}", str: times}
        columns = self.columns
        if self.copied is not None:
            columns = pa.schema([column for column in columns if column.name in self.copied])
        lost = unheld_values(table, columns, in_orc=self.in_orc)
        return {
            row: f"property {name!r}: {value} is not between {bounds[type(value)]}"
            for row, name, value in sorted(lost, key=itemgetter(0))
        }

    def completed(
        self,
        table: pa.Table,
        extracted_at: pa.ChunkedArray | None = None,
        versions: pa.ChunkedArray | None = None,
    ) -> pa.Table:
        """Return the rows with their metadata columns, in the table's types."""
        if self.metadata is not None:
            deleted = table.column(DELETED_AT) if DELETED_AT in table.column_names else None
            added = self.metadata.columns(table.num_rows, extracted_at, deleted, versions)
            table = pa.table({**dict(zip(table.column_names, table.columns, strict=True)), **added})
        return conform(table, self.columns)


def with_origins(read: ReadPlan) -> ReadPlan:
    """Return how records are read with their origins, so that those that fail can be named."""
    pieces = iter(range(sum(map(len, read.tasks))))
    tasks = tuple(tuple(replace(p, number=next(pieces)) for p in task) for task in read.tasks)
    origin = pa.field(ROW_ORIGIN, pa.int64())
    return replace(read, tasks=tasks, row_origin=ROW_ORIGIN, columns=read.columns.append(origin))


def with_column(table: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return the table with a column added or replaced."""
    position = table.schema.get_field_index(name)
    if position < 0:
        return table.append_column(name, column)
    return table.set_column(position, name, column)
