"""Values of an expression: their kinds at once, their columns once Spark is there.

A value's column may hold anything if its error is not null, but must never make Spark raise. Rules
make columns with Spark's functions or with those of `arrow_columns`, by the names and with the
arguments of `pyspark.sql.functions`.

Why three back ends: rows that Spark reads are mapped where they are (`benchmarks.maps_ways`).
"""

from __future__ import annotations

import ast
import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import reduce, wraps
from itertools import product
from operator import and_
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from pyspark.sql import Column
from pyspark.sql import functions as spark_functions
from pyspark.sql.types import DataType, StructType

from shared.maps.expressions.value_kinds import ANY, NONE, Kind, constant_kind

_T = TypeVar("_T")
_current: ContextVar[Any] = ContextVar("functions", default=spark_functions)


class Unsupported(Exception):  # noqa: N818
    """Only Spark has a function, or only for such operands."""


class _Functions:
    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*operands: Any, **options: Any) -> Any:
            function = getattr(_current.get(), name, None)
            if function is None:
                raise Unsupported(name)
            return function(*operands, **options)

        return call


if TYPE_CHECKING:
    F = spark_functions
else:
    F = _Functions()


@contextmanager
def using(functions: Any) -> Iterator[None]:
    """Make columns with the functions of an object or a module instead of Spark's."""
    token = _current.set(functions)
    try:
        yield
    finally:
        _current.reset(token)


def over_arrow() -> Any:
    """Return the functions that columns are made with instead of Spark's; None if with those."""
    functions = _current.get()
    return None if functions is spark_functions else functions


def once(make: Callable[[], _T]) -> Callable[[], _T]:
    """Return a function that makes something once for each set of functions."""
    results: dict[Any, _T] = {}

    @wraps(make)
    def kept() -> _T:
        functions = _current.get()
        if functions not in results:
            results[functions] = make()
        return results[functions]

    return kept


Thunk: TypeAlias = Callable[[], Column]
UNKNOWN = object()
"""Stands for a value that is not known yet."""
Make: TypeAlias = Callable[..., Column]
Check: TypeAlias = tuple[Make, str | Make]
"""When an operation raises: a condition over its operands' columns, and Python's error."""

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
_LARGEST_FOLDED = 100_000
_LONGEST_FOLDED = 1000
_OF_TYPES: tuple[type[Exception], ...] = (TypeError, AttributeError)


@dataclass(frozen=True)
class Value:
    """Part of an expression.

    Attributes:
        kind: What it is in Python.
        column: Makes the column with its values; null is None. Numbers are integers
            and double, dates and times of records the text they are in JSON, results of `datetime`
            functions date and timestamp. None if Spark cannot compute the same as Python.
        error: Makes a text column: why Python would raise (`TypeError: ...`), null if it would not.
            None if it never does. Includes the errors of operands.
        why: Why the column is missing.
        constant: The value itself if it is the same for every record (literals, `config`).
        source: Path of the column that it is, unchanged; empty if it is computed.
        raw: Makes that column as Spark has read it; None if it is computed.
        data_type: The type of `raw`.
        mixed: It is an int for some records, which its float column holds exactly: of at most this
            magnitude (1 or more). 0 if it never is, -1 if any int is possible: without a column.
    """

    kind: Kind
    column: Thunk | None = None
    error: Thunk | None = None
    why: str = ""
    constant: Any = UNKNOWN
    source: tuple[str, ...] = ()
    raw: Thunk | None = None
    data_type: DataType | None = None
    mixed: int = 0

    @property
    def is_constant(self) -> bool:
        """Return whether it is the same for every record."""
        return self.constant is not UNKNOWN


@dataclass(frozen=True)
class Names:
    """The names that an expression can use.

    Attributes:
        struct: Columns of the record, as Spark has read them.
        config: `stream_map_config`.
        stream: Name of the output stream (`__stream_name__`).
        original: Name of the source stream (`__original_stream_name__`).
        own: The property that is computed (`self`), which the record may lack; None for filters.
        faker: `faker_config`; None if `fake` is not available.
    """

    struct: StructType
    config: Mapping[str, Any] = field(default_factory=dict)
    stream: str = ""
    original: str = ""
    own: str | None = None
    faker: Mapping[str, Any] | None = None


class Fails(Exception):  # noqa: N818
    """A part of an expression raises for every record that comes to it.

    Branches that are not always taken convert it to their error (`failing`); otherwise the
    expression is rejected.

    Args:
        text: Python's error: `TypeError: ...`.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.node: ast.expr | None = None


def failing(text: str) -> Value:
    """Return a value that is an error for every record."""
    return Value(NONE, lambda: F.lit(None), lambda: F.lit(text))


def uncompiled(kind: Kind, why: str, *operands: Value) -> Value:
    """Return a value that only the evaluator can compute.

    The reason of the first operand which has no column itself comes before `why`.
    """
    return Value(kind, why=_why_of(*operands) or why)


def _why_of(*operands: Value) -> str:
    """Return why the first operand without a column has none; empty if all have one."""
    return next((value.why or "not compiled" for value in operands if value.column is None), "")


def settled(value: Value) -> Value:
    """Return a value for a use that distinguishes ints from floats: of unknown kind if `mixed`."""
    return uncompiled(ANY, "a value that is an int or a float", value) if value.mixed else value


def computed(kind: Kind, make: Make, *operands: Value, checks: Sequence[Check] = ()) -> Value:
    """Return a value computed from the columns of its operands, which are all evaluated before.

    The operands are in the order in which Python evaluates them: their errors come before those of
    `checks`, in their order; null counts as false. It has no column if an operand lacks one.
    """
    thunks = [value.column for value in operands if value.column is not None]
    if len(thunks) < len(operands):
        return uncompiled(kind, "", *operands)
    raises = [_check(check, thunks) for check in checks]
    error = first_error(*(value.error for value in operands), *raises)
    # Made once: callers use it several times, and every part is a call into Spark.
    return Value(kind, once(lambda: make(*(thunk() for thunk in thunks))), error)


def _check(check: Check, operands: Sequence[Thunk]) -> Thunk:
    condition, text = check

    @once
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
    return once(lambda: F.coalesce(*(thunk() for thunk in able)))


class Rule(NamedTuple):
    """How Spark computes an operation.

    Attributes:
        make: Makes the column from those of the operands, if none is null and all checks pass.
        checks: When it raises, besides for operands that are None.
    """

    make: Make
    checks: Sequence[Check] = ()


def lifted(
    python: Callable[..., Any],
    rule: Rule | None,
    *operands: Value,
    kind: Kind | None = None,
    why: str = "",
    always: tuple[type[Exception], ...] = (),
) -> Value:
    """Return the result of a Python function.

    Calls with examples of its operands show what it raises for all values of such kinds, what
    it raises for None, and the kind of its result.

    Args:
        python: The function.
        rule: How Spark computes it; None if only the evaluator does.
        operands: In the order in which Python evaluates them.
        kind: The kind of the result, if examples do not show it.
        why: Why the evaluator computes it.
        always: Errors other than those of types that are raised for all values if for examples.

    Raises:
        Fails: It raises for every record.
    """
    operands = tuple(map(settled, operands))
    if all(operand.is_constant and _is_small(operand.constant) for operand in operands):
        return folded(python, *operands)
    loose = sum(value.kind.name == "any" for value in operands)
    if loose > 1:
        return uncompiled(kind or ANY, why or "values of unknown types", *operands)
    raised: tuple[type[Exception], ...] = (*_OF_TYPES, ZeroDivisionError, *always)
    kinds, accepted = list[Kind](), set[tuple[int, ...]]()
    messages: dict[tuple[int, ...], str] = {}
    for values in product(*map(_examples, operands)):
        nulls = tuple(
            at for at, value in enumerate(values) if value is None and not operands[at].is_constant
        )
        try:
            kinds.append(constant_kind(python(*values)))
        except raised as error:
            messages.setdefault(nulls, value_error(error))
            continue
        except Exception:  # noqa: S110 - other values may do
            pass
        accepted.add(nulls)
    if not accepted:
        raise Fails(next(iter(messages.values())))
    result = kind or _shown(kinds, loose=loose > 0)
    if loose:
        return uncompiled(result, why or "a value of unknown type", *operands)
    if rule is None or () not in accepted:
        return uncompiled(result, why, *operands)
    refused = sorted((nulls for nulls in messages if nulls not in accepted), key=len, reverse=True)
    of_none: list[Check] = [(_all_null(nulls), messages[nulls]) for nulls in refused]
    by_rule = computed(result, rule.make, *operands, checks=[*of_none, *rule.checks])
    return _with_elements(by_rule, python, operands)


def _with_elements(by_rule: Value, python: Callable[..., Any], operands: Sequence[Value]) -> Value:
    """Return a value for which Python is called row by row over Arrow, if a rule needs Spark."""
    column, error = by_rule.column, by_rule.error
    if column is None or error is None:
        return by_rule
    before = first_error(*(operand.error for operand in operands))
    # Arrow's decimals have other digits than Python's.
    exact = any(operand.kind.name == "decimal" for operand in operands)

    @once
    def both() -> tuple[Column, Column]:
        functions = over_arrow()
        if functions is None:
            return column(), error()
        try:
            if not exact:
                return column(), error()
        except Unsupported:
            pass
        columns = [operand.column() for operand in operands if operand.column is not None]
        value, raised = functions.each(python, by_rule.kind, *columns)
        return value, raised if before is None else F.coalesce(before(), raised)

    return replace(by_rule, column=lambda: both()[0], error=lambda: both()[1])


def _shown(kinds: Sequence[Kind], *, loose: bool) -> Kind:
    """Return the kind that all results have if those of examples are of these."""
    if not kinds or kinds[0].name == "none":
        return ANY
    alike = all(kind.name == kinds[0].name for kind in kinds) and kinds[0].name in _PLAIN
    return kinds[0] if alike or not loose else ANY


def _all_null(places: Sequence[int]) -> Make:
    return lambda *columns: reduce(and_, (columns[at].isNull() for at in places))


def folded(python: Callable[..., Any], *operands: Value) -> Value:
    """Compute at once a value that is the same for every record.

    Raises:
        Fails: Python raises for these operands.
    """
    try:
        return constant(python(*(operand.constant for operand in operands)))
    except Exception as error:
        raise Fails(value_error(error)) from None


def _is_small(value: object) -> bool:
    """Return whether the result of any operation on this value stays small."""
    if isinstance(value, str):
        return len(value) <= _LONGEST_FOLDED
    if isinstance(value, int):
        return abs(value) <= _LARGEST_FOLDED
    return value is None or isinstance(value, (float, datetime.date, datetime.timedelta))


def value_error(error: Exception) -> str:
    """Return Python's error as records have it."""
    return f"{type(error).__name__}: {error}"


def _examples(value: Value) -> list[Any]:
    """Return values that stand for all those of a kind, or of every kind if it is not known."""
    if value.is_constant and (_is_small(value.constant) or value.kind.name not in _PLAIN):
        return [value.constant]
    if value.kind.name == "any":
        return [None, [], {}, (), b"", frozenset(), *_PLAIN.values()]
    examples = [_example(value.kind)]
    if value.kind.name in {"list", "dict"}:
        # Empty ones as well: what they hold must not make all calls raise.
        examples.append(type(examples[0])())
    return [*examples, None] if value.kind.nullable and value.kind.name != "none" else examples


def _example(kind: Kind) -> Any:
    if kind.name == "list":
        return [] if kind.item is None else [_example(kind.item)]
    if kind.name == "dict":
        return {name: _example(part) for name, part in kind.fields}
    return _PLAIN.get(kind.name)


_PLAIN: dict[str, Any] = {
    "bool": True,
    "int": 1,
    "float": 1.5,
    "decimal": Decimal(1),
    "str": "1",
    "date": datetime.date(2000, 1, 1),
    "datetime": datetime.datetime(2000, 1, 1),
    "timedelta": datetime.timedelta(1),
}


def constant(value: Any) -> Value:
    """Return the value of a literal, of a part of `config`, or of an operation on those."""
    kind = constant_kind(value)
    if isinstance(value, int) and not INT_MIN <= value <= INT_MAX:
        return Value(kind, why="an integer of more than 64 bits", constant=value)
    if kind.name in _LITERALS:
        return Value(kind, lambda: literal(value), constant=value)
    if kind.name == "date":
        return Value(kind, lambda: literal(value.isoformat()).cast("date"), constant=value)
    if kind.name == "list" and kind.item is not None and kind.item.name in _LITERALS:
        parts = [constant(item) for item in value]
        if not _why_of(*parts):
            return Value(kind, lambda: F.array(*(literal(item) for item in value)), constant=value)
    return Value(kind, why=f"a {type(value).__name__} as a value", constant=value)


_LITERALS = frozenset({"none", "bool", "int", "float", "str"})


def literal(value: bool | int | float | str | None) -> Column:
    """Return the column of a plain value, of the type that its kind has."""
    if isinstance(value, int) and not isinstance(value, bool):
        return F.lit(value).cast("bigint")
    return F.lit(value)
