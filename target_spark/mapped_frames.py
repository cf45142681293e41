"""The load path with a stream map between reading and writing: executors read, Spark maps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from shared.arrow_types import TEXT_ONLY, mapped
from shared.conform import conform
from shared.transforms.record_metadata import COLUMNS, stored_columns
from target_spark import load_frames, load_tasks
from target_spark.destinations import TableWrite
from target_spark.load_tasks import REJECT_COLUMN
from target_spark.originals import Originals
from target_spark.places import PLACE
from target_spark.plans import Making
from target_spark.read_rows import ReadPlan
from target_spark.reject_files import Rejects

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

_ADDED = 3
"""Columns behind those of the table: `PLACE`, the map's error, `REJECT_COLUMN`."""


def source_columns(schema: Mapping[str, Any], *, add_metadata: bool = False) -> StructType:
    """The columns of a stream's records as maps see them; metadata columns last, where asked."""
    from pyspark.sql import types as T  # noqa: N812, PLC0415

    texts = tuple(kind for kind in TEXT_ONLY if kind is not T.VariantType)

    def seen(kind: DataType) -> DataType:
        return T.StringType() if isinstance(kind, texts) else kind

    struct = stored_columns(schema, add_metadata)
    return T.StructType([T.StructField(f.name, mapped(f.dataType, seen), True) for f in struct])


def job(numbers: DataFrame, read: ReadPlan, write: TableWrite, making: Making) -> DataFrame:
    """Reads the tasks' files, lets Spark map the records, and writes what comes out.

    Args:
        numbers: The numbers of the tasks, a partition for each.
        read: How files are read; its schema is that of the records as they came.
        write: How the rows of the table are written.
        making: The map.

    Returns:
        A frame whose rows are what the tasks tell.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    from shared.singer_columns import quoted  # noqa: PLC0415
    from shared.transforms.transform import ERROR  # noqa: PLC0415

    pieces = iter(range(sum(map(len, read.tasks))))
    tasks = tuple(tuple(replace(p, number=next(pieces)) for p in task) for task in read.tasks)
    read = replace(read, tasks=tasks, place=PLACE, names=making.names or None, tells=making.tells)
    frame, metadata = _source(numbers, read)
    kept = [*metadata, PLACE, REJECT_COLUMN]
    frame = making.transform.apply(frame, keep=kept, bypass=REJECT_COLUMN)
    frame = _laid_out(frame, write, making.transform.struct(), read)
    if load_frames.needs_frame(write):
        columns, schema = load_frames.written_columns(write)
    else:
        columns, schema = [F.col(quoted(field.name)) for field in write.struct], read.columns
    # mapInArrow looks columns up by name and would take dots in them for paths.
    numbered = [column.alias(str(number)) for number, column in enumerate(columns)]
    added = [F.col(quoted(name)) for name in (PLACE, ERROR, REJECT_COLUMN)]
    plan = load_tasks.WritePlan(
        write.pending, write.encoding, schema, write.options, write.sink, write.row_number
    )
    return frame.select(*numbered, *added).mapInArrow(
        partial(write_mapped, read, plan), load_tasks.RESULTS_DDL
    )


def write_mapped(
    read: ReadPlan, write: load_tasks.WritePlan, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """`mapInArrow` function: writes mapped rows; those that failed become rejected records."""
    failed = _Failed(read, write.columns)
    yield load_tasks.written(write, partial(failed.others, batches))


@dataclass
class _Failed:
    """Tells rows that could not be mapped, or not even read, from the others."""

    read: ReadPlan
    columns: pa.Schema

    def others(
        self, batches: Iterable[pa.RecordBatch], told: list[dict[str, Any]]
    ) -> Iterator[pa.Table]:
        """The rows to be written; in the end, adds what is to be told of the rest."""
        originals = Originals(self.read)
        rejects = Rejects(self.read.rejects, self.read.reject_options)
        for batch in batches:
            width = batch.num_columns - _ADDED
            places, errors, notes = batch.columns[width:]
            told += [json.loads(text) for text in notes.drop_null().to_pylist()]
            if errors.null_count < batch.num_rows:
                failed = errors.is_valid()
                pairs = places.filter(failed).to_pylist(), errors.drop_null().to_pylist()
                for place, reason in zip(*pairs, strict=True):
                    originals.reject(place, reason, rejects)
            good = pc.and_(errors.is_null(), notes.is_null())
            rows = pa.Table.from_batches([batch.filter(good)]).select(list(range(width)))
            yield conform(rows.rename_columns(self.columns.names), self.columns)
        told += rejects.rows()


def _source(numbers: DataFrame, read: ReadPlan) -> tuple[DataFrame, list[str]]:
    """The records with the types that maps see, and the names of their metadata columns."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415
    from pyspark.sql import types as T  # noqa: N812, PLC0415
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

    from shared.singer_columns import quoted  # noqa: PLC0415
    from shared.spark_conform import NO_NAMES, Fitting  # noqa: PLC0415

    struct = source_columns(read.schema, add_metadata=read.metadata is not None)
    metadata = [name for name in struct.names if name in COLUMNS]
    carried = T.StructType([*struct, T.StructField(PLACE, T.LongType(), True)])
    carried = T.StructType([load_frames.carried(field) for field in carried])
    read = replace(read, columns=to_arrow_schema(carried))
    frame = numbers.mapInArrow(
        partial(load_tasks.read_frame, read),
        T.StructType([*carried, T.StructField(REJECT_COLUMN, T.StringType(), True)]),
    )
    fitting = Fitting(NO_NAMES, _restored)
    columns = [
        fitting.value(F.col(quoted(to.name)), way.dataType, to.dataType, (to.name,)).alias(to.name)
        for way, to in zip(carried, struct, strict=False)
    ]
    return frame.select(*columns, PLACE, REJECT_COLUMN), metadata


def _restored(value: Column, have: DataType, want: DataType, path: Sequence[str]) -> Column:  # noqa: ARG001
    """A value with the type it had before it went through Arrow."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415
    from pyspark.sql import types as T  # noqa: N812, PLC0415

    if isinstance(want, T.VariantType):
        return F.parse_json(value)
    if isinstance(want, T.YearMonthIntervalType):
        return value.cast(T.YearMonthIntervalType(1, 1)).cast(want)
    return value.cast(want)


def _laid_out(frame: DataFrame, write: TableWrite, result: StructType, read: ReadPlan) -> DataFrame:
    """The mapped rows with the columns of the table, in types that go through Arrow or text."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415
    from pyspark.sql import types as T  # noqa: N812, PLC0415

    from shared.singer_columns import quoted, record_json  # noqa: PLC0415
    from shared.spark_conform import NO_NAMES, Fitting  # noqa: PLC0415
    from shared.transforms.transform import ERROR  # noqa: PLC0415

    known = {field.name: field.dataType for field in result}
    if read.metadata is not None:
        known |= {field.name: field.dataType for field in write.struct if field.name in COLUMNS}
    as_text = load_frames.needs_frame(write)
    fitting = Fitting(NO_NAMES, _fitted)
    columns = []
    for field in write.struct:
        want = field.dataType if as_text else load_frames.carried(field).dataType
        if field.name == read.document:
            made = record_json(result)
            made = F.parse_json(made) if isinstance(want, T.VariantType) else made
        elif field.name in known:
            column = F.col(quoted(field.name))
            made = fitting.value(column, known[field.name], want, (field.name,))
        else:
            made = F.lit(None).cast(want)
        columns.append(made.alias(field.name))
    return frame.select(*columns, PLACE, ERROR, REJECT_COLUMN)


def _fitted(value: Column, have: DataType, want: DataType, path: Sequence[str]) -> Column:  # noqa: ARG001
    """A value as one of a wider type, or of the type that carries it through Arrow."""
    from pyspark.sql import types as T  # noqa: N812, PLC0415

    from shared.singer_columns import json_text  # noqa: PLC0415

    nested = (T.StructType, T.ArrayType, T.MapType, T.VariantType)
    if isinstance(want, T.StringType) and isinstance(have, nested):
        return json_text(value, have)
    if isinstance(have, T.YearMonthIntervalType) and isinstance(want, T.IntegerType):
        return value.cast(T.YearMonthIntervalType(1, 1)).cast(want)
    return value.cast(want)
