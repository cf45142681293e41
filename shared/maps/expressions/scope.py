"""The values of the names in an expression."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager

from shared.maps.expressions import records
from shared.maps.expressions.building import constant, uncompiled
from shared.maps.expressions.kinds import ANY
from shared.maps.expressions.syntax import (
    FUNCTION_NAMES,
    MODULES,
    RECORD_NAMES,
    SPECIAL_NAMES,
    nearest,
)
from shared.maps.expressions.values import Names, Value


class Unknown(Exception):  # noqa: N818
    """A name is unknown for every record."""

    def __init__(self, node: ast.AST, message: str) -> None:
        super().__init__(message)
        self.node = node
        self.message = message


class Scope:
    """The names at one place of an expression.

    Args:
        names: What the whole expression can name.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self._bound: frozenset[str] = frozenset()

    @contextmanager
    def binding(self, bound: frozenset[str]) -> Iterator[None]:
        """Bind the names of a comprehension while the block runs."""
        before, self._bound = self._bound, self._bound | bound
        try:
            yield
        finally:
            self._bound = before

    def value(self, node: ast.Name) -> Value:
        """Return the value of a name.

        Raises:
            Unknown: Nothing has this name.
        """
        name, names = node.id, self.names
        if name in self._bound:
            return uncompiled(ANY, "a comprehension")
        if name in SPECIAL_NAMES:
            return self._special(name)
        if name == "self" and names.own in names.struct.names:
            return records.column(str(names.own), names.struct)
        if name == "fake" and names.faker is not None:
            return uncompiled(ANY, "fake")
        if name in names.struct.names:
            return records.column(name, names.struct)
        raise Unknown(node, self._unknown(name))

    def _special(self, name: str) -> Value:
        if name in RECORD_NAMES:
            return records.whole(self.names.struct)
        if name == "config":
            return constant(dict(self.names.config))
        stream = self.names.stream if name == "__stream_name__" else self.names.original
        return constant(stream)

    def _unknown(self, name: str) -> str:
        if name in FUNCTION_NAMES:
            return f"'{name}' is a function: call it"
        if name in MODULES:
            return f"'{name}' is a module, not a value"
        if name == "self":
            return f"unknown name 'self': the record has no property '{self.names.own}'"
        if name == "fake":
            return "unknown name 'fake': it needs the extra 'faker'"
        known = [*self.names.struct.names, *SPECIAL_NAMES, "self", *sorted(FUNCTION_NAMES)]
        return f"unknown name '{name}'{nearest(name, known)}"

    def is_record(self, node: ast.AST) -> bool:
        """Return whether a node is the whole record."""
        return isinstance(node, ast.Name) and node.id in RECORD_NAMES and node.id not in self._bound

    def property(self, node: ast.expr, name: str) -> Value:
        """Return the column that a key of the record names.

        Raises:
            Unknown: The column does not exist.
        """
        names = self.names.struct.names
        if name not in names:
            raise Unknown(node, f"unknown property '{name}'{nearest(name, names)}")
        return records.column(name, self.names.struct)

    def dotted(self, node: ast.AST) -> str | None:
        """Return the dotted name of something in a module; None for anything else."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in MODULES or not parts:
            return None
        hidden = node.id in self._bound or node.id in self.names.struct.names
        return None if hidden else ".".join([node.id, *reversed(parts)])

    def is_fake(self, node: ast.AST) -> bool:
        """Return whether a node is `fake`, and not a column of this name."""
        named = isinstance(node, ast.Name) and node.id == "fake" and "fake" not in self._bound
        return named and self.names.faker is not None
