"""Tables, views and queries of databases: listed from their metadata, and read by JDBC."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from shared.engine.engine import Engine
from shared.errors import SettingsError, SourceError, Where
from tap_spark.sources.frame_helpers import struct_from_text
from tap_spark.sources.jdbc.copy_driver import (
    RULE,
    CopyRead,
    asked,
    copied_rows,
    opened,
    why_jdbc,
    why_spark,
)
from tap_spark.sources.jdbc.copy_reader import CopySource
from tap_spark.sources.jdbc.dialects.dialect import (
    ColumnInfo,
    KeyOrder,
    TableInfo,
    dialect_for,
    is_ordered,
    key_order,
)
from tap_spark.sources.jdbc.jdbc_query import (
    JdbcOptions,
    JdbcQuery,
    jdbc_options,
    session_options,
    struct_of,
)
from tap_spark.sources.jdbc.metadata import JdbcQueryRunner, described_table
from tap_spark.sources.jdbc.read_slices import JdbcRead, read_slices
from tap_spark.sources.read_only_sql import as_subquery, check_reads
from tap_spark.sources.source_failures import REDISCOVER, with_retries
from tap_spark.sources.tables import (
    DiscoveredTable,
    full_name,
    is_wanted,
    joined_name,
    name_parts,
    stream_name,
    warn_of_unmatched,
)
from tap_spark.state.stream_plans import DriverRows, Resume, RowForm, Slice, StreamPlan
from tap_spark.stream_config import ConnectionConfig, StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from tap_spark.sources.jdbc.copy_reader import CopyLogin, CopySession
    from tap_spark.sources.jdbc.dialects.dialect import Dialect, QueryRunner


FETCH_BYTES = 16 * 1024**2
"""What one fetch may hold, by the mean width of a row."""
BURST = 8
"""How many times that a fetch may hold if all rows are as wide as the widest of the sample."""
SAMPLE_ROWS, SAMPLE_SECONDS = 50, 2
UNKNOWN_ROWS = 100
"""Rows of a fetch if the width of the rows is unknown."""
_LENGTH = re.compile(r"char\w*(?: varying)?\((\d+)\)", re.IGNORECASE)
_SHORT = re.compile(r"uuid|inet|cidr|macaddr|time|interval|year|numeric|decimal|number|enum")
_SHORT_BYTES, _FIXED_BYTES, _BYTES_OF_CHARACTER = 100, 16, 4
_log = logging.getLogger("tap-spark")


def fetch_rows(mean: int, most: int, limit: int) -> int:
    """Return the rows of a fetch.

    Args:
        mean: Mean width of a row in bytes.
        most: Width of the widest row that was seen.
        limit: The most rows that the settings allow.
    """
    return max(1, min(limit, FETCH_BYTES // max(mean, most // BURST, 1)))


def greatest_width(columns: Iterable[ColumnInfo]) -> int | None:
    """Return the most bytes of a row by the declared types; None if they have no limit."""
    total = 0
    for column in columns:
        length = _LENGTH.search(column.sql_type)
        if not column.spark_type.startswith(("string", "binary", "array")):
            total += _FIXED_BYTES
        elif column.spark_type == "string" and length:
            total += int(length[1]) * _BYTES_OF_CHARACTER
        elif column.spark_type == "string" and _SHORT.match(column.sql_type.lower()):
            total += _SHORT_BYTES
        else:
            return None
    return total


def fitting_rows(
    spark: SparkSession,
    connection: ConnectionConfig,
    dialect: Dialect,
    columns: tuple[ColumnInfo, ...],
    source: str,
    table: TableInfo | None,
    options: Mapping[str, str],
) -> int:
    """Return how many rows the driver may fetch at a time, by a sample of their widths.

    For `columns`, `source` and `table` see `Dialect.row_widths`; `options` are Spark's reader's.
    """
    limit = connection.fetch_size
    width = greatest_width(columns)
    if width is not None and fetch_rows(width, 0, limit) == limit:
        return limit
    mean, most = 0, 0
    if table is not None and table.row_count and table.size_bytes:
        mean = table.size_bytes // table.row_count
    sample = dialect.row_widths(columns, source, table, SAMPLE_ROWS)
    if sample is None:
        return fetch_rows(mean, most, limit)
    run_query = JdbcQueryRunner(
        spark, connection, options={**options, "queryTimeout": str(SAMPLE_SECONDS)}
    )
    try:
        [row] = run_query(sample)
    except SourceError as error:
        # A failure that is not one of time comes again when the rows are read.
        _log.debug("cannot sample the width of rows: %s", error)
        return min(limit, UNKNOWN_ROWS)
    return fetch_rows(max(mean, row["mean"] or 0), row["most"] or 0, limit)


QUERY = "tap_spark_query"
_NUMBER = re.compile(r"(?i)numeric|decimal|number")
_TWICE = re.compile(r"COLUMN_ALREADY_EXISTS\] The column `(.+?)` already exists")


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
        self.dialect = dialect_for(str(self.connection.url))
        self.options = jdbc_options(stream)
        self.key_properties = stream.key_properties
        self.parts: tuple[str, ...] = ()
        if stream.query is not None:
            place = Where(stream=stream.name, setting="query")
            check_reads(stream.query, self.dialect.name, place)
        else:
            self.parts = _parts(stream, self.dialect, str(self.connection.url))

    def schema(self, spark: SparkSession) -> StructType:
        """See `Source.schema`; also sets a table's primary key."""
        table = self._table(spark, self._copy(spark))
        if table is None:
            return struct_of(self._columns_of_query(spark))
        self.key_properties = self.key_properties or table.primary_key
        return struct_of(table.columns)

    def slices(self, spark: SparkSession, plan: StreamPlan) -> Iterator[Slice]:
        """See `Source.slices`: in one part or several, as `docs/databases.md` says."""
        copy, options = self._copy(spark), self.options
        table = self._table(spark, copy)
        columns = self._columns_of_query(spark) if table is None else table.columns
        query = self._planned(plan, columns, table)
        if copy is None:
            options = self._fitted(spark, query.columns, query.source, table)
        elif table is None:
            query = replace(query, source=self._query("?"))
        own = session_options(self.connection, options.reader)
        query = replace(query, options=own, copy=copy)
        split = self._split({column.name: column for column in columns})
        yield from read_slices(JdbcRead(spark, self.connection, plan, options, query, table, split))

    def schema_on_driver(self, engine: Engine) -> StructType | None:  # noqa: ARG002
        """See `DriverSource.schema_on_driver`."""
        login = self._login_of_driver()
        if login is None:
            return None
        table = asked(login, self.connection, self.where, self._described)
        self.key_properties = self.key_properties or table.primary_key
        return struct_of(table.columns)

    def read_on_driver(
        self, plan: StreamPlan, form: RowForm | None, engine: Engine
    ) -> DriverRows | None:
        """See `DriverSource.read_on_driver`."""
        login = None if form is None else self._login_of_driver()
        if form is None or login is None:
            return None

        def read(session: CopySession) -> DriverRows | None:
            table = self._described(session)
            query = self._planned(plan, table.columns, table)
            wanted = self.options.partitions
            rows = copied_rows(CopyRead(session, plan, query, table, wanted), form, engine)
            if rows is None:
                session.close()
            return rows

        return with_retries(lambda: opened(login, read), self.connection, self.where)

    def _login_of_driver(self) -> CopyLogin | None:
        """Return how the driver reads the stream by COPY; None if JDBC reads it."""
        if why_spark(self.stream):
            return None
        return RULE.login(self.connection, self.where, self.options.reader)

    def _described(self, run_query: QueryRunner) -> TableInfo:
        return described_table(run_query, self.connection, self.parts, self.where)

    def _planned(
        self, plan: StreamPlan, columns: tuple[ColumnInfo, ...], table: TableInfo | None
    ) -> JdbcQuery:
        """Return the query of the planned rows, without the options of a reader."""
        self._check(plan, columns)
        by_name = {column.name: column for column in columns}
        key = None
        if plan.resume is Resume.REPLICATION_KEY:
            key = self._key(str(plan.replication_key), columns, table)
        source = self._query() if table is None else self.dialect.table(table.parts)
        selected = tuple(by_name[name] for name in plan.columns)
        query = JdbcQuery(self.dialect, source, selected, {}, key)
        return query if key is None else self._bounded(query, plan)

    def _copy(self, spark: SparkSession | None) -> CopySource | None:
        """Return how to read by COPY; None if JDBC reads."""
        names = (*self.options.reader, *(["partitionColumn"] if self.options.split_column else []))
        login = RULE.login(self.connection, self.where, names, spark)
        return None if login is None else CopySource(login)

    def _key(
        self, name: str, columns: tuple[ColumnInfo, ...], table: TableInfo | None
    ) -> ColumnInfo:
        """Return the replication key.

        Raises:
            SourceError: The database and the tap do not order its values alike.
        """
        key = next(column for column in columns if column.name == name)
        others = table.replication_keys if table else ()
        keys = f"one of the keys {', '.join(map(repr, others))}" if others else "another key"
        if key.order is KeyOrder.NONE:
            raise SourceError(
                f"replication key {name!r} has the type {key.sql_type or key.spark_type}, whose "
                "values have no order that a bookmark can follow",
                where=self.where,
                hint=f"use {keys}, or FULL_TABLE",
            )
        if key.order is KeyOrder.DATABASE and self.stream.sort_by_replication_key:
            raise SettingsError(
                f"Spark does not sort the replication key {name!r} as the database does",
                where=Where(stream=self.stream.name, setting="sort_by_replication_key"),
                hint="remove the setting",
            )
        return key

    def _table(self, spark: SparkSession, copy: CopySource | None) -> TableInfo | None:
        if not self.parts:
            return None
        if copy is not None:
            return asked(copy.login, self.connection, self.where, self._described)
        return self._described(JdbcQueryRunner(spark, self.connection, self.where))

    def _fitted(
        self,
        spark: SparkSession,
        columns: tuple[ColumnInfo, ...],
        source: str,
        table: TableInfo | None,
    ) -> JdbcOptions:
        """Return the stream's options, with the rows of a fetch if they do not set them."""
        if "fetchsize" in self.options.reader:
            return self.options
        options = session_options(self.connection, self.options.reader)
        rows = fitting_rows(spark, self.connection, self.dialect, columns, source, table, options)
        return replace(self.options, reader={**self.options.reader, "fetchsize": str(rows)})

    def _query(self, mark: str = "??") -> str:
        return f"{as_subquery(str(self.stream.query), self.dialect.name, mark)} {QUERY}"

    def _columns_of_query(self, spark: SparkSession) -> tuple[ColumnInfo, ...]:
        """Describe the columns of a query, which the database is asked for."""
        options = session_options(self.connection, self.options.reader)
        run_query = JdbcQueryRunner(spark, self.connection, self.where, options)
        if not any(name.lower() == "customschema" for name in self.options.reader):
            try:
                columns = self.dialect.query_columns(run_query, self._query())
            except Exception as error:
                raise self._same_names(error) or error from None
            return tuple(replace(column, nullable=True) for column in columns)
        # The user's own types: Spark's reader then reads each column as it is.
        struct = run_query.struct(f"SELECT * FROM {self._query()}")  # noqa: S608 - checked
        kinds = [(field.name, field.dataType.simpleString()) for field in struct.fields]
        return tuple(
            ColumnInfo(name, "", kind, True, self.dialect.quote(name), kind, key_order(kind))
            for name, kind in kinds
        )

    def _same_names(self, error: Exception) -> SourceError | None:
        twice = _TWICE.search(str(error))
        if twice is None:
            return None
        return SourceError(
            f"two columns of the query have the name {twice[1]!r}, if case does not count",
            where=self.where,
            hint="rename one by AS, or set 'spark.sql.caseSensitive' to \"true\" in 'spark.conf'",
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

    def _split(self, by_name: Mapping[str, ColumnInfo]) -> ColumnInfo | None:
        name = self.options.split_column
        if name is None:
            return None
        where = Where(stream=self.stream.name, setting="options['partitionColumn']")
        if name not in by_name:
            hint = f"columns: {', '.join(by_name)}"
            raise SettingsError(f"column {name!r} does not exist", where=where, hint=hint)
        column = by_name[name]
        if not (is_ordered(column.spark_type) or _NUMBER.match(column.sql_type)):
            kind = column.sql_type or column.spark_type
            fitting = ", ".join(c.name for c in by_name.values() if is_ordered(c.spark_type))
            raise SettingsError(
                f"column {name!r} has the type {kind}: ranges need a number, date or timestamp",
                where=where,
                hint=f"columns: {fitting or 'none'}; or remove the options of ranges",
            )
        return column


def _connection(stream: StreamConfig) -> ConnectionConfig:
    if stream.database is None or stream.database.url is None:
        raise SettingsError(
            "the stream has no connection with a url",
            where=Where(stream=stream.name, setting="connection"),
        )
    return stream.database


def _parts(stream: StreamConfig, dialect: Dialect, url: str) -> tuple[str, ...]:
    where = Where(stream=stream.name, setting="table")
    try:
        parts = name_parts(stream.table or "")
    except ValueError as error:
        raise SettingsError(
            str(error),
            where=where,
            hint='schema.table, parts with dots or spaces in double quotes: sales."Order Lines"',
        ) from error
    # A dialect looks for the last two parts (of SQLite for the last) in the connection's database.
    *others, schema = map(str.lower, parts[:-1]) if len(parts) > 1 else ("",)
    # The last part of a path, or a parameter; not the host, nor a user of that name.
    place = r"((?<!/)[/:]|[;?&](database|databasename|db)=)"
    own = (re.search(rf"{place}{re.escape(one)}([/:;?&]|$)", url.lower()) for one in others)
    if not all(own) or (dialect.name == "sqlite" and schema not in ("", "main")):
        raise SettingsError(
            f"{stream.table!r} names a database, and the tap looks in the connection's alone",
            where=where,
            hint="give schema.table; a table of another database needs a connection of its own",
        )
    return parts


class DatabaseTables:
    """The item of `connections` with a `url`."""

    def __init__(self, config: ConnectionConfig) -> None:
        self._config = config

    def tables(self, spark: SparkSession) -> Iterable[DiscoveredTable]:
        """List the tables that the connection's patterns ask for, by schema and name.

        Raises:
            SourceError: The database cannot be reached or read.
            SettingsError: The URL or a property is rejected.
        """
        return self._listed(JdbcQueryRunner(spark, self._config))

    @property
    def on_driver(self) -> bool:
        """See `DriverLister.on_driver`."""
        return not why_jdbc(self._config)

    def tables_on_driver(self) -> Iterable[DiscoveredTable] | None:
        """See `DriverLister.tables_on_driver`."""
        login = RULE.login(self._config)
        return None if login is None else asked(login, self._config, None, self._listed)

    def _listed(self, run_query: QueryRunner) -> list[DiscoveredTable]:
        tables = dialect_for(str(self._config.url)).tables(run_query)
        warn_of_unmatched(self._config, [full_name(one.schema, one.name) for one in tables])
        return [
            self._discovered(table)
            for table in tables
            if (self._config.views or not table.is_view)
            and is_wanted(self._config, table.schema, table.name)
        ]

    def _discovered(self, table: TableInfo) -> DiscoveredTable:
        stream = StreamConfig(
            name=stream_name(self._config, table.parts),
            format="jdbc",
            table=joined_name(table.parts),
            connection=self._config.name,
            database=self._config,
            key_properties=table.primary_key,
        )
        return DiscoveredTable(
            stream=stream,
            struct=struct_of(table.columns),
            schema_name=table.schema,
            table_name=table.name,
            is_view=table.is_view,
            row_count=table.row_count,
            replication_keys=table.replication_keys,
            sql_types={column.name: column.sql_type for column in table.columns},
        )
