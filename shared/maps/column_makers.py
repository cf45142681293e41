"""Columns made from the definitions in a stream map, also inside objects and arrays of objects."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from shared.errors import SettingsError, Where
from shared.formats.json_schema import spark_type_to_json_schema
from shared.formats.schema_nodes import node_types, object_node, resolved_node
from shared.formats.spark_types import T
from shared.maps.expressions.planned import Computed, Planned, plan
from shared.maps.expressions.records import PATH
from shared.maps.expressions.syntax import Expression
from shared.maps.expressions.values import Names
from shared.maps.map_settings import Definition
from shared.maps.sql_expressions import Sql, plan_sql
from shared.maps.transform import Cell, Condition
from shared.settings.texts import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Node = Mapping[str, Any]

_KEPT_KEYWORDS = frozenset(
    {"$schema", "$id", "$defs", "definitions", "title", "description", "type", "required",
     "additionalProperties"}
)  # fmt: skip
"""What still holds of an object whose properties have changed."""


@dataclass(frozen=True, eq=False)
class NestedChange:
    """A value inside an object.

    Attributes:
        path: The names that lead to it, that of the property first.
        depth: Number of array levels on the way.
        data_type: Its type.
        planned: The new value; None drops it.
    """

    path: tuple[str, ...]
    depth: int
    data_type: T.DataType
    planned: Planned | None = None


@dataclass
class Tree:
    """The changes in an object, by the names of its fields."""

    fields: dict[str, Tree | NestedChange] = field(default_factory=dict)

    def add(self, change: NestedChange) -> None:
        """Add a change at its path."""
        tree = self
        for name in change.path[1:-1]:
            below = tree.fields.setdefault(name, Tree())
            assert isinstance(below, Tree)  # noqa: S101
            tree = below
        tree.fields[change.path[-1]] = change

    def changes(self) -> Iterator[NestedChange]:
        """Yield all changes that make a value."""
        for below in self.fields.values():
            if isinstance(below, Tree):
                yield from below.changes()
            elif below.planned is not None:
                yield below


def path_hints(name: str, struct: T.StructType, where: Where) -> list[str]:
    """Return lines for the log if an entry names a nested field as if it were a property."""
    top = name.partition(".")[0]
    inside = places((top,), struct[top].dataType) if top in struct.names else ()
    if name not in (".".join(place.path) for place in inside):
        return []
    pattern = f"[{name[0]}]{name[1:]}"
    problem = f"names a top-level property; to name the field inside {top!r}, write {pattern!r}"
    return [f"{where.setting}: {problem}"]


def places(path: tuple[str, ...], kind: T.DataType, depth: int = 0) -> Iterator[NestedChange]:
    """Yield the values inside a value at a path: an object first, then its fields."""
    while isinstance(kind, T.ArrayType):
        kind, depth = kind.elementType, depth + 1
    for item in kind if isinstance(kind, T.StructType) else ():
        below = (*path, item.name)
        yield NestedChange(below, depth, item.dataType)
        yield from places(below, item.dataType, depth)


def changed_type(kind: T.DataType, tree: Tree) -> T.DataType:
    """Return the type of an object, or of arrays of objects, after the changes; see `changed`."""
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(changed_type(kind.elementType, tree), kind.containsNull)
    assert isinstance(kind, T.StructType)  # noqa: S101
    fields = []
    for item in kind:
        below = tree.fields.get(item.name)
        if below is None:
            fields.append(item)
        elif isinstance(below, Tree):
            changed = changed_type(item.dataType, below)
            fields.append(T.StructField(item.name, changed, item.nullable))
        elif below.planned is not None:
            fields.append(T.StructField(item.name, below.planned.data_type, True))
    if not fields:
        raise ValueError("every field would be dropped")
    return T.StructType(fields)


def changed_schema(document: Node, node: Node, kind: T.DataType, tree: Tree) -> Node:
    """Return the JSON Schema of an object, or of arrays of objects, after the changes.

    References in it are to the stream's whole schema, the document.
    """
    resolved = resolved_node(document, node)
    items = resolved.get("items")
    if isinstance(kind, T.ArrayType) and isinstance(items, Mapping):
        return {**resolved, "items": changed_schema(document, items, kind.elementType, tree)}
    inside = object_node(document, node)
    if not isinstance(kind, T.StructType) or inside is None:
        return spark_type_to_json_schema(changed_type(kind, tree))
    types, fields = node_types(resolved), tree.fields
    is_nullable = types is None or "null" in types
    return with_properties(
        {**inside, "type": ["object", "null"] if is_nullable else "object"},
        dict(_properties(document, inside, kind, tree)),
        [n for n in inside.get("required", ()) if not isinstance(fields.get(n), NestedChange)],
    )


def with_properties(
    node: Node, properties: Mapping[str, Node], required: Sequence[str]
) -> dict[str, Any]:
    """Return the schema of an object with other properties, and what still holds of it."""
    kept = {k: v for k, v in node.items() if k in _KEPT_KEYWORDS or k.startswith("x-")}
    kept.pop("required", None)
    kept["properties"] = properties
    return {**kept, "required": required} if required else kept


def _properties(
    document: Node, inside: Node, kind: T.StructType, tree: Tree
) -> Iterator[tuple[str, Node]]:
    types = {item.name: item for item in kind}
    for name, node in inside["properties"].items():
        below = tree.fields.get(name)
        if below is None or name not in types:
            yield name, node
        elif isinstance(below, Tree):
            yield name, changed_schema(document, node, types[name].dataType, below)
        elif below.planned is not None:
            yield name, spark_type_to_json_schema(below.planned.data_type)


def changed(name: str, kind: T.DataType, tree: Tree) -> Computed:
    """Plan a property with changes inside it.

    Raises:
        ValueError: All fields of an object would be dropped.
    """
    # Once, so that Spark computes for values and errors together what Python computes.
    rebuilt = cache(lambda: _Rebuilt(_results(name, kind, tree)))
    return Computed(
        label=f"property {name!r}",
        data_type=changed_type(kind, tree),
        value=lambda: rebuilt().value(F.col(quoted(name)), kind, tree),
        error=lambda: rebuilt().error(F.col(quoted(name)), kind, tree),
        reads=frozenset({name}),
        in_python=any(c.planned is not None and c.planned.in_python for c in tree.changes()),
    )


Results = Mapping[NestedChange, Column]
"""Arrays of structs of value and error: what the values inside arrays become."""


def _results(name: str, kind: T.DataType, tree: Tree) -> Results:
    results: dict[NestedChange, Column] = {}
    for change in tree.changes():
        if change.depth and change.planned is not None and change.planned.python is not None:
            values = _values(F.col(quoted(name)), kind, change.path[1:])
            results[change] = change.planned.python.inside(values, change.depth)
    return results


def _values(column: Column, kind: T.DataType, path: Sequence[str]) -> Column:
    if not path:
        return column
    if isinstance(kind, T.ArrayType):
        below = kind.elementType
        return F.transform(column, lambda item: _values(item, below, path))
    assert isinstance(kind, T.StructType)  # noqa: S101
    return _values(column.getField(path[0]), kind[path[0]].dataType, path[1:])


@dataclass(frozen=True)
class _Rebuilt:
    """Rebuilds an object, and reports what failed in it; results are of its level of arrays."""

    results: Results

    def value(self, column: Column, kind: T.DataType, tree: Tree) -> Column:
        if isinstance(kind, T.ArrayType):
            below = kind.elementType
            return self._each(column, tree, lambda rest, item: rest.value(item, below, tree))
        assert isinstance(kind, T.StructType)  # noqa: S101
        parts = [self._part(column, item, tree.fields.get(item.name)) for item in kind]
        return F.when(column.isNotNull(), F.struct(*(part for part in parts if part is not None)))

    def _part(
        self, column: Column, item: T.StructField, below: Tree | NestedChange | None
    ) -> Column | None:
        value = column.getField(item.name)
        if isinstance(below, Tree):
            value = self.value(value, item.dataType, below)
        elif below is not None:
            if below.planned is None:
                return None
            python, both = below.planned.python, self.results.get(below)
            value = below.planned.value() if both is None or not python else python.taken(both)
        return value.alias(item.name)

    def error(self, column: Column, kind: T.DataType, tree: Tree) -> Column:
        """Return the first error in an object; null if the object is null."""
        if isinstance(kind, T.ArrayType):
            item_kind = kind.elementType
            each = self._each(column, tree, lambda rest, item: rest.error(item, item_kind, tree))
            return F.get(F.filter(each, lambda reason: reason.isNotNull()), F.lit(0))
        reasons = [F.lit(None).cast("string")]
        for name, below in tree.fields.items():
            if isinstance(below, Tree):
                assert isinstance(kind, T.StructType)  # noqa: S101
                reasons.append(self.error(column.getField(name), kind[name].dataType, below))
            elif below.planned is not None:
                both = self.results.get(below)
                reason = below.planned.error() if both is None else both.getField("error")
                if reason is not None:
                    reasons.append(F.concat(F.lit(f"at {'.'.join(below.path)!r}: "), reason))
        return F.when(column.isNotNull(), F.coalesce(*reasons))

    def _each(
        self, column: Column, tree: Tree, make: Callable[[_Rebuilt, Column], Column]
    ) -> Column:
        """Make each item of an array, together with the results for the values in it."""
        own = [change for change in tree.changes() if change in self.results]
        if not own:
            return F.transform(column, lambda item: make(self, item))
        results = (self.results[change].alias(f"r{n}") for n, change in enumerate(own))

        def rebuilt(both: Column) -> Column:
            rest = {change: both.getField(f"r{n}") for n, change in enumerate(own)}
            return make(_Rebuilt(rest), both.getField("item"))

        return F.transform(F.arrays_zip(column.alias("item"), *results), rebuilt)


Spark = Callable[[], "SparkSession"]

_FILTER = "filter"
_FALSE = r'^(null|false|-?0(\.0+)?(E-?\d+)?|""|\[\]|\{\})$'
_TRUTH: Mapping[type[T.DataType], Callable[[Column], Column]] = {
    T.BooleanType: lambda column: column,
    T.StringType: lambda column: F.length(column) > 0,
    **dict.fromkeys((T.LongType, T.DoubleType, T.DecimalType), lambda column: column != 0),
    **dict.fromkeys((T.ArrayType, T.MapType), lambda column: F.size(column) > 0),
    T.StructType: lambda column: column.isNotNull(),
    T.VariantType: lambda column: ~F.to_json(column).rlike(_FALSE),
}
"""Python's truth of values that depends only on their column."""


@dataclass
class Maker:
    """Makes the values of one output; computes an expression that occurs twice only once.

    Notes are lines for the log; `spark` returns the session that types SQL expressions.
    """

    names: Names
    spark: Spark | None = None
    notes: list[str] = field(default_factory=list)
    _cells: dict[tuple[str, str | None], Cell] = field(default_factory=dict)

    @cached_property
    def _columns(self) -> frozenset[str]:
        return frozenset(self.names.struct.names)

    def make(self, definition: Expression | Sql, name: str | None, where: Where) -> Cell:
        """Plan the value of a property, or of a filter without a name, as a cell for any name.

        Raises:
            SettingsError: It cannot be computed from this stream's records.
        """
        own = name if name in self._columns else None
        label = _FILTER if name is None else f"property {name!r}"
        if isinstance(definition, Sql):
            sql = plan_sql(definition, self.names.struct, own, where, self.spark)
            value = Computed(label, sql.data_type, sql.value, sql.error, frozenset(sql.reads))
            return Cell("", sql.data_type, computed=value)
        names = {node.id for node in ast.walk(definition.tree) if isinstance(node, ast.Name)}
        key = (definition.text, name if "self" in names else None)
        if key in self._cells:
            return self._cells[key]
        planned = plan(definition, replace(self.names, own=name), where)
        self._note(planned, where)
        computed = None if planned.source else replace(planned, label=label)
        cell = Cell("", planned.data_type, path=planned.source, computed=computed)
        if not planned.fresh:
            self._cells[key] = cell
        return cell

    def inside(self, place: NestedChange, definition: Definition, where: Where) -> NestedChange:
        """Plan the value at a place inside a property; None as its definition drops it.

        Raises:
            SettingsError: It cannot be computed from the value alone.
        """
        if definition is None:
            return place
        if isinstance(definition, Sql):
            raise SettingsError("SQL cannot change values inside objects", where=where)
        name, metadata = place.path[-1], {PATH: list(place.path)}
        struct = T.StructType([T.StructField(name, place.data_type, True, metadata)])
        names = replace(self.names, struct=struct, own=name)
        planned = plan(definition, names, where, in_arrays=place.depth > 0)
        self._note(planned, where)
        return replace(place, planned=planned)

    def condition(
        self, definition: Expression | Sql, where: Where, properties: Iterable[Definition] = ()
    ) -> Condition:
        """Plan a filter: the truth value of a Python expression, or a boolean in SQL.

        A value that Python computes for one of the properties is not computed again for the filter.

        Raises:
            SettingsError: As for `make`.
        """
        if isinstance(definition, Sql):
            result = self.make(definition, None, where)
            if result.computed is None or not isinstance(result.data_type, T.BooleanType):
                kind = result.data_type.simpleString()
                raise SettingsError(f"a filter in SQL must be a boolean, not {kind}", where=where)
            return Condition(result.computed)
        truth = plan(definition, replace(self.names, own=None), where, truth=True)
        texts = {item.text for item in properties if isinstance(item, Expression)}
        if truth.in_python and not truth.fresh and definition.text in texts:
            value = self.make(definition, None, where).computed
            if value is not None and type(value.data_type) in _TRUTH:
                return Condition(value, _TRUTH[type(value.data_type)])
        self._note(truth, where)
        return Condition(replace(truth, label=_FILTER))

    def _note(self, planned: Planned, where: Where) -> None:
        note = f"{where.setting}: runs in Python: {planned.why}"
        if planned.in_python and note not in self.notes:
            self.notes.append(note)
