"""Frames over a table or query of a database, which selects the columns and filters the rows.

All parts of a table read one snapshot, while others write to it. What JDBC returns is cast to the
type that the metadata names.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from shared.errors import SettingsError, SourceError, Where
from shared.formats.arrow_types import struct_to_arrow
from shared.formats.schema_nodes import type_of_hint
from shared.formats.spark_conform import micros_after
from shared.settings.texts import quoted
from shared.spark.session import HeldConnection, hold_connection, sql_state
from tap_spark.sources.formats import BUILT_IN
from tap_spark.sources.frame_helpers import col, fail_job, frame_of_parts, part_task
from tap_spark.sources.jdbc.copy_reader import FILE_BATCH_BYTES
from tap_spark.sources.jdbc.dialects.dialect import database_name
from tap_spark.sources.jdbc.metadata import (
    NO_IDLE_TIMEOUT,
    REPEATABLE,
    JdbcQueryRunner,
    init_statement,
    reader_options,
)
from tap_spark.sources.jdbc.part_plan import key_type_of, range_condition
from tap_spark.sources.source_declaration import option_problems
from tap_spark.sources.source_failures import with_retries
from tap_spark.state.stream_plans import RowTasks, Slice
from tap_spark.stream_config import ConnectionConfig, StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from tap_spark.sources.jdbc.copy_reader import CopySource
    from tap_spark.sources.jdbc.dialects.dialect import ColumnInfo, Dialect
    from tap_spark.sources.jdbc.part_plan import KeyInterval


_ARRAY = "array<"


def spark_type(words: str) -> T.DataType:
    """Parse Spark's name of a type: a scalar, or an array.

    Raises:
        ValueError: It is not such a name.
    """
    if words.startswith(_ARRAY):
        return T.ArrayType(spark_type(words[len(_ARRAY) : -1]), True)
    kind = type_of_hint(key_type_of(words))
    if kind is None:
        raise ValueError(f"{words!r} is not a Spark type")
    return kind


def struct_of(columns: Iterable[ColumnInfo]) -> T.StructType:
    """Return the columns of a table their Spark types."""
    return T.StructType(
        [T.StructField(item.name, spark_type(item.spark_type), item.nullable) for item in columns]
    )


def custom_schema(columns: Iterable[ColumnInfo]) -> str | None:
    """Return the option `customSchema` of Spark's JDBC reader; None if it needs none."""
    items = [f"{quoted(item.name)} {item.read_as}" for item in columns if item.read_as]
    return ", ".join(items) or None


def typed_columns(
    frame: DataFrame, columns: Iterable[ColumnInfo], names: Sequence[str] | None = None
) -> list[Column]:
    """Cast the result of the JDBC reader for each column's expression to the column's type.

    Args:
        frame: The rows read: arrays as JSON text, and dates and timestamps as days and microseconds
            since 1970, if the expression returns them so.
        names: The names of these columns in `frame`, if they are not their own.
    """

    def one(item: ColumnInfo, name: str) -> Column:
        column, wanted = col(name), spark_type(item.spark_type)
        kind = frame.schema[name].dataType
        if isinstance(wanted, T.ArrayType) and isinstance(kind, T.StringType):
            column = _array(column, wanted, item)
        elif isinstance(wanted, T.DateType) and isinstance(kind, T.IntegralType):
            column = F.date_from_unix_date(column.cast("int"))
        elif isinstance(wanted, T.TimestampType) and isinstance(kind, T.IntegralType):
            column = F.timestamp_micros(column)
        elif isinstance(wanted, T.TimestampNTZType) and isinstance(kind, T.IntegralType):
            epoch = F.lit("1970-01-01").cast("timestamp_ntz")
            column = micros_after(epoch, column)
        elif kind != wanted:
            column = column.cast(wanted)
        return column.alias(item.name)

    columns = list(columns)
    own = [item.name for item in columns] if names is None else names
    return [one(item, name) for item, name in zip(columns, own, strict=True)]


def _array(text: Column, wanted: T.ArrayType, item: ColumnInfo) -> Column:
    """Parse the JSON text of an array; fail the job if the text is its dimensions instead."""
    depth = item.spark_type.count(_ARRAY)
    other = fail_job(
        f"column {item.name!r} has the type {depth * '[]'} of {item.sql_type}, but a value with "
        "other dimensions",
        value=text,
        hint="read it as text: cast it in a 'query' of the stream, or deselect the column",
    )
    element = _element(wanted)
    moments = isinstance(element, (T.DateType, T.TimestampType, T.TimestampNTZType))
    read_as = _ARRAY * depth + "string" + ">" * depth if moments else item.spark_type
    parsed = F.from_json(text, read_as, {"mode": "FAILFAST"})
    if moments:
        parsed = _moments(parsed, wanted)
    return F.when(text.rlike(r"^\[-?\d+:"), other.cast(wanted)).otherwise(parsed)


def _element(kind: T.DataType) -> T.DataType:
    return _element(kind.elementType) if isinstance(kind, T.ArrayType) else kind


def _moments(texts: Column, wanted: T.DataType) -> Column:
    """Cast PostgreSQL's texts of dates and timestamps in arrays, of all years, as those outside."""
    if isinstance(wanted, T.ArrayType):
        inside = wanted.elementType
        return F.transform(texts, lambda item: _moments(item, inside))
    first, last = ("0001-01-01", "9999-12-31")
    if not isinstance(wanted, T.DateType):
        first, last = f"{first}T00:00:00", f"{last}T23:59:59.999999"
    if isinstance(wanted, T.TimestampType):
        first, last = f"{first}Z", f"{last}Z"
    before_christ = texts.endswith(" BC")
    # ISO 8601 counts the year before 1 as 0.
    year = F.lpad((F.regexp_extract(texts, r"^\d+", 0).cast("int") - 1).cast("string"), 4, "0")
    rest = F.regexp_extract(texts, r"^\d+(.*) BC$", 1)
    written = (
        F.when(texts == "infinity", F.lit(last))
        .when(texts == "-infinity", F.lit(first))
        .when(before_christ, F.concat(F.lit("-"), year, rest))
        .otherwise(texts)
    )
    return written.cast(wanted)


ROWS, KEY, BLOCK, SPLIT = "tap_spark_rows", "k", "b", "p"
INIT = "sessionInitStatement"


@dataclass(frozen=True)
class JdbcQuery:
    """A SELECT over a table or query.

    Its columns are named `c0`, `c1`, …: column names may differ only by case, or contain what
    Spark's reader does not quote.

    Attributes:
        source: The table's name, with its snapshot if any, or a query in parentheses.
        columns: Selected columns, in this order.
        copy: How to read by COPY; None for JDBC.
    """

    dialect: Dialect
    source: str
    columns: tuple[ColumnInfo, ...]
    options: Mapping[str, str]
    key: ColumnInfo | None = None
    conditions: tuple[str, ...] = ()
    copy: CopySource | None = None

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

    def in_one_part(self, spark: SparkSession) -> Slice:
        if self.copy is not None:
            return self._copied(spark, [self.select()])
        return Slice(self._named(spark.read.format("jdbc").options(**self._all(())).load()))

    def in_blocks(self, spark: SparkSession, conditions: Sequence[str]) -> Slice:
        """Return the rows in parts, by conditions on `block_column` of a PostgreSQL table."""
        return self._parts(spark, conditions, self._block)

    def block_selects(self, conditions: Sequence[str]) -> list[str]:
        """Return the SELECTs of parts; see `in_blocks`."""
        return [self.select(condition, (self._block,)) for condition in conditions]

    @property
    def _block(self) -> str:
        return f"ctid AS {self.block_column}"

    @property
    def block_column(self) -> str:
        """Return the name of the column with the block of each row."""
        return self.dialect.quote(BLOCK)

    def in_ranges(
        self, spark: SparkSession, ranges: Sequence[KeyInterval], by: ColumnInfo
    ) -> Slice:
        """Return the rows in parts, by ranges of a column."""
        name = self.dialect.quote(KEY)
        predicates = [
            range_condition(name, part, lambda v: self.dialect.literal(v, by)) for part in ranges
        ]
        conditions = [condition or "1 = 1" for condition in predicates]
        return self._parts(spark, conditions, f"{self.dialect.key(by)} AS {name}")

    def split_by(self, spark: SparkSession, by: ColumnInfo, options: Mapping[str, str]) -> Slice:
        """Return the rows in the parts of Spark's own options; `by` is the partition column."""
        extra = f"{self.dialect.quote(by.name)} AS {self.dialect.quote(SPLIT)}"
        split = {**self._all((extra,)), **options, "partitionColumn": SPLIT}
        return Slice(self._named(spark.read.format("jdbc").options(**split).load()))

    def select(self, condition: str | None = None, extra: Sequence[str] = ()) -> str:
        """Return the SELECT of a part for COPY: its columns are named `c0`, `c1`, …."""
        names = ", ".join(self.dialect.quote(f"c{n}") for n in range(len(self.columns)))
        where = "" if condition is None else f" WHERE {condition}"
        own = [replace(item, expression=item.copied or item.expression) for item in self.columns]
        rows = replace(self, columns=tuple(own)).subquery(extra)
        return f"SELECT {names} FROM {rows}{where}"  # noqa: S608

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

    def _copied(self, spark: SparkSession, queries: Sequence[str]) -> Slice:
        """Return the rows of parts; tasks have them as the frame does, except arrays."""
        assert self.copy is not None  # noqa: S101
        copied = struct_of(
            replace(item, name=f"c{n}", spark_type=_copied_type(item.spark_type), nullable=True)
            for n, item in enumerate(self.columns)
        )
        self.copy.check(queries[0])
        rows = partial(self.copy.rows, schema=struct_to_arrow(copied))
        frame = self._named(frame_of_parts(spark, queries, rows, copied, name=queries[0]))
        if any(item.spark_type.startswith(_ARRAY) for item in self.columns):
            return Slice(frame)
        schema = struct_to_arrow(frame.schema)
        rows = partial(self.copy.rows, schema=schema, size=FILE_BATCH_BYTES)
        return Slice(frame, tasks=RowTasks(len(queries), part_task(queries, rows), frame))

    def _parts(self, spark: SparkSession, conditions: Sequence[str], extra: str) -> Slice:
        if self.copy is not None:
            return self._copied(spark, [self.select(part, (extra,)) for part in conditions])
        options = self._all((extra,))
        url, rows = options.pop("url"), options.pop("dbtable")
        frame = spark.read.jdbc(url, rows, predicates=list(conditions), properties=options)
        return Slice(self._named(frame))

    def _all(self, extra: Sequence[str]) -> dict[str, str]:
        types = custom_schema(replace(item, name=f"c{n}") for n, item in enumerate(self.columns))
        query = {"dbtable": self.subquery(extra)} | ({"customSchema": types} if types else {})
        return {**self.options, **query}

    def _named(self, frame: DataFrame) -> DataFrame:
        names = [f"c{number}" for number in range(len(self.columns))]
        return frame.select(*typed_columns(frame, self.columns, names))


def _copied_type(words: str) -> str:
    """Return what an expression returns: dates as numbers, arrays as JSON text."""
    return "string" if words.startswith(_ARRAY) else {"date": "int"}.get(words, words)


def session_options(
    connection: ConnectionConfig, own: Mapping[str, str], snapshot: DatabaseSnapshot | None = None
) -> dict[str, str]:
    """Return the options of Spark's reader for sessions that read, with a stream's own."""
    begin = init_statement(str(connection.url), snapshot.name if snapshot else None)
    statement = "; ".join(text for text in (begin, own.get(INIT)) if text)
    values = {name: value for name, value in own.items() if name != INIT}
    return reader_options(connection) | values | ({INIT: statement} if statement else {})


EXPORT = "SELECT pg_catalog.pg_export_snapshot()"
SCN = "SELECT DBMS_FLASHBACK.GET_SYSTEM_CHANGE_NUMBER AS scn FROM DUAL"
_NO_EXPORT = ("42883", "0A000", "42601", "25006")
"""SQLSTATEs of servers that speak PostgreSQL's protocol but cannot export a snapshot."""
_OF_SPARK = ("url", "driver", "fetchsize", "prefertimestampntz")
_log = logging.getLogger("tap-spark")


@dataclass(frozen=True)
class DatabaseSnapshot:
    """A snapshot that several sessions can read.

    Attributes:
        name: Name for `SET TRANSACTION SNAPSHOT`; None without one.
        as_of: SQL after the table's name in a query.
    """

    name: str | None = None
    as_of: str = ""


@contextmanager
def snapshot_of(
    spark: SparkSession, connection: ConnectionConfig, where: Where
) -> Iterator[DatabaseSnapshot | None]:
    """Hold a snapshot of a database while the block runs.

    Yields:
        The snapshot; None if the database has none to share, or the settings turn it off.

    Raises:
        SourceError: The database cannot be reached.
    """
    database = database_name(str(connection.url))
    if not connection.snapshot or database not in ("postgresql", "oracle"):
        yield None
    elif database == "oracle":
        yield _scn(spark, connection, where)
    else:
        held = with_retries(lambda: _held(spark, connection, where), connection, where)
        if held is None:
            yield None
            return
        session, snapshot = held
        with closing(session):
            yield snapshot


def _held(
    spark: SparkSession, connection: ConnectionConfig, where: Where
) -> tuple[HeldConnection, DatabaseSnapshot] | None:
    options = reader_options(connection)
    own = {name: value for name, value in options.items() if name.lower() not in _OF_SPARK}
    held = hold_connection(spark, options["url"], options["driver"], own)
    if held is None:
        _log.warning(
            "%s: reading in one part, as Spark Connect cannot hold a snapshot; to read in several, "
            "set 'snapshot' of the connection to false",
            where,
        )
        return None
    try:
        held.run(REPEATABLE)
        held.run(NO_IDLE_TIMEOUT)
        return held, DatabaseSnapshot(name=held.run(EXPORT))
    except Exception as error:
        held.close()
        if not cannot_export(sql_state(error), where):
            raise
        return None


def cannot_export(state: str | None, where: Where) -> bool:
    """Return whether the SQLSTATE of `EXPORT` means that a server cannot; log it then."""
    if state not in _NO_EXPORT:
        return False
    _log.warning("%s: reading in one part, as the database cannot share a snapshot", where)
    return True


def _scn(
    spark: SparkSession, connection: ConnectionConfig, where: Where
) -> DatabaseSnapshot | None:
    try:
        number = int(JdbcQueryRunner(spark, connection, where)(SCN)[0]["scn"])
    except SourceError as error:
        _log.warning("%s; reading in one part (grant EXECUTE on DBMS_FLASHBACK)", error)
        return None
    return DatabaseSnapshot(as_of=f" AS OF SCN {number}")


KIND, READER = "jdbc", BUILT_IN["jdbc"].options or ()
COLUMN, PARTS = "partitionColumn", "numPartitions"
SPLIT_OPTIONS = (COLUMN, "lowerBound", "upperBound", PARTS)


@dataclass(frozen=True)
class JdbcOptions:
    """The stream's options, parsed.

    Attributes:
        reader: Options for Spark's reader in any case.
        split_column: Column whose ranges are the parts; None if tap-spark chooses the parts.
        split: Spark's options for these ranges, without the column.
        partitions: Number of parts to read in parallel; None lets tap-spark choose.
    """

    reader: Mapping[str, str] = field(default_factory=dict)
    split_column: str | None = None
    split: Mapping[str, str] = field(default_factory=dict)
    partitions: int | None = None


def jdbc_options(stream: StreamConfig) -> JdbcOptions:
    """Check the options of a stream.

    Raises:
        SettingsError: An option is unknown (names the nearest one), has a wrong value, or needs
            another one.
    """
    names = {option.name.lower(): option.name for option in READER}
    properties = {names.get(name.lower(), name): value for name, value in stream.options.items()}
    problems = (option_problems(KIND, READER, stream.options), _problems(properties, stream))
    for name, text in chain.from_iterable(problems):
        where = Where(stream=stream.name, setting=f"options['{name}']")
        raise SettingsError(text, where=where)
    wanted = stream.database.partitions if stream.database else None
    return JdbcOptions(
        reader={name: value for name, value in properties.items() if name not in SPLIT_OPTIONS},
        split_column=properties.get(COLUMN),
        split={name: properties[name] for name in SPLIT_OPTIONS[1:] if name in properties},
        partitions=int(properties[PARTS]) if PARTS in properties else wanted,
    )


def _problems(properties: Mapping[str, str], stream: StreamConfig) -> Iterator[tuple[str, str]]:
    bounds = [name for name in SPLIT_OPTIONS[:3] if name in properties]
    missing = [name for name in SPLIT_OPTIONS if name not in properties]
    if bounds and missing:
        yield bounds[0], "also needs " + ", ".join(missing)
    for name in ("fetchsize", PARTS):
        if name in properties and int(properties[name]) < 1:
            yield name, "must be at least 1"
    if "customSchema" in properties and stream.query is None:
        yield "customSchema", "applies only to a 'query': the types of a table are known; remove it"
