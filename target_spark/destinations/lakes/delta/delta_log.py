"""SQL that changes Delta tables, and what their log tells: rules, computed columns, rows written.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#commit-provenance-information and
the metrics of operations in Delta's documentation of `DESCRIBE HISTORY`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from heapq import nlargest
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StructField, StructType

from shared.errors import SettingsError, Where
from shared.formats.arrow_types import as_nullable, mapped
from shared.formats.spark_types import T
from shared.settings.texts import quoted
from shared.storage.urls import join, local_path
from target_spark.core.load_plans import TableRequest
from target_spark.destinations.lakes.lake_sql import (
    STORED_AS_TEXT,
    RowRule,
    names_property,
    properties_sql,
    sql_type,
    text_literal,
)
from target_spark.destinations.lakes.lake_table import (
    GENERATED,
    IDENTITY,
    LakeTable,
    TableHandle,
    literal_path,
)
from target_spark.tables.partitions import cluster_columns, partition_fields
from target_spark.tables.table_changes import TableChange, comment_of

_CONSTRAINT = "delta.constraints."
_EXPLICIT = "delta.identity.allowExplicitInsert"
_INVARIANT = "delta.invariants"
_LENGTH = "__CHAR_VARCHAR_TYPE_STRING"
_FEATURES = {"delta.feature.generatedColumns", "delta.feature.identityColumns"}
_FIRST_COMPUTING, _FEATURE_WRITER = 4, 7


EMPTY = (
    "an empty value would become null, as Delta partitions the table by the column (send null or "
    "another value, or load into a table without this partition)"
)


def delta_rules(now: LakeTable) -> Iterator[RowRule]:
    """Yield the rules of a table beside NOT NULL: CHECK constraints, invariants, lengths, and that
    partition columns hold no empty value, as Delta has null for it.
    """
    for name, text in now.properties.items():
        if name.startswith(_CONSTRAINT):
            yield _condition(f"CHECK constraint '{name[len(_CONSTRAINT) :]}'", text)
    for field in now.struct:
        metadata = field.metadata or {}
        if _INVARIANT in metadata:
            text = json.loads(metadata[_INVARIANT])["expression"]["expression"]
            yield _condition(f"invariant of '{field.name}'", text)
        length = re.search(r"\((\d+)\)$", metadata.get(_LENGTH, ""))
        if length is not None:
            column, most = quoted(field.name), length[1]
            yield RowRule(
                f"({column} IS NULL OR length({column}) <= {most})",
                f"the value is too long for its column (type {metadata[_LENGTH]})",
                field.name,
            )
        may_be_empty = isinstance(field.dataType, (T.StringType, T.BinaryType))
        if may_be_empty and field.name in now.partitions:
            column = quoted(field.name)
            condition = f"({column} IS NULL OR length({column}) > 0)"
            yield RowRule(condition, EMPTY, field.name, is_unchecked=True)


def padded_columns(struct: StructType) -> frozenset[str]:
    """Return the columns of the type CHAR, which Spark pads as it reads them."""
    texts = {field.name: (field.metadata or {}).get(_LENGTH, "") for field in struct}
    return frozenset(name for name, text in texts.items() if text.startswith("char"))


def _condition(name: str, text: str) -> RowRule:
    return RowRule(f"({text})", f"the row does not fit a condition of the table: {name} ({text})")


def may_compute(properties: Mapping[str, str]) -> bool:
    """Return whether a table may have columns that it computes, by its protocol."""
    version = int(properties.get("delta.minWriterVersion", "0"))
    return not _FEATURES.isdisjoint(properties) or _FIRST_COMPUTING <= version < _FEATURE_WRITER


def computed_columns(struct: StructType) -> frozenset[str]:
    """Return the columns that rows cannot set."""
    return frozenset(field.name for field in struct if _is_computed(field))


def _is_computed(field: StructField) -> bool:
    metadata = field.metadata or {}
    return GENERATED in metadata or (IDENTITY in metadata and not metadata.get(_EXPLICIT))


def logged_struct(spark: SparkSession, location: str) -> StructType:
    """Return the columns of a table with all their metadata, as the newest entry of its log says.

    `location` is its path or URL.
    """
    log = join(literal_path(location), "_delta_log")
    reader = spark.read.schema("metaData struct<schemaString string>")
    for form, pattern in (("json", "*.json"), ("parquet", "*.checkpoint*.parquet")):
        entries = reader.format(form).load(join(log, pattern)).where("metaData IS NOT NULL")
        newest = entries.select("metaData.schemaString", F.col("_metadata.file_name").alias("file"))
        rows = newest.orderBy(F.desc("file")).limit(1).collect()
        if rows:
            return StructType.fromJson(json.loads(rows[0][0]))
    return StructType()


NEWEST = 5
"""Commits of others may have followed; further back, the metrics are not searched for."""

_MERGED = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


def changed_rows(metrics: Mapping[str, str], *, versions: bool = False) -> int | None:
    """Return how many rows a commit has added, updated or deleted; None if it does not tell.

    With `versions`, updates only close versions, and do not count.
    """
    if _MERGED[0] in metrics:
        return sum(int(metrics.get(name, 0)) for name in _MERGED[: 1 if versions else 3])
    if "numOutputRows" not in metrics:
        return None
    # An overwrite of a range writes the other rows of the same files again.
    return int(metrics["numOutputRows"]) - int(metrics.get("numCopiedRows", 0))


def commit_metrics(table: TableHandle, text: str) -> Mapping[str, str]:
    """Return the metrics of the commit with the text of a mark; empty if they are not found.

    The session is used only if the log is not on a local disk.
    """
    folder = None if table.place.folder is None else local_path(table.place.folder)
    log = None if folder is None else Path(folder, "_delta_log")
    if log is not None and log.is_dir():  # Delta decodes %3A in a path, and has it elsewhere
        infos = (info for info in commit_infos(log, NEWEST) if info.get("userMetadata") == text)
        return next(infos, {}).get("operationMetrics") or {}
    rows = table.sql(f"DESCRIBE HISTORY {table.name} LIMIT {NEWEST}")
    for metadata, metrics in rows.select("userMetadata", "operationMetrics").collect():
        if metadata == text:
            return metrics or {}
    return {}


def vacuumed_files(table: TableHandle) -> int | None:
    """Return how many files the last VACUUM has deleted; None if the log does not tell."""
    rows = table.sql(f"DESCRIBE HISTORY {table.name} LIMIT 1")
    for operation, metrics in rows.select("operation", "operationMetrics").collect():
        if operation == "VACUUM END" and "numDeletedFiles" in (metrics or {}):
            return int(metrics["numDeletedFiles"])
    return None


def commit_infos(log: Path, limit: int) -> Iterator[Mapping[str, Any]]:
    """Yield what the newest commits say of themselves in a log on a local disk; it may be nothing.

    The package `deltalake` leaves out commits that say nothing.
    """
    for path in nlargest(limit, (path for path in log.glob("*.json") if path.stem.isdigit())):
        with path.open("rb") as file:
            actions = (json.loads(line) for line in file if b'"commitInfo"' in line)
            yield next((one["commitInfo"] or {} for one in actions if "commitInfo" in one), {})


FORBIDDEN = " ,;{}()\n\t="
"""Characters that Delta rejects in column names if columns are resolved by name."""

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
    comment = comment_of(request.schema)
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


def fits(now: LakeTable | None, change: TableChange, request: TableRequest) -> bool:
    """Return whether the table has exactly the requested columns and partitions."""
    if now is None or change.create is None:
        return False
    have = [(field.name, as_nullable(field.dataType)) for field in now.struct]
    want = [(column.name, as_nullable(column.dtype)) for column in change.create]
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
        field.name in want and as_nullable(field.dataType) == as_nullable(want[field.name].dtype)
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
    return T.StringType() if isinstance(dtype, STORED_AS_TEXT) else dtype


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
