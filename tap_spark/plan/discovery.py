"""Discovery: a catalog of streams and tables, with everything selected by default.

`estimated_rows` adds about how many rows they have, by what is quick to read: statistics, footers,
first lines.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, TypeGuard

from shared.engine.engine import THREADS, Engine, engine_of
from shared.errors import SingerSparkError, SourceError, Where
from shared.spark.spark_errors import explain_environment
from shared.storage.files import codec_of, open_random, unpacked
from tap_spark.config import TapConfig
from tap_spark.plan.catalog import SOURCE, build_entry, metadata_of, stream_id, table_entry
from tap_spark.sources.files.driver_files import DriverFiles
from tap_spark.sources.files.paths import ListedFile, list_files, lists_nothing
from tap_spark.sources.source import (
    DriverSource,
    Source,
    TellingSource,
    driver_source_for,
    source_for,
    whole_source,
)
from tap_spark.sources.source_failures import Report, SourceErrors, source_error
from tap_spark.sources.tables import DiscoveredTable, DriverLister, TableLister, table_lister
from tap_spark.state.stream_plans import FILES, NOTHING_LISTED
from tap_spark.stream_config import ConnectionConfig, StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


_log = logging.getLogger(__name__)
CONNECTIONS = "tables and topics of `connections`"


def discover(config: TapConfig) -> dict[str, Any]:
    """Describe every stream and table of the settings; start Spark if needed, and stop it.

    Returns:
        A catalog.

    Raises:
        SourceError: Streams cannot be read; names each of them.
        SparkStartError: Spark cannot be started.
    """
    engine = engine_of(config, config.spark)
    try:
        return discovered_catalog(engine, config)
    finally:
        engine.stop()


def connected_tables(config: TapConfig) -> list[DiscoveredTable]:
    """List the tables of the connections of the settings, with Spark as long as they answer.

    Raises:
        SourceError: A connection cannot be read.
        SparkStartError: Spark cannot be started.
    """
    engine = engine_of(config, config.spark)
    try:
        return [table for item in config.connections for table in _tables(engine, item)]
    finally:
        engine.stop()


def catalog_for(spark: SparkSession, config: TapConfig) -> dict[str, Any]:
    """Do the same as `discovered_catalog`, with a running session."""
    return discovered_catalog(Engine.of(lambda: spark), config)


def discovered_catalog(
    engine: Engine, config: TapConfig, failed: Report | None = None
) -> dict[str, Any]:
    """Describe every stream and table of the settings.

    Args:
        engine: Reads what sources do not tell.
        failed: Takes streams that cannot be read, which the catalog then lacks; None for an error.

    Raises:
        SourceError: Streams or connections cannot be read; names each of them.
    """
    if not all(_on_driver(table_lister(item), engine) for item in config.connections):
        engine.needs(CONNECTIONS)
        engine.start()
    errors, sources = SourceErrors(failed), list[tuple[StreamConfig, Source | DriverSource]]()
    # This detects missing files without Spark.
    for stream in config.streams:
        with errors.of(stream.name):
            sources.append((stream, driver_source_for(stream)))
    errors.raise_if_any()
    described: list[dict[str, Any]] = []
    for stream, source, struct in list(_structs_on_driver(engine, sources)):
        with errors.of(stream.name):
            described.append(_entry(engine, stream, source, struct))
    for item in config.connections:
        with errors.of():
            described += map(table_entry, _tables(engine, item))
    errors.raise_if_any()
    entries: dict[str, dict[str, Any]] = {}
    set_by_hand = {stream.name for stream in config.streams}
    for entry in described:
        name = entry["tap_stream_id"]
        if SOURCE in entry["metadata"][0]["metadata"] and name in set_by_hand:
            continue
        if name in entries:
            raise _duplicate_name(name, entries[name], entry)
        entries[name] = entry
    return {"streams": list(entries.values())}


def without_files(streams: Iterable[StreamConfig], state: Mapping[str, Any]) -> list[str]:
    """Return the streams that have read files, none of which is listed now; warn of each."""
    names = []
    for stream in streams:
        positions = ((state.get("bookmarks") or {}).get(stream.name) or {}).get(FILES)
        if positions and stream.paths and lists_nothing(stream.paths):
            _log.warning(NOTHING_LISTED, stream.name, len(positions))
            names.append(stream.name)
    return names


def _duplicate_name(name: str, *entries: Mapping[str, Any]) -> SourceError:
    sources = [entry["metadata"][0]["metadata"].get(SOURCE) or {} for entry in entries]
    tables = " and ".join(f"{item.get('table')} of '{item.get('connection')}'" for item in sources)
    return SourceError(
        f"two tables of the connections would have this stream name: {tables}",
        where=Where(stream=name),
        hint="'exclude' one of them and read it by an item of 'streams' with another name, or set "
        "'stream_prefix' for one of two connections",
    )


def _tables(engine: Engine, config: ConnectionConfig) -> Iterable[DiscoveredTable]:
    lister = table_lister(config)
    tables = lister.tables_on_driver() if _on_driver(lister, engine) else None
    return lister.tables(engine.session(CONNECTIONS)) if tables is None else tables


def _on_driver(lister: TableLister, engine: Engine) -> TypeGuard[DriverLister]:
    return engine.may_read and isinstance(lister, DriverLister) and lister.on_driver


def _structs_on_driver(
    engine: Engine, sources: Sequence[tuple[StreamConfig, Source | DriverSource]]
) -> Iterator[tuple[StreamConfig, Source | DriverSource, StructType | None]]:
    """Yield each source with its columns, if they are known without Spark; else start Spark."""
    for stream, source in sources:
        struct = None
        if engine.may_read and isinstance(source, DriverSource):
            with suppress(OSError, SourceError):
                struct = source.schema_on_driver(engine)
        if struct is None:
            engine.start()
        yield stream, source, struct


def _entry(
    engine: Engine,
    stream: StreamConfig,
    source: Source | DriverSource,
    struct: StructType | None,
) -> dict[str, Any]:
    struct = _struct(engine, stream, source) if struct is None else struct
    _check_separator(stream, struct.names)
    return build_entry(
        stream.name,
        struct,
        key_properties=source.key_properties,
        replication_key=stream.replication_key,
        replication_method=stream.replication_method,
    )


def _check_separator(stream: StreamConfig, names: Sequence[str]) -> None:
    """Warn of CSV files of one column whose name holds what often separates values."""
    options = {name.lower() for name in stream.options}
    if stream.format != "csv" or len(names) != 1 or options & {"sep", "delimiter"}:
        return
    if separator := next((one for one in ";\t|" if one in names[0]), None):
        _log.warning(
            "stream '%s': its only column is %r: set the option 'sep' to %r if that separates "
            "values",
            stream.name,
            names[0],
            separator,
        )


def _struct(engine: Engine, stream: StreamConfig, source: Source | DriverSource) -> StructType:
    """Return the columns of a stream that threads have not found out."""
    struct = None
    try:
        with source.naming_paths() if isinstance(source, DriverFiles) else nullcontext():
            if engine.choice == THREADS and isinstance(source, DriverSource):
                # Spark will not try again: what fails is the error.
                struct = source.schema_on_driver(engine)
            if struct is None:
                spark = engine.session(f"columns of stream '{stream.name}'")
                struct = whole_source(source, stream).schema(spark)
    except SingerSparkError:
        raise
    except Exception as error:
        lost = explain_environment(error, Where(stream=stream.name))
        raise lost or source_error(stream.name, error) from error
    return struct


_SAMPLE, _UNPACKED_SAMPLE = 1 << 20, 32 << 20
_BY_LINES = ("csv", "json", "text", "fixed_width")


def estimated_rows(config: TapConfig, catalog: Mapping[str, Any]) -> dict[str, str]:
    """Return how many rows the streams of a discovery have, for people; with `~` if estimated.

    Streams of which nothing is known are left out.
    """
    by_name = {stream.name: stream for stream in config.streams}
    estimates: dict[str, str] = {}
    for entry in catalog["streams"]:
        name = str(stream_id(entry))
        rows = metadata_of(entry).get((), {}).get("row-count")
        is_exact = False
        if rows is None and name in by_name:
            with suppress(SingerSparkError, OSError, ValueError):
                rows, is_exact = _rows_of(by_name[name])
        if rows is not None:
            estimates[name] = f"{'' if is_exact else '~'}{rows:,}"
    return estimates


def _rows_of(stream: StreamConfig) -> tuple[int | None, bool]:
    """Return the rows of a stream, and whether they are exact."""
    if isinstance(rows := stream.own.get("row_count"), int):
        return rows, True
    source = source_for(stream)
    if isinstance(source, TellingSource):
        return source.told_rows(), True
    if not isinstance(source, DriverFiles) or stream.format not in _BY_LINES:
        return None, False
    if "records_path" in stream.own or source.flag("multiLine"):
        return None, False
    files = [file for file in list_files(tuple(source.paths)) if file.size]
    has_header = stream.format == "csv" and source.flag("header", default=True)
    return _rows_by_lines(files, len(files) if has_header else 0), False


def _rows_by_lines(files: Sequence[ListedFile], headers: int) -> int | None:
    """Return the rows of files, if all are like the beginning of the greatest one."""
    if not files:
        return 0
    largest = max(files, key=lambda file: file.size)
    raw = open_random(largest.url)
    codec = codec_of(largest.url)
    most = _SAMPLE if codec is None else _UNPACKED_SAMPLE
    with raw if codec is None else unpacked(raw, codec) as content:
        head: bytes = content.read(most)
        # What unpacks reads ahead.
        read = raw.tell() if len(head) == most else largest.size
    if head.lstrip()[:1] == b"[":
        return None
    lines = head.count(b"\n") + (len(head) < most and not head.endswith(b"\n"))
    return max(0, round(lines * sum(file.size for file in files) / read) - headers)
