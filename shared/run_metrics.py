"""The metrics of a run: its summary in Prometheus's text format, for node exporter. Pure.

`docs/observability.md` documents the metrics.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

_LAST_SUCCESS = "singer_run_last_success_timestamp_seconds"
_RUN = {
    "singer_run_info": "Always 1; a label has the version of the program.",
    "singer_run_start_timestamp_seconds": "When the last run started.",
    "singer_run_end_timestamp_seconds": "When the last run ended.",
    "singer_run_duration_seconds": "Time that the last run took.",
    _LAST_SUCCESS: "When the last run without an error ended.",
    "singer_run_success": "1 if the last run ended without an error, else 0.",
    "singer_run_exit_code": "Exit code of the last run.",
}
_COUNTS = {
    "state_messages": ("singer_run_state_messages", "STATE messages that the target wrote."),
    "rejected_lines": ("singer_run_rejected_lines", "Lines that are not messages."),
    "drift": ("singer_run_drift", "Differences to the run before, by --warn-drift."),
}
_STREAM = {
    "sent": ("singer_stream_sent_records", "Records that the tap sent."),
    "source_rows": ("singer_stream_source_rows", "Rows that the source said it had."),
    "batch_files": ("singer_stream_batch_files", "Batch files that the tap sent."),
    "bytes": ("singer_stream_bytes", "Bytes that were sent (tap) or written (target)."),
    "received": ("singer_stream_received_records", "Durable records that the target received."),
    "rejected": ("singer_stream_rejected_records", "Records that the target rejected."),
    "replayed": ("singer_stream_replayed_records", "Records that an earlier run had loaded."),
    "uncovered": ("singer_stream_uncovered_records", "Records after the last STATE."),
    "deleted": ("singer_stream_deleted_rows", "Rows that the source no longer has."),
    "flushes": ("singer_stream_flushes", "Flushes of the target."),
    "flush_seconds": ("singer_stream_flush_seconds", "Time of all flushes."),
    "retries": ("singer_stream_retries", "Conversions and commits that were tried again."),
    "error": ("singer_stream_failed", "1 if the stream failed and others went on, else 0."),
}
_TABLE = {
    "committed": ("singer_table_committed_rows", "Rows that were committed to a table."),
}
METRICS: Mapping[str, str] = _RUN | dict(
    name_and_help for facts in (_COUNTS, _STREAM, _TABLE) for name_and_help in facts.values()
)
"""Name → help of every metric. Collectors want one help for a name, whichever program wrote it."""

_Sample = tuple[str, Mapping[str, str], float]


def metrics_text(summary: Mapping[str, Any], pipeline: str, last_success: float | None) -> str:
    """Return the metrics of a run; all are gauges.

    Args:
        summary: A run summary (`docs/observability.md`).
        pipeline: The label that tells the files of one machine from each other.
        last_success: End of the last good run before this one, in seconds since the epoch; None for
            unknown.
    """
    labels = {"pipeline": pipeline, "program": summary["program"]}
    lines: dict[str, list[str]] = defaultdict(list)
    for name, more, value in _samples(summary, last_success):
        shown = ",".join(
            f'{label}="{_escaped(text)}"' for label, text in {**labels, **more}.items()
        )
        lines[name].append(f"{name}{{{shown}}} {value}\n")
    return "".join(
        f"# HELP {name} {METRICS[name]}\n# TYPE {name} gauge\n{''.join(lines[name])}"
        for name in METRICS
        if name in lines
    )


def last_success_in(text: str) -> float | None:
    """Return when the last good run ended, by its metrics; None for unknown."""
    value = re.search(rf"^{_LAST_SUCCESS}\{{.*\}} (\d+(?:\.\d+)?)$", text, re.MULTILINE)
    return None if value is None else float(value[1])


def _samples(summary: Mapping[str, Any], last_success: float | None) -> Iterator[_Sample]:
    ended_at, is_good = _seconds(summary["ended_at"]), summary["error"] is None
    if is_good and not summary.get("dry_run"):
        last_success = ended_at
    yield "singer_run_info", {"version": summary["program_version"]}, 1
    yield "singer_run_start_timestamp_seconds", {}, _seconds(summary["started_at"])
    yield "singer_run_end_timestamp_seconds", {}, ended_at
    yield "singer_run_duration_seconds", {}, summary["seconds"]
    if last_success is not None:
        yield _LAST_SUCCESS, {}, last_success
    yield "singer_run_success", {}, int(is_good)
    yield "singer_run_exit_code", {}, summary["exit_code"]
    yield from _counts(_COUNTS, summary, {})
    for stream, facts in summary["streams"].items():
        yield from _counts(_STREAM, {"error": None, **facts}, {"stream": stream})
        for table, counts in facts.get("tables", {}).items():
            yield from _counts(_TABLE, counts, {"stream": stream, "table": table})


def _counts(
    metrics: Mapping[str, tuple[str, str]], facts: Mapping[str, Any], labels: Mapping[str, str]
) -> Iterator[_Sample]:
    for key, (name, _) in metrics.items():
        if key in facts:
            yield name, labels, _number(facts[key])


def _number(fact: Any) -> float:
    if isinstance(fact, list):
        return len(fact)
    return fact if isinstance(fact, int | float) else int(fact is not None)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()
