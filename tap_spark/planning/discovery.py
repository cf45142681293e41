"""Discovery: a catalog of streams and tables, with everything selected by default."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from shared.errors import SingerSparkError, SourceError, Where
from tap_spark.planning.catalog import build_entry
from tap_spark.planning.table_entries import SOURCE, table_entry
from tap_spark.sources.connections.connection import table_lister
from tap_spark.sources.source import Source, source_for
from tap_spark.sources.source_failures import all_of, source_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tap_spark.config import TapConfig
    from tap_spark.connection_config import ConnectionConfig
    from tap_spark.stream_config import StreamConfig

T = TypeVar("T")
R = TypeVar("R")


def discover(config: TapConfig) -> dict[str, Any]:
    """Start Spark, describe every stream and table of the settings, and stop Spark.

    Returns:
        A catalog.

    Raises:
        SourceError: Streams cannot be read; names each of them.
        SparkStartError: Spark cannot be started.
    """
    from shared.spark.session import SessionStarter  # noqa: PLC0415

    sources = _sources(config)
    starter = SessionStarter(config.spark)
    starter.start()
    try:
        return _catalog(starter.get(), config, sources)
    finally:
        starter.stop()


def catalog_for(spark: SparkSession, config: TapConfig) -> dict[str, Any]:
    """Describe every stream and table of the settings, with a running session.

    Raises:
        SourceError: Streams cannot be read; names each of them.
    """
    return _catalog(spark, config, _sources(config))


def _sources(config: TapConfig) -> list[tuple[StreamConfig, Source]]:
    """Build every source; this detects missing files without Spark."""
    return _each(config.streams, lambda stream: (stream, source_for(stream)))


def _catalog(
    spark: SparkSession, config: TapConfig, sources: Sequence[tuple[StreamConfig, Source]]
) -> dict[str, Any]:
    """Return the streams of the settings, then the other tables of the connections."""
    makers: list[Callable[[], list[dict[str, Any]]]] = [
        partial(_entries_of_stream, spark, *pair) for pair in sources
    ]
    makers += [partial(_entries_of_connection, spark, item) for item in config.connections]
    entries: dict[str, dict[str, Any]] = {}
    set_by_hand = {stream.name for stream in config.streams}
    for made in _each(makers, lambda make: make()):
        for entry in made:
            name = entry["tap_stream_id"]
            if SOURCE in entry["metadata"][0]["metadata"] and name in set_by_hand:
                continue
            if name in entries:
                raise _duplicate_name(name)
            entries[name] = entry
    return {"streams": list(entries.values())}


def _duplicate_name(name: str) -> SourceError:
    return SourceError(
        "two tables of the connections would have this stream name",
        where=Where(stream=name),
        hint="set 'stream_prefix' for one of the connections",
    )


def _entries_of_connection(spark: SparkSession, config: ConnectionConfig) -> list[dict[str, Any]]:
    return [table_entry(found) for found in table_lister(config).tables(spark)]


def _entries_of_stream(
    spark: SparkSession, stream: StreamConfig, source: Source
) -> list[dict[str, Any]]:
    return [_entry(spark, stream, source)]


def _entry(spark: SparkSession, stream: StreamConfig, source: Source) -> dict[str, Any]:
    try:
        struct = source.schema(spark)
    except SingerSparkError:
        raise
    except Exception as error:
        raise source_error(stream.name, error) from error
    return build_entry(
        stream.name,
        struct,
        key_properties=source.key_properties,
        replication_key=stream.replication_key,
        replication_method=stream.replication_method,
    )


def _each(items: Iterable[T], step: Callable[[T], R]) -> list[R]:
    """Do the step for every item, even after a failure, so that the error names all failures."""
    done: list[R] = []
    errors: list[SourceError] = []
    for item in items:
        try:
            done.append(step(item))
        except SourceError as error:
            errors.append(error)
    if errors:
        raise all_of(errors)
    return done
