"""What counts as true, and the operators that ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from shared.maps.expressions.building import (
    computed,
    constant,
    first_error,
    joined,
    uncompiled,
)
from shared.maps.expressions.kinds import BOOL, FLOAT, Kind
from shared.maps.expressions.numbers import EXACT
from shared.maps.expressions.values import Thunk, Value

_NUMBERS = frozenset({"int", "float", "decimal"})
_ALWAYS = frozenset({"date", "datetime"})


def truth(value: Value) -> Value:
    """Return whether a value counts as true: never null."""
    if value.is_known:
        return constant(bool(value.known))
    if value.kind.name in {"any", "timedelta"} or (
        value.kind.name == "dict" and not value.kind.fields and value.kind.values is None
    ):
        return uncompiled(BOOL, "the truth of a value of unknown type", value)
    return computed(BOOL, lambda column: _truth(column, value.kind), value)


def _truth(column: Column, kind: Kind) -> Column:
    if kind.name == "none":
        return F.lit(False)
    if kind.name in _ALWAYS or (kind.name == "dict" and kind.fields):
        return column.isNotNull()
    if kind.name in _NUMBERS:
        found = column != 0
    elif kind.name == "bool":
        found = column
    else:
        found = column != "" if kind.name == "str" else F.size(column) > 0
    return F.coalesce(found, F.lit(False)) if kind.nullable else found


def negated(value: Value) -> Value:
    """Return `not value`."""
    if value.is_known:
        return constant(not value.known)
    return computed(BOOL, lambda column: ~column, truth(value))


def chosen(test: Value, body: Value, otherwise: Value) -> Value:
    """Return `body if test else otherwise`; only errors of the branch taken count.

    Args:
        test: Any value; its truth decides.
        body: The result if it is true.
        otherwise: The result if not.
    """
    asked = truth(test)
    if asked.is_known:
        return body if asked.known else otherwise
    kind, mixed = _merged(body, otherwise)
    pair = (body, otherwise)
    if kind.name == "any" or mixed < 0 or not _one_type(kind, *pair):
        value = uncompiled(kind, "a value of one type or another", asked, *pair)
        return replace(value, mixed=mixed)
    column, first, second = asked.column, body.column, otherwise.column
    if column is None or first is None or second is None:
        return replace(uncompiled(kind, "", asked, *pair), mixed=-min(abs(mixed), 1))

    def make() -> Column:
        return F.when(column(), _as(first(), body, kind)).otherwise(_as(second(), otherwise, kind))

    return Value(kind, make, first_error(asked.error, _branches(column, *pair)), mixed=mixed)


def _one_type(kind: Kind, body: Value, otherwise: Value) -> bool:
    """Return whether the columns of two values of a kind also have one type."""
    others = [value for value in (body, otherwise) if value.kind.name != "none"]
    types = [value.data_type for value in others]
    return len(others) <= 1 or not _has_decimals(kind) or (None not in types and len({*types}) == 1)


def _has_decimals(kind: Kind) -> bool:
    below = [kind.item, kind.values, *(part for _, part in kind.fields)]
    return kind.name == "decimal" or any(_has_decimals(part) for part in below if part is not None)


def _branches(test: Thunk, body: Value, otherwise: Value) -> Thunk | None:
    first, second = body.error, otherwise.error
    if first is None and second is None:
        return None

    def error() -> Column:
        if first is None:
            return F.when(~test(), second()) if second is not None else F.lit(None)
        found = F.when(test(), first())
        return found if second is None else found.otherwise(second())

    return error


def _as(column: Column, value: Value, kind: Kind) -> Column:
    whole = kind.name == "float" and value.kind.name in {"int", "bool"}
    return column.cast("double") if whole else column


def _merged(one: Value, other: Value) -> tuple[Kind, int]:
    """Return the kind that holds either value, and how large an integer in it may be.

    A float and small known integers make a float. With other integers the result is a float too,
    but only the evaluator can compute it: the size is below 0 then.
    """
    kind = joined(one.kind, other.kind)
    names = {one.kind.name, other.kind.name}
    if names == {"float", "int"}:
        number = one if one.kind.name == "int" else other
        kind = replace(FLOAT, nullable=one.kind.nullable or other.kind.nullable)
        small = number.is_known and number.known is not None and abs(number.known) <= EXACT
        if small and one.mixed >= 0 <= other.mixed:
            return kind, max(one.mixed, other.mixed, abs(number.known), 1)
        return kind, -1
    mixed = (one.mixed, other.mixed)
    return kind, min(mixed) if min(mixed) < 0 else max(mixed)


def either(values: Sequence[Value]) -> Value:
    """Return `a or b or ...`: the first that is true, else the last."""
    result = values[-1]
    for value in reversed(values[:-1]):
        result = chosen(truth(value), _known_good(value, truly=True), result)
    return result


def every(values: Sequence[Value]) -> Value:
    """Return `a and b and ...`: the first that is false, else the last."""
    result = values[-1]
    for value in reversed(values[:-1]):
        result = chosen(truth(value), result, _known_good(value, truly=False))
    return result


def _known_good(value: Value, *, truly: bool) -> Value:
    """Return a value after its truth was evaluated: its errors have come up by then."""
    kind = value.kind.not_none() if truly and value.kind.name != "none" else value.kind
    return replace(value, kind=kind, error=None)
