"""Runs that only show: `--dry-run`, `--test`, and the first rows as tables (`preview`)."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from tempfile import TemporaryFile
from typing import IO, Any

from shared.engine.engine import engine_of
from shared.errors import (
    RecordError,
    SourceError,
)
from shared.settings.texts import text_table
from shared.singer.stdout import MessageOutput
from shared.storage.urls import local_path
from tap_spark.config import TapConfig
from tap_spark.plan.run_options import (
    EVERYTHING,
    CatalogRules,
    RunOptions,
    refreshed_state,
)
from tap_spark.send.record_writer import (
    write_records,
)
from tap_spark.send.run import Run, reading
from tap_spark.send.slices import UNSURE, why_spark, written_on_driver
from tap_spark.send.stream_outputs import Output
from tap_spark.send.sync import (
    Catalog,
    State,
    explained,
    failures_of,
    planned,
    prepared,
    run_sync,
    write_schema,
)
from tap_spark.sources.files.driver_files import DriverFiles
from tap_spark.sources.files.paths import list_files
from tap_spark.sources.files.resumable_files import new_bytes
from tap_spark.sources.frame_helpers import with_text
from tap_spark.sources.source import (
    DriverSource,
    source_for,
)
from tap_spark.sources.source_failures import SourceErrors
from tap_spark.state.stream_plans import (
    FILES,
    Resume,
    RowForm,
    StreamPlan,
)

_logger = logging.getLogger(__name__)


def dry_run(
    config: TapConfig,
    catalog: Catalog | None,
    state: State | None,
    options: RunOptions = EVERYTHING,
) -> None:
    """Log what `run_sync` would read of each stream; start Spark only if the plan needs it.

    Raises:
        SourceError: A source, the catalog or the state is wrong; names every stream.
        PartialRunError: The same, if the settings continue with other streams.
    """
    failures = failures_of(config)
    errors = SourceErrors(None if failures is None else failures.report)
    engine = engine_of(config, config.spark)
    try:
        state = refreshed_state(state, options) if state else {}
        _, plans, _ = planned(engine, config, catalog, state, failures, options)
        for plan in plans:
            with errors.of(plan.tap_stream_id):
                _logger.info("%s", plan_line(plan, _files_of(plan)))
    finally:
        engine.stop()
    if failures is not None:
        failures.raise_if_any(plan.tap_stream_id for plan in plans)
    errors.raise_if_any()


def _files_of(plan: StreamPlan) -> str | None:
    """Describe a stream's files; None if it has none, or only Spark may have access to them."""
    source = source_for(plan.config)
    if not isinstance(source, DriverFiles):
        return None
    resumes = plan.resume is Resume.FILE_POSITION
    if not resumes and any(local_path(path) is None for path in source.paths):
        return None
    with reading(plan):
        files = list_files(tuple(source.paths))
    new = new_bytes(plan, files) if resumes else None
    return files_text(len(files), sum(file.size for file in files), new)


SHOWN_COLUMNS = 10


def files_text(count: int, size: int, new: int | None = None) -> str:
    """Describe files by their number and bytes; `new` are bytes to read, if not all of them are."""
    more = "" if new is None else f", {_size(new)} of it new"
    return f"{count} file(s), {_size(size)}{more}"


def plan_line(plan: StreamPlan, files: str | None = None) -> str:
    """Describe what a run would read of a stream, with its files as `files_text` describes them."""
    names = ", ".join(plan.columns[:SHOWN_COLUMNS])
    more = ", ..." if len(plan.columns) > SHOWN_COLUMNS else ""
    columns = f"{len(plan.columns)} column(s): {names}{more}"
    parts = [f"{plan.method.value} {_range(plan)}", columns]
    parts += ["then the keys of every row"] if plan.sends_keys else []
    return f"stream '{plan.stream}': " + "; ".join(parts + ([files] if files else []))


def _range(plan: StreamPlan) -> str:
    if plan.resume is Resume.NOTHING:
        return "of every row"
    if plan.resume is Resume.FILE_POSITION:
        count = len(plan.bookmark.get(FILES) or ())
        after = f"after {count} known file(s)" if count else "from the start"
        return f"by file and line, {after}"
    if plan.resume is Resume.LOG_POSITION:
        return f"after {json.dumps(plan.bookmark)}" if plan.bookmark else "from the start"
    start = "the start" if plan.start_value is None else json.dumps(plan.start_value)
    end = "" if plan.end_value is None else f" to below {json.dumps(plan.end_value)}"
    return f"by '{plan.replication_key}' from {start}{end}"


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


def run_test(
    config: TapConfig,
    mode: str,
    catalog: Catalog | None,
    output: MessageOutput,
    options: RunOptions = EVERYTHING,
) -> None:
    """Test every selected stream; for other arguments see `run_sync`.

    Args:
        mode: `schema` writes SCHEMA messages; `all` also at most one RECORD per stream.

    Raises:
        SourceError: Naming every stream that failed.
    """
    failed: list[str] = []
    with ExitStack() as cleaning:
        run, plans, _ = prepared(config, catalog, {}, output, cleaning, None, options)
        for plan in plans:
            try:
                with explained(plan.stream):
                    _try_stream(run, plan, wants_record=mode != "schema")
            except (SourceError, RecordError) as error:
                _logger.error("test failed: %s", error)
                failed.append(plan.stream)
            else:
                _logger.info("test passed: stream '%s'", plan.stream)
    if failed:
        raise SourceError(f"the test failed for {', '.join(map(repr, failed))}")


def _try_stream(run: Run, plan: StreamPlan, *, wants_record: bool) -> None:
    """Write the SCHEMA of each output of a stream and, if wanted, its first RECORD."""
    for output in run.outputs.of(plan):
        write_schema(run, output.plan)
        if not wants_record or _tried_on_driver(replace(run, batch=None, limit=1), plan, output):
            continue
        read_plan = run.outputs.read_plan(plan)
        spark = run.engine.session(why_spark(run, plan) or UNSURE)
        for slice_ in source_for(plan.config).slices(spark, read_plan):
            mapped = output.mapped_slice(with_text(read_plan, slice_), keep_filtered=False)
            one = replace(mapped, frame=mapped.frame.limit(1))
            rows = write_records(
                run.spark, output.plan, one, run.output, spool=run.spool(), on_chunk=lambda _: None
            )
            if rows:
                break


def _tried_on_driver(run: Run, plan: StreamPlan, output: Output) -> bool:
    """Write the first RECORD without Spark; return False if only Spark can read it."""
    source = source_for(plan.config)
    if why_spark(run, plan) or not isinstance(source, DriverSource):
        return False
    with reading(plan):
        read_plan = run.outputs.read_plan(plan)
        rows = source.read_on_driver(read_plan, RowForm.RECORDS, run.engine)
    return rows is not None and written_on_driver(run, output, rows, None, lambda _: None)


_WIDEST = 32
_SIDE_BY_SIDE = 5
"""Rows beside each other, if each column has a line."""

Row = Mapping[str, Any]


def preview(
    config: TapConfig,
    rules: CatalogRules,
    rows: int,
    catalog: Mapping[str, Any] | None = None,
    width: int | None = None,
) -> Iterator[str]:
    """Yield the lines of a table for each stream.

    Args:
        config: The settings; what they say about BATCH has no effect.
        catalog: A catalog below the rules.
        width: Most characters in a line; None for any number.

    Raises:
        SettingsError: A rule matches nothing.
        SourceError: A stream cannot be read.
        SparkStartError: A stream needs Spark, which cannot be started.
    """
    config = replace(config, batch=None, on_stream_failure="stop")
    with TemporaryFile() as file:
        output = MessageOutput(os.dup(file.fileno()))
        try:
            run_sync(config, catalog, None, output, RunOptions(limit=rows, rules=rules))
        finally:
            output.close()
        file.seek(0)
        streams = _streams(file)
    for name, (columns, first_rows) in streams.items():
        yield f"{name}: {'no rows' if not first_rows else f'first {len(first_rows)} row(s)'}"
        yield from _table(columns, first_rows, width)
        yield ""


def _streams(lines: IO[bytes]) -> dict[str, tuple[list[str], list[Row]]]:
    streams: dict[str, tuple[list[str], list[Row]]] = {}
    for message in map(json.loads, lines):
        if message["type"] == "SCHEMA":
            streams.setdefault(message["stream"], (list(message["schema"]["properties"]), []))
        elif message["type"] == "RECORD":
            streams[message["stream"]][1].append(message["record"])
    return streams


def _table(columns: Sequence[str], rows: Sequence[Row], width: int | None) -> Iterator[str]:
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    table = [columns, *cells]
    natural = [min(_WIDEST, max(map(len, column))) for column in zip(*table, strict=True)]
    if width is None or sum(natural) + 2 * len(natural) <= width:
        yield from text_table(table, width, range(len(columns)))
        return
    turned = zip(*cells, strict=True) if cells else ([] for _ in columns)
    values = [iter(column) for column in turned]
    for start in range(0, max(1, len(rows)), _SIDE_BY_SIDE):
        numbers = [str(start + n + 1) for n in range(min(_SIDE_BY_SIDE, len(rows) - start))]
        parts = [list(islice(column, _SIDE_BY_SIDE)) for column in values]
        lines = [
            ["", *numbers],
            *([name, *part] for name, part in zip(columns, parts, strict=True)),
        ]
        yield from text_table(lines, width, range(len(numbers) + 1))


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
