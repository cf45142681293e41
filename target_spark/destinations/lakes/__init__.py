"""Tables of lakes, Delta and Iceberg: what a format must do for the one destination over both."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from target_spark.destinations.contract import Flush
    from target_spark.destinations.lakes.marks import Mark
    from target_spark.plans import TableName, TableRequest
    from target_spark.tables.evolution import Capabilities, TableChange
    from target_spark.tables.names import NameRules


@dataclass(frozen=True)
class Place:
    """Where a table is.

    Attributes:
        table: Its name in SQL text, quoted: `delta`.`/path` or `catalog`.`schema`.`table`.
        shown: Its name in messages.
        folder: Path or URL of its folder where the settings say it; None in a catalog.
    """

    table: str
    shown: str
    folder: str | None = None


@dataclass(frozen=True)
class LakeTable:
    """A table as it is now.

    Attributes:
        struct: Its columns; `nullable` is false for NOT NULL.
        names: Stream's name → table's name of columns, as `TableChange.mapping` was stored.
        partitions: Columns it is partitioned by, unchanged (no transforms).
        properties: Of the table.
    """

    struct: StructType
    names: Mapping[str, str] = field(default_factory=dict)
    partitions: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


class LakeFormat(ABC):
    """One table format. `spark` is a session of the table alone: its conf may be set freely.

    Every method may raise what Spark raises: the caller explains it, and does everything again
    where `conflicts` is found in the text. `conf` is set in a table's session before all else.
    """

    rules: NameRules
    can: Capabilities
    conflicts: re.Pattern[str]
    conf: Mapping[str, str]

    @abstractmethod
    def place(self, name: TableName) -> Place:
        """Where a table goes."""

    @abstractmethod
    def storable(self, struct: StructType) -> StructType:
        """The columns with types that the format has; values are cast to them."""

    @abstractmethod
    def describe(self, spark: SparkSession, place: Place) -> LakeTable | None:
        """The table now, never from a cache; None where there is none."""

    @abstractmethod
    def create(
        self, spark: SparkSession, place: Place, change: TableChange, request: TableRequest
    ) -> None:
        """Makes the table of `change.create`; one that somebody has made meanwhile stays."""

    @abstractmethod
    def alter(
        self,
        spark: SparkSession,
        place: Place,
        change: TableChange,
        request: TableRequest,
        mark: Mark,
    ) -> None:
        """Adds and widens columns, drops NOT NULL; stores `change.mapping` before.

        Its commits carry the mark, if they are among those that `marks` lists.
        """

    @abstractmethod
    def append(
        self,
        spark: SparkSession,
        frame: DataFrame,
        place: Place,
        mark: Mark,
        base: str | None = None,
    ) -> None:
        """Adds rows, of all columns in any order, in one commit with the mark.

        Args:
            spark: The session.
            frame: The rows.
            place: Of the table.
            mark: Of the commit.
            base: See `head`: the commit may have been made since, so that nothing may be added if
                anybody has added rows; None if that cannot be.
        """

    def head(self, spark: SparkSession, place: Place) -> str | None:  # noqa: ARG002
        """The table's newest commit; None if the format itself refuses to repeat a commit."""
        return None

    @abstractmethod
    def execute(self, spark: SparkSession, statement: str, place: Place, mark: Mark) -> None:
        """Runs MERGE, UPDATE or DELETE in one commit with the mark."""

    @abstractmethod
    def version(self, spark: SparkSession, place: Place) -> str | None:
        """Of the table now, another one after every commit; None where there is no table."""

    @abstractmethod
    def replace(
        self,
        spark: SparkSession,
        frame: DataFrame,
        place: Place,
        change: TableChange,
        request: TableRequest,
        mark: Mark,
        version: str | None = None,
    ) -> None:
        """Puts rows, and the columns of `change.create`, in the place of everything there.

        The table may not be there. One commit where it is: readers see all or nothing of it.

        Args:
            spark: The session.
            frame: The rows.
            place: Of the table.
            change: With `create`.
            request: What the stream asks.
            mark: Of the commit.
            version: What frame and change rest on; None where they rest on nothing there.

        Raises:
            LostCommit: The table has another version now.
        """

    @abstractmethod
    def marks(self, spark: SparkSession, place: Place, limit: int) -> Iterable[Mark | None]:
        """The marks of the last `limit` commits, newest first; None for commits of others."""

    @abstractmethod
    def compact(self, spark: SparkSession, place: Place, request: TableRequest) -> None:
        """Joins small files, sorted or clustered as the layout says."""

    def adopt(
        self,
        place: Place,  # noqa: ARG002
        flush: Flush,  # noqa: ARG002
        now: LakeTable,  # noqa: ARG002
        change: TableChange,  # noqa: ARG002
        mark: Mark,  # noqa: ARG002
    ) -> bool:
        """Take the parts of a flush over as files of the table, in one commit with the mark.

        Returns:
            Whether it was done; if not, nothing has happened. The parts stay as they are.
        """
        return False
