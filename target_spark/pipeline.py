"""The target's core: events in, actions out, no I/O and no clock of its own.

It alone decides what belongs to which flush, in which order things are done, and when STATE
goes out:

- A RECORD, BATCH file or version of a stream takes effect in the order of arrival. Flushes and
  activations of one stream are committed one after the other; streams do not wait for each other.
- A batch is closed when the flush rule says so, at a different SCHEMA, at another table version,
  at ACTIVATE_VERSION and at the end of the input. When a batch is closed, those batches of other
  streams that hold back the newest STATE are closed with it: their part is usually small, and
  without that a slow stream would keep the STATE of a fast one back until its own age limit.
- Conversion (a Spark job per staging file or BATCH message) begins as soon as the piece is
  complete, before its batch is closed. At most `parallel` pieces of work run at a time.
- A STATE goes out when all that came before it is durable. Where tables are replaced as a whole
  (`overwrite`) nothing is durable before the end of the input.
- After `Stopped` or a failure nothing new is begun; running commits may end and release STATE.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shared.errors import MessageError, Where
from target_spark import events as ev
from target_spark.flushes import Activation, Flush, Piece, Stream, Swap
from target_spark.lines import first_lines
from target_spark.plans import Batch, InputFile, StreamSchema
from target_spark.policies import BatchSize, FlushRule
from target_spark.state import StateTracker

_AFTER_STOP = (ev.WorkDone, ev.WorkFailed, ev.Stopped)


@dataclass(frozen=True)
class Limits:
    """What the run may use.

    Attributes:
        parallel: Pieces of work (Spark jobs, commits) at a time.
        file_bytes: Size at which a staging file is complete.
        file_runs: Runs of consecutive lines at which it is, which bounds its line map.
        staged_bytes: Bytes in staging files at which no more input is read.
        waiting: Closed batches not yet durable at which no more input is read.
    """

    parallel: int = 2
    file_bytes: int = 64 * 1024 * 1024
    file_runs: int = 50_000
    staged_bytes: int = 1024 * 1024 * 1024
    waiting: int = 8


class Pipeline:
    """The state machine of one run.

    Args:
        rule: When a batch is flushed.
        limits: How much may be under way.
        run_id: Makes the tokens of this run's flushes unlike those of any other run.
        overwrite: Streams become visible only at the end of the input, as a whole.
    """

    def __init__(
        self, rule: FlushRule, limits: Limits, *, run_id: str, overwrite: bool = False
    ) -> None:
        self._rule = rule
        self._limits = limits
        self._run_id = run_id
        self._overwrite = overwrite
        self._streams: dict[str, Stream] = {}
        self._open: dict[int, Flush] = {}  # by position in the tracker
        self._flushes: dict[int, Flush] = {}  # all that are not durable, by number
        self._converts: deque[tuple[Flush, Piece]] = deque()
        self._turns: deque[Stream] = deque()  # streams whose first step may run
        self._running: dict[int, tuple[Flush, Piece] | Stream] = {}
        self._tracker = StateTracker()
        self._numbers = {"work": 0, "flush": 0, "file": 0}
        self._staged_bytes = 0
        self._actions: list[ev.Action] = []
        self._now = 0.0
        self._ended = False
        self._stopped: ev.Stopped | None = None
        self.done = False
        self._handlers: dict[type, Callable[[Any], None]] = {
            ev.SchemaSeen: self._schema,
            ev.RecordsSeen: self._records,
            ev.BatchSeen: self._batch,
            ev.StateSeen: self._state,
            ev.VersionSeen: self._version,
            ev.EndOfInput: self._end,
            ev.Tick: self._tick,
            ev.WorkDone: self._work_done,
            ev.WorkFailed: self._work_failed,
            ev.Stopped: self._stop,
        }

    def handle(self, event: ev.Event, now: float) -> list[ev.Action]:
        """Take one event.

        Args:
            event: What happened.
            now: Seconds since the epoch; never less than before.

        Returns:
            What to do, in this order. A message out of order (RECORD before SCHEMA) makes it
            stop with a `MessageError`, which comes back in `CleanUp`.
        """
        self._now = now
        if self._stopped is not None and not isinstance(event, _AFTER_STOP):
            return []
        try:
            self._handlers[type(event)](event)
        except MessageError as error:
            self._stop(ev.Stopped(error))
        self._make_way()
        self._schedule()
        self._release_state()
        self._finish_run()
        actions, self._actions = self._actions, []
        return actions

    @property
    def wants_input(self) -> bool:
        """Whether to go on reading; False is the back-pressure on stdin."""
        if self._ended or self._stopped is not None:
            return False
        waiting = len(self._flushes) - len(self._open)
        return waiting < self._limits.waiting and self._staged_bytes < self._limits.staged_bytes

    @property
    def stopping(self) -> bool:
        """Whether nothing new is begun any more."""
        return self._stopped is not None

    @property
    def commits_running(self) -> bool:
        """Whether anything under way will be durable when it ends."""
        return any(isinstance(work, Stream) for work in self._running.values())

    def deadline(self) -> float:
        """When a `Tick` is due; `math.inf` for never."""
        if self._stopped is not None:
            return math.inf
        deadlines = (self._rule.deadline(f.stream, f.size) for f in self._open.values())
        return min(deadlines, default=math.inf)

    # Messages

    def _schema(self, event: ev.SchemaSeen) -> None:
        if not self._streams:
            self._actions.append(ev.StartSpark())
        stream = self._streams.get(event.stream)
        if stream is None:
            schema = StreamSchema(event.stream, event.schema, event.key_properties)
            swap = self._tracker.begin() if self._overwrite else None
            self._streams[event.stream] = Stream(schema, swap=swap)
            return
        old = stream.schema
        if (old.schema, old.key_properties) == (event.schema, event.key_properties):
            return
        self._close(stream)
        stream.schema = StreamSchema(
            event.stream, event.schema, event.key_properties, old.serial + 1
        )

    def _records(self, event: ev.RecordsSeen) -> None:
        stream = self._known(event.stream, event.first_line, "RECORD")
        data, lines, first_line = event.data, event.lines, event.first_line
        while lines:
            flush = self._open_flush(stream, event.version)
            room = self._rule.room(event.stream, flush.size)
            taken = lines if room is None else min(room, lines)
            part, data = (data, b"") if taken == lines else first_lines(data, taken)
            self._stage(flush, part, taken, first_line)
            lines -= taken
            first_line += taken
            self._close_if_full(stream, flush)

    def _batch(self, event: ev.BatchSeen) -> None:
        stream = self._known(event.stream, event.line, "BATCH")
        if not event.manifest:
            return
        flush = self._open_flush(stream, event.version)
        self._complete_file(flush)
        piece = flush.add_piece(files=tuple(InputFile(u, event.encoding) for u in event.manifest))
        flush.grow(files=len(event.manifest))
        self._converts.append((flush, piece))
        self._close_if_full(stream, flush)

    def _state(self, event: ev.StateSeen) -> None:
        self._tracker.seen(event.value)

    def _version(self, event: ev.VersionSeen) -> None:
        stream = self._known(event.stream, event.line, "ACTIVATE_VERSION")
        self._close(stream)
        self._add_step(stream, Activation(event.stream, event.version, self._tracker.begin()))

    def _end(self, event: ev.EndOfInput) -> None:  # noqa: ARG002
        self._ended = True
        for name, stream in self._streams.items():
            if stream.swap is not None and not stream.has_flushes:
                self._open_flush(stream, None)  # without rows: the table becomes empty
            self._close(stream)
            if stream.swap is not None:
                self._add_step(stream, Swap(name, stream.swap))

    def _tick(self, event: ev.Tick) -> None:  # noqa: ARG002
        for flush in list(self._open.values()):
            due = self._rule.deadline(flush.stream, flush.size) <= self._now
            if due and flush.closed_at is None:
                self._close(self._streams[flush.stream])

    def _known(self, name: str, line: int, kind: str) -> Stream:
        stream = self._streams.get(name)
        if stream is None:
            raise MessageError(
                f"{kind} came before the SCHEMA of its stream",
                where=Where(stream=name, line=line),
                hint="the tap must send a SCHEMA message first",
            )
        return stream

    # Batches

    def _open_flush(self, stream: Stream, version: int | None) -> Flush:
        if stream.open is not None and stream.open.header.version != version:
            self._close(stream)
        if stream.open is None:
            number = self._next("flush")
            token = f"{self._run_id}-{number:06d}"
            header = Batch(stream.schema, (), token, version, self._now)
            flush = Flush(number, header, self._tracker.begin(), BatchSize(opened_at=self._now))
            stream.open = self._flushes[number] = self._open[flush.position] = flush
            stream.has_flushes = True
        return stream.open

    def _stage(self, flush: Flush, data: bytes | memoryview, lines: int, first_line: int) -> None:
        if flush.staging is None:
            flush.add_piece(staged=self._next("file"))
        self._actions.append(ev.Stage(flush.staged[-1], data, lines, first_line))
        size = len(data)
        flush.file_size += size
        flush.bytes_staged += size
        self._staged_bytes += size
        flush.file_runs += first_line != flush.next_line
        flush.next_line = first_line + lines
        flush.grow(rows=lines, size=size)
        limits = self._limits
        if flush.file_size >= limits.file_bytes or flush.file_runs >= limits.file_runs:
            self._complete_file(flush)

    def _complete_file(self, flush: Flush) -> None:
        piece, flush.staging = flush.staging, None
        if piece is not None and piece.staged is not None:
            self._actions.append(ev.CloseFile(piece.staged))
            self._converts.append((flush, piece))

    def _close_if_full(self, stream: Stream, flush: Flush) -> None:
        if stream.open is flush and self._rule.is_full(flush.stream, flush.size):
            self._close(self._streams[flush.stream])

    def _close(self, stream: Stream) -> None:
        """Close a stream's batch, and those that would still hold the newest STATE back."""
        if stream.open is None:
            return
        self._close_one(stream.open)
        if self._overwrite:
            return
        for position in self._tracker.holders():
            if position in self._open:
                self._close_one(self._open[position])

    def _close_one(self, flush: Flush) -> None:
        stream = self._streams[flush.stream]
        self._complete_file(flush)
        flush.closed_at = self._now
        stream.open = None
        del self._open[flush.position]
        self._add_step(stream, flush)

    def _make_way(self) -> None:
        """Staging is full: unless a flush is under way already, close the largest batch."""
        full = self._staged_bytes >= self._limits.staged_bytes
        if full and self._open and len(self._open) == len(self._flushes):
            self._close(self._streams[max(self._open.values(), key=_bytes_staged).stream])

    # Work

    def _add_step(self, stream: Stream, step: Flush | Activation | Swap) -> None:
        stream.steps.append(step)
        if len(stream.steps) == 1:
            self._offer(stream)

    def _offer(self, stream: Stream) -> None:
        """Let the stream's first step run if it can and does not yet."""
        if stream.running or not stream.steps:
            return
        step = stream.steps[0]
        if not isinstance(step, Flush) or step.ready:
            stream.running = True
            self._turns.append(stream)

    def _schedule(self) -> None:
        while self._stopped is None and len(self._running) < self._limits.parallel:
            if self._turns:
                self._start_step(self._turns.popleft())
            elif self._converts:
                self._start_convert(*self._converts.popleft())
            else:
                return

    def _start_convert(self, flush: Flush, piece: Piece) -> None:
        work = self._next("work")
        self._running[work] = (flush, piece)
        self._actions.append(
            ev.Convert(work, flush.number, flush.header, piece.index, piece.staged, piece.files)
        )

    def _start_step(self, stream: Stream) -> None:
        work = self._next("work")
        self._running[work] = stream
        step = stream.steps[0]
        if isinstance(step, Flush):
            self._actions.append(ev.Commit(work, step.number, step.header))
        elif isinstance(step, Activation):
            self._actions.append(ev.Activate(work, step.stream, step.version))
        else:
            self._actions.append(ev.Finish(work, step.stream))

    def _work_done(self, event: ev.WorkDone) -> None:
        work = self._running.pop(event.work)
        if isinstance(work, Stream):
            self._step_done(work)
        else:
            self._piece_done(*work, event)

    def _piece_done(self, flush: Flush, piece: Piece, event: ev.WorkDone) -> None:
        flush.unconverted -= 1
        if piece.staged is None:
            flush.grow(rows=event.rows, size=event.size)
        stream = self._streams[flush.stream]
        if self._stopped is None:
            self._close_if_full(stream, flush)
            self._offer(stream)

    def _step_done(self, stream: Stream) -> None:
        step = stream.steps.popleft()
        stream.running = False
        self._tracker.durable(step.position)
        if isinstance(step, Flush):
            del self._flushes[step.number]
            self._staged_bytes -= step.bytes_staged
            seconds = self._now - (step.closed_at or self._now)
            self._rule.flushed(step.stream, step.size, seconds)
            self._actions.append(
                ev.Forget(step.number, tuple(step.staged), step.stream, step.size.rows, seconds)
            )
        self._offer(stream)

    def _work_failed(self, event: ev.WorkFailed) -> None:
        self._running.pop(event.work)
        self._stop(ev.Stopped(event.error))

    def _stop(self, event: ev.Stopped) -> None:
        """The first reason to stop is the one that is reported."""
        self._stopped = self._stopped or event

    def _release_state(self) -> None:
        value = self._tracker.release()
        if value is not None:
            self._actions.append(ev.EmitState(value))

    def _finish_run(self) -> None:
        if self.done or not (self._ended or self._stopped):
            return
        if self._stopped is None:
            over = not self._running and not any(s.steps for s in self._streams.values())
        else:
            over = not self.commits_running
        if over:
            self.done = True
            error = self._stopped.error if self._stopped else None
            given_up = tuple((f.number, f.header) for f in self._flushes.values())
            self._actions.append(ev.CleanUp(error, given_up))

    def _next(self, kind: str) -> int:
        self._numbers[kind] += 1
        return self._numbers[kind]


def _bytes_staged(flush: Flush) -> int:
    return flush.bytes_staged
