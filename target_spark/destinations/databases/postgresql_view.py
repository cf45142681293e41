"""A view with a typed column for each property, over a table of whole records. Pure."""

# ruff: noqa: S608 - names are quoted, values are quoted literals.
from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812

from target_spark.destinations.databases import TablePlace
from target_spark.destinations.databases.postgresql_sql import PostgreSqlSql, literal
from target_spark.documents import DOCUMENT
from target_spark.tables.names import NameRules, legal_names

if TYPE_CHECKING:
    from target_spark.plans import TableRequest

_NUMBERS = (T.NumericType,)
_FLOATS = (T.FloatType, T.DoubleType)


def view_statements(
    place: TablePlace, request: TableRequest, names: Mapping[str, str], rules: NameRules
) -> list[str]:
    """Return the statements that replace the view `<table>_view`.

    Args:
        place: The table.
        request: The request with the columns of the view.
        names: Stream's name → table's name of the table's columns.
        rules: Rules for names.
    """
    sql = PostgreSqlSql()
    own = [name for name in request.struct.names if name != DOCUMENT]
    fields = [] if request.view is None else [f for f in request.view if f.name not in own]
    legal = legal_names([*own, *(field.name for field in fields)], rules, {})
    document = sql.name(names[DOCUMENT])
    values = {name: sql.name(names[name]) for name in own}
    values |= {field.name: _value(document, field.name, field.dataType) for field in fields}
    columns = ", ".join(f"{value} AS {sql.name(legal[name])}" for name, value in values.items())
    view = sql.table(TablePlace(place.schema, view_name(place.table)))
    return [
        f"DROP VIEW IF EXISTS {view}",
        f"CREATE VIEW {view} AS SELECT {columns} FROM {sql.table(place)}",
    ]


def view_name(table: str) -> str:
    """Return the name of a table's view, truncated if it is too long."""
    return table.encode()[: 63 - len("_view")].decode("utf-8", "ignore") + "_view"


def _value(document: str, name: str, data_type: T.DataType) -> str:
    """Return one property of the record; null if it is not of its type."""
    text, node = (f"{document} {arrow} {literal(name)}" for arrow in ("->>", "->"))
    kind = PostgreSqlSql().type_of(data_type)
    if kind == "jsonb":
        return f"nullif({node}, 'null')"
    if kind == "text":
        return f"({text})"
    if kind == "bytea":
        return f"decode({text}, 'base64')"
    if isinstance(data_type, _FLOATS):
        words = f"{text} IN ('NaN', 'Infinity', '-Infinity')"
        return f"CASE WHEN jsonb_typeof({node}) = 'number' OR {words} THEN ({text})::{kind} END"
    if isinstance(data_type, _NUMBERS):
        number = f"({text})::numeric::{kind}"
        return f"CASE WHEN jsonb_typeof({node}) = 'number' THEN {number} END"
    return f"({text})::{kind}"
