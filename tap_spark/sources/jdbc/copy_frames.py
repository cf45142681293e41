"""Rows of PostgreSQL as frames: each task of Spark reads a part by COPY."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from shared.singer.platform import arrow_in_task
from tap_spark.sources.jdbc.copy_reader import CopyLogin, CopySession, copied_schema, read_batches
from tap_spark.sources.jdbc.metadata import begin_statements

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tap_spark.sources.jdbc.dialects.dialect import ColumnInfo


@dataclass(frozen=True)
class CopySource:
    """A database that is read by COPY.

    Attributes:
        login: How to connect.
        begin: Statements that begin each session.
    """

    login: CopyLogin
    begin: tuple[str, ...] = begin_statements(None)

    def at(self, snapshot: str | None) -> CopySource:
        """Return the database as of an exported snapshot."""
        return replace(self, begin=begin_statements(snapshot))

    def frame(
        self, spark: SparkSession, queries: Sequence[str], columns: Sequence[ColumnInfo]
    ) -> DataFrame:
        """Return the rows of SELECTs, each read by one task.

        Args:
            spark: The session.
            queries: The SELECTs.
            columns: The columns of each, which are named `c0`, `c1`, ….

        Raises:
            CopyError: The server cannot be reached, or rejects the first of them.
        """
        from pyspark.sql.pandas.types import from_arrow_type  # noqa: PLC0415

        # What the server rejects is an error here, not that of a job.
        with closing(CopySession(self.login, self.begin)) as session:
            session.rows(f"{queries[0]} LIMIT 0")
        schema = copied_schema(columns)
        task = CopyTask(self, tuple(queries), schema)
        struct = StructType([StructField(f.name, from_arrow_type(f.type), True) for f in schema])
        return spark.range(0, len(queries), 1, len(queries)).mapInArrow(task, struct)


@dataclass(frozen=True)
class CopyTask:
    """Reads parts, for `mapInArrow`: numbers of parts in, their rows out."""

    source: CopySource
    queries: tuple[str, ...]
    schema: pa.Schema

    @property
    def __name__(self) -> str:
        """Return what plans and Spark's pages show."""
        return self.queries[0]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrow_in_task()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                query = self.queries[number]
                yield from read_batches(self.source.login, self.source.begin, query, self.schema)
