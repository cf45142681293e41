"""Expectations of a run: what the rows of a stream must be like. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from shared.errors import ExpectationError, Where


@dataclass(frozen=True)
class Expectations:
    """What is expected of one stream; see `ExpectSettings`."""

    min_rows: int | None = None
    max_null_share: Mapping[str, float] = field(default_factory=dict)
    fresh_within: Mapping[str, float] = field(default_factory=dict)
    no_rows_where: tuple[str, ...] = ()
    withhold_state: bool = False


@dataclass
class Profile:
    """The rows of a stream that became durable in this run.

    Attributes:
        rows: Their number.
        columns: Nulls, least and greatest value of each column; see
            `shared.formats.parquet_profile`.
    """

    rows: int = 0
    columns: dict[str, list[Any]] = field(default_factory=dict)


def check_expectations(
    wanted: Mapping[str, Expectations], profiles: Mapping[str, Profile], now: float
) -> None:
    """Check all streams.

    Args:
        wanted: Expectations by stream.
        profiles: What became durable, by stream.
        now: Seconds since the epoch.

    Raises:
        ExpectationError: At least one does not hold; names all.
    """
    found = broken_expectations(wanted, profiles, now)
    if not found:
        return
    alone = next(iter(wanted)) if len(wanted) == 1 else None
    raise ExpectationError(
        f"expectations do not hold: {'; '.join(found)}",
        where=Where(stream=alone, setting="expect"),
        hint="the rows are committed; correct the source or the setting",
    )


def broken_expectations(
    wanted: Mapping[str, Expectations], profiles: Mapping[str, Profile], now: float
) -> list[str]:
    """Return what does not hold, with the name of its stream; see `check_expectations`."""
    return [
        f"stream '{stream}': {text}"
        for stream, expected in wanted.items()
        for text in violations(expected, profiles.get(stream) or Profile(), now)
    ]


def violations(expected: Expectations, profile: Profile, now: float) -> Iterator[str]:
    """Yield what does not hold, as text."""
    if expected.min_rows is not None and profile.rows < expected.min_rows:
        yield f"{profile.rows} rows, at least {expected.min_rows} are expected"
    if not profile.rows:
        return
    for column, most in expected.max_null_share.items():
        facts = profile.columns.get(column)
        if facts is None:
            yield f"the nulls of column '{column}' are not known"
        elif facts[0] > most * profile.rows:
            share = facts[0] / profile.rows
            yield f"{share:.1%} of column '{column}' are null, at most {most:.1%} are expected"
    for column, seconds in expected.fresh_within.items():
        newest = _instant((profile.columns.get(column) or [0, None, None])[2])
        if newest is None:
            yield f"the newest time in column '{column}' is not known"
        elif newest < now - seconds:
            age = f"{now - newest:,.0f} s old, at most {seconds:,.0f} s are expected"
            yield f"the newest '{column}' is {age}"


def _instant(value: Any) -> float | None:
    """Return a time as seconds since the epoch; without a zone it is one in UTC."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()
