"""Conversion with a DataFrame between reading and writing, for text that Spark makes.

If `__explode__` turned a record into several rows, all of them are loaded, or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, StructType

from shared.formats.arrow_types import TEXT_ONLY, mapped, struct_to_arrow
from shared.formats.file_formats import FORMATS
from shared.formats.record_text import record_json
from shared.formats.spark_conform import parse_json
from shared.formats.spark_types import T
from shared.settings.texts import quoted
from target_spark.convert import write_tasks
from target_spark.convert.read_plan import ReadPlan
from target_spark.convert.write_tasks import fits_csv
from target_spark.destinations.destination import TableWrite

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField


def job(numbers: DataFrame, read: ReadPlan, write: TableWrite) -> DataFrame:
    """Return the job that reads the tasks' files and writes the columns that Spark makes."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

    fields = StructType([carried(field) for field in write.struct])
    read = replace(read, columns=to_arrow_schema(fields))
    frame = numbers.mapInArrow(
        partial(write_tasks.read_frame, read),
        StructType([*fields, *StructType().add(write_tasks.REJECT_COLUMN, BinaryType())]),
    )
    text = FORMATS[write.encoding.format].rows == "lines"
    typed = [_restored(field, variants=text).alias(field.name) for field in write.struct]
    frame = frame.select(*typed, F.col(write_tasks.REJECT_COLUMN))
    columns, schema = written_columns(write)
    # mapInArrow looks columns up by name and would take dots in them for paths.
    numbered = [column.alias(str(number)) for number, column in enumerate(columns)]
    return frame.select(*numbered, F.col(write_tasks.REJECT_COLUMN)).mapInArrow(
        partial(write_tasks.write_frame, write, schema), write_tasks.RESULTS_DDL
    )


def written_columns(write: TableWrite) -> tuple[list[Column], pa.Schema]:
    """Return the columns that go to the writer, and their Arrow schema."""
    if FORMATS[write.encoding.format].rows == "lines":
        line = F.concat(record_json(write.stored), F.lit("\n"))
        beside = StructType([write.struct[name] for name in write.partition_by])
        kinds = [
            (write_tasks.partition_column(write, field.name), field.type)
            for field in struct_to_arrow(beside)
        ]
        return (
            [line.alias("value"), *map(_column, write.partition_by)],
            pa.schema([("value", pa.string()), *kinds]),
        )
    columns, kinds = [], []
    for field, stored in zip(write.struct, struct_to_arrow(write.struct), strict=True):
        plain = fits_csv(field.dataType)
        columns.append(_column(field.name) if plain else _text(field))
        kinds.append(pa.field(field.name, stored.type if plain else pa.string()))
    return columns, pa.schema(kinds)


def _text(field: StructField) -> Column:
    """Return a column as text of a JSON record: nested values as JSON, others bare."""
    nested = isinstance(field.dataType, T.StructType | T.ArrayType | T.MapType)
    edge = F.lit(1 if nested else 2)
    record = record_json(T.StructType([field]))
    head = F.length(F.to_json(F.struct(F.lit(0).alias(field.name)))) - 3 + edge
    text = F.substr(record, head + 1, F.length(record) - head - edge)
    return F.when(_column(field.name).isNotNull(), text)


def carried(field: StructField) -> StructField:
    """Return the field with types that Spark can exchange with Arrow, at any depth."""

    def carry(kind: DataType) -> DataType:
        return T.IntegerType() if isinstance(kind, T.YearMonthIntervalType) else _as_text(kind)

    return T.StructField(field.name, mapped(field.dataType, carry), True)


def plain_types(struct: StructType) -> dict[str, DataType]:
    """Return the types of columns that go through Arrow as they are, by name."""
    return {f.name: f.dataType for f in struct if carried(f).dataType == f.dataType}


def _restored(field: StructField, variants: bool) -> Column:
    """Return the column with its own type after its way through Arrow; variants if asked."""

    def months(kind: DataType) -> DataType:
        is_interval = isinstance(kind, T.YearMonthIntervalType)
        return T.YearMonthIntervalType(1, 1) if is_interval else _as_text(kind)

    column, own = _column(field.name), mapped(field.dataType, _as_text)
    if variants and isinstance(field.dataType, T.VariantType):
        return parse_json(column)
    if carried(field).dataType == own:
        return column
    return column.cast(mapped(field.dataType, months)).cast(own)


def _as_text(kind: DataType) -> DataType:
    return T.StringType() if isinstance(kind, TEXT_ONLY) else kind


def _column(name: str) -> Column:
    return F.col(quoted(name))


_IN_MEMORY = 4 << 20


class WholeRecords:
    """Replaces the rows of a record that failed by the first of them that did.

    The rows of a record follow each other. The last record of an Arrow batch may go on in the next
    one: its rows wait, beyond a few megabytes in a temporary file.

    Args:
        origin: Number of the column with the origins; the column with the errors follows.

    Attributes:
        exploded: Rows without an error, beyond the first of each record.
    """

    def __init__(self, origin: int) -> None:
        self.exploded = 0
        self._at = origin
        self._open: int | None = None
        self._failed: pa.RecordBatch | None = None
        self._file: SpooledTemporaryFile[bytes] | None = None
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self._last: int | None = None

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of records that did not fail, one row of each other, and all else."""
        for rows in self._complete(batches):
            good = rows.column(self._at).filter(rows.column(self._at + 1).is_null()).drop_null()
            if len(good):
                records = pc.count_distinct(good).as_py() - (good[0].as_py() == self._last)
                self.exploded += len(good) - records
                self._last = good[-1].as_py()
            yield rows

    def _complete(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            goes_on = self._going_on(batch)
            self._hold(batch.slice(0, goes_on))
            rows = batch.slice(goes_on)
            if not rows.num_rows:
                continue
            yield from self._held()
            origins = rows.column(self._at)
            self._open = origins[-1].as_py()
            last = len(origins) if self._open is None else pc.index(origins, self._open).as_py()
            if last:
                yield self._settled(rows.slice(0, last))
            self._hold(rows.slice(last))
        yield from self._held()

    def _going_on(self, rows: pa.RecordBatch) -> int:
        """Return how many rows belong to the record that is open."""
        if self._open is None:
            return 0
        others = pc.not_equal(rows.column(self._at), self._open).fill_null(True)
        first = int(pc.index(others, True).as_py())
        return rows.num_rows if first < 0 else first

    def _settled(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of complete records."""
        failed = rows.column(self._at + 1).is_valid()
        if not pc.any(failed).as_py():
            return rows
        origins = rows.column(self._at)
        of_failed, places = origins.filter(failed), pc.indices_nonzero(failed)
        records = of_failed.unique()
        firsts = places.take(pc.index_in(records, of_failed))
        numbers = pa.array(range(rows.num_rows), pa.uint64())
        kept = pc.or_(pc.is_in(numbers, firsts), pc.invert(pc.is_in(origins, records)))
        return rows.filter(kept)

    def _hold(self, rows: pa.RecordBatch) -> None:
        """Keep rows of the record that may go on."""
        if self._failed is not None or not rows.num_rows:
            return
        failed = pc.index(rows.column(self._at + 1).is_valid(), True).as_py()
        if failed >= 0:
            self._failed = rows.slice(failed, 1)
            return
        if self._file is None:
            self._file = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115
            self._writer = pa.ipc.new_stream(self._file, rows.schema)
        assert self._writer is not None  # noqa: S101
        self._writer.write_batch(rows)

    def _held(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows kept: those of a record that is complete now."""
        failed, file, writer = self._failed, self._file, self._writer
        self._open = self._failed = self._file = self._writer = None
        if failed is not None:
            yield failed
        if file is not None:
            with file:
                if writer is not None:
                    writer.close()
                if failed is None:
                    file.seek(0)
                    yield from pa.ipc.open_stream(file)
