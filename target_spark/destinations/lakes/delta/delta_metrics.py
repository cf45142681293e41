"""The rows of a commit to a Delta table, by the metrics in its log.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#commit-provenance-information and
the metrics of operations in Delta's documentation of `DESCRIBE HISTORY`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from heapq import nlargest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.storage.urls import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from target_spark.destinations.lakes.lake_table import Place

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
