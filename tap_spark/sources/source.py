"""Sources of streams, found by the stream's `format`.

`tap_spark.sources.formats` declares formats, without Spark; the class that a declaration names
reads the format. Other packages do the same: `docs/extending.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from shared.encodings.encoding_format import imported
from shared.engine.engine import Engine
from shared.errors import SettingsError, Where
from tap_spark.sources.formats import FORMATS, source_format
from tap_spark.state.stream_plans import DriverRows, RowForm, RowTasks, Slice, StreamPlan
from tap_spark.stream_config import StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


@runtime_checkable
class Source(Protocol):
    """A stream's source. Its constructor checks what can be checked without Spark."""

    @property
    def key_properties(self) -> tuple[str, ...]:
        """Return the primary key: from the settings, else from the source."""
        ...

    def schema(self, spark: SparkSession) -> StructType:
        """Return columns and exact types; may read the source.

        Raises:
            SourceError: It cannot be read, or has no columns.
        """
        ...

    def slices(self, spark: SparkSession, plan: StreamPlan) -> Iterator[Slice]:
        """Yield the planned rows, in slices that are each read by one Spark job.

        Raises:
            SourceError: It cannot be read, or a planned column does not exist. Later failures of
                Spark, while a slice is read, become errors in `source_failures.source_error`.
        """
        ...


@runtime_checkable
class DriverSource(Protocol):
    """What a source may add to `Source`: what the driver finds out or reads without Spark.

    The results are those of Spark, else None. A class may also offer this alone, as the `driver` of
    a format.
    """

    @property
    def key_properties(self) -> tuple[str, ...]:
        """See `Source.key_properties`."""
        ...

    def schema_on_driver(self, engine: Engine) -> StructType | None:
        """Return what `Source.schema` returns; None if Spark has to tell.

        Args:
            engine: Asked whether threads may read so much (`Work.kind` is `TYPES`).

        Raises:
            OSError, SourceError: The same as None.
        """
        ...

    def read_on_driver(
        self, plan: StreamPlan, form: RowForm | None, engine: Engine
    ) -> DriverRows | None:
        """Read the planned rows; None if Spark has to.

        Args:
            plan: The stream.
            form: How to read rows; None to only find that there are none.
            engine: Asked whether threads may read so much; starts Spark once it is needed.
        """
        ...


@runtime_checkable
class BoundedSource(Protocol):
    """What a source may add to `Source`: where a run will end, fixed before anything is read."""

    def begin(self, spark: SparkSession, plan: StreamPlan) -> Mapping[str, Any] | None:
        """Return a bookmark that is true now and says where the run will end; None without one.

        It goes out before the records of all streams, so that a run after a crash sends the same
        records in the same order.

        Raises:
            SourceError: The source cannot be read.
        """
        ...


@runtime_checkable
class TellingSource(Protocol):
    """What a source may add to `Source`: how many rows its metadata tells."""

    def told_rows(self) -> int | None:
        """Return the rows that a FULL_TABLE read would send; None if the metadata do not tell.

        Raises:
            OSError, SourceError: The same as None.
        """
        ...


@runtime_checkable
class TaskSource(Protocol):
    """What a source may add to `Source`: rows that tasks make without a session of Spark."""

    def task_rows(self, plan: StreamPlan) -> RowTasks | None:
        """Return the planned rows; None if a session has to read them."""
        ...


def source_for(stream: StreamConfig) -> Source:
    """Build the source of a stream, for Spark; raises as `driver_source_for`."""
    return cast("Source", _built(stream, "implementation"))


def driver_source_for(stream: StreamConfig) -> Source | DriverSource:
    """Build what reads a stream without bookmark, by threads if they may.

    Raises:
        SettingsError: The format does not exist.
        SourceError: Its files do not exist.
    """
    return _built(stream, "driver")


def whole_source(source: Source | DriverSource, stream: StreamConfig) -> Source:
    """Return a source that Spark can read."""
    return source if isinstance(source, Source) else source_for(stream)


def _built(stream: StreamConfig, use: str) -> Source | DriverSource:
    # Formats of installed packages import this package, so it does not import them at its top.
    form = source_format(stream.format)
    if form is None:
        raise SettingsError(
            f"unknown format '{stream.format}'",
            where=Where(stream=stream.name),
            hint=f"one of {', '.join(FORMATS)}",
        )
    place = getattr(form, use) or form.implementation
    return cast("Callable[[StreamConfig], Source | DriverSource]", imported(place))(stream)
