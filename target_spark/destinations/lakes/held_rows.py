"""What a run holds back for a table until it is audited, as few steps. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from target_spark.core.balance import Committed
from target_spark.core.load_plans import TableRequest
from target_spark.destinations.destination import Flush
from target_spark.tables.version_edit import VersionEdit


@dataclass(frozen=True)
class HeldEdit:
    """An ACTIVATE_VERSION that takes effect after the flushes before it."""

    request: TableRequest
    edit: VersionEdit


Step = Flush | HeldEdit


def steps_of(held: Sequence[Step]) -> list[Step]:
    """Return the steps with those flushes merged that one commit can load; none without rows.

    A merged flush has the token, the request and the STATE of its last one.
    """
    return [step for _, group in groupby(held, key=_kind) for step in _merged(list(group))]


def flushes_in(held: Sequence[Step]) -> list[Flush]:
    """Return the flushes alone."""
    return [step for step in held if isinstance(step, Flush)]


def summed(found: Sequence[Committed]) -> Committed:
    """Return what several commits tell together."""
    rows = [one.rows for one in found if one.rows is not None]
    keys = [one.keys for one in found if one.keys is not None]
    return Committed(
        rows=sum(rows) if len(rows) == len(found) else None,
        keys=sum(keys) if found and len(keys) == len(found) else None,
        by_key=any(one.by_key for one in found),
        may_skip=any(one.may_skip for one in found),
    )


def _kind(step: Step) -> Hashable:
    if isinstance(step, HeldEdit):
        return step.request.stream
    return step.request.struct.json(), step.request.keys


def _merged(group: Sequence[Step]) -> Iterator[Step]:
    flushes = flushes_in(group)
    if not flushes:
        yield from group
        return
    parts = tuple(part for flush in flushes for part in flush.parts)
    if parts:
        yield replace(flushes[-1], parts=parts)
