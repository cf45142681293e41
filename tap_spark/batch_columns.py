"""How a frame's columns stand in batch files."""

from __future__ import annotations

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


def laid_out(frame: DataFrame, form: str, key: str | None) -> DataFrame:
    """Lay rows out as the files of a format hold them, with what a followed key needs."""
    if FORMATS[form].text:
        return line_frame(frame, key)
    return typed_frame(frame, key, flat=form == "csv")


def file_schema(laid: T.StructType, columns: list[str], form: str, key: str | None) -> pa.Schema:
    """Give the columns of the files.

    Args:
        laid: Of the frame that `laid_out` gave.
        columns: Names of the rows' own columns.
        form: The format.
        key: The replication key that is followed, if any.
    """
    text = FORMATS[form].text
    followed = 0 if key is None else 1 if text else 2
    fields = laid.fields[: len(laid.fields) - followed]
    if not text:
        named = zip(fields, columns, strict=True)
        fields = [T.StructField(name, field.dataType, field.nullable) for field, name in named]
    return struct_to_arrow(T.StructType(fields))


def line_frame(frame: DataFrame, key: str | None) -> DataFrame:
    """Lay rows out as JSON lines: `line` and, where a key is followed, `key`."""
    line = F.concat(record_json(frame.schema), F.lit("\n")).alias(LINE)
    return (
        frame.select(line) if key is None else frame.select(line, F.col(quoted(key)).alias("key"))
    )


def typed_frame(frame: DataFrame, key: str | None, *, flat: bool) -> DataFrame:
    """Lay rows out as columns that Arrow files hold exactly.

    Columns are only numbered. Intervals, times of day and variants become the text they are in a
    record; columns that hold one at some depth become JSON text.

    Args:
        frame: The rows.
        key: Replication key; where one is followed, two more columns hold it as it is and as a
            record of its own.
        flat: The format has no nested columns: they become JSON text.
    """
    columns = [_column(field, flat=flat) for field in frame.schema.fields]
    if key is not None:
        own = T.StructType([field for field in frame.schema.fields if field.name == key])
        columns += [F.col(quoted(key)), record_json(own)]
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
