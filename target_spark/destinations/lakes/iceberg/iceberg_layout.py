"""Iceberg tables: where they are, their partitions and order, and the SQL that changes them.

They are in a catalog of the user, or below a path in our own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.types import DataType, StructType

from shared.errors import SettingsError
from shared.formats.arrow_types import mapped
from shared.formats.spark_types import T
from shared.settings.texts import quoted
from shared.storage.urls import join, local_path, shown
from target_spark.core.load_plans import TableName, TableRequest
from target_spark.destinations.folders.table_folder import folder_name, visible
from target_spark.destinations.lakes.lake_sql import (
    NAMES_PROPERTY,
    STORED_AS_TEXT,
    altered_columns,
    column_sql,
    names_property,
    properties_sql,
    text_literal,
)
from target_spark.destinations.lakes.lake_table import (
    LakeTable,
    Place,
    TableHandle,
    absolute,
    catalog_place,
    partition_columns,
    with_column_defaults,
)
from target_spark.run_settings import TargetConfig
from target_spark.tables.partitions import PartitionField, cluster_columns, partition_fields
from target_spark.tables.table_changes import PartitionStep, TableChange, comment_of

_TRANSFORM = re.compile(r"(\w+)\((?:(\d+),\s*)?(.+)\)")
_NAME = re.compile(r"`((?:[^`]|``)*)`|([^`.]+)")


def partitions_sql(request: TableRequest, names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the partitions of a table: quoted columns, and transforms of them.

    Raises:
        SettingsError: The stream lacks a column, or a transform is unknown.
    """
    return tuple(_partition(field, names) for field in partition_fields(request))


def order_sql(request: TableRequest, names: Mapping[str, str]) -> str:
    """Return the columns that a table is sorted by; empty for none.

    Raises:
        SettingsError: The stream lacks a column.
    """
    columns = cluster_columns(request, "sort")
    return ", ".join(quoted(names.get(name, name)) for name in columns)


def plain_columns(partitions: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns by which a table is partitioned without a transform."""
    shown = set(partitions)
    return tuple(name for name in columns if name in shown or quoted(name) in shown)


def same_partitions(shown: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether Spark shows the requested partitions."""
    return [_parsed(text).key for text in shown] == [_parsed(text).key for text in wanted]


def partition_steps(shown: Sequence[str], wanted: Sequence[str]) -> tuple[PartitionStep, ...]:
    """Return the steps that make the partitions of a table the requested ones, in any order.

    Fields of one column replace each other in one step: rows are never without both.
    """
    return tuple(_steps([_parsed(text) for text in shown], [_parsed(text) for text in wanted]))


def partition_changes(steps: Sequence[PartitionStep]) -> Iterator[str]:
    """Yield the ALTER TABLE actions of steps."""
    for old, new in steps:
        if old is None:
            yield f"ADD PARTITION FIELD {new}"
        elif new is None:
            yield f"DROP PARTITION FIELD {old}"
        else:
            yield f"REPLACE PARTITION FIELD {old} WITH {new}"


def _steps(have: Sequence[_Field], want: Sequence[_Field]) -> Iterator[PartitionStep]:
    keys = [{field.key for field in fields} for fields in (have, want)]
    gone = [field for field in have if field.key not in keys[1]]
    come = [field for field in want if field.key not in keys[0]]
    dropped = []
    for old in gone:
        new = next((field for field in come if field.key[-1] == old.key[-1]), None)
        if new is None:
            dropped.append(old)
        else:
            come.remove(new)
            yield old.sql, new.sql
    for new in come:
        yield None, new.sql
    for old in dropped:
        yield old.sql, None


def _partition(field: PartitionField, names: Mapping[str, str]) -> str:
    transform = "" if field.transform == "identity" else field.transform
    number = "" if field.number is None else str(field.number)
    return _Field(transform, number, (names.get(field.column, field.column),)).sql


@dataclass(frozen=True)
class _Field:
    """A partition field: transform, its number or "", and the path of its column."""

    transform: str
    number: str
    path: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str, str]:
        """Return what is equal for equal fields, the column last: Iceberg ignores case."""
        return self.transform, self.number, quoted(*self.path).casefold()

    @property
    def sql(self) -> str:
        if not self.transform:
            return quoted(*self.path)
        number = f"{self.number}, " if self.number else ""
        return f"{self.transform}({number}{quoted(*self.path)})"


def _parsed(text: str) -> _Field:
    """Return a partition field in SQL; Spark does not always quote names."""
    match = _TRANSFORM.fullmatch(text)
    name, number, column = match.groups() if match else ("", None, text)
    path = (inside.replace("``", "`") or bare for inside, bare in _NAME.findall(column))
    return _Field(name.lower(), number or "", tuple(path))


_SCALARS = {
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "string": "string",
    "binary": "binary",
}
"""Iceberg's name of a type → Spark's."""
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")


def iceberg_storable(struct: StructType) -> StructType:
    """Return the columns with the types that Iceberg stores.

    Small integers become integers; types that Iceberg or its Spark lacks become text.
    """
    # A variant inside of others is text already: see `parts`.
    whole = {f.name: f.dataType for f in struct if isinstance(f.dataType, T.VariantType)}
    return T.StructType(
        [
            T.StructField(
                f.name, whole.get(f.name) or mapped(f.dataType, _storable), f.nullable, f.metadata
            )
            for f in struct
        ]
    )


def iceberg_widens(old: DataType, new: DataType) -> bool:
    """Return whether Iceberg can change a column from one type to another without a rewrite."""
    if isinstance(old, T.DecimalType) and isinstance(new, T.DecimalType):
        return new.scale == old.scale and new.precision >= old.precision
    small = (T.ByteType, T.ShortType, T.IntegerType)
    if isinstance(old, small):
        return isinstance(new, (T.IntegerType, T.LongType))
    return isinstance(old, T.FloatType) and isinstance(new, T.DoubleType)


def needs_version_3(dtypes: list[DataType]) -> bool:
    """Return whether a type needs version 3 of the format."""
    return any(isinstance(dtype, T.VariantType) for dtype in dtypes)


_NO_IDENTIFIERS = (
    T.FloatType, T.DoubleType, T.StructType, T.ArrayType, T.MapType, T.VariantType,
)  # fmt: skip
"""Types whose columns cannot be identifier fields of Iceberg."""


def _storable(dtype: DataType) -> DataType:
    if isinstance(dtype, (T.ByteType, T.ShortType)):
        return T.IntegerType()
    return T.StringType() if isinstance(dtype, (*STORED_AS_TEXT, T.VariantType)) else dtype


PATH_CATALOG = "singer_iceberg"
"""Name of the Hadoop catalog whose warehouse is the setting `path`."""

_HIVE_REFUSES = "types incompatible with the existing columns"
_HIVE_SETTING = "hive.metastore.disallow.incompatible.col.type.changes"


def catalog_conf(config: TargetConfig) -> Mapping[str, str]:
    """Return the configuration of the catalog in our own session.

    Tables are not cached, as others write to them, too; and tables created from rows keep NOT NULL.
    """
    name = f"spark.sql.catalog.{config.catalog or PATH_CATALOG}"
    conf = {f"{name}.cache-enabled": "false", f"{name}.use-nullable-query-schema": "false"}
    if config.catalog is not None:
        settings = {
            key: text
            for key, text in config.spark.conf.items()
            if key == name or key.startswith(f"{name}.")
        }
        return {**settings, **conf}
    default = {name: "org.apache.iceberg.spark.SparkCatalog", f"{name}.type": "hadoop"}
    default[f"{name}.warehouse"] = absolute(config.path)
    return {**default, **conf}


def location_of(path: str, catalog: str | None, name: TableName) -> Place:
    """Return the location of a table by the settings `path` and `catalog`, of higher precedence."""
    if catalog is not None:
        return catalog_place(catalog, name)
    return place_below(path, *(folder_name(part) for part in (name.schema, name.table) if part))


def place_below(path: str, *folders: str) -> Place:
    """Return the location of a table in folders below the setting `path`."""
    folder = join(absolute(path), *folders)
    return Place(quoted(PATH_CATALOG, *folders), f"'{shown(folder)}'", folder)


def check_empty(folder: str | None) -> None:
    """Reject a local folder with other content for a new table.

    Raises:
        SettingsError: The folder has other files, which would not be rows of the table.
    """
    path = None if folder is None else local_path(folder)
    if path is None or not Path(path).is_dir():
        return
    names = sorted(entry.name for entry in Path(path).iterdir() if visible(entry.name))
    if names and "metadata" not in names:
        raise SettingsError(
            f"'{path}' is not an Iceberg table: it contains '{names[0]}'",
            hint="use another path, table_prefix or default_target_schema",
        )


@contextmanager
def hive_refusals() -> Iterator[None]:
    """Raise a permanent error for a commit that the Hive metastore always rejects.

    Raises:
        SettingsError: The metastore compares columns by position, as older formats need it.
    """
    try:
        yield
    except Exception as error:
        if _HIVE_REFUSES not in str(error):
            raise
        raise SettingsError(
            "the Hive metastore rejects a column of another type in the position of a known one",
            hint=f"set {_HIVE_SETTING} to false in the metastore's hive-site.xml",
        ) from error


VERSION = "format-version"
_FILE_SIZE = "write.target-file-size-bytes"
_IDENTIFIERS = "identifier-fields"
_ORDER = "sort-order"
_SPREAD = "write.distribution-mode"


def described(table: TableHandle) -> LakeTable:
    """Return the current table; raise Spark's error if there is none."""
    struct, properties = with_column_defaults(table.rows.schema), table.properties()
    rows = [(row[0], row[1]) for row in table.sql(f"DESCRIBE TABLE {table.name}").collect()]
    names, spec = json.loads(properties.get(NAMES_PROPERTY, "{}")), tuple(_partitions(rows))
    return LakeTable(struct, names, plain_columns(spec, struct.names), properties, spec=spec)


def creation(table: str, change: TableChange, request: TableRequest) -> str:
    """Return CREATE TABLE; it keeps an existing table."""
    columns = ", ".join(map(column_sql, change.create or ()))
    return f"CREATE TABLE IF NOT EXISTS {table} ({columns}) {table_clauses(change, request)}"


def replacement(table: str, view: str, change: TableChange, request: TableRequest) -> str:
    """Return the statement that replaces a table by the rows of a view."""
    order = order_sql(request, change.mapping)
    sorted_by = f" ORDER BY {order}" if order and not request.layout.partition_by else ""
    head = f"CREATE OR REPLACE TABLE {table} {table_clauses(change, request)}"
    return f"{head} AS SELECT * FROM {view}{sorted_by}"  # noqa: S608


def identifiers(struct: StructType, names: Mapping[str, str], request: TableRequest) -> list[str]:
    """Return the keys as identifier fields; empty if one of them cannot be such a field."""
    fields = {field.name: field for field in struct}
    keys = [names.get(key, key) for key in request.keys]
    fit = all(
        key in fields
        and not fields[key].nullable
        and not isinstance(fields[key].dataType, _NO_IDENTIFIERS)
        for key in keys
    )
    return keys if fit else []


def finishing(table: LakeTable, change: TableChange, request: TableRequest) -> Iterator[str]:
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
    names = [name for name in now.get(_IDENTIFIERS, "")[1:-1].split(",") if name]
    # A nullable column cannot be an identifier: without one of them, the others are not one.
    loses = not set(change.nullable).isdisjoint(names)
    dropped = [f"DROP IDENTIFIER FIELDS {', '.join(map(quoted, names))}"] if loses else []
    return altered_columns(change, *dropped)


def table_clauses(change: TableChange, request: TableRequest) -> str:
    """Return the clauses after the columns in CREATE TABLE."""
    parts = ["USING iceberg"]
    partitions = partitions_sql(request, change.mapping)
    order_sql(request, change.mapping)
    if partitions:
        parts.append(f"PARTITIONED BY ({', '.join(partitions)})")
    comment = comment_of(request.schema)
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
    comment = comment_of(request.schema)
    if comment:
        properties["comment"] = comment
    if request.layout.cluster_by:
        properties.setdefault(_SPREAD, "none" if request.layout.partition_by else "range")
    if NAMES_PROPERTY in now:
        properties.setdefault(NAMES_PROPERTY, "{}")
    return {name: text for name, text in properties.items() if now.get(name) != text}


def _partitions(rows: list[tuple[str, str]]) -> Iterator[str]:
    """Yield the partitions from the output of DESCRIBE TABLE."""
    names = [name for name, _ in rows]
    if "# Partitioning" in names:
        for name, text in rows[names.index("# Partitioning") + 1 :]:
            if not name.startswith("Part "):
                return
            yield text
    else:
        yield from partition_columns(names)
