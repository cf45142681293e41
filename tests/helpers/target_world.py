"""A world in memory around the pipeline: does what it asks for and checks that it may ask."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from shared.errors import MessageError, RecordError, Where
from shared.formats.file_formats import Encoding
from target_spark.core import events as ev
from target_spark.core.load_plans import LoadPlan
from target_spark.core.pipeline import Limits, Pipeline
from target_spark.core.policies import CommitCost, FlushRule, SizeAndAge
from target_spark.core.schedule import NO_RETRY, RetryRule

PARQUET = Encoding("parquet")
WORK = ev.Convert | ev.Commit | ev.Activate | ev.DeleteMissing | ev.Finish | ev.WriteDeadLetters


@dataclass
class Staged:
    stream_rows: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    closed: bool = False
    removed: bool = False


@dataclass
class Item:
    """One thing received that must be durable before a later STATE."""

    stream: str
    key: Any
    schema: int
    version: int | None = None


Overwrite = bool | frozenset[str]


def overwrites(overwrite: Overwrite, stream: str) -> bool:
    chosen = overwrite if isinstance(overwrite, bool) else stream in overwrite
    return chosen and stream != "dead letters"


def pipeline(
    rule: FlushRule | None = None,
    *,
    overwrite: Overwrite = False,
    replaces: bool = False,
    retries: RetryRule = NO_RETRY,
    keep_dead_letters: bool = False,
    cost: CommitCost | None = None,
    goes_on: bool = False,
    **limits: Any,
) -> Pipeline:
    return Pipeline(
        rule or SizeAndAge(),
        Limits(**limits),
        run_id="run",
        plan=lambda schema: LoadPlan(
            overwrites(overwrite, schema.stream), overwrites(replaces, schema.stream)
        ),
        retries=retries,
        keep_dead_letters=keep_dead_letters,
        cost=cost,
        goes_on=goes_on,
    )


def _is_version(item: Item | bytes) -> bool:
    return isinstance(item, Item) and isinstance(item.key, tuple) and item.key[0] == "version"


def _line_of(key: Any) -> int:
    """Return the line of a record or of a BATCH message; 0 for anything else."""
    if isinstance(key, str):
        return int(key[1:].partition("-")[0])
    return key if isinstance(key, int) else 0


class World:
    """Drives one pipeline; every record has a number of its own, which is its line."""

    def __init__(
        self, core: Pipeline | None = None, *, overwrite: Overwrite = False, buries: bool = False
    ) -> None:
        self.core = core or pipeline(overwrite=overwrite)
        self.buries = buries
        self.overwrite = overwrite
        self.now = 1000.0
        self.line = 0
        self.received: list[Item | bytes] = []
        self.schemas: dict[str, tuple[int, str]] = {}
        self.files: dict[int, Staged] = defaultdict(Staged)
        self.flush_keys: dict[int, dict[int, list[Any]]] = defaultdict(dict)
        self.headers: dict[int, Any] = {}
        self.works: dict[int, Any] = {}
        self.durable: dict[str, list[Any]] = defaultdict(list)
        self.finished: set[str] = set()
        self.ended: list[str] = []
        self.emitted: list[bytes] = []
        self.log: list[ev.Action] = []
        self.clean_up: ev.CleanUp | None = None
        self.stopped = False
        self.forgotten: list[int] = []
        self.passes: dict[int, Item] = {}
        self.reported: list[int] = []
        self.warnings: list[str] = []
        self.deleted: list[int] = []
        self.failures: list[str] = []
        self.begun: set[tuple[str, Any]] = set()
        self.uncovered: dict[str, ev.ReportUncovered] = {}
        self.bad: set[Any] = set()
        self.failed: list[BaseException] = []
        self.failed_alone: list[BaseException] = []
        """Those of files of one message; others are converted again one by one."""

    # Input

    def schema(self, stream: str, kind: str = "a", *, failed: bool = False) -> list[ev.Action]:
        self.line += 1
        serial, old = self.schemas.get(stream, (-1, None))
        if kind != old:
            self.schemas[stream] = (serial + 1, kind)
            if old is None and overwrites(self.overwrite, stream):
                self.received.append(Item(stream, ("swap", stream), 0))
        return self.hear(ev.SchemaSeen(stream, {"kind": kind}, ("id",), self.line, failed))

    def records(self, stream: str, count: int = 1, version: int | None = None) -> list[ev.Action]:
        first = self.line + 1
        self.line += count
        numbers = range(first, first + count)
        serial = self.schemas.get(stream, (0, ""))[0]
        self.received += [Item(stream, n, serial, version) for n in numbers]
        data = memoryview("".join(f"{n}\n" for n in numbers).encode())
        return self.hear(ev.RecordsSeen(stream, data, count, first, version))

    def batch(self, stream: str, files: int = 1, version: int | None = None) -> list[ev.Action]:
        self.line += 1
        urls = tuple(f"f{self.line}-{n}" for n in range(files))
        serial = self.schemas.get(stream, (0, ""))[0]
        self.received += [Item(stream, url, serial, version) for url in urls]
        return self.hear(ev.BatchSeen(stream, PARQUET, urls, self.line, version))

    def version(self, stream: str, version: int) -> list[ev.Action]:
        self.line += 1
        nth = sum(item.stream == stream for item in self.received if _is_version(item))
        self.received.append(Item(stream, ("version", version, nth), 0))
        return self.hear(ev.VersionSeen(stream, version, self.line))

    def keys(self, stream: str) -> list[ev.Action]:
        self.line += 1
        self.received.append(Item(stream, ("keys", self.line), 0))
        return self.hear(ev.KeysSeen(stream, PARQUET, (f"k{self.line}",), self.line))

    def bad_line(self, stream: str | None = None) -> list[ev.Action]:
        self.line += 1
        if self.buries:
            self.received.append(Item("dead letters", self.line, 0))
        return self.hear(ev.LineRejected(b"x" * 9 + b"\n", self.line, "no JSON", stream))

    def idle(self) -> list[ev.Action]:
        return self.hear(ev.Idle())

    def state(self) -> list[ev.Action]:
        self.line += 1
        value = b'{"line":%d}' % self.line
        self.received.append(value)
        return self.hear(ev.StateSeen(value, self.line))

    def end(self) -> list[ev.Action]:
        return self.hear(ev.EndOfInput())

    def tick(self, seconds: float = 0.0) -> list[ev.Action]:
        self.now += seconds
        return self.hear(ev.Tick())

    def stop(self, error: BaseException) -> list[ev.Action]:
        self.stopped = True
        return self.hear(ev.Stopped(error))

    def bad_input(self, error: BaseException) -> list[ev.Action]:
        return self.hear(ev.BadInput(error))

    # Work

    def finish_work(self, work: int | None = None) -> list[ev.Action]:
        """End one piece of work (the oldest, or the given one); fail if anything in it is bad."""
        work = next(iter(self.works)) if work is None else work
        action = self.works.pop(work)
        rows = 0
        if isinstance(action, ev.Convert):
            keys = self._keys(action)
            bad = [key for key in keys if key in self.bad]
            if bad:
                self.failed.append(self._complaint(action, bad[0]))
                if isinstance(action.piece, ev.StagedPiece) or not action.piece.messages:
                    self.failed_alone.append(self.failed[-1])
                return self.hear(ev.WorkFailed(work, self.failed[-1]))
            self.flush_keys[action.flush][action.piece.index] = keys
            rows = len(keys)
        elif isinstance(action, ev.Commit):
            pieces = self.flush_keys[action.flush]
            assert min(pieces, default=0) == 0
            stream = action.header.stream.stream
            self.durable[stream] += [key for n in sorted(pieces) for key in pieces[n]]
        elif isinstance(action, ev.WriteDeadLetters):
            self.durable["dead letters"] += [line.line for line in action.lines]
        elif isinstance(action, ev.Activate):
            durable = self.durable[action.stream.stream]
            nth = sum(isinstance(key, tuple) and key[0] == "version" for key in durable)
            durable.append(("version", action.version, nth))
        elif isinstance(action, ev.DeleteMissing):
            (file,) = action.keys.files
            key = ("keys", _line_of(file.url))
            self.durable[self.stream_of(action)].append(key)
            self.passes[action.flush] = Item(self.stream_of(action), key, 0)
        elif not overwrites(self.overwrite, action.stream):
            assert self._all_state_is_out(), "a stream ends once all STATE is out"
            self.ended.append(action.stream)
        else:
            self.finished.add(action.stream)
            self.durable[action.stream].append(("swap", action.stream))
        return self.hear(ev.WorkDone(work, rows, rows * 10))

    def _keys(self, action: ev.Convert) -> list[Any]:
        piece = action.piece
        if isinstance(piece, ev.FilesPiece):
            return [file.url for file in piece.files]
        file = self.files[piece.file]
        assert not file.removed
        rows = file.stream_rows
        if piece.before is not None:
            file.stream_rows = rows = [row for row in rows if row < piece.before]
        assert rows, "a job for nothing"
        return list(rows)

    @staticmethod
    def _complaint(action: ev.Convert, key: Any) -> BaseException:
        """Return a loader's error: with the line of a record, or a file's name and a line in it."""
        stream = action.header.stream.stream
        if isinstance(action.piece, ev.FilesPiece):
            return MessageError(f"bad {key}", where=Where(stream=stream, file=key, line=3))
        return RecordError(f"bad {key}", where=Where(stream=stream, line=key))

    def fail_work(self, error: BaseException, work: int | None = None) -> list[ev.Action]:
        work = next(iter(self.works)) if work is None else work
        self.works.pop(work)
        return self.hear(ev.WorkFailed(work, error))

    def finish_all(self) -> None:
        while self.works:
            self.finish_work()

    # Checks

    def check_cut(self, bad_line: float = math.inf) -> None:
        """Check that the run ended at the newest STATE before a line of bad input.

        All before it is durable once, and the STATE is out. What is durable beyond it had begun
        before the bad input came to light.
        """
        assert self.core.done
        heard: list[tuple[Item | bytes, int]] = []
        for item in self.received:
            own = _line_of(item.key) if isinstance(item, Item) else int(item[8:-1])
            heard.append((item, own or (heard[-1][1] if heard else 0)))
        states = [n for n, (i, at) in enumerate(heard) if isinstance(i, bytes) and at < bad_line]
        before = [item for item, _ in heard[: states[-1] if states else 0]]
        assert self.emitted[-1:] == [heard[n][0] for n in states[-1:]]
        for name in {item.stream for item, _ in heard if isinstance(item, Item)}:
            wanted = [i.key for i in before if isinstance(i, Item) and i.stream == name]
            durable = self.durable[name]
            assert len(durable) == len(set(durable))
            assert durable[: len(wanted)] == wanted
            assert {(name, key) for key in durable[len(wanted) :]} <= self.begun
        assert all(file.removed for file in self.files.values())

    def _note_begun(self) -> None:
        """Remember what is durable, or is being committed, as the input proves bad."""
        self.begun |= {(name, key) for name, keys in self.durable.items() for key in keys}
        for work in self.works.values():
            if isinstance(work, ev.Commit):
                pieces, name = self.flush_keys[work.flush], work.header.stream.stream
                self.begun |= {(name, key) for keys in pieces.values() for key in keys}
            elif isinstance(work, ev.Activate | ev.DeleteMissing):
                items = (item for item in self.received if isinstance(item, Item))
                self.begun |= {(i.stream, i.key) for i in items if isinstance(i.key, tuple)}

    def hear(self, event: ev.Event) -> list[ev.Action]:
        if isinstance(event, ev.BadInput | ev.WorkFailed):
            self._note_begun()
        actions = self.core.handle(event, self.now)
        for action in actions:
            self._do(action)
        self.log += actions
        self._check_newest_state()
        return actions

    def _do(self, action: ev.Action) -> None:
        assert self.clean_up is None, "nothing may follow CleanUp"
        if isinstance(action, ev.Stage | ev.CloseFile | ev.RemoveFile):
            self._do_file(action, self.files[action.file])
        elif isinstance(action, WORK):
            self._begin(action)
        elif isinstance(action, ev.DiscardPieces):
            pieces = self.flush_keys[action.flush]
            for piece in [piece for piece in pieces if piece >= action.first]:
                del pieces[piece]
        elif isinstance(action, ev.Forget):
            self.forgotten.append(action.flush)
        elif isinstance(action, ev.ReportLine):
            self.reported.append(action.line.line)
        elif isinstance(action, ev.ReportFailure | ev.ReportUncovered | ev.Warn):
            self._hear_warning(action)
        elif isinstance(action, ev.RetryLater):
            assert action.seconds >= 0
        elif isinstance(action, ev.DeleteConsumed):
            self._delete(action.flushes)
        elif isinstance(action, ev.EmitState):
            assert action.value not in self.emitted
            assert self._covered(action.value), "STATE before what it covers is durable"
            self.emitted.append(action.value)
        else:
            assert isinstance(action, ev.CleanUp)
            self.clean_up = action

    def _hear_warning(self, action: ev.ReportFailure | ev.ReportUncovered | ev.Warn) -> None:
        if isinstance(action, ev.Warn):
            self.warnings.append(action.text)
        elif isinstance(action, ev.ReportUncovered):
            self.uncovered[action.stream] = action
        else:
            self.failures.append(action.stream)

    @staticmethod
    def _do_file(action: ev.Stage | ev.CloseFile | ev.RemoveFile, file: Staged) -> None:
        if isinstance(action, ev.Stage):
            assert not file.closed
            lines = [int(n) for n in bytes(action.data).splitlines()]
            assert len(lines) == action.lines
            assert lines[0] == action.first_line
            file.stream_rows += lines
        elif isinstance(action, ev.CloseFile):
            assert not file.closed
            file.closed = True
        else:
            assert not file.removed
            file.removed = True

    def _delete(self, flushes: tuple[int, ...]) -> None:
        """Delete the files of flushes; fail if they are not durable, or await a STATE."""
        states = [item for item in self.received if isinstance(item, bytes)]
        out = self.received.index(self.emitted[-1]) if self.emitted else -1
        for flush in flushes:
            assert flush not in self.deleted
            self.deleted.append(flush)
            assert flush in self.passes or flush in self.forgotten
            assert self._last_file(flush) < out or (self.core.done and not states)

    def _last_file(self, flush: int) -> int:
        """Return the place in the input of the last file of a flush, or of its KEYS."""
        if flush in self.passes:
            return self.received.index(self.passes[flush])
        stream = self.headers[flush].stream.stream
        keys = [k for keys in self.flush_keys[flush].values() for k in keys]
        files = {(stream, key) for key in keys if isinstance(key, str)}
        places = (
            place
            for place, item in enumerate(self.received)
            if isinstance(item, Item) and (item.stream, item.key) in files
        )
        return max(places, default=-1)

    def _begin(self, action: Any) -> None:
        # Once work has failed, only commits of others begin; once stopped, nothing does.
        assert not self.stopped
        assert not (self.core.stopping and isinstance(action, ev.Convert | ev.Finish))
        assert action.work not in self.works
        if isinstance(action, ev.Convert) and isinstance(action.piece, ev.StagedPiece):
            assert self.files[action.piece.file].closed
        if isinstance(action, ev.Convert | ev.Commit):
            header = replace(action.header, reached=None)
            assert self.headers.setdefault(action.flush, header) == header
            self._check_reached(action)
        if not isinstance(action, ev.Convert):
            name = self.stream_of(action)
            rivals = [w for w in self.works.values() if not isinstance(w, ev.Convert)]
            assert name not in [self.stream_of(w) for w in rivals], "two steps of one stream"
        self.works[action.work] = action

    def _check_reached(self, action: ev.Convert | ev.Commit) -> None:
        """A commit names a STATE only if all records of its stream before that are in the table."""
        reached = action.header.reached
        if reached is None or isinstance(action, ev.Convert):
            assert reached is None
            return
        assert reached.value == b'{"line":%d}' % reached.line
        stream = action.header.stream.stream
        own = [key for keys in self.flush_keys[action.flush].values() for key in keys]
        held = {*own, *self.durable[stream]}
        items = [item for item in self.received if isinstance(item, Item) and item.stream == stream]
        lines = {item.key: _line_of(item.key) for item in items}
        assert {key for key, line in lines.items() if 0 < line < reached.line} <= held
        assert not reached.is_exact or all(lines[key] < reached.line for key in own)

    @staticmethod
    def stream_of(action: Any) -> str:
        if isinstance(action, ev.WriteDeadLetters):
            return "dead letters"
        if isinstance(action, ev.DeleteMissing):
            return action.keys.stream.stream
        return action.header.stream.stream if isinstance(action, ev.Commit) else action.stream

    def _is_durable(self, item: Item) -> bool:
        done = item.key in self.durable[item.stream]
        swapped = item.stream in self.finished or not overwrites(self.overwrite, item.stream)
        return done and swapped

    def _all_state_is_out(self) -> bool:
        states = [item for item in self.received if isinstance(item, bytes)]
        return self.emitted[-1:] == states[-1:]

    def _covered(self, value: bytes) -> bool:
        before = self.received[: self.received.index(value)]
        return all(self._is_durable(item) for item in before if isinstance(item, Item))

    def _check_newest_state(self) -> None:
        states = [item for item in self.received if isinstance(item, bytes)]
        free = [value for value in states if self._covered(value)]
        if free:
            assert self.emitted[-1:] == free[-1:], "the newest free STATE must be out"

    def check_complete(self, error: BaseException | None = None) -> None:
        """Check that all input is durable exactly once, in order, under its own schema."""
        assert self.core.done
        assert self.clean_up == ev.CleanUp(error, ())
        assert math.isinf(self.core.deadline())
        assert not self.core.wants_input
        items = [item for item in self.received if isinstance(item, Item)]
        for stream in {item.stream for item in items}:
            wanted = [i.key for i in items if i.stream == stream and i.key != ("swap", stream)]
            if overwrites(self.overwrite, stream):
                wanted.append(("swap", stream))
            assert self.durable[stream] == wanted
        by_key = {(item.stream, item.key): item for item in items}
        for number, pieces in self.flush_keys.items():
            header = self.headers[number]
            for key in (key for keys in pieces.values() for key in keys):
                item = by_key[header.stream.stream, key]
                assert (header.stream.serial, header.version) == (item.schema, item.version)
        assert all(file.removed for file in self.files.values())
        loaded = {header.stream.stream for header in self.headers.values()}
        endless = {name for name in loaded if overwrites(self.overwrite, name)}
        assert sorted(self.ended) == (sorted(loaded - endless) if error is None else [])
        states = [item for item in self.received if isinstance(item, bytes)]
        if error is None and states:
            actual = {
                n: [k for keys in p.values() for k in keys] for n, p in self.flush_keys.items()
            }
            with_files = {n for n, keys in actual.items() if any(isinstance(k, str) for k in keys)}
            last = self.received.index(states[-1])
            consumed = {n for n in with_files | self.passes.keys() if self._last_file(n) < last}
            assert set(self.deleted) == consumed
        assert self.emitted[-1:] == states[-1:]
