"""The load pattern with one column for the whole record, plus its keys and metadata."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from shared.errors import MessageError, Where
from shared.json.json_lines import LineReader
from shared.json.row_values import plain_rows, row_text
from shared.maps.record_metadata import COLUMNS
from target_spark.core.load_plans import TableRequest

DOCUMENT = "data"
"""Name of the column that holds the record."""

_READERS = {envelope: LineReader({}, envelope=envelope, strict=False) for envelope in (True, False)}


def as_document(request: TableRequest, *, view: bool) -> TableRequest:
    """Return the request for a table with one column for the record.

    Args:
        request: For a table with a column for each property.
        view: Ask for a view with a column for each property.

    Raises:
        MessageError: A key property, or a column of `upsert_order_by`, has the name of that column.
    """
    from pyspark.sql.types import StructField, StructType  # noqa: PLC0415

    from shared.releases.spark_types import T  # noqa: PLC0415

    kept = (*request.keys, *request.order_by)
    if DOCUMENT in kept:
        raise MessageError(
            f"an order column or key property named '{DOCUMENT}' cannot be combined with "
            "`denormalized: false`",
            where=Where(stream=request.stream),
            hint="the record itself is stored under this name; set `denormalized: true`",
        )
    own = [field for field in request.struct if field.name not in COLUMNS]
    keys = [field for field in own if field.name in kept]
    metadata = [field for field in request.struct if field.name in COLUMNS]
    return replace(
        request,
        struct=StructType([*keys, StructField(DOCUMENT, T.VariantType(), True), *metadata]),
        view=StructType(own) if view else None,
    )


def line_documents(block: bytes, rejected: Sequence[int], *, envelope: bool) -> pa.ChunkedArray:
    """Return the records of JSON lines as texts, without the rejected lines (0-based)."""
    if rejected:
        gone = set(rejected)
        lines = block.split(b"\n")
        block = b"\n".join(line for place, line in enumerate(lines) if place not in gone)
    return _READERS[envelope].read(block).table.column(0)


def row_documents(table: pa.Table, rejected: Sequence[int]) -> pa.Array:
    """Return the rows of a table as JSON texts, without the rejected rows (0-based)."""
    gone = set(rejected)
    texts = (row_text(row).decode() for row in plain_rows(table))
    return pa.array([text for place, text in enumerate(texts) if place not in gone], pa.string())
