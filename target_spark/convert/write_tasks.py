"""Tasks that read files and write parts, all in Arrow; also into folders of partitions.

Plans are plain data; functions are pickled by reference, so `shared` and `target_spark` must be
installed where executors run.
"""

from __future__ import annotations

import errno
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from shared.errors import SettingsError
from shared.formats.arrow_types import arrow_schema, conform, unheld_values
from shared.formats.columnar_encoding import LONGEST_TEXT, Facts, has_no_null, read_footer
from shared.formats.file_formats import FORMATS
from shared.formats.line_encodings import grouped
from shared.formats.spark_types import T
from shared.maps.record_metadata import COLUMNS
from shared.singer.platform import arrow_in_task
from shared.storage.access import StorageOptions, make_durable, size_of
from shared.storage.urls import join, shown
from target_spark.convert.read_plan import Piece, ReadPlan
from target_spark.convert.read_rows import UnreadableInputError, read_task
from target_spark.convert.task_reports import Rejects
from target_spark.destinations.destination import RefusedByStoreError, TableWrite
from target_spark.destinations.folders.table_folder import PartitionError, partition_folder

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from shared.formats.column_copies import ColumnCopy
    from target_spark.tables.version_edit import VersionEdit


MOST_FOLDERS = 1000
"""Folders that a task may write to: a table of more is better one of a lake."""

COLLECTED_BYTES = 64 * 1024 * 1024
"""Arrow bytes of rows that are divided at once, into one file for each folder."""

_ROW = "row"


def in_folders(
    tables: Iterable[pa.Table], columns: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, pa.Table, dict[str, Facts]]]:
    """Divide rows by the values of columns; a bounded number of bytes is held at once.

    Args:
        columns: Names of the partition columns, in the rows and in the folders.

    Yields:
        A folder, rows for it without these columns, and facts of the columns (see
        `shared.formats.columnar_encoding`). A folder comes again if there are more rows.

    Raises:
        PartitionError: There are too many folders, or the name of one is too long.
    """
    seen: set[str] = set()
    names = [name for name, _ in columns]
    for table in grouped(tables, COLLECTED_BYTES):
        keys, rest = table.select(names), table.drop_columns(names).combine_chunks()
        del table  # its bytes are in `rest` now
        for values, places in _groups(keys.combine_chunks()):
            shown = [name for _, name in columns]
            folder = "/".join(map(partition_folder, shown, values))
            seen.add(folder)
            if len(seen) > MOST_FOLDERS:
                raise _too_many()
            facts = zip(shown, values, strict=True)
            yield folder, rest.take(places), {n: _facts(v, len(places)) for n, v in facts}
        del rest  # before the next rows are collected


def _groups(keys: pa.Table) -> Iterator[tuple[list[str | None], pa.Array]]:
    """Yield each combination of values, as texts, and its rows in order."""
    if not keys.num_rows:
        return
    # The groups' row numbers, collected as lists: `take` then divides the rows without sorting
    # them.
    numbers = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), keys.num_rows))
    names = [str(number) for number in range(keys.num_columns)]
    numbered = keys.rename_columns(names).append_column(_ROW, pc.subtract(numbers, 1))
    result = numbered.group_by(names, use_threads=False).aggregate([(_ROW, "list")])
    if result.num_rows > MOST_FOLDERS:
        raise _too_many()
    texts = [result.column(name).cast(pa.string()).to_pylist() for name in names]
    places = result.column(f"{_ROW}_list").combine_chunks()
    for number, values in enumerate(zip(*texts, strict=True)):
        yield list(values), places[number].values


def _facts(value: str | None, rows: int) -> list[Any]:
    if not value:
        return [rows, None, None]
    bound = value if len(value) <= LONGEST_TEXT else None
    return [0, bound, bound]


def _too_many() -> PartitionError:
    return PartitionError(
        f"the rows of one task have more than {MOST_FOLDERS:,} different values in the columns of "
        "partition_by"
    )


REJECT_COLUMN = "__reject"
"""Binary column that carries rejected records through transforms."""

RESULTS = pa.schema(
    [("kind", pa.string()), ("url", pa.string()), ("rows", pa.int64()), ("size", pa.int64()),
     ("text", pa.string())]
)  # fmt: skip
"""What tasks report to the driver: `part` (facts of its columns in text), `read` (how many
records), `undeclared` (values in rows, property in text), `cut` (property in text), `reject` (line
in rows, reason in text), `rejected` (how many in all), `reject file`, `refused row` (origin in
rows, reason in text), and failures: `error`, `conflict`, `refused`, `refused by store`,
`unreadable`, `unreachable` (number in rows)."""

RESULTS_DDL = "kind string, url string, rows bigint, size bigint, text string"

_LASTING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR,
     errno.EEXIST, errno.ENOENT, errno.EISDIR, errno.ENAMETOOLONG}
)  # fmt: skip


def partition_column(write: TableWrite, name: str) -> str:
    """Return the name of a partition column beside whole lines, or beside other columns."""
    return f"partition {name}" if FORMATS[write.encoding.format].rows == "lines" else name


def _stored(write: TableWrite, columns: pa.Schema, without: Sequence[str]) -> pa.Schema:
    """Return the columns of files, with what they tell readers."""
    fields = [field for field in columns if field.name not in without]
    if columns.metadata is None:
        return pa.schema(fields)
    return pa.schema(fields, arrow_schema(write.stored, write.encoding.format).metadata)


def load(
    read: ReadPlan,
    write: TableWrite,
    columns: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    mapped: Callable[[pa.Table, Rejects], pa.Table] | None = None,
) -> Iterator[Any]:
    """Read and write the tasks named by the incoming numbers; for `mapInArrow`.

    Args:
        columns: Columns of the rows that are written.
        mapped: Makes rows of the table from the rows read, if they differ, and may reject some.
    """
    arrow_in_task()
    for number in numbers_of(batches):
        rejects = Rejects(read.rejects, read.reject_options)
        try:
            # Columns are copied if the footers of the files show that each row fits. The rows are
            # still set up here, but read only if there is no copy.
            copied = None if read.filled is None else _copied(read, write, number, rejects)
            tables = read_task(read, read.tasks[number], rejects)
            if mapped is not None:
                tables = (mapped(table, rejects) for table in tables)
            rows = _write(write, columns, tables) if copied is None else copied
        except _PERMANENT as error:
            # Reported, not raised: Spark would try the task again, on a full disk, too.
            rows = [_failure(error, write.pending)]
        yield pa.RecordBatch.from_pylist([*rows, *rejects.rows()], RESULTS)


def read_frame(
    read: ReadPlan,
    batches: Iterable[pa.RecordBatch],
    columns: pa.Schema | None = None,
    parts: Callable[[pa.Table], Iterable[pa.Table]] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows, then the rejects in a column of their own; for `mapInArrow`.

    Args:
        columns: The columns for Spark; None for all columns read.
        parts: Makes the rows for Spark from the rows read; None if they are the same.
    """
    arrow_in_task()
    columns = (columns or read.columns).append(pa.field(REJECT_COLUMN, pa.binary()))
    for number in numbers_of(batches):
        rejects = Rejects(read.rejects, read.reject_options)
        failed: list[dict[str, Any]] = []
        try:
            for table in read_task(read, read.tasks[number], rejects):
                for part in (table,) if parts is None else parts(table):
                    yield from conform(part, columns).to_batches()
        except UnreadableInputError as error:
            failed = [_failure(error, "")]
        texts = [json.dumps(row).encode() for row in (*failed, *rejects.rows())]
        if texts:
            yield from conform(pa.table({REJECT_COLUMN: texts}), columns).to_batches()


def write_frame(
    write: TableWrite, columns: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write rows of a frame that `read_frame` has begun; for `mapInArrow`."""
    yield written(write, columns, lambda rejects: _without_rejects(batches, columns, rejects))


def written(
    write: TableWrite,
    columns: pa.Schema,
    tables: Callable[[list[dict[str, Any]]], Iterator[pa.Table]],
) -> pa.RecordBatch:
    """Write the rows of a task into one part; return its results.

    Args:
        tables: Returns the rows, and adds further results to the list.
    """
    arrow_in_task()
    rejects: list[dict[str, Any]] = []
    try:
        rows = _write(write, columns, tables(rejects))
    except _PERMANENT as error:
        rows = [_failure(error, write.pending)]
    return pa.RecordBatch.from_pylist([*rows, *rejects], RESULTS)


def _write(
    write: TableWrite, columns: pa.Schema, tables: Iterator[pa.Table]
) -> list[dict[str, Any]]:
    """Write all rows into new, durable files: one, or one for each folder and block of rows."""
    if write.sink is not None:
        return write.sink.write(columns, tables)
    if not write.partition_by:
        return _write_file(write, write.pending, columns, tables)
    folders = [(partition_column(write, name), name) for name in write.partition_by]
    stored = _stored(write, columns, [name for name, _ in folders])
    return [
        part
        for folder, rows, facts in in_folders(tables, folders)
        for part in _write_file(write, join(write.pending, folder), stored, iter([rows]), facts)
    ]


def _write_file(
    write: TableWrite,
    folder: str,
    columns: pa.Schema,
    tables: Iterator[pa.Table],
    profile: Mapping[str, Facts] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Write all rows into one new, durable file; write nothing if there are no rows."""
    first = next((table for table in tables if table.num_rows), None)
    if first is None:
        return []
    url, rows = _new_file(write, folder), 0

    def counted() -> Iterator[pa.Table]:
        nonlocal rows
        for table in chain((first,), tables):
            rows += table.num_rows
            yield table

    form = FORMATS[write.encoding.format]
    form.write(url, columns, counted(), write.encoding.compression, write.options)
    return [_part(write, url, rows, profile)]


def _new_file(write: TableWrite, folder: str) -> str:
    ending = FORMATS[write.encoding.format].extension(write.encoding.compression)
    return join(folder, f"{uuid.uuid4().hex}{ending}")


def _part(
    write: TableWrite, url: str, rows: int, profile: Mapping[str, Facts] = MappingProxyType({})
) -> dict[str, Any]:
    """Make a file durable and return it as a result."""
    make_durable(url)
    # What a reader will find, not what the writer was given.
    stored, facts = read_footer(write.encoding.format, url, write.options)
    rows = rows if stored is None else stored
    part = {"kind": "part", "url": url, "rows": rows, "size": size_of(url, write.options)}
    return {**part, "text": json.dumps({**facts, **profile})}


def _copied(
    read: ReadPlan, write: TableWrite, number: int, rejects: Rejects
) -> list[dict[str, Any]] | None:
    """Write the part of a task from the columns of its files; None if their rows must be read."""
    columns = _column_copy(read, read.tasks[number])
    if columns is None:
        return None
    url = _new_file(write, write.pending)
    rows = columns.write(url, write.encoding.compression, write.options)
    rejects.read += rows or 0
    return None if rows is None else [_part(write, url, rows)] if rows else []


def copies_columns(read: ReadPlan, write: TableWrite) -> bool:
    """Return whether tasks copy the columns of files, as the first of them tells."""
    columns = _column_copy(read, read.tasks[0][:1])
    return columns is not None and columns.fitting(write.encoding.compression)


def _column_copy(read: ReadPlan, pieces: Sequence[Piece]) -> ColumnCopy | None:
    """Return the copy of the columns of some pieces; None if their rows must be read."""
    from shared.formats.column_copies import ColumnCopy  # noqa: PLC0415

    metadata = read.metadata
    if metadata is None:
        return None

    own, added = (
        pa.schema([f for f in read.columns if (f.name in COLUMNS) is is_added])
        for is_added in (False, True)
    )
    return ColumnCopy(
        [(p.url, None if p.length is None else range(p.start, p.start + p.length)) for p in pieces],
        own.with_metadata(read.columns.metadata),
        lambda rows: conform(pa.table(metadata.columns(rows)), added),
        partial(has_no_null, names=read.filled or ()),
        read.options,
    )


def _without_rejects(
    batches: Iterable[pa.RecordBatch], columns: pa.Schema, rejects: list[dict[str, Any]]
) -> Iterator[pa.Table]:
    for batch in batches:
        table = pa.Table.from_batches([batch])
        notes = table.column(REJECT_COLUMN)
        if notes.null_count < table.num_rows:
            rejects += [json.loads(text) for text in notes.drop_null().to_pylist()]
            table = table.filter(notes.is_null())
        rows = table.drop_columns([REJECT_COLUMN]).rename_columns(columns.names)
        yield conform(rows, columns)


def numbers_of(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """Yield the numbers of the tasks of this worker."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


_PERMANENT = (UnreadableInputError, PartitionError, RefusedByStoreError, OSError)


def _failure(error: Exception, pending: str) -> dict[str, Any]:
    """Return a permanent failure as a result; raise any other again."""
    if isinstance(error, UnreadableInputError):
        url, reason, *number = error.args
        kind = {"kind": "unreachable", "rows": number[0]} if number else {"kind": "unreadable"}
        return {**kind, "url": url, "text": reason}
    if isinstance(error, PartitionError):
        return {"kind": "refused", "text": str(error)}
    if isinstance(error, RefusedByStoreError):
        return {"kind": "refused by store", "text": str(error)}
    if not isinstance(error, OSError) or error.errno not in _LASTING:
        raise error
    place = str(error.filename) if error.filename else pending
    reason = error.strerror or os.strerror(error.errno or 0)
    return {"kind": "error", "url": place, "rows": error.errno, "text": reason}


def rewrite(
    pairs: Sequence[tuple[str, str]],
    write: TableWrite,
    edit: VersionEdit | None,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yield a part for every file that was written or has become empty; for `mapInArrow`.

    Args:
        pairs: Old and new URL of each file.
        edit: The change of their rows; files that it does not change are not written.
    """
    arrow_in_task()
    for number in numbers_of(batches):
        source, target = pairs[number]
        try:
            rows = _rewritten(write, edit, source, target)
        except SettingsError as error:
            rows = [{"kind": "conflict", "text": error.message}]
        except pa.ArrowInvalid as error:
            text = f"the file '{shown(source)}' cannot get other columns or rows: {error}"
            rows = [{"kind": "conflict", "text": text}]
        except OSError as error:
            rows = [_failure(error, write.pending)]
        yield pa.RecordBatch.from_pylist(rows, RESULTS)


def _rewritten(
    write: TableWrite, edit: VersionEdit | None, source: str, target: str
) -> list[dict[str, Any]]:
    name, options = write.encoding.format, write.options
    if edit is not None and (
        edit.keeps_file(source, name, options) or not _changes(edit, source, name, options)
    ):
        return []
    columns = _columns(write)
    rows = 0

    def tables() -> Iterator[pa.Table]:
        nonlocal rows
        for table in FORMATS[name].read(source, options):
            edited = edit.apply(table, name)[0] if edit else table
            rows += edited.num_rows
            for _, path, value in unheld_values(edited, columns):
                raise SettingsError(
                    f"column '{path}' cannot change from bigint to double: {value} would change"
                )
            yield conform(edited, columns)

    kept = _first_rows(tables())
    if kept is None and edit is not None:
        return [{"kind": "part", "url": target, "rows": 0, "size": 0}]
    FORMATS[name].write(target, columns, kept or (), write.encoding.compression, options)
    make_durable(target)
    return [{"kind": "part", "url": target, "rows": rows, "size": 0}]


def _changes(edit: VersionEdit, source: str, name: str, options: StorageOptions) -> bool:
    return any(edit.apply(table, name)[1] for table in FORMATS[name].read(source, options))


def _columns(write: TableWrite) -> pa.Schema:
    """Return the columns between reader and writer."""
    rows = FORMATS[write.encoding.format].rows
    if rows == "texts":
        return pa.schema([(name, pa.string()) for name in write.struct.names])
    if rows == "lines":
        return pa.schema([("value", pa.string())])
    return arrow_schema(write.struct, write.encoding.format)


def _first_rows(tables: Iterator[pa.Table]) -> Iterator[pa.Table] | None:
    """Return the tables from the first one with rows on; None if all are empty."""
    for table in tables:
        if table.num_rows:
            return chain((table,), tables)
    return None


NEEDS_COLUMNS = "rows as JSON text, or nested columns in CSV"
NEEDS_MAP = "a stream map that is not computed over Arrow"


def needs_frame(write: TableWrite) -> bool:
    """Return whether Spark makes the text of the rows: all JSON, and nested columns in CSV."""
    rows = FORMATS[write.encoding.format].rows
    if rows == "texts":
        return not all(fits_csv(field.dataType) for field in write.struct)
    return rows == "lines"


def fits_csv(kind: DataType) -> bool:
    """Return whether Arrow's CSV writer writes a column correctly."""
    nested = (T.StructType, T.ArrayType, T.MapType)
    return not isinstance(kind, (*nested, T.DayTimeIntervalType, T.YearMonthIntervalType))
