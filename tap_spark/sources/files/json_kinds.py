"""The kinds of JSON values in columns, and the narrowest types that keep every value exactly. Pure.

Unquoted values in fields of type text get quotes: Spark's `from_json` parses numbers and writes
them as text again, which loses digits (`1.10`); its reader of whole files keeps them. With quotes,
both return the same.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import MAX_PREC, Context, Decimal
from functools import lru_cache, reduce
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812

from shared.formats.json_text import Number
from tap_spark.sources.frame_helpers import MAX_DECIMAL

_LONG = range(-(2**63), 2**63)
SAFE = 2**53
"""Up to here a double keeps every integer."""
_ENDLESS = 10**6
"""More digits than any decimal has."""
_WHOLE = re.compile(r"-?[0-9]+\Z")
_EXACT = Context(prec=MAX_PREC)
_LONG_NUMBER = rb"(-?[0-9][0-9.]{15,}(?:[eE][+-]?[0-9]+)?|-?[0-9][0-9.]*[eE][+-]?[0-9]{3,})"
"""Numbers with more than the 15 digits that a double always keeps, or with a large exponent."""
EVERY = ""
"""Stands for the name of elements and map values."""


@dataclass(frozen=True)
class NumberKind:
    """What is true of all numbers of a column.

    Attributes:
        digits: Digits before the point.
        scale: Digits after it.
        is_long: Whether each is an integer of 64 bits, written without point and exponent.
        in_double: Whether a double keeps each.
    """

    digits: int
    scale: int
    is_long: bool
    in_double: bool

    def merged(self, other: NumberKind) -> NumberKind:
        """Return what is true of the numbers of both."""
        return NumberKind(
            max(self.digits, other.digits),
            max(self.scale, other.scale),
            self.is_long and other.is_long,
            self.in_double and other.in_double,
        )

    def data_type(self, prefers_decimal: bool = False) -> T.DataType:
        """Return the type: text if no number type keeps all of them."""
        if self.is_long:
            return T.LongType()
        fits = self.digits + self.scale <= MAX_DECIMAL
        if self.in_double and not (prefers_decimal and fits):
            return T.DoubleType()
        return T.DecimalType(MAX_DECIMAL, self.scale) if fits else T.StringType()


Kind: TypeAlias = "T.DataType | NumberKind | dict[str, Kind] | list[Kind] | None"
"""What is known of a type: fields of objects by name, the kind of elements, None for nulls."""

_NOT_FINITE = NumberKind(_ENDLESS, 0, is_long=False, in_double=True)


@lru_cache(maxsize=4096)
def number_kind(text: str) -> NumberKind:
    """Return the kind of a number as JSON writes it."""
    if _WHOLE.match(text):
        digits = len(text.lstrip("-"))
        if digits > MAX_DECIMAL:
            return NumberKind(_ENDLESS, 0, is_long=False, in_double=False)
        value = int(text)
        return NumberKind(digits, 0, value in _LONG, abs(value) <= SAFE)
    try:
        number = Decimal(text)
        double = float(text)
        kept = math.isfinite(double) and Decimal(repr(double)) == number
        _, places, power = number.normalize(_EXACT).as_tuple() if number else (0, (0,), 0)
    except ArithmeticError:
        return NumberKind(_ENDLESS, 0, is_long=False, in_double=False)
    exponent = int(power)
    return NumberKind(max(len(places) + exponent, 0), max(-exponent, 0), False, kept)


def json_kind(value: Any) -> Kind:
    """Return the kind of a decoded value, whose numbers are still text."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {name: json_kind(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [reduce(merged_kinds, map(json_kind, value), None)]
    if isinstance(value, bool):
        return T.BooleanType()
    if isinstance(value, float):
        return _NOT_FINITE
    return number_kind(str(value)) if type(value) is Number else T.StringType()


def merged_kinds(first: Kind, second: Kind) -> Kind:
    """Return the kind of the values of both; text if they have no other one in common."""
    if first is None or second is None:
        return second if first is None else first
    if isinstance(first, dict) and isinstance(second, dict):
        names = {**first, **second}
        return {name: merged_kinds(first.get(name), second.get(name)) for name in names}
    if isinstance(first, list) and isinstance(second, list):
        return [merged_kinds(first[0], second[0])]
    if isinstance(first, NumberKind) and isinstance(second, NumberKind):
        return first.merged(second)
    return first if first == second else T.StringType()


def merged_all(kinds: Iterable[Kind]) -> Kind:
    """Return the kind of the values of all."""
    return reduce(merged_kinds, kinds, None)


@dataclass(frozen=True)
class TypeRules:
    """Options of the reader that choose types.

    Attributes:
        as_text: Whether all scalars are text.
        prefers_decimal: Whether numbers are decimals rather than doubles.
        without_nulls: Whether columns that are always null, or empty, are left out.
    """

    as_text: bool = False
    prefers_decimal: bool = False
    without_nulls: bool = False


def type_of(kind: Kind, rules: TypeRules = TypeRules()) -> T.DataType:
    """Return the type of a kind; nulls and objects without fields are text."""
    if isinstance(kind, dict) and kind:
        # Spark sorts names by their UTF-16 code units.
        names = sorted(kind, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        kept = [n for n in names if not (rules.without_nulls and _is_empty(kind[n]))]
        return T.StructType([T.StructField(n, type_of(kind[n], rules), True) for n in kept])
    if isinstance(kind, list):
        return T.ArrayType(type_of(kind[0], rules), True)
    if isinstance(kind, NumberKind) and not rules.as_text:
        return kind.data_type(rules.prefers_decimal)
    return kind if isinstance(kind, T.DataType) and not rules.as_text else T.StringType()


def _is_empty(kind: Kind) -> bool:
    if isinstance(kind, dict):
        return all(map(_is_empty, kind.values()))
    return kind is None or (isinstance(kind, list) and _is_empty(kind[0]))


class UnsureKindError(Exception):
    """Arrow may have inferred the type from a value that it changed."""


def kind_of_column(column: pa.ChunkedArray | pa.Array) -> Kind:  # noqa: PLR0911
    """Return the kind of a column that Arrow's reader of JSON has inferred.

    Raises:
        UnsureKindError: It may differ from that of the text.
    """
    is_ = pa.types
    kind = column.type
    if is_.is_struct(kind):
        parts = column.flatten()
        return {kind.field(n).name: kind_of_column(part) for n, part in enumerate(parts)}
    if is_.is_list(kind):
        return [kind_of_column(pc.list_flatten(column))]
    if column.null_count == len(column):
        return None
    if is_.is_integer(kind):
        low, high = (int(pc.min_max(column)[name].as_py()) for name in ("min", "max"))
        return number_kind(str(low)).merged(number_kind(str(high)))
    if is_.is_floating(kind):
        return _kind_of_doubles(column)
    if is_.is_boolean(kind):
        return T.BooleanType()
    if not (is_.is_string(kind) or is_.is_timestamp(kind) or is_.is_date(kind)):
        raise UnsureKindError
    return T.StringType()


def _kind_of_doubles(column: pa.ChunkedArray | pa.Array) -> NumberKind:
    """Return the kind of numbers that their doubles keep."""
    sizes = pc.abs(column)
    if not pc.all(pc.is_finite(sizes)).as_py():
        raise UnsureKindError
    texts = pc.cast(sizes, pa.string())
    odd = pc.match_substring(texts, "e")
    plain = texts.filter(pc.invert(odd))
    kinds = [number_kind(text) for text in texts.filter(odd).unique().to_pylist() if text]
    kind = reduce(NumberKind.merged, kinds, NumberKind(0, 0, is_long=False, in_double=True))
    point = pc.find_substring(plain, ".")
    length = pc.binary_length(plain)
    digits = pc.max(pc.if_else(pc.less(point, 0), length, point)).as_py() or 0
    after = pc.subtract(pc.subtract(length, point), 1)
    scale = pc.max(pc.if_else(pc.less(point, 0), 0, after)).as_py() or 0
    return kind.merged(NumberKind(digits, scale, is_long=False, in_double=True))


class LongNumbers:
    """Finds numbers that a double (or float) column may not keep, in lines of records of a type."""

    def __init__(self, dtype: T.DataType) -> None:
        names = {*leaf_names(dtype, T.DoubleType)}
        self.is_needed = bool(names)
        self._generic = re.compile(rb"[:,\[]\s*" + _LONG_NUMBER)
        self._named = self._generic
        if EVERY not in names:
            words = b"|".join(re.escape(name.encode()) for name in sorted(names))
            self._named = re.compile(rb'"(?:' + words + rb')"\s*:\s*' + _LONG_NUMBER)

    def are_kept(self, data: bytes) -> bool:
        """Return whether doubles surely keep the numbers of their columns."""
        pattern = self._generic if b"\\" in data else self._named
        return not self.is_needed or all(map(_is_kept, pattern.findall(data)))


def _is_kept(text: bytes) -> bool:
    written = text.decode()
    return repr(float(text)) == written or number_kind(written).in_double


def leaf_names(dtype: T.DataType, kind: type[T.DataType], name: str = EVERY) -> Iterator[str]:
    """Yield the names of fields of a type; `EVERY` for elements and map values."""
    if isinstance(dtype, kind):
        yield name
    elif isinstance(dtype, T.StructType):
        for field in dtype.fields:
            yield from leaf_names(field.dataType, kind, field.name)
    elif isinstance(dtype, T.ArrayType):
        yield from leaf_names(dtype.elementType, kind)
    elif isinstance(dtype, T.MapType):
        yield from leaf_names(dtype.valueType, kind)


def alike_names(dtype: T.DataType) -> tuple[str, str] | None:
    """Return two names of one object, at any depth, that differ by case only."""
    if isinstance(dtype, T.StructType):
        seen: dict[str, str] = {}
        for field in dtype.fields:
            other = seen.get(field.name.lower())
            if other is not None:
                return other, field.name
            seen[field.name.lower()] = field.name
        return next(filter(None, (alike_names(field.dataType) for field in dtype.fields)), None)
    if isinstance(dtype, T.ArrayType):
        return alike_names(dtype.elementType)
    return alike_names(dtype.valueType) if isinstance(dtype, T.MapType) else None


TEXT = "text"
TextFields: TypeAlias = "dict[str, TextFields] | list[TextFields] | str"
_SPACES = frozenset(" \t\r\n")
_DECODER = json.JSONDecoder()
_CHANGED = r"(?:-?[0-9]+[.eE]|-0|[\[{])"


def text_fields_of(dtype: T.DataType) -> TextFields | None:
    """Find the text fields of a type: by name, in a list for elements; None without any."""
    if isinstance(dtype, T.StringType):
        return TEXT
    if isinstance(dtype, T.ArrayType):
        inner = text_fields_of(dtype.elementType)
        return None if inner is None else [inner]
    if isinstance(dtype, T.MapType):
        inner = text_fields_of(dtype.valueType)
        return None if inner is None else {EVERY: inner}
    if isinstance(dtype, T.StructType):
        parts = {field.name: text_fields_of(field.dataType) for field in dtype.fields}
        return {name: part for name, part in parts.items() if part is not None} or None
    return None


@dataclass(frozen=True)
class UnquotedValues:
    """Puts unquoted values of text fields in quotes; for lines of records or arrays of records.

    Attributes:
        names: Names of the text fields; `EVERY` for elements and map values.
    """

    text_fields: TextFields
    names: frozenset[str]

    def __call__(self, lines: pa.Array) -> pa.Array:
        """Return the lines with quoted values; lines that are not JSON stay unchanged."""
        matches = pc.match_substring_regex(lines, self._pattern())
        if not matches.true_count:
            return lines
        texts = [self.quoted(line) for line in lines.filter(matches).to_pylist()]
        return pc.replace_with_mask(lines, matches, pa.array(texts, lines.type))

    def _pattern(self) -> str:
        """Return a pattern for lines that may have an unquoted value in a text field."""
        words = [re.escape(json.dumps(n, ensure_ascii=False)) for n in self.names - {EVERY}]
        named = rf"(?:{'|'.join(words)})\s*:\s*{_CHANGED}" if words else ""
        escaped = r"\\u[0-9a-fA-F]{4}[^\"]*\"\s*:"
        element = rf"[:,\[]\s*{_CHANGED}" if EVERY in self.names else ""
        return "|".join(filter(None, (named, element, escaped)))

    def quoted(self, line: bytes) -> bytes:
        """Return a line with quoted values; one that is not JSON stays unchanged."""
        try:
            text = line.decode()
            start = skip(text, 0)
            text_fields = [self.text_fields] if text[start : start + 1] == "[" else self.text_fields
            places: list[tuple[int, int]] = []
            _find(text, start, text_fields, places)
        except (ValueError, IndexError, RecursionError):
            return line
        parts: list[str] = []
        at = 0
        for start, end in places:
            parts += [text[at:start], json.dumps(text[start:end], ensure_ascii=False)]
            at = end
        return "".join([*parts, text[at:]]).encode()


def unquoted_values(dtype: T.DataType) -> UnquotedValues | None:
    """Return what puts the values of a type in quotes; None if it has no text fields."""
    text_fields = text_fields_of(dtype)
    names = frozenset(leaf_names(dtype, T.StringType))
    return None if text_fields is None else UnquotedValues(text_fields, names)


def _find(text: str, at: int, text_fields: TextFields | None, places: list[tuple[int, int]]) -> int:
    """Add the ranges of unquoted values in the value that starts here; return its end."""
    if (isinstance(text_fields, dict) and text[at] == "{") or (
        isinstance(text_fields, list) and text[at] == "["
    ):
        return _find_inside(text, at, text_fields, places)
    _, end = _DECODER.raw_decode(text, at)
    if text_fields == TEXT and text[at] != '"' and text[at:end] != "null":
        places.append((at, end))
    return end


def _find_inside(
    text: str,
    at: int,
    text_fields: dict[str, TextFields] | list[TextFields],
    places: list[tuple[int, int]],
) -> int:
    end = "]" if isinstance(text_fields, list) else "}"
    at = skip(text, at + 1)
    if text[at] == end:
        return at + 1
    while True:
        if isinstance(text_fields, list):
            inner: TextFields | None = text_fields[0]
        else:
            name, at = read_name(text, at)
            inner = text_fields.get(name, text_fields.get(EVERY))
        at = skip(text, _find(text, at, inner, places))
        if text[at] == end:
            return at + 1
        expect(text, at, ",")
        at = skip(text, at + 1)


def read_name(text: str, at: int) -> tuple[str, int]:
    """Return the name of a property that begins here, and the start of its value."""
    expect(text, at, '"')
    name, at = scanstring(text, at + 1)
    at = skip(text, at)
    expect(text, at, ":")
    return name, skip(text, at + 1)


def skip(text: str, at: int) -> int:
    """Return where the next character that is not a space is."""
    while text[at : at + 1] in _SPACES:
        at += 1
    return at


def expect(text: str, at: int, char: str) -> None:
    """Raise ValueError if another character is at a place of a text, IndexError if none is."""
    if text[at] != char:
        raise ValueError(f"{char!r} expected at character {at + 1}")
