"""Discovery: a catalog of the streams in the settings, with everything selected by default."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from shared.errors import SingerSparkError, SourceError
from tap_spark.catalog import build_entry
from tap_spark.replication import all_of
from tap_spark.sources import Source, source_for
from tap_spark.sources.failures import source_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tap_spark.config import StreamConfig, TapConfig

T = TypeVar("T")
R = TypeVar("R")


def discover(config: TapConfig) -> dict[str, Any]:
    """Starts Spark, describes every stream of the settings and stops Spark.

    Returns:
        A catalog.

    Raises:
        SourceError: Naming every stream that cannot be read.
        SparkStartError: Spark cannot be started.
    """
    from shared.spark_session import SessionStarter  # noqa: PLC0415

    sources = _sources(config)
    starter = SessionStarter(config.spark)
    starter.start()
    try:
        return _catalog(starter.get(), sources)
    finally:
        starter.stop()


def catalog_for(spark: SparkSession, config: TapConfig) -> dict[str, Any]:
    """Describes every stream of the settings with a session that runs already.

    Raises:
        SourceError: Naming every stream that cannot be read.
    """
    return _catalog(spark, _sources(config))


def _sources(config: TapConfig) -> list[tuple[StreamConfig, Source]]:
    """Builds every source, which finds missing files without Spark."""
    return _each(config.streams, lambda stream: (stream, source_for(stream)))


def _catalog(spark: SparkSession, sources: Sequence[tuple[StreamConfig, Source]]) -> dict[str, Any]:
    return {"streams": _each(sources, lambda pair: _entry(spark, *pair))}


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
    """Takes the step for every item, also after one failed, so that all failures are named."""
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
