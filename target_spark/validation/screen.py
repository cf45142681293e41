"""The screen: a schema's keywords as vectorised checks on the columns its records are read into.

The reader makes sure that a column holds values of the JSON type for its Spark type, with the
exceptions that `Facts` reports. A keyword that is unknown here, or unknown for a column of that
type, makes the library check the property of every record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shared.releases.spark_types import T
from shared.types.arrow_types import as_nullable, spark_to_arrow
from shared.types.schema_nodes import JsonText
from shared.types.type_hints import HINT, INTEGER_WIDTHS
from target_spark.validation import checks as C  # noqa: N812
from target_spark.validation import judge
from target_spark.validation.block_facts import NULL, NUMBER, TEXT, Facts
from target_spark.validation.checks import Check, Unscreened

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
        validator: The library's validator of the whole schema.
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

    def takes_null(self, node: Any) -> bool:
        """Return whether the library accepts null for a node."""
        return judge.is_valid(self._validator.evolve(schema=node), None)

    def property_checks(self, name: str, node: Any, data_type: T.DataType) -> list[Check]:
        """Return the checks of a property's present values.

        Raises:
            UnscreenedKeyword: The library must check it.
        """
        if node in _EVERYTHING:
            return []
        if not isinstance(node, Mapping):
            raise UnscreenedKeyword("false")
        found: list[Check] = []
        for keyword in self.asserts(node):
            try:
                found += self._keyword(keyword, node, name, data_type)
            except Unscreened:
                raise UnscreenedKeyword(keyword) from None
        return found

    def null_checks(self, name: str, node: Any, required: bool) -> Check | None:
        """Return a check of null, which may represent a missing property.

        Returns:
            A check whose masks cover all values, null or not; None if null is allowed.
        """
        if self.takes_null(node):
            return _null if required and not self._files else None
        if required:
            return _null

        def check(array: pa.Array, facts: Facts) -> pa.Array | None:
            return array.is_null() if array.null_count and facts.may_hold(name, NULL) else None

        return check

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
            least, most = (value, None) if keyword == "minItems" else (None, value)
            return C.size_checks(pc.list_value_length, least, most)
        if keyword == "uniqueItems" and value is False:
            return []
        if keyword != "items" or not isinstance(data_type, T.ArrayType):
            raise Unscreened
        element = data_type.elementType
        if isinstance(element, T.DecimalType) and not self._files:
            raise Unscreened  # a bare value has no name that Facts could look for
        inner = self.property_checks(name, value, element)
        nulls = None if self.takes_null(value) else _null
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
            known = node.get("properties", {})
            return [_of_field(data_type.names.index(n), [], _null)
                    for n in value if n not in known and not self._files]  # fmt: skip
        if keyword != "properties" or not set(value) <= set(data_type.names):
            raise Unscreened
        found = []
        for name, child in value.items():
            place = data_type.names.index(name)
            inner = self.property_checks(name, child, data_type[place].dataType)
            nulls = self.null_checks(name, child, name in required)
            if inner or nulls:
                found.append(_of_field(place, inner, nulls))
        return found

    def _more(self, node: Mapping[str, Any], data_type: T.StructType) -> list[Check]:
        """Return a check of unnamed properties: the reader reports whether there are any."""
        if "patternProperties" in node or set(node.get("properties", ())) != set(data_type.names):
            raise Unscreened
        self.closed = True
        return [lambda array, facts: C.suspect_all(array, facts) if facts.unexpected else None]

    def _map(self, keyword: str, node: Mapping[str, Any], data_type: T.MapType) -> list[Check]:
        """Return a check of a map's types; the reader has checked each value of it."""
        if keyword == "propertyNames":
            names = node[keyword]
            if isinstance(names, Mapping) and set(names) <= {"type", HINT}:
                return [] if names.get("type", "string") == "string" else [C.suspect_all]
        if keyword != "additionalProperties" or node.get("properties"):
            raise Unscreened
        values = node[keyword]
        if isinstance(data_type.valueType, T.DecimalType):
            raise Unscreened
        if self.property_checks("", values, data_type.valueType):
            raise Unscreened
        if not self.takes_null(values) and data_type.valueContainsNull:
            raise Unscreened
        return []


def suspects(
    array: pa.Array, found: Sequence[Check], nulls: Check | None, facts: Facts
) -> pa.Array | None:
    """Return the rows of a column that any check suspects, as a mask without nulls."""
    masks = [mask for check in found if (mask := check(array, facts)) is not None]
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
    """Return checks of keywords for numbers, texts or any values."""
    value, kind = node[keyword], spark_to_arrow(as_nullable(data_type))
    if keyword in _OF_NUMBERS:
        if family != "number":
            return []
        if keyword == "multipleOf":
            return C.multiple_checks(value, data_type)
        return C.bound_checks(keyword, value, data_type, kind)
    if keyword in _OF_TEXTS and family != "text":
        return []
    if family == "text" and not C.is_text(data_type):
        raise Unscreened
    if keyword in _OF_TEXTS:
        return _text_checks(keyword, value)
    return C.value_checks(value if keyword == "enum" else [value], data_type, kind)


def _text_checks(keyword: str, value: Any) -> list[Check]:
    if keyword == "pattern":
        return C.pattern_checks(value)
    least, most = (value, None) if keyword == "minLength" else (None, value)
    return C.size_checks(pc.utf8_length, least, most)


def _words(node: Mapping[str, Any]) -> frozenset[str]:
    declared = node.get("type")
    return frozenset([declared] if isinstance(declared, str) else declared or ())


def _family(data_type: T.DataType, node: Mapping[str, Any]) -> str | None:
    """Return the JSON type of a column's values; None if unknown."""
    if isinstance(data_type, JsonText | T.VariantType):
        return None
    if isinstance(data_type, T.DecimalType) and "string" in _words(node):
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
    words = _words(node)
    if isinstance(data_type, JsonText | T.VariantType):
        if words >= _ALL_TYPES:
            return []
        raise Unscreened
    if isinstance(data_type, T.DecimalType):
        return _decimal_types(words, name, data_type)
    family = _family(data_type, node)
    if family == "null":
        return [C.suspect_all]
    if family == "number":
        whole = type(data_type) in INTEGER_WIDTHS and "integer" in words
        return [] if whole or "number" in words else [C.suspect_all]
    word = "string" if family == "text" else family
    return [] if word in words else [C.suspect_all]


def _decimal_types(words: frozenset[str], name: str, data_type: T.DecimalType) -> list[Check]:
    """Return checks of decimals: Arrow accepts numbers and texts; the bytes show which occur."""
    is_number = "number" in words or ("integer" in words and not data_type.scale)
    if is_number and "string" in words:
        raise Unscreened
    if not is_number and "string" not in words:
        return [C.suspect_all]
    return [_where_found(name, TEXT if is_number else NUMBER)]


def _where_found(name: str, kind: str) -> Check:
    def check(array: pa.Array, facts: Facts) -> pa.Array | None:
        return C.suspect_all(array, facts) if facts.may_hold(name, kind) else None

    return check


def _of_field(place: int, inner: Sequence[Check], nulls: Check | None) -> Check:
    def check(array: pa.Array, facts: Facts) -> pa.Array | None:
        return suspects(pc.struct_field(array, [place]), inner, nulls, facts)

    return check


def _of_items(inner: Sequence[Check], nulls: Check | None) -> Check:
    def check(array: pa.Array, facts: Facts) -> pa.Array | None:
        found = suspects(array.flatten(), inner, nulls, facts)
        if found is None or not found.true_count:
            return None
        rows = pc.list_parent_indices(array).filter(found)
        places = pa.array(range(len(array)), rows.type)
        return pc.is_in(places, rows)

    return check
