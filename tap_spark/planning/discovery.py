"""Discovery: a catalog of streams and tables, with everything selected by default."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from shared.errors import SingerSparkError, SourceError, Where
from shared.spark.spark_errors import explain_environment
from tap_spark.planning.catalog import build_entry
from tap_spark.planning.stream_failures import Report
from tap_spark.planning.table_entries import SOURCE, table_entry
from tap_spark.sources.connections.connection import table_lister
from tap_spark.sources.source import DriverSource, Source, driver_may_read, source_for
from tap_spark.sources.source_failures import all_of, source_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from shared.spark.session import SessionStarter
    from tap_spark.config import TapConfig
    from tap_spark.connection_config import ConnectionConfig
    from tap_spark.sources.connections.connection import DiscoveredTable
    from tap_spark.stream_config import StreamConfig

T = TypeVar("T")


def discover(config: TapConfig) -> dict[str, Any]:
    """Describe every stream and table of the settings; start Spark if needed, and stop it.

    Returns:
        A catalog.

    Raises:
        SourceError: Streams cannot be read; names each of them.
        SparkStartError: Spark cannot be started.
    """
    from shared.spark.session import SessionStarter  # noqa: PLC0415

    starter = SessionStarter(config.spark)
    try:
        return found_catalog(starter, config)
    finally:
        starter.stop()


def connected_tables(config: TapConfig) -> list[DiscoveredTable]:
    """List the tables of the connections of the settings, with Spark as long as they answer.

    Raises:
        SourceError: A connection cannot be read.
        SparkStartError: Spark cannot be started.
    """
    from shared.spark.session import SessionStarter  # noqa: PLC0415

    starter = SessionStarter(config.spark)
    starter.start()
    try:
        spark = starter.get()
        return [table for item in config.connections for table in table_lister(item).tables(spark)]
    finally:
        starter.stop()


def catalog_for(spark: SparkSession, config: TapConfig) -> dict[str, Any]:
    """Do the same as `found_catalog`, with a running session."""
    from shared.spark.session import SessionStarter  # noqa: PLC0415

    return found_catalog(SessionStarter.of(spark), config)


def found_catalog(
    starter: SessionStarter, config: TapConfig, failed: Report | None = None
) -> dict[str, Any]:
    """Describe every stream and table of the settings.

    Args:
        starter: Starts the session if a source needs it.
        config: The settings.
        failed: Takes streams that cannot be read, which the catalog then lacks; None for an error.

    Raises:
        SourceError: Streams or connections cannot be read; names each of them.
    """
    if config.connections:
        starter.start()
    return _catalog(starter, config, _sources(config, failed), failed)


def _sources(config: TapConfig, failed: Report | None) -> list[tuple[StreamConfig, Source]]:
    """Build every source; this detects missing files without Spark."""
    makers = [(stream.name, partial(_source, stream)) for stream in config.streams]
    return _each(makers, failed)


def _source(stream: StreamConfig) -> tuple[StreamConfig, Source]:
    return stream, source_for(stream)


def _catalog(
    starter: SessionStarter,
    config: TapConfig,
    sources: Sequence[tuple[StreamConfig, Source]],
    failed: Report | None,
) -> dict[str, Any]:
    """Return the streams of the settings, then the other tables of the connections."""
    structs = _structs_on_driver(starter, config, sources)
    makers: list[tuple[str | None, Callable[[], list[dict[str, Any]]]]] = [
        (item[0].name, partial(_entries_of_stream, starter, *item)) for item in structs
    ]
    makers += [
        (None, partial(_entries_of_connection, starter, item)) for item in config.connections
    ]
    entries: dict[str, dict[str, Any]] = {}
    set_by_hand = {stream.name for stream in config.streams}
    for made in _each(makers, failed):
        for entry in made:
            name = entry["tap_stream_id"]
            if SOURCE in entry["metadata"][0]["metadata"] and name in set_by_hand:
                continue
            if name in entries:
                raise _duplicate_name(name, entries[name], entry)
            entries[name] = entry
    return {"streams": list(entries.values())}


def _duplicate_name(name: str, *entries: Mapping[str, Any]) -> SourceError:
    sources = [entry["metadata"][0]["metadata"].get(SOURCE) or {} for entry in entries]
    tables = " and ".join(f"{item.get('table')} of '{item.get('connection')}'" for item in sources)
    return SourceError(
        f"two tables of the connections would have this stream name: {tables}",
        where=Where(stream=name),
        hint="'exclude' one of them and read it by an item of 'streams' with another name, or set "
        "'stream_prefix' for one of two connections",
    )


def _entries_of_connection(
    starter: SessionStarter, config: ConnectionConfig
) -> list[dict[str, Any]]:
    return [table_entry(found) for found in table_lister(config).tables(starter.get())]


def _entries_of_stream(
    starter: SessionStarter, stream: StreamConfig, source: Source, struct: StructType | None
) -> list[dict[str, Any]]:
    return [_entry(starter, stream, source, struct)]


def _structs_on_driver(
    starter: SessionStarter, config: TapConfig, sources: Sequence[tuple[StreamConfig, Source]]
) -> Iterator[tuple[StreamConfig, Source, StructType | None]]:
    """Yield each source with its columns, if they are known without Spark; else start Spark."""
    may_read = driver_may_read(config.spark)
    for stream, source in sources:
        struct = None
        if may_read and isinstance(source, DriverSource):
            with suppress(OSError, SourceError):
                struct = source.schema_on_driver()
        if struct is None:
            starter.start()
        yield stream, source, struct


def _entry(
    starter: SessionStarter, stream: StreamConfig, source: Source, struct: StructType | None
) -> dict[str, Any]:
    from tap_spark.sources.files.file_source import FileSource  # noqa: PLC0415

    try:
        with source.naming_paths() if isinstance(source, FileSource) else nullcontext():
            struct = source.schema(starter.get()) if struct is None else struct
    except SingerSparkError:
        raise
    except Exception as error:
        lost = explain_environment(error, Where(stream=stream.name))
        raise lost or source_error(stream.name, error) from error
    return build_entry(
        stream.name,
        struct,
        key_properties=source.key_properties,
        replication_key=stream.replication_key,
        replication_method=stream.replication_method,
    )


def _each(makers: Iterable[tuple[str | None, Callable[[], T]]], failed: Report | None) -> list[T]:
    """Make everything, even after a failure, so that the error names all failures.

    Args:
        makers: What to make, each with its stream, if it is of one.
        failed: See `found_catalog`.
    """
    done: list[T] = []
    errors: list[SourceError] = []
    for stream, make in makers:
        try:
            done.append(make())
        except SourceError as error:
            if failed is None or stream is None:
                errors.append(error)
            else:
                failed(stream, error)
    if errors:
        raise all_of(errors)
    return done
