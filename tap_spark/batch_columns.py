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

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

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


def record_of(columns: T.StructType, key_column: str | None) -> T.StructType:
    """Give the columns that make up the record (see `Slice.key_column`)."""
    return T.StructType([field for field in columns.fields if field.name != key_column])


def key_columns(frame: DataFrame, key: str, key_column: str | None) -> tuple[Column, Column]:
    """Give the replication key as it is, and as a record of its own.

    Args:
        frame: The rows.
        key: Its name in records.
        key_column: The column that holds it, where that has another name.
    """
    column = F.col(quoted(key_column or key))
    if key_column is None:
        own = record_json(T.StructType([field for field in frame.schema if field.name == key]))
    else:
        text = json_text(column, frame.schema[key_column].dataType)
        own = F.concat(F.lit("{" + json.dumps(key) + ":"), text, F.lit("}"))
    return column.alias("key"), own.alias("own")


def laid_out(
    frame: DataFrame, form: str, key: str | None, key_column: str | None = None
) -> DataFrame:
    """Lay rows out as the files of a format hold them, with what a followed key needs."""
    if FORMATS[form].text:
        return line_frame(frame, key, key_column)
    return typed_frame(frame, key, key_column, flat=form == "csv")


def file_schema(
    laid: T.StructType,
    columns: list[str],
    form: str,
    key: str | None,
    key_column: str | None = None,
) -> pa.Schema:
    """Give the columns of the files.

    Args:
        laid: Of the frame that `laid_out` gave.
        columns: Names of the rows' own columns.
        form: The format.
        key: The replication key that is followed, if any.
        key_column: The column that holds it, where that is no part of the record.
    """
    text = FORMATS[form].text
    followed = 0 if key is None else 1 if text and key_column is None else 2
    fields = laid.fields[: len(laid.fields) - followed]
    if not text:
        named = zip(fields, [name for name in columns if name != key_column], strict=True)
        fields = [T.StructField(name, field.dataType, field.nullable) for field, name in named]
    return struct_to_arrow(T.StructType(fields))


def line_frame(frame: DataFrame, key: str | None, key_column: str | None = None) -> DataFrame:
    """Lay rows out as JSON lines: `line` and, where a key is followed, `key`.

    Where the record may not have the key, a third column holds it as a record of its own.
    """
    record = record_json(record_of(frame.schema, key_column))
    line = F.concat(record, F.lit("\n")).alias(LINE)
    if key is None:
        return frame.select(line)
    keys = key_columns(frame, key, key_column)
    return frame.select(line, *(keys if key_column else keys[:1]))


def typed_frame(
    frame: DataFrame, key: str | None, key_column: str | None = None, *, flat: bool
) -> DataFrame:
    """Lay rows out as columns that Arrow files hold exactly.

    Columns are only numbered. Intervals, times of day and variants become the text they are in a
    record; columns that hold one at some depth become JSON text.

    Args:
        frame: The rows.
        key: Replication key; where one is followed, two more columns hold it as it is and as a
            record of its own.
        key_column: The column that holds it, where that is no part of the record.
        flat: The format has no nested columns: they become JSON text.
    """
    record = record_of(frame.schema, key_column)
    columns = [_column(field, flat=flat) for field in record.fields]
    if key is not None:
        columns += key_columns(frame, key, key_column)
    # Numbered: tasks get columns by names, in which dots would mean something.
    return frame.select(*(column.alias(f"c{n}") for n, column in enumerate(columns)))


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
