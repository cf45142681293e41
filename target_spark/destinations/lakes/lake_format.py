"""The contract of table formats (Delta, Iceberg) for the lake destination."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from target_spark.core.load_plans import TableName, TableRequest
    from target_spark.destinations.destination import Flush
    from target_spark.destinations.lakes.commit_marks import Mark
    from target_spark.destinations.lakes.merge import KeyRange
    from target_spark.tables.evolution import Capabilities, TableChange
    from target_spark.tables.legal_names import NameRules


@dataclass(frozen=True)
class Place:
    """The location of a table.

    Attributes:
        table: Its name in SQL text, quoted: `delta`.`/path` or `catalog`.`schema`.`table`.
        shown: Its name in messages.
        folder: Path or URL of its folder by the settings; None in a catalog.
    """

    table: str
    shown: str
    folder: str | None = None


@dataclass(frozen=True)
class LakeTable:
    """An existing table.

    Attributes:
        struct: Its columns; `nullable` is false for NOT NULL.
        names: Stream's name → table's name of columns, as `TableChange.mapping` was stored.
        partitions: Columns it is partitioned by, unchanged (no transforms).
        properties: Properties of the table.
        size: Bytes of its files; None if the format does not know them without reading.
    """

    struct: StructType
    names: Mapping[str, str] = field(default_factory=dict)
    partitions: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    size: int | None = None


class LakeFormat(ABC):
    """One table format. `spark` is a session of the table alone: its conf may be set freely.

    Every method may raise Spark's errors: the caller explains them, and repeats everything if
    `conflicts` matches the text. `conf` is set in a table's session first.
    """

    rules: NameRules
    can: Capabilities
    conflicts: re.Pattern[str]
    conf: Mapping[str, str]

    def light(self, size: int | None) -> Mapping[str, str]:  # noqa: ARG002
        """Return the session's conf while few bytes are written, which takes Spark long to plan.

        Args:
            size: Bytes of the table and the flush; None if they are unknown.
        """
        return {}

    @abstractmethod
    def place(self, name: TableName) -> Place:
        """Return the location of a table."""

    @abstractmethod
    def storable(self, struct: StructType) -> StructType:
        """Return the columns with types of the format; values are cast to them."""

    @abstractmethod
    def describe(self, spark: SparkSession, place: Place) -> LakeTable | None:
        """Return the current table, never from a cache; None if there is none."""

    @abstractmethod
    def create(
        self, spark: SparkSession, place: Place, change: TableChange, request: TableRequest
    ) -> None:
        """Create the table of `change.create`; keep one that was created concurrently."""

    @abstractmethod
    def alter(
        self,
        spark: SparkSession,
        place: Place,
        change: TableChange,
        request: TableRequest,
        mark: Mark,
    ) -> None:
        """Add and widen columns, drop NOT NULL; store `change.mapping` first.

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
        """Append rows, with all columns in any order, in one commit with the mark.

        Args:
            spark: The session.
            frame: The rows.
            place: Location of the table.
            mark: Mark of the commit.
            base: See `head`: this commit may have been made since then, so that it must fail if
                other programs have appended rows; None if it cannot have been made.
        """

    def head(self, spark: SparkSession, place: Place) -> str | None:  # noqa: ARG002
        """Return the table's newest commit; None if the format rejects repeated commits itself."""
        return None

    @abstractmethod
    def execute(self, spark: SparkSession, statement: str, place: Place, mark: Mark) -> None:
        """Run MERGE, UPDATE or DELETE in one commit with the mark."""

    @abstractmethod
    def version(self, spark: SparkSession, place: Place) -> str | None:
        """Return the table's version, which every commit changes; None if there is no table."""

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
        """Replace a table by rows and the columns of `change.create`.

        The table may be missing. If it exists, it is one commit: readers see all or nothing of it.

        Args:
            spark: The session.
            frame: The rows.
            place: Of the table.
            change: A change with `create`.
            request: The request of the stream.
            mark: Of the commit.
            version: Version that frame and change are based on; None if they do not depend on one.

        Raises:
            LostCommit: The table has another version by now.
        """

    @abstractmethod
    def marks(self, spark: SparkSession, place: Place, limit: int) -> Iterable[Mark | None]:
        """Return the marks of the last `limit` commits, newest first; None for others' commits."""

    @abstractmethod
    def compact(self, spark: SparkSession, place: Place, request: TableRequest) -> None:
        """Compact small files, sorted or clustered as the layout says."""

    def adopt(
        self,
        place: Place,  # noqa: ARG002
        flush: Flush,  # noqa: ARG002
        now: LakeTable,  # noqa: ARG002
        change: TableChange,  # noqa: ARG002
        mark: Mark,  # noqa: ARG002
        keys: Sequence[KeyRange] = (),  # noqa: ARG002
    ) -> bool:
        """Adopt the parts of a flush as files of the table, in one commit with the mark.

        Args:
            place: Location of the table.
            flush: The flush.
            now: The table.
            change: The projection of its rows.
            mark: Mark of the commit.
            keys: Keys of the flush, if the table must not hold any of them; empty if it may.

        Returns:
            Whether it was done; if not, nothing has changed. The parts stay unchanged.
        """
        return False
