"""SQL for lake tables: MERGE, ACTIVATE_VERSION, views, columns, ranges and rules of rows. Pure."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DataType, StructType

from shared.errors import SettingsError, Where
from shared.formats.spark_types import T
from shared.maps.record_metadata import VERSION_COLUMNS
from shared.settings.texts import quoted
from target_spark.core.balance import Committed
from target_spark.core.load_plans import DOCUMENT, Backfill, TableRequest
from target_spark.tables.table_changes import Column, TableChange, not_older

if TYPE_CHECKING:
    from target_spark.destinations.lakes.lake_table import LakeTable, Place


STORED_AS_TEXT = (
    T.CalendarIntervalType, T.DayTimeIntervalType, T.YearMonthIntervalType, T.TimeType,
    T.GeometryType, T.GeographyType, T.CharType, T.VarcharType, T.NullType,
)  # fmt: skip
"""Types that tables of lakes lack."""
TARGET, SOURCE = "t", "s"
STEP = "__step"
"""Column of the source with what a row of it does to the versions of its key."""
GONE = "__gone"
"""Column of the source of a repair: true for a key that only the table has."""
MOST_VALUES = 64
"""For a column with more values in a flush, only their range is compared."""


@dataclass(frozen=True)
class KeyRange:
    """The values of a flush in one key column.

    Attributes:
        column: Name in the table.
        first: Least value; None if there is none, or it cannot be written as SQL.
        last: Greatest value, like `first`.
        nulls: Whether any value is null.
        values: All values but null, if there are only a few.
    """

    column: str
    first: Any = None
    last: Any = None
    nulls: bool = True
    values: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class MergePlan:
    """The plan of a MERGE.

    Attributes:
        keys: Key columns of the table, with the values of the flush.
        insert: All columns to insert.
        update: The columns to update.
        deleted: Column that marks rows to delete if it is not null, or None.
        order_by: Columns that tell whether a row is older than that of the table, and so ignored.
    """

    keys: Sequence[KeyRange]
    insert: Sequence[str]
    update: Sequence[str]
    deleted: str | None = None
    order_by: Sequence[str] = ()

    def result(self, changed: int | None, count: int) -> Committed:
        """Return what the MERGE of so many keys has changed."""
        may_skip = self.deleted is not None or not self.update or bool(self.order_by)
        if changed is not None:
            # A key that the table has more than once is changed in each of its rows.
            changed = min(changed, count)
        return Committed(changed, count, by_key=True, may_skip=may_skip)


def merge_sql(plan: MergePlan, table: str, view: str) -> str:
    """Return the MERGE statement.

    The quoted view has one row for each key, with the table's column names.
    """
    lines = [_merge(table, view), f"ON {condition(plan.keys)}"]
    gone = None if plan.deleted is None else f"{SOURCE}.{quoted(plan.deleted)}"
    pairs = [(f"{SOURCE}.{quoted(name)}", f"{TARGET}.{quoted(name)}") for name in plan.order_by]
    newer = f" AND {not_older(pairs, '<=>')}" if pairs else ""
    if gone is not None:
        lines.append(f"WHEN MATCHED{newer} AND {gone} IS NOT NULL THEN DELETE")
    if plan.update:
        sets = ", ".join(f"{quoted(name)} = {SOURCE}.{quoted(name)}" for name in plan.update)
        lines.append(f"WHEN MATCHED{newer} THEN UPDATE SET {sets}")
    only = "" if gone is None else f" AND {gone} IS NULL"
    lines.append(f"WHEN NOT MATCHED{only} THEN {_insert(plan.insert)}")
    return "\n".join(lines)


def repair_sql(
    keys: Sequence[str], columns: Sequence[str], deleted: str | None, table: str, view: str
) -> str:
    """Return the MERGE statement that makes rows equal to those of the source.

    The column `GONE` of the quoted view is true for keys that only the table has. Their rows get a
    mark in the column `deleted`; without one, they are deleted.
    """
    gone = f"{SOURCE}.{quoted(GONE)}"
    same = " AND ".join(f"{TARGET}.{quoted(key)} <=> {SOURCE}.{quoted(key)}" for key in keys)
    lines = [_merge(table, view), f"ON {same}"]
    if deleted is None:
        lines.append(f"WHEN MATCHED AND {gone} THEN DELETE")
    else:
        mark = quoted(deleted)
        lines.append(f"WHEN MATCHED AND {gone} THEN UPDATE SET {mark} = {SOURCE}.{mark}")
    changed = [name for name in columns if name not in keys]
    if changed:
        sets = ", ".join(f"{quoted(name)} = {SOURCE}.{quoted(name)}" for name in changed)
        lines.append(f"WHEN MATCHED AND NOT {gone} THEN UPDATE SET {sets}")
    lines.append(f"WHEN NOT MATCHED AND NOT {gone} THEN {_insert(columns)}")
    return "\n".join(lines)


def versions_sql(
    keys: Sequence[KeyRange],
    insert: Sequence[str],
    valid_to: str,
    is_current: str,
    table: str,
    view: str,
) -> str:
    """Return the MERGE statement that closes and adds versions.

    For the quoted view see `row_versions.version_steps`. A null in `is_current` counts as true.
    """
    step, current = f"{SOURCE}.{quoted(STEP)}", f"coalesce({TARGET}.{quoted(is_current)}, true)"
    end = f"{quoted(valid_to)} = {SOURCE}.{quoted(valid_to)}"
    return "\n".join(
        [
            _merge(table, view),
            f"ON {step} = 'close' AND {current} AND {condition(keys)}",
            f"WHEN MATCHED THEN UPDATE SET {end}, {quoted(is_current)} = false",
            f"WHEN NOT MATCHED AND {step} = 'add' THEN {_insert(insert)}",
        ]
    )


def condition(keys: Sequence[KeyRange]) -> str:
    """Return the MERGE condition: equal keys, and the range of keys in the flush."""
    return " AND ".join([*map(_same, keys), *filter(None, [near(keys)])])


def near(keys: Sequence[KeyRange]) -> str:
    """Return the range of keys in the flush, or nothing.

    It depends only on the table, so that files without such rows are not read.
    """
    return " AND ".join(text for key in keys if (text := _near(key)))


def activate_sql(table: str, version: str, deleted: str, below: int, at: float | None) -> str:
    """Return the statement that removes or marks rows of older versions.

    They have a version lower than `below`; `at` is the time for the mark, in seconds since the
    epoch, or None to delete the rows.
    """
    old = f"{quoted(version)} < {below}"
    if at is None:
        # Metadata cannot answer the second condition: Iceberg's commit without it, for whole
        # files, would lack the mark, so that replays before it would not be detected.
        rows = f"coalesce({quoted(version)}, {below}) < {below}"
        return f"DELETE FROM {table} WHERE {old} AND {rows}"  # noqa: S608
    mark = quoted(deleted)
    change = f"{mark} = timestamp_micros({round(at * 1e6)})"
    return f"UPDATE {table} SET {change} WHERE {old} AND {mark} IS NULL"  # noqa: S608


def text_literal(text: str) -> str:
    """Return a text as an SQL literal, with any content."""
    return "'" + "".join(map(_escaped, text)) + "'"


def literal(value: Any) -> str | None:
    """Return a key value as an SQL literal; None if it cannot be written exactly and shortly."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return (
            f"CAST({text_literal(str(value))} AS BIGINT)" if abs(value) >= 1 << 31 else str(value)
        )
    if isinstance(value, decimal.Decimal):
        return f"{value:f}BD" if value.is_finite() else None
    if isinstance(value, str):
        return text_literal(value) if len(value) <= _LONGEST else None
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP'{value.isoformat(' ')}'" if value.tzinfo is not None else None
    return f"DATE'{value.isoformat()}'" if isinstance(value, dt.date) else None


_LONGEST = 500
_PLAIN_END = 127


def _merge(table: str, view: str) -> str:
    return f"MERGE INTO {table} AS {TARGET} USING {view} AS {SOURCE}"


def _insert(columns: Sequence[str]) -> str:
    names = ", ".join(map(quoted, columns))
    values = ", ".join(f"{SOURCE}.{quoted(name)}" for name in columns)
    return f"INSERT ({names}) VALUES ({values})"  # noqa: S608


def _same(key: KeyRange) -> str:
    name = quoted(key.column)
    equal = "<=>" if key.nulls else "="
    return f"{TARGET}.{name} {equal} {SOURCE}.{name}"


def _near(key: KeyRange) -> str:
    name = f"{TARGET}.{quoted(key.column)}"
    result = _few(key, name) or _between(key, name)
    if not result:
        return ""
    return f"({result} OR {name} IS NULL)" if key.nulls else result


def _few(key: KeyRange, name: str) -> str:
    if not key.values or len(key.values) > MOST_VALUES:
        return ""
    texts = [text for value in key.values if (text := literal(value))]
    return f"{name} IN ({', '.join(texts)})" if len(texts) == len(key.values) else ""


def _between(key: KeyRange, name: str) -> str:
    first, last = literal(key.first), literal(key.last)
    return f"{name} BETWEEN {first} AND {last}" if first and last else ""


def _escaped(char: str) -> str:
    """Return an escaped character; also `$`, as Spark replaces `${…}` anywhere in a statement."""
    if char in "\\'":
        return f"\\{char}"
    if char == "$" or not " " <= char <= chr(_PLAIN_END):
        data = char.encode("utf-16-be", "surrogatepass")
        units = (data[n : n + 2].hex() for n in range(0, len(data), 2))
        return "".join(f"\\u{unit}" for unit in units)
    return char


def sql_type(dtype: DataType) -> str:
    """Return a type in SQL, with every field name quoted."""
    if isinstance(dtype, T.StructType):
        fields = (f"{quoted(field.name)}: {sql_type(field.dataType)}" for field in dtype)
        return f"STRUCT<{', '.join(fields)}>"
    if isinstance(dtype, T.ArrayType):
        return f"ARRAY<{sql_type(dtype.elementType)}>"
    if isinstance(dtype, T.MapType):
        return f"MAP<{sql_type(dtype.keyType)}, {sql_type(dtype.valueType)}>"
    return dtype.simpleString()


def column_sql(column: Column, *, not_null: bool = True) -> str:
    """Return a column in CREATE TABLE or ADD COLUMNS."""
    parts = [quoted(column.name), sql_type(column.dtype)]
    if not_null and not column.nullable:
        parts.append("NOT NULL")
    if column.comment:
        parts.append(f"COMMENT {text_literal(column.comment)}")
    return " ".join(parts)


def altered_columns(change: TableChange, *before_nulls: str) -> Iterator[str]:
    """Yield the ALTER TABLE actions of a change; others come before NOT NULL is dropped."""
    added = [column_sql(column, not_null=False) for column in change.add]
    added += [f"{quoted(*path)} {sql_type(dtype)}" for path, dtype in change.add_nested]
    if added:
        yield f"ADD COLUMNS ({', '.join(added)})"
    for path, _, new in change.widen:
        yield f"ALTER COLUMN {quoted(*path)} TYPE {sql_type(new)}"
    yield from before_nulls
    for name in change.nullable:
        yield f"ALTER COLUMN {quoted(name)} DROP NOT NULL"


def properties_sql(values: Mapping[str, str]) -> str:
    """Return the properties of a table in SQL: `('a' = 'b', …)`."""
    pairs = (f"{text_literal(key)} = {text_literal(value)}" for key, value in values.items())
    return f"({', '.join(pairs)})"


def set_properties(new: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the ALTER TABLE action for properties that a table lacks or has otherwise, if any."""
    wanted = {name: text for name, text in new.items() if now.get(name) != text}
    return [f"SET TBLPROPERTIES {properties_sql(wanted)}"] if wanted else []


NAMES_PROPERTY = "target_spark.column_names"
"""Table property with the stream's names of renamed columns."""


def names_property(change: TableChange) -> dict[str, str]:
    """Return the property with the names of renamed columns, if there are any."""
    names = dict(change.renamed)
    return {NAMES_PROPERTY: json.dumps(names, sort_keys=True)} if names else {}


@dataclass(frozen=True)
class RowRule:
    """A rule of a table.

    Attributes:
        condition: SQL over the table's columns, true for each row that the table takes.
        reason: What is wrong with another row.
        column: The column at fault, or nothing.
        is_unchecked: The format stores another row all the same, with another value.
    """

    condition: str
    reason: str
    column: str = ""
    is_unchecked: bool = False


def not_null_rules(struct: StructType, *, inside_null: bool) -> list[RowRule]:
    """Return the rules of columns and fields that are NOT NULL.

    With `inside_null`, a field in a struct that is null breaks its rule, too.
    """
    return [
        RowRule(
            condition,
            f"the column does not take null (type {field.dataType.simpleString()})",
            field.name,
        )
        for field in struct
        if field.name not in VERSION_COLUMNS
        for condition in _filled(quoted(field.name), field.dataType, field.nullable, inside_null)
    ]


def _filled(
    sql: str, dtype: DataType, nullable: bool, inside_null: bool, depth: int = 0
) -> Iterator[str]:
    """Yield the conditions under which a value has no null that its type forbids."""
    if not nullable:
        yield f"{sql} IS NOT NULL"
    if isinstance(dtype, T.StructType):
        for field in dtype:
            inner = f"{sql}.{quoted(field.name)}", field.dataType, field.nullable
            for condition in _filled(*inner, inside_null, depth):
                yield condition if inside_null else f"({sql} IS NULL OR {condition})"
        return
    if isinstance(dtype, T.ArrayType):
        items, element, may_be_null = sql, dtype.elementType, dtype.containsNull
    elif isinstance(dtype, T.MapType):
        items, element, may_be_null = f"map_values({sql})", dtype.valueType, dtype.valueContainsNull
    else:
        return
    item = f"item{depth}"
    for condition in _filled(item, element, may_be_null, inside_null, depth + 1):
        yield f"({sql} IS NULL OR forall({items}, {item} -> {condition}))"


def range_sql(backfill: Backfill, now: LakeTable) -> str:
    """Return the condition for the rows of a range."""
    name = now.names.get(backfill.column, backfill.column)
    kind = now.struct[name].dataType.simpleString()
    first, end = (f"CAST({text_literal(t)} AS {kind})" for t in (backfill.since, backfill.until))
    return f"{quoted(name)} >= {first} AND {quoted(name)} < {end}"


def view_sql(place: Place, request: TableRequest, names: Mapping[str, str]) -> str:
    """Return the statement that creates or replaces the view `<table>_view`.

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
    for field in request.view or ():
        if field.name.casefold() not in taken:
            taken.add(field.name.casefold())
            columns.append(
                f"{_value(document, field.name, field.dataType)} AS {quoted(field.name)}"
            )
    view = f"{place.table[:-1]}_view`"
    return f"CREATE OR REPLACE VIEW {view} AS SELECT {', '.join(columns)} FROM {place.table}"  # noqa: S608


def _value(document: str, name: str, dtype: DataType) -> str:
    """Return one property of the record; null if it is not of its type."""
    # A key in the path of a variant has two kinds of quotes, and cannot escape them.
    path = text_literal(f'$["{name}"]' if '"' not in name else f"$['{name}']")
    if isinstance(dtype, (T.StructType, T.ArrayType, T.MapType, T.VariantType)):
        return f"try_variant_get({document}, {path}, 'variant')"
    if isinstance(dtype, T.BinaryType):
        return f"unbase64(try_variant_get({document}, {path}, 'string'))"
    kind = "string" if isinstance(dtype, STORED_AS_TEXT) else dtype.simpleString()
    return f"try_variant_get({document}, {path}, '{kind}')"
