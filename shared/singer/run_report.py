"""The summary of a run for people and systems: an HTML page, lines of a terminal, metrics. Pure.

The page has no script and needs no network. Metrics are in Prometheus's text format, for node
exporter; `docs/observability.md` documents them.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from html import escape
from itertools import accumulate
from typing import Any

from shared.settings.texts import cut, text_table

WIDTH, HEIGHT = 1000, 100
"""Units of a plot; the page stretches it to its own width."""
_LONGEST = 1000

Rows = list[Mapping[str, Any]]

_STYLE = """
:root { color-scheme: light dark; --soft: #8882; --line: #8885; --dim: #667; --blue: #2f6fd0;
  --orange: #c65f17; --good: #17733a; --bad: #c01f1f; }
@media (prefers-color-scheme: dark) { :root { --dim: #a2a7b3; --blue: #6ea8ff;
  --orange: #ff9d5c; --good: #58c77f; --bad: #ff7b72; } }
* { box-sizing: border-box; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; padding: 0 1rem;
  max-width: 84rem; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; margin: 0 0 .4rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 0 0 .3rem; }
.good { color: var(--good); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
.grid { display: grid; gap: .8rem; grid-template-columns: repeat(auto-fit, minmax(10rem, 1fr)); }
.grid.programs { grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)); }
.card { background: var(--soft); border-radius: .5rem; padding: .6rem .9rem; }
.card b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
.card small, dt, th, .scale { color: var(--dim); font-weight: 500; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem .9rem; margin: 0; }
dd { margin: 0; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .3rem .5rem; font-size: .93em; border-bottom: 1px solid var(--line);
  text-align: left; vertical-align: top; overflow-wrap: break-word; }
.n { text-align: right; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
summary { cursor: pointer; padding: .3rem 0; }
svg { display: block; width: 100%; height: 7rem; border-bottom: 1px solid var(--line); }
.bar { fill: var(--blue); } .line { fill: none; stroke: var(--orange); stroke-width: 2;
  vector-effect: non-scaling-stroke; }
.scale { display: flex; justify-content: space-between; font-size: .85rem; }
@media (max-width: 700px) {
  thead { display: none; } tr, td { display: block; }
  tr { border-bottom: 2px solid var(--line); padding: .3rem 0; }
  td, td.n { display: flex; justify-content: space-between; gap: 1rem; border: 0;
    padding: .1rem 0; text-align: right; }
  td:has(span:empty) { display: none; }
  td::before { content: attr(data-name); color: var(--dim); text-align: left; flex: none; }
}
"""
_COUNTS = {"state_messages": "STATE messages", "rejected_lines": "lines rejected"}
_APART = {"tables", "engine", "engine_reason"}
_WORDS = {"tap-spark": ("sent", "sent", "read"), "target-spark": ("loaded", "written", "loaded")}
"""What a program has done with rows, with bytes, and by an engine."""


def html_report(*summaries: Mapping[str, Any], title: str | None = None) -> str:
    """Return the page for run summaries (`docs/observability.md`).

    Args:
        summaries: Of the tap and the target of one run, or of one of them.
        title: Head of the page; None for the programs and the time.
    """
    names = " and ".join(summary["program"] for summary in summaries)
    title = title or f"{names}, {min(summary['started_at'] for summary in summaries)}"
    tables = list(_tables(summaries))
    parts = [
        f"<h1>{escape(title)}</h1>",
        *(f'<p class="bad">{escape(line)}</p>' for s in summaries for line in s.get("drift", ())),
        f'<div class="grid">{"".join(_figures(summaries))}</div>',
        _section(
            "Programs", f'<div class="grid programs">{"".join(map(_program, summaries))}</div>'
        ),
        _section("Streams", _table(_stream_rows(summaries))),
        _section("Tables", _table([row for row, _ in tables])),
        _section("Changes of columns", _table([change for _, more in tables for change in more])),
        _section("Columns", "".join(_columns(summaries))),
        _section("Rows over time", "".join(map(_plot, summaries))),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(filter(None, parts))
        + "\n</body></html>\n"
    )


def _section(title: str, content: str) -> str:
    return f"<h2>{title}</h2>\n{content}" if content else ""


def _figures(summaries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what a reader looks for first: rows, how fast, and what is amiss."""
    for summary in summaries:
        rows, seconds, program = _rows(summary), summary["seconds"], summary["program"]
        size = _size(sum(facts.get("bytes", 0) for facts in summary["streams"].values()))
        rate = f"{rows / seconds if seconds else 0:,.0f} rows/s, {size}"
        word = "would be loaded" if summary.get("dry_run") else _WORDS[program][0]
        yield _figure(f"rows {word}", f"{rows:,}", rate)
    streams = [facts for summary in summaries for facts in summary["streams"].values()]
    rejected = [facts["rejected"] for facts in streams if "rejected" in facts]
    if rejected:
        yield _figure("records rejected", f"{sum(rejected):,}", is_bad=any(rejected))
    for key, name in _COUNTS.items():
        if count := sum(summary.get(key, 0) for summary in summaries):
            yield _figure(name, f"{count:,}", is_bad=key == "rejected_lines")


def _figure(name: str, text: str, more: str = "", *, is_bad: bool = False) -> str:
    mark = ' class="bad"' if is_bad else ""
    return (
        f'<div class="card"><small>{escape(name)}</small><b{mark}>{escape(text)}</b>'
        f"<small>{escape(more)}</small></div>"
    )


def _rows(summary: Mapping[str, Any]) -> int:
    return sum(summary["timeline"]["rows"])


def _program(summary: Mapping[str, Any]) -> str:
    code, how = summary["exit_code"], '<span class="good">success</span>'
    if code or summary["error"]:
        error = escape(str(summary["error"] or "nothing to do"))
        how = f'<span class="bad">exit code {code}</span>: {error}'
    if summary.get("dry_run"):
        how += ", dry run: nothing was loaded"
    destination = summary.get("destination") or {}
    facts = {
        "version": summary["program_version"],
        "run": summary["run_id"],
        "time": f"{summary['started_at']} to {summary['ended_at']}, {summary['seconds']:,.1f} s",
        "engine": ", ".join(
            dict.fromkeys(s["engine"] for s in summary["streams"].values() if "engine" in s)
        ),
        "destination": " ".join(
            filter(None, (destination.get("format"), destination.get("place")))
        ),
    }
    items = (f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in facts.items() if text)
    return (
        f'<div class="card"><h3>{escape(summary["program"])}</h3>'
        f"<dl><dt>end</dt><dd>{how}</dd>{''.join(items)}</dl></div>"
    )


def _stream_rows(summaries: Sequence[Mapping[str, Any]]) -> Rows:
    """Return a row for each stream, with what both programs say of it."""
    rows: dict[str, dict[str, Any]] = {}
    for summary in summaries:
        program = summary["program"]
        names = {"bytes": f"bytes {_WORDS[program][1]}"}
        names |= {key: f"{key} of {program}" for key in ("error", "seconds")}
        for stream, facts in summary["streams"].items():
            row = rows.setdefault(stream, {"stream": stream})
            row |= {names.get(key, key): fact for key, fact in facts.items() if key not in _APART}
            if "engine" in facts:
                row[f"{_WORDS[program][2]} by"] = f"{facts['engine']} ({facts['engine_reason']})"
    return list(rows.values())


def _tables(
    summaries: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[Mapping[str, Any], Rows]]:
    """Yield a row for each table, and the rows of its changes."""
    for summary in summaries:
        for stream, facts in summary["streams"].items():
            for table, counts in (facts.get("tables") or {}).items():
                name = {"table": table, **({} if table == stream else {"stream": stream})}
                changes: Rows = [{**name, "change": text} for text in counts.get("changes", ())]
                yield {**name, **{k: v for k, v in counts.items() if k != "changes"}}, changes


def _columns(summaries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for summary in summaries:
        for table, columns in summary["columns"].items():
            rows = [
                {
                    "column": name,
                    "nulls": f"{facts['null_share']:.2%}",
                    "least": facts["min"],
                    "greatest": facts["max"],
                }
                for name, facts in columns.items()
            ]
            label = f"{escape(table)}: {len(rows):,} columns"
            yield f"<details><summary>{label}</summary>{_table(rows)}</details>"


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as a table with the union of their keys as columns, but for those of zeros."""
    names = [
        name
        for name in dict.fromkeys(name for row in rows for name in row)
        if any(row.get(name) not in (0, None, "") for row in rows)
    ]
    if not names:
        return ""
    numeric = {n for n in names if all(isinstance(row.get(n, 0), int | float) for row in rows)}
    head = "".join(f"<th{_mark(n in numeric)}>{escape(_label(n))}</th>" for n in names)
    body = "".join(
        "<tr>" + "".join(_cell(n, row.get(n), n in numeric) for n in names) + "</tr>\n"
        for row in rows
    )
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _label(name: str) -> str:
    return name.replace("_", " ")


def _mark(is_number: bool) -> str:
    return ' class="n"' if is_number else ""


def _cell(name: str, value: Any, is_number: bool) -> str:
    label = f' data-name="{escape(_label(name))}"'
    return f"<td{_mark(is_number)}{label}><span>{escape(_text(value, is_number))}</span></td>"


def _text(value: Any, is_number: bool) -> str:
    if is_number:
        return f"{value or 0:,}"
    if isinstance(value, Mapping):
        value = ", ".join(f"{key}: {inner}" for key, inner in value.items())
    text = "" if value is None else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:  # noqa: PLR2004
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def _plot(summary: Mapping[str, Any]) -> str:
    """Return bars for the rows of each step, and a line for their sum."""
    rows, step = summary["timeline"]["rows"], summary["timeline"]["step_seconds"]
    head = f"{summary['program']}: rows {_WORDS[summary['program']][0]}"
    if not any(rows):
        return f"<p>{escape(head)}: no rows.</p>"
    most, total = max(rows), sum(rows)
    width = WIDTH / len(rows)
    bars = (
        f'<rect class="bar" x="{n * width:.1f}" y="{HEIGHT * (1 - count / most):.1f}" '
        f'width="{width * 0.9:.2f}" height="{HEIGHT * count / most:.1f}"/>'
        for n, count in enumerate(rows)
        if count
    )
    points = (
        f"{(n + 1) * width:.1f},{HEIGHT * (1 - so_far / total):.1f}"
        for n, so_far in enumerate(accumulate(rows))
    )
    return (
        f"<p>{escape(head)}. Bars: in each {step:,.0f} s, at most {most:,}. "
        f"Line: their sum, {total:,}.</p>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(head)} over time">{"".join(bars)}'
        f'<polyline class="line" points="0,{HEIGHT} {" ".join(points)}"/></svg>'
        f'<div class="scale"><span>0 s</span><span>{len(rows) * step:,.0f} s</span></div>'
    )


MOST_STREAMS = 40
_TAP = "tap-spark"
_METADATA = "_sdc_"
CREATED = "create the table with the columns "
"""Begin of the phrase of a change that creates a table."""
_ADDED = ("add the column ", "add the field ")
RENAMED = "store "
"""Begin of the phrase of a change that gives a column another name than the stream does."""
_LONG = 90
"""Seconds from which on minutes are shown."""
REMOVED, MARKED = "remove ", "mark "
"""Begins of the phrases of a change that removes rows of older versions, or marks them."""
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_DETAILS = ("replayed", "filtered", "merged", "deleted")
"""Counts that are shown if there is anything to count."""


def run_lines(facts: Mapping[str, Any], width: int, folder: str = "") -> Iterator[str]:
    """Yield a line for each table (target) or stream (tap), totals, and what to do next.

    Args:
        width: Most characters of a line.
        folder: Working folder, from which paths are shown.
    """
    streams = facts["streams"]
    if not streams or facts.get("dry_run"):
        return
    is_tap = facts["program"] == _TAP
    rows = [
        row
        for name, stream in sorted(streams.items())
        for row in ([_sent(name, stream)] if is_tap else _loaded(name, stream, facts, folder))
    ]
    if rows:
        shown = _without_empty([*rows[:MOST_STREAMS]])
        yield from text_table(shown, width, cuttable={0, *_places(shown)})
    if len(rows) > MOST_STREAMS:
        yield f"and {len(rows) - MOST_STREAMS} more: see --summary"
    yield cut(_totals(facts, is_tap=is_tap), width)
    for line in _next_steps(facts):
        yield f"next: {line}"


def _sent(name: str, stream: Mapping[str, Any]) -> tuple[str, ...]:
    size = _size_text(stream.get("bytes", 0))
    seconds = _seconds(stream["seconds"]) if "seconds" in stream else "failed"
    return name, _count(stream.get("sent", 0), "row"), stream.get("method", ""), size, seconds


def _loaded(
    name: str, stream: Mapping[str, Any], facts: Mapping[str, Any], folder: str
) -> Iterator[tuple[str, ...]]:
    destination = facts.get("destination") or {}
    for table, counts in (stream.get("tables") or {name: {}}).items():
        place = counts.get("place") or table
        if folder and place.startswith(f"{folder.rstrip('/')}/"):
            place = os.path.relpath(place, folder)
        form = f" ({destination['format']})" if destination.get("format") else ""
        changes = counts.get("changes", ())
        details = [f"{counts[key]:,} {key}" for key in _DETAILS if counts.get(key)]
        for begin, done in ((REMOVED, "removed"), (MARKED, "marked")):
            details += [f"{rows} {done}"] if (rows := _older(changes, begin)) else []
        yield (
            table,
            _count(counts.get("committed", 0), "row"),
            ", ".join(_changes(changes)),
            ", ".join(details),
            f"{counts.get('rejected', stream.get('rejected', 0)):,} rejected",
            "failed" if stream.get("error") else f"→ {place}{form}",
            _seconds(stream.get("flush_seconds", 0)),
        )


def _changes(changes: Sequence[str]) -> Iterator[str]:
    new = sum(_new_columns(change) for change in changes)
    if new:
        yield _count(new, "new column")
    renamed = sum(change.startswith(RENAMED) for change in changes)
    if renamed:
        yield f"{renamed:,} renamed"
    shown = CREATED, *_ADDED, RENAMED, REMOVED, MARKED
    others = len([change for change in changes if not change.startswith(shown)])
    if others:
        yield _count(others, "change")


def _new_columns(change: str) -> int:
    if not change.startswith(CREATED):
        return change.startswith(_ADDED)
    columns = change.removeprefix(CREATED).split(", ")
    return sum(not column.startswith(_METADATA) for column in columns)


def _older(changes: Sequence[str], begin: str) -> str:
    """Return how many rows of older versions were removed or marked; empty for none."""
    names = [change.removeprefix(begin) for change in changes if change.startswith(begin)]
    counts = (text.removesuffix(" of older versions").removeprefix("the ") for text in names)
    return " + ".join(text.replace("row", "older row", 1) for text in counts)


def _totals(facts: Mapping[str, Any], *, is_tap: bool) -> str:
    streams = facts["streams"].values()
    if is_tap:
        rows = sum(stream.get("sent", 0) for stream in streams)
    else:
        tables = [table for stream in streams for table in stream.get("tables", {}).values()]
        rows = sum(table.get("committed", 0) for table in tables)
    engines = sorted({stream["engine"] for stream in streams if "engine" in stream})
    by = f", by {' and '.join(engines)}" if engines else ""
    of = f" of {len(streams)} streams" if len(streams) > 1 else ""
    what = f"{_count(rows, 'row')}{of} {'sent' if is_tap else 'loaded'}"
    seconds = _seconds(facts["seconds"])
    if facts.get("error") is not None:
        return f"{facts['program']}: failed after {seconds}, {what}{by}"
    return f"{facts['program']}: {what} in {seconds}{by}"


def _next_steps(facts: Mapping[str, Any]) -> Iterator[str]:
    streams = facts["streams"].values()
    tables = [table for stream in streams for table in stream.get("tables", {}).values()]
    rejected = sum(stream.get("rejected", 0) for stream in streams)
    rejected += facts.get("rejected_lines", 0)
    if rejected:
        letters = (facts.get("destination") or {}).get("dead_letters")
        step = f"load them again from {letters}" if letters else "the warnings above tell why"
        yield f"{_count(rejected, 'record')} rejected: {step}"
    for table in tables:
        if marked := _older(table.get("changes", ()), MARKED):
            yield (f"{marked} marked in _sdc_deleted_at: filter them out, or set hard_delete: true")
    for change in (change for table in tables for change in table.get("changes", ())):
        if change.startswith(RENAMED):
            yield f"{change}: choose another name by a stream map"
    left_out = sorted({name for stream in streams for name in stream.get("undeclared", ())})
    if left_out:
        yield f"not in the schema, and left out: {', '.join(left_out)}"


def _places(rows: Sequence[Sequence[str]]) -> Iterator[int]:
    yield from (n for n in range(len(rows[0])) if any(row[n].startswith("→") for row in rows))


def _without_empty(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    kept = [any(cells) for cells in zip(*rows, strict=True)]
    return [[cell for cell, keep in zip(row, kept, strict=True) if keep] for row in rows]


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _size_text(size: float) -> str:
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size:,.0f} B"


def _seconds(seconds: float) -> str:
    if seconds < _LONG:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


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
_COUNTERS = {
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
    name_and_help for facts in (_COUNTERS, _STREAM, _TABLE) for name_and_help in facts.values()
)
"""Name → help of every metric. Collectors want one help for a name, whichever program wrote it."""

_Sample = tuple[str, Mapping[str, str], float]


def metrics_text(summary: Mapping[str, Any], pipeline: str, last_success: float | None) -> str:
    """Return the metrics of a run; all are gauges.

    Args:
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
    ended_at, is_good = _since_epoch(summary["ended_at"]), summary["error"] is None
    if is_good and not summary.get("dry_run"):
        last_success = ended_at
    yield "singer_run_info", {"version": summary["program_version"]}, 1
    yield "singer_run_start_timestamp_seconds", {}, _since_epoch(summary["started_at"])
    yield "singer_run_end_timestamp_seconds", {}, ended_at
    yield "singer_run_duration_seconds", {}, summary["seconds"]
    if last_success is not None:
        yield _LAST_SUCCESS, {}, last_success
    yield "singer_run_success", {}, int(is_good)
    yield "singer_run_exit_code", {}, summary["exit_code"]
    yield from _counts(_COUNTERS, summary, {})
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


def _since_epoch(time: str) -> float:
    return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()
