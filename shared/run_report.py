"""The report of a run: the summaries of its programs as one HTML page without script or network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import Any

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
