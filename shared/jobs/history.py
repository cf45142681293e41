"""The history of runs: for each run one JSON file with both summaries, and its page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from shared.singer.run_report import html_report
from shared.singer.run_summary import write_file

FORMAT = "singer-spark/job-run/1"
_RUNS = "[0-9]*Z.json"

Summary = Mapping[str, Any]


@dataclass(frozen=True)
class JobRun:
    """A run of a job.

    Attributes:
        job: Name of the job.
        environment: Its environment; None without one.
        started_at: When it began, as in run summaries.
        seconds: How long it took.
        exit_code: Its exit code.
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
        counts = (_sum(self.tap, "sent"), 0, _sum(self.target, "rejected"))
        return counts[0], sum((self.target or _NOTHING)["timeline"]["rows"]), counts[2]


_NOTHING: Summary = {"streams": {}, "timeline": {"rows": []}}


def _sum(summary: Summary | None, key: str) -> int:
    return sum(facts.get(key, 0) for facts in (summary or _NOTHING)["streams"].values())


def time_text(at: datetime) -> str:
    """Return a time in UTC as run summaries have it."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def add_run(folder: Path, run: JobRun, keep: int) -> Path:
    """Write a run and its page, and remove the oldest runs.

    Args:
        folder: Of the job.
        run: The run.
        keep: Runs to keep.

    Returns:
        The page; the JSON file if neither program has written a summary.

    Raises:
        DestinationError: A file cannot be written.
    """
    name = run.started_at.replace("-", "").replace(":", "")
    file = folder / f"{name}.json"
    ended = datetime.fromisoformat(run.started_at.replace("Z", "+00:00"))
    ended += timedelta(seconds=run.seconds)
    facts = {"format": FORMAT, **asdict(run), "ended_at": time_text(ended)}
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
    """Yield the runs in the history, the last one first; leave out files that are no run.

    Args:
        folder: The folder with all jobs.
        job: Only runs of this job; None for all.
        environment: Only runs in this environment; None for all.
    """
    files = sorted(folder.glob(f"*/{_RUNS}"), key=lambda file: file.name, reverse=True)
    for file in files:
        with suppress(OSError, ValueError, TypeError, KeyError):
            facts = json.loads(file.read_text(encoding="utf-8"))
            run = JobRun(**{name: facts[name] for name in JobRun.__dataclass_fields__})
            if job in {None, run.job} and environment in {None, run.environment}:
                yield file, run
