"""The load path with a DataFrame between reading and writing, for text made by Spark."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from shared.formats.file_formats import FORMATS
from shared.types.arrow_types import TEXT_ONLY, mapped
from target_spark.destinations.destination import TableWrite
from target_spark.load import load_tasks
from target_spark.load.read_rows import ReadPlan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField, StructType


NEEDS_COLUMNS = "rows as JSON text, or nested columns in CSV"
NEEDS_MAP = "a stream map that is not computed over Arrow"


def needs_frame(write: TableWrite) -> bool:
    """Return whether Spark makes the text of the rows: all JSON, and nested columns in CSV."""
    if FORMATS[write.encoding.format].text:
        return True
    return FORMATS[write.encoding.format].flat and any(
        not _is_plain(field.dataType) for field in write.struct
    )


def job(numbers: DataFrame, read: ReadPlan, write: TableWrite) -> DataFrame:
    """Return the job that reads the tasks' files and writes the columns that Spark makes."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415
    from pyspark.sql.types import BinaryType, StructType  # noqa: PLC0415

    fields = StructType([carried(field) for field in write.struct])
    read = replace(read, columns=to_arrow_schema(fields))
    frame = numbers.mapInArrow(
        partial(load_tasks.read_frame, read),
        StructType([*fields, *StructType().add(load_tasks.REJECT_COLUMN, BinaryType())]),
    )
    text = FORMATS[write.encoding.format].text
    typed = [_restored(field, variants=text).alias(field.name) for field in write.struct]
    frame = frame.select(*typed, F.col(load_tasks.REJECT_COLUMN))
    columns, schema = written_columns(write)
    # mapInArrow looks columns up by name and would take dots in them for paths.
    numbered = [column.alias(str(number)) for number, column in enumerate(columns)]
    plan = load_tasks.write_plan(write, schema)
    return frame.select(*numbered, F.col(load_tasks.REJECT_COLUMN)).mapInArrow(
        partial(load_tasks.write_frame, plan), load_tasks.RESULTS_DDL
    )


def written_columns(write: TableWrite) -> tuple[list[Column], pa.Schema]:
    """Return the columns that go to the writer, and their Arrow schema."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415
    from pyspark.sql.types import StructType  # noqa: PLC0415

    from shared.types.json_schema import struct_to_arrow  # noqa: PLC0415
    from shared.types.record_text import record_json  # noqa: PLC0415

    if FORMATS[write.encoding.format].text:
        line = F.concat(record_json(write.stored), F.lit("\n"))
        beside = StructType([write.struct[name] for name in write.partition_by])
        kinds = [
            (load_tasks.partition_column(write, field.name), field.type)
            for field in struct_to_arrow(beside)
        ]
        return (
            [line.alias("value"), *map(_column, write.partition_by)],
            pa.schema([("value", pa.string()), *kinds]),
        )
    columns, kinds = [], []
    for field, stored in zip(write.struct, struct_to_arrow(write.struct), strict=True):
        plain = _is_plain(field.dataType)
        columns.append(_column(field.name) if plain else _text(field))
        kinds.append(pa.field(field.name, stored.type if plain else pa.string()))
    return columns, pa.schema(kinds)


def _is_plain(kind: DataType) -> bool:
    """Return whether Arrow's CSV writer writes a column correctly."""
    from shared.releases.spark_types import T  # noqa: PLC0415

    nested = (T.StructType, T.ArrayType, T.MapType)
    return not isinstance(kind, (*nested, T.DayTimeIntervalType, T.YearMonthIntervalType))


def _text(field: StructField) -> Column:
    """Return a column as text of a JSON record: nested values as JSON, others bare."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    from shared.releases.spark_types import T  # noqa: PLC0415
    from shared.types.record_text import record_json  # noqa: PLC0415

    nested = isinstance(field.dataType, T.StructType | T.ArrayType | T.MapType)
    edge = F.lit(1 if nested else 2)
    record = record_json(T.StructType([field]))
    head = F.length(F.to_json(F.struct(F.lit(0).alias(field.name)))) - 3 + edge
    text = F.substr(record, head + 1, F.length(record) - head - edge)
    return F.when(_column(field.name).isNotNull(), text)


def carried(field: StructField) -> StructField:
    """Return the field with types that Spark can exchange with Arrow, at any depth."""
    from shared.releases.spark_types import T  # noqa: PLC0415

    def carry(kind: DataType) -> DataType:
        if isinstance(kind, T.YearMonthIntervalType):
            return T.IntegerType()
        return T.StringType() if isinstance(kind, TEXT_ONLY) else kind

    return T.StructField(field.name, mapped(field.dataType, carry), True)


def plain_types(struct: StructType) -> dict[str, DataType]:
    """Return the types of columns that go through Arrow as they are, by name."""
    return {f.name: f.dataType for f in struct if carried(f).dataType == f.dataType}


def _restored(field: StructField, variants: bool) -> Column:
    """Return the column with its own type after its way through Arrow; variants if asked."""

    from shared.releases.spark_functions import parse_json  # noqa: PLC0415
    from shared.releases.spark_types import T  # noqa: PLC0415

    def months(kind: DataType) -> DataType:
        if isinstance(kind, T.YearMonthIntervalType):
            return T.YearMonthIntervalType(1, 1)
        return texts(kind)

    def texts(kind: DataType) -> DataType:
        return T.StringType() if isinstance(kind, TEXT_ONLY) else kind

    column = _column(field.name)
    if variants and isinstance(field.dataType, T.VariantType):
        return parse_json(column)
    if carried(field).dataType == mapped(field.dataType, texts):
        return column
    in_months = column.cast(mapped(field.dataType, months))
    return in_months.cast(mapped(field.dataType, texts))


def _column(name: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    from shared.types.record_text import quoted  # noqa: PLC0415

    return F.col(quoted(name))
