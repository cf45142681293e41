"""Arithmetic as Python does it, of bigint and double columns.

What of it Python does with more than 64 bits is an error of the record; what Spark would round
otherwise, and what few maps have (powers, bits), is not compiled. What Python
refuses for all values of such kinds raises `Fails`.
"""

from __future__ import annotations

import operator as python
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import Column

from shared.maps.expressions.value_kinds import ANY, FLOAT
from shared.maps.expressions.values import (
    INT_MIN,
    Check,
    F,
    Make,
    Rule,
    Value,
    lifted,
    literal,
    over_arrow,
    settled,
    uncompiled,
)

EXACT = 2**53
"""Up to here every integer is a double."""
OVERFLOW = "OverflowError: an integer of more than 64 bits"

_DIGITS = 18
_GROUPS = 4


def arithmetic(symbol: str, function: Callable[..., Any], left: Value, right: Value) -> Value:
    """Return `left symbol right` of two numbers.

    Args:
        symbol: The operator.
        function: The operator in Python.
        left: A number.
        right: A number.
    """
    if left.mixed or right.mixed:
        return _mixed(symbol, function, left, right)
    names = {left.kind.name, right.kind.name}
    floats = "float" in names
    make = None if "decimal" in names else (_FLOATS if floats else _INTEGERS).get(symbol)
    checks: list[Check] = []
    if symbol in {"/", "//", "%"} and not right.is_constant:
        zero = "float division by zero" if floats else "division by zero"
        checks.append((lambda _, b: b.cast("double") == 0.0, f"ZeroDivisionError: {zero}"))
    if make is not None and not floats and symbol in {"+", "-", "*", "//"}:
        checks.append((lambda a, b: make(a, b).isNull(), OVERFLOW))
    # The exponent decides whether a power of integers is one.
    open_power = symbol == "**" and "decimal" not in names and (floats or not right.is_constant)
    kind = (FLOAT if floats else ANY) if open_power else None
    why = f"arithmetic ({symbol}) of {left.kind.not_none()} and {right.kind.not_none()}"
    rule = None if make is None else Rule(make, checks)
    return lifted(function, rule, left, right, kind=kind, why=why)


def _mixed(symbol: str, function: Callable[..., Any], left: Value, right: Value) -> Value:
    """Compute with values that may be small integers instead of floats, if that is exact."""
    sizes = [_size(value) for value in (left, right)]
    bound = sizes[0] * sizes[1] if symbol == "*" else sum(sizes)
    if symbol in {"+", "-", "*", "/"} and bound <= EXACT:
        plain = [replace(value, mixed=0) for value in (left, right)]
        whole = symbol != "/" and all(sizes)
        return replace(arithmetic(symbol, function, *plain), mixed=max(bound, 1) if whole else 0)
    by_evaluator = uncompiled(FLOAT, "arithmetic of a value that is an int or a float", left, right)
    return replace(by_evaluator, mixed=-1)


def _size(value: Value) -> int:
    """Return the greatest integer it may be: 0 for a float, more than `EXACT` for any integer."""
    if value.mixed > 0:
        return value.mixed
    if value.kind.name == "float" and not value.mixed:
        return 0
    return max(abs(value.constant), 1) if isinstance(value.constant, int) else EXACT + 1


def _cast(data_type: str, make: Make) -> Make:
    return lambda *columns: make(*(column.cast(data_type) for column in columns))


def _true_quotient(a: Column, b: Column) -> Column:
    """Return a / b of two bigint as the nearest double.

    It divides doubles if both numbers are exact in one; else it does a long division.
    """
    small = a.between(-EXACT, EXACT) & b.between(-EXACT, EXACT)
    divided = F.try_divide(a.cast("double"), b.cast("double"))
    if functions := over_arrow():
        exact, _ = functions.each(python.truediv, FLOAT, a, b)
        return F.when(small, divided).otherwise(exact)
    by_one = F.when(b == 1, a.cast("double")).when(b == -1, F.negate(a.cast("double")))
    return F.when(small, divided).otherwise(F.coalesce(by_one, _long_division(a, b)))


def _long_division(a: Column, b: Column) -> Column:
    """Return the quotient by its decimal digits, and one more that is not 0 if digits follow.

    A double, and a number half way between two, has at most 72 of them after the point here.
    """

    def digits(dividend: Column, by: Column) -> Column:
        return F.call_function("div", dividend, by).cast("string")

    wide = "decimal(20,0)"
    # 1 is not a divisor here: the quotient would not always be a bigint.
    divisor = F.nullif(F.nullif(F.abs(b.cast(wide)), F.lit(0).cast(wide)), F.lit(1).cast(wide))
    dividend = F.abs(a.cast(wide))
    parts = [F.when((a < 0) != (b < 0), "-").otherwise(""), digits(dividend, divisor), F.lit(".")]
    rest = dividend % divisor
    for _ in range(_GROUPS):
        shifted = rest.cast(wide) * F.lit(10**_DIGITS).cast("decimal(19,0)")
        parts.append(F.lpad(digits(shifted, divisor), _DIGITS, "0"))
        rest = shifted % divisor
    parts.append(F.when(rest != 0, "1").otherwise("0"))
    return F.concat(*parts).cast("double")


def _remainder(a: Column, b: Column) -> Column:
    rest = a % F.nullif(b, literal(0))
    return F.when(_off(rest, b), rest + b).otherwise(rest)


def _floor_quotient(a: Column, b: Column) -> Column:
    """Return a // b of two bigint; null if it has more bits, or b is 0."""
    outside = (b == 0) | ((a == literal(INT_MIN)) & (b == -1))
    divisor = F.when(~outside, b)
    quotient = F.call_function("div", a, divisor)
    return F.when(_off(a % divisor, b), quotient - 1).otherwise(quotient)


def _off(rest: Column, b: Column) -> Column:
    """Return whether a remainder has the sign of the dividend, but Python's has the divisor's."""
    return (rest != 0) & ((rest < 0) != (b < 0))


_INTEGERS: Mapping[str, Make] = {
    "+": _cast("bigint", F.try_add),
    "-": _cast("bigint", F.try_subtract),
    "*": _cast("bigint", F.try_multiply),
    "/": _cast("bigint", _true_quotient),
    "//": _cast("bigint", _floor_quotient),
    "%": _cast("bigint", _remainder),
}
_FLOATS: Mapping[str, Make] = {
    "+": _cast("double", python.add),
    "-": _cast("double", python.sub),
    "*": _cast("double", python.mul),
    "/": _cast("double", F.try_divide),
}
_UNARY: Mapping[str, Mapping[str, Rule]] = {
    "bigint": {
        "+": Rule(_cast("bigint", lambda a: a)),
        "-": Rule(
            _cast("bigint", lambda a: F.try_subtract(literal(0), a)),
            [(lambda a: a.cast("bigint") == literal(INT_MIN), OVERFLOW)],
        ),
    },
    "double": {"+": Rule(_cast("double", lambda a: a)), "-": Rule(_cast("double", F.negate))},
}
_TYPES = {"bool": "bigint", "int": "bigint", "float": "double"}


def unary(symbol: str, function: Callable[..., Any], value: Value) -> Value:
    """Return `-value`, `+value` or `~value`; raise as `arithmetic` does."""
    mixed = 0 if symbol == "~" else value.mixed
    plain = settled(value) if symbol == "~" else replace(value, mixed=0)
    rule = _UNARY.get(_TYPES.get(plain.kind.name, ""), {}).get(symbol)
    why = f"'{symbol}' of {plain.kind.not_none()}"
    return replace(lifted(function, rule, plain, why=why), mixed=mixed)
