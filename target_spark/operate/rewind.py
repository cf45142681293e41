"""The commands `history` and `rewind`: the commit to which each table returns, and its STATE."""

from __future__ import annotations

import json
import logging
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from shared.errors import DestinationError, SettingsError, Where
from shared.settings.texts import text_table
from target_spark.core.states import (
    JointState,
    StateConflict,
    TableState,
    bookmark_text,
    joint_state,
)
from target_spark.destinations.lakes.lake_table import Mark
from target_spark.operate.table_history import UNKNOWN, TableCommit, TableHistory, shown_time
from target_spark.operate.table_maintenance import LakeTables


@dataclass(frozen=True)
class Target:
    """The moment to return to.

    Attributes:
        at: The moment, seconds since the epoch.
        run: The run that it is the end of, if any.
    """

    at: float
    run: str | None = None


@dataclass(frozen=True)
class Return:
    """The return of one table to a commit, whose rows it may have already (`is_there`)."""

    history: TableHistory
    commit: TableCommit
    is_there: bool


@dataclass(frozen=True)
class RewindPlan:
    """What a rewind does.

    Attributes:
        returns: The tables that return.
        state: The STATE after it; None if there is a problem.
        problems: Why it is impossible, one line each.
        losses: What would be lost or left behind, one line each; it needs consent.
        notes: What a user should know, one line each.
    """

    returns: tuple[Return, ...]
    state: JointState | None
    problems: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def target_of(text: str, histories: Sequence[TableHistory]) -> Target:
    """Return the moment that a user names.

    Args:
        text: A run, the beginning of its name, or a time in ISO 8601 (UTC without an offset).

    Raises:
        SettingsError: It is neither, or more than one run begins like that.
    """
    commits = [commit for history in histories for commit in history.created]
    ends: dict[str, float] = {}
    for commit in commits:
        run = commit.mark.run if commit.mark is not None else ""
        if run and run.startswith(text):
            ends[run] = max(commit.at, ends.get(run, commit.at))
    if len(ends) > 1:
        shown = ", ".join(sorted(ends)[:5])
        raise _wrong(f"{len(ends)} runs begin with '{text}': {shown}", "name more of it")
    if ends:
        ((run, at),) = ends.items()
        return Target(at, run)
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise _wrong(
            f"'{text}' is neither a run with commits in these tables nor a time in ISO 8601",
            "`target-spark history` lists the runs",
        ) from None
    zoned = time if time.tzinfo is not None else time.replace(tzinfo=timezone.utc)
    return Target(zoned.timestamp())


def plan_rewind(
    histories: Sequence[TableHistory], target: Target, names: Container[str] | None = None
) -> RewindPlan:
    """Plan the return of tables.

    Args:
        histories: All tables, those that stay too: the STATE covers all of them.
        names: Short names of the tables that return; None for all.
    """
    returns: list[Return] = []
    states: list[TableState] = []
    problems: list[str] = []
    losses: list[str] = []
    notes: list[str] = []
    for history in histories:
        # 1. A table that stays has a say in the STATE, too: as it is now.
        if names is not None and history.name not in names:
            states += _states(history, history.newest)
            if not history.is_moment(history.newest):
                losses.append(f"'{history.name}' stays and {_NO_STATE}: its rows may come twice")
            continue
        # 2. The newest commit up to the target after which the STATE of each stream is known.
        start = _at(history, target)
        lineage = () if start is None else tuple(history.lineage(start))
        moment = next((commit for commit in lineage if history.is_moment(commit)), None)
        if moment is not None:
            is_there = history.content(history.newest) == history.content(moment)
            returns.append(Return(history, moment, is_there))
            states += _states(history, moment)
            others = () if is_there else history.lost(moment)
            if others:
                losses.append(
                    f"'{history.name}' would lose {len(others)} commits of others, the last at "
                    f"{shown_time(others[0].at)}"
                )
            if moment != start:
                notes.append(f"'{history.name}' returns to an earlier commit: the last {_NO_STATE}")
        # 3. Without one: why. Only a table that came later lets the others return.
        elif start is not None and history.marks(start):
            problems.append(f"no commit of '{history.name}' up to then can be used: it {_NO_STATE}")
        elif lineage and lineage[-1].base == UNKNOWN:
            problems.append(
                f"others had restored '{history.name}' to a time: its STATE then is unknown"
            )
        elif not history.is_complete:
            problems.append(f"the commits of '{history.name}' up to then are gone (expired)")
        else:
            losses.append(
                f"'{history.name}' was created later and stays as it is: "
                "drop it before the next load, which sends its rows again"
            )
    # 4. One STATE that is true for all tables together.
    state = None
    try:
        state = joint_state(states) if states else None
    except StateConflict as conflict:
        problems.append(str(conflict))
    if not returns and not problems:
        problems.append("no table has a commit up to then")
    return RewindPlan(
        tuple(returns), None if problems else state, tuple(problems), tuple(losses), tuple(notes)
    )


_NO_STATE = "has no STATE (its flush ended between two of them, or was made by an older version)"


def _at(history: TableHistory, target: Target) -> TableCommit | None:
    """Return what the table was at the moment."""
    if target.run is not None:
        own = [c for c in history.created if c.mark is not None and c.mark.run == target.run]
        if own:
            return own[-1]
    before = [commit for commit in history.commits if commit.at <= target.at]
    return before[-1] if before else None


def _states(history: TableHistory, commit: TableCommit) -> list[TableState]:
    return [
        TableState(history.name, mark.tap_stream, mark.state, one.at)
        for one, mark in history.marks(commit).values()
        if mark.state is not None
    ]


def _wrong(text: str, hint: str) -> SettingsError:
    return SettingsError(text, where=Where(setting="--to"), hint=hint)


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
        names: Short names of those to list; empty for all.
        limit: Most commits to list.
        as_json: One JSON object a line; else a table for people.
        width: Most characters in a line of the table; None for any number.

    Raises:
        SettingsError: A name is unknown.
        DestinationError: The tables cannot be read.
    """
    result = _named(tables.histories(names), names)
    commits = [
        (history, commit, commit.mark)
        for history in result
        for commit in history.created
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
    changing = [one for one in plan.returns if not one.is_there]
    obstacles = (tables.why_not(one.history, one.commit) for one in changing)
    problems = [*plan.problems, *filter(None, obstacles)]
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
        for one in changing:
            tables.restore(one.history, one.commit)
            _log.info("'%s' is what it was in version %s", one.history.name, one.commit.version)
        for history in histories:
            tables.void_notes(history)
    return plan.state.state


def maintain(tables: LakeTables, names: Sequence[str], *, dry_run: bool) -> Iterator[str]:
    """Maintain tables one by one, all of them without names; yield a line of JSON for each.

    Raises:
        SettingsError: A name is unknown, or the state file of a reader cannot be read.
        DestinationError: It failed: the tables can be read, and the maintenance repeated.
        AlreadyRunningError: A run loads into one of the tables.
    """
    result = _named(tables.histories(names), names)
    with tables.alone(result):
        for history in result:
            report = tables.maintain(history, dry_run=dry_run)
            for line in report.lines():
                _log.info("%s", line)
            yield json.dumps(report.to_json())
    if tables.unread and not names:
        raise tables.unread[-1]


def _named(histories: Sequence[TableHistory], names: Sequence[str]) -> list[TableHistory]:
    existing = {history.name: history for history in histories}
    unknown = [name for name in names if name not in existing]
    if unknown:
        raise SettingsError(
            f"'{unknown[0]}' is not one of the tables of target-spark: {', '.join(existing)}",
            where=Where(setting="--table"),
        )
    return [history for history in histories if not names or history.name in names]


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
