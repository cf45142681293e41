"""Plan an expression as a column: of Spark if its results equal Python's, else of Python."""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from shared.errors import SettingsError, Where
from shared.maps.expressions import columns
from shared.maps.expressions.building import uncompiled
from shared.maps.expressions.kinds import data_type_of
from shared.maps.expressions.personal import SALT
from shared.maps.expressions.syntax import Expression, names_read, nearest, wrong

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

    from shared.maps.expressions.evaluator import Task
    from shared.maps.expressions.fakes import FakeSettings
    from shared.maps.expressions.values import Names, Thunk, Value

_FRESH = frozenset({"rand", "randint", "fake", ".now", ".today", ".utcnow"})


@dataclass(frozen=True)
class Planned:
    """An expression, ready to be computed.

    Attributes:
        expression: The expression.
        result: The type of its column.
        source: Path of the column that it is, unchanged; empty if it is computed.
        compiled: Whether Spark computes it; else Python does, on the executors.
        why: Why Spark does not.
        reads: The columns that it needs.
        fresh: Whether each evaluation has another result, so that two properties cannot share a
            column.
    """

    expression: Expression
    result: DataType
    _made: Copied | Compiled | Python = field(repr=False)
    source: tuple[str, ...] = ()
    compiled: bool = True
    why: str = ""
    reads: frozenset[str] = frozenset()
    fresh: bool = False

    def column(self) -> Column:
        """Make the column of results; null for rows with an error."""
        return self._made.value(self.result)

    def error(self) -> Column | None:
        """Make the column of errors, null for rows without one; None if errors cannot happen."""
        return self._made.error()

    def inside(self, values: Column, depth: int) -> Column:
        """Make arrays of structs of `value` and `error`; only for what Python computes.

        Args:
            values: Arrays of so many levels, of the values of `self`.
            depth: The levels.
        """
        assert isinstance(self._made, Python)  # noqa: S101
        return self._made.inside(values, depth)

    def taken(self, both: Column) -> Column:
        """Return the value of such a struct."""
        assert isinstance(self._made, Python)  # noqa: S101
        return self._made.taken(both, self.result)


@dataclass(frozen=True)
class Copied:
    """A copy of a column.

    Attributes:
        raw: Makes the column.
    """

    raw: Thunk

    def value(self, result: DataType) -> Column:  # noqa: ARG002 - as it is
        """Make the column of values."""
        return self.raw()

    def error(self) -> None:
        """Return None: a copy never fails."""


@dataclass(frozen=True)
class Compiled:
    """An expression that Spark computes.

    Attributes:
        column: Makes the column of values.
        failure: Makes the column of errors.
    """

    column: Thunk
    failure: Thunk | None

    def value(self, result: DataType) -> Column:
        """Make the column of values, of this type."""
        return self.column().cast(result)

    def error(self) -> Column | None:
        """Make the column of errors."""
        return self.failure() if self.failure is not None else None


@dataclass(frozen=True)
class Python:
    """An expression that Python computes: a column of values and errors.

    Attributes:
        task: The work of the executors.
        struct: The columns of the record.
        keyed: Whether it needs a column that distinguishes records.
    """

    task: Task
    struct: StructType
    keyed: bool = False

    @cached_property
    def both(self) -> Column:
        """Return the column of values and errors; one object, so that Spark computes it once."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        from shared.maps.expressions import python_columns  # noqa: PLC0415
        from shared.maps.expressions.records import named  # noqa: PLC0415
        from shared.maps.expressions.travel import send_by_value  # noqa: PLC0415

        send_by_value()
        fields = [self.struct[name] for name in self.task.expression.columns]
        inputs = [python_columns.view(field.dataType)(named(field)) for field in fields]
        if self.keyed or not inputs:
            inputs.append(python_columns.key(self.struct) if self.keyed else F.lit(True))
        task = self.task
        result = python_columns.result_type(task.form)
        made: Column = F.arrow_udf(lambda *arrays: task(arrays), result)(*inputs)  # type: ignore[attr-defined]
        return made

    def value(self, result: DataType) -> Column:
        """Make the column of values, of this type."""
        return self.taken(self.both, result)

    def taken(self, both: Column, result: DataType) -> Column:
        """Return the value of a struct of both."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        value = both["value"]
        if self.task.form.is_json():
            value = F.parse_json(value)
        return value.cast(result)

    def inside(self, values: Column, depth: int) -> Column:
        """Make arrays of both, for arrays of the values of the record's only column."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        from shared.maps.expressions import python_columns as columns  # noqa: PLC0415
        from shared.maps.expressions.evaluator import evaluated_inside  # noqa: PLC0415
        from shared.maps.expressions.travel import send_by_value  # noqa: PLC0415

        send_by_value()
        [field] = self.struct.fields
        views = [columns.view(field.dataType)] if self.task.expression.columns else []
        if self.keyed:
            views.append(lambda value: columns.key_of(value, field.dataType))
        views = views or [lambda _: F.lit(True)]
        inputs = [columns.within(values, depth, view) for view in views]
        task, result = self.task, columns.result_type(self.task.form)
        made: Column = F.arrow_udf(  # type: ignore[attr-defined]
            lambda *arrays: evaluated_inside(task, arrays, depth), columns.arrays_of(result, depth)
        )(*inputs)
        return made

    def error(self) -> Column:
        """Make the column of errors."""
        return self.both["error"]


def plan(
    expression: Expression,
    names: Names,
    where: Where,
    *,
    truth: bool = False,
    in_arrays: bool = False,
) -> Planned:
    """Plan how an expression is computed.

    Args:
        expression: The expression.
        names: The names that it can use.
        where: Its place in the settings.
        truth: Return a boolean: whether the result counts as true. For filters.
        in_arrays: Whether the record's only column is a value inside arrays, for Python to compute.

    Raises:
        SettingsError: It fails for every record, or needs something that is missing: an unknown
            name, a salt, the library Faker.
    """
    check_salt(expression, names, where)
    reads = names_read(expression, names.struct.names, names.own)
    compile_ = columns.condition if truth else columns.compiled
    value = compile_(expression, names, where)
    if in_arrays:
        value = uncompiled(value.kind, "values inside arrays")
    fresh = not _FRESH.isdisjoint(_named(expression.tree))
    if value.source and value.raw is not None and value.data_type is not None and not truth:
        if value.error is None:
            copied = Copied(value.raw)
            return Planned(expression, value.data_type, copied, value.source, reads=reads)
        # `item['sku']` fails if `item` is None.
        raw = Compiled(value.raw, value.error)
        return Planned(expression, value.data_type, raw, reads=reads)
    result = data_type_of(value.kind)
    if value.column is not None and value.kind.name != "any":
        made = Compiled(value.column, value.error)
        return Planned(expression, result, made, reads=reads, fresh=fresh)
    return _in_python(expression, names, where, value, reads, fresh=fresh, truth=truth)


def _in_python(
    expression: Expression,
    names: Names,
    where: Where,
    value: Value,
    reads: frozenset[str],
    *,
    fresh: bool,
    truth: bool,
) -> Planned:
    from shared.maps.expressions import python_columns  # noqa: PLC0415
    from shared.maps.expressions.evaluator import PortableExpression, Task  # noqa: PLC0415
    from shared.maps.expressions.personal import FUNCTIONS, Salted  # noqa: PLC0415

    fake = _fake(expression, names, where)
    result = data_type_of(value.kind)
    if value.kind.name == "decimal":
        result = python_columns.decimal(names.struct, reads)
    ordered = tuple(name for name in names.struct.names if name in reads)
    portable = PortableExpression(
        # On lines of its own: it may end in a comment.
        text=f"bool((\n{expression.text}\n))" if truth else expression.text,
        columns=ordered,
        own=names.own if "self" in _named(expression.tree) else None,
        fixed={
            "config": dict(names.config),
            "__stream_name__": names.stream,
            "__original_stream_name__": names.original,
        },
        functions={**FUNCTIONS, "hash_value": Salted(names.config.get(SALT))},
    )
    arrivals = [python_columns.arrival(names.struct[name].dataType) for name in ordered]
    keyed = fake is not None and fake.seed is not None
    task = Task(portable, arrivals, python_columns.form(value.kind, result), fake)
    if keyed:
        reads = frozenset(names.struct.names)
    python = Python(task, names.struct, keyed)
    why = value.why or "only Python knows its result"
    return Planned(expression, result, python, (), False, why, reads, fresh)


def _named(tree: ast.AST) -> set[str]:
    nodes = list(ast.walk(tree))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {f".{node.attr}" for node in nodes if isinstance(node, ast.Attribute)}


def _fake(expression: Expression, names: Names, where: Where) -> FakeSettings | None:
    """Return how `fake` invents values, if the expression uses it.

    Raises:
        SettingsError: Faker is not installed, does not know a language, or lacks a function.
    """
    from shared.maps.expressions import fakes  # noqa: PLC0415

    if "fake" not in _named(expression.tree):
        return None
    if importlib.util.find_spec("faker") is None:
        hint = "pip install 'singer-spark[faker]', here and where Spark's workers run"
        raise SettingsError("fake needs the library Faker", where=where, hint=hint)
    config = names.faker or {}
    settings = fakes.FakeSettings(config.get("locale"), config.get("seed"), str(where.setting))
    try:
        known = fakes.Fakes(settings)
    except (AttributeError, ImportError, TypeError, ValueError) as error:
        raise SettingsError(f"fake: {error}", where=Where(setting="faker_config.locale")) from None
    for node in ast.walk(expression.tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        if node.value.id == "fake" and not known.has(node.attr):
            near = nearest(node.attr, sorted(known.names))
            raise wrong(expression, node, f"fake has no '{node.attr}' here{near}", where)
    return settings


def check_salt(expression: Expression, names: Names, where: Where) -> None:
    """Check that the settings have a salt if a call of `hash_value` has none.

    Raises:
        SettingsError: The salt is missing.
    """
    salt = names.config.get(SALT)
    if isinstance(salt, str) and salt:
        return
    for node in ast.walk(expression.tree):
        if _unsalted(node):
            hint = f"set stream_map_config.{SALT} to a long secret text, or give salt=..."
            error = wrong(expression, node, "hash_value() needs a salt", where)
            raise SettingsError(error.message, where=where, hint=hint)


def _unsalted(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    given = len(node.args) > 1 or any(keyword.arg == "salt" for keyword in node.keywords)
    return node.func.id == "hash_value" and not given
