"""How a frame's columns stand in batch files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from shared.arrow_types import struct_to_arrow
from shared.encodings import FORMATS
from shared.singer_columns import json_text, quoted, record_json, scalar_text
from tap_spark.line_chunks import LEFT_OUT

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from tap_spark.plans import Slice

LINE = "line"
_TEXT_ONLY = (
    T.VariantType,
    T.CalendarIntervalType,
    T.DayTimeIntervalType,
    T.YearMonthIntervalType,
    T.TimeType,
    T.NullType,
)
_NESTED = (T.StructType, T.ArrayType, T.MapType)


def record_of(piece: Slice) -> T.StructType:
    """Give the columns that make up the record."""
    return T.StructType([field for field in piece.frame.schema if field.name not in piece.beside])


def key_columns(piece: Slice, key: str) -> tuple[Column, Column]:
    """Give the replication key as it is, and as a record of its own.

    Args:
        piece: The rows.
        key: Its name in records.
    """
    column = F.col(quoted(piece.key_column or key))
    schema = piece.frame.schema
    if piece.key_column is None:
        own = record_json(T.StructType([field for field in schema if field.name == key]))
    else:
        text = json_text(column, schema[piece.key_column].dataType)
        own = F.concat(F.lit("{" + json.dumps(key) + ":"), text, F.lit("}"))
    return column.alias("key"), own.alias("own")


def laid_out(piece: Slice, form: str, key: str | None) -> DataFrame:
    """Lay rows out as the files of a format hold them, with what a followed key needs.

    Where some are left out, a last column, `LEFT_OUT`, says which.
    """
    if FORMATS[form].text:
        return line_frame(piece, key)
    return typed_frame(piece, key, flat=FORMATS[form].flat)


def file_schema(laid: T.StructType, piece: Slice, form: str, key: str | None) -> pa.Schema:
    """Give the columns of the files.

    Args:
        laid: Of the frame that `laid_out` gave.
        piece: What it was made of.
        form: The format.
        key: The replication key that is followed, if any.
    """
    text = FORMATS[form].text
    followed = 0 if key is None else 1 if text and piece.key_column is None else 2
    marks = 0 if piece.left_out_column is None else 1
    fields = laid.fields[: len(laid.fields) - followed - marks]
    if not text:
        named = zip(fields, record_of(piece).names, strict=True)
        fields = [T.StructField(name, field.dataType, field.nullable) for field, name in named]
    return struct_to_arrow(T.StructType(fields))


def line_frame(piece: Slice, key: str | None) -> DataFrame:
    """Lay rows out as JSON lines: `line` and, where a key is followed, `key`.

    Where the record may not have the key, a third column holds it as a record of its own.
    """
    line = F.concat(record_json(record_of(piece)), F.lit("\n")).alias(LINE)
    if key is None:
        return piece.frame.select(line)
    keys = key_columns(piece, key)
    return piece.frame.select(line, *(keys if piece.key_column else keys[:1]), *_marks(piece))


def typed_frame(piece: Slice, key: str | None, *, flat: bool) -> DataFrame:
    """Lay rows out as columns that Arrow files hold exactly.

    Columns are only numbered. Intervals, times of day and variants become the text they are in a
    record; columns that hold one at some depth become JSON text.

    Args:
        piece: The rows.
        key: Replication key; where one is followed, two more columns hold it as it is and as a
            record of its own.
        flat: The format has no nested columns: they become JSON text.
    """
    columns = [_column(field, flat=flat) for field in record_of(piece).fields]
    # Numbered: tasks get columns by names, in which dots would mean something.
    numbered = [column.alias(f"c{n}") for n, column in enumerate(columns)]
    keys = () if key is None else key_columns(piece, key)
    return piece.frame.select(*numbered, *keys, *_marks(piece))


def _marks(piece: Slice) -> list[Column]:
    if piece.left_out_column is None:
        return []
    return [F.col(piece.left_out_column).isNotNull().alias(LEFT_OUT)]


def _column(field: T.StructField, *, flat: bool) -> Column:
    column, data_type = F.col(quoted(field.name)), field.dataType
    nested = isinstance(data_type, _NESTED)
    if isinstance(data_type, T.VariantType) or (nested and (flat or _holds_text_only(data_type))):
        return json_text(column, data_type)
    if isinstance(data_type, T.NullType):
        return column.cast("string")
    return scalar_text(column, data_type) if isinstance(data_type, _TEXT_ONLY) else column


def _holds_text_only(data_type: T.DataType) -> bool:
    if isinstance(data_type, T.StructType):
        return any(_holds_text_only(field.dataType) for field in data_type.fields)
    if isinstance(data_type, T.ArrayType):
        return _holds_text_only(data_type.elementType)
    if isinstance(data_type, T.MapType):
        return _holds_text_only(data_type.valueType) or not isinstance(
            data_type.keyType, T.StringType
        )
    return isinstance(data_type, _TEXT_ONLY)
