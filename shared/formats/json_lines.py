"""JSON lines to Arrow: RECORD messages or bare records, with the stream's schema.

Blocks go through Arrow's own JSON reader. If it rejects a block, or could have read it in another
way than JSON means it, the block is cut into small pieces. Pieces that are rejected again go
through `exact_lines`, so that each record is accepted or rejected alone. Both ways have the
same values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from shared.formats.arrow_types import as_nullable, rows_without_columns, struct_to_arrow
from shared.formats.fast_json import BlockRefused, FastReader, LinesRead, finer_pattern
from shared.formats.json_text import line_count
from shared.formats.schema_nodes import JsonText, is_free_form, json_schema_to_spark

if TYPE_CHECKING:
    from shared.formats.exact_lines import ExactReader

PIECE_BYTES = 128 * 1024
"""Size of the pieces of a rejected block."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_INSTANT = pa.timestamp("us", "UTC")


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
        self._struct, self._envelope = json_schema_to_spark(schema, JsonText()), envelope
        self.arrow_schema: pa.Schema = struct_to_arrow(as_nullable(self._struct))
        self._fast = FastReader(
            self._struct,
            self.arrow_schema,
            free_form=is_free_form(schema),
            envelope=envelope,
            strict=strict,
            closed=closed,
        )

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        schema, envelope, strict, closed = self._arguments
        make = partial(LineReader, envelope=envelope, strict=strict, closed=closed)
        return make, (schema,)

    @cached_property
    def _exact(self) -> ExactReader:
        """Return what reads the lines that the fast reader leaves to it, if there are any."""
        from shared.formats.exact_lines import ExactReader  # noqa: PLC0415

        schema, envelope, strict, _ = self._arguments
        free_form = is_free_form(schema)
        return ExactReader(self._struct, free_form=free_form, envelope=envelope, strict=strict)

    @cached_property
    def _finer(self) -> re.Pattern[bytes] | None:
        return finer_pattern(self._struct)

    def read(self, data: bytes | pa.Buffer) -> LinesRead:
        """Read whole lines (the last may lack its newline).

        Args:
            data: UTF-8 text, as long as the caller wants it in memory at once.
        """
        data = data if isinstance(data, bytes) else data.to_pybytes()
        data = data.removeprefix(_BYTE_ORDER_MARK)
        with suppress(BlockRefused):
            if data:
                return self._fast.read(data)
        parts = list(self._parts(data))
        tables = [part.table for part in parts] or [self.arrow_schema.empty_table()]
        if len(self.arrow_schema) == 0:
            table = rows_without_columns(sum(table.num_rows for table in tables))
        else:
            table = pa.concat_tables(tables)
        return LinesRead(
            table,
            _joined([p.extracted_at for p in parts], _INSTANT, self._envelope),
            _joined([p.versions for p in parts], pa.int64(), self._envelope),
            sum(p.rows_read for p in parts),
            sum(p.lines for p in parts),
            tuple(reject for p in parts for reject in p.rejects),
            any(p.unexpected for p in parts),
            frozenset[str]().union(*(p.cut for p in parts)),
            parts[0].kinds if len(parts) == 1 else None,
        )

    def undeclared(self, data: bytes, lines: LinesRead) -> dict[tuple[str, ...], int]:
        """Return the properties that the schema does not name, and how many values were seen."""
        if not lines.unexpected:
            return {}
        return self._fast.undeclared(data.removeprefix(_BYTE_ORDER_MARK))

    def _parts(self, data: bytes) -> Iterator[LinesRead]:
        """Yield what was read from each piece of a rejected block."""
        start = first_line = 0
        while start < len(data):
            end = data.find(b"\n", start + PIECE_BYTES) + 1 or len(data)
            piece, part = data[start:end], None
            start = end
            if len(piece) < len(data):
                with suppress(BlockRefused):
                    part = self._fast.read(piece)
            part = part or self._read_exact(piece, first_line)
            first_line += part.lines
            yield part

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
        if self._envelope:
            at = pa.chunked_array([pa.array(rows.extracted, _INSTANT)])
            versions = pa.chunked_array([pa.array(rows.versions, pa.int64())])
        # The pattern finds names as JSON has them.
        finer = set(self._finer.findall(data)) if self._finer else ()
        cut = frozenset[str](map(orjson.loads, finer))
        rejects = tuple(rows.rejects)
        return LinesRead(table, at, versions, rows.rows_read, line_count(data), rejects, cut=cut)


def _joined(
    parts: list[pa.ChunkedArray | None], data_type: pa.DataType, wanted: bool
) -> pa.ChunkedArray | None:
    if not wanted:
        return None
    chunks = [chunk for part in parts if part is not None for chunk in part.chunks]
    return pa.chunked_array(chunks, data_type)
