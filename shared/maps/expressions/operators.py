"""Operators, conditions, subscripts and attributes, by the kinds of what they are applied to.

Comparisons are exact between integers and floats, and false of NaN, as in Python. What
Python refuses for all values of such kinds raises `Fails`.
"""

from __future__ import annotations

import ast
import datetime
import operator as python
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

from pyspark.sql import Column

from shared.formats.spark_types import T
from shared.maps.expressions import records, sandbox, scalars
from shared.maps.expressions.records import NEVER_EMPTY, as_read
from shared.maps.expressions.sandbox import Meter
from shared.maps.expressions.scalars import EXACT
from shared.maps.expressions.syntax import nearest
from shared.maps.expressions.value_kinds import (
    ANY,
    BOOL,
    FLOAT,
    NUMBERS,
    PYTHON,
    STR,
    Kind,
    data_type_of,
    joined,
)
from shared.maps.expressions.values import (
    F,
    Fails,
    Rule,
    Thunk,
    Value,
    computed,
    constant,
    first_error,
    folded,
    lifted,
    settled,
    uncompiled,
)
from shared.spark.session import try_cast

_SYMBOLS: Mapping[type[ast.AST], str] = {
    **{ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%"},
    **{ast.Pow: "**", ast.LShift: "<<", ast.RShift: ">>"},
    **{ast.BitOr: "|", ast.BitXor: "^", ast.BitAnd: "&"},
    **{ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"},
    **{ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="},
}


def type_of(kind: Kind) -> type:
    """Return the class of values of a kind."""
    return PYTHON.get(kind.name, type(None))


def type_name(kind: Kind) -> str:
    """Return the name that Python's errors use for a kind."""
    name = PYTHON.get(kind.name)
    if name is None or name.__module__ == "builtins":
        return kind.name if name is None else name.__name__
    return f"{name.__module__}.{name.__name__}"


def _python(op: ast.AST) -> Callable[..., Any]:
    """Return an operator as the evaluator has it, with its limits."""
    return sandbox.operators(Meter())[type(op)]


def binary(op: ast.operator, left: Value, right: Value) -> Value:
    """Return `left op right`."""
    symbol, function = _SYMBOLS[type(op)], _python(op)
    names = {left.kind.name, right.kind.name}
    if left.is_constant and right.is_constant:
        return folded(function, left, right)
    if names <= NUMBERS:
        return scalars.arithmetic(symbol, function, left, right)
    if symbol == "%" and left.kind.name == "str":
        return uncompiled(STR, "a format by '%'", left, right)
    if left.kind.name == "date" and isinstance(right.constant, datetime.timedelta):
        days = datetime.timedelta(right.constant.days if symbol == "+" else -right.constant.days)
        return scalars.shifted(lambda one: function(one, right.constant), left, days)
    if right.kind.name == "date" and isinstance(left.constant, datetime.timedelta):
        return scalars.shifted(lambda one: function(left.constant, one), right, left.constant)
    rule = Rule(F.concat) if names == {"str"} and symbol == "+" else None
    why = f"'{symbol}' of {left.kind} and {right.kind}"
    return lifted(function, rule, left, right, why=why)


def unary(op: ast.unaryop, value: Value) -> Value:
    """Return `-value`, `+value` or `~value`."""
    if value.is_constant:
        return folded(_python(op), value)
    return scalars.unary(_SYMBOLS[type(op)], _python(op), value)


def compared(op: ast.cmpop, left: Value, right: Value) -> Value:
    """Return a comparison, other than `in`."""
    if left.is_constant and right.is_constant:
        return folded(_python(op), left, right)
    if isinstance(op, (ast.Is, ast.IsNot)):
        equality = identical(left, right)
    elif isinstance(op, (ast.Eq, ast.NotEq)):
        equality = equal(left, right)
    else:
        equality = ordered(_SYMBOLS[type(op)], left, right)
    return negated(equality) if isinstance(op, (ast.IsNot, ast.NotEq)) else equality


def item(container: Value, key: Value) -> Value:
    """Return `container[key]`."""
    names = [name for name, _ in container.kind.fields]
    try:
        return _item(container, key)
    except Fails as fails:
        near = nearest(key.constant, names) if isinstance(key.constant, str) else ""
        raise Fails(f"{fails.text}{near}") from None


def _item(container: Value, key: Value) -> Value:
    name = container.kind.name
    if container.is_constant and key.is_constant:
        return folded(python.getitem, container, key)
    if name == "str":
        return scalars.index(container, key)
    if name == "list":
        return records.item(container, key)
    if name == "dict" and isinstance(key.constant, str) and not container.is_constant:
        return records.field(container, key.constant)
    if name in {"any", "dict"}:
        return uncompiled(ANY, "a part of a value, or a key, that is not known", container, key)
    return lifted(python.getitem, None, container, key)


def sliced(container: Value, ends: Sequence[Value | None]) -> Value:
    """Return `container[lower:upper:step]`."""
    bounds = [constant(None) if end is None else end for end in ends]
    operands = [container, *bounds]
    if all(operand.is_constant for operand in operands):
        return folded(lambda whole, *parts: whole[slice(*parts)], *operands)
    name = container.kind.name
    if name == "str":
        first, last, _ = (bound.constant for bound in bounds)
        in_date = isinstance(last, int) and 0 <= last <= len("YYYY-MM-DD")
        if in_date and (first is None or (isinstance(first, int) and first >= 0)):
            container = records.dated(container)
        return scalars.sliced(container, bounds)
    if name not in {"list", "any"}:
        raise Fails(f"TypeError: '{type_name(container.kind)}' object cannot be sliced")
    return uncompiled(container.kind.not_none(), "a slice of a list", *operands)


def attribute(value: Value, name: str) -> Value:
    """Return `value.name`, which for a dict is also a key."""
    value, kind = settled(value), value.kind
    if kind.name == "any":
        return uncompiled(ANY, "an attribute of a value of unknown type", value)
    if kind.name == "dict" and not hasattr(dict, name):
        return item(value, constant(name))
    if not hasattr(type_of(kind), name):
        raise no_attribute(kind, name)
    if callable(getattr(type_of(kind), name)):
        raise Fails(f"'{name}' is a method of {type_name(kind)}: call it")
    rule = scalars.PARTS.get(name) if kind.name == "date" else None
    return lifted(lambda one: getattr(one, name), rule, value, why=f"the attribute '{name}'")


def no_attribute(kind: Kind, name: str) -> Fails:
    """Return the error for values of a kind that do not have an attribute."""
    near = nearest(name, sorted(sandbox.public(type_of(kind))))
    return Fails(f"AttributeError: '{type_name(kind)}' object has no attribute '{name}'{near}")


_ORDERS: Mapping[str, Callable[[Any, Any], Column]] = {
    **{"==": python.eq, "<": python.lt, "<=": python.le, ">": python.gt, ">=": python.ge}
}
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}
_LONGS = frozenset({"bool", "int"})
_MOST_DIGITS, _LONG_DIGITS = 38, 20


def equal(left: Value, right: Value) -> Value:
    """Return `left == right`: false between values of different types."""
    for value, other in ((left, right), (right, left)):
        if other.kind.name == "none":
            return is_none(value)
    if not _comparable(left, right):
        why = f"a comparison of {left.kind} and {right.kind}"
        return uncompiled(BOOL, why, left, right)
    return computed(BOOL, lambda a, b: _same(left, right, a, b), left, right)


def _same(left: Value, right: Value, a: Column, b: Column) -> Column:
    """Return whether two columns of comparable values are equal, never null."""
    names = {left.kind.name, right.kind.name}
    same = F.lit(False)
    if names <= NUMBERS or len(names) == 1:
        same = _order("==", left, right, a, b)
    if left.kind.nullable or right.kind.nullable:
        same = F.coalesce(same, F.lit(False))
    if left.kind.nullable and right.kind.nullable:
        same = (a.isNull() & b.isNull()) | same
    return same


def _comparable(left: Value, right: Value) -> bool:
    """Return whether columns of such values compare as Python does."""
    names = {left.kind.name, right.kind.name}
    if names <= NUMBERS:
        # Their common type has to keep all digits of both.
        digits = [_digits(value) for value in (left, right)]
        return "decimal" not in names or sum(map(max, zip(*digits, strict=True))) <= _MOST_DIGITS
    if len(names) > 1:
        return "any" not in names
    return names <= {"str", "date", "datetime"}


def _digits(value: Value) -> tuple[int, int]:
    """Return how many digits a number has before and after the point, or too many."""
    if value.kind.digits is not None:
        precision, scale = value.kind.digits
        return precision - scale, scale
    if value.kind.name in _LONGS:
        return (len(str(abs(value.constant))) if value.is_constant else _LONG_DIGITS), 0
    return _MOST_DIGITS + 1, 0


def ordered(symbol: str, left: Value, right: Value) -> Value:
    """Return `left symbol right` for `<`, `<=`, `>` and `>=`."""
    left, right = replace(left, mixed=0), replace(right, mixed=0)
    rule = Rule(lambda a, b: _order(symbol, left, right, a, b))
    why = f"a comparison of {left.kind} and {right.kind}"
    able = rule if _comparable(left, right) else None
    return lifted(_ORDERS[symbol], able, left, right, kind=BOOL, why=why)


def _order(symbol: str, left: Value, right: Value, a: Column, b: Column) -> Column:
    """Compare two columns; null if one of them is."""
    order, names = _ORDERS[symbol], {left.kind.name, right.kind.name}
    if "decimal" in names:
        return order(_decimal(left, a), _decimal(right, b))
    if names <= _LONGS:
        return order(a.cast("bigint"), b.cast("bigint"))
    if left.kind.name in _LONGS:
        return _float_with_int(_FLIPPED[symbol], b, a.cast("bigint"), left)
    if right.kind.name in _LONGS:
        return _float_with_int(symbol, a, b.cast("bigint"), right)
    ordered = order(a, b)
    if left.kind.name == "float":
        # For Spark NaN is equal to itself and greater than all others.
        for column in {"<": [b], "<=": [a, b], ">": [a], ">=": [a, b], "==": [a]}[symbol]:
            ordered = ordered & ~F.isnan(column)
    return ordered


def _decimal(value: Value, column: Column) -> Column:
    if value.kind.name == "decimal":
        return column
    return column.cast("bigint").cast(f"decimal({_digits(value)[0]},0)")


def _float_with_int(symbol: str, a: Column, b: Column, right: Value) -> Column:
    """Compare a double with a bigint without rounding the latter."""
    order, greater = _ORDERS[symbol], symbol in {">", ">="}
    if right.is_constant and abs(right.constant) <= EXACT:
        ordered = order(a, F.lit(float(right.constant)))
        return ordered & ~F.isnan(a) if greater else ordered
    rounded = b.cast("double")
    # If both are the same double, that is an integer. 2**63 alone is not a bigint, though Spark
    # casts it to the largest one.
    exact = F.coalesce(order(F.when(a < 2.0**63, try_cast(a, "bigint")), b), F.lit(greater))
    if symbol == "==":
        return (a == rounded) & exact
    return ~F.isnan(a) & (_ORDERS[symbol[0]](a, rounded) | ((a == rounded) & exact))


def is_none(value: Value) -> Value:
    """Return `value is None`."""
    if value.is_constant:
        return constant(value.constant is None)
    seen = as_read(value)
    # Python may raise if only it computes the value.
    if seen.column is not None and not value.kind.nullable and value.error is None:
        return constant(False)
    return computed(BOOL, lambda column: _is_null(column, value.data_type), seen)


def _is_null(column: Column, data_type: T.DataType | None) -> Column:
    """Return whether a value of any type is null."""
    if not isinstance(data_type, T.VariantType):
        return column.isNull()
    return column.isNull() | F.coalesce(F.is_variant_null(column), F.lit(False))


def identical(left: Value, right: Value) -> Value:
    """Return `left is right`, if that does not depend on how Python stores values."""
    for value, other in ((left, right), (right, left)):
        same_bool = isinstance(other.constant, bool) and value.kind.name == "bool"
        if same_bool or (other.is_constant and other.constant is None):
            return equal(value, other)
    return uncompiled(BOOL, "'is' between values", left, right)


def among(value: Value, parts: Sequence[Value], *, hashed: bool) -> Value:
    """Return whether a value is one of several: those of a set or dict if they are `hashed`."""
    if hashed and value.kind.name in {"list", "dict"}:
        raise Fails(f"TypeError: unhashable type: '{value.kind.name}'")
    operands = [value, *parts]
    if all(operand.is_constant for operand in operands):
        return constant(value.constant in [part.constant for part in parts])
    # A NaN is in a list only if the list has this very object.
    if not all(_comparable(value, part) and _has_no_nan(value, part) for part in parts):
        return uncompiled(BOOL, "'in' values of unknown types", *operands)

    def make(looked_for: Column, *columns: Column) -> Column:
        texts = [part.constant for part in parts if isinstance(part.constant, str)]
        if value.kind.name == "str" and len(texts) == len(parts) > 1:
            return F.coalesce(looked_for.isin(texts), F.lit(False))
        matches = [_same(value, p, looked_for, c) for p, c in zip(parts, columns, strict=True)]
        return reduce(python.or_, matches, F.lit(False))

    return computed(BOOL, make, *operands)


def _has_no_nan(value: Value, part: Value) -> bool:
    is_constant = value.is_constant or part.is_constant
    return is_constant or not value.kind.name == part.kind.name == "float"


def contained(value: Value, container: Value) -> Value:
    """Return `value in container`."""
    literal, kind = container.constant, container.kind
    if isinstance(literal, (list, tuple, set, frozenset, dict)):
        parts = [constant(item) for item in literal]
        return among(value, parts, hashed=not isinstance(literal, (list, tuple)))
    if kind.name == "dict":
        among(value, [], hashed=True)
    element = Value(kind.item) if kind.item is not None else None
    rule: Rule | None = None
    if kind.name == "str":
        rule = Rule(lambda part, whole: F.contains(whole, part))
    elif element is not None and _comparable(value, element) and _has_no_nan(value, element):
        rule = Rule(lambda part, whole: F.exists(whole, partial(_same, value, element, part)))
    why = f"'in' a value of kind {kind.not_none()}"
    return lifted(lambda one, whole: one in whole, rule, value, container, kind=BOOL, why=why)


def truth(value: Value) -> Value:
    """Return whether a value counts as true: never null."""
    if value.is_constant:
        return constant(bool(value.constant))
    if value.kind.is_loose or value.kind.name == "timedelta":
        return uncompiled(BOOL, "the truth of a value of unknown type", value)
    if value.raw is not None and isinstance(value.data_type, NEVER_EMPTY):
        return computed(BOOL, lambda column: column.isNotNull(), as_read(value))
    seen = as_read(value) if value.column is None else value
    return computed(BOOL, lambda column: _truth(column, value.kind), seen)


def _truth(column: Column, kind: Kind) -> Column:
    if kind.name == "none":
        return F.lit(False)
    if kind.name in {"date", "datetime"} or kind.fields:
        return column.isNotNull()
    if kind.name in {"int", "float", "decimal"}:
        result = column != 0
    elif kind.name == "bool":
        result = column
    else:
        result = column != "" if kind.name == "str" else F.size(column) > 0
    return F.coalesce(result, F.lit(False)) if kind.nullable else result


def negated(value: Value) -> Value:
    """Return `not value`."""
    if value.is_constant:
        return constant(not value.constant)
    return computed(BOOL, lambda column: ~column, truth(value))


def chosen(test: Value, body: Value, otherwise: Value) -> Value:
    """Return `body if test else otherwise`; only errors of the branch taken count."""
    asked = truth(test)
    if asked.is_constant:
        return body if asked.constant else otherwise
    kind, mixed = _merged(body, otherwise)
    column, first, second = asked.column, body.column, otherwise.column
    if kind.name == "any" or mixed < 0 or not _one_type(kind, body, otherwise):
        value = uncompiled(kind, "a value of one type or another", asked, body, otherwise)
        return replace(value, mixed=mixed)
    if column is None or first is None or second is None:
        return replace(uncompiled(kind, "", asked, body, otherwise), mixed=-bool(mixed))

    def make() -> Column:
        return F.when(column(), _as(first(), body, kind)).otherwise(_as(second(), otherwise, kind))

    error = first_error(asked.error, _branches(column, body, otherwise))
    return Value(kind, make, error, mixed=mixed)


def _one_type(kind: Kind, body: Value, otherwise: Value) -> bool:
    """Return whether the columns of two values of a kind also have one type."""
    kinds = [value.kind for value in (body, otherwise) if value.kind.name != "none"]
    return len({*map(data_type_of, kinds)}) <= 1 or not kind.holds("decimal")


def _branches(test: Thunk, body: Value, otherwise: Value) -> Thunk | None:
    first, second = body.error, otherwise.error
    if first is None and second is None:
        return None

    def error() -> Column:
        error = F.when(test(), F.lit(None) if first is None else first())
        return error if second is None else error.otherwise(second())

    return error


def _as(column: Column, value: Value, kind: Kind) -> Column:
    whole = kind.name == "float" and value.kind.name in {"int", "bool"}
    return column.cast("double") if whole else column


def _merged(one: Value, other: Value) -> tuple[Kind, int]:
    """Return the kind that holds either value, and how large an integer in it may be.

    A float and small known integers make a float. With other integers the result is a float too,
    but only the evaluator can compute it: the size is below 0 then.
    """
    mixed = (one.mixed, other.mixed)
    if {one.kind.name, other.kind.name} != {"float", "int"}:
        return joined([one.kind, other.kind]) or ANY, min(mixed) if min(mixed) < 0 else max(mixed)
    number = one if one.kind.name == "int" else other
    kind = replace(FLOAT, nullable=one.kind.nullable or other.kind.nullable)
    if number.is_constant and abs(number.constant) <= EXACT and min(mixed) >= 0:
        return kind, max(*mixed, abs(number.constant), 1)
    return kind, -1


def both(one: Value, other: Value, *, stops: bool) -> Value:
    """Return `one or other` of two truths if `stops`, else `one and other`."""
    if one.is_constant or other.error is not None or other.kind.name != "bool":
        pair = (constant(True), truth(other)) if stops else (truth(other), constant(False))
        return chosen(one, *pair)
    return computed(BOOL, lambda a, b: a | b if stops else a & b, one, other)


def first_of(values: Sequence[Value], *, stops: bool) -> Value:
    """Return `a or b or ...` if `stops`, else `a and b and ...`: one of the values."""
    result = values[-1]
    for value in reversed(values[:-1]):
        # After its truth was evaluated: its errors have come up by then.
        kind = value.kind.not_none() if stops and value.kind.name != "none" else value.kind
        good = replace(value, kind=kind, error=None)
        result = chosen(truth(value), *((good, result) if stops else (result, good)))
    return result
