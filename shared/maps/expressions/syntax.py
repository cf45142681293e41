"""The syntax of expressions: what may be written, checked without Spark or a schema.

What is allowed is what `simpleeval.EvalWithCompoundTypes` evaluates.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from shared.errors import SettingsError, Where
from shared.settings import checking

MAX_TEXT = 64 * 1024
MAX_DEPTH = 100
MAX_INTEGER_BITS = 1024

RECORD_NAMES = ("record", "_")
STREAM_NAMES = ("__stream_name__", "__original_stream_name__")
SPECIAL_NAMES = (*RECORD_NAMES, *STREAM_NAMES, "config")
"""Names that never are columns."""

MODULES = ("datetime", "json")
PERSONAL = ("hash_value", "mask", "truncate", "redact")
FUNCTION_NAMES = frozenset(
    {
        *("abs", "bool", "dict", "float", "int", "len", "list", "max", "md5", "min", "rand"),
        *("randint", "round", "set", "sha256", "str", "sum", "tuple"),
        *PERSONAL,
    }
)
"""Functions that an expression may call by name."""

DICT_METHODS = frozenset(name for name in dir(dict) if not name.startswith("_"))
REFUSED_METHODS = frozenset(
    {"format", "format_map", "mro", "tb_frame", "gi_frame", "ag_frame", "cr_frame", "exec"}
)
_REFUSED_PREFIXES = ("_", "func_")

_LEAVES = (ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Slice, ast.Call, ast.keyword)
_OPERATIONS = (ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp)
_TEXTS = (ast.JoinedStr, ast.FormattedValue)
_COMPOUNDS = (ast.Dict, ast.Tuple, ast.List, ast.Set, ast.ListComp, ast.GeneratorExp, ast.DictComp)
_WITHIN = (
    *(ast.comprehension, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context),
    ast.Starred,
)
_ALLOWED = (*_LEAVES, *_OPERATIONS, *_TEXTS, *_COMPOUNDS, *_WITHIN)
_WORDS: dict[type[ast.AST], str] = {
    ast.Lambda: "lambda",
    ast.NamedExpr: "':='",
    ast.Await: "await",
    ast.Yield: "yield",
    ast.YieldFrom: "yield from",
    ast.SetComp: "a set comprehension",
    ast.MatMult: "'@'",
}
_MEMBERSHIP = (ast.In, ast.NotIn)


@dataclass(frozen=True)
class Expression:
    """An expression whose syntax is right.

    Attributes:
        text: As it was written.
        tree: Its syntax tree; positions count from the first character that is not a space.
    """

    text: str
    tree: ast.expr


class _Refused(Exception):  # noqa: N818
    def __init__(self, node: ast.AST, message: str) -> None:
        super().__init__(message)
        self.node = node
        self.message = message


def parse(text: str, where: Where) -> Expression:
    """Parse an expression.

    Args:
        text: The expression, in Python.
        where: Its place in the settings.

    Raises:
        SettingsError: It is not an expression, or a part is not allowed; with the position.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT:
        raise SettingsError(f"the expression is longer than {MAX_TEXT} bytes", where=where)
    tree = _tree(text, where)
    expression = Expression(text, tree)
    try:
        for node, depth in _nodes(tree):
            _check(node, depth)
    except _Refused as refused:
        raise wrong(expression, refused.node, refused.message, where) from None
    return expression


def _tree(text: str, where: Where) -> ast.expr:
    stripped = text.strip()
    if not stripped:
        raise SettingsError("the expression is empty", where=where, hint="a text is \"'text'\"")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(stripped, mode="eval").body
    except SyntaxError as error:
        raise SettingsError(f"at {_ends(text, error)}: {error.msg}", where=where) from None
    except (ValueError, RecursionError, MemoryError) as error:
        reason = "it is nested too deeply" if not isinstance(error, ValueError) else str(error)
        raise SettingsError(f"at column 1: {reason}", where=where) from None


def _ends(text: str, error: SyntaxError) -> str:
    """Return where the syntax is wrong: at the end if Python gives no position."""
    if error.offset:
        return _place(text, error.lineno or 1, error.offset - 1)
    rows = text.strip().split("\n")
    return _place(text, len(rows), len(rows[-1]))


def wrong(expression: Expression, node: ast.AST, message: str, where: Where) -> SettingsError:
    """Return the error about a part of an expression, with its position."""
    line, offset = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    rows = expression.text.strip().split("\n")
    row = rows[line - 1] if line <= len(rows) else ""
    characters = len(row.encode()[:offset].decode(errors="ignore"))
    return SettingsError(f"at {_place(expression.text, line, characters)}: {message}", where=where)


def _place(text: str, line: int, characters: int) -> str:
    if line == 1:
        characters += len(text) - len(text.lstrip())
    return f"column {characters + 1}" if line == 1 else f"line {line}, column {characters + 1}"


def nearest(name: str, known: Sequence[str]) -> str:
    """Return ` (nearest: 'x')` for an unknown name; empty if none is near."""
    found = checking.nearest(name, reversed(known), cutoff=0.6)
    return f" (nearest: '{found}')" if found is not None else ""


def _nodes(tree: ast.expr) -> Iterator[tuple[ast.AST, int]]:
    """Walk a tree without recursion, so that any depth is possible."""
    waiting: list[tuple[ast.AST, int]] = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        yield node, depth
        below = list(ast.iter_child_nodes(node))
        waiting.extend((child, depth + isinstance(child, ast.expr)) for child in reversed(below))
        _check_stars(node, below)


def _check_stars(node: ast.AST, below: Sequence[ast.AST]) -> None:
    for child in below:
        if isinstance(child, ast.Starred) and not isinstance(node, ast.List):
            raise _Refused(child, "'*' is not available here")


def _check(node: ast.AST, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _Refused(node, f"it is nested more than {MAX_DEPTH} levels deep")
    if not isinstance(node, _ALLOWED) or type(node) in _WORDS:
        raise _Refused(node, f"{_WORDS.get(type(node), type(node).__name__)} is not available")
    for kind, check in _CHECKS:
        if isinstance(node, kind):
            check(node)


def _check_name(node: ast.Name) -> None:
    hidden = node.id.startswith("__") and node.id.endswith("__") and node.id.strip("_") != ""
    if hidden and node.id not in STREAM_NAMES:
        hint = nearest(node.id, STREAM_NAMES)
        raise _Refused(node, f"the name '{node.id}' is not available{hint}")


def _check_attribute(node: ast.Attribute) -> None:
    if node.attr.startswith(_REFUSED_PREFIXES) or node.attr in REFUSED_METHODS:
        raise _Refused(node, f"the attribute '{node.attr}' is not available")


def _check_call(node: ast.Call) -> None:
    if not isinstance(node.func, (ast.Name, ast.Attribute)):
        raise _Refused(node, "only functions and methods can be called")
    if isinstance(node.func, ast.Name) and node.func.id not in FUNCTION_NAMES:
        name = node.func.id
        if name in MODULES:
            raise _Refused(node.func, f"'{name}' is a module, not a function")
        hint = nearest(name, sorted(FUNCTION_NAMES))
        raise _Refused(node.func, f"unknown function '{name}'{hint}")


def _check_keyword(node: ast.keyword) -> None:
    if node.arg is None:
        raise _Refused(node, "'**' is not available in a call")


def _check_constant(node: ast.Constant) -> None:
    value = node.value
    if isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
        raise _Refused(node, f"an integer of more than {MAX_INTEGER_BITS} bits")
    if value is Ellipsis:
        raise _Refused(node, "'...' is not available")


def _check_comprehension(node: ast.comprehension) -> None:
    if node.is_async:
        raise _Refused(node.target, "an asynchronous comprehension is not available")


_CHECKS: tuple[tuple[type[ast.AST], Callable[[Any], None]], ...] = (
    (ast.Name, _check_name),
    (ast.Attribute, _check_attribute),
    (ast.Call, _check_call),
    (ast.keyword, _check_keyword),
    (ast.Constant, _check_constant),
    (ast.comprehension, _check_comprehension),
)


def names_read(
    expression: Expression, columns: Sequence[str], own: str | None = None
) -> frozenset[str]:
    """Return the columns that an expression reads: all of them for a bare `record` or `_`.

    Args:
        expression: The expression.
        columns: All columns.
        own: The property that it computes, which `self` names.
    """
    reader = _Reader(frozenset(columns), own)
    reader.visit(expression.tree)
    return frozenset(reader.found) & frozenset(columns)


class _Reader(ast.NodeVisitor):
    def __init__(self, columns: frozenset[str], own: str | None) -> None:
        self._columns = columns
        self._own = own
        self._bound: frozenset[str] = frozenset()
        self.found: set[str] = set()

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self._bound:
            return
        if node.id in RECORD_NAMES:
            self.found.update(self._columns)
        elif node.id == "self" and self._own in self._columns:
            self.found.add(str(self._own))
        elif node.id not in SPECIAL_NAMES:
            self.found.add(node.id)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if self._is_record(node.value) and isinstance(node.slice, ast.Constant):
            self.found.add(str(node.slice.value))
        else:
            self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if self._is_record(node.value) and node.attr not in DICT_METHODS:
            self.found.add(node.attr)
        else:
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Read only the named column for `'name' in record`."""
        whole = self._is_record(node.comparators[0]) and len(node.ops) == 1
        if whole and isinstance(node.left, ast.Constant) and isinstance(node.ops[0], _MEMBERSHIP):
            self.found.add(str(node.left.value))
        else:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        func, args = node.func, node.args
        if isinstance(func, ast.Name):
            below: list[ast.AST] = [*args, *node.keywords]
        elif _is_get(node) and isinstance(func, ast.Attribute) and self._is_record(func.value):
            self.found.add(str(args[0].value) if isinstance(args[0], ast.Constant) else "")
            below = list(args[1:])
        else:
            below = [func, *args, *node.keywords]
        for child in below:
            self.visit(child)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self._comprehension(node)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._comprehension(node)

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp) -> None:
        before = self._bound
        # The first source is evaluated before the names are bound.
        self.visit(node.generators[0].iter)
        self._bound = before | bound_by(node)
        self.generic_visit(node)
        self._bound = before

    def _is_record(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in RECORD_NAMES and node.id not in self._bound


def bound_by(node: ast.ListComp | ast.GeneratorExp | ast.DictComp) -> frozenset[str]:
    """Return the names that a comprehension binds."""
    targets = (part for generator in node.generators for part in ast.walk(generator.target))
    return frozenset(part.id for part in targets if isinstance(part, ast.Name))


def _is_get(node: ast.Call) -> bool:
    func = node.func
    known = bool(node.args) and isinstance(node.args[0], ast.Constant)
    return isinstance(func, ast.Attribute) and func.attr == "get" and known and not node.keywords
