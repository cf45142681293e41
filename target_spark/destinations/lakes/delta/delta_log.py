"""What the log of a Delta table tells: its rules, computed columns, and the rows of a commit.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#commit-provenance-information and
the metrics of operations in Delta's documentation of `DESCRIBE HISTORY`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from heapq import nlargest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType

from shared.storage.urls import join, local_path
from target_spark.destinations.lakes.flush_frames import literal_path
from target_spark.destinations.lakes.lake_sql import RowRule, quoted
from target_spark.destinations.lakes.lake_table import DEFAULT, LakeTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from target_spark.destinations.lakes.lake_table import Place


_CONSTRAINT = "delta.constraints."
_GENERATED = "delta.generationExpression"
_IDENTITY = "delta.identity.start"
_EXPLICIT = "delta.identity.allowExplicitInsert"
_INVARIANT = "delta.invariants"
_LENGTH = "__CHAR_VARCHAR_TYPE_STRING"
_FEATURES = {"delta.feature.generatedColumns", "delta.feature.identityColumns"}
_FIRST_COMPUTING, _FEATURE_WRITER = 4, 7


def delta_rules(now: LakeTable) -> Iterator[RowRule]:
    """Yield the rules of a table beside NOT NULL: CHECK constraints, invariants, lengths."""
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
    return _GENERATED in metadata or (_IDENTITY in metadata and not metadata.get(_EXPLICIT))


def with_defaults(struct: StructType) -> StructType:
    """Return columns with the metadata `default` if rows may omit them."""
    fields = []
    for field in struct:
        metadata = dict(field.metadata or {})
        if _GENERATED in metadata:
            metadata[DEFAULT] = metadata[_GENERATED]
        if DEFAULT in metadata or _IDENTITY in metadata:
            metadata["default"] = True
        fields.append(StructField(field.name, field.dataType, field.nullable, metadata))
    return StructType(fields)


def logged_struct(spark: SparkSession, location: str) -> StructType:
    """Return the columns of a table with all their metadata, as the newest entry of its log says.

    Args:
        spark: A session.
        location: Path or URL of the table.
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


def commit_metrics(spark: SparkSession, place: Place, text: str) -> Mapping[str, str]:
    """Return the metrics of the commit with a mark; empty if they are not found.

    Args:
        spark: The session; used if the log is not on a local disk.
        place: Location of the table.
        text: Text of the mark.
    """
    folder = None if place.folder is None else local_path(place.folder)
    log = None if folder is None else Path(folder, "_delta_log")
    if log is not None and log.is_dir():  # Delta decodes %3A in a path, and has it elsewhere
        return _in_log(log, text)
    rows = spark.sql(f"DESCRIBE HISTORY {place.table} LIMIT {NEWEST}")
    for metadata, metrics in rows.select("userMetadata", "operationMetrics").collect():
        if metadata == text:
            return metrics or {}
    return {}


def vacuumed_files(spark: SparkSession, place: Place) -> int | None:
    """Return how many files the last VACUUM has deleted; None if the log does not tell."""
    rows = spark.sql(f"DESCRIBE HISTORY {place.table} LIMIT 1")
    for operation, metrics in rows.select("operation", "operationMetrics").collect():
        if operation == "VACUUM END" and "numDeletedFiles" in (metrics or {}):
            return int(metrics["numDeletedFiles"])
    return None


def _in_log(log: Path, text: str) -> Mapping[str, str]:
    commits = (path for path in log.iterdir() if path.suffix == ".json" and path.stem.isdigit())
    for path in nlargest(NEWEST, commits):
        info = _commit_info(path)
        if info.get("userMetadata") == text:
            return info.get("operationMetrics") or {}
    return {}


def _commit_info(path: Path) -> Mapping[str, Any]:
    with path.open("rb") as lines:
        for line in lines:
            if line.startswith(b'{"commitInfo"'):
                return json.loads(line)["commitInfo"] or {}
    return {}
