"""Parts of a table: every row is in exactly one of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tap_spark.sources.jdbc.part_plan import (
    MAX_PARTS,
    SLICE_ROWS,
    KeyInterval,
    KeyStatistics,
    PartPlan,
    TableStatistics,
    as_number,
    can_split,
    even_bounds,
    from_number,
    group_ranges,
    key_intervals,
    page_conditions,
    page_starts,
    part_count,
    plan_parts,
    range_condition,
    spread_evenly,
)

MIB = 1024**2
KEYS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))


def holds(part: KeyInterval, key: int | None) -> bool:
    """Evaluate the condition of a range as SQL does."""
    if key is None:
        return part.low is None
    return (part.low is None or key >= part.low) and (part.high is None or key < part.high)


@given(st.sets(st.integers(-(2**63), 2**63 - 1), max_size=20), KEYS)
def test_every_key_is_in_exactly_one_range(bounds: set[int], key: int | None) -> None:
    ranges = key_intervals(sorted(bounds))
    assert sum(holds(part, key) for part in ranges) == 1


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**64), st.integers(1, 50), KEYS)
def test_even_bounds_cover_everything_once(low: int, span: int, parts: int, key: Any) -> None:
    high = min(low + span, 2**63 - 1)
    bounds = even_bounds(low, high, parts, "long")
    assert bounds == sorted(set(bounds))
    assert len(bounds) < max(parts, 2)
    assert all(low < bound <= high for bound in bounds)
    assert sum(holds(part, key) for part in key_intervals(bounds)) == 1


@given(st.integers(0, 2**32), st.integers(1, 200), st.integers(0, 2**33))
def test_every_block_is_in_exactly_one_part(pages: int, parts: int, block: int) -> None:
    starts = page_starts(pages, parts)
    assert len(starts) <= parts
    assert starts == sorted(set(starts))
    ends = [*starts[1:], None] if starts else []
    inside = [a <= block and (b is None or block < b) for a, b in zip(starts, ends, strict=True)]
    assert sum(inside) == (1 if starts else 0)
    assert not starts or starts[0] == 0


@given(st.lists(st.integers(), unique=True, max_size=60), st.integers(1, 40), st.integers(1, 9))
def test_groups_keep_every_range_in_order(values: list[int], ranges: int, count: int) -> None:
    kept = spread_evenly(sorted(values), ranges)
    assert len(kept) <= max(ranges - 1, 0) or len(values) < ranges
    parts = key_intervals(kept)
    groups = group_ranges(parts, count)
    assert [part for group in groups for part in group] == list(parts)
    assert all(groups)
    assert len(groups) <= count


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("integer", -5),
        ("long", 2**62),
        ("date", "1969-12-31"),
        ("timestamp", "1969-12-31T23:59:59.999999+00:00"),
        ("timestamp_ntz", "2026-02-28T12:00:00.000001"),
    ],
)
def test_numbers_and_keys_are_inverse(kind: str, value: Any) -> None:
    assert can_split(kind)
    assert from_number(as_number(value, kind), kind) == value
    following = from_number(as_number(value, kind) + 1, kind)
    assert as_number(following, kind) == as_number(value, kind) + 1


def test_what_cannot_be_cut_evenly() -> None:
    assert not can_split("string")
    assert not can_split("decimal(10,2)")
    assert not can_split("double")


def test_one_value_and_skewed_keys_make_fewer_parts() -> None:
    assert even_bounds(7, 7, 8, "long") == []
    assert even_bounds(7, 9, 8, "long") == [8, 9]
    assert even_bounds(-10, 10, 2, "integer") == [0]
    assert even_bounds("2026-01-01", "2026-01-04", 2, "date") == ["2026-01-03"]


@pytest.mark.parametrize(
    ("facts", "parallelism", "wanted", "parts"),
    [
        (TableStatistics(), 8, None, 1),
        (TableStatistics(size=0), 8, None, 1),
        (TableStatistics(size=1), 8, None, 1),
        (TableStatistics(size=17 * MIB), 8, None, 2),
        (TableStatistics(size=10**12), 4, None, 4),
        (TableStatistics(size=10**12), 400, None, MAX_PARTS),
        (TableStatistics(rows=10**9), 3, None, 3),
        (TableStatistics(rows=10), 3, None, 1),
        (TableStatistics(size=1), 2, 40, 40),
    ],
)
def test_small_tables_are_read_in_one_part(
    facts: TableStatistics, parallelism: int, wanted: int | None, parts: int
) -> None:
    assert part_count(facts, parallelism, wanted) == parts


def test_a_full_table_is_divided_by_blocks() -> None:
    facts = TableStatistics(pages=1000, size=8 * MIB, rows=10**6)
    assert plan_parts(facts, 4) == PartPlan(pages=(0, 250, 500, 750))
    assert plan_parts(facts, 1) == PartPlan()
    assert plan_parts(TableStatistics(rows=10**9), 4) == PartPlan()


def facts(rows: int, **key: Any) -> TableStatistics:
    bounds = tuple(range(0, 1010, 10))
    existing = KeyStatistics(**{"indexed": True, "bounds": bounds, "correlation": 1.0, **key})
    return TableStatistics(pages=1000, size=rows * 100, rows=rows, key=existing)


def test_few_rows_above_the_bookmark_are_found_by_the_index() -> None:
    cut = plan_parts(facts(10**6), 4, start=995, key_type="long")
    assert cut == PartPlan(slices=((KeyInterval(),),))
    cut = plan_parts(facts(10**6), 4, start=2000, key_type="long")
    assert cut == PartPlan(slices=((KeyInterval(),),))
    cut = plan_parts(facts(9 * SLICE_ROWS), 4, start=900, key_type="long")
    assert [len(parts) for parts in cut.slices] == [4]


def test_without_an_index_the_table_is_scanned_once() -> None:
    cut = plan_parts(facts(10**8, indexed=False), 4, start=995, key_type="long")
    assert cut == PartPlan(pages=(0, 250, 500, 750))
    cut = plan_parts(facts(10**8, bounds=()), 4, start=995, key_type="long")
    assert cut.pages


def test_a_large_incremental_stream_is_read_in_slices() -> None:
    cut = plan_parts(facts(10 * SLICE_ROWS), 4, key_type="long")
    assert len(cut.slices) == 10
    assert all(len(parts) == 4 for parts in cut.slices)
    every = [part for parts in cut.slices for part in parts]
    assert every == list(key_intervals([part.high for part in every[:-1]]))
    assert every[0].low is None and every[-1].high is None


def test_a_table_in_another_order_is_not_sliced_unless_asked() -> None:
    scattered = facts(10 * SLICE_ROWS, correlation=0.01)
    assert plan_parts(scattered, 4, key_type="long").pages
    assert len(plan_parts(scattered, 4, key_type="long", ordered=True).slices) == 10


@given(
    st.lists(st.integers(-1000, 1000), unique=True, max_size=101),
    st.one_of(st.none(), st.integers(-1100, 1100)),
    st.integers(1, 16),
    st.integers(0, 10**9),
    st.one_of(st.none(), st.integers(-1200, 1200)),
    st.booleans(),
)
def test_any_plan_reads_every_row_once(bounds, start, parts, rows, key, ordered) -> None:
    existing = KeyStatistics(indexed=True, bounds=tuple(sorted(bounds)), correlation=0.9)
    table = TableStatistics(pages=100, rows=rows, key=existing)
    cut = plan_parts(table, parts, start, "long", ordered=ordered)
    if cut.slices:
        every = [part for piece in cut.slices for part in piece]
        assert sum(holds(part, key) for part in every) == 1
        assert [part.high for part in every[:-1]] == [part.low for part in every[1:]]
    else:
        assert len(cut.pages) in (0, parts)


@given(
    st.lists(st.integers(-1000, 1000), unique=True, max_size=101),
    st.one_of(st.none(), st.integers(-1100, 1100)),
    st.integers(-1100, 1100),
    st.integers(1, 16),
    st.integers(0, 10**9),
)
def test_no_slice_ends_at_or_above_the_end(bounds, start, end, parts, rows) -> None:
    existing = KeyStatistics(indexed=True, bounds=tuple(sorted(bounds)), correlation=0.9)
    table = TableStatistics(pages=100, rows=rows, key=existing)
    cut = plan_parts(table, parts, start, "long", end=end)
    highs = [part.high for piece in cut.slices for part in piece]
    assert all(high < end for high in highs if high is not None)
    assert not highs or highs[-1] is None


def test_conditions() -> None:
    def condition(low: Any, high: Any) -> str | None:
        return range_condition('"k"', KeyInterval(low, high), str)

    assert condition(None, None) is None
    assert condition(None, 5) == '("k" < 5 OR "k" IS NULL)'
    assert condition(5, 9) == '("k" >= 5 AND "k" < 9)'
    assert condition(5, None) == '"k" >= 5'
    assert page_conditions("c", [0, 7]) == [
        "c >= '(0,0)'::tid AND c < '(7,0)'::tid",
        "c >= '(7,0)'::tid",
    ]
    assert page_conditions("c", []) == []
