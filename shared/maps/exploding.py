"""Plan `__explode__`: the elements of an array as the records of a stream of their own."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import types as T  # noqa: N812

from shared.errors import SettingsError
from shared.formats.json_schema import spark_type_to_json_schema
from shared.formats.schema_nodes import node_types, object_node, resolved_node
from shared.maps.column_makers import places
from shared.maps.expressions.syntax import PARENT, Expression
from shared.maps.map_settings import MapRule, setting_of
from shared.maps.transform import Explode
from shared.settings.checking import nearest

Node = Mapping[str, Any]

_DOCUMENT = ("$schema", "$id", "$defs", "definitions")


def exploded(
    rule: MapRule, document: Node, root: Node, struct: T.StructType
) -> tuple[Explode, dict[str, Any]]:
    """Plan the records of an entry with `__explode__`.

    Args:
        rule: The entry.
        document: The JSON Schema of the source stream.
        root: Its root.
        struct: The columns of its rows.

    Returns:
        How rows are made, and the JSON Schema of the elements.

    Raises:
        SettingsError: There is no such array, or two properties would have one name.
    """
    assert rule.explode is not None  # noqa: S101
    path, kind = _array(rule, rule.explode, struct)
    parent = _parent(rule, T.StructType(list(_without(struct, path))))
    explode = Explode(path, kind.elementType, rule.index, parent)
    names = explode.struct().names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        option = "__index__" if twice == rule.index else "__explode__"
        text = f"the elements of {rule.explode!r} have a property {twice!r} already"
        raise SettingsError(text, where=setting_of(rule.key, option), hint="choose another name")
    schema = _schema(explode, document, root)
    if isinstance(kind.elementType, T.StructType):
        return explode, schema
    node = resolved_node(document, schema["properties"][path[-1]])
    return replace(explode, is_loose=node_types(node) is None), schema


def _array(rule: MapRule, text: str, struct: T.StructType) -> tuple[tuple[str, ...], T.ArrayType]:
    """Return the array that a name or path means: an exact name comes first."""
    where = setting_of(rule.key, "__explode__")
    depths: dict[str, tuple[int, tuple[str, ...], T.DataType]] = {}
    for column in struct:
        for place in places(column.name, column.dataType):
            key = (place.depth, place.path, place.data_type)
            depths.setdefault(".".join(place.path), key)
    depths |= {column.name: (0, (column.name,), column.dataType) for column in struct}
    if text not in depths:
        arrays = [name for name, (_, _, kind) in depths.items() if isinstance(kind, T.ArrayType)]
        match = nearest(text, arrays)
        hint = f"did you mean {match!r}?" if match else "arrays are " + ", ".join(arrays)
        hint = hint if arrays else "it has no arrays of known contents"
        raise SettingsError(f"the stream has no property {text!r}", where=where, hint=hint)
    depth, path, kind = depths[text]
    if depth:
        text = f"{text!r} is inside an array of objects; only one array can be exploded"
        raise SettingsError(text, where=where)
    if not isinstance(kind, T.ArrayType):
        raise SettingsError(
            f"{text!r} is not an array of known contents but {kind.typeName()}",
            where=where,
            hint="the schema of an array says in 'items' what it holds",
        )
    return path, kind


def _without(struct: T.StructType, path: tuple[str, ...]) -> Iterator[T.StructField]:
    """Yield the fields without the array: each of its elements would carry all of it."""
    for item in struct:
        if item.name != path[0]:
            yield item
        elif len(path) > 1:
            assert isinstance(item.dataType, T.StructType)  # noqa: S101
            rest = list(_without(item.dataType, path[1:]))
            if rest:
                yield T.StructField(item.name, T.StructType(rest), item.nullable)


def _parent(rule: MapRule, struct: T.StructType) -> T.StructType:
    """Return the columns of the record that the entry's expressions name."""
    lines = {line.name: line.definition for line in rule.properties}
    wanted: set[str] = set()
    for name, definition in {**lines, "__filter__": rule.filter}.items():
        if isinstance(definition, Expression):
            used = set(_named(definition.tree, struct.names))
        else:
            sql = definition is not None and PARENT in (n.lower() for n, _ in definition.names)
            used = set(struct.names) if sql else set()
        for unknown in sorted(used.difference(struct.names)):
            match = nearest(unknown, struct.names)
            raise SettingsError(
                f"{PARENT} has no property {unknown!r}",
                where=setting_of(rule.key, name),
                hint=f"did you mean {match!r}?" if match else "",
            )
        wanted |= used
    return T.StructType([item for item in struct if item.name in wanted])


def _named(tree: ast.expr, names: Iterable[str]) -> Iterator[str]:
    """Yield the properties of `PARENT` that an expression names; all if it uses it as a whole."""
    whole = [node for node in ast.walk(tree) if _is_parent(node)]
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=value, slice=ast.Constant(value=str(name))):
                parts = [value] if _is_parent(value) else []
            case ast.Attribute(value=value, attr=name) if not hasattr(dict, name):
                parts = [value] if _is_parent(value) else []
            case _:
                continue
        for part in parts:
            whole.remove(part)
            yield name
    if whole:
        yield from names


def _is_parent(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == PARENT


def _schema(explode: Explode, document: Node, root: Node) -> dict[str, Any]:
    node: Any = root
    for number, name in enumerate(explode.path):
        inside = node if number == 0 else object_node(document, node)
        node = ((inside or {}).get("properties") or {}).get(name) or {}
    items = resolved_node(document, node).get("items")
    items = items if isinstance(items, Mapping) else None
    kept = {key: document[key] for key in _DOCUMENT if key in document}
    if isinstance(explode.element, T.StructType):
        inside = None if items is None else object_node(document, items)
        inside = spark_type_to_json_schema(explode.element, False) if inside is None else inside
        properties = dict(inside.get("properties") or {})
        required = list(inside.get("required") or ())
    else:
        element = spark_type_to_json_schema(explode.element, False)
        properties = {explode.path[-1]: element if items is None else _not_null(items)}
        required = [explode.path[-1]]
    if explode.index is not None:
        properties[explode.index] = {"type": "integer", "minimum": 0}
        required.append(explode.index)
    return {**kept, "type": "object", "properties": properties, "required": required}


def _not_null(node: Node) -> Node:
    """Return the schema of elements that are not null."""
    types = node.get("type")
    if isinstance(types, list) and len(types) > 1 and "null" in types:
        rest = [name for name in types if name != "null"]
        return {**node, "type": rest[0] if len(rest) == 1 else rest}
    return node
