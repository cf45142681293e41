"""The contract of table formats (Delta, Iceberg) for the lake destination."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from shared.maps.record_metadata import DELETED_AT
from target_spark.core.balance import Committed
from target_spark.core.load_plans import EVOLVE, TableName, TableRequest
from target_spark.destinations.destination import Flush
from target_spark.destinations.lakes.lake_sql import KeyRange, MergePlan, RowRule, not_null_rules
from target_spark.destinations.lakes.lake_table import LakeTable, Mark, Place, TableHandle
from target_spark.tables.evolution import Planner
from target_spark.tables.table_changes import (
    OURS,
    Capabilities,
    NameRules,
    PartitionStep,
    TableChange,
)

if TYPE_CHECKING:
    from target_spark.tables.version_edit import VersionEdit


@dataclass(frozen=True)
class TableFlush:
    """A flush for a table that has all columns of its rows.

    `request` is its request with columns of the format, and `change` the projection of its rows.
    """

    table: TableHandle
    flush: Flush
    request: TableRequest
    now: LakeTable
    change: TableChange
    mark: Mark

    def merge_plan(self, ranges: tuple[KeyRange, ...]) -> MergePlan:
        """Return the plan of its MERGE, whose keys have these ranges."""
        targets, supplied = self.change.targets, self.change.supplied(self.request.struct.names)
        keys = {targets[key] for key in self.request.keys}
        update = [item.target for item in self.change.projection if item.target in supplied]
        return MergePlan(
            keys=ranges,
            insert=[item.target for item in self.change.projection],
            update=[name for name in update if name not in keys],
            deleted=targets.get(DELETED_AT) if self.request.hard_delete else None,
            order_by=[targets[name] for name in self.request.order_by],
        )


class NeedsSparkError(Exception):
    """Only Spark can tell or do it."""


Keys = tuple[tuple[KeyRange, ...], int]
"""Ranges of key columns, and the number of different keys."""


class TableAccess(ABC):
    """What every engine can do to tables of a format; a format itself does it by Spark."""

    @abstractmethod
    def describe(self, table: TableHandle) -> LakeTable | None:
        """Return the current table, never from a cache; None if there is none."""

    @abstractmethod
    def create(self, table: TableHandle, change: TableChange, request: TableRequest) -> None:
        """Create the table of `change.create`; keep one that was created concurrently."""

    @abstractmethod
    def alter(
        self, table: TableHandle, change: TableChange, request: TableRequest, mark: Mark
    ) -> None:
        """Add and widen columns, drop NOT NULL, change partitions; store `change.mapping` first.

        Its commits carry the mark, if they are among those that `marks` lists.
        """

    @abstractmethod
    def marks(self, table: TableHandle, limit: int) -> Iterable[Mark | None]:
        """Return the marks of the last `limit` commits, newest first; None for others' commits.

        Commits that keep all rows (compactions) may be left out.
        """


class TableEngine(TableAccess):
    """What more than one engine can do to tables of a format: Spark, or a package without it.

    Engines are tried in order, see `lake_work.first_able`; Spark is the last one. Every method but
    Spark's raises NeedsSparkError, after which nothing has changed or Spark can do it all again.
    Its other errors are those of `LakeFormat`. `mark` is that of the commit.
    """

    @abstractmethod
    def load(self, rows: TableFlush, keys: Keys | None, base: str | None) -> Committed:
        """Append, merge or version the rows of a flush, in one commit; return what it tells.

        `keys` is what the parts tell of the keys of an upsert, None if only Spark can tell; for
        `base` see `LakeFormat.append`.

        Raises:
            RefusedByStoreError: Rows break a rule of the table.
        """

    @abstractmethod
    def exchange(
        self, table: TableHandle, flushes: Sequence[Flush], plan: Planner, mark: Mark
    ) -> Committed | None:
        """Make the parts of all flushes of a run the only files of a table, created if missing.

        Returns:
            What the commit tells; None if the rows have to be read, and written by `replace`.
        """

    @abstractmethod
    def may_have_older(self, table: TableHandle, version: int) -> bool:
        """Return whether a table may have rows of versions below this one."""

    @abstractmethod
    def edit(
        self,
        table: TableHandle,
        now: LakeTable,
        columns: tuple[str, str],
        edit: VersionEdit,
        mark: Mark,
    ) -> None:
        """Remove or mark the rows of older versions, in one commit with the mark.

        `columns` are that with the version of rows, and that which marks rows as deleted.
        """


class LakeFormat(TableAccess):
    """One table format. The session is one of the table alone: its conf may be set freely.

    `frame` has all columns of the table, in any order; `mark` is that of the commit, `names` are
    those of the stream's columns in the table.

    Every method may raise Spark's errors: the caller explains them, and repeats everything if
    `conflicts` matches the text; `refusals` finds in it which of `row_rules` a row breaks,
    without its values. `conf` is set in a table's session first.
    """

    branch: str | None = None
    """Takes all commits of a run until they are published; None if they are visible at once."""
    copies: bool = False
    """Whether a run is held back, and audited in a copy of each table."""
    packages: Sequence[TableEngine] = ()
    """The engines to try before Spark, in order."""
    rules: NameRules
    can: Capabilities
    conflicts: re.Pattern[str]
    refusals: re.Pattern[str]
    conf: Mapping[str, str]

    def searched(self, ranges: tuple[KeyRange, ...]) -> tuple[KeyRange, ...]:
        """Return the ranges of keys by which a MERGE may leave out files of the table."""
        return ranges

    def light(self, size: int | None) -> Mapping[str, str]:  # noqa: ARG002
        """Return the session's conf while few bytes are written, which takes Spark long to plan.

        They are those of the table and the flush; None if they are unknown.
        """
        return {}

    @abstractmethod
    def place(self, name: TableName) -> Place:
        """Return the location of a table."""

    @abstractmethod
    def storable(self, struct: StructType) -> StructType:
        """Return the columns with types of the format; values are cast to them."""

    def capabilities(self, now: LakeTable, request: TableRequest) -> Capabilities:
        """Return what of a table may change: nothing of others' rules, unless a setting says so."""
        if OURS in now.names or request.contract.rules == EVOLVE:
            return self.can
        return replace(self.can, is_theirs=True, hint="set `schema_contract.rules` to `evolve`, ")

    def row_rules(self, now: LakeTable) -> Sequence[RowRule]:
        """Return the rules of a table that single rows can break."""
        return not_null_rules(now.struct, inside_null=False)

    def upgrades(self, now: LakeTable, change: TableChange) -> Sequence[str]:  # noqa: ARG002
        """Return the features that a table would need for a change, and does not have."""
        return ()

    def partition_steps(
        self,
        now: LakeTable,  # noqa: ARG002
        request: TableRequest,  # noqa: ARG002
        names: Mapping[str, str],  # noqa: ARG002
    ) -> tuple[PartitionStep, ...]:
        """Return how the partitions of a table become those of the settings; none if they stay."""
        return ()

    @abstractmethod
    def append(
        self, table: TableHandle, frame: DataFrame, mark: Mark, base: str | None = None
    ) -> None:
        """Append rows in one commit with the mark.

        It may have been made since `base` (see `head`), so that it must fail if other programs have
        appended rows; None if it cannot have been made.
        """

    def head(self, table: TableHandle) -> str | None:  # noqa: ARG002
        """Return the table's newest commit; None if the format rejects repeated commits itself."""
        return None

    @abstractmethod
    def execute(self, table: TableHandle, statement: str, mark: Mark) -> None:
        """Run MERGE, UPDATE or DELETE in one commit with the mark."""

    @abstractmethod
    def version(self, table: TableHandle) -> str | None:
        """Return the table's version, which every commit changes; None if there is no table."""

    @abstractmethod
    def replace(
        self,
        table: TableHandle,
        frame: DataFrame,
        change: TableChange,
        request: TableRequest,
        mark: Mark,
        version: str | None = None,
    ) -> None:
        """Replace a table by rows and the columns of `change.create`; without, all rows alone.

        The table may be missing. If it exists, it is one commit: readers see all or nothing of it.
        Frame and change are based on `version`; None if they do not depend on one.

        Raises:
            LostCommit: The table has another version by now.
        """

    @abstractmethod
    def replace_range(
        self, table: TableHandle, frame: DataFrame, condition: str, mark: Mark
    ) -> None:
        """Replace the rows of a condition in SQL by others that meet it, in one commit."""

    def changed_rows(
        self,
        table: TableHandle,  # noqa: ARG002
        mark: Mark,  # noqa: ARG002
        *,
        versions: bool = False,  # noqa: ARG002
    ) -> int | None:
        """Return how many rows the newest commit with the mark has added, updated or deleted.

        By the metadata of the commit alone; None if they do not tell. With `versions`, it is that
        of `lake_sql.versions_sql`: updates only close versions.
        """
        return None

    def stage(self, table: TableHandle) -> str | None:
        """Let all later commits of the session go to the branch; may be repeated.

        Returns:
            The newest commit that is published; None for a table without commits.
        """
        raise NotImplementedError

    def published(self, table: TableHandle) -> str | None:
        """Return the newest published commit, by default the newest of all; None without one."""
        return self.version(table)

    def publish(self, table: TableHandle) -> bool:
        """Make the branch the table, in one step, and remove it; may be repeated.

        Returns:
            False if others have committed to the table since the branch began: nothing was done.
        """
        raise NotImplementedError

    def copy_place(self, folder: str) -> Place:
        """Return the location of a copy in a folder of this run."""
        raise NotImplementedError

    def copy(self, table: TableHandle, version: str, copy: TableHandle) -> None:
        """Make a table with the rows of another one, without reading them."""
        raise NotImplementedError

    def since(self, table: TableHandle, base: str | None) -> tuple[str, Sequence[Mark | None]]:
        """Return the newest version, and the marks of commits after `base`; None for others'.

        None, or a version that is not known, stands for that of the first commit.
        """
        raise NotImplementedError

    def take_rows(self, table: TableHandle, copy: TableHandle, version: str, mark: Mark) -> None:
        """Replace all rows of a table by those of its copy, in one commit with the mark.

        Raises:
            LostCommit: The table is not of this version any more.
        """
        raise NotImplementedError
