"""Runs that are killed and begin again at any STATE: every record is loaded once."""

from __future__ import annotations

import io
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from target_spark import events as ev
from target_spark.pipeline import Limits, Pipeline
from target_spark.plans import Segment
from target_spark.policies import SizeAndAge
from target_spark.repeats import Committed, Replay, line_segments, note_segments


class KilledError(Exception):
    pass


def record(number: int, stream: str = "s") -> bytes:
    head = f'{{"type":"RECORD","stream":"{stream}"'
    return f'{head},"record":{{"n":{number:06d}}}}}\n'.encode()


@dataclass
class Table:
    """What is durable, with the note of the newest flush."""

    numbers: list[int] = field(default_factory=list)
    note: str | None = None


class Run:
    """One run of the pipeline over a table that keeps notes."""

    def __init__(self, table: Table, rows: int | None, file_rows: int, kill_at: int) -> None:
        rule = SizeAndAge(rows=rows, size=10**9 if rows else 45 * len(record(0)), seconds=1e9)
        limits = Limits(file_bytes=file_rows * len(record(0)))
        self.core = Pipeline(rule, limits, run_id="r", by_state="s".__eq__)
        self.table, self.kill_at = table, kill_at
        self.replay = Replay(note_segments(table.note))
        self.committed = Committed()
        self.staged: dict[int, bytes] = {}
        self.pieces: dict[int, list[tuple[bytes, tuple[Segment, ...]]]] = {}
        self.expected: dict[int, tuple[Segment, ...]] = {}
        self.largest = 0
        self.states: list[bytes] = []

    def hear(self, event: ev.Event) -> None:
        waiting = deque(self.core.handle(event, 0.0))
        while waiting:
            done = self.do(waiting.popleft())
            if done is not None:
                waiting.extend(self.core.handle(ev.WorkDone(done), 0.0))

    def do(self, action: Any) -> int | None:
        if isinstance(action, ev.Stage):
            self.staged[action.file] = self.staged.get(action.file, b"") + bytes(action.data)
        elif isinstance(action, ev.EmitState):
            self.states.append(action.value)
            self.committed.state_is_out()
        elif isinstance(action, ev.Convert):
            source = io.BytesIO(self.staged.pop(action.staged or 0))
            if action.header.stream.stream != "s":
                return action.work
            start, found = self.replay.lines(source)
            rest = tuple(line_segments(source, start, action.marks))
            piece = source.getvalue()[start:], (*found, *rest)
            self.expected[action.flush] = self.replay.rest
            self.pieces.setdefault(action.flush, []).append(piece)
            return action.work
        elif isinstance(action, ev.Commit) and action.flush not in self.pieces:
            return action.work
        elif isinstance(action, ev.Commit):
            self.commit(self.pieces.pop(action.flush), self.expected.pop(action.flush))
            return action.work
        elif isinstance(action, ev.Finish):
            self.table.note = None
            return action.work
        return None

    def commit(
        self, pieces: list[tuple[bytes, tuple[Segment, ...]]], expected: tuple[Segment, ...]
    ) -> None:
        segments = [segment for _, found in pieces for segment in found]
        self.table.note = self.committed.note(segments, expected)
        self.committed.add(segments)
        lines = b"".join(data for data, _ in pieces).splitlines()
        self.table.numbers += [int(line.split(b'"n":')[1][:6]) for line in lines]
        self.largest = max(self.largest, sum(segment.lines for segment in segments))
        self.kill_at -= 1
        if self.kill_at == 0:
            raise KilledError


def feed(run: Run, first: int, intervals: list[int], every: int = 10**9) -> None:
    """Records from `first` on, with a STATE after each interval that has not ended by then.

    Each `every`th record is followed by some of another stream, whose table keeps no notes.
    """
    run.hear(ev.SchemaSeen("s", {}, (), 1))
    run.hear(ev.SchemaSeen("other", {}, (), 1))
    end = 0
    for interval in intervals:
        begin, end = max(end, first), end + interval
        if end < first or (end == first and interval):
            continue
        for number in range(begin, end):
            run.hear(ev.RecordsSeen("s", record(number), 1, 1))
            if number % every == every - 1:
                data = record(number, "other") * 4
                run.hear(ev.RecordsSeen("other", data, 4, 1))
        run.hear(ev.StateSeen(str(end).encode(), 1))
    run.hear(ev.EndOfInput())


@settings(max_examples=300, deadline=None)
@given(
    intervals=st.lists(st.integers(0, 40), min_size=1, max_size=25),
    rows=st.sampled_from([None, 1, 3, 10, 25, 1000]),
    file_rows=st.sampled_from([1, 7, 16, 1000]),
    kills=st.lists(st.integers(1, 6), max_size=4),
    every=st.sampled_from([1, 2, 5, 10**9]),
)
def test_every_record_is_loaded_once(
    intervals: list[int], rows: int | None, file_rows: int, kills: list[int], every: int
) -> None:
    table, state = Table(), 0
    for kill_at in [*kills, 0]:
        run = Run(table, rows, file_rows, kill_at)
        try:
            feed(run, state, intervals, every)
        except KilledError:
            state = int(run.states[-1]) if run.states else state
            continue
        assert run.core.done
        break
    assert table.numbers == list(range(sum(intervals)))
    if rows is not None:
        assert run.largest <= 2 * rows


def test_a_flush_ends_where_a_state_came_once_it_is_full() -> None:
    table = Table()
    run = Run(table, 25, 1000, 0)
    feed(run, 0, [10] * 9)
    assert (run.largest, len(table.numbers)) == (30, 90)


def test_after_a_run_that_ended_well_the_same_records_are_new() -> None:
    table = Table()
    for _ in range(2):
        feed(Run(table, 10, 1000, 0), 0, [10, 10])
    assert table.numbers == [*range(20), *range(20)]
