"""Plans of the target: plain data between core, loader and destinations.

They include what a user allows for a table: the contract of its schema, and the range that a run
replaces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shared.encodings.encoding_format import Encoding
from shared.errors import DestinationError, RecordError, SettingsError, Where
from shared.settings.kinds import one_of, setting
from shared.storage.urls import shown

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from shared.maps.transform import Transform


EVOLVE, FREEZE, DISCARD = CHOICES = ("evolve", "freeze", "discard")

DOCUMENT = "data"
"""Name of the column that holds a whole record."""


@dataclass(frozen=True)
class SchemaContract:
    """What happens if a stream does not fit its table."""

    tables: str = setting(
        one_of(CHOICES),
        "A stream without a table: create it (`evolve`), end with an error (`freeze`), or ignore "
        "the stream (`discard`).",
        default=EVOLVE,
    )
    columns: str = setting(
        one_of(CHOICES),
        "A column or field that an existing table lacks: add it (`evolve`), end with an error "
        "(`freeze`), or leave it out (`discard`). Not for `overwrite`.",
        default=EVOLVE,
    )
    types: str = setting(
        one_of(CHOICES),
        "A column whose type in the table does not hold that of the stream: widen it or do what "
        "`type_conflicts` says (`evolve`), end with an error (`freeze`), or store null for values "
        "that the column cannot hold exactly (`discard`; Delta and Iceberg). Not for `overwrite`.",
        default=EVOLVE,
    )
    rules: str = setting(
        one_of((FREEZE, EVOLVE)),
        "What a table or file of another program has beside rows and columns (NOT NULL, keys, "
        "protocol version, features, the file itself), if the stream's rows need it to change: end "
        "with an error or reject the row (`freeze`), or change it (`evolve`).",
        default=FREEZE,
    )


def rules_error(stream: str, text: str, hint: str) -> SettingsError:
    """Return the error for a change of what is not ours."""
    return SettingsError(
        text,
        where=Where(stream=stream, setting="schema_contract.rules"),
        hint=f"set it to `evolve` to allow that, or {hint}",
    )


def contract_error(stream: str, part: str, text: str) -> SettingsError:
    """Return the error for a change that a contract forbids.

    Args:
        part: `columns` or `types`.
    """
    return SettingsError(
        f"{text}, and must not change",
        where=Where(stream=stream, setting=f"schema_contract.{part}"),
        hint="change the table or the stream, or set the contract to `evolve`",
    )


@dataclass(frozen=True)
class Backfill:
    """A range of a table that a run replaces, or compares with the source.

    Attributes:
        since: Least value, as text that Spark can cast to the column's type.
        until: The value after the last one.
    """

    stream: str
    column: str
    since: str
    until: str


def outside_range(backfill: Backfill) -> RecordError:
    """Return the error for a record that a backfill must not bring."""
    return RecordError(
        f"a record of the backfill lies outside of its range: '{backfill.column}' is not from "
        f"{backfill.since} to before {backfill.until}",
        where=Where(stream=backfill.stream),
        hint="give both programs the same --from and --to; the table is unchanged",
    )


def without_column(backfill: Backfill, shown: str) -> DestinationError:
    """Return the error for a table that lacks the column of the range."""
    return DestinationError(
        f"{shown} does not have the column '{backfill.column}' of the range",
        where=Where(stream=backfill.stream),
        hint="see --column",
        lasts=True,
    )


STAGED = "singer"
"""Format of staged RECORD lines, which no BATCH message names."""


@dataclass(frozen=True)
class InputFile:
    """One file to load, or a line-aligned part of it.

    Attributes:
        url: Path or fsspec URL that the executors can open.
        encoding: Its format and compression; `singer` is the format of staged RECORD lines.
        line_map: Runs of `(first line in the file, first line of stdin)`, both 1-based, for staged
            RECORD lines; empty for files of BATCH messages.
        marks: Offsets in a staged file at which a STATE message came, with the input position of
            that message, ascending; only of STATE that may still be emitted.
        since: Input position of the first record; see `StateTracker`.
        until: Input position of the last record.
        checksum: Of the content of a remote file; see `StorageFacts`.
    """

    url: str
    encoding: Encoding
    rows: int | None = None
    size: int | None = None
    line_map: tuple[tuple[int, int], ...] = ()
    marks: tuple[tuple[int, int], ...] = ()
    since: int = 0
    until: int = 0
    checksum: str | None = None


@dataclass(frozen=True)
class StreamSchema:
    """The last SCHEMA message of a stream.

    Attributes:
        key_properties: Primary key; may be empty.
        serial: Counts the SCHEMA messages of this stream within the run, from 0.
        source: Name of what the stream has all rows of, if the tap tells.
        are_letters: Whether its records are dead letters; if of one output, its name.
        has_rows: Whether rows may come; without, columns that exist stay as they are.
    """

    stream: str
    schema: Mapping[str, Any]
    key_properties: tuple[str, ...] = ()
    serial: int = 0
    source: str | None = None
    are_letters: bool | str = False
    has_rows: bool = True


ADDING = frozenset({"append-only", "history"})
"""Load methods by which a record that comes twice adds a row twice."""


@dataclass(frozen=True)
class LoadPlan:
    """How a stream is loaded.

    Attributes:
        overwrites: It becomes visible only at the end of the input, as a whole.
        replaces: Its rows replace those of its table, which takes a stream that is complete.
        recalls: Its replays are looked up before its first record.
        discards: Its records after the last STATE of the input are discarded.
    """

    overwrites: bool = False
    replaces: bool = False
    recalls: bool = False
    discards: bool = False


@dataclass(frozen=True)
class TableName:
    """The table of a stream, before names are made legal.

    Attributes:
        table: Name of the table, with its prefix.
        schema: Name of the schema, namespace or folder around it, if any.
    """

    table: str
    schema: str | None = None


@dataclass(frozen=True)
class Layout:
    """The physical layout of a table.

    Attributes:
        partition_by: Columns of the stream, or transforms of them (`days(at)`, `bucket(16, id)`).
        target_file_bytes: Size of data files; None leaves it to the format.
        compact: Rewrite small files after the run.
    """

    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    target_file_bytes: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    compact: bool = False


@dataclass(frozen=True)
class TableRequest:
    """The request of a stream for its table.

    Attributes:
        struct: The columns to store: the stream's own, then those of the record metadata.
        keys: Key columns, by their names in `struct`; may be empty.
        method: `append-only`, `upsert`, `history` or `overwrite`.
        hard_delete: Remove rows that are marked as deleted, instead of keeping them.
        source: Name of what the stream has all rows of, if the tap tells.
        replaces_source: Remove rows of older versions from files that come from `source` alone.
        view: Columns of a view over a table with the record in one column, or None.
        backfill: The range to replace, if `overwrite` does not replace all rows.
        order_by: Columns of `struct` that tell which of two rows of a key is newer; empty if the
            later arrival is.
        has_rows: Whether rows may come; without, columns that exist stay as they are.
    """

    stream: str
    struct: StructType
    name: TableName
    keys: tuple[str, ...] = ()
    method: str = "append-only"
    schema: Mapping[str, Any] = field(default_factory=dict)
    layout: Layout = field(default_factory=Layout)
    hard_delete: bool = False
    source: str | None = None
    replaces_source: bool = False
    view: StructType | None = None
    backfill: Backfill | None = None
    order_by: tuple[str, ...] = ()
    contract: SchemaContract = field(default_factory=SchemaContract)
    has_rows: bool = True

    @property
    def is_upsert(self) -> bool:
        """Whether rows are matched by key."""
        return self.method == "upsert" and bool(self.keys)


@dataclass(frozen=True)
class Segment:
    """Consecutive records of a stream, identified by their content.

    Attributes:
        lines: Number of records; 0 for a file of a BATCH message.
        digest: Digest of their text, or of the file.
        since: Input position of the first record; see `StateTracker`.
        until: Input position of the last record; a STATE with a greater position covers them.
    """

    lines: int
    digest: str
    since: int = 0
    until: int = 0


@dataclass(frozen=True)
class Making:
    """The mapping of a source stream's rows to those of an output, by `stream_maps`.

    Attributes:
        schema: JSON Schema to read the files with, as far as it is needed.
    """

    stream: str
    schema: Mapping[str, Any]
    names: tuple[str, ...]
    transform: Transform


@dataclass(frozen=True)
class Reached:
    """The STATE that a flush makes true for its stream, together with the flushes before it.

    Attributes:
        is_exact: The flush has no records of the stream that came after it.
    """

    value: bytes
    line: int
    is_exact: bool


@dataclass(frozen=True)
class Batch:
    """Files of one stream and one schema that become durable together (one flush).

    Attributes:
        token: Identifies the flush within the run; the same if it is repeated.
        version: Table version of the messages, if any.
        received_at: When the first message arrived, seconds since the epoch.
        replay: Index of the segment of an earlier run's note that the files may replay, or None.
        making: The mapping from the rows of the files; None if they are the same.
        reached: The STATE that its commit makes true; None if there is none, or before the commit.
        output: Name of the output, if its stream may have others.
        reports_rejects: Report records that cannot be read; else another conversion of the
            files reports them.
    """

    stream: StreamSchema
    files: tuple[InputFile, ...]
    token: str
    version: int | None = None
    received_at: float = 0.0
    replay: int | None = None
    making: Making | None = None
    reached: Reached | None = None
    output: str | None = None
    reports_rejects: bool = True

    @property
    def source(self) -> str:
        """Return the name of the source stream, for messages."""
        return self.stream.stream if self.making is None else self.making.stream

    def where(self, reject: Reject) -> Where:
        """Return the place of a rejected record: a line of standard input, or of a batch file."""
        staged = any(one.url == reject.file and one.encoding.format == STAGED for one in self.files)
        return Where(self.source, None if staged else shown(reject.file), reject.line)


@dataclass(frozen=True)
class Part:
    """One file that executors have written and that is not visible yet.

    Attributes:
        is_lent: It is a batch file, which the commit copies and never removes.
    """

    url: str
    rows: int
    size: int
    is_lent: bool = False


@dataclass(frozen=True)
class Reject:
    """A record that could not be loaded.

    Attributes:
        line: 1-based line (of stdin for RECORD, of the file for BATCH).
        reason: What is wrong with it, in one line.
        output: The only output of its stream that does not have it; None if none has it.
    """

    file: str
    line: int
    reason: str
    output: str | None = None


@dataclass(frozen=True)
class LoadResult:
    """The result of a Spark job for a batch's files, before the commit.

    Attributes:
        rejects: The first rejected records, in order; their number is bounded.
        rejected: Number of all rejected records.
        reject_files: URLs of files with all of them and their text, written by
            `target_spark.convert.task_reports`, if they are kept. They stay until commit or abort.
        segments: Segments to detect replays of the records later; empty if replays are not
            detected, or if the records are replays.
        received: Records of the files, as counted by the tasks that read them.
        replayed: Those that an earlier run has committed.
        columns: Nulls, least and greatest value of columns; see `shared.formats.columnar_encoding`.
        exploded: Those of `rows` that are not the first of their record.
        files: Its files, if its parts tell the origins of their rows.
        undeclared: Properties that the SCHEMA lacks, each with the number of values seen.
        cut: Properties with times whose digits below microseconds are cut.
    """

    parts: tuple[Part, ...] = ()
    rows: int = 0
    rejects: tuple[Reject, ...] = ()
    rejected: int = 0
    reject_files: tuple[str, ...] = ()
    segments: tuple[Segment, ...] = ()
    received: int = 0
    replayed: int = 0
    columns: Mapping[str, list[Any]] = field(default_factory=dict)
    exploded: int = 0
    files: tuple[InputFile, ...] = ()
    undeclared: Mapping[str, int] = field(default_factory=dict)
    cut: frozenset[str] = frozenset()


class RefusedRecordError(RecordError):
    """A store refuses a record of a flush; nothing of the flush is visible.

    Attributes:
        piece: Number of the piece with the record, in the order of the flush.
    """

    def __init__(self, error: RecordError, piece: int) -> None:
        super().__init__(error.message, where=error.where, hint=error.hint)
        self.piece = piece


class ConvertAgainError(Exception):
    """A flush cannot be committed before its pieces are converted anew; nothing has changed.

    The store refuses some of its rows: the next conversion leaves them out, or finds out which.
    """
