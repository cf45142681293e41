"""Rows on their way into a database: Arrow columns as text. Runs on executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812

from target_spark.destinations.databases.json_text import json_text
from target_spark.destinations.destination import RefusedByStoreError

CHUNK_ROWS = 8192
CHUNK_BYTES = 8 * 1024 * 1024
_ESCAPED_NUL = r"(^|[^\\])(\\\\)*\\u0000"
ROW = "n"
"""Column of a staging table with the row number in order of arrival."""


@dataclass(frozen=True)
class StagedColumn:
    """A column of a staging table.

    Attributes:
        source: Name of the stream's column.
        sql_type: Type in the database.
        form: Encoding of its values: `plain`, `json` (nested values) or `hex` (binary).
        data_type: Type of the stream's column.
    """

    source: str
    sql_type: str
    form: str
    data_type: T.DataType


def staged_name(position: int) -> str:
    """Return the name of a staging table's column; the stream's names may be arbitrary."""
    return f"c{position}"


def staged_source(columns: Sequence[StagedColumn], name: str) -> str:
    """Return what a column of a staging table holds, for messages; nothing if it is unknown."""
    sources = {staged_name(n): column.source for n, column in enumerate(columns)}
    return f"property '{sources[name]}': " if name in sources else ""


def chunks(tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in record batches of a bounded size, without empty ones."""
    for table in tables:
        fitting = CHUNK_BYTES * table.num_rows // max(1, table.nbytes)
        # Readers of lines make many small chunks, each of which costs as much as a large one.
        for batch in table.combine_chunks().to_batches(
            max_chunksize=max(1, min(CHUNK_ROWS, fitting))
        ):
            if batch.num_rows:
                yield batch


def numbers(start: int, count: int) -> pa.Array:
    """Return consecutive numbers from `start + 1` on."""
    return pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count), start=start)


def sendable(array: pa.Array, column: StagedColumn) -> pa.Array:
    """Return values in a form that the database accepts, if Arrow's own text is not."""
    if column.form == "json":
        return json_text(array, column.data_type)
    return hex_text(array) if column.form == "hex" else array


def hex_text(array: pa.Array) -> pa.Array:
    """Return binary values as text, two digits for each byte."""
    array = array.cast(pa.large_binary())
    offsets, data = array.buffers()[1:]
    if data is None:
        return array.cast(pa.large_string())
    starts = pa.Array.from_buffers(pa.int64(), len(array) + 1, [None, offsets], offset=array.offset)
    first, last = starts[0].as_py(), starts[-1].as_py()
    text = pa.py_buffer(data.slice(first, last - first).hex())
    doubled = pc.multiply(pc.subtract(starts, first), 2)
    valid = array.is_valid()
    found = pa.Array.from_buffers(pa.large_string(), len(array), [None, doubled.buffers()[1], text])
    return found if not array.null_count else pc.if_else(valid, found, None)


def reject_nul(batch: pa.RecordBatch, columns: Sequence[StagedColumn]) -> None:
    """Reject a NUL character.

    Raises:
        RefusedByStoreError: A text of the batch contains one; names the column.
    """
    for column in columns:
        array = batch.column(column.source)
        if column.form == "json":
            found = pc.match_substring_regex(json_text(array, column.data_type), _ESCAPED_NUL)
        elif "json" in column.sql_type:
            found = pc.match_substring_regex(array, _ESCAPED_NUL)
        elif pa.types.is_string(array.type):
            found = pc.match_substring(array, "\0")
        else:
            continue
        if pc.any(found, min_count=0).as_py():
            raise RefusedByStoreError(
                f"property '{column.source}': the text contains a NUL character, which the "
                "database cannot store"
            )
