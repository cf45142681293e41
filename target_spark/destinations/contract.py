"""What a destination must do, and what it is given.

Executors write the parts a `TableWrite` describes into a place that no reader sees; the driver
commits or aborts them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from shared.encodings import Encoding
from shared.storage import NO_OPTIONS, StorageOptions, delete
from target_spark.plans import Part, TableName, TableRequest
from target_spark.replays import Note

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from target_spark.version_edit import VersionEdit


class Sink(Protocol):
    """How executors write a part that is no file; picklable, and silent about secrets."""

    def write(self, columns: pa.Schema, tables: Iterator[pa.Table]) -> list[dict[str, Any]]:
        """Writes all rows into one new part, durably; no part for no rows.

        Returns:
            What `target_spark.load_tasks.RESULTS` describes: one row of the kind `part`.

        Raises:
            OSError: It failed; trying again may help.
        """


@dataclass(frozen=True)
class TableWrite:
    """How executors write rows for a table; plain data that is sent to them.

    Attributes:
        pending: Hidden folder for the parts, or what stands for it in messages.
        encoding: Of the parts.
        struct: The columns of the parts.
        options: Of the storage.
        sink: Writes the parts where they are no files.
        row_number: Name of a further column for the position of each row in its part, or None.
    """

    pending: str
    encoding: Encoding
    struct: StructType
    options: StorageOptions = NO_OPTIONS
    sink: Sink | None = None
    row_number: str | None = None


@dataclass(frozen=True)
class Flush:
    """What one commit makes durable.

    Attributes:
        stream: Its name.
        token: Names the flush; the same in a repeated commit.
        write: What its parts were written with.
        request: What the stream asks of its table.
        parts: All of them, in arrival order; may be none.
    """

    stream: str
    token: str
    write: TableWrite
    request: TableRequest
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class TableId:
    """What tells a table from those of other streams, known before anything is read or written.

    Attributes:
        key: The same for names that are one table, or may be one where case does not count; a path
            begins with that of the folder that it lies in.
        shown: The table in messages.
        shared: Several streams may add rows to it.
    """

    key: str
    shown: str
    shared: bool = False


class Destination(ABC):
    """One place to load into, for all streams of a run. Methods may be called from any thread.

    `prepare` and `commit` are what every destination needs; the rest has a default.

    Attributes:
        keeps_notes: `recall` and `keep` work, and it can show that a table still holds what a note
            says. For destinations that declare `replays`.
    """

    keeps_notes: bool = False

    def table(self, name: TableName) -> TableId:
        """Return which table a name stands for; asks nobody. By default, case does not count."""
        shown = ".".join(filter(None, (name.schema, name.table)))
        return TableId(shown.casefold(), shown)

    @abstractmethod
    def prepare(self, request: TableRequest) -> TableWrite:
        """Return how the rows of a stream are to be written.

        Raises:
            DestinationError: The table cannot take them, or the place cannot be written.
        """

    @abstractmethod
    def commit(self, flush: Flush) -> None:
        """Make a flush durable, and visible in one step (with `overwrite`: at `finish`).

        Raises:
            DestinationError: It failed; nothing of the flush is visible. May be repeated.
        """

    def abort(self, flush: Flush) -> None:
        """Remove the parts of a flush that will not be committed; by default, their files."""
        remove_parts(flush)

    def finish(self, request: TableRequest) -> None:  # noqa: B027
        """Make the rows of `overwrite` visible, then tidy up: the input has ended well.

        Otherwise this comes when STATE for all rows has gone out.
        """

    def activate(self, request: TableRequest, edit: VersionEdit) -> None:
        """Apply `edit` to all rows of a table, durably and visible in one step.

        A table that does not exist, or whose rows have no version, is left alone.

        Raises:
            DestinationError: It failed; nothing has changed. May be repeated.
        """
        raise NotImplementedError

    def recall(self, request: TableRequest) -> Note:
        """Take over the note that a run which has ended left of a stream.

        Returns:
            As much of it as the table is shown to hold, with nothing newer; else an empty one.

        Raises:
            DestinationError: The table cannot be read.
        """
        raise NotImplementedError

    def keep(self, request: TableRequest, note: Note) -> None:
        """Put another note in the place of the stream's note, durably.

        A note may contain a flush that is about to be committed.

        Raises:
            DestinationError: It cannot be stored.
        """
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027
        """Let go of all notes: the run has ended, whether well or not."""


def remove_parts(flush: Flush) -> None:
    """Delete the files of a flush: its rows are in the table, or are not to go there."""
    for part in flush.parts:
        with suppress(OSError):
            delete(part.url, flush.write.options)


class Rewrite(Protocol):
    """Writes files of a table anew, on executors."""

    def __call__(
        self,
        pairs: Sequence[tuple[str, str]],
        write: TableWrite,
        edit: VersionEdit | None = None,
    ) -> Mapping[str, int]:
        """Writes the first of each pair to the second with the columns of `write`.

        Returns:
            New URL → rows. With `edit`, files it leaves alone are absent, and one that has no
            rows any more is not written.

        Raises:
            DestinationError: It failed.
        """


@dataclass(frozen=True)
class Tools:
    """What destinations are given to work with.

    Attributes:
        spark: Gives the session, waiting for it where it still starts.
        rewrite: Writes files anew, on executors.
    """

    spark: Callable[[], SparkSession]
    rewrite: Rewrite
