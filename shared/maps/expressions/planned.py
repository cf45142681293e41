"""Plan an expression as a column: of Spark if its results equal Python's, else of Python."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, cast

from shared.errors import SettingsError, Where
from shared.maps.expressions import arrow_functions, columns, personal, python_columns
from shared.maps.expressions.evaluator import PortableExpression, Task
from shared.maps.expressions.personal import FUNCTIONS, SALT, Salted
from shared.maps.expressions.syntax import Expression, nearest, with_others, wrong
from shared.maps.expressions.value_kinds import data_type_of
from shared.maps.expressions.values import Unsupported, uncompiled, using

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    from shared.maps.expressions.arrow_columns import ArrowPair
    from shared.maps.expressions.python_columns import Python
    from shared.maps.expressions.value_kinds import Kind
    from shared.maps.expressions.values import Names, Thunk, Value

_FRESH = frozenset({"rand", "randint", "fake", ".now", ".today", ".utcnow"})


@dataclass(frozen=True, eq=False)
class Computed:
    """A value computed for every row, which may fail.

    Attributes:
        label: Its name in errors.
        data_type: Its type.
        value: Makes its column.
        error: Makes the column with the reason for a failure; None if it cannot fail.
        reads: The source columns that it needs.
        in_python: Whether it runs in Python.
        evaluated: Returns the work of Python that has the same results; None if there is none.
        over_arrow: Makes the same columns for rows in Arrow; returns None if it cannot.
    """

    label: str
    data_type: DataType
    value: Callable[[], Column]
    error: Callable[[], Column | None]
    reads: frozenset[str]
    in_python: bool = False
    evaluated: Callable[[], Task] | None = None
    over_arrow: Callable[[], ArrowPair | None] = lambda: None

    @cached_property
    def columns(self) -> tuple[Column, Column | None]:
        """Return its columns, made once: each part of them is a call into Spark."""
        return self.value(), self.error()


@dataclass(frozen=True, eq=False)
class Planned(Computed):
    """An expression, ready to be computed; without a label.

    Attributes:
        source: Path of the column that it is, unchanged; empty if it is computed.
        why: Why Python computes it, on the executors; empty if Spark does.
        fresh: Whether each evaluation has another result, so that two properties cannot share a
            column.
        python: What Python computes; None if Spark does.
    """

    source: tuple[str, ...] = ()
    why: str = ""
    fresh: bool = False
    python: Python | None = field(default=None, repr=False)


def plan(
    expression: Expression,
    names: Names,
    where: Where,
    *,
    truth: bool = False,
    in_arrays: bool = False,
) -> Planned:
    """Plan how an expression is computed; with `truth`, as for filters, the result is a boolean.

    If `in_arrays`, the record's only column is a value inside arrays, for Python to compute.

    Raises:
        SettingsError: It fails for every record, or needs something that is missing: an unknown
            name, a salt, the library Faker.
    """
    value, reads, others = columns.compiled(expression, names, where, is_truth=truth)
    if others:
        expression = with_others(expression, others)
    if in_arrays:
        value = uncompiled(value.kind, "values inside arrays")
    if value.raw is not None and value.data_type is not None and not truth:
        planned = _by_columns(value.raw, value.error, value.data_type, reads)
        # `item['sku']` fails if `item` is None.
        return planned if value.error else replace(planned, source=value.source, value=value.raw)
    fresh = not _FRESH.isdisjoint(_named(expression.tree))
    if value.column is None or value.kind.name == "any":
        python = _in_python(expression, names, where, value, reads, truth=truth)
        return replace(python, fresh=fresh)
    planned = _by_columns(value.column, value.error, data_type_of(value.kind), reads)
    work = partial(_task, expression, names, value.kind, reads, truth=truth)
    return replace(planned, evaluated=work, fresh=fresh)


def _by_columns(
    column: Thunk, error: Thunk | None, result: DataType, reads: frozenset[str]
) -> Planned:
    """Return what functions make: of Spark's columns, or over Arrow unless one is Spark's alone."""

    def value() -> Column:
        return column().cast(result)

    def over_arrow() -> ArrowPair | None:
        with using(arrow_functions):
            try:
                return cast("ArrowPair", (value(), error and error()))
            except Unsupported:
                return None

    return Planned("", result, value, error or (lambda: None), reads, over_arrow=over_arrow)


def _in_python(
    expression: Expression,
    names: Names,
    where: Where,
    value: Value,
    reads: frozenset[str],
    *,
    truth: bool,
) -> Planned:
    fake = _fake(expression, names, where)
    task = _task(expression, names, value.kind, reads, truth=truth, fake=fake)
    keyed = fake is not None and fake.seed is not None
    python = python_columns.Python(task, names.struct, keyed)
    return Planned(
        label="",
        data_type=data_type_of(task.kind),
        value=lambda: python.taken(python.both),
        error=lambda: python.both["error"],
        reads=frozenset(names.struct.names) if keyed else reads,
        in_python=True,
        evaluated=lambda: task,
        why=value.why or "only Python knows its result",
        python=python,
    )


def _task(
    expression: Expression,
    names: Names,
    kind: Kind,
    reads: frozenset[str],
    *,
    truth: bool,
    fake: personal.FakeSettings | None = None,
) -> Task:
    ordered = tuple(name for name in names.struct.names if name in reads)
    is_own = "self" in _named(expression.tree) and names.own in names.struct.names
    portable = PortableExpression(
        # On lines of its own: it may end in a comment.
        text=f"bool((\n{expression.text}\n))" if truth else expression.text,
        columns=ordered,
        own=names.own if is_own else None,
        fixed={
            "config": dict(names.config),
            "__stream_name__": names.stream,
            "__original_stream_name__": names.original,
        },
        functions={**FUNCTIONS, "hash_value": Salted(names.config.get(SALT))},
    )
    arrivals = [python_columns.arrival(names.struct[name].dataType) for name in ordered]
    return Task(portable, arrivals, python_columns.result_kind(kind, names.struct, reads), fake)


def _named(tree: ast.AST) -> set[str]:
    nodes = list(ast.walk(tree))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {f".{node.attr}" for node in nodes if isinstance(node, ast.Attribute)}


def _fake(expression: Expression, names: Names, where: Where) -> personal.FakeSettings | None:
    """Return how `fake` invents values, if the expression uses it.

    Raises:
        SettingsError: Faker is not installed, does not know a language, or lacks a function.
    """
    if "fake" not in _named(expression.tree):
        return None
    if importlib.util.find_spec("faker") is None:
        hint = "pip install 'singer-spark[faker]', here and where Spark's workers run"
        raise SettingsError("fake needs the library Faker", where=where, hint=hint)
    config = names.faker or {}
    settings = personal.FakeSettings(config.get("locale"), config.get("seed"), str(where.setting))
    try:
        fakes = personal.Fakes(settings)
    except (AttributeError, ImportError, TypeError, ValueError) as error:
        raise SettingsError(f"fake: {error}", where=Where(setting="faker_config.locale")) from None
    for node in ast.walk(expression.tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        if node.value.id == "fake" and node.attr not in {*fakes.names, "seed_instance"}:
            near = nearest(node.attr, sorted(fakes.names))
            raise wrong(expression, node, f"fake has no '{node.attr}' here{near}", where)
    return settings
