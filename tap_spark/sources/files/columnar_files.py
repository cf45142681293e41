"""Parquet and ORC, which contain their schema."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from shared.formats.row_groups import told_by_footer
from shared.storage.s3a import SCHEMES
from shared.storage.urls import local_path
from tap_spark.sources.files.file_source import FileSource, parse_ddl
from tap_spark.sources.files.paths import list_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


MOST_FOOTERS = 1000
"""Local files whose footers the driver reads to tell their rows."""
MOST_REMOTE_FOOTERS = 100
"""The same on S3, where each takes one or two requests."""
_READERS = 8


class ParquetSource(FileSource):
    """Parquet files; their schemas are merged unless the option `mergeSchema` is false."""

    kind = "parquet"

    def schema(self, spark: SparkSession) -> StructType:
        """See `Source.schema`."""
        if self.stream.schema:
            return parse_ddl(self, spark)
        return self._all(spark)

    def rows(self, spark: SparkSession, urls: list[str], struct: StructType) -> DataFrame:
        """See `FileSource.rows`."""
        reader = spark.read.format(self.kind).options(**self.options())
        return reader.schema(struct).load(urls)

    def present_columns(self, spark: SparkSession) -> list[str] | None:
        """See `FileSource.present_columns`."""
        return self._all(spark).names

    def told_rows(self) -> int | None:
        """See `TellingSource`: by the footers of local files, and of those on S3."""
        remote = [path for path in self.paths if local_path(path) is None]
        if self.stream.options or not all(path.startswith(SCHEMES) for path in remote):
            return None
        files = list_files(tuple(self.paths))
        if len(files) > (MOST_REMOTE_FOOTERS if remote else MOST_FOOTERS):
            return None
        with ThreadPoolExecutor(_READERS if remote else 1) as threads:
            told = list(threads.map(lambda file: told_by_footer(self.kind, file.url)[0], files))
        return None if None in told else sum(rows for rows in told if rows is not None)

    def _all(self, spark: SparkSession) -> StructType:
        options = self.options(mergeSchema="true")
        struct = spark.read.format(self.kind).options(**options).load(self.paths).schema
        if not struct.fields:
            raise self.error("the files have no columns", "", self.shown_path())
        return struct


class OrcSource(ParquetSource):
    """ORC files."""

    kind = "orc"
