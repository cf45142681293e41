"""Operators, subscripts and attributes, by the kinds of what they are applied to."""

from __future__ import annotations

import ast
import datetime
import decimal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import simpleeval
from pyspark.sql import functions as F  # noqa: N812

from shared.maps.expressions import comparisons, dates, numbers, records, texts
from shared.maps.expressions.building import (
    Fails,
    constant,
    folded,
    joined,
    lifted,
    settled,
    type_name,
    uncompiled,
)
from shared.maps.expressions.kinds import ANY, NUMBERS, STR, Kind
from shared.maps.expressions.syntax import nearest
from shared.maps.expressions.values import Value

_SYMBOLS: Mapping[type[ast.AST], str] = {
    **{ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%"},
    **{ast.Pow: "**", ast.LShift: "<<", ast.RShift: ">>"},
    **{ast.BitOr: "|", ast.BitXor: "^", ast.BitAnd: "&"},
    **{ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"},
    **{ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="},
}
TYPES: Mapping[str, type] = {
    **{"bool": bool, "int": int, "float": float, "decimal": decimal.Decimal, "str": str},
    **{"list": list, "dict": dict, "date": datetime.date, "datetime": datetime.datetime},
    "timedelta": datetime.timedelta,
}
_ARITHMETIC = frozenset({"+", "-", "*", "/", "//", "%"})
_PLAIN_NUMBERS = NUMBERS - {"decimal"}
_MOST_BITS = 4096


def binary(op: ast.operator, left: Value, right: Value) -> Value:
    """Return `left op right`.

    Raises:
        Fails: Python raises for all operands of these kinds.
    """
    symbol, function = _SYMBOLS[type(op)], simpleeval.DEFAULT_OPERATORS[type(op)]
    numeric = {left.kind.name, right.kind.name} <= _PLAIN_NUMBERS
    if symbol not in _ARITHMETIC or not numeric:
        left, right = settled(left), settled(right)
    one, other = left.kind, right.kind
    if left.is_known and right.is_known and not _huge(symbol, left.known, right.known):
        return folded(function, left, right)
    if symbol == "%" and one.name == "str":
        return uncompiled(STR, "a format by '%'", left, right)
    if {one.name, other.name} <= NUMBERS:
        return numbers.arithmetic(symbol, function, left, right)
    if "str" in {one.name, other.name} and symbol in {"+", "*"}:
        make = F.concat if one.name == other.name and symbol == "+" else None
        kind = STR if symbol == "+" or "any" not in {one.name, other.name} else ANY
        return lifted(function, make, left, right, kind=kind, why=f"'{symbol}' of a text")
    if one.name in _DATES or other.name in _DATES:
        return dates.binary(symbol, function, left, right)
    why = f"'{symbol}' of {one} and {other}"
    made = _of_containers(symbol, one, other)
    return lifted(function, None, left, right, kind=made, why=why)


_DATES = frozenset({"date", "datetime", "timedelta"})


def _huge(symbol: str, one: Any, other: Any) -> bool:
    """Return whether the result, or the work for it, may be too large."""
    if symbol == "%":
        return isinstance(one, str)
    if not isinstance(one, int) or not isinstance(other, int):
        return False
    if symbol == "**":
        allowed = max(abs(one), abs(other)) <= numbers.MAX_POWER
        return allowed and one.bit_length() * abs(other) > _MOST_BITS
    return symbol == "<<" and other > _MOST_BITS


def _of_containers(symbol: str, one: Kind, other: Kind) -> Kind | None:
    """Return the kind of an operation on lists or dicts."""
    if one.name == other.name == "list":
        item = joined(one.item, other.item) if one.item and other.item else None
        return Kind("list", item=None if item and item.name == "any" else item)
    several = next((kind for kind in (one, other) if kind.name == "list"), None)
    if several is not None and symbol == "*" and "any" not in {one.name, other.name}:
        return Kind("list", item=several.item)
    return Kind("dict") if one.name == other.name == "dict" else None


def unary(op: ast.unaryop, value: Value) -> Value:
    """Return `-value`, `+value` or `~value`.

    Raises:
        Fails: Python lacks such an operation.
    """
    function: Callable[..., Any] = simpleeval.DEFAULT_OPERATORS[type(op)]
    if value.is_known:
        return folded(function, value)
    return numbers.unary(_SYMBOLS[type(op)], function, value)


def compared(op: ast.cmpop, left: Value, right: Value) -> Value:
    """Return a comparison, other than `in`.

    Raises:
        Fails: Python cannot order such values.
    """
    if isinstance(op, (ast.Is, ast.IsNot)):
        found = comparisons.identical(left, right)
        return _not(found) if isinstance(op, ast.IsNot) else found
    if left.is_known and right.is_known:
        return folded(simpleeval.DEFAULT_OPERATORS[type(op)], left, right)
    if isinstance(op, (ast.Eq, ast.NotEq)):
        found = comparisons.equal(left, right)
        return _not(found) if isinstance(op, ast.NotEq) else found
    return comparisons.ordered(_SYMBOLS[type(op)], left, right)


def _not(value: Value) -> Value:
    from shared.maps.expressions.truth import negated  # noqa: PLC0415

    return negated(value)


def item(container: Value, key: Value) -> Value:
    """Return `container[key]`.

    Raises:
        Fails: It never has that.
    """
    if container.is_known and key.is_known:
        return _known_item(container.known, key.known)
    container, key = settled(container), settled(key)
    name = container.kind.name
    if name == "str":
        return texts.index(container, key)
    if name == "any" or (key.kind.name == "any" and name in {"list", "dict"}):
        return uncompiled(ANY, "a part of a value, or a key, of unknown type", container, key)
    if name == "list":
        return records.item(container, key)
    if name != "dict":
        raise Fails(f"TypeError: '{type_name(container.kind)}' object is not subscriptable")
    if isinstance(key.known, str) and not container.is_known:
        return entry(container, key.known)
    return uncompiled(ANY, "a key that is not known", container, key)


def entry(container: Value, key: str) -> Value:
    """Return the value of a key in a dict.

    Raises:
        Fails: It never has this key.
    """
    try:
        return records.field(container, key)
    except Fails as fails:
        names = [name for name, _ in container.kind.fields]
        raise Fails(f"{fails.text}{nearest(key, names)}") from None


def _known_item(container: Any, key: Any) -> Value:
    try:
        return constant(container[key])
    except Exception as error:
        names = list(container) if isinstance(container, dict) else []
        near = (
            nearest(key, [n for n in names if isinstance(n, str)]) if isinstance(key, str) else ""
        )
        raise Fails(f"{type(error).__name__}: {error}{near}") from None


def sliced(container: Value, ends: Sequence[Value | None]) -> Value:
    """Return `container[lower:upper:step]`.

    Raises:
        Fails: It cannot be sliced.
    """
    container = settled(container)
    bounds = [constant(None) if end is None else settled(end) for end in ends]
    operands = [container, *bounds]
    if all(operand.is_known for operand in operands):
        return folded(lambda whole, *known: whole[slice(*known)], *operands)
    name = container.kind.name
    if name == "str":
        return texts.sliced(container, bounds)
    if name not in {"list", "any"}:
        raise Fails(f"TypeError: '{type_name(container.kind)}' object cannot be sliced")
    return uncompiled(container.kind.not_none(), "a slice of a list", *operands)


def attribute(value: Value, name: str) -> Value:
    """Return `value.name`, which for a dict is also a key.

    Raises:
        Fails: The attribute does not exist, or is a method that is not called.
    """
    value = settled(value)
    kind = value.kind
    if kind.name == "any":
        return uncompiled(ANY, "an attribute of a value of unknown type", value)
    if kind.name == "none":
        raise Fails(f"AttributeError: 'NoneType' object has no attribute '{name}'")
    if (kind.name, name) in dates.ATTRIBUTES:
        return dates.attribute(value, name)
    if hasattr(TYPES[kind.name], name):
        if callable(getattr(TYPES[kind.name], name)):
            raise Fails(f"'{name}' is a method of {type_name(kind)}: call it")
        return uncompiled(ANY, f"the attribute '{name}'", value)
    if kind.name == "dict":
        return item(value, constant(name))
    raise no_attribute(kind, name)


def no_attribute(kind: Kind, name: str) -> Fails:
    """Return the error for values of a kind that do not have an attribute."""
    public = [known for known in dir(TYPES[kind.name]) if not known.startswith("_")]
    near = nearest(name, public)
    return Fails(f"AttributeError: '{type_name(kind)}' object has no attribute '{name}'{near}")
