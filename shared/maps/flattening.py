"""Flattening of nested objects: the resulting columns and their names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column

from shared.formats.json_schema import spark_type_to_json_schema
from shared.formats.record_text import json_text
from shared.formats.schema_nodes import node_types, object_node, resolved_node
from shared.formats.spark_types import T
from shared.maps.map_settings import Flattening
from shared.maps.transform import Cell

Node = Mapping[str, Any]

_WORD_START = re.compile(r"(?:^|_)(.)")
_SMALL = re.compile(r"[a-z]")
_SHORTEST = 3


@dataclass(frozen=True)
class Leaf:
    """A property of a record, or a property that flattening derives from one.

    Attributes:
        cell: Its column.
        node: Its JSON Schema.
        required: Whether every record has it.
        path: The names that lead to it.
    """

    cell: Cell
    node: Node
    required: bool = False
    path: tuple[str, ...] = ()


def flattened(leaves: Sequence[Leaf], document: Node, rules: Flattening) -> tuple[Leaf, ...]:
    """Flatten a stream's properties.

    Args:
        leaves: The properties.
        document: The stream's whole JSON Schema, for references in it.
        rules: The settings of flattening.

    Raises:
        ValueError: Two paths lead to one name.
    """
    flat = [
        part
        for leaf in leaves
        for part in _parts(replace(leaf, path=(leaf.cell.name,)), document, rules)
    ]
    paths: dict[str, tuple[str, ...]] = {}
    for leaf in flat:
        other = paths.setdefault(leaf.cell.name, leaf.path)
        if other != leaf.path:
            first, second = (".".join(path) for path in (other, leaf.path))
            raise ValueError(f"{first!r} and {second!r} both become {leaf.cell.name!r}")
    return tuple(flat)


def _parts(leaf: Leaf, document: Node, rules: Flattening) -> Iterator[Leaf]:
    kind = leaf.cell.data_type
    inside = object_node(document, leaf.node) if isinstance(kind, T.StructType) else None
    name = flattened_name(leaf.path, rules)
    if isinstance(kind, T.StructType) and kind.fields and len(leaf.path) <= rules.max_depth:
        for field in kind:
            yield from _parts(_field(leaf, field, inside or {}), document, rules)
    elif isinstance(kind, T.StructType | T.ArrayType | T.MapType):
        yield _as_text(leaf, name, lambda column: json_text(column, kind), is_json=True)
    elif isinstance(kind, T.VariantType):
        yield _as_text(leaf, name, lambda column: column.cast("string"))
    elif isinstance(kind, T.StringType) and _may_nest(document, leaf.node):
        yield replace(_as_text(leaf, name, None))
    else:
        yield replace(leaf, cell=replace(leaf.cell, name=name))


def _field(leaf: Leaf, field: T.StructField, inside: Node) -> Leaf:
    """Return a field of an object; null if the object is null."""
    cell, nullable = leaf.cell, leaf.cell.nullable or field.nullable
    finish = cell.finish
    if cell.computed is None and finish is None:
        cell = replace(cell, path=(*cell.path, field.name))
    else:
        cell = replace(cell, finish=_then_field(finish, field.name))
    node = inside.get("properties", {}).get(field.name)
    if node is None:
        node = spark_type_to_json_schema(field.dataType, field.nullable)
    return Leaf(
        replace(cell, data_type=field.dataType, nullable=nullable),
        nullable_node(node) if leaf.cell.nullable else node,
        leaf.required and not leaf.cell.nullable and field.name in inside.get("required", ()),
        (*leaf.path, field.name),
    )


def _then_field(finish: Callable[[Column], Column] | None, name: str) -> Callable[[Column], Column]:
    if finish is None:
        return lambda column: column.getField(name)
    return lambda column: finish(column).getField(name)


def _as_text(
    leaf: Leaf, name: str, write: Callable[[Column], Column] | None, *, is_json: bool = False
) -> Leaf:
    before = leaf.cell.finish
    is_json = is_json and leaf.cell.computed is None and before is None
    finish = before if write is None else write
    if before is not None and write is not None:
        finish = lambda column: write(before(column))  # noqa: E731
    text = T.StringType()
    cell = replace(leaf.cell, name=name, data_type=text, finish=finish, is_json=is_json)
    return replace(
        leaf, cell=cell, node={"type": ["string", "null"] if cell.nullable else "string"}
    )


def _may_nest(document: Node, node: Node) -> bool:
    """Return whether a text column holds the JSON text of objects, arrays or arbitrary values."""
    types = node_types(resolved_node(document, node))
    return types is None or bool({"object", "array"} & types)


def flattened_name(path: Sequence[str], rules: Flattening) -> str:
    """Join the names of a path; shorten them from the first on until the result fits."""
    names = list(path)
    for number, name in enumerate(path):
        if len(rules.separator.join(names)) < rules.max_key_length:
            break
        names[number] = _shortened(name)
    return rules.separator.join(names)


def _shortened(name: str) -> str:
    """Return the first letters of a name's words, and its own capitals and digits."""
    capitals = _SMALL.sub("", _WORD_START.sub(lambda start: start[1].upper(), name))
    return (capitals if len(capitals) > 1 else name[:_SHORTEST]).lower()


def nullable_node(node: Node) -> Node:
    """Return a schema that allows null too."""
    declared = node.get("type")
    if declared is None or "const" in node or "$ref" in node or "not" in node:
        return node if not node else {"anyOf": [dict(node), {"type": "null"}]}
    types = [declared] if isinstance(declared, str) else list(declared)
    changed = {**node, "type": types if "null" in types else [*types, "null"]}
    if "enum" in node and None not in node["enum"]:
        changed["enum"] = [*node["enum"], None]
    return changed
