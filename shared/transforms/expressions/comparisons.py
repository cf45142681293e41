"""Comparisons as Python makes them: exact between integers and floats, false of NaN."""

from __future__ import annotations

import operator as python
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from shared.transforms.expressions.building import (
    Check,
    Fails,
    computed,
    constant,
    not_none,
    type_name,
    uncompiled,
)
from shared.transforms.expressions.kinds import BOOL, NONE, NUMBERS, Kind
from shared.transforms.expressions.values import Value

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    from shared.transforms.expressions.values import Thunk

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
    """Give `left == right`: false between values of different types."""
    names = {left.kind.name, right.kind.name}
    if "none" in names:
        return _of_none(left, right)
    empty = _empty(left, right) or _empty(right, left)
    if empty is not None:
        return empty
    if "any" in names:
        return uncompiled(BOOL, "a comparison with a value of unknown type", left, right)
    if not comparable(left, right):
        return uncompiled(BOOL, f"a comparison of type {left.kind.name}", left, right)
    return computed(BOOL, lambda a, b: same(left, right, a, b), left, right)


def same(left: Value, right: Value, a: Column, b: Column) -> Column:
    """Give whether two columns of comparable values are equal, never null."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

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
    """Give what is the same for every record, unless an operand is an error."""
    if all(operand.error is None and operand.column is not None for operand in operands):
        return constant(result)

    def make(*_: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        return F.lit(result)

    return computed(BOOL, make, *operands)


def _empty(value: Value, other: Value) -> Value | None:
    """Give the comparison of a list or dict with an empty one."""
    if not other.is_known or other.known not in ([], {}) or value.is_known:
        return None
    name = "list" if isinstance(other.known, list) else "dict"
    if value.kind.name != name:
        return None
    if value.kind.fields:
        return _always(False, value)

    def make(column: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        return F.coalesce(F.size(column) == 0, F.lit(False))

    return computed(BOOL, make, value)


def comparable(left: Value, right: Value) -> bool:
    """Whether this module compares such values as Python does; `same` then takes them."""
    names = {left.kind.name, right.kind.name}
    if "any" in names:
        return False
    if names <= NUMBERS:
        return "decimal" not in names or _decimals_fit(left, right)
    return len(names) > 1 or names <= _ONE_TYPE


def _decimals_fit(left: Value, right: Value) -> bool:
    """Whether no digit is lost in the type that both of these numbers have in common."""
    digits = [_digits(value) for value in (left, right)]
    if None in digits:
        return False
    known = [pair for pair in digits if pair is not None]
    return max(before for before, _ in known) + max(after for _, after in known) <= _MOST_DIGITS


_MOST_DIGITS = 38
_LONG_DIGITS = 20


def _digits(value: Value) -> tuple[int, int] | None:
    """Give how many digits a number has before and after the point; None where any."""
    from pyspark.sql import types as T  # noqa: N812, PLC0415

    if isinstance(value.data_type, T.DecimalType):
        return value.data_type.precision - value.data_type.scale, value.data_type.scale
    if value.kind.name in _LONGS:
        return (len(str(abs(value.known))), 0) if value.is_known else (_LONG_DIGITS, 0)
    return None


def ordered(symbol: str, left: Value, right: Value) -> Value:
    """Give `left symbol right` for `<`, `<=`, `>` and `>=`.

    Raises:
        Fails: Python has no order between such values.
    """
    names = {left.kind.name, right.kind.name}
    if "any" in names and "none" not in names and "dict" not in names:
        return uncompiled(BOOL, "a comparison with a value of unknown type", left, right)
    alike = names <= NUMBERS or (len(names) == 1 and not names & {"none", "dict"})
    if not alike:
        raise Fails(_unordered(symbol, left.kind, right.kind))
    if not comparable(left, right):
        return uncompiled(BOOL, f"a comparison of type {left.kind.name}", left, right)
    checks: list[Check] = []
    if left.kind.nullable and right.kind.nullable:
        both: Check = (lambda a, b: a.isNull() & b.isNull(), _unordered(symbol, NONE, NONE))
        checks.append(both)
    checks += not_none(_unordered(symbol, NONE, right.kind), left)
    if right.kind.nullable:
        checks.append((lambda *ab: ab[1].isNull(), _unordered(symbol, left.kind, NONE)))
    return computed(
        BOOL, lambda a, b: _compared(symbol, left, right, a, b), left, right, checks=checks
    )


def _unordered(symbol: str, left: Kind, right: Kind) -> str:
    names = f"'{type_name(left)}' and '{type_name(right)}'"
    return f"TypeError: '{symbol}' not supported between instances of {names}"


def _compared(symbol: str, left: Value, right: Value, a: Column, b: Column) -> Column:
    """Compare two columns; null where one of them is."""
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
    """Compare two double. For Spark NaN is equal to itself and above all else."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    found = _plain(symbol, a, b)
    large = {"<": [b], "<=": [a, b], ">": [a], ">=": [a, b], "==": [a]}[symbol]
    for column in large:
        found = found & ~F.isnan(column)
    return found


def _float_with_int(symbol: str, a: Column, b: Column, right: Value) -> Column:
    """Compare a double with a bigint without rounding the latter."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    if right.is_known and abs(right.known) <= _EXACT:
        number = F.lit(float(right.known))
        guarded = symbol in {">", ">="}
        return _plain(symbol, a, number) & ~F.isnan(a) if guarded else _plain(symbol, a, number)
    rounded = b.cast("double")
    # Where both are the same double, that is an integer. 2**63 alone is no bigint, though Spark
    # casts it to the largest one.
    whole = F.when(a < 2.0**63, a.try_cast("bigint"))
    exact = F.coalesce(_plain(symbol, whole, b), F.lit(symbol in {">", ">="}))
    if symbol == "==":
        return (a == rounded) & exact
    strict = {"<=": "<", ">=": ">"}.get(symbol, symbol)
    return ~F.isnan(a) & (_plain(strict, a, rounded) | ((a == rounded) & exact))


def is_none(value: Value) -> Value:
    """Give `value is None`."""
    if value.is_known:
        return constant(value.known is None)
    if value.kind.name == "none" or not value.kind.nullable:
        return _always(value.kind.name == "none", value)
    if value.raw is not None:
        return Value(BOOL, _null_test(value.raw, value.data_type), value.error)
    return computed(BOOL, lambda column: column.isNull(), value)


def _null_test(raw: Thunk, data_type: DataType | None) -> Thunk:
    """Whether there is a value can be told of every type."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415
    from pyspark.sql import types as T  # noqa: N812, PLC0415

    if not isinstance(data_type, T.VariantType):
        return lambda: raw().isNull()
    return lambda: raw().isNull() | F.coalesce(F.is_variant_null(raw()), F.lit(False))


def identical(left: Value, right: Value) -> Value:
    """Give `left is right`, where that does not depend on how Python stores values."""
    for value, other in ((left, right), (right, left)):
        if other.is_known and other.known is None:
            return is_none(value)
        if other.is_known and isinstance(other.known, bool):
            if value.kind.name == "bool":
                return equal(value, other)
            if value.kind.name != "any":
                return _always(False, value)
    return uncompiled(BOOL, "'is' between values", left, right)
