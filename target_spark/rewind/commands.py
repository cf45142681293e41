"""The commands `history` and `rewind`, with a session of the caller."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from shared.errors import DestinationError, SettingsError, Where
from shared.text_table import text_table
from target_spark.core.stored_states import bookmark_text
from target_spark.destinations.lakes.table_history import shown_time
from target_spark.rewind.lake_tables import LakeTables
from target_spark.rewind.rewind_plan import RewindPlan, plan_rewind, target_of

if TYPE_CHECKING:
    from target_spark.destinations.lakes.commit_marks import Mark
    from target_spark.destinations.lakes.table_history import TableCommit, TableHistory

_log = logging.getLogger(__name__)
_HEADER = ("time (UTC)", "table", "version", "run", "rows", "bookmark or STATE")
_CUTTABLE = (1, 2, 5)
_MOST_STATE = 60


def history_lines(
    tables: LakeTables,
    names: Sequence[str],
    limit: int,
    *,
    as_json: bool,
    width: int | None = None,
) -> Iterator[str]:
    """Yield the commits of our runs, newest first.

    Args:
        tables: The tables.
        names: Short names of those to list; empty for all.
        limit: Most commits to list.
        as_json: One JSON object a line; else a table for people.
        width: Most characters in a line of the table; None for any number.

    Raises:
        SettingsError: A name is unknown.
        DestinationError: The tables cannot be read.
    """
    found = _named(tables.histories(), names)
    commits = [
        (history, commit, commit.mark)
        for history in found
        for commit in history.made
        if commit.mark is not None
    ]
    commits.sort(key=lambda item: item[1].at, reverse=True)
    if as_json:
        yield from (json.dumps(_entry(*item)) for item in commits[:limit])
        return
    rows = [_HEADER, *(_cells(*item) for item in commits[:limit])]
    yield from text_table(rows, width, _CUTTABLE)


def rewind(
    tables: LakeTables, to: str, names: Sequence[str], *, force: bool, dry_run: bool
) -> str | None:
    """Return tables to a moment.

    All tables are checked before the first one changes; one that is there already is left alone, so
    that a rewind that was killed can be repeated.

    Args:
        tables: The tables.
        to: See `target_of`.
        names: Short names of the tables that return; empty for all.
        force: Consent to what would be lost.
        dry_run: Check and report only.

    Returns:
        The STATE that is true afterwards; None for a dry run.

    Raises:
        SettingsError: A name or the moment is unknown, or consent is missing.
        DestinationError: A table cannot return, or its return failed: repeat the rewind then.
        AlreadyRunningError: A run loads into one of the tables.
    """
    histories = tables.histories()
    chosen = {history.name for history in _named(histories, names)}
    plan = plan_rewind(histories, target_of(to, histories), chosen)
    problems = [*plan.problems, *_unreadable(tables, plan)]
    _report(plan)
    if problems or plan.state is None:
        raise DestinationError(
            f"nothing was changed: {'; '.join(problems) or 'no table has a STATE then'}",
            hint="`target-spark history` lists what can be restored",
            lasts=True,
        )
    if plan.losses and not force:
        raise SettingsError(
            f"nothing was changed: {'; '.join(plan.losses)}", hint="--force consents to that"
        )
    if dry_run:
        _log.info("dry run: nothing was changed; the STATE would be %s", plan.state.state)
        return None
    with tables.alone(histories):
        for one in plan.returns:
            if not one.is_there:
                tables.restore(one.history, one.commit)
                _log.info("'%s' is what it was in version %s", one.history.name, one.commit.version)
        for history in histories:
            tables.void_notes(history)
    return plan.state.state


def maintain(tables: LakeTables, names: Sequence[str], *, dry_run: bool) -> Iterator[str]:
    """Maintain tables one by one; yield a line of JSON for each.

    Args:
        tables: The tables.
        names: Short names of the tables; empty for all.
        dry_run: Only report.

    Raises:
        SettingsError: A name is unknown, or the state file of a reader cannot be read.
        DestinationError: It failed: the tables can be read, and the maintenance repeated.
        AlreadyRunningError: A run loads into one of the tables.
    """
    found = _named(tables.histories(), names)
    with tables.alone(found):
        for history in found:
            report = tables.maintain(history, dry_run=dry_run)
            for line in report.lines():
                _log.info("%s", line)
            yield json.dumps(report.to_json())


def _named(histories: Sequence[TableHistory], names: Sequence[str]) -> list[TableHistory]:
    known = {history.name: history for history in histories}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SettingsError(
            f"'{unknown[0]}' is not one of the tables of target-spark: {', '.join(known)}",
            where=Where(setting="--table"),
        )
    return [history for history in histories if not names or history.name in names]


def _unreadable(tables: LakeTables, plan: RewindPlan) -> Iterator[str]:
    for one in plan.returns:
        why = None if one.is_there else tables.why_not(one.history, one.commit)
        if why is not None:
            yield why


def _report(plan: RewindPlan) -> None:
    for one in plan.returns:
        what = "stays: it is there already" if one.is_there else "returns"
        at = shown_time(one.commit.at)
        _log.info("'%s' %s: version %s of %s", one.history.name, what, one.commit.version, at)
    notes = () if plan.state is None else plan.state.notes
    for text in (*plan.notes, *notes, *plan.losses):
        _log.warning("%s", text)


def _entry(history: TableHistory, commit: TableCommit, mark: Mark) -> dict[str, Any]:
    return {
        "table": history.name,
        "version": commit.version,
        "time": shown_time(commit.at),
        "run": mark.run or None,
        "stream": mark.stream,
        "rows": mark.rows,
        "state": mark.state,
    }


def _cells(history: TableHistory, commit: TableCommit, mark: Mark) -> tuple[str, ...]:
    text = "-" if mark.state is None else bookmark_text(mark.state, mark.tap_stream)
    short = text if len(text) <= _MOST_STATE else f"{text[: _MOST_STATE - 1]}…"
    rows = "-" if mark.rows is None else str(mark.rows)
    time = shown_time(commit.at)[:23]
    return time, history.name, commit.version, mark.run[:12] or "-", rows, short
