"""Conversion with a stream map between reading and writing.

Maps that Arrow can evaluate run in the task that reads and writes. Otherwise tasks read, Spark
maps, and other tasks write. Columns that a map only copies bypass Spark's rows: the reader sends
them ahead as one value, an Arrow stream, and the writer joins them with the mapped rows by their
origins.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from shared.engine.engine import IN_PYTHON, Engine, Task
from shared.formats.arrow_types import MOST_EXACT, TEXT_ONLY, conform, mapped
from shared.formats.record_text import json_column, record_json
from shared.formats.spark_conform import NO_NAMES, Fitting, parse_json
from shared.formats.spark_types import T
from shared.maps.arrow_maps import ArrowMap, arrow_map
from shared.maps.expressions.syntax import ERROR
from shared.maps.record_metadata import COLUMNS, stored_columns
from shared.settings.texts import quoted
from target_spark.convert import spark_rows, write_tasks
from target_spark.convert.read_plan import ReadPlan, with_origins
from target_spark.convert.rejected_originals import Originals
from target_spark.convert.spark_rows import WholeRecords, plain_types
from target_spark.convert.task_reports import Rejects
from target_spark.convert.write_tasks import REJECT_COLUMN
from target_spark.core.load_plans import Making
from target_spark.destinations.destination import ROW_ORIGIN, TableWrite
from target_spark.validation.checks import column_at
from target_spark.validation.columns import Key, missing_key_reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField

    from shared.maps.transform import Cell, Transform


_STREAM_BYTES = 4 << 20


@dataclass(frozen=True)
class Copy:
    """A column of the table that records contain unchanged.

    Attributes:
        path: The record's column, and the fields that lead into it.
    """

    name: str
    path: tuple[str, ...]


def without_copies(
    transform: Transform, table: StructType, *, metadata: bool, computed: Collection[str] = ()
) -> tuple[Transform, tuple[Copy, ...]]:
    """Separate the columns that a map computes from those that it copies.

    Args:
        metadata: Whether the records have metadata columns.
        computed: Columns that Spark makes in any case.

    Returns:
        The map without its copies, and the copies: none if a record may have several rows.
    """
    if transform.explode is not None:
        return transform, ()
    kinds = plain_types(table)

    def is_copy(cell: Cell) -> bool:
        plain = cell.computed is None and cell.finish is None and cell.name not in computed
        return plain and kinds.get(cell.name) == cell.data_type

    copies = [Copy(cell.name, cell.path) for cell in transform.cells if is_copy(cell)]
    if metadata:
        copies += [Copy(field.name, (field.name,)) for field in table if field.name in COLUMNS]
    others = tuple(cell for cell in transform.cells if not is_copy(cell))
    return replace(transform, cells=others), tuple(copies)


def select_copies(copies: Sequence[Copy], table: pa.Table) -> pa.Table:
    """Return the copied columns of records, under their names in the table."""
    columns = [column_at(table, copy.path) for copy in copies]
    return pa.table(columns, names=[copy.name for copy in copies])


def packed(copies: Sequence[Copy], table: pa.Table) -> Iterator[tuple[bytes, pa.Table]]:
    """Yield records in parts, each after its copied columns as an Arrow stream."""
    beside = select_copies(copies, table).append_column(ROW_ORIGIN, table.column(ROW_ORIGIN))
    step = max(1, table.num_rows * _STREAM_BYTES // max(1, beside.nbytes))
    for first in range(0, table.num_rows, step):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, beside.schema) as stream:
            stream.write_table(beside.slice(first, step))
        yield sink.getvalue().to_pybytes(), table.slice(first, step)


class CopiedColumnJoiner:
    """Joins copied columns with the rows that Spark made; both are in the records' order."""

    def __init__(self) -> None:
        self._streams: list[pa.Buffer] = []

    def takes(self, value: pa.Buffer) -> bool:
        """Take a value of the rejects' column; return whether it is an Arrow stream.

        Later rows belong to this stream or to later ones.
        """
        is_stream = bytes(value.slice(0, 1)) != b"{"
        if is_stream:
            self._streams.append(value)
        return is_stream

    def joined(self, rows: pa.Table, origins: pa.Array) -> pa.Table:
        """Return the rows with their copied columns."""
        if not self._streams:
            return rows
        existing = pa.concat_tables([pa.ipc.open_stream(data).read_all() for data in self._streams])
        # Only rows of the last one can come yet.
        del self._streams[:-1]
        outcome = pc.index_in(origins, existing.column(ROW_ORIGIN))
        joined = _picked(existing.drop_columns([ROW_ORIGIN]), outcome)
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            joined = joined.append_column(name, column)
        return joined


def _picked(table: pa.Table, origins: pa.Array) -> pa.Table:
    """Return some rows of a table by ascending numbers; do not copy if all are taken."""
    count = len(origins)
    first = origins[0].as_py() if count else 0
    if count and origins[-1].as_py() - first == count - 1:
        return table.slice(first, count)
    return table.take(origins)


@dataclass(frozen=True)
class _Work:
    """A map divided into Spark's part and the copied columns.

    Attributes:
        keys: Key properties that need a value in each row; Spark makes them.
    """

    source: StructType
    transform: Transform
    copies: tuple[Copy, ...]
    write: TableWrite
    keys: tuple[str, ...]


def source_columns(schema: Mapping[str, Any], *, add_metadata: bool = False) -> StructType:
    """Return the columns of a stream's records for maps; metadata columns last, if asked."""
    texts = tuple(kind for kind in TEXT_ONLY if kind is not T.VariantType)

    def seen(kind: DataType) -> DataType:
        return T.StringType() if isinstance(kind, texts) else kind

    struct = stored_columns(schema, add_metadata)
    return T.StructType([T.StructField(f.name, mapped(f.dataType, seen), True) for f in struct])


def copying(read: ReadPlan, write: TableWrite, making: Making) -> Task | None:
    """Return what loads the tasks of a plan without Spark's rows; None if the map computes values.

    Args:
        write: How the rows of the table are written; needs no frame.
    """
    if read.document is not None:
        return None
    keys = tuple(key.name for key in read.keys)
    metadata = read.metadata is not None
    rest, copied = without_copies(making.transform, write.struct, metadata=metadata)
    paths = {copy.name: copy.path for copy in copied}
    computes = rest.cells or rest.computed or rest.filter is not None
    if computes or not paths or not paths.keys() >= set(keys):
        return None
    records = source_records(read, making, source_columns(read.schema, add_metadata=metadata))
    records = replace(records, keys=tuple(Key(key, paths[key]) for key in keys))
    records = with_origins(records) if read.row_origin else records
    mapped = partial(_copied, copied, read.columns)
    return partial(write_tasks.load, records, write, read.columns, mapped=mapped)


def job(numbers: DataFrame, read: ReadPlan, write: TableWrite, making: Making) -> DataFrame:
    """Return the job that reads the tasks' files, maps the records in Spark and writes the rows.

    Args:
        numbers: The numbers of the tasks, a partition for each.
        read: How files are read: its schema is that of the source records, its columns are those
            of the table.
    """
    metadata = read.metadata is not None
    source = source_columns(read.schema, add_metadata=metadata)
    records = source_records(read, making, source)
    keys = tuple(key.name for key in read.keys)
    transform, several = making.transform, making.transform.explode is not None
    copies: tuple[Copy, ...] = ()
    if not (several or write_tasks.needs_frame(write) or read.document is not None):
        transform, copies = without_copies(
            transform, write.struct, metadata=metadata, computed=keys
        )
        reads = transform.reads
        source = StructType([field for field in source if field.name in reads])
    return _mapped(numbers, records, _Work(source, transform, copies, write, keys), read.columns)


def source_records(read: ReadPlan, making: Making, source: StructType) -> ReadPlan:
    """Return how the source records are read, with the columns for maps."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

    transform, copied = making.transform, None
    if transform.explode is None:
        copied = frozenset(cell.path[0] for cell in transform.cells if cell.path)
    return replace(
        read,
        columns=to_arrow_schema(_carried(source)),
        names=making.names or None,
        keys=(),
        copied=copied,
    )


def _mapped(numbers: DataFrame, read: ReadPlan, work: _Work, columns: pa.Schema) -> DataFrame:
    read = with_origins(read)
    metadata = [name for name in work.source.names if name in COLUMNS]
    kept = [*metadata, ROW_ORIGIN, REJECT_COLUMN]
    source = _source(numbers, read, work)
    # The writer ignores what else a row with a reject holds.
    frame = work.transform.apply(source, keep=kept, bypass=REJECT_COLUMN, clear=False)
    fields = _fields(work)
    frame = _in_table_columns(frame, fields, work, read.document)
    if write_tasks.needs_frame(work.write):
        values, columns = spark_rows.written_columns(work.write)
        names = tuple(columns.names)
    else:
        values = [F.col(quoted(field.name)) for field in fields]
        names = tuple(field.name for field in fields)
    # mapInArrow looks columns up by name and would take dots in them for paths.
    numbered = [column.alias(str(number)) for number, column in enumerate(values)]
    added = [F.col(quoted(name)) for name in (ROW_ORIGIN, ERROR, REJECT_COLUMN)]
    several = work.transform.explode is not None
    task = partial(write_mapped, read, work.write, columns, names, several=several)
    return frame.select(*numbered, *added).mapInArrow(task, write_tasks.RESULTS_DDL)


def _copied(
    copies: Sequence[Copy],
    columns: pa.Schema,
    records: pa.Table,
    rejects: Rejects,  # noqa: ARG001
) -> pa.Table:
    created = select_copies(copies, records)
    if ROW_ORIGIN in columns.names:
        created = created.append_column(ROW_ORIGIN, records.column(ROW_ORIGIN))
    return conform(created, columns)


def write_mapped(
    read: ReadPlan,
    write: TableWrite,
    columns: pa.Schema,
    names: Sequence[str],
    batches: Iterable[pa.RecordBatch],
    *,
    several: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Write mapped rows and reject those that failed; for `mapInArrow`.

    Args:
        names: Names of the columns that Spark made.
        batches: These columns, and the added ones.
        several: Whether a record may have several rows: all are written, or none.
    """
    originals, width = Originals(read), len(names)
    rejects = Rejects(read.rejects, read.reject_options)
    whole = WholeRecords(width) if several else None

    def rows(results: list[dict[str, Any]]) -> Iterator[pa.Table]:
        beside = CopiedColumnJoiner()
        for batch in batches if whole is None else whole.of(batches):
            origins, errors, notes = batch.columns[width:]
            for note in notes.drop_null():
                if not beside.takes(note.as_buffer()):
                    results.append(json.loads(note.as_py()))
            originals.reject_all(origins, errors, rejects)
            good = pc.and_(errors.is_null(), notes.is_null())
            created = pa.Table.from_batches([batch]).select(list(range(width)))
            created = created.rename_columns(names).filter(good)
            created = beside.joined(created, origins.filter(good))
            if ROW_ORIGIN in columns.names:
                created = created.append_column(ROW_ORIGIN, origins.filter(good))
            yield conform(created, columns)
        results += rejects.rows()
        if whole is not None:
            results.append({"kind": "exploded", "rows": whole.exploded})

    yield write_tasks.written(write, columns, rows)


def _carried(struct: StructType) -> StructType:
    return StructType([spark_rows.carried(field) for field in struct])


def _source(numbers: DataFrame, read: ReadPlan, work: _Work) -> DataFrame:
    """Return the records with the types for maps."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

    carried = T.StructType([*_carried(work.source), T.StructField(ROW_ORIGIN, T.LongType(), True)])
    parts = partial(_with_copies, work.copies) if work.copies else None
    task = partial(write_tasks.read_frame, read, columns=to_arrow_schema(carried), parts=parts)
    rejects = T.StructField(REJECT_COLUMN, T.BinaryType(), True)
    frame = numbers.mapInArrow(task, T.StructType([*carried, rejects]))
    fitting = Fitting(NO_NAMES, _restored)
    columns = [
        fitting.value(F.col(quoted(to.name)), method.dataType, to.dataType, (to.name,)).alias(
            to.name
        )
        for method, to in zip(carried, work.source, strict=False)
    ]
    return frame.select(*columns, ROW_ORIGIN, REJECT_COLUMN)


def _with_copies(copies: Sequence[Copy], records: pa.Table) -> Iterator[pa.Table]:
    for stream, rows in packed(copies, records):
        yield pa.table({REJECT_COLUMN: pa.array([stream], pa.binary())})
        yield rows


def _restored(value: Column, have: DataType, want: DataType, path: Sequence[str]) -> Column:  # noqa: ARG001
    """Return a value with the type that it had before its way through Arrow."""

    if isinstance(want, T.VariantType):
        return parse_json(value)
    if isinstance(want, T.YearMonthIntervalType):
        return value.cast(T.YearMonthIntervalType(1, 1)).cast(want)
    return value.cast(want)


def _fields(work: _Work) -> list[StructField]:
    """Return the columns of the table that Spark makes: all if it also makes their text."""
    fields = list(work.write.struct)
    if work.copies:
        created = frozenset(work.transform.struct().names)
        fields = [field for field in fields if field.name in created]
    return fields


def _in_table_columns(
    frame: DataFrame, fields: Sequence[StructField], work: _Work, document: str | None
) -> DataFrame:
    """Return the mapped rows with the table's columns, in types for Arrow or as text."""
    result = work.transform.struct()
    existing = {field.name: field.dataType for field in result}
    existing |= {field.name: field.dataType for field in work.source if field.name in COLUMNS}
    as_text = write_tasks.needs_frame(work.write)
    fitting = Fitting(NO_NAMES, _fitted)
    columns = []
    for field in fields:
        want = field.dataType if as_text else spark_rows.carried(field).dataType
        if field.name == document:
            created = record_json(result)
            created = parse_json(created) if isinstance(want, T.VariantType) else created
        elif field.name in existing:
            column = F.col(quoted(field.name))
            created = fitting.value(column, existing[field.name], want, (field.name,))
        else:
            created = F.lit(None).cast(want)
        columns.append(created.alias(field.name))
    return frame.select(*columns, ROW_ORIGIN, _error(work).alias(ERROR), REJECT_COLUMN)


def _error(work: _Work) -> Column:
    """Return why a mapped row is rejected: the map has failed, or a key has no value."""
    existing = {field.name: field.dataType for field in work.transform.struct()}
    reasons = [F.col(ERROR)]
    for key in work.keys:
        why = F.lit(missing_key_reason(key))
        reasons.append(F.when(F.col(quoted(key)).isNull(), why) if key in existing else why)
    for field in work.write.struct:
        is_integer = isinstance(existing.get(field.name), T.LongType)
        if is_integer and isinstance(field.dataType, T.DoubleType):
            value, name = F.col(quoted(field.name)), F.lit(field.name)
            why = F.format_string("property '%s': %d is not exact in the column", name, value)
            reasons.append(F.when(~value.between(-MOST_EXACT, MOST_EXACT), why))
    return F.when(F.col(REJECT_COLUMN).isNull(), F.coalesce(*reasons))


def _fitted(value: Column, have: DataType, want: DataType, path: Sequence[str]) -> Column:  # noqa: ARG001
    """Return a value in a wider type, or in the type that carries it through Arrow."""
    nested = (T.StructType, T.ArrayType, T.MapType, T.VariantType)
    if isinstance(want, T.StringType) and isinstance(have, nested):
        return json_column(value, have)
    if isinstance(have, T.YearMonthIntervalType) and isinstance(want, T.IntegerType):
        return value.cast(T.YearMonthIntervalType(1, 1)).cast(want)
    return value.cast(want)


def tell_engine(
    engine: Engine, stream: str, transform: Transform | None, source: StructType
) -> None:
    """Say what a map costs before its first row, so that Spark starts in time.

    Raises:
        SettingsError: Only Spark can map them, and the settings forbid it.
    """
    if transform is None or transform.only_copies:
        return
    outcome = arrow_map(transform, source)
    if outcome is None:
        engine.needs(write_tasks.NEEDS_MAP, stream)
    elif outcome.in_python:
        engine.weigh(IN_PYTHON)


def map_task(read: ReadPlan, write: TableWrite, making: Making) -> tuple[Task | None, bool]:
    """Return what loads the tasks of a plan without Spark.

    Returns:
        The work, None if only Spark can map the rows; and whether Python evaluates an expression
        for each row.
    """
    if write_tasks.needs_frame(write) or read.document is not None:
        return None, False
    source = source_columns(read.schema, add_metadata=read.metadata is not None)
    created = arrow_map(making.transform, source)
    kinds, stored = plain_types(write.struct), write.struct.names
    cells = (cell for cell in making.transform.cells if cell.name in stored)
    if created is None or any(kinds.get(cell.name) != cell.data_type for cell in cells):
        return None, False
    records = with_origins(source_records(read, making, source))
    keys = [key.name for key in read.keys]
    kept = [name for name in source.names if name in COLUMNS]
    mapped = partial(_mapped_in_arrow, records, read.columns, created, kept, keys)
    return partial(write_tasks.load, records, write, read.columns, mapped=mapped), created.in_python


def _mapped_in_arrow(
    read: ReadPlan,
    columns: pa.Schema,
    arrow: ArrowMap,
    kept: Sequence[str],
    keys: Sequence[str],
    records: pa.Table,
    rejects: Rejects,
) -> pa.Table:
    """Return the table's rows of some records; reject those that fail, or lack a key."""
    rows = arrow.apply(records, [*kept, ROW_ORIGIN])
    errors = rows.column(ERROR)
    for key in keys:
        existing = key in rows.column_names
        missing = rows.column(key).is_null() if existing else pa.scalar(True)
        errors = pc.coalesce(errors, pc.if_else(missing, missing_key_reason(key), None))
    stored = replace(read, columns=columns, copied=None)
    if read.is_narrow and (unheld := stored.unheld(rows)):
        reasons = [unheld.get(row) for row in range(rows.num_rows)]
        errors = pc.coalesce(errors, pa.array(reasons, pa.string()))
    Originals(read).reject_all(rows.column(ROW_ORIGIN), errors, rejects)
    return conform(rows.filter(errors.is_null()), columns)
