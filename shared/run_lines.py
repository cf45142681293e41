"""The summary of a run as lines for a terminal. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shared.text_table import cut, text_table

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
        facts: The summary, see `docs/observability.md`.
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
    size = _size(stream.get("bytes", 0))
    seconds = _seconds(stream["seconds"]) if "seconds" in stream else "failed"
    return name, _count(stream.get("sent", 0), "row"), stream.get("method", ""), size, seconds


def _loaded(
    name: str, stream: Mapping[str, Any], facts: Mapping[str, Any], folder: str
) -> Iterator[tuple[str, ...]]:
    destination = facts.get("destination") or {}
    for table, counts in (stream.get("tables") or {name: {}}).items():
        place = counts.get("place") or table
        place = os.path.relpath(place, folder) if folder and _is_in(place, folder) else place
        form = f" ({destination['format']})" if destination.get("format") else ""
        changes = counts.get("changes", ())
        details = [f"{counts[key]:,} {key}" for key in _DETAILS if counts.get(key)]
        details += [f"{_older(changes, REMOVED)} removed"] if _older(changes, REMOVED) else []
        details += [f"{_older(changes, MARKED)} marked"] if _older(changes, MARKED) else []
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
    found = [change.removeprefix(begin) for change in changes if change.startswith(begin)]
    counts = (text.removesuffix(" of older versions").removeprefix("the ") for text in found)
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


def _is_in(place: str, folder: str) -> bool:
    return place.startswith(f"{folder.rstrip('/')}/")


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _size(size: float) -> str:
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
