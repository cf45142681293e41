"""A view with a typed column for each property, over a table of whole records. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shared.errors import SettingsError, Where
from target_spark.destinations.lakes.lake_table import Place
from target_spark.destinations.lakes.merge import quoted, text_literal
from target_spark.tables.documents import DOCUMENT

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from target_spark.core.load_plans import TableRequest


def view_sql(place: Place, request: TableRequest, names: Mapping[str, str]) -> str:
    """Return the statement that creates or replaces the view `<table>_view`.

    Args:
        place: Location of the table.
        request: The request with the columns of the view.
        names: Stream's name → table's name of the table's columns.

    Raises:
        SettingsError: The table is in a folder: views are kept in catalogs.
    """
    if place.folder is not None or not place.table.endswith("`"):
        raise SettingsError(
            "a view needs a catalog",
            where=Where(stream=request.stream, setting="generate_view"),
            hint="set `catalog` instead of `path`, or `generate_view` to false",
        )
    own = [name for name in request.struct.names if name != DOCUMENT]
    columns = [f"{quoted(names.get(name, name))} AS {quoted(name)}" for name in own]
    document = quoted(names.get(DOCUMENT, DOCUMENT))
    taken = {name.casefold() for name in own}
    for field in _struct(request):
        if field.name.casefold() not in taken:
            taken.add(field.name.casefold())
            columns.append(
                f"{_value(document, field.name, field.dataType)} AS {quoted(field.name)}"
            )
    view = f"{place.table[:-1]}_view`"
    return f"CREATE OR REPLACE VIEW {view} AS SELECT {', '.join(columns)} FROM {place.table}"  # noqa: S608


def _struct(request: TableRequest) -> StructType:
    from pyspark.sql.types import StructType  # noqa: PLC0415

    return request.view or StructType([])


def _value(document: str, name: str, dtype: DataType) -> str:
    """Return one property of the record; null if it is not of its type."""
    from shared.releases.spark_types import T  # noqa: PLC0415

    path = text_literal(f"$[{_in_brackets(name)}]")
    texts = (
        T.CalendarIntervalType, T.DayTimeIntervalType, T.YearMonthIntervalType, T.TimeType,
        T.BinaryType, T.CharType, T.VarcharType, T.GeometryType, T.GeographyType, T.NullType,
    )  # fmt: skip
    if isinstance(dtype, (T.StructType, T.ArrayType, T.MapType, T.VariantType)):
        return f"try_variant_get({document}, {path}, 'variant')"
    if isinstance(dtype, T.BinaryType):
        return f"unbase64(try_variant_get({document}, {path}, 'string'))"
    kind = "string" if isinstance(dtype, texts) else dtype.simpleString()
    return f"try_variant_get({document}, {path}, '{kind}')"


def _in_brackets(name: str) -> str:
    """Return a key in a variant's path, which has two kinds of quotes and cannot escape them."""
    return f'"{name}"' if '"' not in name else f"'{name}'"
