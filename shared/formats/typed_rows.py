"""Rows of Parquet, ORC, Avro and CSV files as the columns of a stream, with a verdict on each row.

Columns whose types differ from the stream's are cast by Arrow if nothing can be lost or
mistaken; every other column, and one with a value that does not fit, is converted value by value,
by the converters that read JSON, so that a file of any format is judged as JSON lines are. Arrow
does not check that the text of columnar files is UTF-8: that is done here, too.

Why beside `record_text`: only values that Arrow cannot cast are converted, in tasks without columns
of Spark.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shared.formats.arrow_types import (
    as_nullable,
    breaks_nullability,
    conform_column,
    dropped_fields,
    holds,
    rows_without_columns,
    struct_to_arrow,
    with_parts,
)
from shared.formats.date_numbers import moment_text
from shared.formats.json_text import NON_FINITE, Number, Refused, Value, bare_text, json_text
from shared.formats.json_values import NUMBER_TEXT, Convert, converter
from shared.formats.schema_nodes import (
    MAX_DIGITS,
    JsonText,
    is_free_form,
    json_schema_to_spark,
    node_types,
    resolved_node,
)
from shared.formats.spark_types import T

_MISSING = "null or missing where a value is required"
_ODD = (T.VariantType, JsonText)

_NUMERIC = (T.NumericType,)
_INTERVALS = (T.DayTimeIntervalType, T.YearMonthIntervalType)
_NESTED = (T.StructType, T.ArrayType, T.MapType)
_TIMES = (T.TimestampType, T.TimestampNTZType, T.TimeType)
_MAPS = (T.MapType,)
_NANOS = "[ns"
"""Stands in the names of types of nanoseconds, also of nested ones."""
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY_SECONDS = 86_400
_INTEGER = re.compile(r"-?\d+\Z", re.ASCII)
_WORDS = {"true": True, "false": False}
_DECODER = json.JSONDecoder(parse_float=Number, parse_int=Number)


@dataclass(frozen=True)
class RowsRead:
    """What was read from one table of a file.

    Attributes:
        table: The accepted rows, columns in schema order.
        rejects: 0-based row within the table, and the reason, for each rejected row; in order.
        cut: Columns with times whose digits below microseconds are cut.
    """

    table: pa.Table
    rejects: tuple[tuple[int, str], ...] = ()
    cut: frozenset[str] = frozenset()


class RowReader:
    """Brings tables of any file to the columns of a stream.

    Args:
        schema: The stream's JSON Schema.
        strict: Reject values of another type; as for `shared.formats.json_lines.LineReader`.
        texts: Columns hold the texts of a CSV file.

    Attributes:
        declared: The columns of the stream, of which a file must have one; None if it need not.
    """

    def __init__(self, schema: Mapping[str, Any], *, strict: bool, texts: bool = False) -> None:
        self._schema = schema
        self._struct = json_schema_to_spark(schema, JsonText())
        self._strict = strict
        self._texts = texts
        self._free_form = is_free_form(schema)
        self.arrow_schema: pa.Schema = struct_to_arrow(as_nullable(self._struct))
        names = () if self._free_form else self.arrow_schema.names
        self.declared = frozenset(names) if names else None

    def read(self, table: pa.Table) -> RowsRead:
        """Convert all rows."""
        if self._free_form:
            texts = [row_text(row).decode() for row in plain_values(table)]
            return RowsRead(pa.table([pa.array(texts, pa.string())], schema=self.arrow_schema))
        refusals: dict[int, str] = {}
        cut: set[str] = set()
        columns = [self._column(table, field, refusals, cut) for field in self._struct.fields]
        if not columns:
            return RowsRead(rows_without_columns(table.num_rows))
        whole = pa.Table.from_arrays(columns, schema=self.arrow_schema)
        if not refusals:
            return RowsRead(whole, cut=frozenset(cut))
        refused = pa.array(sorted(refusals), pa.int64())
        rows = pa.array(range(table.num_rows), pa.int64())
        kept = whole.filter(pc.invert(pc.is_in(rows, refused)))
        return RowsRead(kept, tuple(sorted(refusals.items())), frozenset(cut))

    def undeclared(self, table: pa.Table) -> dict[tuple[str, ...], int]:
        """Return the columns, and fields within, that the schema does not name, with their values.

        Values are counted that are not null.
        """
        if self._free_form or not table.num_rows:  # Older Arrow makes no struct of no rows.
            return {}
        return dict(dropped_fields(table.to_struct_array(), pa.struct(self.arrow_schema)))

    def row_at(self, table: pa.Table, place: int) -> bytes:
        """Return a row as JSON; texts of CSV as the values that they are for their columns."""
        (row,) = plain_values(table.slice(place, 1))
        if not self._texts:
            return row_text(row)
        nodes = self._schema.get("properties") or {}
        cells = (f"{json_text(k)}:{self._cell(v, nodes.get(k))}" for k, v in row.items())
        return f"{{{','.join(cells)}}}".encode()

    def _cell(self, text: str | None, node: Any) -> str:
        node = resolved_node(self._schema, node) if isinstance(node, Mapping) else {}
        types = node_types(node)
        if text is not None and types is not None and "string" not in types:
            is_word = "boolean" in types and text.lower() in _WORDS
            with suppress(Refused, RecursionError):
                written = json_text(_decoded(text.lower() if is_word else text))
                return json_text(text) if written == "null" else written
        return json_text(text)

    def _column(
        self, table: pa.Table, column: T.StructField, refusals: dict[int, str], cut: set[str]
    ) -> pa.Array | pa.ChunkedArray:
        """Return a column; add reasons by row, of which the first one counts, and cut columns."""
        kind = self.arrow_schema.field(column.name).type
        names = table.column_names
        is_read = column.name in names
        values = table.column(names.index(column.name)) if is_read else pa.nulls(len(table), kind)
        cast = self._cast(values, column.dataType, kind)
        if cast is None and _is_nanos(values.type) and _is_safe(values.type, kind):
            cut.add(column.name)
            values = _in_micros(values)
            cast = self._cast(values, column.dataType, kind)
        if cast is None or (
            self._strict and breaks_nullability(cast, column.dataType, column.nullable)
        ):
            return self._converted(values, column, kind, refusals, cut)
        return cast

    def _cast(
        self, column: pa.Array | pa.ChunkedArray, data_type: T.DataType, kind: pa.DataType
    ) -> pa.Array | pa.ChunkedArray | None:
        """Return the column as Arrow casts it; None if values must be checked one by one."""
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if isinstance(data_type, _ODD) and not _is_text(column.type):
            return None
        if isinstance(data_type, T.VariantType) and self._texts:
            return None
        if column.type.equals(kind):
            return column
        parses = self._texts and _is_text(column.type) and _parses(kind)
        if not (_keeps_digits(column, kind) if parses else _is_safe(column.type, kind)):
            return None
        try:
            cast = conform_column(column, kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        return None if parses and _misreads(column, cast) else cast

    def _converted(
        self,
        column: pa.Array | pa.ChunkedArray,
        field_: T.StructField,
        kind: pa.DataType,
        refusals: dict[int, str],
        cut: set[str],
    ) -> pa.Array:
        convert = (_from_text if self._texts else _from_value)(
            field_.dataType, converter(field_.dataType, self._strict)
        )
        # A struct has the names of all rows, null where a row lacks one; a map lacks them, too.
        if self._strict and _types.is_nested(column.type) and "map<" not in str(column.type):
            convert = _without_nulls(field_.dataType, convert)
        required = self._strict and not field_.nullable
        if _cuts(column, field_.dataType):
            cut.add(field_.name)
        values: list[Any] = []
        for row, value in enumerate(plain_values(column)):
            try:
                if value is None and required:
                    raise Refused(_MISSING)
                values.append(None if value is None else convert(value))
            except Refused as refused:
                values.append(None)
                refusals.setdefault(row, str(refused.under(field_.name)))
        return pa.array(values, kind)


def _without_nulls(data_type: T.DataType, convert: Convert) -> Convert:
    """Convert values without the nulls in maps that take none."""

    def less(value: Any, data_type: T.DataType) -> Any:
        if isinstance(data_type, T.ArrayType) and isinstance(value, list):
            return [less(item, data_type.elementType) for item in value]
        if isinstance(data_type, T.StructType) and isinstance(value, dict):
            types = {field.name: field.dataType for field in data_type}
            return {k: less(v, types[k]) if k in types else v for k, v in value.items()}
        if not isinstance(data_type, T.MapType) or not isinstance(value, dict):
            return value
        keeps, below = data_type.valueContainsNull, data_type.valueType
        return {k: less(v, below) for k, v in value.items() if keeps or v is not None}

    return (lambda value: convert(less(value, data_type))) if holds(data_type, _MAPS) else convert


def _cuts(column: pa.Array | pa.ChunkedArray, data_type: T.DataType) -> bool:
    """Return whether times that cannot be cast have digits below microseconds."""
    if not holds(data_type, _TIMES) or not _is_text(column.type):
        return holds(data_type, _TIMES) and _NANOS in str(column.type)
    finer = pc.match_substring_regex(column, r"[.,]\d{6}\d*[1-9]")
    return isinstance(data_type, _TIMES) and bool(pc.any(finer).as_py())


def _is_nanos(kind: pa.DataType) -> bool:
    return getattr(kind, "unit", None) == "ns"


def _in_micros(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Cut times of nanoseconds; a cast alone would round those before 1970 up."""
    if _types.is_time(column.type):
        return column.cast(pa.time64("us"), safe=False)
    # `floor_temporal` overflows at the earliest times.
    numbers = column.cast(pa.int64())
    micros = pc.divide(numbers, 1000)
    is_up = pc.greater(pc.multiply(micros, 1000), numbers)
    return pc.subtract(micros, is_up.cast(pa.int64())).cast(pa.timestamp("us"))


_types = pa.types


def _is_text(kind: pa.DataType) -> bool:
    return bool(_types.is_string(kind) or _types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        _types.is_binary(kind) or _types.is_large_binary(kind) or _types.is_fixed_size_binary(kind)
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(_types.is_integer(kind) or _types.is_floating(kind) or _types.is_decimal(kind))


def _parses(kind: pa.DataType) -> bool:
    """Return whether Arrow reads text as this type as CSV means it."""
    return bool(_is_number(kind) or _types.is_date(kind) or _types.is_timestamp(kind))


def _keeps_digits(texts: pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Return whether Arrow surely reads texts as they are: its decimals overflow without notice."""
    if not _types.is_decimal(kind):
        return True
    pattern = rf"^[+-]?[0-9]{{0,{MAX_DIGITS - kind.scale}}}(\.[0-9]{{0,{MAX_DIGITS}}})?$"
    return bool(pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py())


def _misreads(texts: pa.ChunkedArray, numbers: pa.ChunkedArray) -> bool:
    """Return whether a text is a number to Arrow alone: hexadecimal, or not finite."""
    if _types.is_integer(numbers.type):
        return bool(pc.any(pc.match_substring_regex(texts, "^0[xX]")).as_py())
    if not _types.is_floating(numbers.type):
        return False
    words = texts.filter(pc.invert(pc.is_finite(numbers)))
    return not pc.all(pc.is_in(words, pa.array(list(NON_FINITE))), min_count=0).as_py()


_ALIKE = (
    _types.is_floating, _types.is_decimal, _types.is_timestamp, _types.is_date, _types.is_time,
    _is_text, _is_bytes,
)  # fmt: skip


def _is_safe(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether Arrow's checked cast keeps the meaning of every value that it lets pass."""
    if source.equals(target) or _types.is_null(source):
        return True
    if _types.is_list(target) or _types.is_large_list(source):
        return (
            _types.is_list(source)
            and _types.is_list(target)
            and _is_safe(source.value_type, target.value_type)
        )
    if _types.is_struct(target) and _types.is_struct(source):
        return all(
            source.get_field_index(f.name) < 0 or _is_safe(source.field(f.name).type, f.type)
            for f in (target.field(n) for n in range(target.num_fields))
        )
    if _types.is_map(target) and _types.is_map(source):
        return _is_safe(source.key_type, target.key_type) and _is_safe(
            source.item_type, target.item_type
        )
    numbers = _types.is_integer(source) and _is_number(target)
    return numbers or any(same(source) and same(target) for same in _ALIKE)


def as_json_value(value: Any) -> Value:
    """Return a value of `plain_values` as the decoder of JSON lines would return it."""
    if isinstance(value, Mapping):
        return {_key(key): as_json_value(part) for key, part in value.items()}
    if isinstance(value, list):
        return [as_json_value(item) for item in value]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, date | time | timedelta):
        return _time(value)
    return _scalar(value)


def text_of(value: Any) -> str | None:
    """Return a value of `plain_values` as text: that of numbers, times and binary, or JSON."""
    value = as_json_value(value)
    return value if value is None or isinstance(value, str) else bare_text(value)


def _scalar(value: Any) -> Value:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | Decimal):
        return Number(value)
    if isinstance(value, float):
        return Number(repr(value)) if math.isfinite(value) else value
    return str(value)


_UNHELD = OverflowError, ValueError, KeyError
"""What Arrow, zoneinfo and pytz raise for times that Python cannot hold, and for zones."""


def plain_values(data: pa.Array | pa.ChunkedArray | pa.Table) -> list[Any]:
    """Return values, or rows, as Python values, maps as dictionaries.

    Times that Python cannot hold are ISO 8601 text: those with digits below microseconds, those
    outside of the years 1 to 9999, and, in UTC, those in time zones that it does not know.
    """
    kinds = data.schema.types if isinstance(data, pa.Table) else [data.type]
    # Arrow makes values of pandas of nanoseconds, and none while pandas is hidden from it.
    if not any(_NANOS in str(kind) for kind in kinds):
        with suppress(*_UNHELD):
            values: list[Any] = data.to_pylist(maps_as_pydicts="lossy")
            return values
    if not isinstance(data, pa.Table):
        return [_exact(scalar) for scalar in data]
    columns = map(plain_values, data.columns)
    return [dict(zip(data.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _exact(scalar: Any) -> Any:
    if not scalar.is_valid:
        return None
    kind: pa.DataType = scalar.type
    value: Any = None
    if isinstance(scalar, pa.StructScalar):
        value = {name: _exact(part) for name, part in scalar.items()}
    elif isinstance(scalar, pa.MapScalar):
        keys, items = (map(_exact, scalar.values.field(place)) for place in (0, 1))
        value = dict(zip(keys, items, strict=True))
    elif isinstance(scalar, pa.ListScalar):
        value = [_exact(part) for part in scalar.values]
    elif isinstance(scalar, pa.DictionaryScalar):
        value = _exact(scalar.value)
    elif not _is_nanos(kind) or not scalar.value % 1000:
        with suppress(*_UNHELD):
            value = scalar.as_py()
    return _time_text(kind, scalar.value) if value is None else value


def _time_text(kind: pa.DataType, number: int) -> str:
    """Write the number that Arrow stores for a date, time or duration as `_time` writes values."""
    if _types.is_date(kind):
        days = number if _types.is_date32(kind) else number // (_DAY_SECONDS * 1000)
        return moment_text(days, "date")
    is_duration, per_second = _types.is_duration(kind), _PER_SECOND[kind.unit]
    whole, rest = divmod(abs(number) if is_duration else number, per_second)
    part = f"{rest * 10**9 // per_second:09d}".removesuffix("000")
    if is_duration:
        return f"{'-' if number < 0 else ''}PT{whole}.{part}S"
    days, second = divmod(whole, _DAY_SECONDS)
    clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}.{part}"
    if _types.is_time(kind):
        return clock
    return f"{moment_text(days, 'date')}T{clock}{'' if kind.tz is None else '+00:00'}"


def row_text(row: Mapping[str, Any]) -> bytes:
    """Return a row as one JSON object: numbers exact, binary as base64, times as ISO 8601."""
    return json_text(as_json_value(row)).encode()


def _from_value(data_type: T.DataType, convert: Convert) -> Convert:
    if isinstance(data_type, _INTERVALS):
        whole = _whole_interval(data_type)
        return lambda value: (whole if type(value) is int else convert)(as_json_value(value))
    return lambda value: convert(as_json_value(value))


def _whole_interval(data_type: T.DataType) -> Convert:
    """Convert a number of microseconds or months."""
    is_days = isinstance(data_type, T.DayTimeIntervalType)
    return converter(T.LongType() if is_days else T.IntegerType(), True)


def _from_text(data_type: T.DataType, convert: Convert) -> Convert:
    """Convert text of CSV, which can be a value of any type."""
    if isinstance(data_type, _NESTED):
        return lambda text: convert(_decoded(text))
    if isinstance(data_type, T.VariantType):
        return _variant
    if isinstance(data_type, T.BooleanType):
        return lambda text: convert(_WORDS.get(text.lower(), text))
    if isinstance(data_type, _INTERVALS):
        whole = _whole_interval(data_type)
        return lambda text: whole(Number(text)) if _INTEGER.match(text) else convert(text)
    if isinstance(data_type, _NUMERIC):
        return lambda text: convert(Number(text) if NUMBER_TEXT.match(text) else text)
    return convert


def _variant(text: str) -> str:
    try:
        return json_text(_decoded(text))
    except Refused:
        return json_text(text)


def _decoded(text: str) -> Value:
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        raise Refused("not JSON, as nested values must be") from None


def _key(key: Any) -> str:
    value = as_json_value(key)
    return value if type(value) is str else json_text(value)


def _time(value: date | time | timedelta) -> str:
    if isinstance(value, datetime):
        utc = value.astimezone(timezone.utc) if value.tzinfo else value
        return utc.isoformat(timespec="microseconds")
    if isinstance(value, timedelta):
        sign = "-" if value < timedelta(0) else ""
        micros = abs(value) // timedelta(microseconds=1)
        return f"{sign}PT{micros // 1_000_000}.{micros % 1_000_000:06d}S"
    return value.isoformat()


NOT_TEXT = "text that is not UTF-8 is not Unicode text"
_NO_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
_LISTS = {
    pa.ListType: pa.list_,
    pa.LargeListType: pa.large_list,
    pa.FixedSizeListType: pa.list_,
    pa.ListViewType: pa.list_view,
    pa.LargeListViewType: pa.large_list_view,
}
BYTES = {
    pa.string(): pa.binary(),
    pa.string_view(): pa.binary_view(),
    pa.large_string(): pa.large_binary(),
}


@dataclass(frozen=True)
class RefusedRow:
    """A row of a file that cannot be one of its table.

    Attributes:
        number: Its place in the file, from 1; the header does not count, nor do blank
            lines if there are several columns.
        reason: What is wrong with it, in one line.
        text: The row as CSV; one whose text is not UTF-8 as JSON.
    """

    number: int
    reason: str
    text: bytes


def row_numbers(before: int, refused: Sequence[RefusedRow]) -> Callable[[int], int]:
    """Return a function from a row's place in a table, from 0, to its number in the file, from 1.

    Args:
        before: Rows of the file, also malformed ones, before those of the table.
        refused: The malformed rows that `read_csv` yielded with it.
    """
    places = [row.number - 1 - before - count for count, row in enumerate(refused)]
    return lambda place: before + place + 1 + bisect_right(places, place)


def without_bad_text(table: pa.Table, before: int) -> tuple[pa.Table, list[RefusedRow]]:
    """Return the rows of a table whose text is UTF-8, and the others, with U+FFFD for what is not.

    `before` is the number of rows of the file before the table.
    """
    suspects = [n for n, column in enumerate(table.columns) if not _is_valid(column)]
    for n, column in enumerate(table.columns):
        # The values of a dictionary are not those of the rows, and Arrow does little with views.
        is_view = "_view" in str(column.type)
        kind = retyped(column.type, _NO_VIEWS) if n in suspects or is_view else column.type
        if kind != column.type:
            plain = pa.chunked_array([_plain(chunk, kind) for chunk in column.chunks], kind)
            table = table.set_column(n, table.column_names[n], plain)
    rows = range(table.num_rows)
    bad = {row for n in suspects for row in _bad_rows(table.column(n), rows)}
    if not bad:
        return table, []
    others = table.take(pa.array(sorted(bad), pa.int64()))
    for n in suspects:
        others = others.set_column(n, table.schema.field(n), _repaired(others.column(n)))
    texts = map(row_text, plain_values(others))
    refused = [
        RefusedRow(before + row + 1, NOT_TEXT, text)
        for row, text in zip(sorted(bad), texts, strict=True)
    ]
    kept = pa.array([row for row in rows if row not in bad], pa.int64())
    return table.take(kept), refused


def _plain(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values as the plain type of `retyped`, to which Arrow does not cast all rightly."""
    own = array.type
    if _types.is_dictionary(own):
        return _plain(array.dictionary, kind).take(array.indices)
    if _types.is_run_end_encoded(own):
        ends, rows = array.run_ends.to_pylist(), range(array.offset, array.offset + len(array))
        places = [bisect_right(ends, row) for row in rows]
        return _plain(array.values, kind).take(pa.array(places, pa.int64()))
    if type(own) in _LISTS:
        lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int32())
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
        items = _plain(array.flatten(), kind.value_type)
        return pa.ListArray.from_arrays(offsets, items, kind, mask=array.is_null())
    whole = with_parts(array, kind, lambda part, inner, _: _plain(part, inner))
    return array.cast(kind) if whole is None else whole


def _is_valid(column: pa.ChunkedArray) -> bool:
    if retyped(column.type, BYTES) == column.type:
        return True
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _bad_rows(column: pa.ChunkedArray, rows: range) -> Iterator[int]:
    """Halve the rows until each that is not valid stands alone."""
    if _is_valid(column.take(pa.array(rows, pa.int64()))):
        return
    if len(rows) == 1:
        yield rows[0]
        return
    middle = len(rows) // 2
    yield from _bad_rows(column, rows[:middle])
    yield from _bad_rows(column, rows[middle:])


def _repaired(column: pa.ChunkedArray) -> pa.Array:
    # No cast: PyArrow 24 and 25 abort if rows with maps were taken before.
    kind = retyped(column.type, BYTES)
    values = (value for chunk in column.chunks for value in chunk.view(kind).to_pylist())
    return pa.array([_with_replacements(value, column.type) for value in values], column.type)


def _with_replacements(value: Any, kind: pa.DataType) -> Any:
    if value is None or retyped(kind, BYTES) == kind:
        return value
    if _types.is_struct(kind):
        return {field.name: _with_replacements(value[field.name], field.type) for field in kind}
    if _types.is_map(kind):
        return [
            (_with_replacements(k, kind.key_type), _with_replacements(v, kind.item_type))
            for k, v in value
        ]
    if type(kind) in _LISTS:
        return [_with_replacements(part, kind.value_type) for part in value]
    return value.decode(errors="replace")


def retyped(
    kind: pa.DataType, types: Mapping[pa.DataType, pa.DataType], *, plain: bool = True
) -> pa.DataType:
    """Return a type with some types replaced at each depth.

    If `plain`, it has neither dictionaries nor runs, and of the lists only the usual ones.
    """
    again = partial(retyped, types=types, plain=plain)
    if _types.is_dictionary(kind):
        values = again(kind.value_type)
        return values if plain else pa.dictionary(kind.index_type, values, kind.ordered)
    if _types.is_run_end_encoded(kind):
        values = again(kind.value_type)
        return values if plain else pa.run_end_encoded(kind.run_end_type, values)
    if _types.is_struct(kind):
        return pa.struct([field.with_type(again(field.type)) for field in kind])
    if _types.is_map(kind):
        return pa.map_(again(kind.key_type), again(kind.item_type))
    if type(kind) in _LISTS:
        items = kind.value_field.with_type(again(kind.value_type))
        size = (kind.list_size,) if _types.is_fixed_size_list(kind) and not plain else ()
        return (pa.list_ if plain else _LISTS[type(kind)])(items, *size)
    return types.get(kind, kind)
