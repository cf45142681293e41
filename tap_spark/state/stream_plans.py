"""Plans of streams, and slices of their rows: passed from planning to sources and writers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from tap_spark.stream_config import StreamConfig

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


MOST_THREADS = 8
"""Threads of the driver that read blocks at the same time: each holds one, and rows to write."""


FILES = "files"
"""The positions in files, in a bookmark."""
NOTHING_LISTED = "stream '%s': found no files; keeping all %d file positions"


class Method(str, Enum):
    """Replication methods of the Singer specification."""

    FULL_TABLE = "FULL_TABLE"
    INCREMENTAL = "INCREMENTAL"
    LOG_BASED = "LOG_BASED"


class Resume(str, Enum):
    """What a stream's bookmark contains."""

    NOTHING = "nothing"
    REPLICATION_KEY = "replication key"
    FILE_POSITION = "file position"
    LOG_POSITION = "log position"


@dataclass(frozen=True)
class StreamPlan:
    """One selected stream, ready to be read.

    Attributes:
        stream: Name in messages.
        tap_stream_id: Name in the catalog and under `bookmarks` in the state.
        schema: JSON Schema of the selected properties, as written in SCHEMA; with LOG_BASED
            `_sdc_deleted_at` comes last.
        columns: Selected top-level columns, in source order (without `_sdc_deleted_at`).
        resume: What the bookmark contains.
        replication_key: Bookmark column, if `resume` is REPLICATION_KEY.
        bookmark: The stream's own entry of the incoming state (`{}` if there is none).
        start_value: Lower bound (inclusive) of the replication key as JSON value: the bookmark,
            else `start_date` if the key is a date, timestamp or text, else None.
        end_value: Upper bound (exclusive) of the replication key as JSON value; None without one.
        null_keys: Whether rows whose replication key is null are read.
        version: Table version of a FULL_TABLE run (ms since the epoch), else None.
        key_type: Spark's name of the replication key's type (`long`, `decimal(10,2)`, ...).
        runs_since_keys: Runs since the keys of all rows were sent, with this one; None if a run
            does not send them.
        source_schema: The source's whole schema as Spark's JSON text, from the catalog's root
            metadata; None if the catalog lacks it and the source must be asked.
        as_text: Columns whose values become text once they are read, as the catalog says.
    """

    stream: str
    tap_stream_id: str
    config: StreamConfig
    schema: Mapping[str, Any]
    columns: tuple[str, ...]
    key_properties: tuple[str, ...] = ()
    method: Method = Method.FULL_TABLE
    resume: Resume = Resume.NOTHING
    replication_key: str | None = None
    bookmark: Mapping[str, Any] = field(default_factory=dict)
    start_value: Any = None
    end_value: Any = None
    null_keys: bool = True
    version: int | None = None
    key_type: str | None = None
    runs_since_keys: int | None = None
    source_schema: str | None = None
    as_text: tuple[str, ...] = ()

    @property
    def sends_keys(self) -> bool:
        """Return whether the keys of all rows are due; a run without a bookmark sends all rows."""
        runs = self.runs_since_keys
        return runs is not None and bool(self.bookmark) and runs >= self.config.deletes_every


@dataclass(frozen=True)
class RowTasks:
    """How tasks make rows that need not pass through Java.

    Attributes:
        read: Reads rows, as for `mapInArrow`: numbers of tasks in, the columns of the frame out.
            Without a frame those of the plan, all of types that
            `shared.formats.record_text.is_plain_type` tells, so that no session of Spark is needed.
        frame: The same rows, as Spark sees them.
    """

    count: int
    read: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    frame: DataFrame | None = None


@dataclass(frozen=True)
class Slice:
    """A part of a stream that is read by one Spark job.

    Attributes:
        frame: The selected columns (in plan order), filtered, still with Spark types; with
            LOG_BASED then `_sdc_deleted_at`.
        bookmark: The stream's whole bookmark entry after this and every earlier slice have been
            written, if the source knows it (file positions); None if the writer derives it from
            the replication key, or there is none.
        ordered: Whether to keep the order of the rows. With a replication key it is the key's
            ascending order over the whole stream (nulls first), so that STATE may follow the last
            written row; with LOG_BASED the order of the changes.
        key_column: A column outside the record: the replication key as it was read, if rows are
            mapped. None if the record has it.
        filtered_column: A column outside the record: true in rows that a map filters; they are not
            written, but their key counts. Only with a `key_column`; None if all are written.
        told_rows: Rows of the frame, as the metadata of the source tell; None if they do not.
        text_key_by_value: Whether the replication key is text, in the order of its values.
        tasks: How tasks make the rows of the frame, if they do without Spark.
    """

    frame: DataFrame
    bookmark: Mapping[str, Any] | None = None
    ordered: bool = False
    key_column: str | None = None
    filtered_column: str | None = None
    told_rows: int | None = None
    text_key_by_value: bool = False
    tasks: RowTasks | None = None

    @property
    def own_tasks(self) -> RowTasks | None:
        """Return `tasks` if they make the record's columns, and nothing is added to these."""
        is_own = self.tasks is not None and self.tasks.frame is self.frame
        return self.tasks if is_own and not self.helper_columns else None

    @property
    def helper_columns(self) -> frozenset[str]:
        """Return the columns of the frame outside the record."""
        return frozenset(name for name in (self.key_column, self.filtered_column) if name)


class RowForm(Enum):
    """How the driver reads rows."""

    RECORDS = "as JSON text"
    BLOCKS = "as typed columns, in blocks"


class BlockReaders(Protocol):
    """Readers of blocks, and how many threads may call them at the same time."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Callable[[], pa.RecordBatch | None]]: ...


@dataclass(frozen=True)
class DriverBlocks:
    """Typed rows that the driver reads in blocks, which several threads may share.

    Attributes:
        schema: The columns, in plan order.
        readers: Each reads one block; it returns None if Spark must read the whole stream.
        is_sure: Whether this run has seen that Spark need not, unless a block changes.
    """

    schema: pa.Schema
    readers: BlockReaders
    is_sure: bool = False


@dataclass(frozen=True)
class DriverRows:
    """Everything that a stream has to read now, read by the driver without Spark.

    Attributes:
        records: The JSON text of each record, in arrays; None if there is nothing to read.
        blocks: Typed columns instead of records; None if they were not asked for.
        bookmark: As in `Slice`.
        read_at: When reading began.
        newest: Returns the greatest replication key of the rows, as in a record, once all of them
            have been read; None without a key.
        is_sure: Whether Spark need not read the stream after all.
    """

    records: Iterable[pa.StringArray] | None = None
    blocks: DriverBlocks | None = None
    bookmark: Mapping[str, Any] | None = None
    read_at: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    newest: Callable[[], Any] | None = None
    is_sure: bool = False
