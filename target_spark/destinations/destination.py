"""The contract of loading, which every destination has, and the tools of destinations.

`operations` holds the contract of what can be done with tables beside that.

Executors write the parts that a `TableWrite` describes into a place hidden from readers; the driver
commits or aborts them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from shared.encodings.encoding_format import Encoding
from shared.errors import RecordError
from shared.singer.datasets import DatasetName
from shared.storage.access import NO_OPTIONS, StorageOptions, delete_all
from target_spark.core.balance import Committed
from target_spark.core.load_plans import Part, TableName, TableRequest
from target_spark.destinations.leases import Lease
from target_spark.replays import Note

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from target_spark.tables.version_edit import VersionEdit


ROW_ORIGIN = "__place"
"""Name of an added column for the origin of each row: see `target_spark.convert.read_plan`."""


class Sink(Protocol):
    """Writes a part that is not a file, on executors; picklable, and does not show secrets."""

    def write(self, columns: pa.Schema, tables: Iterator[pa.Table]) -> list[dict[str, Any]]:
        """Write all rows into one new, durable part; write nothing if there are no rows.

        Returns:
            Rows as in `target_spark.convert.write_tasks.RESULTS`: one of the kind `part`.

        Raises:
            OSError: It failed; a retry may help.
            RefusedByStoreError: The store refuses a row.
        """

    def trial(self) -> Sink:
        """Return a sink that writes nothing, and reports each refused row (`refused row`).

        Its rows have a column for their origins: see `TableWrite.row_origin`.
        """


@dataclass(frozen=True)
class TableWrite:
    """How executors write rows for a table; plain data that is sent to them.

    Attributes:
        pending: Hidden folder for the parts, or its name in messages.
        encoding: Encoding of the parts.
        struct: Columns of the parts.
        options: Options of the storage.
        sink: Writes the parts if they are not files.
        partition_by: Columns whose values name the folder of a part below `pending`, and that the
            parts lack.
        row_origin: Name of an added column for the origin of each row (see
            `target_spark.convert.read_plan`), or None.
        copies_parts: The commit copies each part within its storage: it may be a file of others.
    """

    pending: str
    encoding: Encoding
    struct: StructType
    options: StorageOptions = NO_OPTIONS
    sink: Sink | None = None
    partition_by: tuple[str, ...] = ()
    row_origin: str | None = None
    copies_parts: bool = False

    @property
    def stored(self) -> StructType:
        """Return the columns that the parts have."""
        if not self.partition_by:
            return self.struct
        from pyspark.sql.types import StructType  # noqa: PLC0415

        return StructType([field for field in self.struct if field.name not in self.partition_by])


@dataclass(frozen=True)
class Flush:
    """The rows of one commit.

    Attributes:
        stream: Name of the stream.
        token: Identifies the flush; the same in a repeated commit.
        write: How its parts were written.
        request: The request of the stream for its table.
        parts: All parts, in arrival order; may be empty.
        source: Name of the stream in the tap, if another.
        state: The STATE that the commit makes true for the stream, to be kept with it; see
            `stored_state`. None for a destination that does not store it.
    """

    stream: str
    token: str
    write: TableWrite
    request: TableRequest
    parts: tuple[Part, ...] = ()
    source: str | None = None
    state: str | None = None

    @property
    def rows(self) -> int:
        """Return the number of rows in its parts."""
        return sum(part.rows for part in self.parts)


@dataclass(frozen=True)
class TableId:
    """The identity of a table, known before anything is read or written.

    Attributes:
        key: Equal for names of the same table, or of one that may be the same if case is ignored; a
            path begins with that of its folder.
        shown: Name of the table in messages.
        shared: Several streams may add rows to it.
    """

    key: str
    shown: str
    shared: bool = False


@dataclass(frozen=True)
class Refusal:
    """A row that the store does not take.

    Attributes:
        part: URL of its part.
        origin: Its origin: see `TableWrite.row_origin`.
        reason: Column or rule, and the class of the value; never the value.
    """

    part: str
    origin: int
    reason: str


class RefusedByStoreError(RecordError):
    """A store refuses rows for what is in them; nothing of their flush is visible.

    Args:
        reason: See `Refusal`; of the first row.
        rows: All of them in the order of arrival; none if it is not known which they are.
    """

    def __init__(self, reason: str, rows: Sequence[Refusal] = ()) -> None:
        super().__init__(reason)
        self.rows = tuple(rows)


class Destination(ABC):
    """One place to load into, for all streams of a run. Methods may be called from any thread.

    `prepare` and `commit` are what every destination needs; the rest has a default.

    Attributes:
        keeps_notes: `recall` and `keep` work, and it can show that a table still holds what a note
            says. For destinations that declare `replays`.
        holds_rows: Nothing is visible before `Operations.publish`: `commit` and `activate` keep it
            aside, and `finish` is called twice for each stream: before `Operations.audit`, and
            after the last STATE.
        may_refuse: `commit` may raise `RefusedByStoreError`.
        stores_state: A commit stores `Flush.state`.
        changed: Told what a commit has done to the columns of a stream's table, one phrase for each
            step: see `target_spark.tables.table_changes`.
    """

    keeps_notes: bool = False
    holds_rows: bool = False
    may_refuse: bool = False
    stores_state: bool = True
    changed: Callable[[str, Sequence[str]], None] = staticmethod(lambda _stream, _lines: None)

    def table(self, name: TableName) -> TableId:
        """Return the table of a name, without I/O. By default, case is ignored."""
        shown = ".".join(filter(None, (name.schema, name.table)))
        return TableId(shown.casefold(), shown)

    def dataset(self, name: TableName) -> DatasetName | None:  # noqa: ARG002
        """Return namespace and name of a table in lineage, without I/O; None for the default."""
        return None

    @abstractmethod
    def prepare(self, request: TableRequest) -> TableWrite:
        """Return how executors write the rows of a stream.

        Raises:
            DestinationError: The table cannot hold them, or the place cannot be written.
        """

    @abstractmethod
    def commit(self, flush: Flush) -> Committed | None:
        """Make a flush durable, and visible in one step (with `overwrite`: at `finish`).

        Returns:
            What the commit itself tells about its rows, never what was sent to it; None for
            nothing: it was made before, or is made at `finish`.

        Raises:
            RefusedByStoreError: It failed for what is in some rows.
            DestinationError: It failed; nothing of the flush is visible. May be repeated.
        """

    def abort(self, flush: Flush) -> None:
        """Remove the parts of a flush that will not be committed; by default, their files."""
        remove_parts(flush)

    def finish(self, request: TableRequest) -> Committed | None:  # noqa: ARG002
        """Make the rows of `overwrite` visible, then clean up: the input has ended well.

        For other load methods it is called after STATE for all rows has been emitted.

        Returns:
            See `commit`; for `overwrite` only.
        """
        return None

    def activate(self, request: TableRequest, edit: VersionEdit) -> str | None:
        """Apply `edit` to all rows of a table, durably and visible in one step.

        A table that does not exist, or whose rows do not have a version, is unchanged.

        Returns:
            What has become of how many rows, as a phrase; None if nothing, or if it is not known.

        Raises:
            DestinationError: It failed; nothing has changed. May be repeated.
        """
        raise NotImplementedError

    def preview(self, request: TableRequest) -> Sequence[str] | None:  # noqa: ARG002
        """Return what a load would do to the columns of a stream's table, and change nothing.

        Returns:
            One phrase for each step, as in `changed`; none for no change; None if it is not known.

        Raises:
            DestinationError: The table cannot hold the rows, or cannot be read.
        """
        return None

    def exists(self, request: TableRequest) -> bool:
        """Return whether the table of a stream exists; for destinations with `schema_contract`.

        Raises:
            DestinationError: It cannot be looked for.
        """
        raise NotImplementedError

    def lease(self, request: TableRequest) -> Lease | None:  # noqa: ARG002
        """Return the lease of a stream on its table, not taken; None if there are no leases."""
        return None

    def recall(self, request: TableRequest) -> Note:
        """Adopt the note of an ended run for a stream.

        Returns:
            The part that the table provably holds, without anything newer; else an empty note.

        Raises:
            DestinationError: The table cannot be read.
        """
        raise NotImplementedError

    def keep(self, request: TableRequest, note: Note) -> None:
        """Replace the stream's note durably.

        A note may contain a flush that is about to be committed.

        Raises:
            DestinationError: It cannot be stored.
        """
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027
        """Release all notes: the run has ended, successfully or not."""


def remove_parts(flush: Flush) -> None:
    """Delete the part files of a flush that was committed or aborted."""
    delete_all([part.url for part in flush.parts if not part.is_lent], flush.write.options)


class Rewrite(Protocol):
    """Rewrites files of a table on executors."""

    def __call__(
        self,
        pairs: Sequence[tuple[str, str]],
        write: TableWrite,
        edit: VersionEdit | None = None,
    ) -> Mapping[str, int]:
        """Rewrite the first of each pair to the second with the columns of `write`.

        Returns:
            New URL → rows. With `edit`, unchanged files are absent, and a file that has become
            empty is not written.

        Raises:
            DestinationError: It failed.
        """


@dataclass(frozen=True)
class Tools:
    """The tools of destinations.

    Attributes:
        spark: Returns the session, waits for it if it still starts.
        rewrite: Rewrites files on executors.
    """

    spark: Callable[[], SparkSession]
    rewrite: Rewrite
