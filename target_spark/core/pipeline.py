"""The target's core: events in, actions out, no I/O and no clock of its own.

It alone decides which rows belong to which flush, the order of work, and when to emit STATE:

- RECORDs, BATCH files, versions and KEYS of a stream take effect in the order of arrival. Flushes,
  activations and deletions by KEYS of one stream are committed one after the other; streams do not
  wait for each other.
- A batch is closed when the flush rule says so, at a different SCHEMA, at another table version,
  at ACTIVATE_VERSION, at KEYS and at the end of the input. When a batch is closed, those batches of
  other streams that hold back the newest STATE are closed with it: their part is usually small, and
  without that a slow stream would keep the STATE of a fast one back until its own age limit.
- What is closed before it is due, activations and deletions by KEYS wait until a STATE covers them
  and all before it is converted, or for its age, a lack of room or the end: bad input may come.
- Conversion (a Spark job per staging file or BATCH message) begins as soon as the piece is
  complete, before its batch is closed. At most `parallel` pieces of work run at a time.
- A STATE is emitted when everything received before it is durable. Streams whose
  tables are replaced as a whole (`overwrite`) are not durable before the end of the input.
- After a good end of the input and the last STATE, the streams are ended one by one.
- Bad input (`BadInput`, a RECORD before its SCHEMA, a SCHEMA that the maps do not fit) ends the
  input at the newest STATE before it: everything before that becomes durable and the STATE is
  emitted, then the run ends with the error. Later input of all streams is discarded unless its
  commit runs: no STATE would cover it, so a retry would load it again. Flushes are cut there, also
  those that are converted. If a stream has `overwrite`, nothing new is begun instead: half a table
  must not replace a whole one.
- A record or file that is found to be bad only in its conversion ends the input in the same way.
  Of several bad places the first one that is found is reported, or an earlier one found later.
- If a good end of the input comes after records that no STATE covers, these are loaded and
  reported. They are discarded instead if its plan says so, or if they may be the beginning of a
  segment that an earlier run has loaded: what ended there is the tap.
- A table is replaced only if the input shows that its stream is complete (`StreamEnd`). Else the
  stream fails at the end of the input, and the table stays.
- With `goes_on`, what fails in a stream ends that stream alone: its input from the bad line or from
  the failed flush on is discarded (with `overwrite`, all of it), and later STATEs have its bookmark
  as it was before. The run ends with one error about all streams that failed.
- After other failed work only the commits of other streams whose flushes are ready are begun, and
  only if a STATE that can still be emitted covers them (none if a stream has `overwrite`). After
  `Stopped` nothing new is begun. In both cases running work may end, and its STATE is emitted.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import islice
from typing import Any

from shared.errors import (
    MessageError,
    PartialRunError,
    RecordError,
    SettingsError,
    SingerSparkError,
    Where,
)
from target_spark.core import events as ev
from target_spark.core.batches import Batches, Limits
from target_spark.core.failures import OF_STREAM, ErrorBudget, Failures, Uncovered
from target_spark.core.flushes import (
    Activation,
    AuditStep,
    DeadLetterStep,
    Ending,
    Expected,
    KeyPass,
    PendingFlush,
    Recollection,
    Stream,
    StreamEnd,
    Swap,
)
from target_spark.core.load_plans import ConvertAgainError, InputFile, LoadPlan, StreamSchema
from target_spark.core.policies import CommitCost, FlushRule
from target_spark.core.reader import Lines
from target_spark.core.schedule import NO_RETRY, Conversion, RetryRule, Schedule, Turn
from target_spark.core.states import StateTracker

__all__ = ["Limits", "Pipeline"]

MOST_DEAD_BYTES = 16 * 1024 * 1024
_ALWAYS = (ev.WorkDone, ev.WorkFailed, ev.Stopped)


@dataclass
class _Rest:
    """The rest of a RECORD or BATCH event that has not been taken; it begins at `line`."""

    stream: Stream
    version: int | None
    line: int
    lines: Lines | None = None
    files: list[InputFile] = field(default_factory=list)


@dataclass(eq=False)
class Pipeline:
    """The state machine of one run.

    Args:
        run_id: Makes the tokens of this run's flushes unique.
        plan: Called with every new SCHEMA; returns how its stream is loaded, None if it is not. May
            reject the SCHEMA by raising.
        check_keys: Called with the SCHEMA at every KEYS message. May reject it by raising.
        retries: Decides which failed work is retried; nothing is by default.
        keep_dead_letters: Keep lines that are not messages as durable dead letters.
        cost: Warns if commits take most of the run.
        audited: Emit STATE only after an `Audit` at the end of the run.
        publishes: The `Audit` publishes the rows: all streams are ended after the last STATE, also
            those that become visible only at the end of the input.
        goes_on: Whether the other streams go on after a stream has failed.
        budget: Returns how many records of a stream may be rejected.
        strict_end: Whether records after the last STATE of the input fail the run once it has
            ended.
        creates_empty: Whether a stream without rows gets its table, once a STATE has followed its
            SCHEMA.
    """

    rule: FlushRule
    limits: Limits
    _: KW_ONLY
    run_id: str
    plan: Callable[[StreamSchema], LoadPlan | None] = lambda _: LoadPlan()
    check_keys: Callable[[StreamSchema], None] = lambda _: None
    retries: RetryRule = NO_RETRY
    keep_dead_letters: bool = False
    cost: CommitCost | None = None
    audited: bool = False
    publishes: bool = False
    goes_on: bool = False
    budget: Callable[[str], ErrorBudget] = lambda _: ErrorBudget()
    strict_end: bool = False
    creates_empty: bool = False
    stopping: bool = field(default=False, init=False)
    done: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._uncovered = Uncovered()
        self._failures = Failures(self.budget)
        self._dead = Stream(StreamSchema("dead letters", {}))
        self._dead_bytes = 0
        self._actions: list[ev.Action] = []
        self._act = self._actions.append
        self._streams: dict[str, Stream] = {}
        self._tracker = StateTracker(self._streams)
        self._audit = AuditStep(self._tracker.begin()) if self.audited else None
        self._schedule = Schedule(self.limits.parallel, self.limits.converts, self.retries)
        self._batches = Batches(
            self.rule,
            self.limits,
            tracker=self._tracker,
            schedule=self._schedule,
            act=self._act,
            run_id=self.run_id,
            cost=self.cost,
        )
        self._rest: _Rest | None = None
        self._now = 0.0
        self._ended = False
        self._is_ending = False
        self._handlers: dict[type, Callable[[Any], None]] = {
            ev.SchemaSeen: self._schema,
            ev.RecordsSeen: self._records,
            ev.BatchSeen: self._batch,
            ev.KeysSeen: self._keys,
            ev.StateSeen: self._state,
            ev.VersionSeen: self._version,
            ev.EndOfInput: lambda _: self._end(),
            ev.LineRejected: self._line_rejected,
            ev.Tick: lambda _: self._batches.close_due(self._now),
            ev.Idle: lambda _: self._batches.input_is_idle(self._now),
            ev.WorkDone: self._work_done,
            ev.WorkFailed: self._work_failed,
            ev.BadInput: lambda event: self._bad_input(event.error),
            ev.Stopped: lambda event: self._stop(event.error),
        }

    def handle(self, event: ev.Event, now: float) -> list[ev.Action]:
        """Handle one event.

        Args:
            event: What happened. A message is taken even if input is not wanted.
            now: Seconds since the epoch; never less than before.

        Returns:
            What to do, in this order. An error of the input or of work is returned in `CleanUp`.
        """
        self._now = now
        # 1. Take the event. Messages after the end of the input are late: its bad line has cut them
        #    off. Answers of work count until the last one.
        is_open = not self.stopping and (not self._ended or isinstance(event, ev.Tick))
        if is_open or isinstance(event, _ALWAYS):
            try:
                self._handlers[type(event)](event)
            except (MessageError, SettingsError) as error:
                self._bad_input(error)
        if not self.stopping:
            # 2. Go on with a message that had no room before.
            self._take_rest(bounded=True)
            self._batches.relieve_staging(now)
            if self._schedule.held:
                self._batches.release_held(now)
        # 3. Begin the work that this has made ready.
        self._actions.extend(self._schedule.begin(now))
        # 4. STATE comes last: it covers only what is durable by now. Batch files are deleted behind
        #    it, as a run that dies between the two must find them again.
        value = self._tracker.release()
        if value is not None:
            self._act(ev.EmitState(value, self._tracker.released, dict(self._tracker.held)))
            self._actions += self._uncovered.covered(self._tracker.released)
        self._finish_run()
        actions = self._actions.copy()
        self._actions.clear()
        return actions

    @property
    def wants_input(self) -> bool:
        """Return whether to read more input; False is back-pressure on stdin."""
        over = self._ended or self.stopping or self._rest is not None
        return not over and self._batches.have_room and self._dead_bytes < MOST_DEAD_BYTES

    @property
    def has_streams(self) -> bool:
        """Return whether a SCHEMA has been taken, so that records may follow."""
        return bool(self._streams)

    @property
    def _has_swaps(self) -> bool:
        return any(stream.swap is not None for stream in self._streams.values())

    @property
    def commits_running(self) -> bool:
        """Return whether running work will be durable when it ends."""
        return self._schedule.is_committing

    @property
    def waits_for(self) -> str:
        """Name what the run waits for: work, or input."""
        return ", ".join(self._schedule.running + ["input"] * self.wants_input) or "its end"

    def deadline(self) -> float:
        """Return when a `Tick` is due; `math.inf` for never."""
        if self.stopping:
            return math.inf
        return min(self._batches.deadline, self._schedule.deadline)

    # Messages

    def _schema(self, event: ev.SchemaSeen) -> None:
        self._take_rest()
        stream = self._streams.get(event.stream)
        if stream is None:
            self._first_schema(event)
            return
        stream.end.has_failed |= event.has_failed
        old = stream.schema
        # Taps repeat their SCHEMA, some before each page: only another one closes a batch.
        schema, keys, letters = event.schema, event.key_properties, event.are_letters
        is_old = (old.schema, old.key_properties, old.are_letters) == (schema, keys, letters)
        if stream.has_failed or is_old:
            return
        new = StreamSchema(event.stream, schema, keys, old.serial + 1, event.source, letters)
        # Planned before the batch is closed: if the maps refuse the new SCHEMA, the records before
        # it are loaded by the old one.
        plan = self._planned(stream, new, event.line)
        if not stream.has_failed:
            self._batches.close(stream, self._now)
            stream.schema, stream.plan = new, plan or LoadPlan()

    def _first_schema(self, event: ev.SchemaSeen) -> None:
        name, keys, are_letters = event.stream, event.key_properties, event.are_letters
        schema = StreamSchema(name, event.schema, keys, 0, event.source, are_letters)
        end = StreamEnd(event.line, has_failed=event.has_failed, has_bookmark=event.has_bookmark)
        stream = Stream(schema, end, first_line=event.line)
        plan = self._planned(stream, schema, event.line)
        stream.plan, stream.is_loaded = plan or LoadPlan(), plan is not None
        self._streams[event.stream] = stream
        if stream.plan.overwrites:
            stream.swap = self._tracker.begin()
        if stream.plan.recalls:
            stream.is_recalling = True
            self._schedule.add_step(stream, Recollection(schema))

    def _planned(self, stream: Stream, schema: StreamSchema, line: int) -> LoadPlan | None:
        try:
            return self.plan(schema)
        except (MessageError, SettingsError) as error:
            if isinstance(error, MessageError):
                error.where = replace(error.where, line=line)
            if not self.goes_on:
                raise
            self._fail_stream(stream, line, error)
            return None

    def _records(self, event: ev.RecordsSeen) -> None:
        self._take_rest()
        stream = self._stream_of(event.stream, event.first_line, "RECORD")
        if stream.has_failed or not stream.is_loaded:
            return
        stream.end.add_rows(event.first_line + event.lines - 1, event.version)
        self._uncovered.rows[event.stream] += event.lines
        lines = Lines(event.data, event.lines)
        self._rest = _Rest(stream, event.version, event.first_line, lines)
        self._take_rest(bounded=True)

    def _batch(self, event: ev.BatchSeen) -> None:
        self._take_rest()
        stream = self._stream_of(event.stream, event.line, "BATCH")
        if event.manifest and not stream.has_failed:
            stream.end.add_rows(event.line, event.version)
            self._uncovered.rows[event.stream] += 0  # How many is known once they are converted.
            files = [InputFile(url, event.encoding) for url in event.manifest]
            self._rest = _Rest(stream, event.version, event.line, files=files)
            self._take_rest(bounded=True)

    def _take_rest(self, *, bounded: bool = False) -> None:
        """Take the lines or files of the last message; if `bounded`, while there is room.

        One block may hold the lines of thousands of small batches.
        """
        batches, now = self._batches, self._now
        while (rest := self._rest) is not None:
            stream = rest.stream
            if bounded and (stream.is_recalling or not batches.have_room):
                return
            # Each takes the share of one batch.
            if rest.lines is not None:
                rest.line += batches.stage(stream, rest.lines, rest.line, rest.version, now)
            else:
                # Unbounded, the next message needs the place: the files must not wait for the size
                # of the first.
                stream.is_probing &= bounded
                taken = batches.add_files(stream, rest.files, rest.line, rest.version, now)
                if not taken:
                    return
                del rest.files[:taken]
            if not rest.files and not (rest.lines and rest.lines.count):
                self._rest = None

    def _state(self, event: ev.StateSeen) -> None:
        self._take_rest()
        self._uncovered.line = event.line
        self._uncovered.rows.clear()
        self._tracker.seen(event.value, event.line)
        self._batches.mark()

    def _version(self, event: ev.VersionSeen) -> None:
        self._take_rest()
        stream = self._stream_of(event.stream, event.line, "ACTIVATE_VERSION")
        if stream.has_failed:
            return
        stream.end.activate(event.line, event.version)
        self._batches.close(stream, self._now)
        step = Activation(stream.schema, event.version, self._tracker.begin(), event.line)
        self._batches.hold(stream, step, self._now)

    def _keys(self, event: ev.KeysSeen) -> None:
        self._take_rest()
        stream = self._stream_of(event.stream, event.line, "KEYS")
        if stream.has_failed or not stream.is_loaded:
            return
        try:
            self.check_keys(stream.schema)
        except SettingsError as error:
            if not self.goes_on:
                raise
            self._fail_stream(stream, event.line, error)
            return
        stream.has_keys = True
        if event.encoding is not None:
            self._batches.close(stream, self._now)
            files = tuple(InputFile(url, event.encoding) for url in event.manifest)
            step = self._batches.key_pass(stream, files, event.line, self._now)
            self._batches.hold(stream, step, self._now)

    def _end(self) -> None:
        self._take_rest()
        self._ended = self._batches.has_ended = True
        # Streams of which the input does not show that they may replace their tables fail before
        # batches are closed: half a table must not replace a whole one.
        for stream in self._streams.values():
            gap = stream.end.gap(self._uncovered.line) if stream.plan.replaces else None
            if gap is not None and not stream.has_failed:
                error = MessageError(
                    f"the input ended, but {gap}: the rows of its table stay",
                    hint="see whether the tap failed, and run it again; if this tap always ends "
                    "so, set 'overwrite_unfinished'",
                )
                self._fail_stream(stream, stream.first_line, error)
        cuts = list[tuple[Stream, int]]()
        if self._failures.error is None and self._uncovered.rows:
            cuts += self._uncovered.discard(self._streams, self._batches.begun_segment)
        for name, stream in self._streams.items():
            if not stream.has_flushes and (stream.swap is not None or self._is_empty(stream)):
                # Without rows: the table becomes empty, or is created.
                self._batches.opened(stream, None, self._now)
            self._batches.close(stream, self._now)
            if stream.swap is not None:
                self._schedule.add_step(stream, Swap(name, stream.swap))
        for stream, line in cuts:
            self._batches.discard_from(line, [stream])
        for stream in self._streams.values():
            if stream.rejected and stream.is_converted and not stream.has_failed:
                self._check_share(stream)

    def _check_share(self, stream: Stream) -> None:
        """Check the share of bad records of a stream whose last conversion came before the end."""
        error = self._failures.over_budget(stream, at_end=True)
        if error is not None and self._failures.error is None:
            # A commit that runs will be durable: its STATE must stay.
            self._schedule.withdraw([stream])
            steps = islice(stream.steps, int(stream.running), None)
            waiting = [step.line for step in steps if isinstance(step, PendingFlush)]
            self._discard_bad(stream, max(waiting, default=sys.maxsize), error)

    def _is_empty(self, stream: Stream) -> bool:
        """Return whether a STATE says that a stream was read, and had no rows."""
        is_read = self._uncovered.line > stream.first_line and not stream.has_keys
        has_failed = self._failures.error is not None or stream.has_failed or stream.end.has_failed
        return self.creates_empty and stream.is_loaded and is_read and not has_failed

    def _line_rejected(self, event: ev.LineRejected) -> None:
        self._take_rest()
        is_cut = not event.data.endswith(b"\n")
        stream = self._streams.get(event.stream or "")
        over = None if stream is None else self._failures.add_line(stream)
        if stream is None and is_cut and self._streams:
            # Cut before its stream is named: most likely that of the last rows.
            stream = max(self._streams.values(), key=lambda one: one.end.last_line)
        if stream is not None:
            stream.end.add_rejected(event.line, is_cut=is_cut)
        # No dead letter is written once the run stops.
        stops = over is not None and self._has_swaps and not self.goes_on
        if stops or not self.keep_dead_letters:
            self._act(ev.ReportLine(event))
        else:
            self._bury(event)
        if stream is not None and over is not None:
            self._discard_bad(stream, event.line, over)

    def _bury(self, event: ev.LineRejected) -> None:
        self._dead_bytes += len(event.data)
        steps = self._dead.steps
        # Lines join the step that waits, if any; one that runs has its lines.
        last = steps[-1] if len(steps) > self._dead.running else None
        if isinstance(last, DeadLetterStep):
            last.lines.append(event)
        else:
            self._schedule.add_step(self._dead, DeadLetterStep(self._tracker.begin(), [event]))

    def _stream_of(self, name: str, line: int, kind: str) -> Stream:
        stream = self._streams.get(name)
        if stream is None:
            raise MessageError(
                f"{kind} came before the SCHEMA of its stream",
                where=Where(stream=name, line=line),
                hint="the tap must send a SCHEMA message first",
            )
        return stream

    # Work

    def _work_done(self, event: ev.WorkDone) -> None:
        job = self._schedule.done(event.work)
        if isinstance(job, Conversion):
            self._batches.converted(job, event, self._now)
            if isinstance(job.piece, ev.FilesPiece):
                self._uncovered.add_converted(job, job.piece, event.rows + event.rejected)
            stream = job.stream
            if job.piece.line < stream.until:
                error = self._failures.add_converted(job, event, is_over=self._ended)
                # The budget counts what is rejected, which is known only now. After failed work
                # nothing is discarded any more, so that the flush is kept from its commit instead.
                if error is not None and self.stopping:
                    job.flush.unconverted += 1  # It is not committed.
                    self._begin_no_more(job)
                elif error is not None:
                    self._discard_bad(stream, job.piece.line, error)
            if not self.stopping:
                self._batches.close_if_full(job.flush, self._now)
        elif isinstance(job.step, Recollection):
            stream = job.stream
            if event.expected and stream.is_recalling and not stream.has_flushes:
                stream.expected = Expected(deque(event.expected))
            stream.is_recalling, stream.was_recalled = False, True
        else:
            self._step_done(job)
        self._schedule.offer(job.stream)

    def _step_done(self, job: Turn) -> None:
        step, consumed = job.step, self._uncovered.consumed
        if isinstance(step, Ending | Recollection):
            return
        # From here on a STATE may cover it; the release at the end of `handle` decides.
        self._tracker.durable(step.position)
        if isinstance(step, PendingFlush):
            self._batches.committed(step, job.began_at, self._now)
            if step.last_file is not None and not job.stream.has_failed:
                consumed.append((step.last_file, step.number, job.stream.schema.stream))
        elif isinstance(step, KeyPass) and not job.stream.has_failed:
            consumed.append((step.position, step.number, job.stream.schema.stream))
        elif isinstance(step, DeadLetterStep):
            self._dead_bytes -= sum(len(line.data) for line in step.lines)
            self._actions.extend(ev.ReportLine(line) for line in step.lines)

    def _work_failed(self, event: ev.WorkFailed) -> None:
        job = self._schedule.failed(event.work, event.error, self._now)
        if isinstance(job, ev.RetryLater):
            self._act(job)
            return
        if job.stream is not self._dead and isinstance(event.error, OF_STREAM):
            event.error.name_stream(job.stream.schema.stream)
        # 1. A commit that a record has made fail becomes a failed conversion, which can name the
        #    record's line.
        if isinstance(job, Turn) and not self.stopping:
            job = self._batches.reopen(job, event.error) or job
        # 2. What is converted anew, is discarded already, or ends its stream alone, does not end
        #    the run.
        is_again = isinstance(event.error, ConvertAgainError) and not job.stream.running
        if not self.stopping and (
            is_again or self._is_past(job, event.error) or self._is_apart(job, event)
        ):
            if job.stream.until < sys.maxsize:  # the rest of a commit that was running is cut, too
                self._batches.discard_from(job.stream.until, [job.stream])
            self._schedule.offer(job.stream)
            return
        # 3. All else does.
        self._end_early(event.error)
        self._begin_no_more(job)

    def _begin_no_more(self, failed: Conversion | Turn) -> None:
        """Begin only what the newest STATE that can still go out covers."""
        if self._has_swaps:
            self._schedule.stop()
        else:
            streams = (*self._streams.values(), self._dead)
            self._schedule.fail(self._schedule.coverable(failed, streams, self._tracker))

    def _is_past(self, job: Conversion | Turn, error: BaseException) -> bool:
        """Return whether a failed piece is already discarded, or is discarded now as bad."""
        if not isinstance(job, Conversion):
            return False
        stream = job.stream
        if job.piece.line >= stream.until:
            self._batches.discarded(job)
            self._failures.report_earlier(job, error)
        elif isinstance(error, MessageError | RecordError) and (
            self.goes_on or not self._has_swaps
        ):
            line = self._batches.retry_without_bad_input(job, error.where)
            if line is not None and line < stream.until:
                self._discard_bad(stream, line, error)
            else:
                self._failures.report_earlier(job, error)
        else:
            return False
        return True

    def _is_apart(self, job: Conversion | Turn, event: ev.WorkFailed) -> bool:
        """Return whether work has failed that ends its stream alone."""
        error, stream = event.error, job.stream
        if not self.goes_on or not isinstance(error, OF_STREAM) or stream is self._dead:
            return False
        if isinstance(job, Conversion):
            self._batches.discarded(job)
            self._fail_stream(stream, job.piece.line, error)
            return True
        self._schedule.drop(job)
        self._batches.dropped(job.step)
        step = job.step
        line = stream.first_line
        if isinstance(step, PendingFlush | Activation | KeyPass):
            line = step.line
        if isinstance(step, Swap):
            stream.swap = None
        if isinstance(step, Ending):
            self._report_failure(stream, error)
        else:
            self._fail_stream(stream, line, error)
        return True

    # The end

    def _discard_bad(self, stream: Stream, line: int, error: SingerSparkError) -> None:
        """Discard the input from the last STATE before a bad line on: of its stream, or all."""
        if self.goes_on:
            self._fail_stream(stream, line, error)
        elif self._has_swaps:
            self._stop(error)
        else:
            self._discard_from(line, error)

    def _fail_stream(self, stream: Stream, line: int, error: SingerSparkError) -> None:
        """Discard a stream from a line of the input on; the others go on."""
        self._report_failure(stream, error)
        name = stream.schema.stream
        if self._rest is not None and self._rest.stream is stream:
            self._rest = None
        stream.expected, stream.is_recalling = None, False
        self._batches.close(stream, self._now)
        # A whole STATE's worth is discarded, as the tap sends from that bookmark again: rows behind
        # it would come twice.
        line = self._batches.cut(line, [stream])
        if stream.swap is not None:
            # Half a table must not replace a whole one.
            line = stream.first_line
            if not any(isinstance(step, Swap) for step in stream.steps):
                self._batches.dropped(Swap(name, stream.swap))
            stream.swap = None
        self._batches.discard_from(line, [stream])
        self._uncovered.keep_files(name)
        self._tracker.hold(name, line, has_own=stream.end.has_bookmark)
        self._batches.states_changed(line, self._streams.values())

    def _report_failure(self, stream: Stream, error: SingerSparkError) -> None:
        if self._failures.add(stream, error):
            self._act(ev.ReportFailure(stream.schema.stream, error))

    def _discard_from(self, line: int, error: BaseException) -> None:
        """Discard the input from the last STATE before a bad line on."""
        self._failures.error, self._failures.bad_line = error, line
        # The end closes the open batches: what came before the bad line is loaded as at a good end.
        if not self._ended:
            self._end()
        line = self._batches.cut(line, self._streams.values())
        self._tracker.discard_from(line)
        self._batches.discard_from(line, self._streams.values())
        self._batches.states_changed(line, self._streams.values())

    def _bad_input(self, error: BaseException) -> None:
        if self._has_swaps:
            self._stop(error)
        else:
            self._discard_from(sys.maxsize, self._failures.error or error)

    def _stop(self, error: BaseException) -> None:
        self._end_early(error)
        self._schedule.stop()

    def _end_early(self, error: BaseException) -> None:
        """End the run early; report the first reason."""
        self._failures.error = self._failures.error or error
        self.stopping = True

    def _add_endings(self) -> bool:
        """Add steps to end the loaded streams, after the last STATE."""
        line = self._uncovered.line
        for name, stream in self._streams.items():
            # A stream that brought nothing has nothing to end; its swap has ended one that has it.
            is_over = stream.has_failed or (stream.swap is not None and not self.publishes)
            if not is_over and (stream.has_flushes or stream.was_recalled):
                # One from before its SCHEMA does not count: newer SDKs do not repeat an equal one.
                awaits = stream.end.awaits_state(line if line > stream.first_line else 0)
                self._schedule.add_step(stream, Ending(name, awaits))
        self._actions.extend(self._schedule.begin(self._now))
        return not self._schedule.is_idle

    def _finish_run(self) -> None:
        is_done = self._ended and self._schedule.is_idle
        over = not self.commits_running if self.stopping else is_done
        # 1. The audit, which the last STATE waits for.
        if over and not self.stopping and self._audit is not None and self._failures.error is None:
            self._schedule.add_step(self._dead, self._audit)
            self._actions.extend(self._schedule.begin(self._now))
            self._audit, over = None, False
        # 2. The ends of the streams, once that STATE is out. If it is withheld, a rerun needs what
        #    they remove.
        if over and not self.stopping and not self._is_ending and self._failures.error is None:
            self._is_ending = True
            over = self._tracker.withholds or not self._add_endings()
        # 3. The result, once.
        if over and not self.done:
            self.done = True
            if self._failures.error is None and not self._tracker.withholds:
                if self._uncovered.rows:
                    self._report_uncovered()
                ended = self._streams, self._failures.streams
                self._actions += self._uncovered.covered(math.inf, *ended)
            error = self._failures.error
            if error is None and self._failures.streams:
                failed = self._failures.streams.values()
                error = PartialRunError.of(failed, len(self._streams))
            self._act(ev.CleanUp(error, self._batches.left()))

    def _report_uncovered(self) -> None:
        """Report the rows after the last STATE of the input."""
        streams = {
            name: stream
            for name, stream in self._streams.items()
            if not (stream.has_failed or stream.plan.overwrites)
        }
        for report in self._uncovered.reports(streams):
            self._act(report)
            if self.strict_end:
                self._failures.streams[report.stream] = MessageError(
                    f"the input ended {report.extent} after its last STATE",
                    where=Where(stream=report.stream),
                    hint="see whether the tap failed, and run it again",
                )
