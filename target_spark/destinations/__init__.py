"""Destinations: where the rows of a stream end up, one module per kind.

Executors write the parts a `TableWrite` describes into a place that no reader sees; the driver
commits or aborts them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from shared.encodings import Encoding
from shared.storage import NO_OPTIONS, StorageOptions
from target_spark.plans import Part

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from target_spark.config import TargetConfig
    from target_spark.version_edit import VersionEdit


@dataclass(frozen=True)
class TableWrite:
    """How executors write rows for a table; plain data that is sent to them.

    Attributes:
        pending: Hidden folder for the parts.
        encoding: Of the parts.
        struct: All columns of the table, with those that this stream does not have.
        options: Of the storage.
    """

    pending: str
    encoding: Encoding
    struct: StructType
    options: StorageOptions = NO_OPTIONS


@dataclass(frozen=True)
class Flush:
    """What one commit makes durable.

    Attributes:
        stream: Its name.
        token: Names the flush; the same in a repeated commit.
        write: What its parts were written with.
        parts: All of them, in arrival order; may be none.
    """

    stream: str
    token: str
    write: TableWrite
    parts: tuple[Part, ...] = ()


class Destination(Protocol):
    """One place to load into, for all streams of a run. Methods may be called from any thread."""

    def prepare(self, stream: str, struct: StructType) -> TableWrite:
        """Says how rows with these columns are to be written.

        Raises:
            DestinationError: The table cannot take them, or the place cannot be written.
        """

    def commit(self, flush: Flush) -> None:
        """Makes a flush durable, and visible in one step (with `overwrite`: at `finish`).

        Raises:
            DestinationError: It failed; nothing of the flush is visible. May be repeated.
        """

    def abort(self, flush: Flush) -> None:
        """Removes the parts of a flush that will not be committed."""

    def finish(self, stream: str) -> None:
        """The stream is complete: `overwrite` makes its rows visible; then tidies up."""


@runtime_checkable
class Versioned(Protocol):
    """What a destination may do besides: honour ACTIVATE_VERSION."""

    def activate(self, stream: str, edit: VersionEdit) -> None:
        """Applies `edit` to all rows of a table, durably and visible in one step.

        A table that does not exist, or whose rows tell no version, is left alone.

        Raises:
            DestinationError: It failed; nothing has changed. May be repeated.
        """


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


def files(config: TargetConfig, rewrite: Rewrite) -> Destination:
    """Files in a folder per table."""
    from target_spark.destinations.files import FileDestination, file_settings  # noqa: PLC0415

    return FileDestination(file_settings(config), rewrite)


DESTINATIONS: Mapping[str, Callable[[TargetConfig, Rewrite], Destination]] = dict.fromkeys(
    ("parquet", "json", "csv", "orc"), files
)
"""Every destination by the `format` setting."""
