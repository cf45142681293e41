"""Where streams are read from: one module per kind, found by the stream's `format`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from shared.errors import SettingsError, Where

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from tap_spark.plans import Slice, StreamPlan
    from tap_spark.stream_config import StreamConfig

FORMATS = {
    "csv": "csv_files:CsvSource",
    "json": "json_files:JsonSource",
    "text": "columnar_files:TextSource",
    "parquet": "columnar_files:ParquetSource",
    "orc": "columnar_files:OrcSource",
    "avro": "avro_files:AvroSource",
    "xml": "xml_files:XmlSource",
    "fixed_width": "fixed_width:FixedWidthSource",
    "table": "tables:TableSource",
    "sql": "sql:SqlSource",
    "jdbc": "jdbc:JdbcSource",
    "rows": "rows:RowsSource",
    "delta": "delta:DeltaSource",
    "iceberg": "iceberg:IcebergSource",
}
"""Module and class of each format; a new source is one line here."""

PYTHON = "python_sources:PythonSource"
"""Of formats that name a class."""


class Source(Protocol):
    """A stream's source. Building it checks what can be checked without Spark."""

    @property
    def key_properties(self) -> tuple[str, ...]:
        """The primary key: the settings', or what the source itself knows."""
        ...

    def schema(self, spark: SparkSession) -> StructType:
        """Columns and exact types; may read the source.

        Raises:
            SourceError: It cannot be read, or has no columns.
        """
        ...

    def slices(self, spark: SparkSession, plan: StreamPlan) -> Iterator[Slice]:
        """The planned rows, in parts that are each read by one Spark job.

        Raises:
            SourceError: It cannot be read, or a planned column is gone. What Spark finds later,
                while a part is read, goes through `failures.source_error`.
        """
        ...


def source_for(stream: StreamConfig) -> Source:
    """Builds the source of a stream.

    Raises:
        SettingsError: There is no such format.
        SourceError: Its files do not exist.
    """
    place = PYTHON if stream.is_python_source else FORMATS.get(stream.format)
    if place is None:
        raise SettingsError(
            f"unknown format '{stream.format}'",
            where=Where(stream=stream.name),
            hint=f"one of {', '.join(FORMATS)}",
        )
    module, name = place.split(":")
    source: Source = getattr(import_module(f"tap_spark.sources.{module}"), name)(stream)
    return source
