"""A catalog as a table for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shared.text_table import text_table
from tap_spark.planning.catalog import metadata_of, selected_schema, stream_selected

_HEAD = ("stream", "columns", "key", "replication key", "method", "selected")
_CUTTABLE = (0, 2, 3)


def catalog_lines(catalog: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table with a line for each stream, at most 80 columns wide.

    Args:
        catalog: The catalog of a discovery.
    """
    rows = [_HEAD, *map(_cells, catalog["streams"])]
    yield from text_table(rows, cuttable=_CUTTABLE)


def _cells(entry: Mapping[str, Any]) -> tuple[str, ...]:
    root = metadata_of(entry).get((), {})
    every = len(entry["schema"]["properties"])
    chosen = len(selected_schema(entry)["properties"])
    return (
        entry["tap_stream_id"],
        str(every) if chosen == every else f"{chosen} of {every}",
        ", ".join(root.get("table-key-properties", ())) or "-",
        root.get("replication-key") or "-",
        root.get("replication-method") or entry.get("replication_method") or "-",
        "yes" if stream_selected(entry) else "no",
    )
