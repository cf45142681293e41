"""Generated rows."""

from __future__ import annotations

from typing import Any

from tap_spark.sources.source_declaration import SourceFormat

DEFAULT_COLUMN_COUNT = 10


def _typed(given: dict[str, Any]) -> dict[str, Any]:
    columns = given.get("column_count", DEFAULT_COLUMN_COUNT)
    return {"row_count": int(given["row_count"]), "column_count": int(columns)}


SOURCE = SourceFormat(
    name="rows",
    implementation="tap_spark.sources.generated_rows:RowsSource",
    places=("row_count",),
    settings={
        "row_count": {
            "type": "integer",
            "minimum": 0,
            "description": "Number of rows to generate. Only, and required, for `rows`.",
        },
        "column_count": {
            "type": "integer",
            "minimum": 1,
            "description": "Number of columns to generate, "
            f"{DEFAULT_COLUMN_COUNT} by default. Only for `rows`.",
        },
    },
    typed=_typed,
)
