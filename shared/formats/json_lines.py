"""JSON lines to Arrow: RECORD messages or bare records, with the stream's schema.

Blocks go through Arrow's own JSON reader. If it rejects a block, or could have read it in another
way than JSON means it, the block is cut into small pieces. Pieces that are rejected again go
through `exact_json`, so that each record is accepted or rejected alone. Both ways have the
same values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from shared.formats.arrow_types import as_nullable, struct_to_arrow
from shared.formats.fast_json import (
    BlockRefused,
    FastReader,
    finer_pattern,
    finer_times,
    rows_without_columns,
)
from shared.formats.json_values import ExactReader
from shared.formats.schema_nodes import JsonText, is_free_form, schema_columns

PIECE_BYTES = 128 * 1024
"""Size of the pieces of a rejected block."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_INSTANT = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class LinesRead:
    """What was read from one run of lines.

    Attributes:
        table: The accepted records, columns in schema order.
        extracted_at: `time_extracted` of each accepted record (envelopes only), null if the
            message has none or it is not a time.
        versions: `version` of each accepted record (envelopes only).
        rows_read: Lines that are not blank, accepted or not.
        rejects: 0-based line within the data, and the reason, for each rejected record.
        unexpected: False if a reader that checks this found only properties that the schema
            names.
        cut: Properties with times whose digits below microseconds are cut.
        kinds: Each property with each kind of value that it has, if a reader has seen that: see
            `plain_lines`. Lines have no other properties then.
    """

    table: pa.Table
    extracted_at: pa.ChunkedArray | None
    versions: pa.ChunkedArray | None
    rows_read: int
    rejects: tuple[tuple[int, str], ...] = ()
    unexpected: bool = True
    cut: frozenset[str] = frozenset()
    kinds: frozenset[tuple[str, str]] | None = None


class LineReader:
    """Reads JSON lines into Arrow tables of one schema. Picklable, and safe to share.

    Types and required properties are checked; other keywords (`pattern`, `enum`,
    `minimum` ...) are not. Properties that the schema does not name are discarded unread.

    Args:
        schema: The stream's JSON Schema.
        envelope: Lines are RECORD messages; otherwise they are the records themselves.
        strict: Reject values of another type. If false, they are converted if nothing is lost
            ("1" for an integer, 1 for a string), null is allowed everywhere, and only what cannot
            be converted is rejected.
        closed: Report whether records have properties that the schema does not name.
    """

    def __init__(
        self, schema: Mapping[str, Any], *, envelope: bool, strict: bool, closed: bool = False
    ) -> None:
        self._arguments = (schema, envelope, strict, closed)
        struct = schema_columns(schema, JsonText())
        self.arrow_schema: pa.Schema = struct_to_arrow(as_nullable(struct))
        free_form = is_free_form(schema)
        self._finer = finer_pattern(struct)
        self._exact = ExactReader(struct, free_form=free_form, envelope=envelope, strict=strict)
        self._fast = FastReader(
            struct,
            self.arrow_schema,
            free_form=free_form,
            envelope=envelope,
            strict=strict,
            closed=closed,
        )

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return _line_reader, self._arguments

    def read(self, data: bytes | pa.Buffer) -> LinesRead:
        """Read whole lines (the last may lack its newline).

        Args:
            data: UTF-8 text, as long as the caller wants it in memory at once.
        """
        data = data if isinstance(data, bytes) else data.to_pybytes()
        data = data.removeprefix(_BYTE_ORDER_MARK)
        parts = list(self._parts(data)) if data else []
        return LinesRead(
            self._stacked([part.table for part in parts]),
            _joined([p.extracted_at for p in parts], _INSTANT, self._exact.envelope),
            _joined([p.versions for p in parts], pa.int64(), self._exact.envelope),
            sum(p.rows_read for p in parts),
            tuple(reject for p in parts for reject in p.rejects),
            any(p.unexpected for p in parts),
            frozenset[str]().union(*(p.cut for p in parts)),
            parts[0].kinds if len(parts) == 1 else None,
        )

    def undeclared(self, data: bytes, lines: LinesRead) -> dict[tuple[str, ...], int]:
        """Return the properties that the schema does not name, and how many values were seen.

        Args:
            data: What was read.
            lines: The result.
        """
        if not lines.unexpected:
            return {}
        return self._fast.undeclared(data.removeprefix(_BYTE_ORDER_MARK))

    def _stacked(self, tables: list[pa.Table]) -> pa.Table:
        if len(self.arrow_schema) == 0:
            return rows_without_columns(sum(table.num_rows for table in tables))
        return pa.concat_tables(tables) if tables else self.arrow_schema.empty_table()

    def _parts(self, data: bytes) -> Iterator[LinesRead]:
        try:
            yield self._read_fast(data)
            return
        except BlockRefused:
            pass
        first_line = 0
        for piece in _pieces(data, PIECE_BYTES):
            yield self._read_piece(piece, first_line, retry=len(piece) < len(data))
            first_line += piece.count(b"\n")

    def _read_piece(self, piece: bytes, first_line: int, retry: bool) -> LinesRead:
        if retry:
            try:
                return self._read_fast(piece)
            except BlockRefused:
                pass
        return self._read_exact(piece, first_line)

    def _read_fast(self, data: bytes) -> LinesRead:
        block = self._fast.read(data)
        rows = block.table.num_rows
        return LinesRead(
            block.table,
            block.extracted_at,
            block.versions,
            rows,
            unexpected=block.unexpected,
            kinds=block.kinds,
        )

    def _read_exact(self, data: bytes, first_line: int) -> LinesRead:
        rows = self._exact.read(enumerate(data.split(b"\n"), first_line))
        arrays = [
            pa.array(values, field.type)
            for values, field in zip(rows.columns, self.arrow_schema, strict=True)
        ]
        table = pa.Table.from_arrays(arrays, schema=self.arrow_schema)
        if not arrays:
            table = rows_without_columns(rows.rows_read - len(rows.rejects))
        at = versions = None
        if self._exact.envelope:
            at = pa.chunked_array([pa.array(rows.extracted, _INSTANT)])
            versions = pa.chunked_array([pa.array(rows.versions, pa.int64())])
        cut = frozenset[str]() if self._finer is None else finer_times(self._finer, data)
        return LinesRead(table, at, versions, rows.rows_read, tuple(rows.rejects), cut=cut)


def _line_reader(
    schema: Mapping[str, Any], envelope: bool, strict: bool, closed: bool
) -> LineReader:
    return LineReader(schema, envelope=envelope, strict=strict, closed=closed)


def _joined(
    parts: list[pa.ChunkedArray | None], data_type: pa.DataType, wanted: bool
) -> pa.ChunkedArray | None:
    if not wanted:
        return None
    chunks = [chunk for part in parts if part is not None for chunk in part.chunks]
    return pa.chunked_array(chunks, data_type)


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    """Cut after the first newline beyond each `size` bytes."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start + size) + 1 or len(data)
        yield data[start:end]
        start = end
