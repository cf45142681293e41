"""Columns of lines to chunks of bytes, without Spark: every byte once, in order, keys by type."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tap_spark import line_chunks
from tap_spark.line_chunks import (
    ChunkRows,
    KeyMax,
    KeyWatch,
    SpoolWriter,
    blocks,
    greater,
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


def joined(chunks: Iterator[line_chunks.Block]) -> bytes:
    return b"".join(bytes(block.data) for block in chunks)


@given(TEXTS, st.integers(1, 40), st.booleans(), st.data())
def test_blocks_hold_every_line_once(
    texts: list[str], limit: int, large: bool, data: st.DataObject
) -> None:
    column = pa.array(texts, pa.large_string() if large else pa.string())
    start = data.draw(st.integers(0, len(texts)))
    column, kept = column.slice(start), texts[start:]
    found = list(blocks(column, limit))
    assert joined(iter(found)) == "".join(kept).encode()
    assert sum(block.rows for block in found) == len(kept)
    for block in found:
        assert bytes(block.data).count(b"\n") == block.rows > 0
        assert len(block.data) <= limit or block.rows == 1


@given(TEXTS, st.integers(1, 40))
def test_blocks_are_as_large_as_the_limit_lets_them(texts: list[str], limit: int) -> None:
    found = list(blocks(pa.array(texts, pa.string()), limit))
    sizes = [len(text.encode()) for text in texts]
    for block, after in pairwise(found):
        assert len(block.data) + sizes[after.first] > limit


def test_an_empty_column_has_no_blocks() -> None:
    assert list(blocks(pa.array([], pa.string()), 10)) == []


def test_rows_without_a_line_are_left_out() -> None:
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
        (pa.array([-5, -3, -4, None], pa.int8()), 1),
        (pa.array([b"\x01", b"\xff", b"", None]), 1),
        (pa.array([False, True, None, False]), 1),
    ],
)
def test_the_greatest_key_is_found_by_type(keys: pa.Array, greatest: int) -> None:
    rows = batch([record(k=number) for number in range(4)], keys)
    watch = KeyWatch("k")
    for block in blocks(rows.column(0), 1):  # row by row: ranks are compared, not only min_max
        watch.see(rows, block)
    found = watch.take()
    assert found is not None
    assert found.value == greatest
    assert watch.take() is None
    for block in blocks(rows.column(0), MIB):
        watch.see(rows, block)
    assert watch.take() == found


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([None, None], pa.int64()),
        pa.array([float("nan")] * 2),
        pa.array([None] * 2, pa.string()),
    ],
)
def test_no_key_at_all(keys: pa.Array) -> None:
    rows = batch([record(k=None)] * 2, keys)
    watch = KeyWatch("k")
    for block in blocks(rows.column(0), MIB):
        watch.see(rows, block)
    assert watch.take() is None


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
    assert greater(low, high) is greater(high, low) is greater(None, high) is high
    assert greater(high, None) is high
    assert greater(None, None) is None


@pytest.mark.parametrize("key", [None, KeyMax(10**30, "1.5"), KeyMax("a", "a"), KeyMax(1.5, 1.5)])
def test_meta_comes_back(key: KeyMax | None) -> None:
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


class SpoolBench:
    """A spool folder as the driver would keep it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = path.parent / "lock"
        fd = os.open(self.lock, os.O_CREAT | os.O_RDWR)
        line_chunks.fcntl.flock(fd, line_chunks.fcntl.LOCK_EX)
        self.fd = fd

    def writer(self, key: str | None = None, chunk: int = 100, room: int = MIB) -> SpoolWriter:
        return SpoolWriter(str(self.path), str(self.lock), key, chunk, room)

    def names(self, suffix: str) -> list[Path]:
        return sorted(self.path.glob("*" + suffix))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[SpoolBench]:
    folder = tmp_path / "spool"
    folder.mkdir()
    bench = SpoolBench(folder)
    yield bench
    if bench.fd >= 0:
        os.close(bench.fd)


def test_spool_writer_rotates(bench: SpoolBench) -> None:
    texts = [record(k=number) for number in range(50)]
    counts = list(bench.writer("k")([batch(texts, pa.array(range(50)))]))
    assert counts[0].to_pydict() == {"rows": [50]}
    chunks = bench.names(".lines")
    assert len(chunks) > 10
    assert not bench.names(".part")
    lines = sorted(line for chunk in chunks for line in chunk.read_text().splitlines(True))
    assert lines == sorted(texts)
    for chunk in chunks:
        rows, key = unpack_meta(chunk.with_suffix(".meta").read_text())
        values = [json.loads(line)["record"]["k"] for line in chunk.read_text().splitlines()]
        assert rows == len(values)
        assert key is not None
        assert key.value == max(values)
        assert chunk.stat().st_mode & 0o777 == 0o600


def test_small_batches_share_a_chunk(bench: SpoolBench) -> None:
    batches = [batch(["a\n"]) for _ in range(20)]
    list(bench.writer(chunk=1000)(batches))
    assert [chunk.read_text() for chunk in bench.names(".lines")] == ["a\n" * 20]


def test_one_huge_line(bench: SpoolBench) -> None:
    huge = "x" * MIB + "\n"
    list(bench.writer(chunk=100, room=4 * MIB)([batch(["a\n", huge, "b\n"])]))
    chunks = b"".join(sorted(chunk.read_bytes() for chunk in bench.names(".lines")))
    assert sorted(chunks.decode().splitlines(True)) == ["a\n", "b\n", huge]


@pytest.mark.parametrize("batches", [[], [batch([])], [batch([None, None])]])
def test_nothing_to_spool(bench: SpoolBench, batches: list[pa.RecordBatch]) -> None:
    assert next(iter(bench.writer()(batches))).to_pydict() == {"rows": [0]}
    assert bench.names("") == []


def test_a_task_waits_for_room(bench: SpoolBench) -> None:
    texts = [f"{number:049}\n" for number in range(200)]  # 10 kB
    thread = threading.Thread(
        target=lambda: list(bench.writer(chunk=100, room=500)([batch(texts)])), daemon=True
    )
    thread.start()
    seen: list[str] = []
    peak = 0
    while thread.is_alive() or bench.names(".lines"):
        time.sleep(0.03)
        peak = max(peak, line_chunks.unread_bytes(str(bench.path)))
        for chunk in bench.names(".lines"):
            seen += chunk.read_text().splitlines(True)
            chunk.unlink()
    assert sorted(seen) == texts
    assert peak <= 600


def test_a_waiting_task_ends_with_its_driver(
    bench: SpoolBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_chunks, "_OWNER_CHECK_SECONDS", 0.05)
    os.close(bench.fd)
    bench.fd = -1
    with pytest.raises(RuntimeError, match="gone away"):
        list(bench.writer(room=10)([batch(["x" * 99 + "\n"] * 3)]))


def test_a_missing_folder_is_told_by_number(bench: SpoolBench) -> None:
    bench.path.rmdir()
    with pytest.raises(RuntimeError, match=r"\[tap-spark spool errno 2\]"):
        list(bench.writer()([batch(["a\n"])]))


def test_a_lock_is_seen_from_another_descriptor(bench: SpoolBench, tmp_path: Path) -> None:
    assert line_chunks.is_locked(str(bench.lock))
    os.close(bench.fd)
    bench.fd = -1
    assert not line_chunks.is_locked(str(bench.lock))
    assert not line_chunks.is_locked(str(tmp_path / "no such file"))
