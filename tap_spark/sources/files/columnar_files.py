"""Parquet and ORC, which contain their schema."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType

from shared.errors import SourceError
from shared.formats.row_groups import told_by_footer
from shared.storage.s3a import SCHEMES
from shared.storage.urls import local_path
from tap_spark.sources.files.arrow_parquet import (
    READERS,
    FooterFacts,
    Footers,
    NoCommonTypeError,
    ParquetRows,
    arrow_struct,
    orc_facts,
    parquet_facts,
)
from tap_spark.sources.files.file_source import FileSource, parse_ddl
from tap_spark.sources.files.paths import list_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("tap-spark")

MOST_FOOTERS = 1000
"""Local files whose footers the driver reads to tell their rows."""
MOST_REMOTE_FOOTERS = 100
"""The same on S3, where each takes one or two requests."""
_FACTS = {"parquet": parquet_facts, "orc": orc_facts}


class ParquetSource(FileSource):
    """Parquet files; their schemas are merged unless the option `mergeSchema` is false."""

    kind = "parquet"
    _arrow: tuple[StructType | None] | None = None

    def schema(self, spark: SparkSession) -> StructType:
        """See `Source.schema`."""
        if self.stream.schema:
            return parse_ddl(self, spark)
        return self._all(spark)

    def rows(self, spark: SparkSession, urls: list[str], struct: StructType) -> DataFrame:
        """See `FileSource.rows`."""
        if self._by_arrow(spark) is not None:
            files = [file.url for file in list_files(tuple(urls))]
            if not files:
                return spark.createDataFrame([], struct)
            ids = spark.range(0, len(files), 1, len(files))
            return ids.mapInArrow(ParquetRows(files, struct, self.kind), struct)
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
        with ThreadPoolExecutor(READERS if remote else 1) as threads:
            told = list(threads.map(lambda file: told_by_footer(self.kind, file.url)[0], files))
        return None if None in told else sum(rows for rows in told if rows is not None)

    def _by_arrow(self, spark: SparkSession) -> StructType | None:
        """Return the columns of files that Spark refuses; None if it reads them."""
        if self.kind not in _FACTS:
            return None
        if self._arrow is None:
            self._arrow = (self._refused(spark),)
        return self._arrow[0]

    def _refused(self, spark: SparkSession) -> StructType | None:
        try:
            files = list_files(tuple(self.paths))
        except SourceError as error:
            # Spark may have credentials of its own.
            text = "stream '%s': only Spark looks at its files, which may cut nanoseconds: %s"
            log.warning(text, self.stream.name, error)
            return None
        refused: Exception | None = None
        facts: Sequence[FooterFacts] = ()
        urls = [file.url for file in files]
        by_spark = bool(self.stream.options) or any(file.partitioned for file in files)
        try:
            facts = Footers(urls, _FACTS[self.kind]).of(spark)
            if by_spark or not any(fact.is_refused for fact in facts):
                self._merged(spark)
                self._warn_of_nanoseconds(facts)
                return None
        except SourceError:
            raise
        except Exception as error:
            refused = error
        if by_spark or not files:
            return None
        if self.kind == "parquet":
            self._warn_of_nanoseconds([replace(fact, instants=()) for fact in facts])
        try:
            return arrow_struct(urls, self.kind)
        except NoCommonTypeError as error:
            hint = "let its writer cast the column, or read the files as streams of their own"
            raise self.error(str(error), hint, self.shown_path()) from refused
        except (OSError, pa.ArrowException):
            # It is damaged, or of another format: Spark says so.
            return None

    def _warn_of_nanoseconds(self, facts: Sequence[FooterFacts]) -> None:
        """Say once which columns may have lost nanoseconds."""
        columns = sorted({name for fact in facts for name in (*fact.finer, *fact.instants)})
        if columns:
            log.warning(
                "stream '%s': nanoseconds of timestamps are cut to microseconds: %s",
                self.stream.name,
                ", ".join(columns),
            )

    def _all(self, spark: SparkSession) -> StructType:
        struct = self._by_arrow(spark)
        return self._merged(spark) if struct is None else struct

    def _merged(self, spark: SparkSession) -> StructType:
        options = self.options(mergeSchema="true")
        struct = spark.read.format(self.kind).options(**options).load(self.paths).schema
        if not struct.fields:
            raise self.error("the files have no columns", "", self.shown_path())
        in_folders = {field.name: field for field in self.partitions(spark)}
        return StructType([in_folders.get(field.name, field) for field in struct])


class OrcSource(ParquetSource):
    """ORC files."""

    kind = "orc"
