"""Tables, views and queries of databases, read by JDBC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from shared.errors import SettingsError, SourceError, Where
from tap_spark.sources.frame_helpers import struct_from_text
from tap_spark.sources.jdbc.dialects.dialect import dialect_for
from tap_spark.sources.jdbc.jdbc_columns import struct_of
from tap_spark.sources.jdbc.jdbc_options import jdbc_options
from tap_spark.sources.jdbc.jdbc_query import JdbcQuery, database_name, session_options
from tap_spark.sources.jdbc.jdbc_urls import reader_options
from tap_spark.sources.jdbc.metadata import table_info
from tap_spark.sources.jdbc.read_slices import JdbcRead, read_slices
from tap_spark.sources.jdbc.table_info import ColumnInfo, TableInfo
from tap_spark.sources.jdbc_failures import REDISCOVER, with_retries
from tap_spark.sources.read_only_sql import as_subquery, check_reads
from tap_spark.sources.table_names import name_parts
from tap_spark.state.stream_plans import Resume, Slice, StreamPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from tap_spark.connection_config import ConnectionConfig
    from tap_spark.stream_config import StreamConfig

QUERY = "tap_spark_query"


class JdbcSource:
    """A table, view or query of the stream's connection.

    Raises:
        SettingsError: An option or the table's name is invalid, or the query is not exactly one
            statement that reads.
    """

    def __init__(self, stream: StreamConfig) -> None:
        self.stream = stream
        self.where = Where(stream=stream.name)
        self.connection = _connection(stream)
        self.url = str(self.connection.url)
        self.dialect = dialect_for(self.url)
        self.options = jdbc_options(stream)
        self.key_properties = stream.key_properties
        self.parts: tuple[str, ...] = ()
        if stream.query is not None:
            place = Where(stream=stream.name, setting="query")
            check_reads(stream.query, database_name(self.url), place)
        else:
            self.parts = _parts(stream)

    def schema(self, spark: SparkSession) -> StructType:
        """See `Source.schema`; also sets a table's primary key."""
        table = self._table(spark)
        if table is None:
            return struct_of(self._columns_of_query(spark))
        self.key_properties = self.key_properties or table.primary_key
        return struct_of(table.columns)

    def slices(self, spark: SparkSession, plan: StreamPlan) -> Iterator[Slice]:
        """See `Source.slices`: in one part or several, as `docs/databases.md` says."""
        table = self._table(spark)
        columns = self._columns_of_query(spark) if table is None else table.columns
        self._check(plan, columns)
        known = {column.name: column for column in columns}
        key = None
        if plan.resume is Resume.REPLICATION_KEY:
            key = known[str(plan.replication_key)]
        query = JdbcQuery(
            self.dialect,
            self._query() if table is None else self.dialect.table(table.parts),
            tuple(known[name] for name in plan.columns),
            self._options(),
            key,
        )
        if key is not None:
            query = self._bounded(query, plan)
        split = self._split(known)
        yield from read_slices(
            JdbcRead(spark, self.connection, plan, self.options, query, table, split)
        )

    def _table(self, spark: SparkSession) -> TableInfo | None:
        if not self.parts:
            return None
        return table_info(spark, self.connection, self.parts, self.where)

    def _options(self) -> dict[str, str]:
        return session_options(self.url, reader_options(self.connection), self.options.reader, None)

    def _query(self) -> str:
        text = as_subquery(str(self.stream.query), database_name(self.url))
        return f"{text} {QUERY}"

    def _columns_of_query(self, spark: SparkSession) -> tuple[ColumnInfo, ...]:
        """Describe the columns of a query, which Spark's reader asks the database for."""
        options = {**self._options(), "dbtable": self._query()}
        reader = spark.read.format("jdbc").options(**options)
        struct = with_retries(lambda: reader.load().schema, self.connection, self.where)
        return tuple(
            ColumnInfo(f.name, "", f.dataType.simpleString(), True, self.dialect.quote(f.name))
            for f in struct.fields
        )

    def _check(self, plan: StreamPlan, columns: tuple[ColumnInfo, ...]) -> None:
        """Check that the selected columns are there, with the catalog's types."""
        now = {field.name: field.dataType for field in struct_of(columns).fields}
        gone = [name for name in plan.columns if name not in now]
        if gone:
            raise self._changed(f"column {gone[0]!r} does not exist any more")
        if plan.source_schema is None:
            return
        words = {column.name: column.sql_type or column.spark_type for column in columns}
        for field in struct_from_text(plan.source_schema).fields:
            if field.name in plan.columns and now[field.name] != field.dataType:
                raise self._changed(
                    f"column {field.name!r} is now {words[field.name]}, but the catalog has "
                    f"{field.dataType.simpleString()}"
                )

    def _changed(self, text: str) -> SourceError:
        return SourceError(text, where=self.where, hint=REDISCOVER)

    def _bounded(self, query: JdbcQuery, plan: StreamPlan) -> JdbcQuery:
        try:
            if plan.start_value is not None:
                query = query.since(plan.start_value)
            if plan.end_value is not None:
                query = query.before(plan.end_value)
        except ValueError as error:
            raise SourceError(
                f"the bookmark or the end date does not fit the replication key: {error}",
                where=self.where,
                hint="correct the state, or remove the stream's bookmark",
            ) from error
        return query if plan.null_keys else query.with_keys()

    def _split(self, known: Mapping[str, ColumnInfo]) -> ColumnInfo | None:
        name = self.options.split_column
        if name is None or name in known:
            return None if name is None else known[name]
        raise SettingsError(
            f"column {name!r} does not exist",
            where=Where(stream=self.stream.name, setting="options['partitionColumn']"),
            hint=f"columns: {', '.join(known)}",
        )


def _connection(stream: StreamConfig) -> ConnectionConfig:
    if stream.database is None or stream.database.url is None:
        raise SettingsError(
            "the stream has no connection with a url",
            where=Where(stream=stream.name, setting="connection"),
        )
    return stream.database


def _parts(stream: StreamConfig) -> tuple[str, ...]:
    try:
        return name_parts(stream.table or "")
    except ValueError as error:
        raise SettingsError(
            str(error),
            where=Where(stream=stream.name, setting="table"),
            hint='schema.table, parts with dots or spaces in double quotes: sales."Order Lines"',
        ) from error
