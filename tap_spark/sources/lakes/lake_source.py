"""The base of Delta and Iceberg sources."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructField, StructType

from shared.errors import SingerSparkError, SourceError, Where
from shared.storage.urls import local_path, shown
from shared.types.spark_conform import TypeChangeError, check_types
from tap_spark.sources.frame_helpers import (
    missing_columns,
    planned_slice,
    prune,
    quoted,
    struct_from_text,
)
from tap_spark.sources.lakes.lake_changes import as_first_records, as_records, net_changes
from tap_spark.sources.source_failures import source_error
from tap_spark.sources.table_names import name_parts
from tap_spark.state.stream_plans import Method, Resume, Slice, StreamPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tap_spark.stream_config import StreamConfig

_logger = logging.getLogger(__name__)
START_OVER = "remove the stream's bookmark from the state to read it from the start"
_OURS = ("versionasof", "timestampasof", "snapshot-id", "as-of-timestamp", "branch", "tag")
_OUR_RANGES = ("readchangefeed", "readchangedata", "start-snapshot-id", "end-snapshot-id")
_OUR_STARTS = ("startingversion", "startingtimestamp", "endingversion", "endingtimestamp")


@dataclass(frozen=True)
class Pinned:
    """A table at the version that the run reads.

    Attributes:
        struct: Its columns.
        position: Version or snapshot; None if the table has none yet.
        table_id: Identifies the table, even after another one took its name; None if unknown.
    """

    struct: StructType
    position: int | None
    table_id: str | None


class LakeSource(ABC):
    """A table with versions, by path or by name.

    Raises:
        SourceError: The path does not exist, or path, table or options are invalid.
    """

    kind: str
    """Name of the format in messages."""

    def __init__(self, stream: StreamConfig) -> None:
        self.stream = stream
        self.key_properties = stream.key_properties
        self._check_options()
        self.path = self._path() if stream.path is not None else None
        self.name = self._name() if stream.table is not None else ""

    @abstractmethod
    def pin(self, spark: SparkSession) -> Pinned:
        """Find the table's newest version.

        Raises:
            Exception: Any failure of Spark; `explained` turns it into a SourceError.
        """

    @abstractmethod
    def rows(self, spark: SparkSession, pinned: Pinned, want: StructType) -> DataFrame:
        """Return the rows of the pinned version."""

    @abstractmethod
    def rows_told(self, pinned: Pinned) -> int | None:
        """Return the rows of the pinned version as the metadata tell; None if they do not."""

    @abstractmethod
    def first_bookmark(self, pinned: Pinned) -> Mapping[str, Any] | None:
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
    def changes(
        self, spark: SparkSession, plan: StreamPlan, pinned: Pinned, want: StructType
    ) -> Iterator[Slice]:
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
    @abstractmethod
    def unit(self) -> str:
        """Return the name of a position: version or snapshot."""

    @property
    def shown(self) -> str:
        """Return the table's name for messages."""
        return f"{self.kind} table {self.stream.table or shown(str(self.path))}"

    def error(self, message: str, hint: str = "") -> SourceError:
        """Build an error that names this stream."""
        return SourceError(message, where=Where(stream=self.stream.name), hint=hint)

    def changed_rows(self, frame: DataFrame, plan: StreamPlan, *, ordered: bool) -> DataFrame:
        """Return the records of old and new rows."""
        net = net_changes(frame, plan.key_properties)
        return as_records(net, ordered=ordered or not plan.key_properties)

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
        self, spark: SparkSession, plan: StreamPlan, pinned: Pinned, want: StructType
    ) -> Iterator[Slice]:
        if plan.resume is not Resume.LOG_POSITION:
            slice_ = planned_slice(self.rows(spark, pinned, want), plan)
            whole = plan.resume is Resume.NOTHING and not self.stream.options
            yield replace(slice_, told_rows=self.rows_told(pinned)) if whole else slice_
        elif self.has_position(plan.bookmark):
            yield from self.changes(spark, plan, pinned, want)
        else:
            mark = self.first_bookmark(pinned)
            if mark is not None:
                yield self.all_rows(spark, pinned, want, mark)

    def all_rows(
        self, spark: SparkSession, pinned: Pinned, want: StructType, mark: Mapping[str, Any]
    ) -> Slice:
        """Return every row of the pinned version, none of them deleted."""
        mark = {"replication_method": Method.LOG_BASED.value, **mark}
        told = None if self.stream.options else self.rows_told(pinned)
        return Slice(as_first_records(self.rows(spark, pinned, want)), mark, told_rows=told)

    def _wanted(self, plan: StreamPlan, present: StructType) -> StructType:
        """Return the selected columns with the catalog's types."""
        text = plan.source_schema
        struct = prune(struct_from_text(text) if text else present, plan.schema)
        fields = {field.name: field for field in struct.fields}
        gone = missing_columns(plan.columns, present.names)
        if gone:
            raise self.error(
                f"selected columns are no longer in the table: {', '.join(gone)}",
                "run --discover again, or deselect them in the catalog",
            )
        known = {field.name: field for field in prune(present, plan.schema).fields}
        want = StructType([_field(name, fields, known) for name in plan.columns])
        try:
            check_types(present, want)
        except TypeChangeError as error:
            hint = "run --discover again"
            raise self.error(f"{error} as in the catalog", hint) from error
        return want

    def _check_options(self) -> None:
        ours = [
            name
            for name in self.stream.options
            if name.lower() in (*_OURS, *_OUR_RANGES, *_OUR_STARTS)
        ]
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
        found = Path(local).absolute()
        if not found.is_dir():
            raise self.error(f"folder {paths[0]} does not exist", "check 'path'")
        return str(found)

    def _name(self) -> str:
        try:
            return ".".join(map(quoted, name_parts(str(self.stream.table))))
        except ValueError as error:
            raise self.error(str(error)) from error


def _field(
    name: str, catalog: Mapping[str, StructField], present: Mapping[str, StructField]
) -> StructField:
    """Return a column of the catalog; of the table if the catalog was written by hand."""
    field = catalog.get(name) or present[name]
    return StructField(name, field.dataType, True)
