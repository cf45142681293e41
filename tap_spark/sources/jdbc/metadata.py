"""Metadata queries of a database, through Spark's reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from shared.errors import SourceError, Where
from tap_spark.sources.jdbc.dialects.dialect import QueryRunner, dialect_for
from tap_spark.sources.jdbc.jdbc_urls import reader_options
from tap_spark.sources.jdbc_failures import REDISCOVER, with_retries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from tap_spark.connection_config import ConnectionConfig
    from tap_spark.sources.jdbc.table_info import TableInfo

T = TypeVar("T")


class JdbcQueryRunner:
    """Runs queries through Spark's JDBC reader; retries temporary failures.

    Args:
        spark: The session.
        connection: The database.
        where: The place that errors name; by default the connection.
        options: Options of the reader, if not those of the connection alone.
    """

    def __init__(
        self,
        spark: SparkSession,
        connection: ConnectionConfig,
        where: Where | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._spark = spark
        self._connection = connection
        self._where = where
        self._options = reader_options(connection) if options is None else options

    def __call__(self, query: str, texts: Sequence[str] = ()) -> list[dict[str, Any]]:
        """See `QueryRunner`.

        Raises:
            SourceError: The database cannot be reached, or rejects the query.
        """
        rows = self._run(lambda: self._frame(query, texts).collect())
        return [{name.lower(): value for name, value in row.asDict().items()} for row in rows]

    def struct(self, query: str) -> StructType:
        """Return the columns of a SELECT as Spark's reader sees them.

        Raises:
            SourceError: The database cannot be reached, or rejects the query.
        """
        return self._run(lambda: self._frame(query).schema)

    def _frame(self, query: str, texts: Sequence[str] = ()) -> DataFrame:
        reader = self._spark.read.format("jdbc").options(**self._options)
        if texts:
            types = ", ".join(f"`{name}` string" for name in texts)
            reader = reader.option("customSchema", types)
        return reader.option("query", query.strip()).load()

    def _run(self, action: Callable[[], T]) -> T:
        return with_retries(action, self._connection, self._where)


def query_runner(
    spark: SparkSession, connection: ConnectionConfig, where: Where | None = None
) -> QueryRunner:
    """Return what queries a database.

    Args:
        spark: The session.
        connection: One with a URL.
        where: The place that errors name; by default the connection.

    Raises:
        SettingsError: The URL or a property is rejected.
    """
    return JdbcQueryRunner(spark, connection, where)


def table_info(
    spark: SparkSession,
    connection: ConnectionConfig,
    parts: tuple[str, ...],
    where: Where | None = None,
) -> TableInfo:
    """Describe one table as it is now.

    Args:
        spark: The session.
        connection: One with a URL.
        parts: Schema and name, or the name alone.
        where: The place that errors name.

    Raises:
        SourceError: The table does not exist, or the database cannot be reached.
        SettingsError: The URL or a property is rejected.
    """
    where = where or Where(setting=f"connections['{connection.name}']")
    run_query = query_runner(spark, connection, where)
    *schemas, name = parts
    schema = schemas[-1] if schemas else None
    found = dialect_for(str(connection.url)).tables(run_query, (schema, name))
    if not found:
        shown = ".".join(parts)
        raise SourceError(f"table or view {shown!r} does not exist", where=where, hint=REDISCOVER)
    return found[0]
