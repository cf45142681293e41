"""How a table is cut into parts that are read at the same time, or one after another. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from tap_spark.bookmarks import INTEGERS, TEMPORAL, greater, parse_key
from tap_spark.moments import moment_text

T = TypeVar("T")
Json = Any
"""A JSON value, as bookmarks hold them."""
Literal = Callable[[Json], str]
"""Writes a key's value in the database's words."""

MAX_PARTS = 16
PART_BYTES = 16 * 1024**2
PART_ROWS = 200_000
SLICE_ROWS = 1_000_000
NEAR_ORDER = 0.5
FEW = 0.2


@dataclass(frozen=True)
class KeyFacts:
    """What a database knows of the column that rows are ordered by.

    Attributes:
        indexed: Rows in a range of it are found without looking at the whole table.
        bounds: Values that cut the table into about equal numbers of rows, ascending.
        correlation: How far the table lies in its order, from -1 to 1; None where unknown.
    """

    indexed: bool = False
    bounds: tuple[Json, ...] = ()
    correlation: float | None = None


@dataclass(frozen=True)
class TableFacts:
    """What a database knows of a table.

    Attributes:
        pages: Blocks of its largest piece where parts may be ranges of blocks; else None.
        size: Bytes; None where unknown.
        rows: Estimated rows; None where unknown.
        key: Of the replication key, where there is one.
    """

    pages: int | None = None
    size: int | None = None
    rows: int | None = None
    key: KeyFacts = KeyFacts()


@dataclass(frozen=True)
class Range:
    """Keys from `low` to below `high`; open where None. Nulls are in the one without `low`."""

    low: Json = None
    high: Json = None


@dataclass(frozen=True)
class Cut:
    """How a table is read.

    Attributes:
        slices: Ranges of the key that are read one after another, each then in several parts;
            each item is the parts' ranges. Empty where the table is read as a whole.
        pages: First blocks of the parts of a whole table; empty for one part.
    """

    slices: tuple[tuple[Range, ...], ...] = ()
    pages: tuple[int, ...] = ()


def part_count(facts: TableFacts, parallelism: int, wanted: int | None) -> int:
    """Say in how many parts a table is read.

    Args:
        facts: What is known of its size.
        parallelism: How many tasks can run at the same time.
        wanted: What the user asks for.
    """
    if wanted is not None:
        return wanted
    if facts.size is not None:
        needed = -(-facts.size // PART_BYTES)
    else:
        needed = -(-(facts.rows or 0) // PART_ROWS)
    return max(1, min(needed, parallelism, MAX_PARTS))


def plan_cut(
    facts: TableFacts,
    parts: int,
    start: Json = None,
    key_type: str | None = None,
    *,
    ordered: bool = False,
) -> Cut:
    """Decide how a table is read from one snapshot.

    An index finds the rows above a bookmark, so that ranges of the key cost no more than one
    query. Without one, every range would look at the whole table: then blocks are divided, and
    the bookmark only filters.

    Args:
        facts: What the database knows.
        parts: Parts that are read at the same time.
        start: The bookmark, where the stream is incremental and has one.
        key_type: The replication key's Spark type, where the stream is incremental.
        ordered: The user asks for rows in the key's order.
    """
    key = facts.key
    if key_type is not None and key.indexed and key.bounds:
        above = [b for b in key.bounds if start is None or _less(start, b, key_type)]
        share = len(above) / len(key.bounds)
        rows = int((facts.rows or 0) * share)
        near = abs(key.correlation or 0) >= NEAR_ORDER
        count = min(-(-rows // SLICE_ROWS), max(1, len(above) // parts))
        if count > 1 and (near or ordered):
            return Cut(slices=grouped(key_ranges(thinned(above[1:], count * parts)), count))
        if start is not None and share < FEW:
            return Cut(slices=(key_ranges(thinned(above, _few(rows, parts))),))
    if facts.pages is not None:
        return Cut(pages=tuple(page_starts(facts.pages, parts)))
    return Cut()


def page_starts(pages: int, parts: int) -> list[int]:
    """First blocks of parts of about equal size; the last part has no end, as tables grow."""
    parts = max(1, min(parts, pages))
    return [pages * number // parts for number in range(parts)] if parts > 1 else []


def key_ranges(bounds: Sequence[Json]) -> tuple[Range, ...]:
    """Ranges between ascending bounds: every key, and null, is in exactly one."""
    edges = [None, *bounds, None]
    return tuple(Range(low, high) for low, high in pairwise(edges))


def thinned(bounds: Sequence[T], ranges: int) -> list[T]:
    """At most `ranges - 1` of the bounds, evenly spread, each once."""
    if len(bounds) < ranges:
        return list(bounds)
    return [bounds[len(bounds) * number // ranges] for number in range(1, ranges)]


def grouped(ranges: Sequence[Range], count: int) -> tuple[tuple[Range, ...], ...]:
    """Neighbouring ranges together in `count` groups, or fewer."""
    count = min(count, len(ranges))
    cuts = [len(ranges) * number // count for number in range(count + 1)]
    return tuple(tuple(ranges[a:b]) for a, b in pairwise(cuts))


def even_bounds(low: Json, high: Json, parts: int, key_type: str) -> list[Json]:
    """Values that cut the span of a whole-number, date or timestamp key into equal pieces.

    Args:
        low: Least value of the table.
        high: Greatest value.
        parts: How many pieces are wanted.
        key_type: Spark's name of the type.
    """
    first, last = as_number(low, key_type), as_number(high, key_type)
    span = last - first + 1
    numbers = {first + span * number // parts for number in range(1, parts)} - {first}
    return [from_number(number, key_type) for number in sorted(numbers)]


def can_cut(key_type: str) -> bool:
    """Whether `even_bounds` works for keys of a type."""
    return key_type in (*INTEGERS, *TEMPORAL)


def as_number(value: Json, key_type: str) -> int:
    """A whole number with the order of the key: itself, days, or microseconds."""
    return int(parse_key(value, key_type))


def from_number(number: int, key_type: str) -> Json:
    """The key's value as bookmarks hold it; the inverse of `as_number`."""
    return number if key_type in INTEGERS else moment_text(number, key_type)


def range_condition(column: str, part: Range, literal: Literal) -> str | None:
    """Write a range as a condition; None where it is everything.

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


def _few(rows: int, parts: int) -> int:
    return max(1, min(parts, -(-rows // PART_ROWS)))


def _less(first: Json, second: Json, key_type: str) -> bool:
    return bool(first != second and greater(first, second, key_type) == second)
