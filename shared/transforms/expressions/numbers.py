"""Arithmetic as Python does it, of bigint and double columns.

What of it Python does with more than 64 bits is an error of the record; what Spark would round
otherwise is not compiled.
"""

from __future__ import annotations

import operator as python
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shared.transforms.expressions.building import (
    INT_MIN,
    Check,
    Fails,
    Make,
    computed,
    literal,
    not_none,
    operand_checks,
    operand_text,
    settled,
    type_name,
    uncompiled,
)
from shared.transforms.expressions.divisions import (
    floor_quotient,
    floored,
    modulo,
    remainder,
    true_quotient,
)
from shared.transforms.expressions.kinds import ANY, BOOL, DECIMAL, FLOAT, INT, NONE, Kind
from shared.transforms.expressions.values import Value

if TYPE_CHECKING:
    from pyspark.sql import Column

MAX_POWER = 4_000_000
"""Of a base or an exponent: what simpleeval allows."""
EXACT = 2**53
"""Up to here every integer is a double."""

_LARGEST_POWER = 4
_OVERFLOW = "OverflowError: an integer of more than 64 bits"
_BITS = frozenset({"&", "|", "^", "<<", ">>"})
_SYMBOLS = {"**": "** or pow()"}


def arithmetic(symbol: str, left: Value, right: Value) -> Value:
    """Give `left symbol right` of two numbers.

    Raises:
        Fails: No such numbers can be operands of it.
    """
    names = {left.kind.name, right.kind.name}
    if "decimal" in names:
        return _decimals(symbol, left, right)
    if "float" in names:
        return _floats(symbol, left, right)
    return _integers(symbol, left, right)


def _refused(symbol: str, left: Value, right: Value) -> Fails:
    return Fails(operand_text(_SYMBOLS.get(symbol, symbol), left.kind, right.kind))


def _decimals(symbol: str, left: Value, right: Value) -> Value:
    if symbol in _BITS or "float" in {left.kind.name, right.kind.name}:
        raise _refused(symbol, left, right)
    return uncompiled(DECIMAL, "arithmetic of decimals", left, right)


def _integers(symbol: str, left: Value, right: Value) -> Value:
    if symbol in _SPECIAL:
        return _SPECIAL[symbol](symbol, left, right)
    checks = operand_checks(symbol, left, right)
    if symbol in {"+", "-", "*"}:
        make = _of_longs(_wide(symbol))
        checks.append((lambda a, b: make(a, b).isNull(), _OVERFLOW))
        return computed(INT, make, left, right, checks=checks)
    checks += _no_zero(right, "division by zero")
    if symbol == "/":
        return computed(FLOAT, _of_longs(true_quotient), left, right, checks=checks)
    if symbol == "%":
        return computed(INT, _of_longs(remainder), left, right, checks=checks)
    if not right.is_known or right.known == -1:
        checks.append((lambda a, b: (_long(a) == literal(INT_MIN)) & (_long(b) == -1), _OVERFLOW))
    return computed(INT, _of_longs(floor_quotient), left, right, checks=checks)


def _shift(symbol: str, left: Value, right: Value) -> Value:
    return uncompiled(INT, f"a shift of bits ({symbol})", left, right)


def _no_zero(right: Value, said: str) -> list[Check]:
    if right.is_known and right.known:
        return []
    if right.is_known:
        raise Fails(f"ZeroDivisionError: {said}")
    return [(lambda a, b: b.cast("double") == 0.0, f"ZeroDivisionError: {said}")]  # noqa: ARG005


def _long(column: Column) -> Column:
    return column.cast("bigint")


def _double(column: Column) -> Column:
    return column.cast("double")


def _of_longs(make: Make) -> Make:
    return lambda a, b: make(_long(a), _long(b))


def _of_doubles(make: Make) -> Make:
    return lambda a, b: make(_double(a), _double(b))


def _wide(symbol: str) -> Make:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return {"+": F.try_add, "-": F.try_subtract, "*": F.try_multiply}[symbol]


def _bits(symbol: str, left: Value, right: Value) -> Value:
    logical = left.kind.name == right.kind.name == "bool"
    kind = BOOL if logical else INT

    def make(a: Column, b: Column) -> Column:
        a, b = _long(a), _long(b)
        both = {"&": a.bitwiseAND, "|": a.bitwiseOR, "^": a.bitwiseXOR}[symbol](b)
        return both != 0 if logical else both

    return computed(kind, make, left, right, checks=operand_checks(symbol, left, right))


def _power(symbol: str, left: Value, right: Value) -> Value:
    exponent = right.known
    if not right.is_known or not isinstance(exponent, int):
        return uncompiled(ANY, "a power whose exponent is not known", left, right)
    if exponent < 0:
        return uncompiled(FLOAT, "a negative power", left, right)
    if exponent > _LARGEST_POWER:
        return uncompiled(INT, f"a power above {_LARGEST_POWER}", left, right)

    def make(a: Column, _: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        power = literal(1)
        for _times in range(exponent):
            power = F.try_multiply(power, _long(a))
        return power

    def large(a: Column, _: Column) -> Column:
        return ~_long(a).between(-MAX_POWER, MAX_POWER)

    checks = operand_checks(_SYMBOLS[symbol], left, right)
    checks.append((large, f"NumberTooHigh: the base of a power is above {MAX_POWER}"))
    checks.append((lambda a, b: make(a, b).isNull(), _OVERFLOW))
    return computed(INT, make, left, right, checks=checks)


_SPECIAL: Mapping[str, Callable[[str, Value, Value], Value]] = {
    "**": _power,
    **dict.fromkeys(("<<", ">>"), _shift),
    **dict.fromkeys(("&", "|", "^"), _bits),
}


def _floats(symbol: str, left: Value, right: Value) -> Value:
    if symbol in _BITS:
        raise _refused(symbol, left, right)
    if symbol == "**":
        return uncompiled(FLOAT, "a power of floats", left, right)
    checks = operand_checks(symbol, left, right)
    if symbol in {"/", "//", "%"}:
        checks += _no_zero(right, "float division by zero")
    value = computed(FLOAT, _of_doubles(_FLOATS[symbol]), left, right, checks=checks)
    return _mixed(symbol, left, right, value)


def _divided(a: Column, b: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.try_divide(a, b)


_FLOATS: Mapping[str, Make] = {
    "+": python.add,
    "-": python.sub,
    "*": python.mul,
    "/": _divided,
    "//": floored,
    "%": modulo,
}


def _mixed(symbol: str, left: Value, right: Value, value: Value) -> Value:
    """Take care of operands that may be integers: then Python does it with integers."""
    sizes = [_size(operand) for operand in (left, right)]
    if not any(operand.mixed for operand in (left, right)) or 0 in sizes:
        return value
    one, other = sizes
    size = EXACT + 1
    if one is not None and other is not None:
        size = one * other if symbol == "*" else one + other
    mixed = 0 if symbol == "/" else max(size, 1)
    if size > EXACT or value.column is None:
        left_out = uncompiled(FLOAT, "arithmetic of a value that is an int or a float", left, right)
        return replace(left_out, mixed=-min(mixed, 1))
    return replace(value, mixed=mixed)


def _size(operand: Value) -> int | None:
    """Give how large an integer it may be: 0 if it is none, None if any."""
    if operand.mixed:
        return operand.mixed if operand.mixed > 0 else None
    if operand.kind.name == "float":
        return 0
    return max(abs(operand.known), 1) if operand.is_known and operand.known is not None else None


def unary(symbol: str, value: Value) -> Value:
    """Give `-value`, `+value` or `~value`.

    Raises:
        Fails: It is no number that this can be done with.
    """
    value = settled(value) if symbol == "~" else value
    name = value.kind.name
    said = f"TypeError: bad operand type for unary {symbol}: "
    if name == "any":
        return uncompiled(ANY, "a number of unknown type", value)
    if name == "timedelta" and symbol != "~":
        return uncompiled(value.kind.not_none(), "arithmetic of dates and times", value)
    if name not in _UNARY[symbol]:
        raise Fails(f"{said}'{type_name(value.kind)}'")
    checks = not_none(f"{said}'{type_name(NONE)}'", value)
    if name == "decimal":
        return uncompiled(DECIMAL, "arithmetic of decimals", value)
    kind = FLOAT if name == "float" else INT
    if symbol == "-" and kind is INT:
        checks.append((lambda a: _long(a) == literal(INT_MIN), _OVERFLOW))
    return replace(computed(kind, _unary(symbol, kind), value, checks=checks), mixed=value.mixed)


_UNARY: Mapping[str, Sequence[str]] = {
    "-": ("bool", "int", "float", "decimal"),
    "+": ("bool", "int", "float", "decimal"),
    "~": ("bool", "int"),
}


def _unary(symbol: str, kind: Kind) -> Callable[[Any], Column]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    cast = _long if kind is INT else _double
    if symbol == "+":
        return cast
    if symbol == "~":
        return lambda a: F.bitwise_not(_long(a))
    if kind is INT:
        return lambda a: F.try_subtract(literal(0), _long(a))
    return lambda a: F.negate(_double(a))
