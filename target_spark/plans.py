"""What the target decided to load: plain data between core, loader and destinations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shared.encodings import Encoding

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from shared.transforms.transform import Transform


@dataclass(frozen=True)
class InputFile:
    """One file to load, or a line-aligned part of it.

    Attributes:
        url: Path or fsspec URL that the executors can open.
        encoding: Its format and compression; `singer` is the format of staged RECORD lines.
        rows: Number of rows where known.
        size: Bytes where known.
        line_map: Runs of `(first line in the file, first line of stdin)`, both 1-based, for staged
            RECORD lines; empty for files of BATCH messages.
        marks: Bytes of a staged file that had been written when a STATE message came, and the
            position of that message in the input, ascending; only of STATE that may still go out.
        since: Position in the input at which the first record came; see `StateTracker`.
        until: Position at which the last record came.
    """

    url: str
    encoding: Encoding
    rows: int | None = None
    size: int | None = None
    line_map: tuple[tuple[int, int], ...] = ()
    marks: tuple[tuple[int, int], ...] = ()
    since: int = 0
    until: int = 0


@dataclass(frozen=True)
class StreamSchema:
    """What the last SCHEMA message said of a stream.

    Attributes:
        stream: Its name.
        schema: The JSON Schema.
        key_properties: Primary key; may be empty.
        serial: Counts the SCHEMA messages of this stream within the run, from 0.
    """

    stream: str
    schema: Mapping[str, Any]
    key_properties: tuple[str, ...] = ()
    serial: int = 0


@dataclass(frozen=True)
class TableName:
    """Where a stream goes, before the names are made legal.

    Attributes:
        table: Name of the table, with its prefix.
        schema: Name of the schema, namespace or folder around it, if any.
    """

    table: str
    schema: str | None = None


@dataclass(frozen=True)
class Layout:
    """How a table lies on disk.

    Attributes:
        partition_by: Columns of the stream, or transforms of them (`days(at)`, `bucket(16, id)`).
        cluster_by: Columns by which rows are kept near each other.
        target_file_bytes: Size of data files; None leaves it to the format.
        properties: Properties of the table.
        compact: Small files are rewritten after the run.
    """

    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    target_file_bytes: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    compact: bool = False


@dataclass(frozen=True)
class TableRequest:
    """What a stream asks of its table.

    Attributes:
        stream: Its name.
        struct: The columns to be stored: the stream's own, then those of the record metadata.
        name: Of the table.
        keys: Names in `struct` that tell rows apart; empty for none.
        method: `append-only`, `upsert` or `overwrite`.
        schema: The stream's JSON Schema.
        layout: How the table lies on disk, where it is made.
        hard_delete: Rows that are marked as deleted go, instead of being kept with the mark.
        view: Columns of a view to be made over a table that keeps the record in one column.
    """

    stream: str
    struct: StructType
    name: TableName
    keys: tuple[str, ...] = ()
    method: str = "append-only"
    schema: Mapping[str, Any] = field(default_factory=dict)
    layout: Layout = field(default_factory=Layout)
    hard_delete: bool = False
    view: StructType | None = None


@dataclass(frozen=True)
class Segment:
    """Consecutive records of a stream, identified by what they hold.

    Attributes:
        lines: How many; 0 for a file of a BATCH message.
        digest: Of their text, or of the file.
        since: Position in the input at which the first came; see `StateTracker`.
        until: Position at which the last came; a STATE of a greater position covers them.
    """

    lines: int
    digest: str
    since: int = 0
    until: int = 0


@dataclass(frozen=True)
class Making:
    """How the rows of a stream are made of those of another, as `stream_maps` say.

    Attributes:
        stream: Name of the stream as it came.
        schema: What the files are read with: its JSON Schema, as far as it is needed.
        names: All properties of the stream.
        transform: Makes the rows.
        reports_rejects: Report records that cannot be read; else another conversion of the
            files reports them.
    """

    stream: str
    schema: Mapping[str, Any]
    names: tuple[str, ...]
    transform: Transform
    reports_rejects: bool = True


@dataclass(frozen=True)
class Batch:
    """Files of one stream and one schema that become durable together (one flush).

    Attributes:
        stream: The schema they are read with.
        files: In arrival order.
        token: Identifies the flush within the run and across a repeated one.
        version: Table version of the messages, where they had one.
        received_at: When the first message arrived, seconds since the epoch.
        replay: Which segment of an earlier run's note the files may be a replay of; None for none.
        making: How its rows are made of those of the files; None where they are the same.
    """

    stream: StreamSchema
    files: tuple[InputFile, ...]
    token: str
    version: int | None = None
    received_at: float = 0.0
    replay: int | None = None
    making: Making | None = None

    @property
    def source(self) -> str:
        """Name of the stream as it came, for messages."""
        return self.stream.stream if self.making is None else self.making.stream


@dataclass(frozen=True)
class Part:
    """One file that executors have written and no reader sees yet.

    Attributes:
        url: Where it lies.
        rows: Rows in it.
        size: Bytes in it.
    """

    url: str
    rows: int
    size: int


@dataclass(frozen=True)
class Reject:
    """A record that could not be loaded.

    Attributes:
        file: File it came from.
        line: 1-based line (of stdin for RECORD, of the file for BATCH).
        reason: What is wrong with it, in one line.
    """

    file: str
    line: int
    reason: str


@dataclass(frozen=True)
class LoadResult:
    """What one Spark job made of a batch's files, before the commit.

    Attributes:
        parts: The files written.
        rows: Rows in them.
        rejects: The first records that were left out, in order; their number is bounded.
        rejected: How many were left out in all.
        reject_files: URLs of files that hold all of them with their text, as `target_spark.rejects`
            writes them; only where they are asked for. They stay until commit or abort.
        segments: Identify the records should they come again; empty if replays are not detected,
            or if the records are replays.
    """

    parts: tuple[Part, ...] = ()
    rows: int = 0
    rejects: tuple[Reject, ...] = ()
    rejected: int = 0
    reject_files: tuple[str, ...] = ()
    segments: tuple[Segment, ...] = ()
