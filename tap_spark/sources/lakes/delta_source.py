"""Delta tables: any version of them, and their change data feed, by their history."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from shared.errors import SourceError
from shared.formats.arrow_types import as_nullable
from shared.formats.spark_conform import Names, Path, conformed
from shared.settings.texts import quoted
from shared.storage.urls import local_path
from tap_spark.sources.frame_helpers import col
from tap_spark.sources.lakes.lake_source import (
    START_OVER,
    ChangeReadMode,
    ChangeScan,
    CommitGroup,
    LakeSource,
    LoggedCommit,
    Pinned,
    group_commits,
    split_in_half,
    with_commit_columns,
)
from tap_spark.state.stream_plans import Slice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession


CHANGE_FEED = "delta.enableChangeDataFeed"
_COLUMNS_CHANGE = ("RENAME COLUMN", "DROP COLUMNS", "CHANGE COLUMN", "CHANGE COLUMNS")
_REPLACES = ("REPLACE", "CREATE OR REPLACE", "RESTORE", "CLONE")
_ROW_COUNTS = (
    "numOutputRows",
    "numUpdatedRows",
    "numDeletedRows",
    "numTargetRowsInserted",
    "numTargetRowsUpdated",
    "numTargetRowsDeleted",
)
_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


@dataclass(frozen=True)
class DeltaVersion:
    """One line of DESCRIBE HISTORY.

    Attributes:
        at_micros: Time of the commit, in microseconds since the epoch.
        operation: Delta's name of the operation.
        parameters: Its parameters, mostly JSON texts.
        blind_append: Whether it only added rows.
    """

    number: int
    at_micros: int
    operation: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, str]
    blind_append: bool

    @property
    def changes_columns(self) -> bool:
        """Return whether a read of the change feed across it may fail."""
        return self.operation.startswith((*_COLUMNS_CHANGE, "REPLACE COLUMNS", *_REPLACES)) or (
            self.replaces_rows
        )

    @property
    def replaces_rows(self) -> bool:
        """Return whether it may have replaced rows with rows of other columns."""
        overwrites = self.parameters.get("mode") == "Overwrite"
        return overwrites or self.operation.startswith(_REPLACES)

    def commit(self) -> LoggedCommit:
        """Return the version as a commit of the log."""
        metrics = [self.metrics.get(name) or "" for name in _ROW_COUNTS]
        return LoggedCommit(
            self.number,
            self.number - 1,
            self.at_micros,
            rows=sum(int(text) for text in metrics if text.isdigit()),
            only_new=self.blind_append,
            alone=self.changes_columns,
        )


def names_at(versions: Iterable[DeltaVersion], number: int) -> Names:
    """Return the names of today's columns in an earlier version.

    Args:
        versions: Every version since then.
        number: The earlier version.
    """
    names: dict[Path, str] = {}
    for version in sorted(versions, key=lambda each: each.number):
        moved = renamed(version) if version.number > number else None
        if moved is not None and len(moved[0]) == 1:
            old, new = moved[0][0], moved[1][0]
            names[new,] = names.pop((old,), old)
    return dict(names)


def renamed(version: DeltaVersion) -> tuple[Path, Path] | None:
    """Return the old and new path of the field that a version renamed."""
    if version.operation != "RENAME COLUMN":
        return None
    parameters = version.parameters
    return _path(parameters.get("oldColumnPath", "")), _path(parameters.get("newColumnPath", ""))


def stale_columns(versions: Sequence[DeltaVersion], columns: Iterable[str]) -> list[str]:
    """Return columns whose rows a destination must get again, though no row changed.

    They, or fields inside them, were renamed, or dropped and added again.
    """
    touched: set[str] = set()
    added_later = any(version.operation == "ADD COLUMNS" for version in versions)
    for version in versions:
        moved = renamed(version)
        if moved is not None:
            touched.discard(moved[0][0] if len(moved[0]) == 1 else "")
            touched.add(moved[1][0])
        if version.operation == "DROP COLUMNS":
            dropped = map(_path, json.loads(version.parameters.get("columns") or "[]"))
            touched.update(path[0] for path in dropped if len(path) == 1 or added_later)
    return [name for name in columns if name in touched]


def _path(text: str) -> Path:
    return tuple((quoted.replace("``", "`") or plain) for quoted, plain in _PART.findall(text))


MOST_FILES = 10_000
"""Files of a table whose statistics the driver reads."""


def rows_in_log(folder: str, version: int) -> int | None:
    """Return the rows of a version by the statistics of its files; None if they do not tell."""
    try:
        from deltalake import DeltaTable  # noqa: PLC0415
        from deltalake.exceptions import DeltaError  # noqa: PLC0415
    except ImportError:
        return None
    # The package decodes %3A in a path, and takes a backslash for a slash: another table.
    if unquote(folder) != folder or "\\" in folder:
        return None
    try:
        table = DeltaTable(folder, version=version)
        # The statistics count rows that a deletion vector hides.
        if "deletionVectors" in (table.protocol().reader_features or ()):
            return None
        rows = pa.table(table.get_add_actions())["num_records"]
    except (DeltaError, OSError, ValueError, KeyError):
        return None
    return None if rows.null_count else sum(rows.to_pylist())


_CHANGE, _VERSION, _TIME = "_change_type", "_commit_version", "_commit_timestamp"
_BEFORE = ("delete", "update_preimage")
_INCOMPATIBLE = "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE"
_NO_FEED = "DELTA_MISSING_CHANGE_DATA"
_GONE = ("DELTA_VERSION_NOT_FOUND", "DELTA_TRUNCATED_TRANSACTION_LOG", "DELTA_LOG_FILE_NOT_FOUND")
_COMMITS_MEANWHILE = 1_000
_ENABLE = "ALTER TABLE ... SET TBLPROPERTIES (delta.enableChangeDataFeed = true)"


@dataclass(frozen=True)
class DeltaPinned(Pinned):
    """A Delta table at a version.

    Attributes:
        has_feed: Whether its change data feed is on now.
        versions: Those after the bookmark.
    """

    has_feed: bool
    files: int
    versions: tuple[DeltaVersion, ...] = ()


Scan = ChangeScan[DeltaPinned]


class DeltaSource(LakeSource[DeltaPinned]):
    """A Delta table."""

    kind, unit = "Delta", "version"
    why_compared = "columns changed between them"
    not_a_table = (
        "DELTA_TABLE_ONLY_OPERATION",
        "DELTA_MISSING_DELTA_TABLE",
        "DELTA_TABLE_NOT_FOUND",
        *LakeSource.not_a_table,
    )

    @property
    def relation(self) -> str:
        """Return the table as SQL names it."""
        return self.name or f"delta.{quoted(str(self.path))}"

    def schema(self, spark: SparkSession) -> StructType:
        """See `Source.schema`; of a folder, it takes no query of the log."""
        if self.name:
            return super().schema(spark)
        with self.explained():
            return self._load(self._reader(spark)).schema

    def pin(self, spark: SparkSession) -> DeltaPinned:
        newest = spark.sql(f"DESCRIBE HISTORY {self.relation} LIMIT 1").select("version").collect()
        details = spark.sql(f"DESCRIBE DETAIL {self.relation}")
        detail = details.select("id", "properties", "numFiles").first()
        version = int(newest[0].version)
        table_id, properties = (detail.id, detail.properties) if detail else (None, {})
        has_feed = str((properties or {}).get(CHANGE_FEED)).lower() == "true"
        files = int(detail.numFiles or 0) if detail else 0
        struct = self._version(spark, version).schema
        return DeltaPinned(struct, version, table_id, has_feed, files)

    def rows(self, spark: SparkSession, pinned: DeltaPinned, want: StructType) -> DataFrame:
        return conformed(self._version(spark, int(pinned.position or 0)), want)

    def rows_at(self, scan: Scan, position: int) -> DataFrame:
        names = names_at(scan.pinned.versions, position)
        return conformed(self._version(scan.spark, position), scan.want, names)

    def counted_rows(self, pinned: DeltaPinned) -> int | None:
        """See `LakeSource.counted_rows`: by the statistics of a table on a local disk."""
        if self.path is None or local_path(self.path) is None or pinned.position is None:
            return None
        many = pinned.files > MOST_FILES
        return None if many else rows_in_log(self.path, pinned.position)

    def first_bookmark(self, pinned: DeltaPinned) -> Mapping[str, Any]:
        if not pinned.has_feed:
            raise self.error(
                "the table does not record its changes", f"run {_ENABLE}, or use FULL_TABLE"
            )
        return {"table_id": pinned.table_id, "version": pinned.position}

    def has_position(self, bookmark: Mapping[str, Any]) -> bool:
        version = bookmark.get("version")
        if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
            raise self.error(f"the bookmark's version {version!r} is not a number", START_OVER)
        return version is not None

    def changes(self, scan: Scan) -> Iterator[Slice]:
        spark, plan, pinned = scan.spark, scan.plan, scan.pinned
        after, newest = int(plan.bookmark["version"]), int(pinned.position or 0)
        self._check_bookmark(plan.bookmark, pinned)
        if after == newest:
            return
        self.first_bookmark(pinned)
        # 1. Every version since the bookmark must still be in the log: a gap would lose changes.
        versions = self._history(spark, after, newest)
        # 2. Columns that were renamed or replaced need all rows again.
        stale = stale_columns(versions, plan.columns) if plan.key_properties else []
        parts = group_commits([self._planned(spark, version) for version in versions])
        scan = replace(scan, pinned=replace(pinned, versions=tuple(versions)))
        slices = chain.from_iterable(self._slices_of(scan, part) for part in parts)
        yield from self.with_stale_rows(scan, slices, stale)

    def _explain(self, error: Exception) -> SourceError:
        if any(sign in str(error) for sign in _GONE):
            return self.error("a version to read is no longer in the table's log", START_OVER)
        return super()._explain(error)

    def _check_bookmark(self, bookmark: Mapping[str, Any], pinned: DeltaPinned) -> None:
        table_id = bookmark.get("table_id")
        if table_id is not None and table_id != pinned.table_id:
            raise self.error("the table was replaced after the bookmark was written", START_OVER)
        after = bookmark["version"]
        if after > int(pinned.position or 0):
            raise self.error(
                f"the bookmark is at version {after}, the table only at {pinned.position}: it was "
                "replaced by an older copy",
                START_OVER,
            )

    def _history(self, spark: SparkSession, after: int, newest: int) -> list[DeltaVersion]:
        """Return every version after one, up to another.

        Raises:
            SourceError: The first of them are gone from the log.
        """
        # The newest come first; some may be newer than the pinned version.
        most = newest - after + _COMMITS_MEANWHILE
        history = spark.sql(f"DESCRIBE HISTORY {self.relation} LIMIT {most}").filter(
            (col("version") > after) & (col("version") <= newest)
        )
        commits = history.select(
            "version",
            F.unix_micros("timestamp").alias("micros"),
            "operation",
            "operationParameters",
            "operationMetrics",
            "isBlindAppend",
        ).collect()
        versions = [_version(row) for row in commits]
        versions.sort(key=lambda version: version.number)
        if [version.number for version in versions] != list(range(after + 1, newest + 1)):
            raise self._expired(after)
        return versions

    def _expired(self, after: int) -> SourceError:
        return self.error(
            f"the changes after version {after} are no longer in the table's log", START_OVER
        )

    def _planned(self, spark: SparkSession, version: DeltaVersion) -> LoggedCommit:
        """Return a version as a commit; compared if it replaced rows by rows of other columns."""
        commit = version.commit()
        if not version.replaces_rows:
            return commit
        before, after = (
            self._version(spark, n).schema for n in (version.number - 1, version.number)
        )
        same = as_nullable(before) == as_nullable(after)
        return commit if same else replace(commit, how=ChangeReadMode.COMPARE)

    def _slices_of(self, scan: Scan, part: CommitGroup) -> Iterator[Slice]:
        """Read commits as one slice, or as several if the columns changed on the way."""
        # The feed of a range is read with the schema of its last version, and Delta refuses some
        # ranges that span a change of columns. Halving such a range finds the parts that can be
        # read; a single version that cannot is compared with the one before it.
        if part[0].how is ChangeReadMode.COMPARE or (
            len(part) == 1 and self._is_unreadable(scan, part)
        ):
            yield self.compared(scan, part)
        elif len(part) > 1 and self._is_unreadable(scan, part):
            for half in split_in_half(part):
                yield from self._slices_of(scan, half)
        else:
            yield self._fed(scan, part)

    def _is_unreadable(self, scan: Scan, part: CommitGroup) -> bool:
        """Return whether the feed cannot be read at once, which Delta says only when planning."""
        # Delta plans the whole range, but no file passes the filter.
        nothing = self._feed(scan.spark, part).filter(col(_VERSION) < 0)
        try:
            nothing.isEmpty()
        except Exception as error:
            text = str(error)
            if _INCOMPATIBLE in text:
                return True
            if _NO_FEED in text:
                raise self.error(
                    f"the table did not record its changes in every version after "
                    f"{scan.plan.bookmark['version']}",
                    START_OVER,
                ) from error
            if any(sign in text for sign in _GONE):
                raise self._expired(part[0].position - 1) from error
            raise
        return False

    def _fed(self, scan: Scan, part: CommitGroup) -> Slice:
        feed = self._feed(scan.spark, part)
        names = names_at(scan.pinned.versions, part[-1].position)
        kept = StructType([f for f in feed.schema.fields if f.name in (_CHANGE, _VERSION, _TIME)])
        rows = conformed(feed, StructType([*scan.want.fields, *kept.fields]), names)
        frame = with_commit_columns(rows, col(_VERSION), col(_CHANGE).isin(*_BEFORE), col(_TIME))
        return self.fed(scan, part, frame.drop(_CHANGE, _VERSION, _TIME))

    def _version(self, spark: SparkSession, version: int) -> DataFrame:
        return self._load(self._reader(spark).option("versionAsOf", version))

    def _feed(self, spark: SparkSession, part: CommitGroup) -> DataFrame:
        reader = self._reader(spark).option("readChangeFeed", True)
        reader = reader.option("startingVersion", part[0].position)
        return self._load(reader.option("endingVersion", part[-1].position))

    def _reader(self, spark: SparkSession) -> DataFrameReader:
        return spark.read.format("delta").options(**self.stream.options)

    def _load(self, reader: DataFrameReader) -> DataFrame:
        return reader.table(self.name) if self.name else reader.load(str(self.path))


def _version(row: Any) -> DeltaVersion:
    return DeltaVersion(
        int(row.version),
        int(row.micros),
        row.operation or "",
        row.operationParameters or {},
        row.operationMetrics or {},
        bool(row.isBlindAppend),
    )
