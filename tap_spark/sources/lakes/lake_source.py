"""The base of Delta and Iceberg sources: tables, their log of commits, and changes.

Commits are read in groups, one Spark job each. The changes that a destination needs are computed
from old and new rows, which have the number of their commit (`ORDER`), its time (`AT`), and whether
they are a row before (`OLD`) or after it.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.types import StructField, StructType

from shared.errors import SingerSparkError, SourceError, Where
from shared.formats.record_text import json_column
from shared.formats.spark_conform import TypeChangeError, check_types
from shared.settings.texts import quoted
from shared.storage.urls import local_path, shown
from tap_spark.sources.frame_helpers import (
    col,
    missing_columns,
    planned_slice,
    prune,
    struct_from_text,
    with_deleted_at,
)
from tap_spark.sources.source_failures import source_error
from tap_spark.sources.tables import name_parts
from tap_spark.state.stream_plans import Method, Resume, Slice, StreamPlan
from tap_spark.stream_config import StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ORDER, OLD, AT = "_tap_spark_order", "_tap_spark_old", "_tap_spark_at"
_COUNT, _COPY, _HAS_NEW, _TEXT = (
    "_tap_spark_count",
    "_tap_spark_copy",
    "_tap_spark_has_new",
    "_tap_spark_text_",
)


def with_commit_columns(frame: DataFrame, order: Column, old: Column, at: Column) -> DataFrame:
    return frame.select(
        "*", order.cast("long").alias(ORDER), old.alias(OLD), at.cast("timestamp_ltz").alias(AT)
    )


def both_versions(before: DataFrame, after: DataFrame, at: Column) -> DataFrame:
    """Return all rows of two versions of a table, as if one had replaced the other."""
    first = with_commit_columns(before, F.lit(0), F.lit(True), at)
    return first.unionAll(with_commit_columns(after, F.lit(0), F.lit(False), at))


def net_changes(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Keep only rows that changed.

    A row that a commit deletes and inserts unchanged is not a change. With a key, an old row is
    dropped if the same commit has a new row of the key; the old rows that remain are deletions.
    Without a key every old row remains, and destinations get an update as two rows.

    Args:
        frame: Rows with `ORDER`, `OLD` and `AT`.
        keys: The key's columns; empty without a key.
    """
    changed = _without_unchanged(frame)
    if not keys:
        return changed
    same_key = Window.partitionBy(ORDER, *map(col, keys))
    has_new = F.max(~col(OLD)).over(same_key)
    seen = changed.withColumn(_HAS_NEW, has_new)
    return seen.filter(~(col(OLD) & col(_HAS_NEW))).drop(_HAS_NEW)


def as_records(frame: DataFrame, *, ordered: bool) -> DataFrame:
    """Return the records: `_sdc_deleted_at` comes last, and only deleted rows have it.

    Args:
        ordered: Sort by commit, deletions first.
    """
    if ordered:
        frame = frame.orderBy(col(ORDER), col(OLD).desc())
    return with_deleted_at(frame, F.when(col(OLD), col(AT)), (ORDER, OLD, AT))


def _without_unchanged(frame: DataFrame) -> DataFrame:
    """Return the difference of new and old rows of each commit; equal rows count separately."""
    fields = [field for field in frame.schema.fields if field.name not in (ORDER, OLD, AT)]
    texts = {f.name: f"{_TEXT}{n}" for n, f in enumerate(fields) if not _groups_exactly(f.dataType)}
    frame = frame.select(
        "*",
        *(
            json_column(col(f.name), f.dataType).alias(texts[f.name])
            for f in fields
            if f.name in texts
        ),
    )
    groups = [col(ORDER), *(col(texts.get(field.name, field.name)) for field in fields)]
    counted = frame.groupBy(*groups).agg(
        F.sum(F.when(col(OLD), -1).otherwise(1)).alias(_COUNT),
        F.first(col(AT)).alias(AT),
        *(F.first(col(name)).alias(name) for name in texts),
    )
    copies = F.array_repeat(F.lit(True), F.abs(col(_COUNT)).cast("int"))
    return (
        counted.filter(col(_COUNT) != 0)
        .select(
            *(col(field.name) for field in fields),
            col(ORDER),
            (col(_COUNT) < 0).alias(OLD),
            col(AT),
            F.explode(copies).alias(_COPY),
        )
        .drop(_COPY)
    )


def _groups_exactly(dtype: T.DataType) -> bool:
    """Return whether Spark can group by the type exactly; it takes -0.0 for 0.0, for example."""
    if isinstance(dtype, T.StructType):
        return all(_groups_exactly(field.dataType) for field in dtype.fields)
    if isinstance(dtype, T.ArrayType):
        return _groups_exactly(dtype.elementType)
    if isinstance(dtype, T.StringType):
        return dtype.simpleString() == "string"  # in a collation 'a' may equal 'A'
    exact = (T.IntegralType, T.DecimalType, T.BooleanType, T.BinaryType)
    return isinstance(dtype, (*exact, T.DateType, T.TimestampType, T.TimestampNTZType))


_logger = logging.getLogger(__name__)
START_OVER = "remove the stream's bookmark from the state to read it from the start"
_OURS = (
    *("versionasof", "timestampasof", "snapshot-id", "as-of-timestamp", "branch", "tag"),
    *("readchangefeed", "readchangedata", "start-snapshot-id", "end-snapshot-id"),
    *("startingversion", "startingtimestamp", "endingversion", "endingtimestamp"),
)


@dataclass(frozen=True)
class Pinned:
    """A table at the version that the run reads.

    Attributes:
        position: Version or snapshot; None if the table has none yet.
        table_id: Identifies the table, even after another one took its name; None if unknown.
    """

    struct: StructType
    position: int | None
    table_id: str | None


P = TypeVar("P", bound=Pinned)


@dataclass(frozen=True)
class ChangeScan(Generic[P]):
    """One read of changes: of a stream, up to a version, in the columns that are wanted."""

    spark: SparkSession
    plan: StreamPlan
    pinned: P
    want: StructType


class LakeSource(ABC, Generic[P]):
    """A table with versions, by path or by name.

    Raises:
        SourceError: The path does not exist, or path, table or options are invalid.
    """

    kind: str
    """Name of the format in messages."""
    unit: str
    """Name of a position: version or snapshot."""
    why_compared: str
    """Why versions are compared, for the log."""

    def __init__(self, stream: StreamConfig) -> None:
        self.stream = stream
        self.key_properties = stream.key_properties
        self._check_options()
        self.path = self._path() if stream.path is not None else None
        self.name = self._name() if stream.table is not None else ""

    @abstractmethod
    def pin(self, spark: SparkSession) -> P:
        """Find the table's newest version.

        Raises:
            Exception: Any failure of Spark; `explained` turns it into a SourceError.
        """

    @abstractmethod
    def rows(self, spark: SparkSession, pinned: P, want: StructType) -> DataFrame:
        """Return the rows of the pinned version."""

    @abstractmethod
    def rows_at(self, scan: ChangeScan[P], position: int) -> DataFrame:
        """Return the rows of an earlier version, in the columns that are wanted."""

    @abstractmethod
    def counted_rows(self, pinned: P) -> int | None:
        """Return the rows of the pinned version as the metadata tell; None if they do not."""

    @abstractmethod
    def first_bookmark(self, pinned: P) -> Mapping[str, Any] | None:
        """Return the bookmark after the pinned version was read; None if there is none to read.

        Raises:
            SourceError: The table keeps no log of changes.
        """

    @abstractmethod
    def has_position(self, bookmark: Mapping[str, Any]) -> bool:
        """Return whether the bookmark says where in the log the last run ended.

        Raises:
            SourceError: The bookmark is damaged.
        """

    @abstractmethod
    def changes(self, scan: ChangeScan[P]) -> Iterator[Slice]:
        """Return the changes after the plan's bookmark.

        Raises:
            SourceError: The log does not have them any more.
        """

    def schema(self, spark: SparkSession) -> StructType:
        """See `Source.schema`."""
        with self.explained():
            return self.pin(spark).struct

    def slices(self, spark: SparkSession, plan: StreamPlan) -> Iterator[Slice]:
        """See `Source.slices`; the version is looked up once."""
        with self.explained():
            pinned = self.pin(spark)
            want = self._wanted(plan, pinned.struct)
            _logger.info(
                "stream '%s': %s, %s %s", plan.stream, self.shown, self.unit, pinned.position
            )
            yield from self._slices(spark, plan, pinned, want)

    @property
    def shown(self) -> str:
        """Return the table's name for messages."""
        return f"{self.kind} table {self.stream.table or shown(str(self.path))}"

    def error(self, message: str, hint: str = "") -> SourceError:
        return SourceError(message, where=Where(stream=self.stream.name), hint=hint)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Convert failures inside the block to errors that name the stream."""
        try:
            yield
        except SingerSparkError:
            raise
        except TypeChangeError as error:
            raise self.error(
                f"{error}: changes cannot be read across this change of type",
                f"{START_OVER}, and run --discover again",
            ) from error
        except FileNotFoundError as error:
            raise self._no_table() from error
        except OSError as error:
            raise self.error(f"cannot read the table's metadata: {error}") from error
        except Exception as error:
            raise self._explain(error) from error

    def _explain(self, error: Exception) -> SourceError:
        text = str(error)
        if any(sign in text for sign in self.not_a_table):
            return self._no_table()
        return source_error(self.stream.name, error)

    def _no_table(self) -> SourceError:
        return self.error(f"{self.shown} does not exist", "check 'path' or 'table'")

    not_a_table: tuple[str, ...] = ("TABLE_OR_VIEW_NOT_FOUND", "PATH_NOT_FOUND")
    """Texts of errors that mean that the table does not exist."""

    def _slices(
        self, spark: SparkSession, plan: StreamPlan, pinned: P, want: StructType
    ) -> Iterator[Slice]:
        if plan.resume is not Resume.LOG_POSITION:
            slice_ = planned_slice(self.rows(spark, pinned, want), plan)
            whole = plan.resume is Resume.NOTHING and not self.stream.options
            yield replace(slice_, told_rows=self.counted_rows(pinned)) if whole else slice_
        elif self.has_position(plan.bookmark):
            yield from self.changes(ChangeScan(spark, plan, pinned, want))
        else:
            mark = self.first_bookmark(pinned)
            if mark is not None:
                yield self.all_rows(spark, pinned, want, mark)

    def all_rows(
        self, spark: SparkSession, pinned: P, want: StructType, mark: Mapping[str, Any]
    ) -> Slice:
        """Return every row of the pinned version, none of them deleted."""
        mark = {"replication_method": Method.LOG_BASED.value, **mark}
        count = None if self.stream.options else self.counted_rows(pinned)
        none_deleted = F.lit(None).cast("timestamp_ltz")
        records = with_deleted_at(self.rows(spark, pinned, want), none_deleted)
        return Slice(records, mark, told_rows=count)

    def compared(self, scan: ChangeScan[P], part: CommitGroup) -> Slice:
        """Return the changes of commits by the rows before and after them."""
        before, last = part[0].before, part[-1].position
        text = "stream '%s': comparing %ss %s and %s, as %s"
        _logger.info(text, scan.plan.stream, self.unit, before, last, self.why_compared)
        after = self.rows_at(scan, last)
        rows = after.limit(0) if before is None else self.rows_at(scan, before)
        frame = both_versions(rows, after, F.timestamp_micros(F.lit(part[-1].at_micros)))
        return self.changed(scan, part, frame, only_new=False, ordered=False)

    def changed(
        self,
        scan: ChangeScan[P],
        part: CommitGroup,
        frame: DataFrame,
        *,
        only_new: bool,
        ordered: bool,
    ) -> Slice:
        """Return rows with `ORDER`, `OLD` and `AT` as records, with the bookmark after commits.

        Without a key, the order of new rows alone never counts, and that of changes always does.
        """
        keys = scan.plan.key_properties
        ordered = ordered and bool(keys) if only_new else ordered or not keys
        rows = frame if only_new else net_changes(frame, keys)
        at = replace(scan.pinned, position=part[-1].position)
        mark = {"replication_method": Method.LOG_BASED.value, **(self.first_bookmark(at) or {})}
        return Slice(as_records(rows, ordered=ordered), mark, ordered=ordered)

    def fed(self, scan: ChangeScan[P], part: CommitGroup, frame: DataFrame) -> Slice:
        """Do what `changed` does for rows of the log of changes, in the order of the commits."""
        only_new = all(commit.only_new for commit in part)
        return self.changed(scan, part, frame, only_new=only_new, ordered=len(part) > 1)

    def with_stale_rows(
        self, scan: ChangeScan[P], slices: Iterable[Slice], stale: Sequence[str]
    ) -> Iterator[Slice]:
        """Yield changes; then every row if columns are stale, as no change names their rows."""
        if not stale:
            yield from slices
            return
        # The changes still go first: they hold the deletes.
        yield from (replace(slice_, bookmark=None) for slice_ in slices)
        text = "stream '%s': reading every row again, as columns were renamed or replaced: %s"
        _logger.warning(text, scan.plan.stream, ", ".join(stale))
        mark = self.first_bookmark(scan.pinned) or {}
        yield self.all_rows(scan.spark, scan.pinned, scan.want, mark)

    def _wanted(self, plan: StreamPlan, present: StructType) -> StructType:
        """Return the selected columns with the catalog's types."""
        text = plan.source_schema
        gone = missing_columns(plan.columns, present.names)
        if gone:
            raise self.error(
                f"selected columns are no longer in the table: {', '.join(gone)}",
                "run --discover again, or deselect them in the catalog",
            )
        # Columns of the table, if the catalog was written by hand.
        structs = (present, struct_from_text(text)) if text else (present,)
        fields = {f.name: f for struct in structs for f in prune(struct, plan.schema).fields}
        want = StructType([StructField(n, fields[n].dataType, True) for n in plan.columns])
        try:
            check_types(present, want)
        except TypeChangeError as error:
            hint = "run --discover again"
            raise self.error(f"{error} as in the catalog", hint) from error
        return want

    def _check_options(self) -> None:
        ours = [name for name in self.stream.options if name.lower() in _OURS]
        if ours:
            raise self.error(f"tap-spark itself sets the options {', '.join(ours)}", "remove them")

    def _path(self) -> str:
        paths = self.stream.paths
        if len(paths) != 1:
            raise self.error(
                f"a {self.kind} table has exactly one path", "give each table its own stream"
            )
        local = local_path(paths[0])
        if local is None:
            return paths[0].rstrip("/")
        path = Path(local).absolute()
        try:
            is_folder = path.is_dir()
        except OSError as error:
            text = f"folder {paths[0]} cannot be read: {error.strerror}"
            raise self.error(text, "check the permissions of the path") from error
        if not is_folder:
            raise self.error(f"folder {paths[0]} does not exist", "check 'path'")
        return str(path)

    def _name(self) -> str:
        try:
            return ".".join(map(quoted, name_parts(str(self.stream.table))))
        except ValueError as error:
            raise self.error(str(error)) from error


MAX_COMMITS = 100
MAX_ROWS = 1_000_000


class ChangeReadMode(Enum):
    """How the changes of a commit are read."""

    FEED = "from the log of changes"
    APPENDED = "as appended rows, one commit at a time"
    COMPARE = "by comparing the versions before and after"


@dataclass(frozen=True)
class LoggedCommit:
    """One version or snapshot.

    Attributes:
        before: The number of the commit before it; None for the first.
        at_micros: Time of the commit, in microseconds since the epoch.
        rows: Approximate number of changed rows.
        only_new: Whether it did not remove rows.
        alone: Whether it cannot be read with earlier commits, as columns changed.
    """

    position: int
    before: int | None
    at_micros: int
    how: ChangeReadMode = ChangeReadMode.FEED
    rows: int = 0
    only_new: bool = False
    alone: bool = False


CommitGroup = tuple[LoggedCommit, ...]


def group_commits(
    commits: Sequence[LoggedCommit], *, max_commits: int = MAX_COMMITS, max_rows: int = MAX_ROWS
) -> list[CommitGroup]:
    """Group the commits that are read together, in order.

    Args:
        max_rows: Most changed rows of a group of several commits. Commits that are compared
            have neither limit: comparing many costs as much as comparing one.
    """
    groups: list[list[LoggedCommit]] = []
    rows = 0
    for commit in commits:
        last = groups[-1] if groups else []
        together = bool(last) and last[0].how is commit.how and not commit.alone
        if commit.how is ChangeReadMode.APPENDED:
            together = False
        elif commit.how is ChangeReadMode.FEED:
            together = together and len(last) < max_commits and rows + commit.rows <= max_rows
        if together:
            last.append(commit)
            rows += commit.rows
        else:
            groups.append([commit])
            rows = commit.rows
    return [tuple(part) for part in groups]


def with_compared(commits: Sequence[LoggedCommit]) -> list[LoggedCommit]:
    """Compare all commits at once, from the first that must be compared to the last."""
    mode = ChangeReadMode.COMPARE
    numbers = [number for number, commit in enumerate(commits) if commit.how is mode]
    compared = range(numbers[0], numbers[-1] + 1) if numbers else ()
    return [replace(c, how=mode) if n in compared else c for n, c in enumerate(commits)]


def split_in_half(part: CommitGroup) -> tuple[CommitGroup, CommitGroup]:
    """Split a group of several commits in two."""
    middle = len(part) // 2
    return part[:middle], part[middle:]
