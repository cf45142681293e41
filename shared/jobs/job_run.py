"""One run of a job: settings by descriptors, STATE by file, both summaries as one record."""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

import singer_spark
from shared.errors import AlreadyRunningError, DestinationError, Where
from shared.jobs.history import JobRun, add_run, time_text
from shared.jobs.job_file import NamedJob, Settings
from shared.jobs.pipe import Command, Ends, run_pipe
from shared.spark.both_ends import spark_of_both_ends
from shared.storage.owned_folders import NO_LOCKS, lock_name

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JobOptions:
    """Options of one run, which both programs know.

    Attributes:
        streams: Patterns of streams to read; empty for all.
        full_refresh: Patterns of streams to read without their bookmarks.
        empty_code: Exit code if nothing was to do.
        overlap_code: Exit code if another run is at work.
    """

    streams: Sequence[str] = ()
    full_refresh: Sequence[str] = ()
    empty_code: int | None = None
    overlap_code: int | None = None


def run_job(job: NamedJob, options: JobOptions) -> int:
    """Run a job, and add the run to its history.

    Returns:
        The exit code of the run.

    Raises:
        AlreadyRunningError: Another run of the job is at work.
        DestinationError: A folder or the record of the run cannot be written.
    """
    for folder in (job.state.parent, job.history, *_metrics_folder(job)):
        _make(folder)
    with _only_run(job, options.overlap_code), ExitStack() as files:
        _log.info("job %s: starts; STATE is kept in %s", job.key, job.state)
        started = datetime.now(timezone.utc)
        commands = (_tap(job, options, files), _target(job, options, files))
        environ = {**job.variables, **files.enter_context(spark_of_both_ends())}
        ends = run_pipe(*commands, job.file.folder, environ)
        run = _record(job, ends, started, options.empty_code)
        page = add_run(job.history, run, job.file.settings["keep_runs"])
    if run.error is None:
        _log.info("job %s: ended well (exit code %d); see %s", job.key, run.exit_code, page)
    else:
        text = "job %s: failed (exit code %d): %s; see %s"
        _log.error(text, job.key, run.exit_code, run.error, page)
    return run.exit_code


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DestinationError(
            f"cannot be made ({error.strerror})", where=Where(file=str(folder)), lasts=True
        ) from error


@contextmanager
def _only_run(job: NamedJob, overlap_code: int | None) -> Iterator[None]:
    try:
        lock = lock_name(job.history, job.key)
    except BlockingIOError:
        problem = AlreadyRunningError(
            f"another run of job {job.key} is at work", hint="run again when it has ended"
        )
        problem.exit_code = overlap_code or problem.exit_code
        raise problem from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        yield
        return
    try:
        yield
    finally:
        lock.release()


def _tap(job: NamedJob, options: JobOptions, files: ExitStack) -> Command:
    more = [] if job.catalog is None else ["--catalog", job.catalog]
    more += [word for pattern in options.streams for word in ("--streams", pattern)]
    more += [word for pattern in options.full_refresh for word in ("--full-refresh", pattern)]
    if options.empty_code is not None:
        more += ["--empty-code", str(options.empty_code)]
    return _command("tap", job, job.tap, more, files)


def _target(job: NamedJob, options: JobOptions, files: ExitStack) -> Command:
    code = options.overlap_code
    more = [] if code is None else ["--overlap-code", str(code)]
    return _command("target", job, job.target, more, files)


def _command(
    side: str, job: NamedJob, settings: Sequence[Settings], more: Sequence[str], files: ExitStack
) -> Command:
    """Return the command line of a program; nothing secret is in it."""
    inherited = [files.enter_context(_nameless(one)) for one in settings]
    args = [sys.executable, singer_spark.__file__, f"{side}-spark"]
    args += [word for file in inherited for word in ("--config", f"/dev/fd/{file.fileno()}")]
    args += ["--state", str(job.state), "--summary", str(_summary(job, side)), *more]
    if job.file.settings["warn_drift"]:
        args += ["--warn-drift"]
    for folder in _metrics_folder(job):
        args += ["--metrics-file", str(folder / f"{job.key}.{side}.prom")]
    return Command(args, [file.fileno() for file in inherited])


def _metrics_folder(job: NamedJob) -> list[Path]:
    return [job.file.inside("metrics")] if "metrics" in job.file.settings else []


@contextmanager
def _nameless(settings: Settings) -> Iterator[IO[bytes]]:
    """Yield a file with settings that has no name, so that only its heirs can read it."""
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(settings).encode())
        file.flush()
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        yield file


def _summary(job: NamedJob, side: str) -> Path:
    """Return the file of the last summary, which `--warn-drift` compares with."""
    return job.history / f"{side}.json"


def _record(job: NamedJob, ends: Ends, started: datetime, empty_code: int | None) -> JobRun:
    begin = time_text(started)
    summaries = {side: _read(_summary(job, side), begin) for side in ("tap", "target")}
    failed = ends.failed(empty_code)
    error = None
    if failed is not None:
        reason = (summaries[failed] or {}).get("error")
        error = f"{failed}-spark: {reason or 'it wrote no summary'}"
    seconds = (datetime.now(timezone.utc) - started).total_seconds()
    code = ends.code(empty_code)
    return JobRun(job.name, job.environment, begin, seconds, code, error, **summaries)


def _read(path: Path, since: str) -> Mapping[str, Any] | None:
    """Return the summary of this run; None if the program could not write one."""
    try:
        summary: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return summary if summary["started_at"] >= since else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
