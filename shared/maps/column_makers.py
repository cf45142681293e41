"""Columns made from the definitions in a stream map."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from shared.errors import SettingsError, Where
from shared.maps.expressions.planned import Planned, plan
from shared.maps.expressions.records import PATH
from shared.maps.expressions.syntax import Expression
from shared.maps.expressions.values import Names
from shared.maps.map_rules import Definition
from shared.maps.nested_changes import NestedChange
from shared.maps.sql_expressions import Sql, plan_sql
from shared.maps.transform import Condition, Made
from shared.releases.spark_types import T

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Spark = Callable[[], "SparkSession"]

_SELF = "self"
_FILTER = "filter"
_FALSE = r'^(null|false|-?0(\.0+)?(E-?\d+)?|""|\[\]|\{\})$'
_TRUTH: Mapping[type[T.DataType], Callable[[Column], Column]] = {
    T.BooleanType: lambda column: column,
    T.StringType: lambda column: F.length(column) > 0,
    T.LongType: lambda column: column != 0,
    T.DoubleType: lambda column: column != 0,
    T.DecimalType: lambda column: column != 0,
    T.ArrayType: lambda column: F.size(column) > 0,
    T.MapType: lambda column: F.size(column) > 0,
    T.StructType: lambda column: column.isNotNull(),
    T.VariantType: lambda column: ~F.to_json(column).rlike(_FALSE),
}
"""Python's truth of values that depends only on their column."""


@dataclass(frozen=True)
class Result:
    """The value that a definition computes.

    Attributes:
        data_type: Its type.
        made: How it is computed; None if it is only a copy.
        path: If it is only a copy: the source column, and the fields that lead into it.
    """

    data_type: T.DataType
    made: Made | None = None
    path: tuple[str, ...] = ()


@dataclass
class Maker:
    """Makes the values of one output; computes an expression that occurs twice only once.

    Attributes:
        names: What expressions can name.
        spark: Returns the session that determines the types of SQL expressions.
        notes: Lines for the log.
    """

    names: Names
    spark: Spark | None = None
    notes: list[str] = field(default_factory=list)
    _known: dict[tuple[str, str | None], Result] = field(default_factory=dict)
    _columns: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._columns = frozenset(self.names.struct.names)

    def make(self, definition: Expression | Sql, name: str | None, where: Where) -> Result:
        """Plan the value of a property.

        Args:
            definition: The definition in the map.
            name: The property that it makes; None for a filter.
            where: Its place in the settings.

        Raises:
            SettingsError: It cannot be computed from this stream's records.
        """
        own = name if name in self._columns else None
        label = _FILTER if name is None else f"property {name!r}"
        if isinstance(definition, Sql):
            made = plan_sql(definition, self.names.struct, own, where, self.spark)
            return Result(made.data_type, replace(made, label=label))
        key = (definition.text, own if _reads_self(definition) else None)
        if key in self._known:
            return self._known[key]
        planned = plan(definition, replace(self.names, own=own), where)
        if planned.source:
            result = Result(planned.result, path=planned.source)
        else:
            result = Result(planned.result, self._made(planned, where, label))
        if not planned.fresh:
            self._known[key] = result
        return result

    def inside(self, place: NestedChange, definition: Definition, where: Where) -> NestedChange:
        """Plan the value at a place inside a property.

        Args:
            place: The place.
            definition: The definition in the map; None drops the value.
            where: Its place in the settings.

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
        if not planned.compiled:
            self._note(planned, where)
        return replace(place, planned=planned)

    def condition(
        self, definition: Expression | Sql, where: Where, properties: Iterable[Definition] = ()
    ) -> Condition:
        """Plan a filter: the truth value of a Python expression, or a boolean in SQL.

        Args:
            definition: The definition in the map.
            where: Its place in the settings.
            properties: The definitions of properties; a value that Python computes for one of
                them is not computed again for the filter.

        Raises:
            SettingsError: As for `make`.
        """
        if isinstance(definition, Sql):
            return _sql_condition(self.make(definition, None, where), where)
        truth = plan(definition, replace(self.names, own=None), where, truth=True)
        texts = {item.text for item in properties if isinstance(item, Expression)}
        if not truth.compiled and not truth.fresh and definition.text in texts:
            found = self.make(definition, None, where).made
            if found is not None and type(found.data_type) in _TRUTH:
                return Condition(found, _TRUTH[type(found.data_type)])
        return Condition(self._made(truth, where, _FILTER))

    def _made(self, planned: Planned, where: Where, label: str) -> Made:
        if not planned.compiled:
            self._note(planned, where)
        return Made(
            label=label,
            data_type=planned.result,
            value=planned.column,
            error=planned.error,
            reads=planned.reads,
            in_python=not planned.compiled,
            evaluated=planned.evaluated,
            over_arrow=planned.over_arrow,
        )

    def _note(self, planned: Planned, where: Where) -> None:
        note = f"{where.setting}: runs in Python: {planned.why}"
        self.notes += [note] if note not in self.notes else []


def _sql_condition(result: Result, where: Where) -> Condition:
    if result.made is None or not isinstance(result.data_type, T.BooleanType):
        kind = result.data_type.simpleString()
        raise SettingsError(f"a filter in SQL must be a boolean, not {kind}", where=where)
    return Condition(result.made)


def _reads_self(expression: Expression) -> bool:
    names = (node.id for node in ast.walk(expression.tree) if isinstance(node, ast.Name))
    return _SELF in names
