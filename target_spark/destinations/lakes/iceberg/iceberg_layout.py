"""Iceberg tables: where they are, how they are partitioned and sorted, types that can be widened.

They are in a catalog of the user, or below a path in our own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shared.errors import SettingsError
from shared.formats.arrow_types import mapped
from shared.formats.spark_types import T
from shared.storage.urls import join, local_path, shown
from target_spark.core.load_plans import TableName, TableRequest
from target_spark.destinations.folders.table_folder import folder_name
from target_spark.destinations.lakes.lake_sql import quoted
from target_spark.destinations.lakes.lake_table import Place, absolute
from target_spark.destinations.lakes.shared_tables import storage_conf
from target_spark.tables.evolution import PartitionField, cluster_columns, partition_fields
from target_spark.tables.table_changes import NameRules, PartitionStep, legal_table_name

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from target_spark.run_settings import TargetConfig


_TRANSFORM = re.compile(r"(\w+)\((?:(\d+),\s*)?(.+)\)")
_NAME = re.compile(r"`((?:[^`]|``)*)`|([^`.]+)")


def partitions_sql(request: TableRequest, names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the partitions of a table: quoted columns, and transforms of them.

    Args:
        request: The request of the stream.
        names: Stream's name → table's name of columns.

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
    """Return the columns by which a table is partitioned without a transform.

    Args:
        partitions: As Spark shows them.
        columns: All columns of the table.
    """
    shown = set(partitions)
    return tuple(name for name in columns if name in shown or quoted(name) in shown)


def same_partitions(shown: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether Spark shows the requested partitions."""
    return [_parsed(text).key for text in shown] == [_parsed(text).key for text in wanted]


def partition_steps(shown: Sequence[str], wanted: Sequence[str]) -> tuple[PartitionStep, ...]:
    """Return the steps that make the partitions of a table the requested ones, in any order.

    Fields of one column replace each other in one step: rows are never without both.

    Args:
        shown: Its partitions, as Spark shows them.
        wanted: The requested ones; see `partitions_sql`.
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
    column = quoted(names.get(field.column, field.column))
    if field.transform == "identity":
        return column
    number = "" if field.number is None else f"{field.number}, "
    return f"{field.transform}({number}{column})"


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


def can_identify(dtype: DataType) -> bool:
    """Return whether a column of the type may be one of Iceberg's identifier fields."""
    others = (
        T.FloatType, T.DoubleType, T.StructType, T.ArrayType, T.MapType, T.VariantType,
    )  # fmt: skip
    return not isinstance(dtype, others)


def _storable(dtype: DataType) -> DataType:
    if isinstance(dtype, (T.ByteType, T.ShortType)):
        return T.IntegerType()
    absent = (
        T.CalendarIntervalType, T.DayTimeIntervalType, T.YearMonthIntervalType, T.TimeType,
        T.GeometryType, T.GeographyType, T.CharType, T.VarcharType, T.NullType, T.VariantType,
    )  # fmt: skip
    return T.StringType() if isinstance(dtype, absent) else dtype


PATH_CATALOG = "singer_iceberg"
"""Name of the Hadoop catalog whose warehouse is the setting `path`."""

NAMESPACE = "default"
"""Namespace in a catalog if a schema is not set."""

_HIVE_REFUSES = "types incompatible with the existing columns"
_HIVE_SETTING = "hive.metastore.disallow.incompatible.col.type.changes"
_RULES = NameRules(style="clean", max_bytes=128, ignore_case=True)


def catalog_conf(config: TargetConfig) -> Mapping[str, str]:
    """Return the configuration of the catalog in our own session.

    Tables are not cached, as others write to them, too; and tables created from rows keep NOT NULL.

    Args:
        config: The settings.
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
    return {**storage_conf(config), **default, **conf}


def location_of(path: str, catalog: str | None, name: TableName) -> Place:
    """Return the location of a table.

    Args:
        path: The setting `path`.
        catalog: The setting `catalog`, which has precedence.
        name: Name of the table.
    """
    if catalog is not None:
        inside = (legal_table_name(part, _RULES) for part in (name.schema or NAMESPACE, name.table))
        parts = (catalog, *inside)
        return Place(quoted(*parts), ".".join(parts))
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
    names = sorted(entry.name for entry in Path(path).iterdir() if entry.name[0] not in "._")
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
