"""Flattening: objects as columns; and `__explode__`: arrays as records of a stream of their own."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column

from shared.errors import SettingsError
from shared.formats.json_schema import spark_type_to_json_schema
from shared.formats.record_text import json_column
from shared.formats.schema_nodes import node_types, object_node, resolved_node
from shared.formats.spark_types import T
from shared.maps.column_makers import NestedChange, places
from shared.maps.expressions import syntax
from shared.maps.expressions.syntax import PARENT, Expression
from shared.maps.map_settings import Flattening, MapRule, setting_of
from shared.maps.transform import Cell, Explode
from shared.settings.checking import nearest

Node = Mapping[str, Any]
Step = Callable[[Column], Column] | None

_WORD_START = re.compile(r"(?:^|_)(.)")
_SMALL = re.compile(r"[a-z]")
_SHORTEST = 3
_MORE_THAN_TYPE = frozenset({"const", "$ref", "not", "if", "oneOf", "anyOf", "allOf"})
_OF_DICT = frozenset(dir(dict))


@dataclass(frozen=True)
class Leaf:
    """A property of a record, or one that flattening derives, and the names that lead to it."""

    cell: Cell
    node: Node
    required: bool = False
    path: tuple[str, ...] = ()


def flattened(leaves: Sequence[Leaf], document: Node, rules: Flattening) -> tuple[Leaf, ...]:
    """Flatten a stream's properties; references in them are to the stream's whole JSON Schema.

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
        yield _as_text(leaf, name, lambda column: json_column(column, kind), is_json=True)
    elif isinstance(kind, T.VariantType):
        yield _as_text(leaf, name, lambda column: column.cast("string"))
    elif isinstance(kind, T.StringType) and _may_nest(document, leaf.node):
        yield _as_text(leaf, name, None)
    else:
        yield replace(leaf, cell=replace(leaf.cell, name=name))


def _field(leaf: Leaf, field: T.StructField, inside: Node) -> Leaf:
    """Return a field of an object; null if the object is null."""
    cell, nullable = leaf.cell, leaf.cell.nullable or field.nullable
    finish = cell.finish
    if cell.computed is None and finish is None:
        cell = replace(cell, path=(*cell.path, field.name))
    else:
        cell = replace(cell, finish=_then(finish, lambda column: column.getField(field.name)))
    node = inside.get("properties", {}).get(field.name)
    if node is None:
        node = spark_type_to_json_schema(field.dataType, field.nullable)
    return Leaf(
        replace(cell, data_type=field.dataType, nullable=nullable),
        nullable_node(node) if leaf.cell.nullable else node,
        leaf.required and not leaf.cell.nullable and field.name in inside.get("required", ()),
        (*leaf.path, field.name),
    )


def _then(first: Step, second: Step) -> Step:
    if first is None or second is None:
        return first or second
    return lambda column: second(first(column))


def _as_text(leaf: Leaf, name: str, write: Step, *, is_json: bool = False) -> Leaf:
    is_json = is_json and leaf.cell.computed is None and leaf.cell.finish is None
    text, finish = T.StringType(), _then(leaf.cell.finish, write)
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
    if declared is None or not _MORE_THAN_TYPE.isdisjoint(node):
        return node if not node else {"anyOf": [dict(node), {"type": "null"}]}
    types = [declared] if isinstance(declared, str) else list(declared)
    changed = {**node, "type": types if "null" in types else [*types, "null"]}
    if "enum" in node and None not in node["enum"]:
        changed["enum"] = [*node["enum"], None]
    return changed


_DOCUMENT = ("$schema", "$id", "$defs", "definitions")


def exploded(
    rule: MapRule, document: Node, root: Node, struct: T.StructType
) -> tuple[Explode, dict[str, Any]]:
    """Plan the records of an entry with `__explode__`; return also the JSON Schema of elements.

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
    named: dict[str, NestedChange] = {}
    for column in struct:
        for place in places((column.name,), column.dataType):
            named.setdefault(".".join(place.path), place)
    named |= {column.name: NestedChange((column.name,), 0, column.dataType) for column in struct}
    if text not in named:
        arrays = [name for name, one in named.items() if isinstance(one.data_type, T.ArrayType)]
        match = nearest(text, arrays)
        hint = f"did you mean {match!r}?" if match else "arrays are " + ", ".join(arrays)
        hint = hint if arrays else "it has no arrays of known contents"
        raise SettingsError(f"the stream has no property {text!r}", where=where, hint=hint)
    kind = named[text].data_type
    if named[text].depth:
        text = f"{text!r} is inside an array of objects; only one array can be exploded"
        raise SettingsError(text, where=where)
    if not isinstance(kind, T.ArrayType):
        raise SettingsError(
            f"{text!r} is not an array of known contents but {kind.typeName()}",
            where=where,
            hint="the schema of an array says in 'items' what it holds",
        )
    return named[text].path, kind


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
    whole = 0
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=syntax.PARENT):
                whole += 1
            case ast.Subscript(value=ast.Name(id=syntax.PARENT), slice=ast.Constant(str(name))):
                whole -= 1
                yield name
            case ast.Attribute(value=ast.Name(id=syntax.PARENT), attr=name) if name not in _OF_DICT:
                whole -= 1
                yield name
    if whole:
        yield from names


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
    types = node.get("type")
    if isinstance(types, list) and len(types) > 1 and "null" in types:
        rest = [name for name in types if name != "null"]
        return {**node, "type": rest[0] if len(rest) == 1 else rest}
    return node
