"""JSON lines to Arrow columns, record by record: exact, with a reason for each reject."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.json import json_values as V  # noqa: N812
from shared.json.json_values import NON_FINITE, Convert, Number, Refused, Value
from shared.releases.spark_types import T
from shared.types.schema_nodes import JsonText
from shared.types.type_hints import INTEGER_WIDTHS

_DECODER = json.JSONDecoder(
    parse_float=Number, parse_int=Number, parse_constant=NON_FINITE.__getitem__
)
_QUOTED = (
    T.StringType,
    T.CharType,
    T.VarcharType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.TimeType,
    T.DayTimeIntervalType,
    T.YearMonthIntervalType,
)


@dataclass
class ExactRows:
    """What was read from lines: one list per column, and the rejected lines."""

    columns: list[list[Value]]
    extracted: list[int | None] = field(default_factory=list)
    versions: list[int | None] = field(default_factory=list)
    rows_read: int = 0
    rejects: list[tuple[int, str]] = field(default_factory=list)


class ExactReader:
    """Reads lines with converters made once from the stream's columns.

    Args:
        struct: The columns, text columns that take any JSON marked by `JsonText`.
        free_form: The only column takes the whole record.
        envelope: Lines are RECORD messages, not bare records.
        strict: Reject values of another type, even if nothing would be lost.
    """

    def __init__(
        self, struct: T.StructType, *, free_form: bool, envelope: bool, strict: bool
    ) -> None:
        self.envelope = envelope
        self.width = len(struct.fields)
        self._convert = _whole if free_form else _fields(struct, strict)

    def read(self, lines: Iterator[tuple[int, bytes]]) -> ExactRows:
        """Read numbered lines; ignore blank ones."""
        found = ExactRows([[] for _ in range(self.width)])
        for number, line in lines:
            if line.strip(b" \t\r\n"):
                found.rows_read += 1
                try:
                    self._line(line, found)
                except Refused as refused:
                    found.rejects.append((number, str(refused)))
        return found

    def values(self, record: Mapping[str, Value]) -> list[Value]:
        """Convert a decoded record to the values of its columns.

        Raises:
            Refused: A value does not fit its column.
        """
        try:
            return self._convert(record)
        except RecursionError:
            raise Refused("values are nested too deeply") from None

    def _line(self, line: bytes, found: ExactRows) -> None:
        message = decode(line)
        record = message.get("record") if self.envelope else message
        if not isinstance(record, dict):
            raise Refused("RECORD message without a 'record' object")
        for column, value in zip(found.columns, self.values(record), strict=True):
            column.append(value)
        if self.envelope:
            found.extracted.append(_or_none(V.instant, message.get("time_extracted")))
            found.versions.append(_or_none(_VERSION, message.get("version")))


_VERSION = V.integer(*INTEGER_WIDTHS[T.LongType], strict=True)


def _or_none(convert: Convert, value: Value) -> Value:
    try:
        return convert(value)
    except Refused:
        return None


def decode(line: bytes) -> dict[str, Any]:
    """Decode one line to an object whose numbers are still text.

    Raises:
        Refused: The line is not UTF-8, not JSON or not an object.
    """
    try:
        value = _DECODER.decode(line.decode())
    except UnicodeDecodeError as error:
        raise Refused(f"not UTF-8: byte {error.start + 1} of the line") from None
    except (ValueError, KeyError) as error:
        raise Refused(f"not JSON: {error}") from None
    except RecursionError:
        raise Refused("values are nested too deeply") from None
    if not isinstance(value, dict):
        raise Refused(f"not a JSON object: {V.shown(value)}")
    return value


def _whole(record: Mapping[str, Value]) -> list[Value]:
    return [V.json_text(record)]


def _fields(struct: T.StructType, strict: bool) -> Callable[[Mapping[str, Value]], list[Value]]:
    plans = [
        (f.name, converter(f.dataType, strict), f.nullable or not strict) for f in struct.fields
    ]

    def convert(record: Mapping[str, Value]) -> list[Value]:
        values, get, name = [], record.get, ""
        try:
            for name, change, nullable in plans:
                value = get(name)
                values.append(change(value) if value is not None else _null(nullable))
        except Refused as refused:
            raise refused.under(name) from None
        return values

    return convert


def _null(nullable: bool) -> Value:
    if not nullable:
        raise Refused("null or missing where a value is required")
    return None


def _value(value: Value, name: str, convert: Convert, nullable: bool) -> Value:
    try:
        return convert(value) if value is not None else _null(nullable)
    except Refused as refused:
        raise refused.under(name) from None


def converter(data_type: T.DataType, strict: bool) -> Convert:
    """Return the function that turns a non-null JSON value into what Arrow takes."""
    if isinstance(data_type, T.StructType):
        return _struct(data_type, strict)
    if isinstance(data_type, T.ArrayType):
        return _array(data_type, strict)
    if isinstance(data_type, T.MapType):
        return _map(data_type, strict)
    if isinstance(data_type, T.DecimalType):
        return V.decimal(data_type.precision, data_type.scale)
    if type(data_type) in INTEGER_WIDTHS:
        low, high = INTEGER_WIDTHS[type(data_type)]
        return V.integer(low, high, strict)
    make = _SCALARS.get(type(data_type))
    return make(strict) if make else V.string(strict, any_json=False)


_SCALARS: Mapping[type[T.DataType], Callable[[bool], Convert]] = {
    T.NullType: lambda _: V.nothing,
    T.FloatType: lambda strict: V.floating(True, strict),
    T.DoubleType: lambda strict: V.floating(False, strict),
    T.BooleanType: V.boolean,
    T.BinaryType: lambda _: V.binary,
    T.DateType: V.date,
    T.TimestampType: lambda _: V.instant,
    T.TimestampNTZType: lambda _: V.instant,
    T.TimeType: lambda _: V.time,
    T.DayTimeIntervalType: lambda _: V.day_time,
    T.YearMonthIntervalType: lambda _: V.year_month,
    T.VariantType: lambda _: V.json_text,
    JsonText: lambda strict: V.string(strict, True),
}


def _struct(data_type: T.StructType, strict: bool) -> Convert:
    fields = _fields(data_type, strict)

    def convert(value: Value) -> dict[str, Value]:
        if not isinstance(value, dict):
            raise V.not_of_type(value, "object")
        return dict(zip(data_type.names, fields(value), strict=True))

    return convert


def _array(data_type: T.ArrayType, strict: bool) -> Convert:
    element = converter(data_type.elementType, strict)
    nullable = data_type.containsNull or not strict

    def convert(value: Value) -> list[Value]:
        if not isinstance(value, list):
            raise V.not_of_type(value, "array")
        return [_value(item, f"[{i}]", element, nullable) for i, item in enumerate(value)]

    return convert


def _map(data_type: T.MapType, strict: bool) -> Convert:
    element = converter(data_type.valueType, strict)
    nullable = data_type.valueContainsNull or not strict
    key_of = _key(data_type.keyType)

    def convert(value: Value) -> list[tuple[Value, Value]]:
        if not isinstance(value, dict):
            raise V.not_of_type(value, "object")
        return [(key_of(k), _value(v, k, element, nullable)) for k, v in value.items()]

    return convert


def _key(data_type: T.DataType) -> Convert:
    """Return the function that reads a map's key from the text it has in JSON."""
    convert = converter(data_type, True)
    if isinstance(data_type, _QUOTED):
        return convert

    def from_text(key: str) -> Value:
        if key in NON_FINITE:
            return convert(key)
        try:
            return convert(_DECODER.decode(key))
        except (ValueError, RecursionError):
            raise V.not_of_type(key, data_type.simpleString()) from None

    return from_text
