"""Runs that are killed anywhere and begin again at the last STATE: every record is loaded once."""

from __future__ import annotations

import io
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.formats.file_formats import Encoding
from target_spark.core import events as ev
from target_spark.core.load_plans import InputFile, LoadPlan, Segment, StreamSchema
from target_spark.core.pipeline import Limits, Pipeline
from target_spark.core.policies import SizeAndAge
from target_spark.replays import Bookmarks, Journal, Note, line_segments, read_note

PLENTY = 10**9
FILE = Encoding("parquet")


class KilledError(Exception):
    pass


def record(text: str, stream: str = "s") -> bytes:
    head = f'{{"type":"RECORD","stream":"{stream}"'
    return f'{head},"record":{{"n":"{text:>6}"}}}}\n'.encode()


@dataclass
class Table:
    """What is durable: rows, which commits, and the note beside them."""

    rows: list[str] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    note: str = ""

    def held(self, note: Note) -> Note:
        """Return the part of a note that a lake's table holds: its commits must be the newest."""
        actual = set()
        for token in reversed(self.commits):
            if token not in note.tokens:
                break
            actual.add(token)
        return note.held(actual)


def recalled(schema: StreamSchema) -> LoadPlan:
    return LoadPlan(recalls=schema.stream == "s")


class Run:
    """One run of the pipeline over a table that keeps notes; killed at one of its steps."""

    def __init__(self, table: Table, rows: int | None, file_rows: int, kill_at: int, nth: int):
        rule = SizeAndAge(rows=rows, size=PLENTY if rows else 45 * len(record("")), seconds=1e9)
        limits = Limits(file_bytes=file_rows * len(record("")))
        self.core = Pipeline(rule, limits, run_id=f"r{nth}", plan=recalled)
        self.table, self.kill_at = table, kill_at
        self.journal = Journal(PLENTY)
        self.staged: dict[int, bytes] = {}
        self.pieces: dict[int, list[tuple[list[str], list[Segment]]]] = {}
        self.states: list[bytes] = []
        self.last: bytes | None = None
        self.skipped = 0
        self.is_between = False

    def hear(self, event: ev.Event) -> None:
        waiting = deque(self.core.handle(event, 0.0))
        while waiting:
            done = self.do(waiting.popleft())
            if done is not None:
                waiting.extend(self.core.handle(done, 0.0))

    def step(self) -> None:
        """Raise an error at the step at which the run is killed."""
        self.kill_at -= 1
        if self.kill_at == 0:
            raise KilledError

    def do(self, action: Any) -> ev.WorkDone | None:
        if isinstance(action, ev.Stage):
            self.staged[action.file] = self.staged.get(action.file, b"") + bytes(action.data)
        elif isinstance(action, ev.EmitState):
            self.emit(action)
        elif isinstance(action, ev.Recall):
            note = self.table.held(read_note(self.table.note))
            self.table.note = note.to_text()
            self.journal = Journal(PLENTY, list(note.entries), note.anchor)
            lines = tuple(entry.segment.lines for entry in note.entries)
            return ev.WorkDone(action.work, expected=lines)
        elif isinstance(action, ev.Convert):
            if action.header.stream.stream == "s":
                self.convert(action)
            return ev.WorkDone(action.work)
        elif isinstance(action, ev.Commit):
            if action.header.stream.stream == "s":
                self.commit(action.header.token, self.pieces.pop(action.flush))
            return ev.WorkDone(action.work)
        elif isinstance(action, ev.Finish):
            if action.stream == "s":
                self.table.note = ""
            return ev.WorkDone(action.work)
        return None

    def emit(self, action: ev.EmitState) -> None:
        self.step()
        bookmark = Bookmarks(action.value).digest("s")
        if self.journal.cover(action.position, bookmark):
            self.table.note = self.journal.note(bookmark).to_text()
        self.is_between = True
        self.step()
        self.is_between = False
        self.states.append(action.value)
        self.last = action.value
        self.step()

    def convert(self, action: ev.Convert) -> None:
        piece = action.piece
        if isinstance(piece, ev.FilesPiece):
            (file,) = piece.files
            whole = Segment(0, file.url, file.since, file.until)
            rows, parts = [file.url], [whole]
        else:
            data = self.staged.pop(piece.file)
            rows = [line.split(b'"n":"')[1][:6].decode().strip() for line in data.splitlines()]
            marks = tuple((size, position) for position, size in piece.marks.items())
            file = InputFile("", FILE, marks=marks, since=piece.since, until=piece.until)
            parts = list(line_segments(io.BytesIO(data), file))
            (whole,) = line_segments(io.BytesIO(data), InputFile("", FILE))
        pieces = self.pieces.setdefault(action.flush, [])
        if piece.replay is not None and self.journal.match(piece.replay, whole, parts):
            self.skipped += len(rows)
            pieces.append(([], []))
        else:
            pieces.append((rows, parts))

    def commit(self, token: str, pieces: list[tuple[list[str], list[Segment]]]) -> None:
        segments = [segment for _, actual in pieces for segment in actual]
        rows = [row for actual, _ in pieces for row in actual]
        if self.journal.begin(token if rows else "", segments):
            self.table.note = self.journal.note(self.bookmark).to_text()
        self.step()
        if rows:
            self.table.rows += rows
            self.table.commits.append(token)
        self.step()
        self.journal.committed()

    @property
    def bookmark(self) -> str | None:
        return self.journal.anchor if self.last is None else Bookmarks(self.last).digest("s")


Feed = list[tuple[str, int]]


def feed(run: Run, first: int, items: Feed, texts: list[str]) -> None:
    """Send what comes behind a STATE: lots of records of a stream, batch files and STATEs."""
    run.hear(ev.SchemaSeen("s", {}, (), 1))
    run.hear(ev.SchemaSeen("other", {}, (), 1))
    for at, (kind, count) in enumerate(items):
        if at < first:
            continue
        if kind == "state":
            value = b'{"bookmarks":{"s":%d}}' % (at + 1)
            run.hear(ev.StateSeen(value, 1))
        elif kind == "file":
            run.hear(ev.BatchSeen("s", FILE, (f"file-{at}",), 1))
        else:
            for number in range(count):
                data = record(texts[(at + number) % len(texts)], kind)
                run.hear(ev.RecordsSeen(kind, data, 1, 1))
    run.hear(ev.EndOfInput())


def sent(items: Feed, texts: list[str]) -> Counter[str]:
    actual: Counter[str] = Counter()
    for at, (kind, count) in enumerate(items):
        if kind == "s":
            actual.update(texts[(at + number) % len(texts)] for number in range(count))
        elif kind == "file":
            actual[f"file-{at}"] += 1
    return actual


def lots() -> st.SearchStrategy[Feed]:
    kinds = st.sampled_from(["s", "s", "s", "other", "state", "state", "file"])
    return st.lists(st.tuples(kinds, st.integers(1, 30)), min_size=1, max_size=25)


def killed_runs(
    table: Table, items: Feed, texts: list[str], kills: list[int], rows: int | None, file_rows: int
) -> tuple[list[Run], bool]:
    """Run until one ends well; return all, and whether one was killed between note and STATE."""
    at, runs, is_between = 0, [], False
    for nth, kill_at in enumerate([*kills, 0]):
        run = Run(table, rows, file_rows, kill_at, nth)
        runs.append(run)
        try:
            feed(run, at, items, texts)
        except KilledError:
            is_between |= run.is_between
            if run.states:
                at = int(run.states[-1].split(b'"s":')[1][:-2])
            continue
        assert run.core.done
        break
    return runs, is_between


@settings(max_examples=500, deadline=None)
@given(
    items=lots(),
    rows=st.sampled_from([None, 1, 3, 10, 25, 1000]),
    file_rows=st.sampled_from([1, 7, 16, 1000]),
    kills=st.lists(st.integers(1, 30), max_size=4),
    texts=st.sampled_from([["ok"], ["a", "b"], [str(n) for n in range(97)]]),
)
def test_every_record_is_loaded_once(
    items: Feed, rows: int | None, file_rows: int, kills: list[int], texts: list[str]
) -> None:
    table = Table()
    _, is_between = killed_runs(table, items, texts, kills, rows, file_rows)
    loaded, expected = Counter(table.rows), sent(items, texts)
    assert not expected - loaded, "nothing is lost"
    assert is_between or loaded == expected, "nothing is loaded twice"
    assert len(set(table.commits)) == len(table.commits)


def test_replays_are_skipped_where_the_flushes_were_cut_otherwise() -> None:
    items: Feed = [("s", 20), ("state", 1), ("s", 17), ("other", 60), ("s", 9), ("file", 1)]
    table = Table()
    texts = [str(n) for n in range(97)]
    runs, _ = killed_runs(table, items, texts, [9], 10, 7)
    assert len(runs) == 2
    assert runs[1].skipped > 0
    assert Counter(table.rows) == sent(items, texts)


def test_after_a_run_that_ended_well_the_same_records_are_new() -> None:
    table, items = Table(), [("s", 5), ("state", 1)]
    for nth in range(2):
        feed(Run(table, 10, 1000, 0, nth), 0, items, ["ok"])
    assert table.rows == ["ok"] * 10


def test_what_a_state_has_covered_is_new_when_it_comes_again() -> None:
    """The run is killed right behind its last STATE; the next one begins there."""
    table, items = Table(), [("s", 5), ("state", 1)]
    run = Run(table, 3, 1000, 0, 0)
    run.hear(ev.SchemaSeen("s", {}, (), 1))
    for _ in range(5):
        run.hear(ev.RecordsSeen("s", record("ok"), 1, 1))
    run.hear(ev.StateSeen(b'{"bookmarks":{"s":5}}', 1))
    run.hear(ev.Stopped(KilledError()))
    assert (table.rows, run.states) == (["ok"] * 3, [])
    feed(Run(table, 10, 1000, 0, 1), 0, items, ["ok"])
    assert table.rows == ["ok"] * 5, "the first three are replays"
    third = Run(table, 10, 1000, 0, 2)
    feed(third, 0, items, ["ok"])
    assert table.rows == ["ok"] * 10, "their STATE had gone out"


def test_a_state_that_passes_the_records_by_makes_equal_ones_new() -> None:
    table = Table()
    run = Run(table, 5, 1000, 0, 0)
    run.hear(ev.SchemaSeen("s", {}, (), 1))
    for _ in range(5):
        run.hear(ev.RecordsSeen("s", record("ok"), 1, 1))
    assert table.rows == ["ok"] * 5
    second = Run(table, 5, 1000, 0, 1)
    second.hear(ev.SchemaSeen("s", {}, (), 1))
    second.hear(ev.StateSeen(b'{"bookmarks":{"s":5}}', 1))
    assert second.states
    third = Run(table, 5, 1000, 0, 2)
    feed(third, 0, [("s", 5)], ["ok"])
    assert table.rows == ["ok"] * 10


def test_a_stream_that_stops_within_a_segment_is_flushed_all_the_same() -> None:
    table = Table()
    killed = Run(table, None, 1000, 0, 0)
    killed.hear(ev.SchemaSeen("s", {}, (), 1))
    for number in range(45):
        killed.hear(ev.RecordsSeen("s", record(str(number)), 1, 1))
    assert len(table.rows) == 45
    rule = SizeAndAge(rows=None, size=PLENTY, seconds=1.0)
    core = Pipeline(rule, Limits(), run_id="r1", plan=recalled)
    [recall] = core.handle(ev.SchemaSeen("s", {}, (), 1), 0.0)
    assert isinstance(recall, ev.Recall)
    core.handle(ev.WorkDone(recall.work, expected=(45,)), 0.0)
    core.handle(ev.RecordsSeen("s", record("0"), 1, 1), 0.0)
    assert core.handle(ev.Tick(), 2.0) == [], "it waits for the rest of the segment"
    assert core.deadline() < 20.0
    actions = core.handle(ev.Tick(), core.deadline())
    (convert,) = [action for action in actions if isinstance(action, ev.Convert)]
    assert convert.piece.replay is None


def test_the_lookup_for_a_stream_does_not_wait_for_work_of_others() -> None:
    rule = SizeAndAge(rows=1, size=PLENTY, seconds=PLENTY)
    core = Pipeline(rule, Limits(parallel=1), run_id="r1", plan=recalled)
    core.handle(ev.SchemaSeen("busy", {}, (), 1), 0.0)
    actions = core.handle(ev.RecordsSeen("busy", record("0", "busy"), 1, 2), 0.0)
    [convert] = [action for action in actions if isinstance(action, ev.Convert)]
    [recall] = core.handle(ev.SchemaSeen("s", {}, (), 3), 0.0)
    assert isinstance(recall, ev.Recall)
    actions = core.handle(ev.WorkDone(convert.work, rows=1), 0.0)
    assert [type(action) for action in actions if isinstance(action, ev.Commit)] == [ev.Commit]
