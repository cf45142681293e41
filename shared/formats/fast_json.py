"""JSON lines to Arrow columns by Arrow's own readers, a block at a time.

A block is rejected if that reader would stop, or would accept what JSON or the schema does not
mean (several objects on a line, bytes that are not UTF-8, numbers out of range).

Why beside `json_values`: no Python object for a value, many times faster (benchmarks/README.md).
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Inexact
from functools import cached_property
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from shared.formats.arrow_types import (
    as_nullable,
    breaks_nullability,
    dropped_fields,
    holds,
    rows_without_columns,
    spark_to_arrow,
    with_parts,
)
from shared.formats.json_text import Number, Refused, Value, decode
from shared.formats.json_values import converter
from shared.formats.schema_nodes import MAX_DIGITS, JsonText
from shared.formats.spark_types import T

if TYPE_CHECKING:
    from shared.formats.plain_lines import PlainLines, PlainReader

_BLOCK_BYTES = 4 << 20
_SAMPLE_LINES = 128
LEAST_LINES = 600
"""Lines of a block, estimated by its first one, below which a JSON parser takes less time than
`plain_lines`: calls of kernels for each column take as long for few lines."""
_OPEN, _CLOSE, _RETURN, _NEWLINE = b"{}\r\n"
_BY_VALUE = (T.BinaryType, T.TimeType, T.DayTimeIntervalType, T.YearMonthIntervalType)
_UNREADABLE = (T.MapType, T.VariantType, JsonText)
_FINER = rb"[.,][0-9]{6}[0-9]*[1-9]"
_FRACTION = re.compile(rb"[0-9][.e]")
_TINY = r"[:,\[]\s*-?[0-9]+(?:\.[0-9]{20,}[eE]-|(?:\.[0-9]+)?[eE]-0*(?:[2-9]|[1-9][0-9])[0-9])"
"""Numbers with (among others) more than 38 places, of which Arrow makes 0, or crashes."""
_WORDS = re.compile(rb'"(-?Infinity|NaN)"(?!\s*:)')
_ENVELOPE = (
    pa.field("time_extracted", pa.timestamp("us", "UTC")),
    pa.field("version", pa.int64()),
)
_NAMED = (pa.field("type", pa.string()), pa.field("stream", pa.string()))


class BlockRefused(Exception):  # noqa: N818 - an answer, not an error
    """The block must be read by the exact reader."""


@dataclass(frozen=True)
class LinesRead:
    """What was read from one run of lines.

    Attributes:
        table: The accepted records, columns in schema order.
        extracted_at: `time_extracted` of each accepted record (envelopes only), null if the
            message has none or it is not a time.
        versions: `version` of each accepted record (envelopes only).
        rows_read: Lines that are not blank, accepted or not.
        lines: All lines.
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
    lines: int
    rejects: tuple[tuple[int, str], ...] = ()
    unexpected: bool = True
    cut: frozenset[str] = frozenset()
    kinds: frozenset[tuple[str, str]] | None = None


class FastReader:
    """Reads blocks of whole lines.

    Args:
        struct: The columns, text columns that take any JSON marked by `JsonText`.
        arrow_schema: The schema of the tables.
        free_form: The only column takes the whole record.
        envelope: Lines are RECORD messages, not bare records.
        strict: Reject values of another type, even if nothing would be lost.
        closed: Report whether there are properties without a column.
    """

    def __init__(
        self,
        struct: T.StructType,
        arrow_schema: pa.Schema,
        *,
        free_form: bool,
        envelope: bool,
        strict: bool,
        closed: bool = False,
    ) -> None:
        self.struct = struct
        self.arrow_schema = arrow_schema
        self.free_form = free_form
        self.envelope = envelope
        self.strict = strict
        self._odd = [f for f in struct.fields if free_form or holds(f.dataType, _UNREADABLE)]
        self._plain = [field for field in struct.fields if field not in self._odd]
        columns = [pa.field(f.name, _read_type(f.dataType)) for f in self._plain]
        record = [pa.field("record", pa.struct(columns)), *_ENVELOPE]
        self._read_schema = pa.schema(record if envelope else columns)
        self._closed_schema: pa.Schema | None = None
        if closed and not self._odd:
            self._closed_schema = pa.schema([*record, *_NAMED] if envelope else columns)
        by_value = any(holds(f.dataType, _BY_VALUE) for f in struct.fields)
        self._may_be_plain = not (self._odd or by_value)

    def read(self, data: bytes) -> LinesRead:
        """Read a block; all of its records are accepted.

        Raises:
            BlockRefused: The exact reader must decide.
        """
        line_bytes = data.find(b"\n") + 1 or len(data)
        if self._may_be_plain and LEAST_LINES * line_bytes <= len(data):
            plain = self._plain_reader.read(data)
            if plain is not None:
                return self._plain_block(plain)
        lines = framed_lines(data)
        try:
            if not data.isascii():
                data.decode()
        except UnicodeDecodeError:
            raise BlockRefused from None
        block = self._parse_closed(data)
        table, words = (block, 0) if block is not None else self._parse(data)
        if table.num_rows != lines:
            raise BlockRefused
        columns = self._columns(table)
        if sum(map(_non_finite, columns.values())) != words:
            raise BlockRefused
        if self._odd:
            columns |= self._odd_columns(data)
        at, versions = table.columns[1:3] if self.envelope else (None, None)
        return self._block(table.num_rows, columns, at, versions, unexpected=block is None)

    @cached_property
    def _plain_reader(self) -> PlainReader:
        from shared.formats.plain_lines import PlainReader  # noqa: PLC0415

        envelope = {field.name: field.type for field in _ENVELOPE} if self.envelope else None
        return PlainReader({field.name: field.type for field in self.arrow_schema}, envelope)

    def _plain_block(self, plain: PlainLines) -> LinesRead:
        """Return a block of the plain reader, which has checked all that its bytes tell."""
        columns = {
            field.name: _or_nulls(plain.columns.get(field.name), field.type, plain.rows)
            for field in self.arrow_schema
        }
        at, versions = (
            _or_nulls(plain.envelope.get(field.name), field.type, plain.rows) for field in _ENVELOPE
        )
        block = self._block(plain.rows, columns, at, versions)
        return replace(block, unexpected=False, kinds=plain.kinds)

    def undeclared(self, data: bytes) -> dict[tuple[str, ...], int]:
        """Return the properties of a block that have no column, and how many values were seen.

        All of them, if Arrow can read the block and `closed` was asked for; else those of a sample
        of its lines.
        """
        if self.free_form:
            return {}
        if self._closed_schema is None:
            return self._undeclared_in_sample(data)
        try:
            table = _read_json(data, self._closed_schema, "infer")
        except (pa.ArrowInvalid, BlockRefused):
            return self._undeclared_in_sample(data)
        rows, kind = table.to_struct_array(), pa.struct(self._closed_schema)
        if self.envelope:
            rows, kind = table.column("record"), kind.field("record").type
        return dict(dropped_fields(rows, kind))

    def _undeclared_in_sample(self, data: bytes) -> dict[tuple[str, ...], int]:
        counts = Counter[tuple[str, ...]]()
        for line in _sample(data):
            try:
                record = orjson.loads(line)
                record = record["record"] if self.envelope else record
                counts.update(_undeclared_in(record, self.struct, ()))
            except (ValueError, LookupError, TypeError, RecursionError):
                continue
        return dict(counts)

    def _parse_closed(self, data: bytes) -> pa.Table | None:
        """Parse a block of only known columns; return None if it may have others."""
        if self._closed_schema is None:
            return None
        try:
            return _read_json(data, self._closed_schema, "error")
        except (pa.ArrowInvalid, BlockRefused):
            return None

    def _parse(self, data: bytes) -> tuple[pa.Table, int]:
        """Parse; if there are words for NaN and infinities, parse again with them as numbers."""
        try:
            return _read_json(data, self._read_schema), 0
        except pa.ArrowInvalid:
            if b'NaN"' not in data and b'Infinity"' not in data:
                raise BlockRefused from None
        changed, words = _WORDS.subn(rb"\1", data)
        try:
            return _read_json(changed, self._read_schema), words
        except pa.ArrowInvalid:
            raise BlockRefused from None

    def _columns(self, table: pa.Table) -> dict[str, pa.ChunkedArray]:
        columns = table.columns
        if self.envelope:
            if table.column("record").null_count:
                raise BlockRefused
            columns = table.column("record").flatten()
        final = [self.arrow_schema.field(field.name).type for field in self._plain]
        return {
            field.name: column
            if column.type == kind
            else pa.chunked_array([_finish(chunk, field.dataType) for chunk in column.chunks], kind)
            for column, field, kind in zip(columns, self._plain, final, strict=True)
        }

    def _block(
        self,
        count: int,
        columns: Mapping[str, pa.ChunkedArray],
        extracted_at: pa.ChunkedArray | None,
        versions: pa.ChunkedArray | None,
        *,
        unexpected: bool = True,
    ) -> LinesRead:
        ordered = [columns[field.name] for field in self.struct.fields]
        for column, field in zip(ordered, self.struct.fields, strict=True):
            if self.strict and breaks_nullability(column, field.dataType, field.nullable):
                raise BlockRefused
        rows = pa.Table.from_arrays(ordered, schema=self.arrow_schema)
        if not ordered:
            rows = rows_without_columns(count)
        if not self.envelope:
            extracted_at = versions = None
        # It takes no blank lines.
        return LinesRead(rows, extracted_at, versions, count, count, unexpected=unexpected)

    def _odd_columns(self, data: bytes) -> dict[str, pa.ChunkedArray]:
        """Read the columns Arrow's reader has no type for, line by line."""
        values: dict[str, list[Value]] = {field.name: [] for field in self._odd}
        plans = [(f, values[f.name].append, self._odd_value(f)) for f in self._odd]
        try:
            for line in data.splitlines():
                record = orjson.loads(line)
                record = record["record"] if self.envelope else record
                for field, append, convert in plans:
                    decoded = record if self.free_form else record.get(field.name)
                    append(None if decoded is None else convert(decoded, line))
        except (ValueError, RecursionError, orjson.JSONEncodeError):
            raise BlockRefused from None
        types = {field.name: self.arrow_schema.field(field.name).type for field in self._odd}
        return {n: pa.chunked_array([pa.array(v, types[n])]) for n, v in values.items()}

    def _odd_value(self, field: T.StructField) -> Callable[[Value, bytes], Value]:
        """Return a conversion of orjson's value, or of the line if a fraction could change."""
        convert = converter(field.dataType, self.strict)
        is_text = isinstance(field.dataType, T.VariantType | JsonText)
        bare = isinstance(field.dataType, JsonText)

        def from_line(value: Value, line: bytes) -> Value:
            if bare and isinstance(value, str):
                return value
            try:
                return _as_text(value) if is_text else convert(_with_numbers(value))
            except Inexact:
                record = decode(line)
                record = record["record"] if self.envelope else record
                return convert(record if self.free_form else record[field.name])

        return from_line


def finer_pattern(struct: T.StructType) -> re.Pattern[bytes] | None:
    """Return what finds the names of times with digits below microseconds, at any depth."""
    names = [re.escape(orjson.dumps(name)) for name in _time_names(struct)]
    return re.compile(rb"(%b)\s*:\s*\"[^\"]*%b" % (b"|".join(names), _FINER)) if names else None


def _time_names(kind: T.DataType, name: str = "") -> Iterator[str]:
    if isinstance(kind, T.StructType):
        for field in kind.fields:
            yield from _time_names(field.dataType, field.name)
    elif isinstance(kind, T.TimestampType | T.TimestampNTZType | T.TimeType):
        yield name


def _or_nulls(column: pa.Array | None, kind: pa.DataType, rows: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.nulls(rows, kind) if column is None else column])


def framed_lines(data: bytes) -> int:
    """Count the lines, each of which must begin and end with a brace.

    Raises:
        BlockRefused: One does not.
    """
    last, lines, find = len(data) - 1, 0, data.find
    if not data.startswith(b"{"):
        raise BlockRefused
    at = find(b"\n")
    while at >= 0:
        before = data[at - 1] if data[at - 1] != _RETURN else data[at - 2]
        if before != _CLOSE or (at < last and data[at + 1] != _OPEN):
            raise BlockRefused
        lines += 1
        at = find(b"\n", at + 1)
    if data[last] == _CLOSE:
        return lines + 1
    if data[last] != _NEWLINE:
        raise BlockRefused
    return lines


def _undeclared_in(
    value: Value, kind: T.DataType, path: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    """Yield the path of each property of a value that its type lacks, if it is not null."""
    if isinstance(value, list) and isinstance(kind, T.ArrayType):
        for item in value:
            yield from _undeclared_in(item, kind.elementType, path)
    if not (isinstance(value, dict) and isinstance(kind, T.StructType)):
        return
    kinds = {field.name: field.dataType for field in kind}
    for name, inner in value.items():
        if name in kinds:
            yield from _undeclared_in(inner, kinds[name], (*path, name))
        elif inner is not None:
            yield (*path, name)


def _sample(data: bytes) -> Iterator[bytes]:
    """Yield some lines at equal distances, among them the first and the last; or all, if few."""
    if data.count(b"\n") <= _SAMPLE_LINES:
        yield from data.splitlines()
        return
    end = len(data.rstrip())
    for number in range(_SAMPLE_LINES):
        place = (end - 1) * number // (_SAMPLE_LINES - 1)
        start, stop = data.rfind(b"\n", 0, place) + 1, data.find(b"\n", place)
        yield data[start : stop if stop >= 0 else end]


def _read_json(data: bytes, schema: pa.Schema, unexpected: str = "ignore") -> pa.Table:
    if "decimal" in str(schema) and _has_tiny(data):
        raise BlockRefused
    parse = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected)
    for size in (_BLOCK_BYTES, len(data) + 1):
        options = pj.ReadOptions(use_threads=False, block_size=size)
        try:
            return pj.read_json(pa.BufferReader(data), options, parse)
        except pa.ArrowInvalid as error:
            if "straddl" not in str(error) or size > len(data):
                raise
    raise BlockRefused


def _has_tiny(data: bytes) -> bool:
    # An array around the bytes copies none of them. The plain search takes a fifth of the time.
    ends = pa.py_buffer(struct.pack("=2q", 0, len(data)))
    text = pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, pa.py_buffer(data)])
    has_exponent = pc.match_substring(text, "e-", ignore_case=True)[0].as_py()
    return bool(has_exponent and pc.match_substring_regex(text, _TINY)[0].as_py())


def _read_type(data_type: T.DataType) -> pa.DataType:
    """Return the type to request from Arrow's reader, which must support it.

    It does not check digits again once it has scaled a decimal, and lets 128 bits overflow; 256
    bits hold any 38 digits scaled by up to 38 more.
    """
    if isinstance(data_type, T.StructType):
        return pa.struct([(f.name, _read_type(f.dataType)) for f in data_type.fields])
    if isinstance(data_type, T.ArrayType):
        return pa.list_(pa.field("element", _read_type(data_type.elementType)))
    if isinstance(data_type, (*_BY_VALUE, T.DateType)):
        return pa.string()
    if isinstance(data_type, T.DecimalType) and data_type.scale:
        return pa.decimal256(MAX_DIGITS, data_type.scale)
    return spark_to_arrow(data_type)


def _finish(array: pa.Array, data_type: T.DataType) -> pa.Array:
    """Convert what was read to its storage type."""
    final = spark_to_arrow(as_nullable(data_type))
    if array.type == final:
        return array
    kinds = {field.name: field.dataType for field in getattr(data_type, "fields", ())}

    def finished(part: pa.Array, _: pa.DataType, name: str) -> pa.Array:
        if kinds:
            return _finish(part, kinds[name])
        assert isinstance(data_type, T.ArrayType)  # noqa: S101 - others are not read by it
        return _finish(part, data_type.elementType)

    whole = with_parts(array, final, finished)
    if whole is not None:
        return whole
    try:
        if isinstance(data_type, T.DateType | T.DecimalType):
            return array.cast(final)
        convert = converter(data_type, True)
        values = [None if value is None else convert(value) for value in array.to_pylist()]
        return pa.array(values, final)
    except (Refused, pa.ArrowInvalid):
        raise BlockRefused from None


def _non_finite(column: pa.ChunkedArray | pa.Array) -> int:
    """Count NaN and infinities, at any depth outside maps."""
    kind = column.type
    if pa.types.is_floating(kind):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        return sum(pc.is_finite(chunk).false_count for chunk in chunks)
    if pa.types.is_struct(kind):
        return sum(map(_non_finite, column.flatten()))
    return _non_finite(pc.list_flatten(column)) if pa.types.is_list(kind) else 0


def _as_text(value: Value) -> str:
    written = orjson.dumps(value)
    if _FRACTION.search(written):
        raise Inexact  # orjson may have rounded a number of this value
    return written.decode()


def _with_numbers(value: Value) -> Value:
    """Return integers in the form that the exact converters take (0 may have been written -0)."""
    if isinstance(value, dict):
        return {key: _with_numbers(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_with_numbers(part) for part in value]
    if isinstance(value, float) or (type(value) is int and value == 0):
        raise Inexact
    return Number(value) if type(value) is int else value
