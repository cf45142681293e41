"""The report of a run: its summary as one HTML page, which needs no network and no script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import Any

WIDTH, HEIGHT = 900, 160
"""Size of a plot in pixels."""

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; padding: 0 1rem;
  max-width: 72rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.good { color: #1a7f37; } .bad { color: #c62828; font-weight: 600; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #8884; text-align: left; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: currentColor; }
.bar { fill: #3b7dd8; } .line { fill: none; stroke: #e8833a; stroke-width: 2; }
.axis { stroke: #8888; }
"""


def html_report(summary: Mapping[str, Any]) -> str:
    """Return the page for a run summary (`docs/run-summary.md`)."""
    title = f"{summary['program']}, {summary['started_at']}"
    tables = _table_rows(summary["streams"])
    changes = _change_rows(summary["streams"])
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            _ending(summary),
            *(f'<p class="bad">{escape(line)}</p>' for line in summary.get("drift", ())),
            "<h2>Streams</h2>",
            _table(_stream_rows(summary["streams"])),
            "<h2>Tables</h2>" if tables else "",
            _table(tables),
            "<h2>Changes of columns</h2>" if changes else "",
            _table(changes),
            "<h2>Rows over time</h2>",
            _plot(summary["timeline"]),
            "</body></html>\n",
        ]
    )


def _ending(summary: Mapping[str, Any]) -> str:
    code, seconds = summary["exit_code"], summary["seconds"]
    rows = sum(summary["timeline"]["rows"])
    rate = rows / seconds if seconds else 0.0
    text = f"{rows:,} rows in {seconds:,.1f} s, {rate:,.0f} rows/s"
    more = (f"{key.replace('_', ' ')}: {summary[key]:,}" for key in _RUN_COUNTS if summary.get(key))
    how = '<span class="good">success</span>'
    if summary.get("dry_run"):
        text = f"dry run, nothing was loaded: {text}"
    if code:
        how = f'<span class="bad">exit code {code}</span>: {escape(str(summary["error"]))}'
    return f"<p>{how}</p><p>{'; '.join([text, *more])}</p>"


_RUN_COUNTS = ("state_messages", "rejected_lines")


def _stream_rows(streams: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [
        {"stream": name, **{key: fact for key, fact in facts.items() if key != "tables"}}
        for name, facts in streams.items()
    ]


def _table_rows(streams: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [
        {"stream": name, "table": table, **{k: v for k, v in counts.items() if k != "changes"}}
        for name, table, counts in _tables(streams)
    ]


def _change_rows(streams: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [
        {"stream": name, "table": table, "change": change}
        for name, table, counts in _tables(streams)
        for change in counts.get("changes", ())
    ]


def _tables(
    streams: Mapping[str, Mapping[str, Any]],
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for name, facts in streams.items():
        for table, counts in (facts.get("tables") or {}).items():
            yield name, table, counts


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as a table with the union of their keys as columns."""
    if not rows:
        return ""
    names = list(dict.fromkeys(name for row in rows for name in row))
    numeric = {n for n in names if all(isinstance(row.get(n, 0), int | float) for row in rows)}
    head = "".join(_cell("th", name.replace("_", " "), name in numeric) for name in names)
    lines = (
        "".join(
            _cell("td", row.get(name, 0 if name in numeric else ""), name in numeric)
            for name in names
        )
        for row in rows
    )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'


def _cell(tag: str, value: Any, numeric: bool) -> str:
    text = f"{value:,}" if isinstance(value, int | float) else escape(str(value))
    return f'<{tag} class="n">{text}</{tag}>' if numeric else f"<{tag}>{text}</{tag}>"


def _plot(timeline: Mapping[str, Any]) -> str:
    """Return bars for the rows of each step, and a line for their sum."""
    rows, step = timeline["rows"], timeline["step_seconds"]
    if not any(rows):
        return "<p>No rows.</p>"
    most, total = max(rows), sum(rows)
    width = WIDTH / len(rows)
    bars = (
        f'<rect class="bar" x="{n * width:.1f}" y="{HEIGHT * (1 - count / most):.1f}" '
        f'width="{max(width - 0.5, 0.5):.1f}" height="{HEIGHT * count / most:.1f}"/>'
        for n, count in enumerate(rows)
        if count
    )
    points = (
        f"{(n + 1) * width:.1f},{HEIGHT * (1 - so_far / total):.1f}"
        for n, so_far in enumerate(accumulate(rows))
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 20}" role="img" aria-label="rows over time">'
        f"{''.join(bars)}"
        f'<polyline class="line" points="0,{HEIGHT} {" ".join(points)}"/>'
        f'<line class="axis" x1="0" y1="{HEIGHT}" x2="{WIDTH}" y2="{HEIGHT}"/>'
        f'<text x="0" y="{HEIGHT + 15}">0 s</text>'
        f'<text x="{WIDTH}" y="{HEIGHT + 15}" text-anchor="end">{len(rows) * step:,.0f} s</text>'
        "</svg>"
        f"<p>Bars: rows in each {step:,.0f} s, at most {most:,}. "
        f"Line: their sum, up to {total:,}.</p>"
    )
