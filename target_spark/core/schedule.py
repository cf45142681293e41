"""The order of work. No I/O and no clock of its own."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from target_spark.core import events as ev
from target_spark.core.events import MOST_FILES, FilesPiece, Piece, StagedPiece
from target_spark.core.flushes import (
    Activation,
    AuditStep,
    DeadLetterStep,
    Ending,
    KeyPass,
    PendingFlush,
    Recollection,
    Step,
    Stream,
    Swap,
)
from target_spark.core.states import StateTracker

RetryRule = Callable[[BaseException, int], float | None]
"""Returns the seconds before failed work is retried, by its last failure and their number; None if
it must not be."""
NO_RETRY: RetryRule = lambda *_: None  # noqa: E731


@dataclass(kw_only=True)
class Job:
    """A piece of work.

    Attributes:
        stream: Its stream, whose other work may have to wait.
        is_light: It takes no place of others: the input waits for it.
        began_at: Start of its last attempt.
        due: Earliest start of a retry; of files that wait for more, the latest one.
    """

    stream: Stream
    is_light: bool = False
    failures: int = 0
    began_at: float = 0.0
    due: float = 0.0


@dataclass(kw_only=True)
class Conversion(Job):
    """A piece of a flush to be converted."""

    flush: PendingFlush
    piece: Piece


@dataclass(kw_only=True)
class Turn(Job):
    """The first step of a stream."""

    step: Step


JOB_BYTES = 64 * 1024 * 1024
"""Bytes of files that wait for each other: a Spark job costs as much as the rows of some MiB."""


@dataclass(eq=False)
class Schedule:
    """Conversions in order of arrival, steps of one stream one after the other.

    Files of BATCH messages that wait for the same flush are converted together.
    They may wait for more files, until there are `JOB_BYTES` or their flush is closed.
    Pieces of a stream that may be replays are compared one after the other, so that they do not
    wait for each other while they run. Steps have precedence over conversions. Streams do not wait
    for each other; a step that waits for its retry holds back those after it.

    Args:
        most_converts: Concurrent conversions; None for as many.
    """

    parallel: int
    most_converts: int | None = None
    retries: RetryRule = NO_RETRY
    _converts: deque[Conversion] = field(default_factory=deque, init=False)
    _gathering: dict[int, list[Conversion]] = field(default_factory=dict, init=False)
    """By the number of an open flush."""
    held: dict[int, tuple[Stream, Step, float]] = field(default_factory=dict, init=False)
    """Steps that wait for `release`, and until when, by their positions."""
    _turns: deque[Turn] = field(default_factory=deque, init=False)
    _running: dict[int, Conversion | Turn] = field(default_factory=dict, init=False)
    _later: list[Conversion | Turn] = field(default_factory=list, init=False)
    _work: int = field(default=0, init=False)
    _steps: int = field(default=0, init=False)
    _is_failing: bool = field(default=False, init=False)
    _is_stopped: bool = field(default=False, init=False)
    _until: float = field(default=math.inf, init=False)

    @property
    def is_idle(self) -> bool:
        """Return whether all work is done."""
        return not (self._running or self._steps or self._converts or self._later)

    @property
    def running(self) -> list[str]:
        """Name the work that runs, or waits for its retry."""
        jobs = (*self._running.values(), *self._later)
        named = (f"the {_kind_of_work(job)} of stream '{job.stream.schema.stream}'" for job in jobs)
        return list(dict.fromkeys(named))

    @property
    def is_converting(self) -> bool:
        """Return whether conversions run or wait."""
        begun = (*self._running.values(), *self._later)
        return bool(self._converts) or any(isinstance(job, Conversion) for job in begun)

    @property
    def is_committing(self) -> bool:
        """Return whether something will be durable when running work ends.

        A step makes it so. After failed work also a conversion does, as the flushes that become
        ready by it, and may begin, are the last ones.
        """
        is_over = self._is_stopped or not self._is_failing
        jobs = self._running.values()
        if any(isinstance(job, Turn) and not job.is_light for job in jobs):
            return True
        flushes = (job.flush for job in jobs if isinstance(job, Conversion) and not is_over)
        return any(self._is_near(flush) and self._may_begin(flush) for flush in flushes)

    @property
    def deadline(self) -> float:
        """Return when waiting work may begin at the latest; `math.inf` for never."""
        first = next(iter(self._gathering.values()), [])[:1]
        dues = [job.due for job in (*self._later, *first)]
        return min(dues + [until for _, _, until in self.held.values()], default=math.inf)

    def add_piece(
        self, flush: PendingFlush, piece: Piece, gather_until: float | None = None
    ) -> None:
        """Add the conversion of a complete piece, whose files may wait for more until a time."""
        due = gather_until or 0.0
        job = Conversion(stream=flush.stream, flush=flush, piece=piece, due=due)
        gathered = self._gathering.setdefault(flush.number, [])
        gathered.append(job)
        size = sum(job.piece.size for job in gathered)
        if gather_until is None or size >= JOB_BYTES or len(gathered) >= MOST_FILES:
            self._converts.extend(self._gathering.pop(flush.number))

    def add_step(self, stream: Stream, step: Step, until: float = 0.0) -> None:
        """Add a step after the stream's other steps; with `until` it waits for `release`."""
        self._steps += 1
        if isinstance(step, PendingFlush):
            # Its files wait no longer for more.
            self._converts.extend(self._gathering.pop(step.number, ()))
        stream.steps.append(step)
        if until and (position := _position(step)) is not None:
            self.held[position] = (stream, step, until)
        elif self.held and isinstance(step, PendingFlush) and step.by_rule:
            # It is due, and must not wait for those before it.
            for position in [at for at, (one, _, _) in self.held.items() if one is stream]:
                self._release(position, step.closed_at or 0.0)
        self.offer(stream)

    def offer(self, stream: Stream) -> None:
        """Queue the stream's first step if it can run and is not running."""
        if stream.running or not stream.steps:
            return
        step = stream.steps[0]
        # After failed work no STATE would cover it: a rerun would load it twice.
        if self._is_failing and not self._may_begin(step):
            return
        if self.held and _position(step) in self.held:
            return
        if isinstance(step, PendingFlush) and step.unconverted:
            return
        stream.running = True
        turn = Turn(stream=stream, step=step, is_light=isinstance(step, Recollection))
        if turn.is_light:
            self._turns.appendleft(turn)
        else:
            self._turns.append(turn)

    def release(self, covered: float, now: float) -> None:
        """Let held steps begin that a STATE at a position covers, or that are due."""
        for position, (_, step, until) in list(self.held.items()):
            if until <= now or (_reach(step) or 0) < covered:
                self._release(position, now)

    def _release(self, position: int, now: float) -> None:
        stream, step, _ = self.held.pop(position)
        if isinstance(step, PendingFlush) and step.closed_at is not None:
            # Its time is that of its work, not of the hold.
            step.closed_at = max(step.closed_at, now - step.convert_seconds)
        self.offer(stream)

    def begin(self, now: float) -> Iterator[ev.Work]:
        """Start all work that may start, and yield it."""
        if self._later:
            self._wake(now)
        while self._gathering and (first := next(iter(self._gathering.values()))[0]).due <= now:
            self._converts.extend(self._gathering.pop(first.flush.number))
        while not self._is_stopped and (job := self._next()) is not None:
            self._work += 1
            self._running[self._work] = job
            job.began_at = now
            if isinstance(job, Conversion):
                # A copy: later input may cut the piece, which is converted as it is now.
                piece, flush = replace(job.piece), job.flush
                yield ev.Convert(self._work, flush.number, flush.header, piece)
            else:
                yield _WORK[type(job.step)](self._work, job.step)

    def done(self, work: int) -> Conversion | Turn:
        """Record that work has succeeded."""
        job = self._running.pop(work)
        if isinstance(job, Conversion) and job.piece.replay is not None:
            job.stream.comparing = False
        if isinstance(job, Turn):
            self.drop(job)
        return job

    def failed(
        self, work: int, error: BaseException, now: float
    ) -> ev.RetryLater | Conversion | Turn:
        """Record that work has failed; return the message for a retry, else the work."""
        job = self._running.pop(work)
        job.failures += 1
        ending = self._is_stopped or self._is_failing or self._is_over(job)
        pause = None if ending else self.retries(error, job.failures)
        if pause is None:
            return job
        job.due = now + pause
        self._later.append(job)
        what = _kind_of_work(job)
        return ev.RetryLater(what, job.stream.schema.stream, error, job.failures, pause)

    def convert_again(self, job: Conversion, pieces: Sequence[Piece]) -> None:
        """Convert a failed piece again as these pieces, before all others."""
        jobs = [replace(job, piece=piece) for piece in pieces]
        # The flush counted the failed piece as one that is not converted; now it waits for each of
        # these.
        job.flush.unconverted += len(jobs) - 1
        self._converts.extendleft(reversed(jobs))

    def drop(self, job: Turn) -> None:
        """Drop a step that is done, or that has failed: the rest of its stream is discarded."""
        job.stream.steps.popleft()
        job.stream.running = False
        self._steps -= 1

    def drop_steps(self, stream: Stream) -> list[Step]:
        """Drop the steps of a stream that are discarded and do not run; return them."""
        dropped: list[Step] = []
        while len(stream.steps) > stream.running and _began(stream.steps[-1], stream.until):
            dropped.append(stream.steps.pop())
        self._steps -= len(dropped)
        return dropped

    def drop_conversions(self) -> list[Conversion]:
        """Drop the conversions of discarded input that are not running; return them."""
        waiting = [job for job in (*self._converts, *self._later) if isinstance(job, Conversion)]
        for job in waiting:
            if isinstance(job.piece, StagedPiece):
                job.piece.discard_from(job.stream.until)
        self._converts = deque(job for job in self._converts if not self._is_over(job))
        self._later = [job for job in self._later if not self._is_over(job)]
        return [job for job in waiting if self._is_over(job)]

    def fail(self, until: int) -> None:
        """Start only steps before a position that are ready now, or become so by running work."""
        self._is_failing, self._until = True, min(until, self._until)
        self.release(math.inf, 0.0)
        self._turns = deque(turn for turn in self._turns if self._may_begin(turn.step))
        self._converts.clear()
        self._gathering.clear()
        self._later.clear()

    def stop(self) -> None:
        """Start no more work."""
        self._is_stopped = True
        self._converts.clear()
        self._gathering.clear()
        self._turns.clear()
        self._later.clear()

    def withdraw(self, streams: Iterable[Stream]) -> None:
        """Take back the first steps of streams that have not begun; `offer` queues them again."""
        own = {id(stream) for stream in streams}
        # One that has failed may be durable all the same, if only its answer was lost: it cannot be
        # cut.
        for turn in [turn for turn in self._turns if id(turn.stream) in own and not turn.failures]:
            self._turns.remove(turn)
            turn.stream.running = False

    def blocked(self, stream: Stream, until: int) -> int | None:
        """Return the position of a stream's first step before `until` that cannot be taken alone.

        A flush with records from `until` on is one of them.
        """
        begun = [job.step for job in self._running.values() if isinstance(job, Turn)]
        for step in (*stream.steps, *([stream.open] if stream.open else ())):
            position = _position(step)
            if any(step is one for one in begun) or position is None:
                continue
            if position >= until:
                return None
            if isinstance(step, PendingFlush) and not (step.last < until and self._is_near(step)):
                return position
        return None

    def coverable(
        self, failed: Conversion | Turn, streams: Iterable[Stream], tracker: StateTracker
    ) -> int:
        """Return the position of the newest STATE that can go out after failed work; 0 if none."""
        streams = tuple(streams)
        until = tracker.newest_before(tracker.position + 1)
        while until:
            stuck = [self.blocked(stream, until) for stream in streams]
            if isinstance(failed, Turn) and not isinstance(failed.step, Recollection | Ending):
                stuck.append(failed.step.position)
            # A STATE goes out only if all that began before it is durable: go back to the one
            # before the first act that cannot be, and look again, as more flushes have records
            # behind that one.
            least = min((at for at in stuck if at is not None), default=until)
            if least >= until:
                return until
            until = tracker.newest_before(least)
        return until

    def _is_near(self, flush: PendingFlush) -> bool:
        """Return whether a flush is ready, or becomes so by running work alone."""
        running = (job for job in self._running.values() if isinstance(job, Conversion))
        return (
            flush.closed_at is not None
            and sum(job.flush is flush for job in running) == flush.unconverted
        )

    def _may_begin(self, step: Step) -> bool:
        position = _reach(step)
        return position is None or position < self._until

    @staticmethod
    def _is_over(job: Conversion | Turn) -> bool:
        return isinstance(job, Conversion) and job.piece.line >= job.stream.until

    def _next(self) -> Conversion | Turn | None:
        busy = sum(not job.is_light for job in self._running.values())
        has_room = busy < self.parallel
        # Commits first: they free staging and let STATE out.
        if self._turns and (self._is_failing or has_room or self._turns[0].is_light):
            return self._turns.popleft()
        converting = sum(isinstance(job, Conversion) for job in self._running.values())
        if not has_room or converting >= (self.most_converts or self.parallel):
            return None
        # One that may be a replay waits until others of its stream have been compared.
        free = (
            job
            for job in self._converts
            if job.piece.replay is None or not job.stream.comparing or job.failures
        )
        job = next(free, None)
        if job is None:
            return None
        self._converts.remove(job)
        job.stream.comparing |= job.piece.replay is not None
        # Alone after a failure: its error then names fewer files.
        if job.failures or not isinstance(job.piece, FilesPiece):
            return job
        return self._merged(job, job.piece)

    def _merged(self, job: Conversion, piece: FilesPiece) -> Conversion:
        """Return a conversion merged with waiting ones that fit into the same Spark job."""
        waiting, self._converts = self._converts, deque()
        for other in waiting:
            alike = other.flush is job.flush and not other.failures
            more = piece.with_next(other.piece) if alike else None
            if more is None:
                self._converts.append(other)
            else:
                job.piece = piece = more
                job.flush.unconverted -= 1
        return job

    def _wake(self, now: float) -> None:
        """Queue work whose pause is over before all other of its kind."""
        due = [job for job in self._later if job.due <= now]
        self._later = [job for job in self._later if job.due > now]
        for job in reversed(due):
            if isinstance(job, Turn):
                self._turns.appendleft(job)
            else:
                self._converts.appendleft(job)


def _began(step: Step, line: int) -> bool:
    if isinstance(step, Swap):
        return True
    return isinstance(step, PendingFlush | Activation | KeyPass) and step.line >= line


def _position(step: Step) -> int | None:
    return None if isinstance(step, Recollection | Ending) else step.position


def _reach(step: Step) -> int | None:
    """Return the position behind which a STATE covers a step."""
    return step.last if isinstance(step, PendingFlush) else _position(step)


def _kind_of_work(job: Conversion | Turn) -> str:
    if isinstance(job, Conversion):
        return "conversion"
    return "lookup of replays" if isinstance(job.step, Recollection) else "commit"


_WORK: Mapping[type, Callable[[int, Any], ev.Work]] = {
    Recollection: lambda work, step: ev.Recall(work, step.schema),
    PendingFlush: lambda work, step: ev.Commit(
        work, step.number, replace(step.header, reached=step.reached), step.lines_staged
    ),
    Activation: lambda work, step: ev.Activate(work, step.stream, step.version),
    KeyPass: lambda work, step: ev.DeleteMissing(work, step.number, step.keys),
    # It precedes the STATE of its rows, which are published after it.
    Swap: lambda work, step: ev.Finish(work, step.stream, awaits_state=True),
    AuditStep: lambda work, _: ev.Audit(work),
    Ending: lambda work, step: ev.Finish(work, step.stream, step.awaits_state),
    DeadLetterStep: lambda work, step: ev.WriteDeadLetters(work, step.position, tuple(step.lines)),
}
"""The work of each step, by its number."""
