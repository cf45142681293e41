"""A catalog as tables for a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from shared.text_table import text_table
from tap_spark.planning.catalog import SPARK_SCHEMA, metadata_of, selected_schema, stream_selected

MOST_STREAMS = 20
"""Streams up to which the columns are shown, too."""
_HEAD = ("stream", "rows", "columns", "key", "replication key", "method", "selected")
_CUTTABLE = (0, 3, 4)


def catalog_lines(
    catalog: Mapping[str, Any], rows: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yield a table with a line for each stream, and one of the columns of each selected stream.

    Args:
        catalog: The catalog of a discovery.
        rows: How many rows streams have, as text.
    """
    table = [_HEAD, *(_cells(entry, rows or {}) for entry in catalog["streams"])]
    yield from text_table(table, cuttable=_CUTTABLE)
    chosen = [entry for entry in catalog["streams"] if stream_selected(entry)]
    if len(chosen) > MOST_STREAMS:
        yield f"\n`--select STREAM` shows the columns of up to {MOST_STREAMS} streams."
        return
    for entry in chosen:
        yield ""
        head = (entry["tap_stream_id"], "type", "")
        yield from text_table([head, *_columns(entry)], cuttable=(0, 1))


def _cells(entry: Mapping[str, Any], rows: Mapping[str, str]) -> tuple[str, ...]:
    root = metadata_of(entry).get((), {})
    every = len(entry["schema"]["properties"])
    chosen = len(selected_schema(entry)["properties"])
    return (
        entry["tap_stream_id"],
        rows.get(entry["tap_stream_id"], "-"),
        str(every) if chosen == every else f"{chosen} of {every}",
        ", ".join(root.get("table-key-properties", ())) or "-",
        root.get("replication-key") or "-",
        root.get("replication-method") or entry.get("replication_method") or "-",
        "yes" if stream_selected(entry) else "no",
    )


def _columns(entry: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield name, type and role of each column."""
    from pyspark.sql.types import StructType  # noqa: PLC0415

    metadata = metadata_of(entry)
    root, chosen = metadata.get((), {}), selected_schema(entry)["properties"]
    struct = StructType.fromJson(json.loads(root[SPARK_SCHEMA]))
    for field in struct.fields:
        sql_type = metadata.get(("properties", field.name), {}).get("sql-datatype")
        roles = {
            "key": field.name in root.get("table-key-properties", ()),
            "replication key": field.name == root.get("replication-key"),
            "not selected": field.name not in chosen,
        }
        role = ", ".join(name for name, applies in roles.items() if applies)
        yield field.name, sql_type or field.dataType.simpleString(), role
