"""Operators, subscripts and attributes, by the kinds of what they are applied to."""

from __future__ import annotations

import ast
import datetime
import decimal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import simpleeval

from shared.transforms.expressions import (
    comparisons,
    dates,
    members,
    numbers,
    records,
    texts,
)
from shared.transforms.expressions.building import (
    Fails,
    constant,
    joined,
    operand_text,
    settled,
    type_name,
    uncompiled,
)
from shared.transforms.expressions.kinds import ANY, NUMBERS, STR, Kind
from shared.transforms.expressions.syntax import nearest
from shared.transforms.expressions.values import Value

_SYMBOLS: Mapping[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.BitAnd: "&",
    ast.USub: "-",
    ast.UAdd: "+",
    ast.Invert: "~",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
TYPES: Mapping[str, type] = {
    "bool": bool,
    "int": int,
    "float": float,
    "decimal": decimal.Decimal,
    "str": str,
    "list": list,
    "dict": dict,
    "date": datetime.date,
    "datetime": datetime.datetime,
    "timedelta": datetime.timedelta,
}
_DATES = frozenset({"date", "datetime", "timedelta"})
_ARITHMETIC = frozenset({"+", "-", "*", "/", "//", "%"})
_PLAIN_NUMBERS = NUMBERS - {"decimal"}
_INTEGERS = frozenset({"int", "bool"})
_MOST_BITS = 4096


def folded(make: Callable[..., Any], *operands: Value) -> Value:
    """Compute at once what is the same for every record.

    Raises:
        Fails: Python raises for these operands.
    """
    try:
        result = make(*(operand.known for operand in operands))
    except Exception as error:
        raise Fails(f"{type(error).__name__}: {error}") from None
    moment = isinstance(result, (datetime.date, datetime.timedelta))
    return dates.known(result) if moment else constant(result)


def binary(op: ast.operator, left: Value, right: Value) -> Value:
    """Give `left op right`.

    Raises:
        Fails: Python raises for all operands of these kinds.
    """
    symbol = _SYMBOLS[type(op)]
    if symbol not in _ARITHMETIC or not {left.kind.name, right.kind.name} <= _PLAIN_NUMBERS:
        left, right = settled(left), settled(right)
    one, other = left.kind, right.kind
    names = (one.name, other.name)
    if left.is_known and right.is_known and not _huge(symbol, left.known, right.known):
        return folded(simpleeval.DEFAULT_OPERATORS[type(op)], left, right)
    if symbol == "%" and one.name == "str":
        return uncompiled(STR, "a format by '%'", left, right)
    if "none" in names:
        raise Fails(operand_text(symbol, one, other))
    if "any" in names:
        kind = STR if symbol == "+" and "str" in names else ANY
        return uncompiled(kind, f"'{symbol}' of a value of unknown type", left, right)
    if names[0] in NUMBERS and names[1] in NUMBERS:
        return numbers.arithmetic(symbol, left, right)
    made = _of_others(symbol, left, right)
    if made is None:
        raise Fails(operand_text(symbol, one, other))
    return made


def _huge(symbol: str, one: Any, other: Any) -> bool:
    """Whether the result, or the work for it, may be out of proportion."""
    if symbol == "%":
        return isinstance(one, str)
    if not isinstance(one, int) or not isinstance(other, int):
        return False
    if symbol == "**":
        allowed = max(abs(one), abs(other)) <= numbers.MAX_POWER
        return allowed and one.bit_length() * abs(other) > _MOST_BITS
    return symbol == "<<" and other > _MOST_BITS


def _of_others(symbol: str, left: Value, right: Value) -> Value | None:
    """Give the result for operands that are not both numbers; None where they have none."""
    one, other = left.kind.name, right.kind.name
    if _DATES & {one, other}:
        return _of_dates(symbol, left, right)
    if symbol == "*" and {one, other} & _INTEGERS:
        return _repeated(left, right, left if other in _INTEGERS else right)
    if one != other:
        return None
    if (symbol, one) == ("+", "str"):
        return texts.add(left, right)
    if (symbol, one) == ("+", "list"):
        kind = Kind("list", item=_item(left.kind, right.kind))
        return uncompiled(kind, "a concatenation of lists", left, right)
    unites = (symbol, one) == ("|", "dict")
    return uncompiled(Kind("dict"), "a union of dicts", left, right) if unites else None


def _repeated(left: Value, right: Value, several: Value) -> Value | None:
    if several.kind.name == "str":
        return texts.times(left, right)
    kind = Kind("list", item=several.kind.item)
    repeats = several.kind.name == "list"
    return uncompiled(kind, "a list repeated", left, right) if repeats else None


def _item(one: Kind, other: Kind) -> Kind | None:
    if one.item is None or other.item is None:
        return None
    item = joined(one.item, other.item)
    return None if item.name == "any" else item


def _of_dates(symbol: str, left: Value, right: Value) -> Value | None:
    if symbol in {"+", "-"}:
        return dates.binary(symbol, left, right)
    if "timedelta" in {left.kind.name, right.kind.name} and symbol in {"*", "/", "//", "%"}:
        return uncompiled(ANY, "arithmetic of dates and times", left, right)
    return None


def unary(op: ast.unaryop, value: Value) -> Value:
    """Give `-value`, `+value` or `~value`.

    Raises:
        Fails: There is no such operation.
    """
    if value.is_known:
        return folded(simpleeval.DEFAULT_OPERATORS[type(op)], value)
    return numbers.unary(_SYMBOLS[type(op)], value)


def compared(op: ast.cmpop, left: Value, right: Value) -> Value:
    """Give a comparison, other than `in`.

    Raises:
        Fails: Python raises for all operands of these kinds.
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


def contained(value: Value, container: Value) -> Value:
    """Give `value in container`.

    Raises:
        Fails: Nothing is in such a container, or no such value.
    """
    if value.is_known and container.is_known:
        return folded(lambda one, whole: one in whole, value, container)
    if container.kind.name == "str":
        return texts.contains(value, container)
    return members.contained(value, container)


def _not(value: Value) -> Value:
    from shared.transforms.expressions.truth import negated  # noqa: PLC0415

    return negated(value)


def item(container: Value, key: Value) -> Value:
    """Give `container[key]`.

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
    """Give the value that a dict has under a key.

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
    """Give `container[lower:upper:step]`.

    Raises:
        Fails: It cannot be sliced.
    """
    container, ends = settled(container), [end and settled(end) for end in ends]
    operands = [container, *(end for end in ends if end is not None)]
    if all(operand.is_known for operand in operands):
        known = [None if end is None else end.known for end in ends]
        return folded(lambda *_: container.known[slice(*known)], *operands)
    name = container.kind.name
    if name == "str":
        return texts.sliced(container, *ends)
    if name not in {"list", "any"}:
        raise Fails(f"TypeError: '{type_name(container.kind)}' object cannot be sliced")
    return uncompiled(container.kind.not_none(), "a slice of a list", *operands)


def attribute(value: Value, name: str) -> Value:
    """Give `value.name`, which of a dict is also a key.

    Raises:
        Fails: There is no such attribute, or it is a method that is not called.
    """
    value = settled(value)
    kind = value.kind
    if kind.name == "any":
        return uncompiled(ANY, "an attribute of a value of unknown type", value)
    if kind.name == "none":
        raise Fails(f"AttributeError: 'NoneType' object has no attribute '{name}'")
    if (kind.name, name) in dates.ATTRIBUTES:
        return dates.ATTRIBUTES[kind.name, name](value)
    if hasattr(TYPES[kind.name], name):
        if callable(getattr(TYPES[kind.name], name)):
            raise Fails(f"'{name}' is a method of {type_name(kind)}: call it")
        return uncompiled(ANY, f"the attribute '{name}'", value)
    if kind.name == "dict":
        return item(value, constant(name))
    raise no_attribute(kind, name)


def no_attribute(kind: Kind, name: str) -> Fails:
    """Say that values of a kind do not have an attribute."""
    public = [known for known in dir(TYPES[kind.name]) if not known.startswith("_")]
    near = nearest(name, public)
    return Fails(f"AttributeError: '{type_name(kind)}' object has no attribute '{name}'{near}")
