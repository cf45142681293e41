"""`singer-spark`: runs both programs as a pipe by a job file, and lists and shows such runs.

The programs are two processes that get every signal once and end together. Each run leaves one JSON
file with both summaries, and its page.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import FrameType
from typing import IO, Any

import click

import singer_spark
from shared.cli import CHOSEN_CODE, FILE, docs_command, run_main, with_options
from shared.errors import AlreadyRunningError, ClosedPipeError, DestinationError, SourceError, Where
from shared.settings.about import Program, version
from shared.settings.job_file import (
    SCHEMA,
    NamedJob,
    Settings,
    check_names,
    job_of,
    read_job_file,
)
from shared.settings.texts import printable, text_table
from shared.singer.platform import run_to_exit
from shared.singer.run_report import html_report
from shared.singer.run_summary import FORMAT, time_text, write_file
from shared.spark.running_java import spark_of_both_ends
from shared.storage.owned_folders import lock_name, without_locks_too

_log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
_GRACE_AFTER_FAILURE, _GRACE = 5.0, 60.0
"""Seconds that the tap has to end by itself after the target has failed, or ended well."""
_SECONDS_TO_END = 30.0


@dataclass(frozen=True)
class Command:
    """A program to start.

    Attributes:
        descriptors: What it inherits beside its standard streams.
    """

    args: Sequence[str]
    descriptors: Sequence[int] = ()


@dataclass(frozen=True)
class Ends:
    """How both programs ended, as a shell tells it: 128 and the signal if a signal killed one.

    Attributes:
        tap_stopped: The tap was ended because the target had ended before it.
    """

    tap: int
    target: int
    tap_stopped: bool = False

    def failed(self, good: int | None = None) -> str | None:
        """Return the program whose failure is that of the run; None if both ended well.

        It is the tap, as the failure of a target may follow from that of its tap; but the target,
        if the tap only could not write to it.

        Args:
            good: Another exit code of the tap that is no failure.
        """
        follows = self.tap_stopped or self.tap in {
            ClosedPipeError.exit_code,
            128 + signal.SIGPIPE,
        }
        if self.tap not in {0, good} and not (follows and self.target):
            return "tap"
        return "target" if self.target else None

    def code(self, good: int | None = None) -> int:
        """Return the exit code of the run."""
        return self.target if self.failed(good) == "target" else self.tap


def run_pipe(tap: Command, target: Command, folder: Path, environ: Mapping[str, str]) -> Ends:
    """Run both programs until both have ended.

    Each signal that this process gets goes to both, once: they are not in its process group, whose
    processes get the signals of a terminal by themselves. On Linux, both get SIGTERM if this
    process is killed.

    Args:
        tap: Its standard output is the standard input of the target.
        target: Its standard output is discarded.
    """
    received: list[int] = []
    passed_on: dict[subprocess.Popen[bytes], int] = {}

    def pass_on(process: subprocess.Popen[bytes]) -> None:
        """Send what the process lacks; a signal may interrupt this, too."""
        while passed_on[process] < len(received):
            passed_on[process] += 1
            process.send_signal(received[passed_on[process] - 1])

    def forward(number: int, _: FrameType | None) -> None:
        received.append(number)
        for process in list(passed_on):
            pass_on(process)

    def start(command: Command, stdin: int, stdout: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command.args,
            stdin=stdin,
            stdout=stdout,
            cwd=folder,
            env=environ,
            pass_fds=command.descriptors,
            start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509  # This process has no other thread.
        )
        passed_on[process] = 0
        pass_on(process)
        return process

    prepare = _ending_with(os.getpid())
    with _handled(forward):
        ends = os.pipe()
        try:
            first = start(tap, subprocess.DEVNULL, ends[1])
            last = start(target, ends[0], subprocess.DEVNULL)
        except BaseException:
            for process in passed_on:
                process.kill()
            raise
        finally:
            for end in ends:
                os.close(end)
        target_code = last.wait()
        stopped = _ended(first, _GRACE_AFTER_FAILURE if target_code else _GRACE)
        return Ends(_shell_code(first.returncode), _shell_code(target_code), stopped)


def _ended(process: subprocess.Popen[bytes], grace: float) -> bool:
    """Wait for a process, and end it if it takes too long; return whether that was needed."""
    for seconds, end in ((grace, process.terminate), (_SECONDS_TO_END, process.kill)):
        try:
            process.wait(seconds)
            return end == process.kill
        except subprocess.TimeoutExpired:
            end()
    process.wait()
    return True


def _shell_code(code: int) -> int:
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle signals, but for those that the caller has told this process to ignore (`nohup`)."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, old in before.items():
        if old is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _ending_with(parent: int) -> Callable[[], None] | None:
    """Return what lets a new process get SIGTERM when its parent ends; None if nothing does."""
    if sys.platform != "linux":
        return None
    control = ctypes.CDLL(None).prctl

    def prepare() -> None:
        control(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGTERM)

    return prepare


JOB_FORMAT = "singer-spark/job-run/1"
_RUNS = "[0-9]*Z.json"

Summary = Mapping[str, Any]


@dataclass(frozen=True)
class JobRun:
    """A run of a job.

    Attributes:
        environment: None without one.
        started_at: When it began, as in run summaries.
        error: What failed; None if nothing did.
        tap: The run summary of the tap; None if it could not write one.
        target: The run summary of the target, likewise.
    """

    job: str
    environment: str | None
    started_at: str
    seconds: float
    exit_code: int
    error: str | None
    tap: Summary | None
    target: Summary | None

    @property
    def rows(self) -> tuple[int, int, int]:
        """Records sent, rows loaded, records rejected."""
        loaded = sum((self.target or _NOTHING)["timeline"]["rows"])
        return _sum(self.tap, "sent"), loaded, _sum(self.target, "rejected")


_NOTHING: Summary = {"streams": {}, "timeline": {"rows": []}}


def _sum(summary: Summary | None, key: str) -> int:
    return sum(facts.get(key, 0) for facts in (summary or _NOTHING)["streams"].values())


def add_run(folder: Path, run: JobRun, keep: int) -> Path:
    """Write a run and its page, and remove the oldest runs.

    Returns:
        The page; the JSON file if neither program has written a summary.

    Raises:
        DestinationError: A file cannot be written.
    """
    name = run.started_at.replace("-", "").replace(":", "")
    file = folder / f"{name}.json"
    ended = datetime.fromisoformat(run.started_at.replace("Z", "+00:00"))
    ended += timedelta(seconds=run.seconds)
    facts = {"format": JOB_FORMAT, **asdict(run), "ended_at": time_text(ended)}
    write_file(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", str(file), "runs")
    page = file.with_suffix(".html")
    if summaries := [one for one in (run.tap, run.target) if one is not None]:
        title = f"{run.job} ({run.environment})" if run.environment else run.job
        text = html_report(*summaries, title=f"{title}, {run.started_at}")
        write_file(text, str(page), "runs")
    for old in sorted(folder.glob(_RUNS))[:-keep]:
        for path in (old, old.with_suffix(".html")):
            with suppress(OSError):
                path.unlink(missing_ok=True)
    return page if summaries else file


def runs_in(
    folder: Path, job: str | None, environment: str | None
) -> Iterator[tuple[Path, JobRun]]:
    """Yield the runs in the history, or those of a job or an environment, the last one first.

    Files that are no run are left out.
    """
    files = sorted(folder.glob(f"*/{_RUNS}"), key=lambda file: file.name, reverse=True)
    for file in files:
        with suppress(OSError, ValueError, TypeError, KeyError):
            facts = json.loads(file.read_text(encoding="utf-8"))
            run = JobRun(**{name: facts[name] for name in JobRun.__dataclass_fields__})
            if job in {None, run.job} and environment in {None, run.environment}:
                yield file, run


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
    """Run a job, add the run to its history, and return its exit code.

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
    with ExitStack() as locks:
        try:
            with without_locks_too():
                locks.callback(lock_name(job.history, job.key).release)
        except BlockingIOError:
            problem = AlreadyRunningError(
                f"another run of job {job.key} is at work", hint="run again when it has ended"
            )
            problem.exit_code = overlap_code or problem.exit_code
            raise problem from None
        yield


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
    args += ["--state", str(job.state), "--summary", str(_run_summary(job, side)), *more]
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


def _run_summary(job: NamedJob, side: str) -> Path:
    """Return the file of the last summary, which `--warn-drift` compares with."""
    return job.history / f"{side}.json"


def _record(job: NamedJob, ends: Ends, started: datetime, empty_code: int | None) -> JobRun:
    begin = time_text(started)
    summaries = {side: _read(_run_summary(job, side), begin) for side in ("tap", "target")}
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


PROGRAM = Program(
    name="singer-spark",
    description="Run tap-spark and target-spark as one job, with its state and history.",
    schema=SCHEMA,
    rules=(),
    capabilities=(),
)


_of_job = with_options(
    click.argument("file", required=False, type=FILE),
    click.argument("job", required=False),
    click.option("--env", "environment", metavar="NAME", help="Environment of the job file."),
)


@click.command(
    help=PROGRAM.description,
    epilog="`singer-spark run --help`: run a job. `singer-spark runs --help`: the runs so far. "
    "`singer-spark report --help`: one page of the summaries of both programs. "
    "`singer-spark docs --help`: pages of the documentation.",
)
@click.version_option(version(), message="singer-spark v%(version)s", help="Show the version.")
def command() -> None:
    """Show the help: every use is a command."""
    click.echo(click.get_current_context().get_help())


@click.command("run")
@_of_job
@click.option("--streams", multiple=True, metavar="PATTERN",
              help="Read only streams whose name matches; repeatable.")  # fmt: skip
@click.option("--full-refresh", multiple=True, metavar="PATTERN",
              help="Read streams again, without their bookmarks; repeatable.")  # fmt: skip
@click.option("--empty-code", type=CHOSEN_CODE, metavar="N",
              help="Exit code if nothing was to do, e.g. 99 (default: 0).")  # fmt: skip
@click.option("--overlap-code", type=CHOSEN_CODE, metavar="N",
              help="Exit code if another run is at work, e.g. 99 (default: 13).")  # fmt: skip
def run_command(
    *, file: str | None, job: str | None, environment: str | None, **options: Any
) -> int:
    """Run JOB of a job FILE: tap-spark | target-spark.

    FILE is job.yml or jobs.yml by default. JOB is needed if the file has several. The exit code is
    that of the tap, if it failed, else that of the target.
    """
    chosen = job_of(read_job_file(file), job, environment, os.environ)
    return run_job(chosen, JobOptions(**options))


@click.command("runs")
@_of_job
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, metavar="N",
              help="List at most so many runs.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object for each run.")
def runs_command(
    *, file: str | None, job: str | None, environment: str | None, limit: int, as_json: bool
) -> None:
    """List the runs of a job FILE, the last one first; only those of JOB, if given."""
    jobs = read_job_file(file)
    runs = runs_in(jobs.runs, job, environment)
    rows = [_facts(path, run) for (path, run), _ in zip(runs, range(limit), strict=False)]
    if not rows:
        check_names(jobs, job, environment)
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
        return
    head = ("started", "job", "end", "sent", "loaded", "rejected", "seconds", "record")
    cells = [head, *(_shown(row) for row in rows)]
    for line in text_table(cells, None):
        click.echo(line)


def _facts(path: Path, run: JobRun) -> dict[str, Any]:
    sent, loaded, rejected = run.rows
    return {
        "started_at": run.started_at,
        "job": run.job,
        "environment": run.environment,
        "exit_code": run.exit_code,
        "error": run.error,
        "sent": sent,
        "loaded": loaded,
        "rejected": rejected,
        "seconds": run.seconds,
        "record": os.path.relpath(path),
    }


def _shown(row: dict[str, Any]) -> tuple[str, ...]:
    name = row["job"] if row["environment"] is None else f"{row['job']}.{row['environment']}"
    end = "ok" if row["error"] is None else "failed"
    counts = (f"{row[key]:,}" for key in ("sent", "loaded", "rejected"))
    code = f"{end} {row['exit_code']}" if row["exit_code"] else end
    time = row["started_at"][:19].replace("T", " ")
    return time, printable(name), code, *counts, f"{row['seconds']:,.1f}", printable(row["record"])


@click.command("report")
@click.argument("summaries", nargs=-1, required=True, type=FILE, metavar="SUMMARY...")
@click.option("-o", "--output", required=True, type=FILE, metavar="FILE", help="The HTML page.")
def report_command(*, summaries: tuple[str, ...], output: str) -> None:
    """Write one HTML page of the --summary files of a tap and a target."""
    write_file(html_report(*map(_summary, summaries)), output, "--output")


def _summary(path: str) -> dict[str, Any]:
    try:
        summary = json.loads(Path(path).read_text(encoding="utf-8"))
        if summary["format"] == FORMAT:
            html_report(summary)  # Alone, too, so that the error of a part names its file.
            return dict(summary)
    except OSError as error:
        raise SourceError(f"cannot be read ({error.strerror})", where=Where(file=path)) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise SourceError("is no run summary", where=Where(file=path), hint="see --summary")


COMMANDS = {str(one.name): one for one in (run_command, runs_command, report_command, docs_command)}


def main(args: Sequence[str] | None = None) -> int:
    """Run singer-spark with arguments, or those of the process; return its exit code."""
    return run_main(PROGRAM, command, args, list(COMMANDS.values()))


if __name__ == "__main__":
    sys.exit(run_to_exit(main))
