"""Compiles expressions: from a syntax tree to values with columns."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from shared.errors import Where
from shared.maps.expressions import functions, operators, records, scalars
from shared.maps.expressions.functions import Call
from shared.maps.expressions.operators import both, chosen, first_of, negated, truth
from shared.maps.expressions.personal import SALT
from shared.maps.expressions.syntax import (
    FUNCTION_NAMES,
    MODULES,
    RECORD_NAMES,
    SPECIAL_NAMES,
    Expression,
    nearest,
    wrong,
)
from shared.maps.expressions.value_kinds import ANY, STR, Kind, joined
from shared.maps.expressions.values import (
    F,
    Fails,
    Names,
    Value,
    computed,
    constant,
    failing,
    folded,
    settled,
    uncompiled,
)

MAX_COMPILED_DEPTH = 20
MAX_WEIGHT = 4000
"""How often all parts of an expression may be computed for one record."""


_CONTAINERS: Mapping[type[ast.AST], Callable[..., object]] = {
    ast.List: list,
    ast.Tuple: tuple,
    ast.Set: frozenset,
}
_NO_SALT = (
    f"hash_value() needs a salt: set stream_map_config.{SALT} to a long secret text, or give "
    "salt=..."
)


class _Wrong(Exception):  # noqa: N818
    """A name is unknown, or something is missing, for every record."""

    def __init__(self, node: ast.AST, message: str) -> None:
        super().__init__(message)
        self.node = node


def compiled(
    expression: Expression, names: Names, where: Where, *, is_truth: bool = False
) -> tuple[Value, frozenset[str], Mapping[int, ast.expr]]:
    """Compile an expression, or its truth, as a filter needs it: a bool that is never None.

    Returns:
        Its value, without a column if only the evaluator computes the same as Python; the columns
        that the evaluator needs; and what it has in place of nodes, by their `id`.

    Raises:
        SettingsError: A name is unknown, or it raises for every record; with the position.
    """
    tree, compiler = expression.tree, _Compiler(names)
    try:
        value = compiler.condition(tree) if is_truth else compiler.value(tree)
    except _Wrong as error:
        raise wrong(expression, error.node, str(error), where) from None
    except Fails as fails:
        text = f"{fails.text}, for every record"
        raise wrong(expression, fails.node or tree, text, where) from None
    depth, weight = _size(tree)
    if value.column is not None and (depth > MAX_COMPILED_DEPTH or weight > MAX_WEIGHT):
        value = uncompiled(value.kind, "an expression as large as this")
    return value, frozenset(compiler.reads), compiler.times


def _size(node: ast.AST) -> tuple[int, int]:
    """Return levels, and about how many parts its column has: an operand may be in several."""
    below = [_size(child) for child in ast.iter_child_nodes(node)]
    uses = _USES.get(type(getattr(node, "op", node)), 1)
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in {"lower", "upper"}:
        uses = 5
    depth = 1 + max((levels for levels, _ in below), default=0)
    return depth, 1 + uses * sum(parts for _, parts in below)


_USES: Mapping[type, int] = {
    **{ast.Div: 3, ast.Mod: 3, ast.FloorDiv: 4, ast.And: 2, ast.Or: 2, ast.Compare: 2},
    **{ast.Call: 2, ast.Subscript: 2},
}


class _Compiler:
    """Walks a syntax tree in the order in which Python evaluates it.

    Every method returns a value, or raises `Fails` or `_Wrong`.
    """

    def __init__(self, names: Names) -> None:
        self.reads: set[str] = set()
        self.times: dict[int, ast.expr] = {}
        self._names = names
        self._columns = {field.name: field for field in names.struct}
        self._bound: frozenset[str] = frozenset()

    def value(self, node: ast.AST) -> Value:
        try:
            value: Value = getattr(self, f"_{type(node).__name__.lower()}")(node)
        except Fails as fails:
            fails.node = fails.node or (node if isinstance(node, ast.expr) else None)
            raise
        return value

    def condition(self, node: ast.expr) -> Value:
        """Return the truth of a node, whose parts may be of any kinds."""
        if isinstance(node, ast.BoolOp):
            stops = isinstance(node.op, ast.Or)
            result = self.condition(node.values[0])
            for operand in node.values[1:]:
                if result.is_constant and result.constant is stops:
                    return result
                result = both(result, self._branch(operand, self.condition), stops=stops)
            return result
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return negated(self.condition(node.operand))
        if isinstance(node, ast.IfExp):
            return self._chosen(node, self.condition)
        return truth(self.value(node))

    def _branch(self, node: ast.expr, compile_: Callable[[ast.expr], Value]) -> Value:
        """Return a value that is not evaluated for every record, so that it may fail for those."""
        try:
            return compile_(node)
        except Fails as fails:
            return failing(fails.text)

    def _chosen(self, node: ast.IfExp, compile_: Callable[[ast.expr], Value]) -> Value:
        test = self.condition(node.test)
        if test.is_constant:
            return compile_(node.body if test.constant else node.orelse)
        return chosen(test, self._branch(node.body, compile_), self._branch(node.orelse, compile_))

    def _ifexp(self, node: ast.IfExp) -> Value:
        return self._chosen(node, self.value)

    def _boolop(self, node: ast.BoolOp) -> Value:
        stops = isinstance(node.op, ast.Or)
        values: list[Value] = []
        for place, operand in enumerate(node.values):
            value = self._branch(operand, self.value) if values else self.value(operand)
            last = place == len(node.values) - 1
            if last or not value.is_constant or bool(value.constant) is stops:
                values.append(value)
            if value.is_constant and bool(value.constant) is stops:
                break
        return first_of(values, stops=stops)

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return negated(self.condition(node.operand))
        return operators.unary(node.op, self.value(node.operand))

    def _binop(self, node: ast.BinOp) -> Value:
        return operators.binary(node.op, self.value(node.left), self.value(node.right))

    def _compare(self, node: ast.Compare) -> Value:
        left = self.value(node.left)
        nodes = [node.left, *node.comparators]
        result, left = self._compared(node.ops[0], left, *nodes[:2])
        for op, before, comparator in zip(node.ops[1:], nodes[1:], nodes[2:], strict=False):
            if result.is_constant and not result.constant:
                break
            try:
                following, left = self._compared(op, left, before, comparator)
            except Fails as fails:
                following = left = failing(fails.text)
            result = both(result, following, stops=False)
        return result

    def _compared(
        self, op: ast.cmpop, left: Value, before: ast.expr, node: ast.expr
    ) -> tuple[Value, Value]:
        """Return a comparison, and its right side for the next one."""
        if not isinstance(op, (ast.In, ast.NotIn)):
            right = self._time(left, self.value(node), node)
            left = self._time(right, left, before)
            return operators.compared(op, left, right), right
        right = uncompiled(ANY, "a comparison of what was looked into")
        if self._is_record(node):
            keys = [constant(name) for name in self._columns]
            result = operators.among(left, keys, hashed=True)
            self.reads |= {
                key for key in self._columns if key == left.constant or not left.is_constant
            }
        elif isinstance(node, (ast.List, ast.Tuple, ast.Set)) and not _has_star(node):
            parts = [self._time(left, self.value(part), part) for part in node.elts]
            texts = {records.time_text(part, left.constant) for part in parts}
            # A text column beside them has the constant as it is written.
            if parts and len(texts) == 1:
                left = self._time(parts[0], left, before)
            result = operators.among(left, parts, hashed=isinstance(node, ast.Set))
        else:
            right = self.value(node)
            result = operators.contained(left, right)
        return (negated(result) if isinstance(op, ast.NotIn) else result), right

    def _time(self, column: Value, value: Value, node: ast.expr) -> Value:
        """Return a date-time that is compared with a column as that has it, whatever its form."""
        text = records.time_text(column, value.constant)
        if text is None:
            return value
        self.times[id(node)] = ast.Constant(text)
        return constant(text)

    def _constant(self, node: ast.Constant) -> Value:
        return constant(node.value)

    def _name(self, node: ast.Name) -> Value:
        name, names = node.id, self._names
        if name in self._bound:
            return uncompiled(ANY, "a comprehension")
        if name in RECORD_NAMES:
            fields = tuple((name, self._column(name).kind) for name in self._columns)
            return uncompiled(Kind("dict", fields=fields), "the record")
        if name in SPECIAL_NAMES:
            streams = {"__stream_name__": names.stream, "__original_stream_name__": names.original}
            return constant(streams.get(name, dict(names.config)))
        if self._is_fake(node):
            return uncompiled(ANY, "fake")
        column = names.own if name == "self" and names.own in self._columns else name
        if column in self._columns:
            return self._column(str(column))
        raise _Wrong(node, self._unknown(name))

    def _unknown(self, name: str) -> str:
        names = [*self._columns, *SPECIAL_NAMES, "self", *sorted(FUNCTION_NAMES)]
        own = self._names.own
        text = "a filter has none"
        if own is not None:
            text = f"the record has no property '{own}'{nearest(own, list(self._columns))}"
        texts = {
            **dict.fromkeys(FUNCTION_NAMES, f"'{name}' is a function: call it"),
            **dict.fromkeys(MODULES, f"'{name}' is a module, not a value"),
            "self": f"unknown name 'self': {text}",
            "fake": "unknown name 'fake': it needs the extra 'faker'",
        }
        return texts.get(name, f"unknown name '{name}'{nearest(name, names)}")

    def _column(self, name: str) -> Value:
        self.reads.add(name)
        return records.column(self._columns[name])

    def _property(self, node: ast.expr, name: str) -> Value:
        """Return the column that a key of the record names."""
        if name not in self._columns:
            near = nearest(name, list(self._columns))
            raise _Wrong(node, f"unknown property '{name}'{near}")
        return self._column(name)

    def _is_record(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id in RECORD_NAMES and node.id not in self._bound

    def _is_fake(self, node: ast.AST) -> bool:
        """Return whether a node is `fake`, and not a name that a comprehension binds."""
        named = isinstance(node, ast.Name) and node.id == "fake" and "fake" not in self._bound
        return named and self._names.faker is not None

    def _dotted(self, node: ast.AST) -> str | None:
        """Return the dotted name of something in a module; None for anything else."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in MODULES or not parts:
            return None
        hidden = node.id in self._bound or node.id in self._columns
        return None if hidden else ".".join([node.id, *reversed(parts)])

    def _subscript(self, node: ast.Subscript) -> Value:
        key = node.slice
        if self._is_record(node.value) and isinstance(key, ast.Constant):
            return self._property(key, str(key.value))
        container = self.value(node.value)
        if not isinstance(key, ast.Slice):
            return operators.item(container, self.value(key))
        ends = [self.value(end) if end else None for end in (key.lower, key.upper, key.step)]
        return operators.sliced(container, ends)

    def _attribute(self, node: ast.Attribute) -> Value:
        if self._is_record(node.value) and not hasattr(dict, node.attr):
            return self._property(node, node.attr)
        module = self._dotted(node)
        if module is not None:
            functions.module_attribute(module)
            return uncompiled(ANY, module)
        if self._is_fake(node.value):
            return uncompiled(ANY, "fake")
        return operators.attribute(self.value(node.value), node.attr)

    def _call(self, node: ast.Call) -> Value:
        func, dotted = node.func, self._dotted(node.func)
        if isinstance(func, ast.Name):
            dotted = func.id
        if dotted is not None:
            call = self._arguments(node)
            salted = len(call.args) > 1 or "salt" in call.keywords
            salt = self._names.config.get(SALT)
            if dotted == "hash_value" and not salted and not (isinstance(salt, str) and salt):
                raise _Wrong(node, _NO_SALT)
            return functions.function(dotted, call, self._names)
        if not isinstance(func, ast.Attribute):
            raise Fails("TypeError: only functions and methods can be called")
        if self._is_fake(func.value):
            self._arguments(node)
            return functions.fake(func.attr, self._names)
        if self._is_record(func.value) and func.attr == "get":
            return self._get(self._arguments(node))
        owner = self.value(func.value)
        return functions.method(owner, func.attr, self._arguments(node))

    def _get(self, call: Call) -> Value:
        """Return `record.get(key, default)`; a column that a record lacks is None here."""
        key = functions.key_of(call)
        if key is None:
            self.reads |= {*self._columns}
            return uncompiled(ANY, "a key that is not known", *call.args)
        if key in self._columns:
            return self._column(key)
        return call.args[1] if len(call.args) > 1 else constant(None)

    def _arguments(self, node: ast.Call) -> Call:
        args = tuple(self.value(argument) for argument in node.args)
        return Call(args, {str(k.arg): self.value(k.value) for k in node.keywords})

    def _joinedstr(self, node: ast.JoinedStr) -> Value:
        parts = [self.value(part) for part in node.values]
        if all(part.is_constant for part in parts):
            return constant("".join(part.constant for part in parts))
        return computed(STR, F.concat, *parts)

    def _formattedvalue(self, node: ast.FormattedValue) -> Value:
        # As in the SDK, `!r` and the like are ignored.
        value = settled(self.value(node.value))
        if node.format_spec is None:
            return scalars.text_of(value)
        self.value(node.format_spec)
        return uncompiled(STR, f"a format of {value.kind.not_none()}", value)

    def _list(self, node: ast.List | ast.Tuple | ast.Set) -> Value:
        inside = [part.value if isinstance(part, ast.Starred) else part for part in node.elts]
        parts, star = [settled(self.value(part)) for part in inside], _has_star(node)
        if not star and all(part.is_constant for part in parts):
            return folded(lambda *constants: _CONTAINERS[type(node)](constants), *parts)
        item = None if star else joined(part.kind for part in parts)
        kind = ANY if isinstance(node, ast.Set) else Kind("list", item=item)
        return uncompiled(kind, "a list", *parts)

    _tuple = _set = _list

    def _dict(self, node: ast.Dict) -> Value:
        keys = [self.value(key) for key in node.keys if key is not None]
        values = [settled(self.value(value)) for value in node.values]
        half = len(keys)
        if half == len(values) and all(part.is_constant for part in (*keys, *values)):
            make = lambda *constants: dict(zip(constants[:half], constants[half:], strict=True))  # noqa: E731
            return folded(make, *keys, *values)
        names = [key.constant for key in keys if isinstance(key.constant, str)]
        fields = zip(names, (value.kind for value in values), strict=False)
        alone = len({*names}) == len(values)
        return uncompiled(Kind("dict", fields=tuple(fields) if alone else ()), "a dict", *values)

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp) -> Value:
        item = self._comprehension(node, node.elt)
        kind = Kind("list", item=None if item.name in {"any", "none"} else item)
        return uncompiled(kind, "a comprehension")

    _generatorexp = _listcomp

    def _dictcomp(self, node: ast.DictComp) -> Value:
        self._comprehension(node, node.key, node.value)
        return uncompiled(Kind("dict"), "a comprehension")

    def _comprehension(
        self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp, *results: ast.expr
    ) -> Kind:
        """Check the parts of a comprehension; return the kind of its first result."""
        # The first source is evaluated before the names are bound.
        self.value(node.generators[0].iter)
        inside = [generator.iter for generator in node.generators[1:]]
        inside += [test for generator in node.generators for test in generator.ifs]
        targets = (part for generator in node.generators for part in ast.walk(generator.target))
        before = self._bound
        self._bound |= {part.id for part in targets if isinstance(part, ast.Name)}
        kinds = [self._branch(part, self.value).kind for part in (*inside, *results)]
        self._bound = before
        return kinds[len(inside)]


def _has_star(node: ast.List | ast.Tuple | ast.Set) -> bool:
    return any(isinstance(part, ast.Starred) for part in node.elts)
