"""Arrow columns as text on their way into a database, nested values as JSON. Runs on executors."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shared.formats.line_encodings import grouped
from shared.formats.spark_types import T
from target_spark.destinations.databases.database_tables import TablePlace
from target_spark.destinations.destination import RefusedByStoreError

_CONTROL = {chr(code): json.dumps(chr(code))[1:-1] for code in range(1, 32)}
_TIMES = (pa.types.is_date, pa.types.is_time)
_BARE = (pa.types.is_null, pa.types.is_boolean, pa.types.is_integer, pa.types.is_decimal)


def staged_json(
    array: pa.Array, data_type: T.DataType | None = None, null: str | None = None
) -> pa.Array:
    """Return each value as its JSON text in a record.

    Numbers keep all their digits, non-finite ones are strings, as are dates, times and timestamps
    (ISO 8601, UTC with `+00:00`) and binary (base64). Nulls inside of values are written.

    By its Spark type, the text of a variant is JSON already. `null` is the text for null; None
    keeps null.
    """
    kind = array.type
    if pa.types.is_struct(kind):
        text = _struct(array, data_type)
    elif pa.types.is_map(kind):
        text = _map(array, data_type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        text = _list(array, data_type)
    elif isinstance(data_type, T.VariantType):
        text = array
    else:
        text = _scalar(array)
    return text if null is None else pc.fill_null(text, null)


def _struct(array: pa.StructArray, data_type: T.DataType | None) -> pa.Array:
    if not array.type.num_fields:
        return _masked(pa.repeat("{}", len(array)), array)
    pieces: list[Any] = []
    fields = data_type.fields if isinstance(data_type, T.StructType) else []
    kinds: list[T.DataType | None] = [field.dataType for field in fields]
    kinds = kinds or [None] * array.type.num_fields
    for position, child in enumerate(array.flatten()):
        name = json.dumps(array.type.field(position).name, ensure_ascii=False)
        pieces += [
            f"{',' if position else '{'}{name}:",
            staged_json(child, kinds[position], "null"),
        ]
    return _masked(pc.binary_join_element_wise(*pieces, "}", ""), array)


def _list(array: pa.Array, data_type: T.DataType | None) -> pa.Array:
    kind = data_type.elementType if isinstance(data_type, T.ArrayType) else None
    values = staged_json(array.flatten(), kind, "null")
    return _masked(_joined(array, values, "[", "]"), array)


def _map(array: pa.MapArray, data_type: T.DataType | None) -> pa.Array:
    kind = data_type.valueType if isinstance(data_type, T.MapType) else None
    if array.offset:
        array = pa.concat_arrays([array])
    flat = pa.ListArray.from_arrays(array.offsets, array.keys, mask=_nulls(array))
    keys = _key(flat.flatten())
    flat = pa.ListArray.from_arrays(array.offsets, array.items, mask=_nulls(array))
    items = staged_json(flat.flatten(), kind, "null")
    entries = pc.binary_join_element_wise(keys, items, ":")
    return _masked(_joined(flat, entries, "{", "}"), array)


def _key(keys: pa.Array) -> pa.Array:
    """Return the keys of objects as JSON strings; a key of another type becomes its JSON text."""
    if pa.types.is_string(keys.type):
        return staged_json(keys)
    text = staged_json(keys)
    bare = pc.invert(pc.starts_with(text, '"'))
    return pc.if_else(bare, _string(text), text)


def _joined(array: pa.Array, texts: pa.Array, head: str, tail: str) -> pa.Array:
    """Return the joined texts of each list's elements, for any slice of a list array."""
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    ends = pc.cumulative_sum(lengths.cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), _plain(ends)])
    inside = pc.binary_join(pa.ListArray.from_arrays(offsets, _plain(texts)), ",")
    return pc.binary_join_element_wise(head, inside, tail, "")


def _scalar(array: pa.Array) -> pa.Array:
    kind = array.type
    if any(is_kind(kind) for is_kind in _BARE):
        return array.cast(pa.string())
    if pa.types.is_floating(kind):
        return _floating(array)
    if pa.types.is_timestamp(kind):
        return _timestamp(array)
    if any(is_kind(kind) for is_kind in _TIMES):
        return _quoted(array.cast(pa.string()))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        values = (None if v is None else b64encode(v).decode() for v in array.to_pylist())
        return _quoted(pa.array(values, pa.string()))
    return _string(array.cast(pa.string()))


def _floating(array: pa.Array) -> pa.Array:
    text = array.cast(pa.string())
    if pc.all(pc.is_finite(array), min_count=0).as_py() is not False:
        return text
    for arrow, word in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        text = pc.if_else(pc.equal(text, arrow), f'"{word}"', text)
    return text


def _timestamp(array: pa.Array) -> pa.Array:
    zone = "+00:00" if array.type.tz else ""
    text = array.cast(pa.timestamp("us")).cast(pa.string())
    return pc.binary_join_element_wise('"', pc.replace_substring(text, " ", "T"), f'{zone}"', "")


def _string(array: pa.Array) -> pa.Array:
    text = pc.replace_substring(pc.replace_substring(array, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(text, r"[\x00-\x1f]"), min_count=0).as_py():
        for char, escaped in _CONTROL.items():
            text = pc.replace_substring(text, char, escaped)
        text = pc.replace_substring(text, "\0", "\\u0000")
    return _quoted(text)


def _quoted(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', text, '"', "")


def _masked(result: pa.Array, like: pa.Array) -> pa.Array:
    if not like.null_count:
        return result
    return pc.if_else(like.is_valid(), result, pa.scalar(None, result.type))


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _plain(array: Any) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


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


@dataclass(frozen=True)
class StagingTable:
    """A staging table with columns of the stream.

    If it is `numbered`, a first column numbers the rows in the order of arrival.
    """

    place: TablePlace
    columns: Sequence[StagedColumn]
    numbered: bool


def staged_name(position: int) -> str:
    """Return the name of a staging table's column; the stream's names may be arbitrary."""
    return f"c{position}"


def staged_source(columns: Sequence[StagedColumn], name: str) -> str:
    """Return what a column of a staging table holds, for messages; nothing if it is unknown."""
    sources = {staged_name(n): column.source for n, column in enumerate(columns)}
    return f"property '{sources[name]}': " if name in sources else ""


def chunks(tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in record batches of a bounded size, without empty ones."""
    for table in grouped(tables, CHUNK_BYTES // 2):
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
        return staged_json(array, column.data_type)
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
    result = pa.Array.from_buffers(
        pa.large_string(), len(array), [None, doubled.buffers()[1], text]
    )
    return result if not array.null_count else pc.if_else(valid, result, None)


def reject_nul(batch: pa.RecordBatch, columns: Sequence[StagedColumn]) -> None:
    """Raise RefusedByStoreError, which names the column, if a text contains a NUL character."""
    for column in columns:
        array = batch.column(column.source)
        if column.form == "json":
            result = pc.match_substring_regex(staged_json(array, column.data_type), _ESCAPED_NUL)
        elif "json" in column.sql_type:
            result = pc.match_substring_regex(array, _ESCAPED_NUL)
        elif pa.types.is_string(array.type):
            result = pc.match_substring(array, "\0")
        else:
            continue
        if pc.any(result, min_count=0).as_py():
            raise RefusedByStoreError(
                f"property '{column.source}': the text contains a NUL character, which the "
                "database cannot store"
            )
