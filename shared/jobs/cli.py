"""Command line of singer-spark."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from shared.cli import CHOSEN_CODE, FILE, docs_command, run_main
from shared.errors import SourceError, Where
from shared.jobs.history import JobRun, runs_in
from shared.jobs.job_file import SCHEMA, job_of, read_job_file
from shared.jobs.job_run import JobOptions, run_job
from shared.settings.about import Program, version
from shared.settings.texts import printable, text_table
from shared.singer.platform import run_to_exit
from shared.singer.run_report import html_report
from shared.singer.run_summary import FORMAT, write_file

PROGRAM = Program(
    name="singer-spark",
    description="Run tap-spark and target-spark as one job, with its state and history.",
    schema=SCHEMA,
    rules=(),
    capabilities=(),
)


def _of_job(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--env", "environment", metavar="NAME", help="Environment of the job file."),
        click.argument("job", required=False),
        click.argument("file", required=False, type=FILE),
    ):
        command = option(command)
    return command


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
    runs = runs_in(read_job_file(file).runs, job, environment)
    rows = [_facts(path, run) for (path, run), _ in zip(runs, range(limit), strict=False)]
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
            return dict(summary)
    except OSError as error:
        raise SourceError(f"cannot be read ({error.strerror})", where=Where(file=path)) from None
    except (ValueError, KeyError, TypeError):
        pass
    raise SourceError("is no run summary", where=Where(file=path), hint="see --summary")


COMMANDS = {str(one.name): one for one in (run_command, runs_command, report_command, docs_command)}


def main(args: Sequence[str] | None = None) -> int:
    """Run singer-spark.

    Args:
        args: Arguments; None for those of the process.

    Returns:
        The exit code (see docs/jobs.md).
    """
    return run_main(PROGRAM, command, args, list(COMMANDS.values()))


if __name__ == "__main__":
    sys.exit(run_to_exit(main))
