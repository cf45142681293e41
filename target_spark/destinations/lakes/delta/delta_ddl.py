"""SQL statements that create and change Delta tables. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.types import StructField, StructType

from shared.errors import SettingsError, Where
from shared.formats.arrow_types import mapped
from shared.formats.spark_conform import loose
from shared.formats.spark_types import T
from target_spark.destinations.lakes.lake_sql import (
    column_sql,
    properties_sql,
    quoted,
    sql_type,
    table_comment,
    text_literal,
)
from target_spark.destinations.lakes.lake_table import LakeTable
from target_spark.tables.evolution import TableChange, cluster_columns, partition_fields

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from target_spark.core.load_plans import TableRequest

FORBIDDEN = " ,;{}()\n\t="
"""Characters that Delta rejects in column names if columns are resolved by name."""

NAMES_PROPERTY = "target_spark.column_names"
"""Table property with the stream's names of renamed columns."""

TYPE_WIDENING = "delta.enableTypeWidening"
"""Table property that lets columns be widened; old readers cannot read such a table."""

_UNITS = {
    "week": 604800.0, "day": 86400.0, "hour": 3600.0, "minute": 60.0, "second": 1.0,
    "millisecond": 1e-3, "microsecond": 1e-6,
}  # fmt: skip
_INDEXED = 32
"""Number of columns for which Delta keeps statistics by default."""


def table_clauses(change: TableChange, request: TableRequest) -> str:
    """Return the clauses after the columns in CREATE TABLE."""
    layout, names = request.layout, change.mapping
    for part in partition_fields(request):
        if part.transform != "identity":
            raise SettingsError(
                f"Delta tables can be partitioned only by columns, not by {part.transform} of one",
                where=Where(stream=request.stream, setting="partition_by"),
            )
    columns = cluster_columns(request, "cluster")
    partitions = ", ".join(quoted(names.get(name, name)) for name in layout.partition_by)
    clusters = ", ".join(quoted(names.get(name, name)) for name in columns)
    parts = ["USING delta"]
    if partitions:
        parts.append(f"PARTITIONED BY ({partitions})")
    elif clusters:
        parts.append(f"CLUSTER BY ({clusters})")
    comment = table_comment(request.schema)
    if comment:
        parts.append(f"COMMENT {text_literal(comment)}")
    parts.append(f"TBLPROPERTIES {properties_sql(table_properties(change, request))}")
    return " ".join(parts)


def table_properties(change: TableChange, request: TableRequest) -> dict[str, str]:
    """Return the properties of a new table."""
    results = {
        # A run leaves one identifier in the log, which is not used after its end.
        "delta.setTransactionRetentionDuration": "interval 30 days",
        **names_property(change),
    }
    if request.layout.partition_by:
        results["delta.autoOptimize.optimizeWrite"] = "true"
    columns = change.create or ()
    looked_for = {
        change.mapping.get(name, name) for name in (*request.keys, *request.layout.cluster_by)
    }
    last = leaves = 0
    for column in columns:
        leaves += _leaves(column.dtype)
        last = leaves if column.name in looked_for else last
    if last > _INDEXED:
        results["delta.dataSkippingNumIndexedCols"] = str(last)
    return {**results, **request.layout.properties}


def names_property(change: TableChange) -> dict[str, str]:
    """Return the table property with the stream's names of columns whose names differ."""
    if not change.renamed:
        return {}
    return {NAMES_PROPERTY: json.dumps(change.renamed, sort_keys=True)}


def needed_properties(change: TableChange) -> dict[str, str]:
    """Return the table properties that the change needs."""
    types = [column.dtype for column in change.add]
    types += [dtype for _, dtype in change.add_nested]
    types += [new for _, _, new in change.widen]
    results: dict[str, str] = {}
    text = " ".join(sql_type(dtype) for dtype in types)
    if change.widen:
        results[TYPE_WIDENING] = "true"
    if "timestamp_ntz" in text:
        results["delta.feature.timestampNtz"] = "supported"
    if "variant" in text:
        results["delta.feature.variantType"] = "supported"
    return results


def alterations(change: TableChange) -> Iterator[str]:
    added = [column_sql(column, not_null=False) for column in change.add]
    added += [f"{quoted(*path)} {sql_type(dtype)}" for path, dtype in change.add_nested]
    if added:
        yield f"ADD COLUMNS ({', '.join(added)})"
    for path, _, new in change.widen:
        yield f"ALTER COLUMN {quoted(*path)} TYPE {sql_type(new)}"
    for name in change.nullable:
        yield f"ALTER COLUMN {quoted(name)} DROP NOT NULL"


def fits(now: LakeTable | None, change: TableChange, request: TableRequest) -> bool:
    """Return whether the table has exactly the requested columns and partitions."""
    if now is None or change.create is None:
        return False
    have = [(field.name, loose(field.dataType)) for field in now.struct]
    want = [(column.name, loose(column.dtype)) for column in change.create]
    names = change.mapping
    partitions = tuple(names.get(name, name) for name in request.layout.partition_by)
    strict = {field.name for field in now.struct if not field.nullable}
    loosened = {column.name for column in change.create if column.nullable}
    return have == want and now.partitions == partitions and not strict & loosened


def additions(
    now: LakeTable | None, change: TableChange, request: TableRequest
) -> TableChange | None:
    """Return the change that adds missing columns in place to keep NOT NULL columns.

    Delta declares NOT NULL only for new tables: a table that is replaced loses it.

    Returns:
        The change; None if adding columns is not enough, or there is no NOT NULL to keep.
    """
    if now is None or change.create is None:
        return None
    names = change.mapping
    partitions = tuple(names.get(name, name) for name in request.layout.partition_by)
    want = {column.name: column for column in change.create}
    strict = {field.name for field in now.struct if not field.nullable}
    loosened = tuple(sorted(name for name in strict if name in want and want[name].nullable))
    same = all(
        field.name in want and loose(field.dataType) == loose(want[field.name].dtype)
        for field in now.struct
    )
    if not same or now.partitions != partitions or not strict - set(loosened):
        return None
    added = tuple(column for column in change.create if column.name not in now.struct.names)
    return TableChange(add=added, nullable=loosened, mapping=names)


def interval_seconds(text: str) -> float:
    """Return the seconds of an interval as table properties have it; units are at most weeks."""
    result = re.findall(r"(-?\d+)\s+([a-z]+?)s?\b", text.lower())
    return float(sum(int(number) * _UNITS.get(unit, 0.0) for number, unit in result))


def _leaves(dtype: DataType) -> int:
    if isinstance(dtype, StructType):
        return sum(_leaves(field.dataType) for field in dtype)
    return 1


def delta_storable(struct: StructType) -> StructType:
    """Return the columns with text instead of types that Delta lacks."""
    return StructType(
        [StructField(f.name, mapped(f.dataType, _storable), f.nullable, f.metadata) for f in struct]
    )


def _storable(dtype: DataType) -> DataType:
    absent = (
        T.CalendarIntervalType, T.DayTimeIntervalType, T.YearMonthIntervalType, T.TimeType,
        T.GeometryType, T.GeographyType, T.CharType, T.VarcharType, T.NullType,
    )  # fmt: skip
    return T.StringType() if isinstance(dtype, absent) else dtype


def delta_widens(old: DataType, new: DataType) -> bool:
    """Return whether Delta's type widening can change a column from one type to another."""
    integers = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
    if isinstance(old, T.DecimalType) and isinstance(new, T.DecimalType):
        grows = new.precision - new.scale >= old.precision - old.scale
        return grows and new.scale >= old.scale
    if isinstance(old, integers) and isinstance(new, integers):
        return integers.index(type(old)) <= integers.index(type(new))
    if isinstance(old, integers) and isinstance(new, T.DecimalType):
        return new.precision - new.scale >= (20 if isinstance(old, T.LongType) else 10)
    if isinstance(new, T.DoubleType):
        return isinstance(old, (T.FloatType, *integers[:3]))
    return isinstance(old, T.DateType) and isinstance(new, T.TimestampNTZType)
