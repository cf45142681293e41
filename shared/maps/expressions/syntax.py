"""The syntax of expressions: what may be written, checked without Spark or a schema.

What is allowed is what `simpleeval.EvalWithCompoundTypes` evaluates.
"""

from __future__ import annotations

import ast
import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared.errors import SettingsError, Where
from shared.settings import checking

MAX_TEXT = 64 * 1024
MAX_DEPTH = 100
MAX_INTEGER_BITS = 1024

RECORD_NAMES = ("record", "_")
STREAM_NAMES = ("__stream_name__", "__original_stream_name__")
ERROR = "__map_error"
"""Text column of mapped rows: why a row could not be mapped; null if it could."""
PARENT = "__parent__"
"""In entries with `__explode__`: the record whose array holds the element."""

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

REFUSED_METHODS = frozenset(
    {"format", "format_map", "mro", "tb_frame", "gi_frame", "ag_frame", "cr_frame", "exec"}
)
_REFUSED_PREFIXES = ("_", "func_")

_ALLOWED = (
    *(ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Slice, ast.Call, ast.keyword),
    *(ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.JoinedStr),
    *(ast.FormattedValue, ast.Dict, ast.Tuple, ast.List, ast.Set, ast.ListComp, ast.Starred),
    *(ast.GeneratorExp, ast.DictComp, ast.comprehension, ast.expr_context),
    *(ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)
_WORDS: dict[type[ast.AST], str] = {
    ast.Lambda: "lambda",
    ast.NamedExpr: "':='",
    ast.Await: "await",
    ast.Yield: "yield",
    ast.YieldFrom: "yield from",
    ast.SetComp: "a set comprehension",
    ast.MatMult: "'@'",
}


@dataclass(frozen=True)
class Expression:
    """An expression whose syntax is right.

    Positions in its tree count from the first character that is not a space.
    """

    text: str
    tree: ast.expr


def parse(text: str, where: Where) -> Expression:
    """Parse an expression of Python.

    Raises:
        SettingsError: It is not an expression, or a part is not allowed; with the position.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT:
        raise SettingsError(f"the expression is longer than {MAX_TEXT} bytes", where=where)
    tree = _tree(text, where)
    expression = Expression(text, tree)
    for node, message in _problems(tree):
        raise wrong(expression, node, message, where)
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


def with_others(expression: Expression, others: Mapping[int, ast.expr]) -> Expression:
    """Return an expression with others in place of some nodes, by their `id`."""
    text = ast.unparse(copy.deepcopy(expression.tree, dict[int, Any](others)))
    return Expression(text, ast.parse(text, mode="eval").body)


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


def nearest(name: str, names: Sequence[str]) -> str:
    """Return ` (nearest: 'x')` for an unknown name; empty if none is near."""
    nearest_name = checking.nearest(name, reversed(names), cutoff=0.6)
    return f" (nearest: '{nearest_name}')" if nearest_name is not None else ""


def _problems(tree: ast.expr) -> Iterator[tuple[ast.AST, str]]:
    """Yield what is not available, from left to right; without recursion, for any depth."""
    waiting: list[tuple[ast.AST, int]] = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > MAX_DEPTH:
            yield node, f"it is nested more than {MAX_DEPTH} levels deep"
        if not isinstance(node, _ALLOWED) or type(node) in _WORDS:
            yield node, f"{_WORDS.get(type(node), type(node).__name__)} is not available"
        yield from _wrong_parts(node)
        below = list(ast.iter_child_nodes(node))
        waiting.extend((child, depth + isinstance(child, ast.expr)) for child in reversed(below))
        stars = (child for child in below if isinstance(child, ast.Starred))
        yield from ((s, "'*' is not available here") for s in stars if type(node) is not ast.List)


def _wrong_parts(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    match node:
        case ast.Name(id=name) if name[:2] == name[-2:] == "__" and name.strip("_"):
            if name not in (names := (*STREAM_NAMES, PARENT)):
                yield node, f"the name '{name}' is not available{nearest(name, names)}"
        case ast.Attribute(attr=name):
            if name.startswith(_REFUSED_PREFIXES) or name in REFUSED_METHODS:
                yield node, f"the attribute '{name}' is not available"
        case ast.Call(func=ast.Name(id=name) as func):
            if name in MODULES:
                yield func, f"'{name}' is a module, not a function"
            elif name not in FUNCTION_NAMES:
                yield func, f"unknown function '{name}'{nearest(name, sorted(FUNCTION_NAMES))}"
        case ast.Call(func=func) if not isinstance(func, ast.Attribute):
            yield node, "only functions and methods can be called"
        case ast.keyword(arg=None):
            yield node, "'**' is not available in a call"
        case ast.Constant(value=int(value)) if value.bit_length() > MAX_INTEGER_BITS:
            yield node, f"an integer of more than {MAX_INTEGER_BITS} bits"
        case ast.Constant(value=value) if value is Ellipsis:
            yield node, "'...' is not available"
        case ast.comprehension(is_async=1):
            yield node.target, "an asynchronous comprehension is not available"
