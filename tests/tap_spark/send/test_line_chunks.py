"""Chunks of bytes from columns of lines, without Spark: every byte once, in order; keys by type."""

from __future__ import annotations

import itertools
import json
from collections.abc import Container, Iterator, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tap_spark.send import spool_files
from tap_spark.send.spool_files import (
    ChunkRows,
    KeyMax,
    KeyTracker,
    blocks,
    greater_key,
    key_value,
    pack_meta,
    rank_of,
    unpack_meta,
    without_nulls,
)

TEXTS = st.lists(st.text(max_size=12).map(lambda text: text.replace("\n", " ") + "\n"), max_size=30)
MIB = 1024 * 1024


def record(**values: Any) -> str:
    return json.dumps({"type": "RECORD", "stream": "s", "record": values}) + "\n"


def batch(lines: list[str | None], keys: pa.Array | None = None) -> pa.RecordBatch:
    columns = {"line": pa.array(lines, pa.string())}
    return pa.record_batch(columns if keys is None else {**columns, "key": keys})


def joined(chunks: Iterator[spool_files.LineBlock]) -> bytes:
    return b"".join(bytes(block.data) for block in chunks)


@given(TEXTS, st.integers(1, 40), st.booleans(), st.data())
def test_blocks_hold_every_line_once(
    texts: list[str], limit: int, large: bool, data: st.DataObject
) -> None:
    column = pa.array(texts, pa.large_string() if large else pa.string())
    start = data.draw(st.integers(0, len(texts)))
    column, kept = column.slice(start), texts[start:]
    actual = list(blocks(column, limit))
    assert joined(iter(actual)) == "".join(kept).encode()
    assert sum(block.rows for block in actual) == len(kept)
    for block in actual:
        assert bytes(block.data).count(b"\n") == block.rows > 0
        assert len(block.data) <= limit or block.rows == 1


@given(TEXTS, st.integers(1, 40))
def test_blocks_are_as_large_as_the_limit_lets_them(texts: list[str], limit: int) -> None:
    actual = list(blocks(pa.array(texts, pa.string()), limit))
    sizes = [len(text.encode()) for text in texts]
    for block, after in pairwise(actual):
        assert len(block.data) + sizes[after.first] > limit


def test_an_empty_column_has_no_blocks() -> None:
    assert list(blocks(pa.array([], pa.string()), 10)) == []


def test_rows_without_a_line_are_dropped() -> None:
    kept = without_nulls(batch([None, "a\n", None], pa.array([1, 2, 3])))
    assert kept.to_pydict() == {"line": ["a\n"], "key": [2]}


@pytest.mark.parametrize(
    ("keys", "greatest"),
    [
        (pa.array([9, 10, None, 2]), 1),
        (pa.array(["b", "a", None, "é"]), 3),
        (pa.array([Decimal("9.50"), Decimal("10.25"), None, Decimal("-99.00")]), 1),
        (pa.array([1.5, float("nan"), float("inf"), -2.0]), 0),
        (pa.array([-1.5, float("nan"), None, -2.0], pa.float32()), 0),
        (pa.array([date(1969, 1, 1), date(2020, 1, 1), None, date(1, 1, 1)]), 1),
        (
            pa.array(
                [
                    datetime(2020, 1, 1, tzinfo=timezone.utc),
                    None,
                    None,
                    datetime(2020, 1, 1, 0, 0, 0, 1, tzinfo=timezone.utc),
                ],
                pa.timestamp("us", "UTC"),
            ),
            3,
        ),
        # The first and the last day of the years 1 to 9999 represent the infinities.
        (pa.array([date(9999, 12, 31), date(1, 1, 1), date(2020, 1, 1), date(1, 1, 2)]), 2),
        (pa.array([-719162, -719163, None, 2932896], pa.int32()).cast(pa.date32()), 1),
        (pa.array([2932896, 2932897, 20000, None], pa.int32()).cast(pa.date32()), 1),
        (
            pa.array(
                [datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(9999, 12, 30), None, None],
                pa.timestamp("us"),
            ),
            1,
        ),
        (pa.array([-5, -3, -4, None], pa.int8()), 1),
        (pa.array([Decimal(f"-{'9' * 36}.{n}5") for n in (3, 1, 2, 4)], pa.decimal128(38, 2)), 1),
        (pa.array([b"\x01", b"\xff", b"", None]), 1),
        (pa.array([False, True, None, False]), 1),
    ],
)
def test_the_greatest_key_is_found_by_type(keys: pa.Array, greatest: int) -> None:
    rows = batch([record(k=number) for number in range(4)], keys)
    tracker = KeyTracker("k")
    for block in blocks(rows.column(0), 1):  # row by row: ranks are compared, not only min_max
        tracker.track_block(rows, block)
    actual = tracker.take()
    assert actual is not None
    assert actual.value == greatest
    assert tracker.take() is None
    for block in blocks(rows.column(0), MIB):
        tracker.track_block(rows, block)
    assert tracker.take() == actual


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([None, None], pa.int64()),
        pa.array([float("nan")] * 2),
        pa.array([None] * 2, pa.string()),
        pa.array([date(9999, 12, 31), date(1, 1, 1)]),
        pa.array([datetime(9999, 12, 31), datetime(1, 1, 1, 5)], pa.timestamp("us", "UTC")),
    ],
)
def test_without_any_key(keys: pa.Array) -> None:
    rows = batch([record(k=None)] * 2, keys)
    tracker = KeyTracker("k")
    for block in blocks(rows.column(0), MIB):
        tracker.track_block(rows, block)
    assert tracker.take() is None


@given(st.lists(st.decimals(-(10**20), 10**20, places=4), min_size=1, max_size=5))
def test_ranks_of_decimals_order_as_decimals(values: list[Decimal]) -> None:
    keys = pa.array(values, pa.decimal128(38, 4))
    ranks = [rank_of(key) for key in keys]
    assert ranks == json.loads(json.dumps(ranks))
    assert sorted(values) == [value for _, value in sorted(zip(ranks, values, strict=True))]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("1.5", 1.5),
        ("12.50", 12.5),
        ("0.1", 0.1),
        ("12345678901234567890.123", "12345678901234567890.123"),
        ("340282366920938463463374607431768211456", "340282366920938463463374607431768211456"),
        ("1E400", "1E+400"),
        ('"2020-01-01"', "2020-01-01"),
        ("true", True),
    ],
)
def test_key_values_are_exact(text: str, value: Any) -> None:
    line = '{"type":"RECORD","stream":"s","record":{"k":' + text + "}}\n"
    assert key_value(pa.py_buffer(line.encode()), "k") == value


def test_greater_takes_what_is_there() -> None:
    low, high = KeyMax(1, "low"), KeyMax(2, "high")
    assert greater_key(low, high) is greater_key(high, low) is greater_key(None, high) is high
    assert greater_key(high, None) is high
    assert greater_key(None, None) is None


def with_left_out(numbers: Sequence[int], left_out: Container[int]) -> pa.RecordBatch:
    """Return rows with these keys, some of which are filtered."""
    lines = [None if number in left_out else record(n=number) for number in numbers]
    owns = [f'{{"k":{number}}}' for number in numbers]
    arrays = [pa.array(lines, pa.string()), pa.array(numbers, pa.int64()), pa.array(owns)]
    return pa.record_batch(arrays, names=["line", "key", "own"])


@given(
    st.lists(st.integers(0, 12), max_size=8),
    st.sets(st.integers(0, 99)),
    st.integers(1, 900),
)
def test_keys_of_rows_without_a_line_count_but_never_ahead(
    counts: list[int], left_out: set[int], limit: int
) -> None:
    stops = list(itertools.accumulate(counts))
    rows = [
        with_left_out(range(stop - count, stop), left_out)
        for stop, count in zip(stops, counts, strict=True)
    ]
    chunks = [row for out in ChunkRows("k", limit)(rows) for row in out.to_pylist()]
    sent: list[int] = []
    kept = [number for number in range(sum(counts)) if number not in left_out]
    newest = -1
    for chunk in chunks:
        sent += [json.loads(line)["record"]["n"] for line in chunk["chunk"].splitlines()]
        key = unpack_meta(chunk["meta"])[1]
        newest = max(newest, -1 if key is None else key.value)
        assert sent == kept[: len(sent)]
        assert all(number > newest for number in kept[len(sent) :])
    assert (sent, newest) == (kept, sum(counts) - 1)


@pytest.mark.parametrize("key", [None, KeyMax(10**30, "1.5"), KeyMax("a", "a"), KeyMax(1.5, 1.5)])
def test_meta_round_trips(key: KeyMax | None) -> None:
    assert unpack_meta(pack_meta(7, key)) == (7, key)


def test_chunk_rows_in_order() -> None:
    texts = [record(k=number) for number in range(100)]
    rows = batch(texts, pa.array(range(100)))
    out = list(ChunkRows("k", 500)([rows.slice(0, 50), rows.slice(50, 0), rows.slice(50)]))
    chunks = pa.Table.from_batches(out).to_pylist()
    assert b"".join(chunk["chunk"] for chunk in chunks) == "".join(texts).encode()
    assert sum(chunk["rows"] for chunk in chunks) == 100
    keys = [unpack_meta(chunk["meta"])[1] for chunk in chunks]
    assert [key.value for key in keys if key] == sorted({key.value for key in keys if key})
    assert keys[-1] == KeyMax(99, 99)
