"""How a table is split: into slices read one after another, and parts read in parallel.

Statistics of the database help to choose the bounds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from shared.formats.date_numbers import moment_text
from tap_spark.sources.jdbc.dialects.postgresql import PostgreSqlDialect
from tap_spark.state.bookmarks import (
    INTEGERS,
    TEMPORAL,
    can_be_bookmark,
    greater_bookmark,
    normal_key,
    parse_key,
)

if TYPE_CHECKING:
    from tap_spark.sources.jdbc.dialects.dialect import ColumnInfo, QueryRunner, TableInfo


Json = Any
"""A JSON value, as bookmarks hold them."""
Literal = Callable[[Json], str]
"""Writes a key's value as SQL."""

MAX_PARTS = 16
PART_BYTES = 16 * 1024**2
PART_ROWS = 200_000
SLICE_ROWS = 1_000_000
WELL_ORDERED = 0.5
SMALL_SHARE = 0.2


@dataclass(frozen=True)
class KeyStatistics:
    """Statistics of a replication key.

    Attributes:
        indexed: An index finds the rows of a range without a scan of the table.
        bounds: Values that split the table into about equal numbers of rows, ascending.
        correlation: How closely the order of the rows follows the key, from -1 to 1; None if
            unknown.
    """

    indexed: bool = False
    bounds: tuple[Json, ...] = ()
    correlation: float | None = None


@dataclass(frozen=True)
class TableStatistics:
    """Statistics of a table.

    Attributes:
        pages: Blocks of its largest partition; None if parts cannot be ranges of blocks.
        size: Bytes; None if unknown.
    """

    pages: int | None = None
    size: int | None = None
    rows: int | None = None
    key: KeyStatistics = KeyStatistics()


@dataclass(frozen=True)
class KeyInterval:
    """Keys from `low` to below `high`, open if None; the range without `low` includes nulls."""

    low: Json = None
    high: Json = None


@dataclass(frozen=True)
class PartPlan:
    """How a table is read.

    Attributes:
        slices: Slices that are read one after another; each is the key ranges of its parallel
            parts. Empty if the table is read as one slice.
        pages: First blocks of the parts of one slice; empty for one part.
    """

    slices: tuple[tuple[KeyInterval, ...], ...] = ()
    pages: tuple[int, ...] = ()


def part_count(statistics: TableStatistics, parallelism: int, wanted: int | None) -> int:
    """Choose the number of parts of a table that are read in parallel.

    Args:
        parallelism: How many tasks can run at the same time.
        wanted: The user's choice, if any.
    """
    if wanted is not None:
        return wanted
    if statistics.size is not None:
        needed = -(-statistics.size // PART_BYTES)
    else:
        needed = -(-(statistics.rows or 0) // PART_ROWS)
    return max(1, min(needed, parallelism, MAX_PARTS))


def plan_parts(
    statistics: TableStatistics,
    parts: int,
    start: Json = None,
    key_type: str | None = None,
    *,
    end: Json = None,
    ordered: bool = False,
) -> PartPlan:
    """Decide how a table is read from one snapshot.

    With an index on the key, ranges of the key together cost no more than one query. Without one,
    every range would scan the whole table: parts are then ranges of blocks, and the bookmark only
    filters.

    Args:
        start: The bookmark, if the stream is incremental and has one.
        key_type: The replication key's Spark type, if the stream is incremental.
        ordered: The user wants rows in the order of the key.
    """
    key = statistics.key
    if key_type is not None and key.indexed and key.bounds:
        # A bookmark never passes the end: no slice may end above it.
        inside = [
            b
            for b in key.bounds
            if (start is None or _is_less(start, b, key_type))
            and (end is None or _is_less(b, end, key_type))
        ]
        share = len(inside) / len(key.bounds)
        rows = int((statistics.rows or 0) * share)
        near = abs(key.correlation or 0) >= WELL_ORDERED
        count = min(-(-rows // SLICE_ROWS), max(1, len(inside) // parts))
        if count > 1 and (near or ordered):
            ranges = key_intervals(spread_evenly(inside[1:], count * parts))
            return PartPlan(slices=group_ranges(ranges, count))
        if (start is not None or end is not None) and share < SMALL_SHARE:
            useful = max(1, min(parts, -(-rows // PART_ROWS)))
            return PartPlan(slices=(key_intervals(spread_evenly(inside, useful)),))
    if statistics.pages is not None:
        return PartPlan(pages=tuple(page_starts(statistics.pages, parts)))
    return PartPlan()


def page_starts(pages: int, parts: int) -> list[int]:
    """Return the first blocks of about equal parts; the last part is open, as tables grow."""
    parts = max(1, min(parts, pages))
    return [pages * number // parts for number in range(parts)] if parts > 1 else []


def key_intervals(bounds: Sequence[Json]) -> tuple[KeyInterval, ...]:
    """Return the ranges between ascending bounds; every key, and null, is in exactly one."""
    edges = [None, *bounds, None]
    return tuple(KeyInterval(low, high) for low, high in pairwise(edges))


def spread_evenly(bounds: Sequence[Json], ranges: int) -> list[Json]:
    """Choose at most `ranges - 1` of the bounds, evenly spread, each once."""
    if len(bounds) < ranges:
        return list(bounds)
    return [bounds[len(bounds) * number // ranges] for number in range(1, ranges)]


def group_ranges(ranges: Sequence[KeyInterval], count: int) -> tuple[tuple[KeyInterval, ...], ...]:
    """Combine neighbouring ranges to at most `count` groups."""
    count = min(count, len(ranges))
    cuts = [len(ranges) * number // count for number in range(count + 1)]
    return tuple(tuple(ranges[a:b]) for a, b in pairwise(cuts))


def even_bounds(low: Json, high: Json, parts: int, key_type: str) -> list[Json]:
    """Return values that cut the span of a whole-number, date or timestamp key into parts."""
    first, last = as_number(low, key_type), as_number(high, key_type)
    span = last - first + 1
    numbers = {first + span * number // parts for number in range(1, parts)} - {first}
    return [from_number(number, key_type) for number in sorted(numbers)]


def can_split(key_type: str) -> bool:
    """Return whether `even_bounds` works for keys of a type."""
    return key_type in (*INTEGERS, *TEMPORAL)


def as_number(value: Json, key_type: str) -> int:
    """Return a whole number with the order of the key: itself, days, or microseconds."""
    return int(parse_key(value, key_type))


def from_number(number: int, key_type: str) -> Json:
    """Return the key's value as bookmarks hold it; the inverse of `as_number`."""
    return number if key_type in INTEGERS else moment_text(number, key_type)


def range_condition(column: str, part: KeyInterval, literal: Literal) -> str | None:
    """Write a range of a column, which is quoted, as a condition; None if it is everything."""
    low = None if part.low is None else f"{column} >= {literal(part.low)}"
    high = None if part.high is None else f"{column} < {literal(part.high)}"
    if low is None:
        return None if high is None else f"({high} OR {column} IS NULL)"
    return low if high is None else f"({low} AND {high})"


def page_conditions(column: str, starts: Sequence[int]) -> list[str]:
    """Write parts of whole tables as conditions over PostgreSQL's `ctid`."""
    places = [f"'({start},0)'::tid" for start in starts]
    ends = [*places[1:], None] if places else []
    return [
        f"{column} >= {first}" + ("" if end is None else f" AND {column} < {end}")
        for first, end in zip(places, ends, strict=True)
    ]


def _is_less(first: Json, second: Json, key_type: str) -> bool:
    return bool(first != second and greater_bookmark(first, second, key_type) == second)


RANGES_OF_BLOCKS = 140000
"""First version of PostgreSQL that reads a range of blocks without reading the others."""

TABLE_STATISTICS = """
WITH RECURSIVE tree AS (
  SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = {schema} AND c.relname = {name}
  UNION
  SELECT i.inhrelid FROM tree t JOIN pg_catalog.pg_inherits i ON i.inhparent = t.oid
)
SELECT pg_catalog.current_setting('server_version_num')::int AS version,
  (max(pg_catalog.pg_relation_size(c.oid)) / pg_catalog.current_setting('block_size')::int)::bigint
    AS pages,
  sum(pg_catalog.pg_relation_size(c.oid))::bigint AS size,
  sum(greatest(c.reltuples, 0))::bigint AS row_count,
  bool_and(c.relkind = 'p' OR c.relkind IN ('r', 'm') AND m.amname = 'heap') AS heap
FROM tree JOIN pg_catalog.pg_class c USING (oid) LEFT JOIN pg_catalog.pg_am m ON m.oid = c.relam
"""
"""A table with its partitions and inheriting tables, as conditions on blocks apply to all."""

KEY_STATISTICS = """
SELECT s.correlation::float8 AS correlation, pg_catalog.array_to_json({bounds})::text AS bounds,
  EXISTS (
    SELECT FROM pg_catalog.pg_index i
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
    JOIN pg_catalog.pg_am m ON m.oid = x.relam AND m.amname = 'btree'
    WHERE i.indrelid = c.oid AND i.indisvalid AND i.indpred IS NULL AND a.attname = {key}
  ) AS indexed
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_stats s
  ON s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = {key}
WHERE n.nspname = {schema} AND c.relname = {name}
ORDER BY s.inherited DESC NULLS LAST LIMIT 1
"""


def table_statistics(
    run_query: QueryRunner, database: str, table: TableInfo, key: ColumnInfo | None
) -> TableStatistics:
    """Read the statistics of a table of a database, by its short name, and of a replication key.

    Raises:
        SourceError: The database cannot be reached.
    """
    of_metadata = TableStatistics(size=table.size_bytes, rows=table.row_count)
    if database != "postgresql" or table.schema is None:
        return of_metadata
    text = PostgreSqlDialect().text
    names = {"schema": text(table.schema), "name": text(table.name)}
    row = run_query(TABLE_STATISTICS.format(**names))[0]
    if not row["heap"]:
        return of_metadata
    blocks = row["pages"] if row["version"] >= RANGES_OF_BLOCKS else None
    statistics = KeyStatistics() if key is None else _key(run_query, names, key)
    return TableStatistics(blocks, row["size"], row["row_count"], statistics)


def _key(run_query: QueryRunner, names: dict[str, str], key: ColumnInfo) -> KeyStatistics:
    # Texts are compared by their bytes, in which no ordinary index is.
    if key.spark_type == "string":
        return KeyStatistics()
    bounds = "s.histogram_bounds::text::text[]"
    if key.spark_type == "timestamp":
        bounds = (
            "(SELECT pg_catalog.array_agg((b AT TIME ZONE 'UTC')::text) FROM "
            "pg_catalog.unnest(s.histogram_bounds::text::timestamptz[]) AS b)"
        )
    name = PostgreSqlDialect().text(key.name)
    rows = run_query(KEY_STATISTICS.format(**names, key=name, bounds=bounds))
    if not rows:
        return KeyStatistics()
    row, kind = rows[0], key_type_of(key.spark_type)
    return KeyStatistics(
        bool(row["indexed"]), tuple(_values(row["bounds"], kind)), row["correlation"]
    )


def _values(text: str | None, kind: str) -> Iterable[Any]:
    for value in json.loads(text or "null") or ():
        with suppress(ValueError):  # infinity
            if can_be_bookmark(value, kind):
                yield normal_key(value, kind)


_KEY_TYPES = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}


def key_type_of(spark_type: str) -> str:
    """Return Spark's name of a type in plans (`long`), from its SQL name (`bigint`)."""
    return _KEY_TYPES.get(spark_type, spark_type)
