"""The summary of a run: what each stream moved, how it ended, what differs from the last one.

`docs/observability.md` documents the file; `FORMAT` is its version. Observers that the settings or
the environment ask for get it, too.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from shared.errors import DestinationError, SettingsError, SingerSparkError, Where, error_text
from shared.settings.about import version
from shared.settings.checking import check_folder
from shared.settings.kinds import TEXT, Schema, setting
from shared.settings.texts import without_secrets_inside
from shared.singer.datasets import Dataset, RunObserver
from shared.singer.logs import CONSOLE, mark_run
from shared.singer.run_report import html_report, last_success_in, metrics_text, run_lines
from shared.singer.signals import documented_error

_log = logging.getLogger(__name__)

FACTOR, LEAST_ROWS = 2.0, 100
"""Rows of a table differ much by this factor, and by so many rows."""
NULL_SHARE = 0.1
"""Difference of the share of nulls of a column that is much."""
MAGNITUDE = 10.0
"""Numbers of a column differ much if their greatest magnitude does by this factor."""

Baseline = Mapping[str, Any]


def baseline_of(summary: Mapping[str, Any]) -> Baseline | None:
    """Return what later runs are compared with: of a run that ended well, or of the one before."""
    if summary.get("exit_code") != 0 or summary.get("dry_run"):
        baseline = summary.get("baseline")
        return baseline if isinstance(baseline, Mapping) else None
    return {
        "started_at": summary["started_at"],
        "rows": dict(_rows(summary["streams"])),
        "columns": summary["columns"],
    }


def drift(last: Baseline, now: Baseline) -> list[str]:
    """Return what differs much, one line for each difference."""
    return [*_row_drift(last["rows"], now["rows"]), *_column_drift(last, now)]


def _rows(streams: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, int]]:
    for name, facts in streams.items():
        if "tables" not in facts:
            yield name, facts.get("sent", 0)
        for table, counts in facts.get("tables", {}).items():
            yield table, counts.get("committed", 0)


def _row_drift(last: Mapping[str, int], now: Mapping[str, int]) -> Iterator[str]:
    for name, before in last.items():
        rows = now.get(name, 0)
        least, most = sorted((before, rows))
        if most - least >= LEAST_ROWS and most >= FACTOR * least:
            yield f"stream '{name}': {rows:,} rows, {before:,} in the last run"
        elif before and not rows:
            yield f"stream '{name}': no rows, {before:,} in the last run"


def _column_drift(last: Baseline, now: Baseline) -> Iterator[str]:
    for name, columns in last["columns"].items():
        newer = now["columns"].get(name)
        if not newer or not now["rows"].get(name):
            continue
        for column, facts in columns.items():
            where = f"stream '{name}', column '{column}'"
            if column not in newer:
                yield f"{where}: missing, the last run had it"
                continue
            before, share = facts["null_share"], newer[column]["null_share"]
            if abs(share - before) >= NULL_SHARE:
                yield f"{where}: {share:.0%} nulls, {before:.0%} in the last run"
            if min(last["rows"].get(name, 0), now["rows"][name]) >= LEAST_ROWS:
                old, new = _range(facts), _range(newer[column])
                if what := _range_drift(old, new):
                    yield f"{where}: {what}, {_shown(new)}; {_shown(old)} in the last run"


Range = tuple[Any, Any]


def _range(facts: Mapping[str, Any]) -> Range:
    return facts.get("min"), facts.get("max")


def _shown(bounds: Range) -> str:
    return f"{bounds[0]} to {bounds[1]}"


def _range_drift(before: Range, now: Range) -> str | None:
    """Return what differs much between two ranges of values; None for nothing, or if unknown."""
    if None in (*before, *now):
        return None
    texts = [isinstance(bound, str) for bound in (*before, *now)]
    if any(texts):
        return None if all(texts) else "values of another type"
    if now[0] < 0 <= before[0]:
        return "negative values"
    old, new = (max(map(abs, bounds)) for bounds in (before, now))
    if max(old, new) >= MAGNITUDE * min(old, new) and old != new:
        return "values of another magnitude"
    return "one value only" if now[0] == now[1] and before[0] != before[1] else None


FORMAT = "singer-spark/run-summary/1"
_LARGEST_FILE = 64 << 20
MOST_POINTS = 500
"""Points of the timeline; above that, every two are merged."""


@dataclass
class Timeline:
    """Rows that became durable (target) or were sent (tap), in steps of equal length.

    Attributes:
        step: Seconds of a step; doubles as the run gets longer.
        rows: Rows of each step since the start.
    """

    step: float = 1.0
    rows: list[int] = field(default_factory=list)

    def add(self, seconds: float, rows: int) -> None:
        """Count rows at a time since the start."""
        while seconds >= self.step * MOST_POINTS:
            pairs = zip(self.rows[::2], [*self.rows[1::2], 0], strict=False)
            self.rows = [one + two for one, two in pairs]
            self.step *= 2
        place = int(seconds / self.step)
        self.rows += [0] * (place + 1 - len(self.rows))
        self.rows[place] += rows


class RunSummary:
    """Collects the facts of one run; methods may be called from any thread.

    Attributes:
        run_id: Identifies the run, also in logs, commits and what observers send.
        is_read: Whether files, people or observers get the facts; else none need to be collected.
        is_observed: Whether observers are told.
        has_work: Whether anything was to do: a record, a batch or a version of a table came.
        exit_code: Exit code of the run if it ends well.
    """

    def __init__(self, program: str, *, is_read: bool = True) -> None:
        self._program = program
        self._started_at = time.time()
        self._lock = threading.Lock()
        self._streams: dict[str, dict[str, Any]] = defaultdict(dict)
        self._totals: dict[str, int] = defaultdict(int)
        self._facts: dict[str, Any] = {}
        self._columns: dict[str, dict[str, Any]] = {}
        self._timeline = Timeline()
        self._is_dry = False
        self._observers: tuple[RunObserver, ...] = ()
        self.run_id = str(uuid.uuid4())
        self.has_work = False
        self.is_read, self.is_observed = is_read, False
        self.exit_code = 0

    def add(self, stream: str, **counts: float) -> None:
        """Add to counts of a stream."""
        with self._lock:
            _add(self._streams[stream], counts)
        if self._observers:
            self._tell(lambda observer: observer.counts(stream, counts))

    def observe(self, observers: Iterable[RunObserver]) -> None:
        """Tell observers what happens from now on."""
        self._observers = tuple(observers)
        self.is_observed = bool(self._observers)
        self.is_read |= self.is_observed

    def uses(
        self, stream: str, datasets: Callable[[], Iterable[Dataset]], *, is_output: bool = False
    ) -> None:
        """Tell observers what a stream reads or writes, and note the places of tables.

        `datasets` is not called for what a stream reads if there are no observers.
        """
        if not self._observers and not is_output:
            return
        try:
            used = tuple(datasets())
        except Exception as error:
            _log.warning("stream '%s': its datasets have no name in lineage: %r", stream, error)
            return
        with self._lock:
            for dataset in used:
                if dataset.table is not None and dataset.place is not None:
                    tables = self._streams[stream].setdefault("tables", {})
                    tables.setdefault(dataset.table, {})["place"] = dataset.place
        if self._observers:
            self._tell(lambda observer: observer.uses(stream, used, is_output=is_output))

    def end(self, facts: Mapping[str, Any]) -> None:
        """Tell observers that the run has ended."""
        self._tell(lambda observer: observer.ended(facts))

    def add_to_table(
        self, stream: str, table: str, changes: Sequence[str] = (), **counts: float
    ) -> None:
        """Add to counts and changes of a table that a stream is loaded into."""
        with self._lock:
            totals = self._streams[stream].setdefault("tables", {}).setdefault(table, {})
            _add(totals, counts)
            if changes:
                totals["changes"] = [*totals.get("changes", ()), *changes]

    def describe(self, **facts: Any) -> None:
        """Set facts of the run."""
        with self._lock:
            self._facts.update(facts)

    def note(self, stream: str, **facts: Any) -> None:
        """Set facts of a stream."""
        with self._lock:
            self._streams[stream].update(facts)

    def profile(self, table: str, rows: int, columns: Mapping[str, Sequence[Any]]) -> None:
        """Set the facts of a table's columns.

        Args:
            rows: Rows of the run.
            columns: Nulls, least and greatest value of each column.
        """
        facts = {
            name: {"null_share": round(nulls / rows, 6), "min": least, "max": greatest}
            for name, (nulls, least, greatest) in columns.items()
        }
        with self._lock:
            self._columns[table] = facts

    def moved(self, rows: int) -> None:
        """Count rows that were sent or became durable now, for the timeline."""
        with self._lock:
            self._timeline.add(max(0.0, time.time() - self._started_at), rows)

    def mark_dry(self) -> None:
        """Say that the run loads nothing: its counts are those of a run that would."""
        self._is_dry = self.is_read = True

    def choose_exit_code(self, empty_code: int | None) -> None:
        """Let a run that ended well end with `empty_code`, if given, if nothing was to do."""
        if empty_code is not None and not self.has_work:
            _log.info("nothing to do: no records, batches or versions (exit code %d)", empty_code)
            self.exit_code = empty_code

    def of_table(self, table: str) -> Mapping[str, Any]:
        """Return the counts of a table so far."""
        with self._lock:
            tables = (facts.get("tables", {}).get(table) for facts in self._streams.values())
            return dict(next((counts for counts in tables if counts is not None), {}))

    def count(self, **counts: int) -> None:
        """Add to counts of the run."""
        with self._lock:
            for name, count in counts.items():
                self._totals[name] += count

    def as_dict(self, error: BaseException | None = None) -> dict[str, Any]:
        """Return the summary of a run that goes on, or ends now, well or with an error."""
        with self._lock:
            now = time.time()
            started, ended = (
                datetime.fromtimestamp(at, timezone.utc) for at in (self._started_at, now)
            )
            facts = {
                "format": FORMAT,
                "program": self._program,
                "program_version": version(),
                "run_id": self.run_id,
                "started_at": time_text(started),
                "ended_at": time_text(ended),
                "seconds": round(now - self._started_at, 3),
                **({"dry_run": True} if self._is_dry else {}),
                **_ending(error, self.exit_code),
                **self._facts,
                **self._totals,
                "streams": {name: dict(facts) for name, facts in self._streams.items()},
                "columns": dict(self._columns),
                "timeline": {"step_seconds": self._timeline.step, "rows": self._timeline.rows},
            }
            return dict(without_secrets_inside(facts))

    def _tell(self, tell: Callable[[RunObserver], None]) -> None:
        for observer in self._observers:
            try:
                tell(observer)
            except Exception as error:
                # What tells of a run must not end it.
                self._observers = tuple(one for one in self._observers if one is not observer)
                _log.warning("%s is off: %r", type(observer).__name__, error)


@contextmanager
def summarized(
    program: str,
    summary: str | None = None,
    report: str | None = None,
    *,
    metrics: str | None = None,
    warn_drift: bool = False,
) -> Iterator[RunSummary]:
    """Yield the summary of a run, and write it to files when the run ends, however it ends.

    Args:
        summary: The JSON file; None for no file. Each file is replaced in one step.
        report: The HTML file, likewise.
        metrics: The file for Prometheus, likewise.
        warn_drift: Compare the run with the last one, which the JSON file holds, and log what
            differs much.

    Raises:
        SettingsError: There is no JSON file to compare with, or no folder for a file.
        DestinationError: A file cannot be written; not if the run has failed anyway.
    """
    if warn_drift and summary is None:
        raise SettingsError(
            "--warn-drift compares with the last --summary", hint="give --summary FILE, too"
        )
    options = {"--summary": summary, "--report": report, "--metrics-file": metrics}
    for option, path in options.items():
        if path is not None:
            check_folder(path, option)
    if metrics is not None and not metrics.endswith(".prom"):
        where, hint = (
            Where(file=metrics),
            "node exporter reads no other files: give a name that ends so",
        )
        raise SettingsError("its name does not end in .prom", where=where, hint=hint)
    last = None if summary is None else _baseline_in(summary)
    last_success = None if metrics is None else last_success_in(_text_of(metrics))

    def write(facts: Mapping[str, Any]) -> None:
        if summary is not None:
            text = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
            write_file(text, summary, "--summary")
        if report is not None:
            write_file(html_report(facts), report, "--report")
        if metrics is not None:
            pipeline = re.sub(r"(\.tap|\.target)?(\.prom)?$", "", Path(metrics).name)
            write_file(metrics_text(facts, pipeline, last_success), metrics, "--metrics-file")

    is_read = bool(summary or report or metrics or CONSOLE.is_for_people)
    collected = RunSummary(program, is_read=is_read)
    mark_run(collected.run_id)
    try:
        yield collected
        if not collected.is_read:
            return
        facts = collected.as_dict()
        now = baseline_of(facts)
        if warn_drift and last is not None and now is not None:
            facts["drift"] = drift(last, now)
            for line in facts["drift"]:
                _log.warning("%s", line)
        write(facts if now else {**facts, "baseline": last})
    except BaseException as error:
        facts = {**collected.as_dict(error), "baseline": last}
        with suppress(DestinationError):
            write(facts)
        _show(facts)
        collected.end(facts)
        raise
    _show(facts)
    collected.end(facts)


def _show(facts: Mapping[str, Any]) -> None:
    """Show what a run has moved to a person at a terminal."""
    if not CONSOLE.is_for_people or not _log.isEnabledFor(logging.INFO):
        return
    text = "\n".join(run_lines(facts, CONSOLE.size.columns, str(Path.cwd())))
    if text:
        CONSOLE.write_line(text)


def _baseline_in(path: str) -> Baseline | None:
    """Return what a summary file holds of the last run that ended well; None for nothing."""
    try:
        return baseline_of(json.loads(_text_of(path)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _text_of(path: str) -> str:
    """Return what the last run has left in a file; empty for nothing."""
    with suppress(OSError, ValueError):
        # Anything else may block (a FIFO), or never end (a device).
        if Path(path).is_file() and Path(path).stat().st_size <= _LARGEST_FILE:
            return Path(path).read_text(encoding="utf-8")
    return ""


def write_file(text: str, path: str, option: str) -> None:
    """Replace a file in one step, a link's too; write to what is no file, such as a FIFO.

    To a standard stream (`/dev/stderr`), which may be a file, the text is appended.
    """
    place = os.path.realpath(path)
    try:
        is_stream = path.startswith(("/dev/std", "/dev/fd/", "/proc/"))
        if is_stream or (Path(path).exists() and not Path(path).is_file()):
            # Without a reader, opening a FIFO would block.
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_APPEND)
            os.set_blocking(descriptor, True)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
                file.write(text)
            return
        complete = Path(f"{place}.{os.getpid()}.tmp")
        try:
            complete.write_text(text, encoding="utf-8", errors="replace")
            complete.replace(place)
        finally:
            complete.unlink(missing_ok=True)
    except OSError as error:
        raise DestinationError(
            f"cannot be written ({error.strerror})", where=Where(file=path), hint=f"see {option}"
        ) from error


def _ending(error: BaseException | None, good: int) -> dict[str, Any]:
    if error is None:
        return {"exit_code": good, "error": None}
    reported = documented_error(error)
    code = SingerSparkError.exit_code if reported is None else reported.exit_code
    return {"exit_code": code, "error": error_text(error) if reported is None else str(reported)}


def _add(facts: dict[str, Any], counts: Mapping[str, float]) -> None:
    for name, count in counts.items():
        facts[name] = facts.get(name, 0) + count


def time_text(at: datetime) -> str:
    """Return a time in UTC as run summaries have it."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_WEB: Schema = {"type": "string", "pattern": r"^https?://[^\s@?]+$"}
"""A URL without user, password and query."""


@dataclass(frozen=True)
class OpenLineageSettings:
    """Where to send events about the runs, and under which names."""

    url: str | None = setting(
        _WEB,
        "Server that gets OpenLineage events; else that of `OPENLINEAGE_URL`."
        " Without both, none are sent.",
        examples=["http://marquez:5000"],
    )
    api_key: str | None = setting(
        TEXT, "Key for the server; else that of `OPENLINEAGE_API_KEY`.", secret=True, repr=False
    )
    namespace: str | None = setting(
        TEXT, "Namespace of the job; else `OPENLINEAGE_NAMESPACE`, else `default`."
    )
    job_name: str | None = setting(
        TEXT, "Name of the job; by default that of the program.", examples=["orders.extract"]
    )


@dataclass(frozen=True)
class OpenTelemetrySettings:
    """Where to send spans and metrics of the runs."""

    endpoint: str | None = setting(
        _WEB,
        "OTLP/HTTP receiver of spans and metrics; else that of `OTEL_EXPORTER_OTLP_ENDPOINT`. None "
        "are sent without. Needs the extra `opentelemetry`.",
        examples=["http://collector:4318"],
    )


_OTLP_ENDPOINTS = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
)

Facts = Callable[[], Mapping[str, Any]]


def observers_of(
    program: str,
    lineage: OpenLineageSettings,
    traces: OpenTelemetrySettings,
    environ: Mapping[str, str],
    facts: Facts,
) -> list[RunObserver]:
    """Return who is told of a run; none that cannot work, which is only a warning."""
    makers: dict[str, Callable[[], RunObserver]] = {}
    url = lineage.url or environ.get("OPENLINEAGE_URL")
    if url and not _is_true(environ.get("OPENLINEAGE_DISABLED")):
        makers["OpenLineage"] = lambda: _lineage(program, lineage, url, environ, facts)
    endpoints = (traces.endpoint, *map(environ.get, _OTLP_ENDPOINTS))
    if any(endpoints) and not _is_true(environ.get("OTEL_SDK_DISABLED")):
        makers["OpenTelemetry"] = lambda: _traces(program, traces, environ, facts)
    observers: list[RunObserver] = []
    for name, make in makers.items():
        try:
            observers.append(make())
        except Exception as error:
            _log.warning("%s is off: %s", name, " ".join(str(error).split()))
    return observers


def _lineage(
    program: str, settings: OpenLineageSettings, url: str, environ: Mapping[str, str], facts: Facts
) -> RunObserver:
    from shared.singer.lineage import (  # noqa: PLC0415
        EventSender,
        LineageJob,
        LineageObserver,
        parent_run,
    )

    if not url.startswith(("http://", "https://")):
        raise ValueError("its URL must begin with http:// or https://")
    try:
        parent = parent_run(environ.get("OPENLINEAGE_PARENT_ID"))
        root = parent_run(environ.get("OPENLINEAGE_ROOT_PARENT_ID"))
    except ValueError as error:
        _log.warning("OPENLINEAGE_PARENT_ID is ignored: %s", error)
        parent = root = None
    job = LineageJob(
        program,
        settings.namespace or environ.get("OPENLINEAGE_NAMESPACE") or "default",
        settings.job_name or program,
        parent,
        root,
    )
    endpoint = environ.get("OPENLINEAGE_ENDPOINT") or "api/v1/lineage"
    key = settings.api_key or environ.get("OPENLINEAGE_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return LineageObserver(job, EventSender(f"{url.rstrip('/')}/{endpoint}", headers), facts)


def _traces(
    program: str, settings: OpenTelemetrySettings, environ: Mapping[str, str], facts: Facts
) -> RunObserver:
    protocol = environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf"
    if protocol != "http/protobuf":
        raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL is '{protocol}', not 'http/protobuf'")
    try:
        from shared.singer.traces import TraceObserver  # noqa: PLC0415
    except ImportError as error:
        hint = "pip install 'singer-spark[opentelemetry]'"
        raise ValueError(f"the extra is not installed ({hint})") from error
    return TraceObserver(program, facts()["run_id"], settings.endpoint, environ)


def _is_true(text: str | None) -> bool:
    return (text or "").strip().lower() in {"true", "1"}
