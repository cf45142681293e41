"""Frames over a table or query of a database, which selects the columns and filters the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shared.spark.jdbc_drivers import driver_of
from tap_spark.sources.jdbc.jdbc_columns import custom_schema, typed
from tap_spark.sources.jdbc.part_plan import range_condition
from tap_spark.sources.jdbc.read_sessions import init_statement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tap_spark.sources.jdbc.dialects.dialect import Dialect
    from tap_spark.sources.jdbc.part_plan import KeyInterval
    from tap_spark.sources.jdbc.snapshots import DatabaseSnapshot
    from tap_spark.sources.jdbc.table_info import ColumnInfo

ROWS, KEY, BLOCK, SPLIT = "tap_spark_rows", "k", "b", "p"
INIT = "sessionInitStatement"


@dataclass(frozen=True)
class JdbcQuery:
    """A SELECT over a table or query.

    Its columns are named `c0`, `c1`, …: column names may differ only by case, or contain what
    Spark's reader does not quote.

    Attributes:
        dialect: Dialect of the database.
        source: The table's name, with its snapshot if any, or a query in parentheses.
        columns: Selected columns, in this order.
        options: Options of Spark's reader.
        key: The replication key, if there is one.
        conditions: Conditions that every row must meet.
    """

    dialect: Dialect
    source: str
    columns: tuple[ColumnInfo, ...]
    options: Mapping[str, str]
    key: ColumnInfo | None = None
    conditions: tuple[str, ...] = ()

    def since(self, start: object) -> JdbcQuery:
        """Keep rows whose key is at or above a value, and rows whose key is null."""
        assert self.key is not None  # noqa: S101
        return self._compared(">=", start, nulls=self.key.nullable)

    def before(self, end: object) -> JdbcQuery:
        """Keep rows whose key is below a value, and rows whose key is null."""
        return self._compared("<", end)

    def up_to(self, last: object) -> JdbcQuery:
        """Keep rows whose key is at or below a value, and rows whose key is null."""
        return self._compared("<=", last)

    def with_keys(self) -> JdbcQuery:
        """Keep rows whose key is not null."""
        assert self.key is not None  # noqa: S101
        return replace(self, conditions=(*self.conditions, self.dialect.present(self.key)))

    def greatest_key(self) -> JdbcQuery:
        """Select the greatest key of the rows, as the database orders them: one row, or none."""
        assert self.key is not None  # noqa: S101
        rows = f"(SELECT {self.dialect.quote(self.key.name)} FROM {self.filtered})"  # noqa: S608
        source = f"({self.dialect.greatest(self.key, rows)}) ends"
        return replace(self, source=source, columns=(self.key,), conditions=())

    def _compared(self, operator: str, value: object, *, nulls: bool = True) -> JdbcQuery:
        assert self.key is not None  # noqa: S101
        condition = self.dialect.compared(self.key, operator, value)
        if nulls:
            condition = f"({condition} OR {self.dialect.missing(self.key)})"
        return replace(self, conditions=(*self.conditions, condition))

    def in_one_part(self, spark: SparkSession) -> DataFrame:
        """Return every row, read in one part."""
        return self._named(spark.read.format("jdbc").options(**self._all(())).load())

    def in_blocks(self, spark: SparkSession, conditions: Sequence[str]) -> DataFrame:
        """Return the rows in parts, by conditions on `block_column` of a PostgreSQL table."""
        return self._parts(spark, conditions, f"ctid AS {self.dialect.quote(BLOCK)}")

    @property
    def block_column(self) -> str:
        """Return the name of the column with the block of each row."""
        return self.dialect.quote(BLOCK)

    def in_ranges(
        self, spark: SparkSession, ranges: Sequence[KeyInterval], by: ColumnInfo
    ) -> DataFrame:
        """Return the rows in parts, by ranges of a column."""
        name = self.dialect.quote(KEY)
        found = [
            range_condition(name, part, lambda v: self.dialect.literal(v, by)) for part in ranges
        ]
        conditions = [condition or "1 = 1" for condition in found]
        return self._parts(spark, conditions, f"{self.dialect.key(by)} AS {name}")

    def split_by(
        self, spark: SparkSession, by: ColumnInfo, options: Mapping[str, str]
    ) -> DataFrame:
        """Return the rows in the parts of Spark's own options; `by` is the partition column."""
        extra = f"{self.dialect.quote(by.name)} AS {self.dialect.quote(SPLIT)}"
        given = {**self._all((extra,)), **options, "partitionColumn": SPLIT}
        return self._named(spark.read.format("jdbc").options(**given).load())

    def subquery(self, extra: Sequence[str] = ()) -> str:
        """Return the SELECT as a named subquery."""
        quote = self.dialect.quote
        columns = [f"{item.expression} AS {quote(f'c{n}')}" for n, item in enumerate(self.columns)]
        listed = ", ".join((*columns, *extra))
        return f"(SELECT {listed} FROM {self.filtered}) {ROWS}"  # noqa: S608

    @property
    def filtered(self) -> str:
        """Return the FROM clause with its conditions."""
        where = " WHERE " + " AND ".join(self.conditions) if self.conditions else ""
        return self.source + where

    def _parts(self, spark: SparkSession, conditions: Sequence[str], extra: str) -> DataFrame:
        options = self._all((extra,))
        url, rows = options.pop("url"), options.pop("dbtable")
        found = spark.read.jdbc(url, rows, predicates=list(conditions), properties=options)
        return self._named(found)

    def _all(self, extra: Sequence[str]) -> dict[str, str]:
        types = custom_schema(self._ours())
        given = {"dbtable": self.subquery(extra)} | ({"customSchema": types} if types else {})
        return {**self.options, **given}

    def _ours(self) -> list[ColumnInfo]:
        return [replace(item, name=f"c{number}") for number, item in enumerate(self.columns)]

    def _named(self, frame: DataFrame) -> DataFrame:
        names = [f"c{number}" for number in range(len(self.columns))]
        return frame.select(*typed(frame, self.columns, names))


def session_options(
    url: str, options: Mapping[str, str], own: Mapping[str, str], snapshot: DatabaseSnapshot | None
) -> dict[str, str]:
    """Return the options of Spark's reader for sessions that read.

    Args:
        url: JDBC URL.
        options: Options that connect to the database.
        own: Options of the stream.
        snapshot: The snapshot for the sessions, if any.
    """
    begin = init_statement(url, snapshot.name if snapshot else None)
    given = {name: value for name, value in own.items() if name != INIT}
    merged = {**options, **given}
    statements = [text for text in (begin, own.get(INIT)) if text]
    if statements:
        merged[INIT] = "; ".join(statements)
    return merged


def database_name(url: str) -> str:
    """Return the short name of a URL's database; `other` if it is unknown."""
    driver = driver_of(url)
    return driver.database if driver else "other"
