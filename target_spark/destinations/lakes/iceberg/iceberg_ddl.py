"""SQL statements that create and change Iceberg tables, and Spark's description of tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from shared.formats.record_text import quoted as column_name
from target_spark.destinations.lakes.iceberg.iceberg_layout import (
    can_identify,
    needs_version_3,
    order_sql,
    partitions_sql,
)
from target_spark.destinations.lakes.lake_sql import (
    column_sql,
    properties_sql,
    quoted,
    sql_type,
    table_comment,
    text_literal,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from target_spark.core.load_plans import TableRequest
    from target_spark.tables.evolution import TableChange

NAMES_PROPERTY = "target_spark.column_names"
"""Table property with the stream's names of renamed columns."""

VERSION = "format-version"
_FILE_SIZE = "write.target-file-size-bytes"
_IDENTIFIERS = "identifier-fields"
_ORDER = "sort-order"
_SPREAD = "write.distribution-mode"


@dataclass(frozen=True)
class Described:
    """Spark's description of a table.

    Attributes:
        struct: Its columns.
        partitions: As Spark shows them: `day`, `days(at)`.
        properties: Properties of the table, with those that Iceberg adds.
    """

    struct: StructType
    partitions: tuple[str, ...]
    properties: Mapping[str, str]


def described(spark: SparkSession, table: str) -> Described:
    """Return the current table; raise Spark's error if there is none."""
    struct = spark.table(table).schema
    properties = spark.sql(f"SHOW TBLPROPERTIES {table}").collect()
    rows = [(row[0], row[1]) for row in spark.sql(f"DESCRIBE TABLE {table}").collect()]
    return Described(struct, tuple(_partitions(rows)), {row[0]: row[1] for row in properties})


def creation(table: str, change: TableChange, request: TableRequest) -> str:
    """Return CREATE TABLE; it keeps an existing table."""
    columns = ", ".join(column_sql(column) for column in change.create or ())
    return f"CREATE TABLE IF NOT EXISTS {table} ({columns}) {_rest(change, request)}"


def replacement(
    table: str, view: str, frame: DataFrame, change: TableChange, request: TableRequest
) -> tuple[str, DataFrame]:
    """Return the statement that replaces a table by the rows of a view, and those rows."""
    columns = []
    for column in change.create or ():
        metadata = {"comment": column.comment} if column.comment else {}
        columns.append(F.col(column_name(column.name)).alias(column.name, metadata=metadata))
    order = order_sql(request, change.mapping)
    sorted_by = f" ORDER BY {order}" if order and not request.layout.partition_by else ""
    text = f"CREATE OR REPLACE TABLE {table} {_rest(change, request)}"
    return f"{text} AS SELECT * FROM `{view}`{sorted_by}", frame.select(*columns)  # noqa: S608


def identifiers(struct: StructType, names: Mapping[str, str], request: TableRequest) -> list[str]:
    """Return the keys as identifier fields; empty if one of them cannot be such a field.

    Args:
        struct: Columns of the table, `nullable` false for NOT NULL.
        names: Stream's name → table's name of columns.
        request: The request with the keys.
    """
    fields = {field.name: field for field in struct}
    keys = [names.get(key, key) for key in request.keys]
    fit = all(
        key in fields and not fields[key].nullable and can_identify(fields[key].dataType)
        for key in keys
    )
    return keys if fit else []


def finishing(table: Described, change: TableChange, request: TableRequest) -> Iterator[str]:
    """Yield ALTER TABLE actions for a new table: identifier fields and the sort order."""
    keys = identifiers(table.struct, change.mapping, request)
    if keys and _IDENTIFIERS not in table.properties:
        yield f"SET IDENTIFIER FIELDS {', '.join(map(quoted, keys))}"
    order = order_sql(request, change.mapping)
    if order and _ORDER not in table.properties:
        # Within files, as rows arrive; over all files if partitions do not distribute them already.
        yield f"WRITE {'LOCALLY ' if request.layout.partition_by else ''}ORDERED BY {order}"


def new_properties(change: TableChange, now: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that a changed table needs."""
    names = names_property(change)
    added = [column.dtype for column in change.add]
    if needs_version_3(added) and int(now.get(VERSION, "2")) < 3:  # noqa: PLR2004
        names[VERSION] = "3"
    return names


def alterations(change: TableChange, now: Mapping[str, str]) -> Iterator[str]:
    """Yield the ALTER TABLE actions of a change."""
    added = [column_sql(column, not_null=False) for column in change.add]
    added += [f"{quoted(*path)} {sql_type(dtype)}" for path, dtype in change.add_nested]
    if added:
        yield f"ADD COLUMNS ({', '.join(added)})"
    for path, _, new in change.widen:
        yield f"ALTER COLUMN {quoted(*path)} TYPE {sql_type(new)}"
    identifiers = now.get(_IDENTIFIERS, "")[1:-1]
    if identifiers and set(change.nullable) & set(_split(identifiers)):
        # A nullable column cannot be an identifier: without one of them, the others are not one.
        yield f"DROP IDENTIFIER FIELDS {', '.join(map(quoted, _split(identifiers)))}"
    for name in change.nullable:
        yield f"ALTER COLUMN {quoted(name)} DROP NOT NULL"


def _rest(change: TableChange, request: TableRequest) -> str:
    """Return the clauses after the columns in CREATE TABLE."""
    parts = ["USING iceberg"]
    partitions = partitions_sql(request, change.mapping)
    order_sql(request, change.mapping)
    if partitions:
        parts.append(f"PARTITIONED BY ({', '.join(partitions)})")
    comment = table_comment(request.schema)
    if comment:
        parts.append(f"COMMENT {text_literal(comment)}")
    properties = own_properties(change, request)
    if properties:
        parts.append(f"TBLPROPERTIES {properties_sql(properties)}")
    return " ".join(parts)


def own_properties(change: TableChange, request: TableRequest) -> dict[str, str]:
    """Return the properties of a new table."""
    names = names_property(change)
    if request.layout.target_file_bytes is not None:
        names[_FILE_SIZE] = str(request.layout.target_file_bytes)
    if needs_version_3([column.dtype for column in change.create or ()]):
        names[VERSION] = "3"
    return {**names, **request.layout.properties}


def replaced_properties(
    change: TableChange, request: TableRequest, now: Mapping[str, str]
) -> dict[str, str]:
    """Return the properties of a table whose columns and rows are all replaced."""
    properties = own_properties(change, request)
    if int(now.get(VERSION, "2")) >= int(properties.get(VERSION, "0")):
        properties.pop(VERSION, None)
    comment = table_comment(request.schema)
    if comment:
        properties["comment"] = comment
    if request.layout.cluster_by:
        properties.setdefault(_SPREAD, "none" if request.layout.partition_by else "range")
    if NAMES_PROPERTY in now:
        properties.setdefault(NAMES_PROPERTY, json.dumps(dict(change.renamed), sort_keys=True))
    return {name: text for name, text in properties.items() if now.get(name) != text}


def names_property(change: TableChange) -> dict[str, str]:
    """Return the property with the names of renamed columns, if there are any."""
    changed = change.renamed
    return {NAMES_PROPERTY: json.dumps(dict(changed), sort_keys=True)} if changed else {}


def _partitions(rows: list[tuple[str, str]]) -> Iterator[str]:
    """Yield the partitions from the output of DESCRIBE TABLE."""
    names = [name for name, _ in rows]
    if "# Partitioning" in names:
        for name, text in rows[names.index("# Partitioning") + 1 :]:
            if not name.startswith("Part "):
                return
            yield text
    elif "# Partition Information" in names:
        for name, _ in rows[names.index("# Partition Information") + 1 :]:
            if not name or (name.startswith("# ") and name != "# col_name"):
                return
            if name != "# col_name":
                yield name


def _split(identifiers: str) -> list[str]:
    return [name for name in identifiers.split(",") if name]
