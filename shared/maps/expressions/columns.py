"""Compiles expressions: from a syntax tree to values with columns."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from shared.errors import Where
from shared.maps.expressions import comparisons, functions, operators, records, texts
from shared.maps.expressions.building import (
    Fails,
    computed,
    constant,
    failing,
    folded,
    settled,
    uncompiled,
)
from shared.maps.expressions.kinds import ANY, BOOL, Kind
from shared.maps.expressions.scope import Scope, Unknown
from shared.maps.expressions.syntax import Expression, bound_by, wrong
from shared.maps.expressions.truth import chosen, either, every, negated, truth
from shared.maps.expressions.values import Call, Names, Value

MAX_COMPILED_DEPTH = 20
MAX_WEIGHT = 4000
"""How often all parts of an expression may be computed for one record."""


def compiled(expression: Expression, names: Names, where: Where) -> Value:
    """Compile an expression.

    Args:
        expression: The expression.
        names: The names that it can use.
        where: Its place in the settings.

    Returns:
        Its value: without a column if only the evaluator computes the same as Python.

    Raises:
        SettingsError: A name is unknown, or it raises for every record; with the position.
    """
    return _guarded(expression, where, _Compiler(names), _Compiler.value)


def condition(expression: Expression, names: Names, where: Where) -> Value:
    """Compile the truth of an expression, as a filter needs it: a bool that is never None.

    Raises:
        SettingsError: As of `compiled`.
    """
    return _guarded(expression, where, _Compiler(names), _Compiler.condition)


def _guarded(
    expression: Expression,
    where: Where,
    compiler: _Compiler,
    compile_: Callable[[_Compiler, ast.expr], Value],
) -> Value:
    tree = expression.tree
    try:
        value = compile_(compiler, tree)
    except Unknown as unknown:
        raise wrong(expression, unknown.node, unknown.message, where) from None
    except Fails as fails:
        node = fails.node or tree
        raise wrong(expression, node, f"{fails.text}, for every record", where) from None
    if value.column is not None and (
        _depth(tree) > MAX_COMPILED_DEPTH or compiler.weight(tree) > MAX_WEIGHT
    ):
        return uncompiled(value.kind, "an expression as large as this")
    return value


def _depth(node: ast.AST) -> int:
    return 1 + max((_depth(child) for child in ast.iter_child_nodes(node)), default=0)


class _Compiler:
    """Walks a syntax tree. Every method returns a value, or raises `Fails` or `Unknown`."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._scope = Scope(names)

    def value(self, node: ast.AST) -> Value:
        """Return the value of a node."""
        try:
            value: Value = getattr(self, f"_{type(node).__name__.lower()}")(node)
        except Fails as fails:
            fails.node = fails.node or (node if isinstance(node, ast.expr) else None)
            raise
        return value

    def weight(self, node: ast.AST) -> int:
        """Estimate how many parts its column has: an operand may be in it several times."""
        below = sum(self.weight(child) for child in ast.iter_child_nodes(node))
        if isinstance(node, ast.BinOp):
            return 1 + below * _USES.get(type(node.op), 1)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return 1 + below * _METHOD_USES.get(node.func.attr, _USES[ast.Call])
        return 1 + below * _USES.get(type(node), 1)

    def condition(self, node: ast.expr) -> Value:
        """Return the truth of a node, whose parts may be of any kinds."""
        if isinstance(node, ast.BoolOp):
            return self._all_or_any(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return negated(self.condition(node.operand))
        if isinstance(node, ast.IfExp):
            return self._chosen(node, self.condition)
        return truth(self.value(node))

    def _all_or_any(self, node: ast.BoolOp) -> Value:
        stops = isinstance(node.op, ast.Or)
        result = self.condition(node.values[0])
        for operand in node.values[1:]:
            if result.is_known and result.known is stops:
                return result
            result = self._both(result, self._branch(operand, self.condition), stops=stops)
        return result

    @staticmethod
    def _both(one: Value, other: Value, *, stops: bool) -> Value:
        """Return `one or other` of two truths if `stops`, else `one and other`."""
        if one.is_known or other.error is not None or other.kind.name != "bool":
            other = truth(other)
            pair = (constant(True), other) if stops else (other, constant(False))
            return chosen(one, *pair)
        return computed(BOOL, lambda a, b: a | b if stops else a & b, one, other)

    def _branch(self, node: ast.expr, compile_: Callable[[ast.expr], Value]) -> Value:
        """Return a value that is not evaluated for every record, so that it may fail for those."""
        try:
            return compile_(node)
        except Fails as fails:
            return failing(fails.text)

    def _chosen(self, node: ast.IfExp, compile_: Callable[[ast.expr], Value]) -> Value:
        test = self.condition(node.test)
        if test.is_known:
            return compile_(node.body if test.known else node.orelse)
        return chosen(test, self._branch(node.body, compile_), self._branch(node.orelse, compile_))

    def _ifexp(self, node: ast.IfExp) -> Value:
        return self._chosen(node, self.value)

    def _boolop(self, node: ast.BoolOp) -> Value:
        stops = isinstance(node.op, ast.Or)
        values: list[Value] = []
        for place, operand in enumerate(node.values):
            value = self._branch(operand, self.value) if values else self.value(operand)
            last = place == len(node.values) - 1
            if value.is_known and not last and bool(value.known) is not stops:
                continue
            values.append(value)
            if value.is_known and bool(value.known) is stops:
                break
        return (either if stops else every)(values)

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return negated(self.condition(node.operand))
        return operators.unary(node.op, self.value(node.operand))

    def _binop(self, node: ast.BinOp) -> Value:
        return operators.binary(node.op, self.value(node.left), self.value(node.right))

    def _compare(self, node: ast.Compare) -> Value:
        result, left = self._compared(node.ops[0], self.value(node.left), node.comparators[0])
        for op, comparator in zip(node.ops[1:], node.comparators[1:], strict=True):
            if result.is_known and not result.known:
                break
            try:
                following, left = self._compared(op, left, comparator)
            except Fails as fails:
                following = left = failing(fails.text)
            result = self._both(result, following, stops=False)
        return result

    def _compared(self, op: ast.cmpop, left: Value, node: ast.expr) -> tuple[Value, Value]:
        """Return a comparison, and its right side for the next one."""
        if isinstance(op, (ast.In, ast.NotIn)):
            found, right = self._contained(left, node)
            return (negated(found) if isinstance(op, ast.NotIn) else found), right
        right = self.value(node)
        return operators.compared(op, left, right), right

    def _contained(self, left: Value, node: ast.expr) -> tuple[Value, Value]:
        if self._scope.is_record(node):
            keys = [constant(name) for name in self._names.struct.names]
            return comparisons.among(left, keys, hashed=True), records.whole(self._names.struct)
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)) and not _has_star(node):
            parts = [self.value(part) for part in node.elts]
            found = comparisons.among(left, parts, hashed=isinstance(node, ast.Set))
            return found, uncompiled(ANY, "a comparison of what was looked into")
        right = self.value(node)
        return comparisons.contained(left, right), right

    def _constant(self, node: ast.Constant) -> Value:
        return constant(node.value)

    def _name(self, node: ast.Name) -> Value:
        return self._scope.value(node)

    def _subscript(self, node: ast.Subscript) -> Value:
        if isinstance(node.slice, ast.Slice):
            return self._sliced(self.value(node.value), node.slice)
        key = node.slice
        if self._scope.is_record(node.value) and isinstance(key, ast.Constant):
            return self._scope.property(key, str(key.value))
        container = self.value(node.value)
        return operators.item(container, self.value(key))

    def _sliced(self, container: Value, node: ast.Slice) -> Value:
        ends = [self.value(end) if end else None for end in (node.lower, node.upper, node.step)]
        return operators.sliced(container, ends)

    def _attribute(self, node: ast.Attribute) -> Value:
        if self._scope.is_record(node.value) and not hasattr(dict, node.attr):
            return self._scope.property(node, node.attr)
        module = self._scope.dotted(node)
        if module is not None:
            return functions.module_attribute(module)
        if self._scope.is_fake(node.value):
            return uncompiled(ANY, "fake")
        return operators.attribute(self.value(node.value), node.attr)

    def _call(self, node: ast.Call) -> Value:
        func = node.func
        if isinstance(func, ast.Name):
            return functions.function(func.id, self._arguments(node))
        dotted = self._scope.dotted(func)
        if dotted is not None:
            return functions.function(dotted, self._arguments(node))
        if not isinstance(func, ast.Attribute):
            raise Fails("TypeError: only functions and methods can be called")
        if self._scope.is_fake(func.value):
            return functions.fake(func.attr, self._arguments(node))
        if self._scope.is_record(func.value) and func.attr == "get":
            return self._get(self._arguments(node))
        owner = self.value(func.value)
        return functions.method(owner, func.attr, self._arguments(node))

    def _get(self, call: Call) -> Value:
        """Return `record.get(key, default)`; a column that a record lacks is None here."""
        key = functions.key_of(call)
        if key is None:
            return uncompiled(ANY, "a key that is not known", *call.args)
        if key in self._names.struct.names:
            return records.column(key, self._names.struct)
        return call.args[1] if len(call.args) > 1 else constant(None)

    def _arguments(self, node: ast.Call) -> Call:
        args = tuple(self.value(argument) for argument in node.args)
        keywords = {str(k.arg): self.value(k.value) for k in node.keywords}
        return Call(node, args, keywords, self._names)

    def _joinedstr(self, node: ast.JoinedStr) -> Value:
        parts: list[texts.Part] = []
        for part in node.values:
            if not isinstance(part, ast.FormattedValue):
                parts.append(str(self.value(part).known))
                continue
            if part.format_spec is not None:
                self.value(part.format_spec)
            # As in the SDK, `!r` and the like are ignored.
            parts.append((settled(self.value(part.value)), part.format_spec is not None))
        return texts.formatted(parts)

    def _list(self, node: ast.List) -> Value:
        if _has_star(node):
            inside = [part.value if isinstance(part, ast.Starred) else part for part in node.elts]
            return uncompiled(Kind("list"), "'*' in a list", *map(self.value, inside))
        return self._listed(node.elts, list)

    def _tuple(self, node: ast.Tuple) -> Value:
        return self._listed(node.elts, tuple)

    def _set(self, node: ast.Set) -> Value:
        return self._listed(node.elts, frozenset)

    def _listed(self, nodes: Sequence[ast.expr], make: Callable[[Any], object]) -> Value:
        parts = [settled(self.value(node)) for node in nodes]
        if all(part.is_known for part in parts):
            return folded(lambda *known: make(known), *parts)
        return uncompiled(ANY, "a set", *parts) if make is frozenset else records.listed(parts)

    def _dict(self, node: ast.Dict) -> Value:
        keys = [self.value(key) for key in node.keys if key is not None]
        values = [settled(self.value(value)) for value in node.values]
        if len(keys) == len(values) and all(part.is_known for part in (*keys, *values)):
            pairs = [key.known for key in keys], [value.known for value in values]
            return folded(lambda *_: dict(zip(*pairs, strict=True)), *keys)
        known = [key.known for key in keys if isinstance(key.known, str)]
        if len(known) < len(values):
            return uncompiled(Kind("dict"), "a dict whose keys are not known", *values)
        parts = dict(zip(known, values, strict=True))
        if len(parts) < len(values):
            return uncompiled(Kind("dict"), "a key that comes twice", *values)
        return records.mapping(list(parts), list(parts.values()))

    def _listcomp(self, node: ast.ListComp) -> Value:
        return self._comprehension(node, [node.elt])

    def _generatorexp(self, node: ast.GeneratorExp) -> Value:
        return self._comprehension(node, [node.elt])

    def _dictcomp(self, node: ast.DictComp) -> Value:
        return self._comprehension(node, [node.key, node.value])

    def _comprehension(
        self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp, results: Sequence[ast.expr]
    ) -> Value:
        first, *others = node.generators
        self.value(first.iter)
        inside = [*(part.iter for part in others), *(i for g in node.generators for i in g.ifs)]
        with self._scope.binding(bound_by(node)):
            for part in inside:
                self._branch(part, self.value)
            kinds = [self._branch(result, self.value).kind for result in results]
        kind = Kind("dict") if isinstance(node, ast.DictComp) else _list_of(kinds[0])
        return uncompiled(kind, "a comprehension")


def _list_of(kind: Kind) -> Kind:
    return Kind("list") if kind.name in {"any", "none"} else Kind("list", item=kind)


def _has_star(node: ast.List | ast.Tuple | ast.Set) -> bool:
    return any(isinstance(part, ast.Starred) for part in node.elts)


_USES: dict[type[ast.AST], int] = {
    ast.Div: 3,
    ast.Mod: 3,
    ast.FloorDiv: 4,
    ast.BoolOp: 2,
    ast.Compare: 2,
    ast.Call: 2,
    ast.Subscript: 2,
}
_METHOD_USES = dict.fromkeys(("lower", "upper"), 5)
