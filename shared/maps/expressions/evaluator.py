"""Evaluates expressions in Python if Spark cannot compute the same; runs on the executors.

Syntax and results are those of `simpleeval`, narrowed by `sandbox`. Its check of every value for
modules and dangerous functions is omitted: the names in `sandbox` do not reach either.

Why beside columns: the Meltano SDK's expressions may be any Python of `simpleeval`.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import simpleeval

from shared.maps.expressions import sandbox
from shared.maps.expressions.arrow_results import reader, records, results, taken
from shared.maps.expressions.personal import Fakes, FakeSettings
from shared.maps.expressions.value_kinds import Kind

LONGEST_ERROR = 500
Readers = Sequence[Callable[[pa.Array], list[Any]]]


@dataclass(frozen=True)
class PortableExpression:
    """An expression in the form that is sent to the executors.

    Attributes:
        text: The expression.
        columns: Names of the columns that a record has here, in order.
        own: The column of `self`.
        fixed: Names whose values are the same in all records: `config`, `__stream_name__`, ...
        functions: More functions, by name.
    """

    text: str
    columns: tuple[str, ...] = ()
    own: str | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


class Evaluator(simpleeval.EvalWithCompoundTypes):  # type: ignore[misc]
    """Evaluates one expression for record after record; `fake` is the value of that name."""

    def __init__(self, expression: PortableExpression, fake: Fakes | None = None) -> None:
        self.meter = sandbox.Meter()
        super().__init__(
            operators=sandbox.operators(self.meter),
            functions={**sandbox.functions(self.meter), **expression.functions},
        )
        # The base class adds its own.
        self.functions.update(sandbox.containers(self.meter))
        for kind in _NEVER:
            del self.nodes[kind]
        self.nodes[ast.Constant] = lambda node: node.value
        self.attributes = sandbox.attributes()
        self.expression = expression
        self.expr = expression.text
        self.tree: ast.AST = ast.parse(expression.text.strip(), mode="eval").body
        self.names: dict[str, Any] = {}
        self.fake = {} if fake is None else {"fake": fake}
        self.special: dict[str, Any] = {**expression.fixed, **self.fake}
        # Only `pop` changes a value: values that are the same for all records are then copied.
        nodes = ast.walk(self.tree)
        self.changes = any(isinstance(node, ast.Attribute) and node.attr == "pop" for node in nodes)

    def value(self, record: dict[str, Any]) -> Any:
        """Evaluate for a record, which may be changed.

        Raises:
            Exception: Any error of Python.
        """
        special = self.special
        if self.changes:
            special = self.special = copy.deepcopy({**self.expression.fixed}) | self.fake
        special["record"] = special["_"] = self.names = record
        if self.expression.own is not None:
            special["self"] = record.get(self.expression.own)
        self._max_count = 0
        self.meter.begin(record)
        return self._eval(self.tree)

    def _eval(self, node: ast.AST) -> Any:
        try:
            handler = self.nodes[type(node)]
        except KeyError:
            kind = type(node).__name__
            raise simpleeval.FeatureNotAvailable(f"{kind} is not available") from None
        return handler(node)

    def _eval_name(self, node: ast.Name) -> Any:
        name = node.id
        if name in self.special:
            return self.special[name]
        if name in self.names:
            return self.names[name]
        if name in self.functions:
            return self.functions[name]
        raise simpleeval.NameNotDefined(name, self.expr)

    def _eval_call(self, node: ast.Call) -> Any:
        # As the base class does, which takes a fifth longer for an expression.
        called = node.func
        if isinstance(called, ast.Attribute):
            function = self._eval(called)
        elif isinstance(called, ast.Name) and called.id in self.functions:
            function = self.functions[called.id]
        else:
            raise simpleeval.FunctionNotDefined(ast.unparse(called), self.expr)
        args = [self._eval(arg) for arg in node.args]
        keywords = {str(k.arg): self._eval(k.value) for k in node.keywords}
        result = function(*args, **keywords)
        if type(result) in _LONG:
            self.meter.count(len(result))
        return result

    def _eval_subscript(self, node: ast.Subscript) -> Any:
        result = self._eval(node.value)[self._eval(node.slice)]
        if type(node.slice) is ast.Slice and type(result) in _LONG:
            self.meter.count(len(result))
        return result

    def _eval_attribute(self, node: ast.Attribute) -> Any:
        name = node.attr
        if name.startswith(("_", "func_")) or name in simpleeval.DISALLOW_METHODS:
            raise simpleeval.FeatureNotAvailable(f"attribute '{name}' is not available")
        return self._attribute(self._eval(node.value), name)

    def _attribute(self, value: Any, name: str) -> Any:
        kind = type(value)
        if name in self.attributes.get(kind, ()):
            return self._data_attribute(value, name)
        if kind is dict and name in value:
            return value[name]
        if kind is sandbox.Namespace and name in value.parts:
            return value.parts[name]
        if kind is type and value in sandbox.CLASSES and name in self.attributes[value]:
            return getattr(value, name)
        if isinstance(value, Fakes):
            return value.attribute(name)
        if value is None and any(name in names for names in self.attributes.values()):
            # As Spark's columns say it.
            raise AttributeError(f"'NoneType' object has no attribute '{name}'")
        raise simpleeval.AttributeDoesNotExist(name, self.expr)

    def _data_attribute(self, value: Any, name: str) -> Any:
        if name in sandbox.GUARDED and isinstance(value, str):
            return self.meter.method(value, name)
        return sandbox.bytes_text(value, name) if isinstance(value, bytes) else getattr(value, name)

    def _eval_joinedstr(self, node: ast.JoinedStr) -> str:
        parts = []
        for part in node.values:
            value = part.value if type(part) is ast.Constant else self._eval_formattedvalue(part)
            parts.append(value if type(value) is str else self.meter.text(value))
        joined = "".join(parts)
        if len(joined) > sandbox.LONGEST:
            sandbox.too_long()
        return joined

    def _eval_formattedvalue(self, node: Any) -> Any:
        # As in the SDK, `!r` and the like are ignored.
        value = self._eval(node.value)
        if node.format_spec is None:
            return value
        return self.meter.formatted(value, self._eval(node.format_spec))


_LONG = frozenset({str, bytes, list, tuple, set, dict})
_NEVER = (ast.Assign, ast.AugAssign, ast.Import)


def short_error(error: BaseException) -> str:
    """Return the error of Python in one line: `TypeError: ...`."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= LONGEST_ERROR else text[:LONGEST_ERROR] + "…"


@dataclass(eq=False)
class Task:
    """Evaluates an expression for one batch after another, called by an Arrow function of Spark.

    Attributes:
        expression: The expression.
        arrivals: The kinds of its columns that arrive as JSON text, None for the others; in order.
        kind: The kind of its results.
        fake: How values are invented, if they are. With a seed, one more column distinguishes
            records.
    """

    expression: PortableExpression
    arrivals: Sequence[Kind | None]
    kind: Kind
    fake: FakeSettings | None = None
    _ready: tuple[Evaluator, Readers, Fakes | None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ready": None}

    def __call__(self, arrays: Sequence[pa.Array]) -> pa.StructArray:
        """Evaluate for a batch of columns, of one length; return structs of `value` and `error`.

        Columns beyond the expression's only show the length, or distinguish records.
        """
        if self._ready is None:
            fakes = Fakes(self.fake) if self.fake else None
            evaluator = Evaluator(self.expression, fakes)
            self._ready = evaluator, [reader(kind) for kind in self.arrivals], fakes
        evaluator, readers, fakes = self._ready
        evaluate, take = evaluator.value, taken(self.kind)
        rows, own = len(arrays[0]), arrays[: len(self.arrivals)]
        values: list[Any] = []
        errors: list[str | None] = []
        seeds = arrays[-1].to_pylist() if self.fake and self.fake.seed is not None else None
        for at, record in enumerate(self._records(readers, own, rows)):
            error = None
            try:
                if isinstance(record, Exception):
                    raise record
                if fakes and seeds:
                    fakes.begin(seeds[at])
                value = take(evaluate(record))
            except Exception as raised:
                value, error = None, short_error(raised)
            values.append(value)
            errors.append(error)
        return results(self.kind, values, errors)

    def _records(
        self, readers: Readers, arrays: Sequence[pa.Array], rows: int
    ) -> Sequence[dict[str, Any] | Exception]:
        """Read a batch; if that fails, one by one, so that one record does not spoil others."""
        try:
            return records(self.expression.columns, readers, arrays, rows)
        except (RecursionError, ValueError, ArithmeticError) as error:
            if rows == 1:
                return [error]
            ones = ([array.slice(at, 1) for array in arrays] for at in range(rows))
            return [self._records(readers, one, 1)[0] for one in ones]


def evaluated_inside(task: Task, arrays: Sequence[pa.Array], depth: int) -> pa.Array:
    """Evaluate for the values inside lists of so many levels; return lists of structs."""
    if not depth:
        return task(arrays)
    lists = arrays[0]
    below = evaluated_inside(task, [array.flatten() for array in arrays], depth - 1)
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    offsets = pa.array([0, *pc.cumulative_sum(lengths).to_pylist()], pa.int32())
    return pa.ListArray.from_arrays(offsets, below, mask=lists.is_null())
