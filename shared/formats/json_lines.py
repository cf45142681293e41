"""JSON lines to Arrow: RECORD messages or bare records, with the stream's schema.

Blocks go through Arrow's own JSON reader. If it rejects a block, or could have read it in another
way than JSON means it, the block is cut into small pieces. Pieces that are rejected again go
through `json_values`, so that each record is accepted or rejected alone. Both ways have the
same values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

import orjson
import pyarrow as pa

from shared.formats.arrow_types import as_nullable, rows_without_columns, struct_to_arrow
from shared.formats.fast_json import BlockRefused, FastReader, LinesRead, finer_pattern
from shared.formats.json_text import Refused, Value, decode, json_text, line_count
from shared.formats.json_values import Convert, field_values, instant, integer
from shared.formats.schema_nodes import (
    INTEGER_WIDTHS,
    JsonText,
    is_free_form,
    json_schema_to_spark,
)
from shared.formats.spark_types import T

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
    def _values(self) -> Callable[[Mapping[str, Value]], list[Value]]:
        schema, _, strict, _ = self._arguments
        if is_free_form(schema):
            return lambda record: [json_text(record)]
        return field_values(self._struct, strict)

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
        rows: list[list[Value]] = []
        envelopes: list[tuple[Value, Value]] = []
        rejects: list[tuple[int, str]] = []
        for number, line in enumerate(data.split(b"\n"), first_line):
            if line.strip(b" \t\r"):
                try:
                    message = decode(line)
                    rows.append(self._row(message))
                    envelopes.append((message.get("time_extracted"), message.get("version")))
                except Refused as refused:
                    rejects.append((number, str(refused)))
        arrays = [
            pa.array([row[place] for row in rows], field.type)
            for place, field in enumerate(self.arrow_schema)
        ]
        table = pa.Table.from_arrays(arrays, schema=self.arrow_schema)
        if not arrays:
            table = rows_without_columns(len(rows))
        at = versions = None
        if self._envelope:
            version = integer(*INTEGER_WIDTHS[T.LongType], strict=True)
            times = [_or_none(instant, time) for time, _ in envelopes]
            numbers = [_or_none(version, number) for _, number in envelopes]
            at = pa.chunked_array([pa.array(times, _INSTANT)])
            versions = pa.chunked_array([pa.array(numbers, pa.int64())])
        # The pattern finds names as JSON has them.
        finer = set(self._finer.findall(data)) if self._finer else ()
        cut = frozenset[str](map(orjson.loads, finer))
        count = len(rows) + len(rejects)
        return LinesRead(table, at, versions, count, line_count(data), tuple(rejects), cut=cut)

    def _row(self, message: Mapping[str, Value]) -> list[Value]:
        record = message.get("record") if self._envelope else message
        if not isinstance(record, dict):
            raise Refused("RECORD message without a 'record' object")
        try:
            return self._values(record)
        except RecursionError:
            raise Refused("values are nested too deeply") from None


def _or_none(convert: Convert, value: Value) -> Value:
    try:
        return convert(value)
    except Refused:
        return None


def _joined(
    parts: list[pa.ChunkedArray | None], data_type: pa.DataType, wanted: bool
) -> pa.ChunkedArray | None:
    if not wanted:
        return None
    chunks = [chunk for part in parts if part is not None for chunk in part.chunks]
    return pa.chunked_array(chunks, data_type)
