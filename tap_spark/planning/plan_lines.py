"""Plans of streams as lines for people."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tap_spark.state.stream_plans import Resume, StreamPlan

SHOWN_COLUMNS = 10


@dataclass(frozen=True)
class FileFacts:
    """The files of a stream, as far as they are known without a look into them.

    Attributes:
        count: Number of files.
        size: Their bytes.
        new: The bytes that a run has not read yet; None if it reads all of them.
    """

    count: int
    size: int
    new: int | None = None

    def __str__(self) -> str:
        new = "" if self.new is None else f", {_size(self.new)} of it new"
        return f"{self.count} file(s), {_size(self.size)}{new}"


def plan_line(plan: StreamPlan, files: FileFacts | None = None) -> str:
    """Describe what a run would read of a stream.

    Args:
        plan: The stream's plan.
        files: Its files, if it reads files and they are known.
    """
    names = ", ".join(plan.columns[:SHOWN_COLUMNS])
    more = ", ..." if len(plan.columns) > SHOWN_COLUMNS else ""
    columns = f"{len(plan.columns)} column(s): {names}{more}"
    parts = [f"{plan.method.value} {_range(plan)}", columns]
    parts += ["then the keys of every row"] if plan.sends_keys else []
    return f"stream '{plan.stream}': " + "; ".join(parts + ([str(files)] if files else []))


def _range(plan: StreamPlan) -> str:
    if plan.resume is Resume.NOTHING:
        return "of every row"
    if plan.resume is Resume.FILE_POSITION:
        known = len(plan.bookmark.get("files") or ())
        return "by file and line, " + (
            f"after {known} known file(s)" if known else "from the start"
        )
    if plan.resume is Resume.LOG_POSITION:
        return f"after {json.dumps(plan.bookmark)}" if plan.bookmark else "from the start"
    start = "the start" if plan.start_value is None else json.dumps(plan.start_value)
    end = "" if plan.end_value is None else f" to below {json.dumps(plan.end_value)}"
    return f"by '{plan.replication_key}' from {start}{end}"


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
