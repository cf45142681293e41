"""How a table is split: into slices read one after another, and parts read in parallel. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from tap_spark.state.bookmarks import INTEGERS, TEMPORAL, greater, parse_key
from tap_spark.state.date_numbers import moment_text

T = TypeVar("T")
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
        rows: Estimated rows; None if unknown.
        key: Statistics of the replication key, if there is one.
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
        statistics: Its statistics.
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
        statistics: Statistics of the table.
        parts: Parts that are read in parallel.
        start: The bookmark, if the stream is incremental and has one.
        key_type: The replication key's Spark type, if the stream is incremental.
        end: The upper bound of the replication key, if it has one.
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
            return PartPlan(
                slices=group_ranges(key_ranges(spread_evenly(inside[1:], count * parts)), count)
            )
        if (start is not None or end is not None) and share < SMALL_SHARE:
            return PartPlan(slices=(key_ranges(spread_evenly(inside, _useful_count(rows, parts))),))
    if statistics.pages is not None:
        return PartPlan(pages=tuple(page_starts(statistics.pages, parts)))
    return PartPlan()


def page_starts(pages: int, parts: int) -> list[int]:
    """Return the first blocks of about equal parts; the last part is open, as tables grow."""
    parts = max(1, min(parts, pages))
    return [pages * number // parts for number in range(parts)] if parts > 1 else []


def key_ranges(bounds: Sequence[Json]) -> tuple[KeyInterval, ...]:
    """Return the ranges between ascending bounds; every key, and null, is in exactly one."""
    edges = [None, *bounds, None]
    return tuple(KeyInterval(low, high) for low, high in pairwise(edges))


def spread_evenly(bounds: Sequence[T], ranges: int) -> list[T]:
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
    """Return values that cut the span of a whole-number, date or timestamp key evenly.

    Args:
        low: Least value of the table.
        high: Greatest value.
        parts: The number of parts.
        key_type: Spark's name of the type.
    """
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
    """Write a range as a condition; None if it is everything.

    Args:
        column: The key, quoted.
        part: The range.
        literal: Writes a value.
    """
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


def _useful_count(rows: int, parts: int) -> int:
    return max(1, min(parts, -(-rows // PART_ROWS)))


def _is_less(first: Json, second: Json, key_type: str) -> bool:
    return bool(first != second and greater(first, second, key_type) == second)
