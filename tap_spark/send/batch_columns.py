"""The columns of batch files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from shared.formats.arrow_types import struct_to_arrow
from shared.formats.file_formats import FORMATS
from shared.formats.record_text import is_plain_type, json_column, record_json, scalar_text
from shared.formats.spark_types import T
from shared.settings.texts import quoted
from tap_spark.send.spool_files import FILTERED, OfBatches, RecordLines, chain
from tap_spark.sources.frame_helpers import rank_column
from tap_spark.sources.record_arrays import RecordTexts
from tap_spark.state.stream_plans import RowTasks, Slice

if TYPE_CHECKING:
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


def record_of(slice_: Slice) -> T.StructType:
    return T.StructType(
        [field for field in slice_.frame.schema if field.name not in slice_.helper_columns]
    )


def key_columns(slice_: Slice, key: str) -> tuple[Column, Column]:
    """Return a column in the replication key's order, and the key as a record of its own."""
    column = F.col(quoted(slice_.key_column or key))
    schema = slice_.frame.schema
    if slice_.key_column is None:
        own = record_json(T.StructType([field for field in schema if field.name == key]))
    else:
        text = json_column(column, schema[slice_.key_column].dataType)
        own = F.concat(F.lit("{" + json.dumps(key) + ":"), text, F.lit("}"))
    ranked = rank_column(column) if slice_.text_key_by_value else column
    return ranked.alias("key"), own.alias("own")


@dataclass(frozen=True)
class TaskInput:
    """What tasks get to write.

    Attributes:
        frame: Input of the tasks.
        read: Reads the rows from the input; None if the input has them.
        ready: Positions of columns that hold JSON text, in rows to write as JSON.
    """

    frame: DataFrame
    read: OfBatches | None = None
    ready: frozenset[int] = frozenset()


def file_input(slice_: Slice, form: str, key: str | None) -> tuple[TaskInput, pa.Schema]:
    """Return the input of tasks that write files of a format, and the schema of the files.

    Columns to track the key come after those of the files. If rows are filtered, the last column,
    `FILTERED`, marks them.
    """
    codec, tasks, record = FORMATS[form], slice_.own_tasks, record_of(slice_)
    has_lines, flat = codec.rows == "lines", codec.rows == "texts"
    frame = line_frame(slice_, key) if has_lines else typed_frame(slice_, key, flat=flat)
    columns = zip([LINE] if has_lines else record.names, frame.schema.fields, strict=False)
    schema = struct_to_arrow(
        T.StructType([T.StructField(name, f.dataType, f.nullable) for name, f in columns])
    )
    if has_lines and slice_.filtered_column is None:
        rows = record_input(slice_, key)
        lines = chain(rows.read, RecordLines(tuple(record.names), rows.ready, "", "\n"))
        return TaskInput(rows.frame, lines), schema
    kinds = [field.dataType for field in record.fields]
    if tasks and not any(isinstance(kind, (*_NESTED, *_TEXT_ONLY)) for kind in kinds):
        return _task_input(slice_, tasks, key, alone=True), schema
    return TaskInput(frame), schema


def _task_input(
    slice_: Slice, tasks: RowTasks, key: str | None, *, alone: bool = False
) -> TaskInput:
    """Return numbers of tasks, and what reads the rows and adds columns that track the key; with
    `alone`, also a record of the key alone.
    """
    numbers = slice_.frame.sparkSession.range(0, tasks.count, 1, tasks.count)
    if key is None:
        return TaskInput(numbers, tasks.read)
    keyed = KeyedRows(record_of(slice_).names.index(key), key if alone else None)
    return TaskInput(numbers, chain(tasks.read, keyed))


@dataclass(frozen=True)
class KeyedRows:
    """Adds the columns that track the replication key of rows; see `key_columns`.

    Attributes:
        name: Its name in a record of its own; None without such records.
    """

    position: int
    name: str | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in filter(len, batches):
            key = batch.column(self.position)
            columns = [*batch.columns, key]
            if self.name is not None:
                columns.append(pa.concat_arrays([*RecordTexts((self.name,)).of([key])]))
            yield pa.record_batch(columns, [f"c{n}" for n in range(len(columns))])


def record_input(slice_: Slice, key: str | None) -> TaskInput:
    """Return the input of tasks that write records as JSON.

    Columns are as in `typed_frame`, or JSON. A record without columns has one of empty text.
    """
    fields, tasks = record_of(slice_).fields, slice_.own_tasks
    ready = frozenset(n for n, field in enumerate(fields) if not is_plain_type(field.dataType))
    if tasks and fields and not ready:
        return _task_input(slice_, tasks, key)
    columns = [F.col(quoted(field.name)) for field in fields]
    for n in ready:
        columns[n] = json_column(columns[n], fields[n].dataType)
    numbered = [column.alias(f"c{n}") for n, column in enumerate(columns)] or [F.lit("")]
    frame = slice_.frame.select(*numbered, *_tracking(slice_, key))
    return TaskInput(frame, None, ready if fields else frozenset({0}))


def line_frame(slice_: Slice, key: str | None) -> DataFrame:
    """Return a frame of JSON lines: `line` and, with a key to track, `key`.

    If the record may lack the key, a third column has it as a record of its own.
    """
    line = F.concat(record_json(record_of(slice_)), F.lit("\n")).alias(LINE)
    return slice_.frame.select(line, *_tracking(slice_, key))


def typed_frame(slice_: Slice, key: str | None, *, flat: bool) -> DataFrame:
    """Return a frame of typed columns that Arrow files keep exactly.

    Columns are named by number. Intervals, times of day and variants become text as in a record;
    nested columns that contain them become JSON text.

    Args:
        key: Replication key to track, if any: two more columns have its value, and it as a record.
        flat: Whether nested columns become JSON text, as the format cannot nest.
    """
    columns = [_column(field, flat=flat) for field in record_of(slice_).fields]
    # Named by number: tasks get columns by names, in which dots have a meaning.
    numbered = [column.alias(f"c{n}") for n, column in enumerate(columns)]
    return slice_.frame.select(*numbered, *_tracking(slice_, key, alone=True))


def _tracking(slice_: Slice, key: str | None, *, alone: bool = False) -> Iterator[Column]:
    """Yield the columns that track the key, and the mark of filtered rows.

    If records may lack the key, it comes in a record of its own, too.
    """
    keys = () if key is None else key_columns(slice_, key)
    yield from keys if alone or slice_.key_column else keys[:1]
    if slice_.filtered_column is not None:
        yield F.col(slice_.filtered_column).isNotNull().alias(FILTERED)


def _column(field: T.StructField, *, flat: bool) -> Column:
    column, data_type = F.col(quoted(field.name)), field.dataType
    nested = isinstance(data_type, _NESTED)
    if isinstance(data_type, T.VariantType) or (nested and (flat or _holds_text_only(data_type))):
        return json_column(column, data_type)
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
