"""BATCH messages of one stream: executors write files, which are announced one by one.

A task sends a note for each file while it writes the next. The KEYS message has the same files, but
is announced as a whole.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from shared.errors import DestinationError, SourceError, Where
from shared.formats.file_formats import FORMATS, Encoding
from shared.settings.batch_settings import BatchConfig
from shared.singer.messages import batch_line, keys_line
from shared.spark.session import parallelism, stream_arrow
from shared.storage.access import StorageOptions, delete_all
from shared.storage.urls import shown
from tap_spark.send.batch_columns import file_input
from tap_spark.send.batch_plan import (
    NO_FILE,
    STORAGE_FAILED,
    BatchStagingFolder,
    FileContent,
    WrittenFile,
    distribute,
    file_names,
    full_contents,
    marking_storage_failures,
    remove_unannounced,
    whole_leftover,
)
from tap_spark.send.batch_tasks import (
    NOTE_SCHEMA,
    BatchFileWriter,
    BatchTask,
    LeftToSparkError,
    RepackTask,
    Reporter,
    driver_files,
    waiting_path,
)
from tap_spark.send.line_output import ChunkInfo, LineOutput, OnChunk
from tap_spark.send.record_writer import (
    POLL_SECONDS,
    SparkJob,
    tagged,
    warn_of_replaced,
)
from tap_spark.send.spool import Spool, SpoolFolder, check_complete
from tap_spark.send.spool_files import Chain, KeyMax, chain, greater_key, unpack_meta
from tap_spark.state.stream_plans import DriverBlocks, Resume, Slice, StreamPlan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


FileNote = tuple[WrittenFile, KeyMax | None]
MakeTask = Callable[["Reporter"], Any]


def written_files(
    spark: SparkSession, frame: DataFrame, make: MakeTask, spool: Spool | None, *, ordered: bool
) -> Generator[FileNote, None, None]:
    """Run a task over a frame; yield each file it reports, with its greatest key.

    Args:
        spool: Where tasks leave notes; None if executors do not share a disk: notes then come at
            the end.
        ordered: Whether to yield files in the order of the frame's rows.

    Raises:
        SourceError: Notes were lost.
        Exception: Any failure of Spark.
    """
    if spool is None:
        return _by_result(spark, frame, make, ordered)
    return _by_notes(spark, frame, make, spool, ordered)


def _by_notes(
    spark: SparkSession, frame: DataFrame, make: MakeTask, spool: Spool, ordered: bool
) -> Generator[FileNote, None, None]:
    folder = spool.new_folder(ordered=ordered)
    task = make(Reporter(folder.task_spool))
    job = SparkJob(spark, frame.mapInArrow(task, NOTE_SCHEMA).collect)
    written_files = 0
    try:
        ended = False
        while not ended:
            ended = job.wait(POLL_SECONDS)
            for chunk in folder.ready(ended=ended):
                note = _written(chunk.path.read_text(encoding="utf-8"))
                chunk.remove()
                written_files += 1
                yield note, chunk.key
        check_complete(written_files, len(job.result()), "notes on {} of {} batch files")
    finally:
        job.cancel()
        folder.remove()


def _by_result(
    spark: SparkSession, frame: DataFrame, make: MakeTask, ordered: bool
) -> Generator[FileNote, None, None]:
    with tagged(spark):
        batches = stream_arrow(frame.mapInArrow(make(Reporter(None)), NOTE_SCHEMA))
        rows: Iterable[dict[str, Any]] = (row for batch in batches for row in batch.to_pylist())
        if ordered:
            rows = sorted(rows, key=itemgetter("partition", "number"))
        for row in rows:
            yield _written(row["note"]), unpack_meta(row["meta"])[1]


def _written(note: str) -> WrittenFile:
    return WrittenFile(**json.loads(note))


TAP_NAME = "tap-spark"
_STORAGE_FAILED = re.compile(re.escape(STORAGE_FAILED).replace(r"\{\}", "(.*)"))

Bookmark = Mapping[str, Any]


class BatchWriter:
    """Writes the slices of a stream as files and BATCH messages.

    With `batch_size`, every file but the stream's last has exactly that many rows: tasks write full
    files, and a second, small job combines their left-over rows. Rows that still do not fill a file
    wait for the next slice, and so do the bookmarks that cover them. An ordered slice is written by
    a single task, which writes waiting rows before its own.

    Args:
        spool: Where executors leave notes; None if they do not share a disk with this process.
        staging: Folder for finished files that are not announced yet; None if tasks write them to
            their URLs.

    Attributes:
        rows: Rows announced so far.
    """

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        plan: StreamPlan,
        output: LineOutput,
        *,
        batch: BatchConfig,
        spool: Spool | None,
        staging: BatchStagingFolder | None = None,
    ) -> None:
        self.rows = 0
        self._spark = spark
        self._plan = plan
        self._batch = batch
        self._output = output
        self._spool = spool
        self._staging = staging if spool is not None else None
        extension = FORMATS[batch.format].extension(batch.compression)
        self._encoding = {"format": batch.format, "compression": batch.compression}
        self._options = StorageOptions(batch.options)
        self._names = file_names(batch.root or "", batch.prefix, TAP_NAME, plan.stream, extension)
        self._announced: set[str] = set()
        self._leftover_folder: SpoolFolder | None = None
        self._writer: BatchFileWriter | None = None
        self._on_chunk: OnChunk = lambda _: None
        self._leftovers: FileContent = ()
        self._left_key: KeyMax | None = None
        self._held: Bookmark | None = None

    def write(self, slice_: Slice, on_chunk: OnChunk) -> Bookmark | None:
        """Write a slice.

        Args:
            slice_: The slice; if it is ordered, files are announced in its order.
            on_chunk: Called after each BATCH message; may write STATE.

        Returns:
            The newest bookmark whose rows, and all earlier ones, have been announced; None if
            there is none.

        Raises:
            ClosedPipeError: The reader of standard output has closed it.
            DestinationError: The spool folder or the batch files cannot be written.
            Exception: Any failure of Spark.
        """
        self._on_chunk = on_chunk
        had_leftovers = self._leftovers
        with self._explained():
            written, key = self._read(slice_)
            leftovers = tuple(map(whole_leftover, written))
            self._left_key = greater_key(self._left_key, key)
            if slice_.ordered:
                # Its task wrote the waiting rows before its own.
                earlier_out = not self._leftovers
                self._leftovers = leftovers or self._leftovers
            else:
                earlier_out = (
                    self._write_full_files((*self._leftovers, *leftovers)) or not had_leftovers
                )
            if not self._leftovers:
                self._count(ChunkInfo(0, 0, self._left_key))
                self._left_key = None
            self._remove_used((*had_leftovers, *leftovers))
        return self._settled(slice_.bookmark, earlier_out=earlier_out)

    def write_blocks(self, blocks: DriverBlocks, threads: int, on_chunk: OnChunk) -> bool:
        """Write rows that so many threads read; announce files at once if they surely read all.

        Returns:
            Whether the rows were written; if not, Spark must read them, and nothing was announced.

        Raises:
            Exception: See `write`.
        """
        self._on_chunk = on_chunk
        with self._explained():
            writer = self._file_writer(blocks.schema)
            files = driver_files(writer, blocks.readers, threads, lambda: self._output.closed)
            try:
                with closing(files):
                    for written in files if blocks.is_sure else list(files):
                        self._announce(written, None)
            except LeftToSparkError:
                if self._announced:
                    raise SourceError(
                        "a file changed while it was read",
                        where=Where(stream=self._plan.stream),
                        hint="run again once no program writes to the files",
                        passes=True,
                    ) from None
                self._remove_unannounced()
                return False
        return True

    def finish(self) -> Bookmark | None:
        """Write left-over rows to a last, short file.

        Returns:
            The bookmark that was still waiting; None if there was none.

        Raises:
            Exception: See `write`.
        """
        if self._leftovers:
            content, self._leftovers = self._leftovers, ()
            with self._explained():
                self._announce_repacked((content,))
                self._count(ChunkInfo(0, 0, self._left_key))
        held, self._held = self._held, None
        return held

    def close(self, *, done: bool) -> None:
        """Remove files that were not announced.

        Args:
            done: Whether the stream is complete; else tasks may still finish files.
        """
        if self._leftover_folder is not None:
            self._leftover_folder.remove()
        if not done or self._spool is None:
            # Files that tasks still write to the staging folder are removed with it.
            self._remove_unannounced(1 if done or self._work() is not None else 2)

    def _remove_unannounced(self, empty_listings: int = 1) -> None:
        remove_unannounced(
            self._plan.stream, self._names, self._options, self._announced, empty_listings
        )

    def __enter__(self) -> BatchWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(done=kind is None)

    def _work(self) -> str | None:
        return None if self._staging is None else self._staging.work

    def _read(self, slice_: Slice) -> tuple[list[WrittenFile], KeyMax | None]:
        """Write and announce the full files of a slice; return left-over files and their key."""
        plan, rows = self._plan, self._batch.batch_size
        key = plan.replication_key if plan.resume is Resume.REPLICATION_KEY else None
        source, schema = file_input(slice_, self._batch.format, key)
        frame = source.frame
        if rows is not None:
            frame = frame.coalesce(1 if slice_.ordered else parallelism(self._spark()))
        writer = self._writer = self._file_writer(schema)
        folder = self._folder_for_leftovers()
        before = self._leftovers if slice_.ordered else ()

        def make(reporter: Reporter) -> Chain:
            task = BatchTask(writer, reporter, key, rows, folder, before=before)
            return chain(source.read, task)

        leftovers: list[WrittenFile] = []
        greatest: KeyMax | None = None
        replaced: Counter[str] = Counter()
        # Closed at once: after an error in `on_chunk` the job would otherwise keep running.
        with closing(
            written_files(self._spark(), frame, make, self._spool, ordered=slice_.ordered)
        ) as files:
            for written, columns in files:
                replaced.update(json.loads(written.replaced))
                if written.is_leftover or written == NO_FILE:
                    leftovers += [written] if written.is_leftover else []
                    greatest = greater_key(greatest, columns)
                    continue
                if before:
                    # The first file has the waiting rows.
                    self._leftovers, before = (), ()
                self._announce(written, columns)
        warn_of_replaced(plan.stream, replaced)
        return leftovers, greatest

    def _file_writer(self, schema: pa.Schema) -> BatchFileWriter:
        batch = self._batch
        with marking_storage_failures(self._options):
            work = self._work()
        return BatchFileWriter(
            Encoding(batch.format, batch.compression),
            self._names,
            schema,
            self._options,
            work,
            batch.compression_level,
        )

    def _folder_for_leftovers(self) -> str | None:
        if self._spool is None or self._batch.batch_size is None:
            return None
        if self._leftover_folder is None:
            self._leftover_folder = self._spool.new_folder()
        return str(self._leftover_folder.path)

    def _write_full_files(self, ranges: FileContent) -> bool:
        """Write full files of left-over rows.

        Returns:
            Whether there was one: it then has all waiting rows of earlier slices.
        """
        if not ranges:
            return False
        full, leftovers = full_contents(ranges, self._batch.batch_size or 1)
        # Cleared first: if this fails, some of the rows may have been announced.
        self._leftovers, held, self._held = (), self._held, None
        self._announce_repacked(full)
        self._leftovers, self._held = leftovers, held
        return bool(full)

    def _announce_repacked(self, contents: tuple[FileContent, ...]) -> None:
        if not contents:
            return
        writer, spark = self._writer, self._spark()
        assert writer is not None  # noqa: S101
        shares = tuple(distribute(contents, parallelism(spark)))
        frame = spark.range(0, len(shares), 1, len(shares))
        make = partial(RepackTask, writer, shares=shares)
        # In order, as the short file must be last.
        with closing(written_files(spark, frame, make, self._spool, ordered=True)) as files:
            for written, _ in files:
                self._announce(written, None)

    def _remove_used(self, ranges: Iterable[Any]) -> None:
        """Remove left-over files whose rows are in files now."""
        used = {leftover.url for leftover in ranges} - {
            leftover.url for leftover in self._leftovers
        }
        # If this fails, they are removed at the end of the stream.
        delete_all([*used], self._options)

    def _settled(self, bookmark: Bookmark | None, *, earlier_out: bool) -> Bookmark | None:
        """Return the bookmark that may be written after a slice, and hold back newer ones."""
        newest = self._held if bookmark is None else bookmark
        if not self._leftovers:
            self._held = None
            return newest
        true = self._held if earlier_out else None
        self._held = newest
        return true

    def _announce(self, written: WrittenFile, key: KeyMax | None) -> None:
        line = batch_line(self._plan.stream, self._encoding, [written.url], self._plan.version)
        self._publish(written.url)
        # Recorded first: a reader may have the line even if writing it fails.
        self._announced.add(written.url)
        self._output.write(line)
        self._count(ChunkInfo(written.rows, written.size, key))

    def _publish(self, url: str) -> None:
        work = self._work()
        if self._staging is not None and work is not None:
            with marking_storage_failures(self._options):
                self._staging.publish(waiting_path(work, url), url)

    def _count(self, chunk: ChunkInfo) -> None:
        self.rows += chunk.rows
        self._on_chunk(chunk)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Separate failures of the storage from failures of the source."""
        try:
            yield
        except Exception as error:
            failed = _STORAGE_FAILED.search(str(error))
            if failed is None:
                raise
            raise DestinationError(
                f"cannot write batch files: {failed.group(1)}",
                where=Where(
                    stream=self._plan.stream,
                    file=shown(self._names.root),
                    setting="batch_config.storage.root",
                ),
                hint="check that the folder exists and is writable, and 'batch_config.storage'",
            ) from error


class KeyWriter(BatchWriter):
    """Writes slices as files that only `finish` announces: half a key set would delete rows."""

    _urls: tuple[str, ...] = ()

    def finish(self) -> None:
        """Write the message with all files.

        Raises:
            ClosedPipeError: The reader of standard output has closed it.
            DestinationError: The files cannot be written.
        """
        with self._explained():
            for url in self._urls:
                self._publish(url)
        # Recorded first: a reader may have the line even if writing it fails.
        self._announced.update(self._urls)
        self._output.write(keys_line(self._plan.stream, self._encoding, self._urls))

    def _announce(self, written: WrittenFile, key: KeyMax | None) -> None:
        self._urls += (written.url,)
        self._count(ChunkInfo(written.rows, written.size, key))
