"""Which commit each table returns to, and the STATE that is true there. Pure."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from shared.errors import SettingsError, Where
from target_spark.core.stored_states import JointState, StateConflict, TableState, joint_state
from target_spark.destinations.lakes.table_history import TableCommit, TableHistory, shown_time


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
    """The return of one table.

    Attributes:
        history: The table.
        commit: What it returns to.
        is_there: It has these rows already.
    """

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
        histories: All tables.

    Raises:
        SettingsError: It is neither, or more than one run begins like that.
    """
    commits = [commit for history in histories for commit in history.made]
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
        target: The moment.
        names: Short names of the tables that return; None for all.
    """
    returns: list[Return] = []
    states: list[TableState] = []
    problems: list[str] = []
    losses: list[str] = []
    notes: list[str] = []
    for history in histories:
        if names is not None and history.name not in names:
            states += _states(history, history.newest)
            if not history.is_moment(history.newest):
                losses.append(f"'{history.name}' stays and {_NO_STATE}: its rows may come twice")
            continue
        start = _at(history, target)
        lineage = () if start is None else tuple(history.lineage(start))
        moment = next((commit for commit in lineage if history.is_moment(commit)), None)
        if moment is not None:
            found = Return(history, moment, _same(history, moment))
            returns.append(found)
            states += _states(history, moment)
            others = () if found.is_there else history.lost(moment)
            if others:
                losses.append(
                    f"'{history.name}' would lose {len(others)} commits of others, the last at "
                    f"{shown_time(others[0].at)}"
                )
            if moment != start:
                notes.append(f"'{history.name}' returns to an earlier commit: the last {_NO_STATE}")
        elif start is not None and history.marks(start):
            problems.append(f"no commit of '{history.name}' up to then can be used: it {_NO_STATE}")
        elif not history.is_complete:
            problems.append(f"the commits of '{history.name}' up to then are gone (expired)")
        else:
            losses.append(
                f"'{history.name}' was created later and stays as it is: "
                "drop it before the next load, which sends its rows again"
            )
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
        own = [c for c in history.made if c.mark is not None and c.mark.run == target.run]
        if own:
            return own[-1]
    before = [commit for commit in history.commits if commit.at <= target.at]
    return before[-1] if before else None


def _same(history: TableHistory, moment: TableCommit) -> bool:
    return history.content(history.newest) == history.content(moment)


def _states(history: TableHistory, commit: TableCommit) -> list[TableState]:
    return [
        TableState(history.name, mark.tap_stream, mark.state, one.at)
        for one, mark in history.marks(commit).values()
        if mark.state is not None
    ]


def _wrong(text: str, hint: str) -> SettingsError:
    return SettingsError(text, where=Where(setting="--to"), hint=hint)
