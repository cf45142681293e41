"""Comparisons as Python makes them, and `in`: exact between integers and floats, false of NaN."""

from __future__ import annotations

import operator as python
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from shared.maps.expressions.building import (
    Fails,
    Make,
    computed,
    constant,
    lifted,
    type_name,
    uncompiled,
)
from shared.maps.expressions.kinds import BOOL, NUMBERS
from shared.maps.expressions.values import Thunk, Value

_EXACT = 2**53
_ORDERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": python.lt,
    "<=": python.le,
    ">": python.gt,
    ">=": python.ge,
}
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}
_LONGS = frozenset({"bool", "int"})
_ONE_TYPE = frozenset({"str", "date", "datetime"})


def equal(left: Value, right: Value) -> Value:
    """Return `left == right`: false between values of different types."""
    names = {left.kind.name, right.kind.name}
    if "none" in names:
        return _of_none(left, right)
    if not comparable(left, right):
        named = "unknown type" if "any" in names else f"type {left.kind.name}"
        return uncompiled(BOOL, f"a comparison of a value of {named}", left, right)
    return computed(BOOL, lambda a, b: same(left, right, a, b), left, right)


def same(left: Value, right: Value, a: Column, b: Column) -> Column:
    """Return whether two columns of comparable values are equal, never null."""
    names = {left.kind.name, right.kind.name}
    found = F.lit(False)
    if names <= NUMBERS or len(names - {"none"}) == 1 == len(names):
        found = _compared("==", left, right, a, b)
    if left.kind.nullable or right.kind.nullable:
        found = F.coalesce(found, F.lit(False))
    if left.kind.nullable and right.kind.nullable:
        found = (a.isNull() & b.isNull()) | found
    return found


def _of_none(left: Value, right: Value) -> Value:
    value = right if left.kind.name == "none" else left
    return is_none(value) if value.kind.name != "none" else _always(True, left, right)


def _always(result: bool, *operands: Value) -> Value:
    """Return a result that is the same for every record, unless an operand is an error."""
    if all(operand.error is None and operand.column is not None for operand in operands):
        return constant(result)

    def make(*_: Column) -> Column:
        return F.lit(result)

    return computed(BOOL, make, *operands)


def comparable(left: Value, right: Value) -> bool:
    """Return whether `same` compares such values as Python does."""
    names = {left.kind.name, right.kind.name}
    if "any" in names:
        return False
    if names <= NUMBERS:
        return "decimal" not in names or _decimals_fit(left, right)
    return len(names) > 1 or names <= _ONE_TYPE


def _decimals_fit(left: Value, right: Value) -> bool:
    """Return whether the common type of both numbers keeps all digits."""
    digits = [_digits(value) for value in (left, right)]
    if None in digits:
        return False
    known = [pair for pair in digits if pair is not None]
    return max(before for before, _ in known) + max(after for _, after in known) <= _MOST_DIGITS


_MOST_DIGITS = 38
_LONG_DIGITS = 20


def _digits(value: Value) -> tuple[int, int] | None:
    """Return how many digits a number has before and after the point; None for any number."""
    if isinstance(value.data_type, T.DecimalType):
        return value.data_type.precision - value.data_type.scale, value.data_type.scale
    if value.kind.name in _LONGS:
        return (len(str(abs(value.known))), 0) if value.is_known else (_LONG_DIGITS, 0)
    return None


def ordered(symbol: str, left: Value, right: Value) -> Value:
    """Return `left symbol right` for `<`, `<=`, `>` and `>=`.

    Raises:
        Fails: Python cannot order such values.
    """
    left, right = replace(left, mixed=0), replace(right, mixed=0)
    make: Make | None = None
    if comparable(left, right):
        make = lambda a, b: _compared(symbol, left, right, a, b)  # noqa: E731
    why = f"a comparison of type {left.kind.name}"
    return lifted(_ORDERS[symbol], make, left, right, kind=BOOL, why=why)


def _compared(symbol: str, left: Value, right: Value, a: Column, b: Column) -> Column:
    """Compare two columns; null if one of them is."""
    kinds = (left.kind.name in _LONGS, right.kind.name in _LONGS)
    if "decimal" in {left.kind.name, right.kind.name}:
        return _plain(symbol, _decimal(left, a), _decimal(right, b))
    if all(kinds):
        return _plain(symbol, a.cast("bigint"), b.cast("bigint"))
    if kinds[0]:
        return _compared(_FLIPPED[symbol], right, left, b, a)
    if kinds[1]:
        return _float_with_int(symbol, a, b.cast("bigint"), right)
    if left.kind.name == "float":
        return _without_nan(symbol, a, b)
    return _plain(symbol, a, b)


def _plain(symbol: str, a: Column, b: Column) -> Column:
    return a == b if symbol == "==" else _ORDERS[symbol](a, b)


def _decimal(value: Value, column: Column) -> Column:
    digits = _digits(value)
    if value.kind.name == "decimal" or digits is None:
        return column
    return column.cast("bigint").cast(f"decimal({digits[0]},0)")


def _without_nan(symbol: str, a: Column, b: Column) -> Column:
    """Compare two doubles. For Spark NaN is equal to itself and greater than all others."""
    found = _plain(symbol, a, b)
    large = {"<": [b], "<=": [a, b], ">": [a], ">=": [a, b], "==": [a]}[symbol]
    for column in large:
        found = found & ~F.isnan(column)
    return found


def _float_with_int(symbol: str, a: Column, b: Column, right: Value) -> Column:
    """Compare a double with a bigint without rounding the latter."""
    if right.is_known and abs(right.known) <= _EXACT:
        number = F.lit(float(right.known))
        guarded = symbol in {">", ">="}
        return _plain(symbol, a, number) & ~F.isnan(a) if guarded else _plain(symbol, a, number)
    rounded = b.cast("double")
    # If both are the same double, that is an integer. 2**63 alone is not a bigint, though Spark
    # casts it to the largest one.
    whole = F.when(a < 2.0**63, a.try_cast("bigint"))
    exact = F.coalesce(_plain(symbol, whole, b), F.lit(symbol in {">", ">="}))
    if symbol == "==":
        return (a == rounded) & exact
    strict = {"<=": "<", ">=": ">"}.get(symbol, symbol)
    return ~F.isnan(a) & (_plain(strict, a, rounded) | ((a == rounded) & exact))


def is_none(value: Value) -> Value:
    """Return `value is None`."""
    if value.is_known:
        return constant(value.known is None)
    if value.kind.name == "none" or not value.kind.nullable:
        return _always(value.kind.name == "none", value)
    if value.raw is not None:
        return Value(BOOL, _null_test(value.raw, value.data_type), value.error)
    return computed(BOOL, lambda column: column.isNull(), value)


def _null_test(raw: Thunk, data_type: T.DataType | None) -> Thunk:
    """Return a test for null, which exists for every type."""
    if not isinstance(data_type, T.VariantType):
        return lambda: raw().isNull()
    return lambda: raw().isNull() | F.coalesce(F.is_variant_null(raw()), F.lit(False))


def identical(left: Value, right: Value) -> Value:
    """Return `left is right`, if that does not depend on how Python stores values."""
    for value, other in ((left, right), (right, left)):
        if other.is_known and other.known is None:
            return is_none(value)
        if other.is_known and isinstance(other.known, bool):
            if value.kind.name == "bool":
                return equal(value, other)
            if value.kind.name != "any":
                return _always(False, value)
    return uncompiled(BOOL, "'is' between values", left, right)


_MOST = 1000
_UNHASHABLE = frozenset({"list", "dict"})


def among(value: Value, parts: Sequence[Value], *, hashed: bool) -> Value:
    """Return whether a value is one of several.

    Args:
        value: The value to find.
        parts: The elements.
        hashed: Whether they are those of a set, or the keys of a dict.

    Raises:
        Fails: The value is a list or dict, and the container a set.
    """
    if hashed:
        _check_hashable(value)
    operands = [value, *parts]
    if all(operand.is_known for operand in operands):
        return constant(value.known in [part.known for part in parts])
    if len(parts) > _MOST:
        return uncompiled(BOOL, f"'in' more than {_MOST} values", *operands)
    if not all(_findable(value, part) for part in parts):
        return uncompiled(BOOL, "'in' values of unknown types", *operands)

    def make(looked_for: Column, *columns: Column) -> Column:
        found = [same(value, p, looked_for, c) for p, c in zip(parts, columns, strict=True)]
        texts = [part.known for part in parts if isinstance(part.known, str)]
        if value.kind.name == "str" and len(texts) == len(parts) > 1:
            return F.coalesce(looked_for.isin(texts), F.lit(False))
        return reduce(lambda one, other: one | other, found, F.lit(False))

    return computed(BOOL, make, *operands)


def _check_hashable(value: Value) -> None:
    if value.kind.name in _UNHASHABLE:
        raise Fails(f"TypeError: unhashable type: '{type_name(value.kind)}'")


def _findable(value: Value, part: Value) -> bool:
    if not comparable(value, part):
        return False
    # A NaN is in a list only if the list has this very object.
    floats = value.kind.name == part.kind.name == "float"
    return not floats or value.is_known or part.is_known


def contained(value: Value, container: Value) -> Value:
    """Return `value in container`.

    Raises:
        Fails: Such a container cannot hold values, or not this one.
    """
    known, name = container.known, container.kind.name
    if isinstance(known, (list, tuple, set, frozenset, dict)):
        parts = [constant(item) for item in known]
        return among(value, parts, hashed=not isinstance(known, (list, tuple)))
    if name == "dict":
        _check_hashable(value)
    item = container.kind.item
    element = Value(item) if item is not None else None
    make: Make | None = None
    if name == "str":
        make = lambda part, whole: F.contains(whole, part)  # noqa: E731
    elif element is not None and comparable(value, element):
        make = lambda looked_for, whole: F.exists(  # noqa: E731
            whole, lambda one: same(value, element, looked_for, one)
        )
    why = f"'in' a value of kind {container.kind.not_none()}"
    return lifted(lambda one, whole: one in whole, make, value, container, kind=BOOL, why=why)
