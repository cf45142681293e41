"""Files of a batch in, hidden parts of a table out.

Small files are read together by one task, large ones in parts by several. Each task of the engine
completes the rows and writes one hidden part, all in Arrow. Formats whose text Spark makes take the
same readers and writers with a DataFrame between them. Only file names and counts come back to the
driver.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from shared.encodings.encoding_format import GROUPED, grouped_encoding
from shared.engine.engine import (
    COMPRESSED,
    Engine,
    FrameTask,
    Report,
    Runs,
    Task,
    Threads,
    Work,
    weight,
)
from shared.errors import DestinationError, SingerSparkError, Where
from shared.formats.arrow_types import arrow_schema, holds
from shared.formats.file_formats import FORMATS
from shared.formats.spark_types import T
from shared.maps.record_metadata import RecordMetadata, record_schema
from shared.singer.platform import usable_cores
from shared.spark.spark_errors import explain
from shared.storage.access import StorageOptions, size_of
from shared.storage.files import codec_of
from target_spark.convert import write_tasks
from target_spark.convert.batch_files import BatchFiles
from target_spark.convert.read_plan import Piece, ReadPlan, with_origins
from target_spark.convert.stream_tables import StreamTables
from target_spark.convert.task_reports import raise_failure, result_of
from target_spark.convert.write_tasks import rewrite
from target_spark.core.load_plans import DOCUMENT, STAGED, Batch, InputFile, LoadResult, Reject
from target_spark.destinations.destination import RefusedByStoreError, TableWrite
from target_spark.destinations.folders.table_folder import write_error, writing
from target_spark.run_settings import TargetConfig
from target_spark.validation.columns import Key, SlowKeywords, is_plain_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from target_spark.convert.adoption import Adoption
    from target_spark.tables.version_edit import VersionEdit


TASK_BYTES = 64 * 1024 * 1024
"""Input bytes that one task reads and writes into one file."""

LEAST_BYTES = 16 * 1024 * 1024
"""Input bytes below which a task is not split further to keep all cores busy."""

LEAST_COPIED = 128 * 1024
"""Mean size of files whose columns are copied."""

MOST_SHARES = 4
"""Tasks that share a compressed file; each must decompress it up to its own share."""

_SPLIT_SHARE = 1.5


def plan_tasks(
    files: Sequence[InputFile],
    task_bytes: int | None = None,
    options: StorageOptions | None = None,
    cores: int = 1,
    *,
    shares_lines: bool = False,
) -> tuple[tuple[Piece, ...], ...]:
    """Group files into tasks of about `task_bytes` at most, in order.

    Files of lines above 1.5 times that size are split by bytes, columnar files by row groups.
    Several files, and row groups of one, are distributed evenly over enough tasks to keep all cores
    busy; so are the lines of one file, if no task leaves a file of its own.

    Args:
        task_bytes: Input bytes of a task; None for `TASK_BYTES`, or more of staged lines.
        cores: Number of tasks that can run at a time, as far as known.
        shares_lines: Whether all cores share the lines of a file below that size.

    Raises:
        OSError: A file that may be split cannot be opened.
    """
    if task_bytes is None:  # The next staged lines wait: these are one share for each core.
        staged = sum(file.size or 0 for file in files if file.encoding.format == STAGED)
        task_bytes = max(TASK_BYTES, -(-staged // cores))
    group_bytes = math.ceil(_share(sum(file.size or 0 for file in files), task_bytes, cores))
    pieces: list[tuple[Piece, int]] = []
    for file in files:
        is_shared = file.encoding.format in GROUPED or (
            shares_lines and file.encoding.compression == "none"
        )
        most = group_bytes if is_shared else task_bytes
        pieces += _pieces(file, file.size or 0, most, options)
    share = _share(sum(size for _, size in pieces), task_bytes, cores)
    tasks: dict[int, list[Piece]] = {}
    before = 0
    for piece, piece_bytes in pieces:
        middle = before + piece_bytes / 2
        tasks.setdefault(int(middle / share), []).append(piece)
        before += piece_bytes
    return tuple(map(tuple, tasks.values()))


def _share(total: int, task_bytes: int, cores: int) -> float:
    """Return bytes of each task: equally many tasks per core, unless these become too small."""
    rounds = -(-total // (task_bytes * cores))
    least = -(-total // task_bytes)
    count = min(rounds * cores, max(least, total // LEAST_BYTES))
    return max(1, total) / max(1, count)


def _pieces(
    file: InputFile, size: int, task_bytes: int, options: StorageOptions | None
) -> Iterator[tuple[Piece, int]]:
    form = file.encoding.format
    if form == "jsonl" and file.encoding.compression != "none":
        task_bytes //= COMPRESSED
    if size <= task_bytes * _SPLIT_SHARE:
        yield Piece(file), size
    elif form in GROUPED:
        yield from _groups(file, size, task_bytes, options)
    elif FORMATS[form].rows == "lines":
        packed = form == "jsonl" and codec_of(file.url, options) is not None
        count = min(-(-size // task_bytes), MOST_SHARES if packed else size)
        step = -(-size // count)
        for start in range(0, size, step):
            length = min(step, size - start)
            yield Piece(file, start, length), length * (COMPRESSED if packed else 1)
    else:
        yield Piece(file), size


def _groups(
    file: InputFile, size: int, task_bytes: int, options: StorageOptions | None
) -> Iterator[tuple[Piece, int]]:
    """Yield groups of consecutive row groups of about the size of a task."""
    groups = grouped_encoding(file.encoding.format).group_sizes(file.url, options)
    if len(groups) < 2:  # noqa: PLR2004
        yield Piece(file), size
        return
    share = size / -(-size // task_bytes)
    first = first_row = held = rows = 0
    for number, (group_bytes, group_rows) in enumerate(groups):
        held, rows = held + group_bytes, rows + group_rows
        if held >= share or number == len(groups) - 1:
            yield Piece(file, first, number + 1 - first, first_row), held
            first, first_row, held = number + 1, rows, 0


_Seen = TypeVar("_Seen")

MOST_LOOKED_AT = 10_000
"""Files that the driver looks at, at most, to find that it needs no Spark to rewrite them."""
LOOKERS = 16
"""Threads that look at files: most of it is waiting."""


@dataclass(eq=False)
class Converter:
    """Converts batches by tasks of the engine; methods may be called from any thread."""

    config: TargetConfig
    engine: Engine
    files: BatchFiles
    tables: StreamTables
    _started_at: float = field(default_factory=time.time, init=False)
    _cores: int = field(default_factory=usable_cores, init=False)
    _slow: SlowKeywords = field(default_factory=SlowKeywords, init=False)
    # Streams whose files are copied: tasks look at each file themselves.
    _copied: set[tuple[str, pa.Schema]] = field(default_factory=set, init=False)

    def convert(self, batch: Batch, write: TableWrite) -> LoadResult:
        """Convert the batch's files into hidden parts.

        Raises:
            MessageError: A file is missing, damaged or has another format than its label; names it.
            DestinationError: The parts cannot be written, or the storage of the files fails or
                does not answer.
            RefusedByStoreError: The store refuses rows, but takes each of them alone.
        """
        # Small files are read in less time than their columns are copied.
        least = LEAST_COPIED * len(batch.files) if self.config.add_record_metadata else 0
        is_large = sum(file.size or 0 for file in batch.files) >= least
        is_parquet = all(file.encoding.format == "parquet" for file in batch.files)
        is_kept = is_large and is_parquet and batch.making is None
        plan: Adoption | None = None
        if is_kept:
            from target_spark.convert.adoption import adoption  # noqa: PLC0415

            request, keys = self.tables.request(batch.stream), self.tables.keys(batch.stream)
            plan = adoption(self.config, request, write, batch.files, keys)
        if plan is not None and not plan.adds_metadata:
            with writing(write.pending, write.options):
                adopted = plan.parts(batch, write)
            if adopted is not None:
                return adopted
            plan = None
        try:
            rows = self._reports(batch, write, None if plan is None else plan.filled)
        except RefusedByStoreError:
            write = self._without_refused(batch, write)
            rows = self._reports(batch, write)
        files = batch.files if write.row_origin is not None else ()
        return replace(result_of(rows, batch), files=files)

    def refused(self, batch: Batch, write: TableWrite, rows: Mapping[int, str]) -> list[Reject]:
        """Return the records of refused rows.

        Args:
            rows: Origin within that conversion → reason.
        """
        from target_spark.convert.rejected_originals import Originals  # noqa: PLC0415

        originals = Originals(self._read_plan(batch, write))
        return [originals.place(origin, reason) for origin, reason in sorted(rows.items())]

    def _without_refused(self, batch: Batch, write: TableWrite) -> TableWrite:
        """Find the records whose rows cannot be written; return how others are written."""
        self.tables.trace(batch.stream.stream)
        write = self.tables.prepare(batch)
        if write.sink is not None:
            trial = self._reports(batch, replace(write, sink=write.sink.trial()))
            refused = {row["rows"]: row["text"] for row in trial if row["kind"] == "refused row"}
            self.tables.leave_out(batch, refused)
        return write

    def _reports(
        self, batch: Batch, write: TableWrite, filled: tuple[str, ...] | None = None
    ) -> list[Report]:
        read = replace(self._read_plan(batch, write), filled=filled)
        if not read.tasks:
            return []
        kind = batch.source, read.columns
        if filled is not None and kind not in self._copied:
            if write_tasks.copies_columns(read, write):
                self._copied.add(kind)
            else:
                read = replace(read, filled=None)
        task, in_python = _task(batch, write, read)
        copied = read.filled is not None
        weighed = sum(
            (file.size or 0)
            * weight(
                file.encoding,
                in_python=in_python,
                into_server=write.sink is not None,
                copied=copied,
            )
            for file in batch.files
        )
        needs = write_tasks.NEEDS_MAP if batch.making else write_tasks.NEEDS_COLUMNS
        why = needs if task is None else ""
        work = Work(batch.source, weighed, why, write_tasks.RESULTS_DDL)
        if self.engine.takes(work) and task is not None:
            return reports(self.engine.threads, task, len(read.tasks), work, write.pending)
        with self.files.reachable(read) as reachable:
            by_spark = _spark_task(batch, write, reachable)
            return reports(self.engine.spark, by_spark, len(reachable.tasks), work, write.pending)

    def _read_plan(self, batch: Batch, write: TableWrite) -> ReadPlan:
        add, making = self.config.add_record_metadata, batch.making
        metadata = RecordMetadata(
            received_at=batch.received_at,
            batched_at=time.time(),
            sync_started_at=self._started_at,
            version=batch.version,
        )
        with self.files.readable(batch):
            tasks = plan_tasks(
                batch.files,
                options=self.files.options,
                cores=self._cores,
                shares_lines=write.sink is not None,
            )
        in_orc, times = write.encoding.format == "orc", (T.TimestampType, T.TimestampNTZType)
        read = ReadPlan(
            tasks=tasks,
            schema=record_schema((making or batch.stream).schema, add),
            columns=arrow_schema(write.struct, write.encoding.format),
            metadata=metadata if add else None,
            strict=self.config.validate_records,
            options=self.files.options,
            rejects=write.pending if self.config.failure.policy == "SendToDLQ" else None,
            reject_options=write.options,
            document=None if self.config.denormalized else DOCUMENT,
            keys=tuple(Key(name, (name,)) for name in self.tables.keys(batch.stream)),
            is_narrow=holds(write.struct, (T.DoubleType, *(times if in_orc else ()))),
            in_orc=in_orc,
            output=batch.output,
            reports_rejects=batch.reports_rejects,
        )
        if write.row_origin is not None:
            read = replace(with_origins(read), refused=self.tables.left_out(batch))
        if read.strict and not is_plain_schema(read.schema):
            form = batch.files[0].encoding.format if batch.files else "singer"
            self._slow.log(batch.source, read.schema, files=FORMATS[form].rows != "lines")
        return read


def rewrite_files(
    engine: Engine,
    pairs: Sequence[tuple[str, str]],
    write: TableWrite,
    edit: VersionEdit | None = None,
) -> dict[str, int]:
    """Rewrite files of a table by tasks of an engine, one for each file; see `Rewrite`."""
    size = engine.limit + 1.0  # Of so many files, none is looked at.
    if len(pairs) <= MOST_LOOKED_AT:
        pairs = _without_kept(pairs, write, edit)
        sizes = _each(pairs, write, lambda url: size_of(url, write.options))
        size = sum(sizes) * weight(write.encoding)
    if not pairs:
        return {}
    task = partial(rewrite, tuple(pairs), write, edit)
    work = Work(None, size, reports=write_tasks.RESULTS_DDL)
    rows = reports(engine.choose(work), task, len(pairs), work, write.pending)
    return {row["url"]: row["rows"] for row in rows if row["kind"] == "part"}


def _task(
    batch: Batch, write: TableWrite, read: ReadPlan, *, may_map: bool = True
) -> tuple[Task | None, bool]:
    """Return what loads the tasks of a plan, by number.

    Args:
        may_map: Compute stream maps over Arrow, in Python if need be.

    Returns:
        The work, None if rows must pass through Spark's columns; and whether Python evaluates an
        expression for each record.
    """
    is_plain = not write_tasks.needs_frame(write)
    if batch.making is None:
        if not is_plain:
            return None, False
        return partial(write_tasks.load, read, write, read.columns), False
    from target_spark.convert.mapped_rows import copying, map_task  # noqa: PLC0415

    copied = copying(read, write, batch.making) if is_plain else None
    if copied is not None or not may_map:
        return copied, False
    return map_task(read, write, batch.making)


def _spark_task(batch: Batch, write: TableWrite, read: ReadPlan) -> Task | FrameTask:
    """Return the same for Spark, whose columns map faster than Python."""
    task, _ = _task(batch, write, read, may_map=False)
    if task is not None:
        return task
    from target_spark.convert import mapped_rows, spark_rows  # noqa: PLC0415

    making = batch.making
    if making is not None:
        return FrameTask(lambda numbers: mapped_rows.job(numbers, read, write, making))
    return FrameTask(lambda numbers: spark_rows.job(numbers, read, write))


def _without_kept(
    pairs: Sequence[tuple[str, str]], write: TableWrite, edit: VersionEdit | None
) -> Sequence[tuple[str, str]]:
    """Return the files that an edit may change, as their footers tell."""
    if edit is None:
        return pairs
    form, options = write.encoding.format, write.options
    kept = _each(pairs, write, lambda url: edit.keeps_file(url, form, options))
    return [pair for pair, is_kept in zip(pairs, kept, strict=True) if not is_kept]


def _each(
    pairs: Sequence[tuple[str, str]], write: TableWrite, look: Callable[[str], _Seen]
) -> list[_Seen]:
    """Return what is seen at the first file of each pair."""
    with writing(write.pending, write.options), ThreadPoolExecutor(LOOKERS, "look") as threads:
        return list(threads.map(look, [source for source, _ in pairs]))


def reports(runs: Runs, task: Task | FrameTask, count: int, work: Work, place: str) -> list[Report]:
    """Run tasks and return what they report.

    Raises:
        DestinationError: Spark failed, or a part could not be written.
        MessageError: A file could not be read.
    """
    where = Where(stream=work.stream)
    try:
        rows = runs.run(task, count, work)
    except Exception as error:
        if isinstance(error, OSError) and isinstance(runs, Threads):
            raise write_error(place, error) from error
        # An error of ours comes back as it is: its cause tells whether a retry can help.
        cause = error.__cause__ if isinstance(error, SingerSparkError) else error
        raise explain(error, where, DestinationError) from cause
    raise_failure(rows, where)
    return rows
