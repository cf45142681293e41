"""The rows of one stream, read by threads if they may, else by Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from shared.encodings.encoding_format import FORMATS, imported
from shared.engine.engine import THREADS
from shared.settings.batch_settings import BatchConfig
from shared.singer.messages import record_head, record_tail
from shared.singer.metrics import BATCH_COUNT, Counter
from tap_spark.send.line_output import ChunkInfo, OnChunk, StateWriter, spooling
from tap_spark.send.run import Run, files_of, reading, settle
from tap_spark.send.stream_outputs import Output, block_map, mapped_blocks
from tap_spark.sources.formats import source_format
from tap_spark.sources.source import DriverSource, Source
from tap_spark.state.bookmarks import advance, advance_positions
from tap_spark.state.stream_plans import (
    MOST_THREADS,
    DriverRows,
    Resume,
    RowForm,
    StreamPlan,
)
from tap_spark.stream_config import StreamConfig

UNSURE = "what the files hold, which Spark may read in another way"
HELD_BYTES = 64 * 1024 * 1024
"""Bound of memory: bytes of records that wait there; more wait in a temporary file."""
_SCHEMA = pa.schema([("record", pa.string())])


def write_slices(
    run: Run,
    plan: StreamPlan,
    source: Source | DriverSource,
    state_writer: StateWriter,
    meter: OnChunk,
) -> int | None:
    """Write the rows that a stream has to read now; `meter` counts them.

    Returns:
        The rows that the source tells for all that was read; None if it does not.
    """
    why = why_spark(run, plan)
    if isinstance(source, DriverSource):
        batch = run.batch_of(plan.stream)
        form = None if why else RowForm.RECORDS if batch is None else RowForm.BLOCKS
        with reading(plan):
            rows = source.read_on_driver(run.outputs.read_plan(plan), form, run.engine)
        if rows is not None and written_on_driver(run, run.outputs.of(plan)[0], rows, batch, meter):
            if rows.bookmark is not None or rows.newest is not None:
                _advance(plan, rows, state_writer)
            return None
    from tap_spark.send.spark_slices import write_by_spark  # noqa: PLC0415

    return write_by_spark(run, plan, source, state_writer, meter, why or UNSURE)


def _advance(plan: StreamPlan, rows: DriverRows, state_writer: StateWriter) -> None:
    """Change the state after all rows that the driver has read."""
    if rows.newest is not None:
        newest = rows.newest()
        state_writer.update(lambda state: advance(state, plan, newest, ordered=False))
    elif rows.blocks is not None:
        settle(plan, rows.bookmark, state_writer)
    else:
        state_writer.update(partial(advance_positions, plan, rows.bookmark or {}))


def why_spark(run: Run, plan: StreamPlan) -> str:
    """Return why only Spark can read a stream, as far as its plan tells; empty if threads may."""
    outputs, batch = run.outputs.of(plan), run.batch_of(plan.stream)
    form, has_key = source_format(plan.config.format), plan.resume is Resume.REPLICATION_KEY
    takes_keys = form is not None and form.keys_on_driver
    why_source = ""
    if form is not None and form.why_spark is not None:
        ask = cast("Callable[[StreamConfig], str]", imported(form.why_spark))
        why_source = ask(plan.config)
    reasons = (
        (form is None or not form.on_driver, f"format {plan.config.format}"),
        (bool(why_source), why_source),
        (not run.engine.may_read, "a Spark that reads by other rules"),
        (has_key and not takes_keys, "a replication key"),
        (plan.resume is Resume.LOG_POSITION, "a log of changes"),
        (len(outputs) > 1, "several outputs of a stream"),
        (plan.sends_keys, "the keys of all rows"),
    )
    why = next((reason for applies, reason in reasons if applies), "")
    if why:
        return why
    if batch is not None:
        return _why_files(run, outputs[0], batch)
    return "" if outputs[0].transform is None else "stream maps or flattening of RECORD messages"


def _why_files(run: Run, output: Output, batch: BatchConfig) -> str:
    if FORMATS[batch.format].rows == "lines":
        return f"batch files of {batch.format}"
    # Files with an exact number of rows take a second pass, over the rows left over.
    if batch.batch_size is not None or run.limit is not None:
        return "batch files with an exact number of rows"
    if output.transform is None:
        return ""
    return "" if block_map(output) is not None else "a stream map that is not computed over Arrow"


def _checked(run: Run, records: Iterable[pa.StringArray | None]) -> Iterator[pa.StringArray]:
    """Yield records; raise SettingsError once Spark, which never starts, must read the stream."""
    for texts in records:
        if texts is None:
            run.engine.session(UNSURE)
        else:
            yield texts


@contextmanager
def held_records(
    records: Iterable[pa.StringArray | None], root: str | None
) -> Iterator[Iterator[pa.StringArray] | None]:
    """Read all records before the first one is sent: none is sent twice.

    Args:
        records: The JSON text of each record, in arrays; None if Spark has to read the stream.
        root: Folder of the spool; the system's temporary folder if None.

    Yields:
        The records; None if Spark has to read them.

    Raises:
        DestinationError: The folder cannot be written.
    """
    if root is not None:
        # Few records stay in memory: if there can be no folder, only more of them fail.
        with suppress(OSError):
            Path(root).mkdir(parents=True, exist_ok=True)
    file = tempfile.SpooledTemporaryFile(HELD_BYTES, dir=root)  # noqa: SIM115
    try:
        writer = pa.ipc.new_stream(file, _SCHEMA)
        for texts in records:
            if texts is None:
                yield None
                return
            with spooling(root):
                writer.write_batch(pa.record_batch([texts], schema=_SCHEMA))
        with spooling(root):
            writer.close()
            file.seek(0)
        yield (batch.column(0) for batch in pa.ipc.open_stream(file))
    finally:
        # Closing tries once more to write what a full disk has refused.
        with suppress(OSError):
            file.close()


def write_rows(run: Run, plan: StreamPlan, rows: DriverRows, meter: OnChunk) -> None:
    """Write rows that the driver has read as RECORD messages, up to the limit of the run."""
    head, tail = record_head(plan.stream), record_tail(rows.read_at, plan.version)
    left = run.limit
    for records in rows.records or ():
        lines = pc.binary_join_element_wise(head, records[:left], tail, "")
        _, offsets, data = lines.buffers()
        if len(lines):
            ends = memoryview(offsets).cast("i")
            text = memoryview(data)[ends[lines.offset] : ends[lines.offset + len(lines)]]
            run.output.write(text)
            meter(ChunkInfo(len(lines), len(text)))
        if left is not None and (left := left - len(lines)) <= 0:
            return


def written_on_driver(
    run: Run,
    output: Output,
    rows: DriverRows,
    batch: BatchConfig | None,
    meter: OnChunk,
) -> bool:
    """Write rows that the driver reads; return False if Spark must read them after all."""
    if rows.blocks is None or batch is None:
        records = rows.records or ()
        if run.engine.choice == THREADS or rows.is_sure:
            sure = replace(rows, records=_checked(run, records))
            write_rows(run, output.plan, sure, meter)
            return True
        # Those that are not sure wait until Spark need not read them.
        with held_records(records, run.spool_root) as held:
            if held is None:
                return False
            write_rows(run, output.plan, replace(rows, records=held), meter)
        return True
    blocks = rows.blocks if output.transform is None else mapped_blocks(output, rows.blocks)
    if blocks is None:
        return False
    with (
        Counter(BATCH_COUNT, output.plan.stream) as counter,
        files_of(run, batch, output.plan) as files,
    ):

        def on_chunk(chunk: ChunkInfo) -> None:
            counter.increment()
            meter(chunk)

        threads = min(run.engine.threads.count, MOST_THREADS)
        return files.write_blocks(blocks, threads, on_chunk)
