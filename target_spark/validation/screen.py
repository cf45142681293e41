"""The screen: a schema's keywords as vectorised checks on the columns its records are read into.

The reader makes sure that a column holds values of the JSON type for its Spark type, with the
exceptions that `Facts` reports: what the bytes of a block show, and its parsed columns do not. A
keyword that is unknown here, or unknown for a column of that type, makes the library check the
property of every record.

A check returns the values that may be invalid. It must not miss a value that the library rejects;
a false suspicion costs only time.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shared.formats.arrow_types import as_nullable, spark_to_arrow
from shared.formats.json_text import NULL, NUMBER, TEXT
from shared.formats.schema_nodes import HINT, INTEGER_WIDTHS, MAX_DIGITS, JsonText, type_words
from shared.formats.spark_types import T
from target_spark.validation import judge
from target_spark.validation.judge import certain_pattern

_PLAIN = re.compile(r"[A-Za-z0-9_\- .]+\Z")
_SPELT_OUT = re.compile(rb"\\u00[2-7]")
_TOGETHER = 100
"""Names in one pattern: what the search keeps in memory grows with them."""

Asked = dict[str, set[str]]
"""Kind → names."""


@dataclass(eq=False)
class Facts:
    """Reports whether a property may have a value of a kind anywhere in a block.

    Args:
        data: JSON lines; None for rows of a file with typed columns, which cannot hold a value
            of another kind, and have null for a missing value.
        kinds: The values of all properties, if a reader has seen them, see `LinesRead`; None to
            search `data`.
        unexpected: Objects may have properties that their schema does not name.
        asked: Names looked up in earlier blocks, extended by this one. Values of a kind are rare:
            all names are searched in one pass, and one by one only if that finds any.
    """

    data: bytes | None
    unexpected: bool = True
    asked: Asked = field(default_factory=dict)
    kinds: frozenset[tuple[str, str]] | None = None
    _absent: dict[str, set[str]] = field(default_factory=dict, init=False)
    _answers: dict[tuple[str, str], bool] = field(default_factory=dict, init=False)

    def may_hold(self, name: str, kind: str) -> bool:
        """Return whether `"name": value` may occur, at any depth, with a value of the kind.

        Args:
            kind: `NULL`, `TEXT` or `NUMBER`.
        """
        # 1. The reader has seen every value, or the file's types leave no other kind.
        if self.kinds is not None:
            return (name, kind) in self.kinds
        if self.data is None:
            return False
        # 2. What cannot be searched for may be there.
        # A name can be written with escapes, and would not be found then.
        if not _PLAIN.match(name) or self._is_spelt_out:
            return True
        # 3. Search the text of the block, once for each name.
        entry = self._answers.get((name, kind))
        if entry is None:
            entry = name not in self._absent_names(kind) and self._search([name], kind)
            self._answers[name, kind] = entry
            self.asked.setdefault(kind, set()).add(name)
        return entry

    @cached_property
    def _is_spelt_out(self) -> bool:
        data = self.data or b""
        return b"\\" in data and _SPELT_OUT.search(data) is not None

    @cached_property
    def _text(self) -> pa.Array:
        data = self.data or b""
        ends = pa.py_buffer(struct.pack("=qq", 0, len(data)))
        return pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, pa.py_buffer(data)])

    def _absent_names(self, kind: str) -> set[str]:
        """Return the names looked up before that do not have such a value in this block."""
        if kind not in self._absent:
            names = sorted(self.asked.get(kind, ()))
            groups = [names[n : n + _TOGETHER] for n in range(0, len(names), _TOGETHER)]
            self._absent[kind] = {
                name for group in groups if not self._search(group, kind) for name in group
            }
        return self._absent[kind]

    def _search(self, names: Sequence[str], kind: str) -> bool:
        words = "|".join(name.replace(".", r"\.") for name in names)
        result = pc.match_substring_regex(self._text, rf'"(?:{words})"\s*:\s*{kind}')
        return bool(result[0].as_py())


Check = Callable[[pa.Array, Facts], "pa.Array | None"]
"""Converts values to a mask of suspects, null for null values; None without any suspect."""

_EXACT_IN_DOUBLES = 2**53
_WIDE = Context(prec=100)
_LARGE = 1e300
_INTEGERS = tuple(INTEGER_WIDTHS)
_TEXTS = (T.StringType, T.CharType, T.VarcharType)


class Unscreened(Exception):  # noqa: N818 - an answer, not an error
    """A keyword with this value has no vectorised check for this column."""


def suspect_all(array: pa.Array, _: Facts) -> pa.Array:
    """Mark every value as suspect."""
    return pc.or_kleene(array.is_valid(), array.is_null())


def is_text(data_type: T.DataType) -> bool:
    """Return whether a column holds the strings of its property unchanged."""
    return isinstance(data_type, _TEXTS) and not isinstance(data_type, JsonText)


def is_number(value: object) -> bool:
    """Return whether a value of a schema is a JSON number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def size_checks(keyword: str, bound: Any, length: Callable[[pa.Array], pa.Array]) -> list[Check]:
    """Return the check of `minItems`, `maxLength` or their like; none if all lengths pass."""
    if not is_number(bound) or (keyword.startswith("min") and bound <= 0):
        return []
    outside = pc.less if keyword.startswith("min") else pc.greater
    return [lambda array, _: outside(length(array), bound)]


def pattern_checks(pattern: str) -> list[Check]:
    """Return a check by RE2 if it matches nothing that Python would not match.

    Raises:
        Unscreened: It may match more than Python.
    """
    certain = certain_pattern(pattern)
    if certain is None:
        raise Unscreened
    return [lambda array, _: pc.invert(pc.match_substring_regex(array, certain))]


def value_checks(values: Iterable[object], data_type: T.DataType, kind: pa.DataType) -> list[Check]:
    """Return a check that values are among those of `enum` or `const`.

    Raises:
        Unscreened: Columns of this type are not compared.
    """
    alike = [value for value in values if _is_comparable(value, data_type)]
    if is_text(data_type) or isinstance(data_type, T.BooleanType | T.DoubleType):
        existing = pa.array(alike, kind)
    elif isinstance(data_type, _INTEGERS):
        low, high = INTEGER_WIDTHS[type(data_type)]
        whole = [int(v) for v in alike if math.isfinite(v) and v == int(v)]  # type: ignore[arg-type,call-overload]
        existing = pa.array([v for v in whole if low <= v <= high], kind)
    elif isinstance(data_type, T.DecimalType):
        existing = pa.array([d for d in map(_exact, alike) if _fits(d, data_type)], kind)
    else:
        raise Unscreened
    return [lambda array, _: pc.invert(pc.is_in(array, existing))]


def _is_comparable(value: object, data_type: T.DataType) -> bool:
    if isinstance(data_type, T.BooleanType):
        return isinstance(value, bool)
    if is_text(data_type):
        return isinstance(value, str) and value.encode("utf-8", "ignore").decode() == value
    if not is_number(value):
        return False
    return abs(value) < _EXACT_IN_DOUBLES or isinstance(data_type, _INTEGERS)  # type: ignore[arg-type]


def _exact(value: Any) -> Decimal:
    return Decimal(repr(value))


def _fits(value: Decimal, data_type: T.DecimalType) -> bool:
    exponent = value.normalize().as_tuple().exponent
    scale = max(0, -exponent) if isinstance(exponent, int) else MAX_DIGITS + 1
    whole = data_type.precision - data_type.scale
    return scale <= data_type.scale and (not value or value.adjusted() < whole)


def bound_checks(keyword: str, bound: Any, data_type: T.DataType, kind: pa.DataType) -> list[Check]:
    """Return a check of `minimum`, `maximum` or their exclusive forms.

    Raises:
        Unscreened: Columns of this type are not compared.
    """
    if abs(bound) > _LARGE:
        raise Unscreened
    lower, strict = keyword.lower().endswith("minimum"), keyword.startswith("exclusive")
    if isinstance(data_type, _INTEGERS):
        edges = INTEGER_WIDTHS[type(data_type)]
        return _limit_checks(_whole(Fraction(bound), lower, strict), edges, lower, kind)
    if isinstance(data_type, T.DoubleType) and abs(bound) < _EXACT_IN_DOUBLES:
        outside = {
            (True, False): pc.less,
            (True, True): pc.less_equal,
            (False, False): pc.greater,
            (False, True): pc.greater_equal,
        }[lower, strict]
        limit = pa.scalar(float(bound), kind)
        return [lambda array, _: outside(array, limit)]
    if isinstance(data_type, T.DecimalType):
        return _bound_of_decimals(bound, lower, strict, data_type, kind)
    raise Unscreened


def _whole(edge: Fraction, lower: bool, strict: bool) -> int:
    """Return the integer next to an edge that is still within it."""
    whole = math.ceil(edge) if lower else math.floor(edge)
    return whole + (1 if lower else -1) * (strict and whole == edge)


def _limit_checks(
    whole: int, edges: tuple[int, int], lower: bool, kind: pa.DataType, scale: int = 0
) -> list[Check]:
    """Return a check of the least or greatest value of a column, in units of its last digit."""
    smallest, largest = edges
    if whole <= smallest if lower else whole >= largest:
        return []
    if not smallest <= whole <= largest:
        return [suspect_all]
    limit = pa.scalar(Decimal(whole).scaleb(-scale, _WIDE) if scale else whole, kind)
    outside = pc.less if lower else pc.greater
    return [lambda array, _: outside(array, limit)]


def _bound_of_decimals(
    bound: Any, lower: bool, strict: bool, data_type: T.DecimalType, kind: pa.DataType
) -> list[Check]:
    """Return checks of a bound; the library compares doubles, so the next double is used."""
    if isinstance(bound, int) and not data_type.scale:
        edge = Fraction(bound)  # of integers, compared as they are
    else:
        # A decimal between the bound and the next double rounds to either: it is suspected.
        edge = Fraction(math.nextafter(float(bound), math.inf if lower else -math.inf))
        if not strict and Fraction(float(bound)) == Fraction(bound):
            edge = Fraction(bound)
        strict = False
    whole = _whole(edge * 10**data_type.scale, lower, strict)
    most = 10**data_type.precision - 1
    return _limit_checks(whole, (-most, most), lower, kind, data_type.scale)


def multiple_checks(step: Any, data_type: T.DataType) -> list[Check]:
    """Return a check of `multipleOf`.

    Raises:
        Unscreened: It takes more than integers, or digits that a column has anyway.
    """
    unit = Fraction(_exact(step))
    if isinstance(data_type, T.DecimalType):
        own = Fraction(1, 10**data_type.scale)
        if (own / unit).denominator == 1:
            return []
        raise Unscreened
    if not isinstance(data_type, _INTEGERS):
        raise Unscreened
    if (1 / unit).denominator == 1:
        return []
    if unit.denominator != 1 or unit > INTEGER_WIDTHS[type(data_type)][1]:
        raise Unscreened
    whole = int(unit)
    # Arrow divides integers without a remainder; it has no modulo.
    return [lambda array, _: pc.not_equal(pc.multiply(pc.divide(array, whole), whole), array)]


_ALL_TYPES = frozenset({"object", "array", "string", "number", "boolean"})
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_OF_NUMBERS = frozenset({*_BOUNDS, "multipleOf"})
_OF_TEXTS = frozenset({"minLength", "maxLength", "pattern"})
_OF_ONE_VALUE = _OF_NUMBERS | _OF_TEXTS | {"enum", "const"}
_OF_ARRAYS = frozenset(
    {"items", "minItems", "maxItems", "uniqueItems", "prefixItems", "contains",
     "unevaluatedItems"}
)  # fmt: skip
_OF_OBJECTS = frozenset(
    {"properties", "required", "additionalProperties", "patternProperties", "propertyNames",
     "minProperties", "maxProperties", "dependentRequired", "dependentSchemas",
     "unevaluatedProperties"}
)  # fmt: skip
_EVERYTHING: tuple[Any, ...] = ({}, True)


class UnscreenedKeyword(Exception):  # noqa: N818 - an answer, not an error
    """This keyword does not have a check."""

    def __init__(self, keyword: str) -> None:
        super().__init__(keyword)
        self.keyword = keyword


class Screen:
    """Makes checks for the nodes of one schema.

    Args:
        files: For rows of files with typed columns, in which a missing property is null.

    Attributes:
        closed: A check depends on `Facts.unexpected`.
    """

    def __init__(self, validator: Any, *, files: bool) -> None:
        self._validator = validator
        self._files = files
        self.closed = False
        self._asserting = judge.keywords()

    def asserts(self, node: Any) -> list[str]:
        """Return the keywords of a node that can reject a value."""
        return [key for key in node if key in self._asserting] if isinstance(node, Mapping) else []

    def property_checks(self, name: str, node: Any, data_type: T.DataType) -> list[Check]:
        """Return the checks of a property's present values.

        Raises:
            UnscreenedKeyword: The library must check it.
        """
        if node in _EVERYTHING:
            return []
        if not isinstance(node, Mapping):
            raise UnscreenedKeyword("false")
        results: list[Check] = []
        for keyword in self.asserts(node):
            try:
                results += self._keyword(keyword, node, name, data_type)
            except Unscreened:
                raise UnscreenedKeyword(keyword) from None
        return results

    def null_checks(self, name: str, node: Any, required: bool) -> Check | None:
        """Return a check of null, which may represent a missing property.

        Returns:
            A check whose masks cover all values, null or not; None if null is allowed.
        """
        if judge.takes_null(self._validator, node):
            return _null if required and not self._files else None
        if required:
            return _null

        return lambda array, facts: (
            array.is_null() if array.null_count and facts.may_hold(name, NULL) else None
        )

    def _keyword(
        self, keyword: str, node: Mapping[str, Any], name: str, data_type: T.DataType
    ) -> list[Check]:
        if keyword == "type":
            return _types(node, name, data_type)
        family = _family(data_type, node)
        if family is None:
            raise Unscreened
        if keyword in _OF_ONE_VALUE:
            return _value_checks(keyword, node, family, data_type)
        if keyword in _OF_ARRAYS:
            return self._array(keyword, node, name, data_type) if family == "array" else []
        if keyword in _OF_OBJECTS:
            return self._object(keyword, node, data_type) if family == "object" else []
        return self._composed(keyword, node, name, data_type)

    def _composed(
        self, keyword: str, node: Mapping[str, Any], name: str, data_type: T.DataType
    ) -> list[Check]:
        parts = node[keyword]
        if keyword == "allOf":
            return [c for part in parts for c in self.property_checks(name, part, data_type)]
        others = [part for part in parts if not _is_null(part)] if isinstance(parts, list) else []
        if keyword not in ("anyOf", "oneOf") or len(others) != 1:
            raise Unscreened
        return self.property_checks(name, others[0], data_type)

    def _array(
        self, keyword: str, node: Mapping[str, Any], name: str, data_type: T.DataType
    ) -> list[Check]:
        value = node[keyword]
        if keyword in ("minItems", "maxItems"):
            return size_checks(keyword, value, pc.list_value_length)
        if keyword == "uniqueItems" and value is False:
            return []
        if keyword != "items" or not isinstance(data_type, T.ArrayType):
            raise Unscreened
        element = data_type.elementType
        if isinstance(element, T.DecimalType) and not self._files:
            raise Unscreened  # a bare value has no name that Facts could look for
        inner = self.property_checks(name, value, element)
        nulls = None if judge.takes_null(self._validator, value) else _null
        return [_of_items(inner, nulls)] if inner or nulls else []

    def _object(self, keyword: str, node: Mapping[str, Any], data_type: T.DataType) -> list[Check]:
        value = node[keyword]
        if keyword == "additionalProperties" and value in _EVERYTHING:
            return []
        if isinstance(data_type, T.MapType):
            return self._map(keyword, node, data_type)
        if not isinstance(data_type, T.StructType):
            raise Unscreened
        if keyword == "additionalProperties":
            return self._more(node, data_type)
        required = node.get("required", ())
        if keyword == "required":
            if not set(value) <= set(data_type.names):
                raise Unscreened
            existing = node.get("properties", {})
            return [_of_field(data_type.names.index(n), [], _null)
                    for n in value if n not in existing and not self._files]  # fmt: skip
        if keyword != "properties" or not set(value) <= set(data_type.names):
            raise Unscreened
        results = []
        for name, child in value.items():
            place = data_type.names.index(name)
            inner = self.property_checks(name, child, data_type[place].dataType)
            nulls = self.null_checks(name, child, name in required)
            if inner or nulls:
                results.append(_of_field(place, inner, nulls))
        return results

    def _more(self, node: Mapping[str, Any], data_type: T.StructType) -> list[Check]:
        """Return a check of unnamed properties: the reader reports whether there are any."""
        if "patternProperties" in node or set(node.get("properties", ())) != set(data_type.names):
            raise Unscreened
        self.closed = True
        return [lambda array, facts: suspect_all(array, facts) if facts.unexpected else None]

    def _map(self, keyword: str, node: Mapping[str, Any], data_type: T.MapType) -> list[Check]:
        """Return a check of a map's types; the reader has checked each value of it."""
        if keyword == "propertyNames":
            names = node[keyword]
            if isinstance(names, Mapping) and set(names) <= {"type", HINT}:
                return [] if names.get("type", "string") == "string" else [suspect_all]
        if keyword != "additionalProperties" or node.get("properties"):
            raise Unscreened
        values = node[keyword]
        if isinstance(data_type.valueType, T.DecimalType):
            raise Unscreened
        if self.property_checks("", values, data_type.valueType):
            raise Unscreened
        takes_null = judge.takes_null(self._validator, values)
        if not takes_null and data_type.valueContainsNull:
            raise Unscreened
        return []


def suspects(
    array: pa.Array, results: Sequence[Check], nulls: Check | None, facts: Facts
) -> pa.Array | None:
    """Return the rows of a column that any check suspects, as a mask without nulls."""
    masks = [mask for check in results if (mask := check(array, facts)) is not None]
    # A null says nothing about values; `nulls` alone judges it.
    if masks and array.null_count:
        masks = [pc.and_(pc.fill_null(mask, False), array.is_valid()) for mask in masks]
    if nulls is not None and (mask := nulls(array, facts)) is not None:
        masks.append(mask)
    return reduce(pc.or_, masks) if masks else None


def _null(array: pa.Array, _: Facts) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _is_null(node: Any) -> bool:
    return isinstance(node, Mapping) and node.get("type") in ("null", ["null"])


def _value_checks(
    keyword: str, node: Mapping[str, Any], family: str, data_type: T.DataType
) -> list[Check]:
    value, kind = node[keyword], spark_to_arrow(as_nullable(data_type))
    if keyword in _OF_NUMBERS:
        if family != "number":
            return []
        if keyword == "multipleOf":
            return multiple_checks(value, data_type)
        return bound_checks(keyword, value, data_type, kind)
    if keyword in _OF_TEXTS and family != "text":
        return []
    if family == "text" and not is_text(data_type):
        raise Unscreened
    if keyword in _OF_TEXTS:
        is_pattern = keyword == "pattern"
        return pattern_checks(value) if is_pattern else size_checks(keyword, value, pc.utf8_length)
    return value_checks(value if keyword == "enum" else [value], data_type, kind)


def _family(data_type: T.DataType, node: Mapping[str, Any]) -> str | None:
    """Return the JSON type of a column's values; None if unknown."""
    if isinstance(data_type, JsonText | T.VariantType):
        return None
    if isinstance(data_type, T.DecimalType) and "string" in type_words(node):
        return "text"
    for kinds, family in _FAMILIES.items():
        if isinstance(data_type, kinds):
            return family
    return "text"


_FAMILIES: Mapping[tuple[type[T.DataType], ...], str] = {
    (T.NullType,): "null",
    (T.NumericType,): "number",
    (T.BooleanType,): "boolean",
    (T.StructType, T.MapType): "object",
    (T.ArrayType,): "array",
}


def _types(node: Mapping[str, Any], name: str, data_type: T.DataType) -> list[Check]:
    """Return the checks of `type` that are left for a column of this type."""
    words = type_words(node)
    if isinstance(data_type, JsonText | T.VariantType):
        if words >= _ALL_TYPES:
            return []
        raise Unscreened
    if isinstance(data_type, T.DecimalType):
        return _decimal_types(words, name, data_type)
    family = _family(data_type, node)
    if family == "null":
        return [suspect_all]
    if family == "number":
        whole = type(data_type) in INTEGER_WIDTHS and "integer" in words
        return [] if whole or "number" in words else [suspect_all]
    word = "string" if family == "text" else family
    return [] if word in words else [suspect_all]


def _decimal_types(words: set[str], name: str, data_type: T.DecimalType) -> list[Check]:
    """Return checks of decimals: Arrow accepts numbers and texts; the bytes show which occur."""
    is_number = "number" in words or ("integer" in words and not data_type.scale)
    if is_number and "string" in words:
        raise Unscreened
    if not is_number and "string" not in words:
        return [suspect_all]
    kind = TEXT if is_number else NUMBER
    return [lambda array, facts: suspect_all(array, facts) if facts.may_hold(name, kind) else None]


def _of_field(place: int, inner: Sequence[Check], nulls: Check | None) -> Check:
    return lambda array, facts: suspects(pc.struct_field(array, [place]), inner, nulls, facts)


def _of_items(inner: Sequence[Check], nulls: Check | None) -> Check:
    def check(array: pa.Array, facts: Facts) -> pa.Array | None:
        result = suspects(array.flatten(), inner, nulls, facts)
        if result is None or not result.true_count:
            return None
        # A row is suspect by any of its items.
        rows = pc.list_parent_indices(array).filter(result)
        places = pa.array(range(len(array)), rows.type)
        return pc.is_in(places, rows)

    return check
