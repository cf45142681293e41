"""Parts that every compiled operation is made of: nulls, errors and their order.

A value's column may hold anything where its error is not null, but must never make Spark raise.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import cache, reduce
from typing import TYPE_CHECKING, Any, TypeAlias

from shared.transforms.expressions.kinds import (
    ANY,
    BOOL,
    FLOAT,
    INT,
    NONE,
    STR,
    Kind,
)
from shared.transforms.expressions.values import Value

if TYPE_CHECKING:
    from pyspark.sql import Column

    from shared.transforms.expressions.values import Thunk

Make: TypeAlias = "Callable[..., Column]"
Check: TypeAlias = "tuple[Make, str | Make]"
"""When an operation raises: a condition over its operands' columns, and what Python says."""

INT_MIN, INT_MAX = -(2**63), 2**63 - 1

_TYPE_NAMES = {
    "none": "NoneType",
    "decimal": "decimal.Decimal",
    "date": "datetime.date",
    "datetime": "datetime.datetime",
    "timedelta": "datetime.timedelta",
}


class Fails(Exception):  # noqa: N818
    """A part of an expression raises for every record that comes to it.

    Branches that are not always taken turn it into their error (`failing`); where nothing does,
    the expression is refused.

    Args:
        text: What Python says: `TypeError: ...`.
        node: Where, if not at the node that is being compiled.
    """

    def __init__(self, text: str, node: ast.expr | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.node = node


def failing(text: str) -> Value:
    """Give a value that is an error for every record."""

    def none() -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        return F.lit(None)

    def error() -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        return F.lit(text)

    return Value(NONE, none, error)


def uncompiled(kind: Kind, why: str, *operands: Value) -> Value:
    """Give a value that only the evaluator can compute.

    Args:
        kind: What it will be.
        why: The reason; that of the first operand which has no column itself comes before it.
        operands: What it is made of.
    """
    return Value(kind, why=why_of(*operands) or why)


def why_of(*operands: Value) -> str:
    """Say why the first of these that has no column has none; empty where all have one."""
    return next((value.why or "not compiled" for value in operands if value.column is None), "")


def settled(value: Value) -> Value:
    """Give a value for a use that tells ints from floats: of unknown kind where it may be both."""
    return uncompiled(ANY, "a value that is an int or a float", value) if value.mixed else value


def computed(kind: Kind, make: Make, *operands: Value, checks: Sequence[Check] = ()) -> Value:
    """Give a value made of the columns of its operands, which are all evaluated before.

    Args:
        kind: What it is.
        make: Makes its column of the operands' columns.
        operands: In the order in which Python evaluates them: their errors come first.
        checks: When the operation itself raises, first one first; null counts as no.

    Returns:
        The value; without a column where an operand has none.
    """
    if why_of(*operands):
        return uncompiled(kind, "", *operands)
    thunks = [value.column for value in operands if value.column is not None]
    raises = [_check(check, thunks) for check in checks]
    error = first_error(*(value.error for value in operands), *raises)
    # Made once: others ask for it several times, and every part is a call into Spark.
    return Value(kind, cache(lambda: make(*(thunk() for thunk in thunks))), error)


def _check(check: Check, operands: Sequence[Thunk]) -> Thunk:
    condition, text = check

    @cache
    def error() -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        columns = [operand() for operand in operands]
        said = F.lit(text) if isinstance(text, str) else text(*columns)
        return F.when(condition(*columns), said)

    return error


def first_error(*errors: Thunk | None) -> Thunk | None:
    """Give the first of these errors that a record has; None where none can happen."""
    able = [error for error in errors if error is not None]
    if len(able) <= 1:
        return able[0] if able else None

    @cache
    def error() -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        return F.coalesce(*(thunk() for thunk in able))

    return error


def not_none(text: str, *operands: Value) -> list[Check]:
    """Give the checks of an operation that raises the same where any of its operands is None."""

    def at(position: int) -> Make:
        return lambda *columns: columns[position].isNull()

    return [(at(i), text) for i, value in enumerate(operands) if value.kind.nullable]


def type_name(kind: Kind) -> str:
    """Give the name that Python's errors have for a kind that is not None."""
    return _TYPE_NAMES.get(kind.name, kind.name)


def operand_text(operator: str, left: Kind, right: Kind) -> str:
    """Say that an operator does not take such operands."""
    names = f"'{type_name(left)}' and '{type_name(right)}'"
    return f"TypeError: unsupported operand type(s) for {operator}: {names}"


def operand_checks(operator: str, left: Value, right: Value) -> list[Check]:
    """Give the checks of a binary operator that takes no None on either side."""
    checks: list[Check] = []
    if left.kind.nullable and right.kind.nullable:
        checks.append((lambda a, b: a.isNull() & b.isNull(), operand_text(operator, NONE, NONE)))
    checks += not_none(operand_text(operator, NONE, right.kind), left)
    if right.kind.nullable:
        checks.append((lambda *both: both[1].isNull(), operand_text(operator, left.kind, NONE)))
    return checks


def constant_kind(value: object) -> Kind:
    """Give the kind of a Python value."""
    if value is None:
        return NONE
    if isinstance(value, (list, tuple)):
        return Kind("list", item=_merged([constant_kind(item) for item in value]))
    if isinstance(value, dict):
        plain = all(isinstance(key, str) for key in value)
        fields = tuple((key, constant_kind(item)) for key, item in value.items()) if plain else ()
        return Kind("dict", fields=fields)
    return _PLAIN_KINDS.get(type(value), ANY)


_PLAIN_KINDS: dict[type, Kind] = {bool: BOOL, int: INT, float: FLOAT, str: STR}


def _merged(kinds: Sequence[Kind]) -> Kind | None:
    return reduce(joined, kinds) if kinds else None


def joined(one: Kind, other: Kind) -> Kind:
    """Give the kind of what is one or the other; `any` where no one column holds both."""
    nullable = one.nullable or other.nullable
    if "none" in {one.name, other.name}:
        return (other if one.name == "none" else one).or_none()
    if one.name != other.name or one.name == "any":
        return ANY
    if one.name == "list":
        item = _joined_part(one.item, other.item)
        return ANY if _loose(item) else Kind("list", nullable, item=item)
    names = [name for name, _ in one.fields]
    if names != [name for name, _ in other.fields]:
        return ANY
    parts = [joined(a, b) for (_, a), (_, b) in zip(one.fields, other.fields, strict=True)]
    values = _joined_part(one.values, other.values)
    if _loose(values) or any(_loose(part) for part in parts):
        return ANY
    fields = tuple(zip(names, parts, strict=True))
    return Kind(one.name, nullable, fields=fields, values=values)


def _joined_part(one: Kind | None, other: Kind | None) -> Kind | None:
    if one is None or other is None:
        return None if one is other else ANY
    return joined(one, other)


def _loose(kind: Kind | None) -> bool:
    return kind is not None and kind.name == "any"


def constant(value: Any) -> Value:
    """Give the value of a literal, or of a part of `config`."""
    kind = constant_kind(value)
    if isinstance(value, int) and not INT_MIN <= value <= INT_MAX:
        return Value(kind, why="an integer of more than 64 bits", known=value)
    if kind.name in _LITERALS:
        return Value(kind, lambda: literal(value), known=value)
    parts = [constant(item) for item in _items(value)]
    if kind.item is not None and kind.item.name in _LITERALS and not why_of(*parts):
        return Value(kind, lambda: _array(value), known=value)
    return Value(kind, why=f"a {type(value).__name__} as a value", known=value)


_LITERALS = frozenset({"none", "bool", "int", "float", "str"})


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _array(items: Sequence[Any]) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.array(*(literal(item) for item in items))


def literal(value: bool | int | float | str | None) -> Column:
    """Give the column of a plain value, of the type that its kind has."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    if isinstance(value, int) and not isinstance(value, bool):
        return F.lit(value).cast("bigint")
    return F.lit(value)
