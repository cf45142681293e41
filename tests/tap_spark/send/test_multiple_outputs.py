"""A stream under several names: read once, and STATE only when the last name has it; no Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import DestinationError
from tap_spark.send import spark_slices
from tap_spark.send.line_output import ChunkInfo
from tap_spark.send.spark_slices import SliceWriter, WrittenSlices
from tap_spark.send.spool_files import KeyMax
from tap_spark.send.stream_outputs import Output
from tap_spark.state.stream_plans import Method, Resume, Slice, StreamPlan
from tap_spark.stream_config import StreamConfig


class Frame:
    """Stands for a DataFrame that is kept on disk for a while."""

    def __init__(self) -> None:
        self.kept = self.writes = 0

    def persist(self, level: Any) -> Frame:
        self.kept += 1
        return self

    def unpersist(self) -> None:
        self.kept -= 1


@dataclass
class Pace:
    """Stands for the state."""

    state: dict[str, Any] = field(default_factory=dict)
    flushed: list[Any] = field(default_factory=list)

    def update(self, change: Any) -> None:
        self.state = change(self.state)

    def flush(self) -> None:
        self.flushed.append(self.mark)

    @property
    def mark(self) -> Any:
        return (self.state.get("bookmarks") or {}).get("s")


def plan_of(key: str | None = None) -> StreamPlan:
    return StreamPlan(
        stream="s",
        tap_stream_id="s",
        config=StreamConfig(name="s", format="rows"),
        schema={"properties": {}},
        columns=(),
        method=Method.INCREMENTAL,
        resume=Resume.REPLICATION_KEY if key else Resume.FILE_POSITION,
        replication_key=key,
        key_type="long" if key else None,
    )


def several(pace: Pace, count: int = 2, key: str | None = None) -> SliceWriter:
    plan = plan_of(key)
    outputs = [Output(replace(plan, stream=f"s{number}")) for number in range(count)]
    return SliceWriter(plan, outputs, pace, lambda _: None)  # type: ignore[arg-type]


def slices(count: int, ordered: bool = False) -> list[Slice]:
    return [Slice(Frame(), {"at": number}, ordered) for number in range(1, count + 1)]  # type: ignore[arg-type]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is written as RECORDs: stream and bookmark; keys are those of `keys`."""
    calls: list[Any] = []

    def write(
        spark: Any,
        plan: StreamPlan,
        piece: Slice,
        output: Any,
        *,
        spool: Any,
        on_chunk: Any,
    ) -> int:
        assert piece.frame.kept == 1  # type: ignore[attr-defined]
        number = int(plan.stream[1:]) + 10 * dict(piece.bookmark or {}).get("at", 0)
        calls.append((plan.stream, piece.bookmark))
        on_chunk(ChunkInfo(1, 1, KeyMax(number, number)))
        return 1

    monkeypatch.setattr(spark_slices, "write_records", write)
    return calls


class TestRecords:
    def test_every_slice_goes_to_every_output_before_its_bookmark_is_true(
        self, written: list[Any]
    ) -> None:
        pace, pieces = Pace(), slices(2)
        several(pace).write_records(None, pieces, None, lambda: None)  # type: ignore[arg-type]
        assert [stream for stream, _ in written] == ["s0", "s1", "s0", "s1"]
        assert pace.mark == {"at": 2}
        assert [piece.frame.kept for piece in pieces] == [0, 0]  # type: ignore[attr-defined]

    def test_the_key_is_the_greatest_of_all_outputs(self, written: list[Any]) -> None:
        pace = Pace()
        several(pace, key="k").write_records(None, slices(1), None, lambda: None)  # type: ignore[arg-type]
        assert len(written) == 2
        assert pace.mark["progress_markers"]["replication_key_value"] == 11

    @pytest.mark.parametrize("ordered", [True, False])
    def test_bookmarks_move_with_the_last_output_where_rows_are_in_order(
        self, monkeypatch: pytest.MonkeyPatch, ordered: bool
    ) -> None:
        pace, seen = Pace(), []

        def write(*_: Any, spool: Any, on_chunk: Any) -> int:
            for key in (1, 2, 3):
                on_chunk(ChunkInfo(1, 1, KeyMax(key, key)))
                seen.append((pace.mark or {}).get("replication_key_value"))
            return 3

        monkeypatch.setattr(spark_slices, "write_records", write)
        pieces = [replace(piece, bookmark=None) for piece in slices(1, ordered)]
        several(pace, key="k").write_records(None, pieces, None, lambda: None)  # type: ignore[arg-type]
        assert seen == [None, None, None, *((1, 2, 3) if ordered else [None] * 3)]
        reached = pace.mark if ordered else pace.mark["progress_markers"]
        assert reached["replication_key_value"] == 3

    def test_a_failed_output_leaves_the_bookmark_where_it_was(
        self, written: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pace, pieces = Pace(), slices(2)
        good = spark_slices.write_records

        def fails(spark: Any, plan: StreamPlan, piece: Slice, *more: Any, **named: Any) -> Any:
            if len(written) == 3:
                raise RuntimeError("broke")
            return good(spark, plan, piece, *more, **named)

        monkeypatch.setattr(spark_slices, "write_records", fails)
        with pytest.raises(RuntimeError):
            several(pace).write_records(None, pieces, None, lambda: None)  # type: ignore[arg-type]
        assert pace.mark == {"at": 1}
        assert pieces[1].frame.kept == 0  # type: ignore[attr-defined]


class Files:
    """Stands for the BATCH writer of an output: slices are settled when it says so."""

    def __init__(self, lags: int, fails_at: int | None = None) -> None:
        self.lags = lags
        self.fails_at = fails_at
        self.bookmarks: list[Mapping[str, Any]] = []
        self.closed = False

    def write(self, piece: Slice, on_chunk: Any) -> Mapping[str, Any] | None:
        assert piece.bookmark is not None
        self.bookmarks.append(piece.bookmark)
        if len(self.bookmarks) == self.fails_at:
            raise RuntimeError("broke")
        number = len(self.bookmarks)
        on_chunk(ChunkInfo(2, 9, KeyMax(number, number)))
        return self.bookmarks[-1 - self.lags] if len(self.bookmarks) > self.lags else None

    def finish(self) -> Mapping[str, Any] | None:
        whole = self.bookmarks[: len(self.bookmarks) - bool(self.fails_at)]
        return whole[-1] if whole and self.lags else None

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


class Count:
    def __init__(self) -> None:
        self.total = 0

    def increment(self, by: int) -> None:
        self.total += by


def write_files(pace: Pace, files: list[Files], pieces: list[Slice], key: str | None = None) -> int:
    count, left = Count(), iter(files)
    several(pace, len(files), key).write_files(lambda _: next(left), pieces, count)  # type: ignore[arg-type,return-value]
    assert all(one.closed for one in files)
    return count.total


class TestFiles:
    def test_the_oldest_settled_bookmark_counts(self) -> None:
        pace = Pace()
        total = write_files(pace, [Files(0), Files(1)], slices(3))
        assert pace.flushed == [{"at": 1}, {"at": 2}, {"at": 3}]
        assert total == 6

    @given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(0, 6))
    def test_bookmarks_never_run_ahead_and_all_come_in_the_end(
        self, lags: list[int], count: int
    ) -> None:
        pace = Pace()
        write_files(pace, [Files(lag) for lag in lags], slices(count))
        seen = [mark["at"] for mark in pace.flushed]
        assert seen == sorted(set(seen))
        assert (seen[-1] if seen else 0) == count
        late = max(lags)
        assert all(at <= count - late for at in seen[:-1])

    def test_the_smallest_key_that_all_outputs_have_reached_counts(self) -> None:
        class Late(Files):
            def write(self, piece: Slice, on_chunk: Any) -> Mapping[str, Any] | None:
                seen.append((pace.mark or {}).get("replication_key_value"))
                rows = ChunkInfo(2, 9, KeyMax(len(seen) - 1, len(seen) - 1) if seen[1:] else None)
                on_chunk(rows)
                return None

        pace, seen = Pace(), []
        pieces = [replace(piece, bookmark=None) for piece in slices(3, ordered=True)]
        write_files(pace, [Files(0), Late(2)], pieces, key="k")
        assert seen == [None, None, 1]
        assert pace.mark["replication_key_value"] == 2
        assert pace.flushed == []

    @pytest.mark.parametrize("lags", [(0,), (1,), (0, 0), (0, 1)])
    def test_the_key_that_a_database_calls_its_greatest_stays(self, lags: tuple[int, ...]) -> None:
        """Of this key, Spark has another order: it would take the 3 of the last file."""
        pace, mark = Pace(), {"replication_key": "k", "replication_key_value": 2}
        pieces = [replace(piece, bookmark=mark) for piece in slices(3)]
        write_files(pace, [Files(lag) for lag in lags], pieces, key="k")
        assert pace.mark == mark

    def test_a_broken_slice_is_in_no_bookmark_but_what_came_before_is(self) -> None:
        pace = Pace()
        with pytest.raises(RuntimeError):
            write_files(pace, [Files(1), Files(1, fails_at=3)], slices(3))
        assert pace.flushed[-1] == {"at": 2}

    def test_nothing_more_is_told_where_files_cannot_be_written(self) -> None:
        class Full(Files):
            def write(self, piece: Slice, on_chunk: Any) -> Mapping[str, Any] | None:
                raise DestinationError("full")

        pace = Pace()
        with pytest.raises(DestinationError):
            write_files(pace, [Files(0), Full(0)], slices(2))
        assert pace.flushed == []


class TestSettled:
    def test_is_silent_until_all_have_a_slice(self) -> None:
        settled = WrittenSlices(2)
        one = settled.begin(Slice(None, {"at": 1}))  # type: ignore[arg-type]
        settled.reached(0, one.bookmark)
        assert settled.newest() is None
        settled.reached(1, one.bookmark)
        assert settled.newest() == {"at": 1}
        assert settled.newest() is None

    def test_slices_without_a_bookmark_are_passed_over(self) -> None:
        settled = WrittenSlices(1)
        first = settled.begin(Slice(None, {"at": 1}))  # type: ignore[arg-type]
        second = settled.begin(Slice(None, None))  # type: ignore[arg-type]
        settled.reached(0, first.bookmark)
        settled.reached(0, second.bookmark)
        assert settled.newest() == {"at": 1}

    def test_keeps_no_bookmark_that_is_written(self) -> None:
        settled = WrittenSlices(1)
        for number in range(5):
            numbered = settled.begin(Slice(None, {"at": number}))  # type: ignore[arg-type]
            settled.reached(0, numbered.bookmark)
            assert settled.newest() == {"at": number}
            assert settled._bookmarks == {}
