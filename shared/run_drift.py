"""What differs much between two runs, by their summaries. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

FACTOR, LEAST_ROWS = 2.0, 100
"""Rows of a table differ much by this factor, and by so many rows."""
NULL_SHARE = 0.1
"""Difference of the share of nulls of a column that is much."""
MAGNITUDE = 10.0
"""Numbers of a column differ much if their greatest magnitude does by this factor."""

Baseline = Mapping[str, Any]


def baseline_of(summary: Mapping[str, Any]) -> Baseline | None:
    """Return what later runs are compared with: of a run that ended well, or of the one before.

    Args:
        summary: A run summary (`docs/observability.md`).
    """
    if summary.get("exit_code") != 0 or summary.get("dry_run"):
        found = summary.get("baseline")
        return found if isinstance(found, Mapping) else None
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
        found = now["columns"].get(name)
        if not found or not now["rows"].get(name):
            continue
        for column, facts in columns.items():
            where = f"stream '{name}', column '{column}'"
            if column not in found:
                yield f"{where}: missing, the last run had it"
                continue
            before, share = facts["null_share"], found[column]["null_share"]
            if abs(share - before) >= NULL_SHARE:
                yield f"{where}: {share:.0%} nulls, {before:.0%} in the last run"
            if min(last["rows"].get(name, 0), now["rows"][name]) >= LEAST_ROWS:
                old, new = _range(facts), _range(found[column])
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
