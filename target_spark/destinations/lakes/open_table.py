"""A table that a stream of the run uses, and what waits for it as few steps. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any

from target_spark.core.balance import Committed
from target_spark.core.load_plans import TableRequest
from target_spark.destinations.destination import Flush
from target_spark.destinations.folders.table_folder import TableFolder
from target_spark.destinations.lakes.lake_table import Place
from target_spark.tables.version_edit import VersionEdit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


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


def summed(results: Sequence[Committed]) -> Committed:
    """Return what several commits tell together."""
    rows = [one.rows for one in results if one.rows is not None]
    keys = [one.keys for one in results if one.keys is not None]
    return Committed(
        rows=sum(rows) if len(rows) == len(results) else None,
        keys=sum(keys) if results and len(keys) == len(results) else None,
        by_key=any(one.by_key for one in results),
        may_skip=any(one.may_skip for one in results),
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


@dataclass
class OpenTable:
    """A table that a stream of this run uses.

    Attributes:
        place: Location of the table.
        folder: Folder for its parts.
        sessions: Returns its own session, and starts Spark if it has not been started.
        lock: Allows one commit at a time.
        held: What waits for the end of the run: with `overwrite`, or until it is audited.
        tried: Tokens of flushes whose commit has been tried.
        view: Columns of its view that this run has created.
        is_staged: Its commits are not published yet.
        base: What was published when they began.
        ending: The request of a stream that ends when they are published.
        copy: A copy of the table with what waits, to be audited; None if nothing does.
        copied: What the commits to the copy tell.
        is_copy: Whether it is such a copy.
    """

    place: Place
    folder: TableFolder
    sessions: Callable[[], SparkSession]
    lock: Any
    held: list[Step] = field(default_factory=list)
    tried: set[str] = field(default_factory=set)
    view: StructType | None = None
    is_staged: bool = False
    base: str | None = None
    ending: TableRequest | None = None
    copy: OpenTable | None = None
    copied: Committed | None = None
    is_copy: bool = False

    @property
    def flushes(self) -> list[Flush]:
        """Return the flushes that wait."""
        return flushes_in(self.held)

    @cached_property
    def spark(self) -> SparkSession:
        """Return the session of the table."""
        return self.sessions()
