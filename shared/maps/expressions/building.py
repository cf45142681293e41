"""Parts of every compiled operation: nulls, errors and their order.

A value's column may hold anything if its error is not null, but must never make Spark raise.
"""

from __future__ import annotations

import ast
import datetime
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cache, reduce
from itertools import combinations
from typing import Any, TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from shared.maps.expressions.kinds import (
    ANY,
    BOOL,
    DATE,
    DATETIME,
    DECIMAL,
    FLOAT,
    INT,
    NONE,
    STR,
    TIMEDELTA,
    Kind,
)
from shared.maps.expressions.values import Call, Thunk, Value

Make: TypeAlias = Callable[..., Column]
Check: TypeAlias = tuple[Make, str | Make]
"""When an operation raises: a condition over its operands' columns, and Python's error."""

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

    Branches that are not always taken convert it to their error (`failing`); otherwise the
    expression is rejected.

    Args:
        text: Python's error: `TypeError: ...`.
        node: Where, if not at the node that is being compiled.
    """

    def __init__(self, text: str, node: ast.expr | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.node = node


def failing(text: str) -> Value:
    """Return a value that is an error for every record."""

    def none() -> Column:
        return F.lit(None)

    def error() -> Column:
        return F.lit(text)

    return Value(NONE, none, error)


def uncompiled(kind: Kind, why: str, *operands: Value) -> Value:
    """Return a value that only the evaluator can compute.

    Args:
        kind: The kind of the value.
        why: The reason; that of the first operand which has no column itself comes before it.
        operands: Its operands.
    """
    return Value(kind, why=why_of(*operands) or why)


def why_of(*operands: Value) -> str:
    """Return why the first operand without a column has none; empty if all have one."""
    return next((value.why or "not compiled" for value in operands if value.column is None), "")


def settled(value: Value) -> Value:
    """Return a value for a use that distinguishes ints from floats: of unknown kind if `mixed`."""
    return uncompiled(ANY, "a value that is an int or a float", value) if value.mixed else value


def computed(kind: Kind, make: Make, *operands: Value, checks: Sequence[Check] = ()) -> Value:
    """Return a value computed from the columns of its operands, which are all evaluated before.

    Args:
        kind: The kind of the value.
        make: Makes its column from the operands' columns.
        operands: In the order in which Python evaluates them: their errors come first.
        checks: When the operation itself raises, first one first; null counts as false.

    Returns:
        The value; without a column if an operand lacks one.
    """
    if why_of(*operands):
        return uncompiled(kind, "", *operands)
    thunks = [value.column for value in operands if value.column is not None]
    raises = [_check(check, thunks) for check in checks]
    error = first_error(*(value.error for value in operands), *raises)
    # Made once: callers use it several times, and every part is a call into Spark.
    return Value(kind, cache(lambda: make(*(thunk() for thunk in thunks))), error)


def _check(check: Check, operands: Sequence[Thunk]) -> Thunk:
    condition, text = check

    @cache
    def error() -> Column:
        columns = [operand() for operand in operands]
        message = F.lit(text) if isinstance(text, str) else text(*columns)
        return F.when(condition(*columns), message)

    return error


def first_error(*errors: Thunk | None) -> Thunk | None:
    """Return the first of these errors that a record has; None if none can happen."""
    able = [error for error in errors if error is not None]
    if len(able) <= 1:
        return able[0] if able else None

    @cache
    def error() -> Column:
        return F.coalesce(*(thunk() for thunk in able))

    return error


def lifted(
    python: Callable[..., Any],
    make: Make | None,
    *operands: Value,
    kind: Kind | None = None,
    checks: Sequence[Check] = (),
    why: str = "",
    always: tuple[type[Exception], ...] = (),
) -> Value:
    """Return the result of a Python function.

    A call with examples of its operands shows what it raises for all values of such kinds, what
    it raises for None, and the kind of its result.

    Args:
        python: The function.
        make: Makes the column from the operands' columns, if none is null and all checks pass; None
            if only the evaluator computes it.
        operands: In the order in which Python evaluates them.
        kind: The kind of the result, if it is known beforehand.
        checks: Other conditions for an error.
        why: Why the evaluator computes it.
        always: Errors other than those of types that are raised for all values if for examples.

    Raises:
        Fails: It raises for every record.
    """
    operands = tuple(map(settled, operands))
    if all(operand.is_known and _small(operand.known) for operand in operands):
        return folded(python, *operands)
    examples = [_example(operand) for operand in operands]
    loose = [at for at, value in enumerate(operands) if value.kind.name == "any"]
    if loose:
        others = [value for at, value in enumerate(operands) if at not in loose]
        if len(loose) == 1 and all(o.is_known or not o.kind.nullable for o in others):
            _check_any(python, examples, loose[0])
        return uncompiled(kind or ANY, why or "a value of unknown type", *operands)
    found = ANY
    raised: tuple[type[Exception], ...] = (*_OF_TYPES, ZeroDivisionError, *always)
    try:
        found = constant_kind(python(*examples))
    except raised as error:
        if all(message for _, message in _with_none(python, examples, operands)):
            raise Fails(_error_text(error)) from None
        make = None
    except Exception:  # noqa: S110 - other values may do
        pass
    if make is None:
        return uncompiled(kind or found, why, *operands)
    nones = _with_none(python, examples, operands)
    of_none: list[Check] = [(_all_null(places), message) for places, message in nones if message]
    return computed(kind or found, make, *operands, checks=[*of_none, *checks])


def called(
    python: Callable[..., Any], make: Make | None, call: Call, *owner: Value, **options: Any
) -> Value:
    """Return the result of a call; the owner of a method is its first argument. See `lifted`."""
    names, count = tuple(call.keywords), len(owner) + len(call.args)

    def function(*values: Any) -> Any:
        return python(*values[:count], **dict(zip(names, values[count:], strict=True)))

    operands = (*owner, *call.args, *call.keywords.values())
    return lifted(function, make, *operands, **options)


def _check_any(python: Callable[..., Any], examples: list[Any], at: int) -> None:
    """Check that a function accepts a value of some kind at a place.

    Raises:
        Fails: It does not.
    """
    message = ""
    for guess in (None, (), b"", frozenset[Any](), *_EXAMPLES.values()):
        try:
            python(*examples[:at], guess, *examples[at + 1 :])
        except _OF_TYPES as error:
            message = _error_text(error)
        except Exception:
            return
        else:
            return
    raise Fails(message)


def not_none(text: str, operand: Value) -> list[Check]:
    """Return the check of an operation that raises this error if its first operand is None."""
    return [(lambda *columns: columns[0].isNull(), text)] if operand.kind.nullable else []


_OF_TYPES: tuple[type[Exception], ...] = (TypeError, AttributeError)
LARGEST_FOLDED = 100_000


def folded(python: Callable[..., Any], *operands: Value) -> Value:
    """Compute at once a value that is the same for every record.

    Raises:
        Fails: Python raises for these operands.
    """
    try:
        return constant(python(*(operand.known for operand in operands)))
    except Exception as error:
        raise Fails(_error_text(error)) from None


def _small(known: object) -> bool:
    """Return whether the result of any operation on this value stays small."""
    if isinstance(known, str):
        return len(known) <= 1000  # noqa: PLR2004
    if isinstance(known, int):
        return abs(known) <= LARGEST_FOLDED
    return known is None or isinstance(known, (float, datetime.date, datetime.timedelta))


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _with_none(
    python: Callable[..., Any], examples: Sequence[Any], operands: Sequence[Value]
) -> list[tuple[Sequence[int], str]]:
    """Return what a function raises if some of its operands are None, the most of them first.

    Returns:
        Their places, and the error; it is empty if None is accepted.
    """
    able = [at for at, one in enumerate(operands) if one.kind.nullable and not one.is_known]
    found: list[tuple[Sequence[int], str]] = []
    for count in range(len(able), 0, -1):
        for chosen in combinations(able, count):
            message = ""
            try:
                python(*(None if at in chosen else one for at, one in enumerate(examples)))
            except _OF_TYPES as error:
                message = _error_text(error)
            except Exception:  # noqa: S110 - no error of types
                pass
            found.append((chosen, message))
    return found


def _all_null(places: Sequence[int]) -> Make:
    return lambda *columns: reduce(lambda a, b: a & b, (columns[at].isNull() for at in places))


def _example(value: Value) -> Any:
    # The content of lists and dicts does not make an example raise.
    return value.known if value.is_known else _EXAMPLES.get(value.kind.name)


_EXAMPLES: dict[str, Any] = {
    "bool": True,
    "int": 1,
    "float": 1.5,
    "decimal": Decimal(1),
    "str": "1",
    "date": datetime.date(2000, 1, 1),
    "datetime": datetime.datetime(2000, 1, 1),
    "timedelta": datetime.timedelta(1),
    "list": [],
    "dict": {},
}


def type_name(kind: Kind) -> str:
    """Return the name that Python's errors use for a kind that is not None."""
    return _TYPE_NAMES.get(kind.name, kind.name)


def constant_kind(value: object) -> Kind:
    """Return the kind of a Python value."""
    if value is None:
        return NONE
    if isinstance(value, (list, tuple)):
        return Kind("list", item=_merged([constant_kind(item) for item in value]))
    if isinstance(value, dict):
        plain = all(isinstance(key, str) for key in value)
        fields = tuple((key, constant_kind(item)) for key, item in value.items()) if plain else ()
        return Kind("dict", fields=fields)
    return _PLAIN_KINDS.get(type(value), ANY)


_PLAIN_KINDS: dict[type, Kind] = {
    **{bool: BOOL, int: INT, float: FLOAT, str: STR, Decimal: DECIMAL},
    **{datetime.date: DATE, datetime.datetime: DATETIME, datetime.timedelta: TIMEDELTA},
}


def _merged(kinds: Sequence[Kind]) -> Kind | None:
    return reduce(joined, kinds) if kinds else None


def joined(one: Kind, other: Kind) -> Kind:
    """Return the kind of a value of either kind; `any` if one column cannot hold both."""
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
    """Return the value of a literal, of a part of `config`, or of an operation on those."""
    kind = constant_kind(value)
    if isinstance(value, int) and not INT_MIN <= value <= INT_MAX:
        return Value(kind, why="an integer of more than 64 bits", known=value)
    if kind.name in _LITERALS:
        return Value(kind, lambda: literal(value), known=value)
    if kind.name == "date":
        return Value(kind, lambda: literal(value.isoformat()).cast("date"), known=value)
    parts = [constant(item) for item in _items(value)]
    if kind.item is not None and kind.item.name in _LITERALS and not why_of(*parts):
        return Value(kind, lambda: _array(value), known=value)
    return Value(kind, why=f"a {type(value).__name__} as a value", known=value)


_LITERALS = frozenset({"none", "bool", "int", "float", "str"})


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _array(items: Sequence[Any]) -> Column:
    return F.array(*(literal(item) for item in items))


def literal(value: bool | int | float | str | None) -> Column:
    """Return the column of a plain value, of the type that its kind has."""
    if isinstance(value, int) and not isinstance(value, bool):
        return F.lit(value).cast("bigint")
    return F.lit(value)
