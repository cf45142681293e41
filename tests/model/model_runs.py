"""A run of the target in one thread: everything real but threads and time, and it can be cut."""

from __future__ import annotations

import json
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from model_source import VERSION, Source
from model_tables import Row, TableModel

from shared.engine.engine import Engine
from shared.errors import SettingsError
from target_spark.core import events as ev
from target_spark.core.load_plans import LoadPlan, StreamSchema
from target_spark.core.pipeline import Limits, Pipeline
from target_spark.core.policies import SizeAndAge
from target_spark.core.reader import Reader
from target_spark.load.guards.leases import LeaseGuard
from target_spark.load.loader import Loader
from target_spark.receive.action_executor import ActionExecutor
from target_spark.receive.staging import Staging
from target_spark.run_settings import TargetConfig

AGE = 60.0
Task = Callable[[], ev.WorkDone | None]


class _Workers:
    """Work waits until a test does it."""

    def __init__(self) -> None:
        self.waiting: dict[int, Task] = {}

    def start(self, work: int, task: Task) -> None:
        self.waiting[work] = task

    def close(self) -> None:
        self.waiting.clear()


class _Output:
    def __init__(self) -> None:
        self.states: list[int] = []

    def write(self, data: bytes) -> None:
        self.states.append(json.loads(data)["at"])


class Run:
    """One process of the target, until its input ends or it is killed.

    Tables of the model change at the moment at which those of the destination must.

    Args:
        config: The settings.
        spark: Gives the session.
        models: By stream.
        source: Knows what the files of BATCH messages hold.
        folder: For staged files.
    """

    def __init__(
        self,
        config: TargetConfig,
        spark: Callable[[], Any],
        models: dict[str, TableModel],
        source: Source,
        folder: Path,
    ) -> None:
        self.models = models
        self._source = source
        engine = Engine.of(spark)
        self.loader = Loader(config, engine)
        self.output = _Output()
        self.now = time.time()
        self.error: BaseException | None = None
        self.is_broken = False
        self._workers = _Workers()
        self._works: dict[int, Any] = {}
        self._staged: dict[int, list[Row]] = defaultdict(list)
        self._pieces: dict[int, dict[int, list[Row]]] = defaultdict(dict)
        self._reader = Reader()
        self._staging = Staging(str(folder)).__enter__()
        self._repeats = False
        self._may_fail = False
        self._commit = self.loader._destination.commit
        self.loader._destination.commit = self._committed  # type: ignore[method-assign]
        self._pipeline = Pipeline(
            SizeAndAge(rows=config.batch_size_rows, seconds=AGE),
            Limits(parallel=4, probe=config.batch_size_rows is not None),
            run_id=uuid.uuid4().hex,
            plan=self._planned,
        )
        self._executor = ActionExecutor(
            loader=self.loader,
            engine=engine,
            staging=self._staging,
            workers=self._workers,  # type: ignore[arg-type]
            output=self.output,  # type: ignore[arg-type]
        )

    def _planned(self, stream: StreamSchema) -> LoadPlan:
        plan = self.loader.plan(stream)
        assert plan is not None
        return replace(plan, replaces=False, discards=False)

    @property
    def work(self) -> list[int]:
        """Return the work that may be done next; pieces of one stream are converted in order."""
        first: dict[str, int] = {}
        for work in sorted(self._workers.waiting):
            action = self._works[work]
            if isinstance(action, ev.Convert):
                first.setdefault(action.header.stream.stream, work)
        return [
            work
            for work in sorted(self._workers.waiting)
            if not isinstance(self._works[work], ev.Convert) or work in first.values()
        ]

    def commits(self, work: int) -> bool:
        """Return whether the table changes by it."""
        return isinstance(self._works[work], ev.Commit | ev.Activate | ev.Finish)

    def feed(self, lines: list[bytes]) -> None:
        for event in self._reader.feed(b"".join(lines)):
            self.hear(event)

    def flush(self) -> None:
        """Let time pass until every open batch is closed."""
        self.now += AGE
        self.hear(ev.Tick())

    def end(self) -> None:
        self.hear(ev.EndOfInput())

    def hear(self, event: ev.Event) -> None:
        for action in self._pipeline.handle(event, self.now):
            self._note(action)
            self._executor.execute(action)
            if isinstance(action, ev.Recall):
                # The input waits for it.
                self._works[action.work] = action
                self.do(action.work)

    def do(self, work: int, *, twice: bool = False, heard: bool = True) -> None:
        """Do the work.

        Args:
            work: One of `work`.
            twice: A commit is tried again although it has succeeded.
            heard: Otherwise the run ends before it learns that the work was done.
        """
        task = self._workers.waiting.pop(work)
        self._repeats = twice
        self.is_broken = True
        try:
            answer = task() or ev.WorkDone(work)
        except SettingsError as error:
            if not self._may_fail:
                raise
            self._works.pop(work)
            self.hear(ev.WorkFailed(work, error))
        else:
            self._model(self._works.pop(work))
            if heard:
                self.hear(answer)
        self.is_broken = False

    def finish(self) -> None:
        """End the input, and do all remaining work."""
        self._finish()
        assert self.error is None

    def refuse(self, lines: list[bytes]) -> str:
        """Feed the last messages of a run, which must fail because of them; return the error."""
        self._may_fail = True
        self.feed(lines)
        self._finish()
        assert isinstance(self.error, SettingsError)
        return str(self.error)

    def _finish(self) -> None:
        self.end()
        while self.work and not self._pipeline.done:
            self.do(self.work[0])
        assert self._pipeline.done

    def leave(self) -> None:
        """Release what the system releases for a dead process: own files, locks, connections."""
        for model in self.models.values():
            model.forget()
        self._staging.__exit__()
        if self.loader._config.format != "jdbc":
            self.loader.close()
        for guard in self.loader._guards:
            if isinstance(guard, LeaseGuard):
                guard.leases._over.set()
        leases = getattr(getattr(self.loader._destination, "_leases", None), "_connection", None)
        if leases is not None:
            leases.close()
        resources = getattr(self.loader._destination, "_resources", None)
        connection = getattr(resources, "_connection", None)
        if connection is not None:
            connection.close()

    def _committed(self, flush: Any) -> None:
        self._commit(flush)
        if self._repeats:
            self._commit(flush)

    def _note(self, action: ev.Action) -> None:
        if isinstance(action, ev.Stage):
            for line in bytes(action.data).splitlines():
                message = json.loads(line)
                row = {**message["record"], VERSION: message.get("version")}
                self._staged[action.file].append(row)
        elif isinstance(action, ev.Convert):
            piece = action.piece
            if isinstance(piece, ev.StagedPiece):
                rows = self._staged[piece.file]
            else:
                rows = [row for file in piece.files for row in self._source.files[file.url]]
            self._pieces[action.flush][piece.index] = rows
        elif isinstance(action, ev.CleanUp):
            self.error = action.error
        if isinstance(
            action, ev.Convert | ev.Commit | ev.Activate | ev.Finish | ev.WriteDeadLetters
        ):
            self._works[action.work] = action

    def _model(self, action: Any) -> None:
        if isinstance(action, ev.Commit):
            schema = action.header.stream
            pieces = self._pieces.pop(action.flush, {})
            rows = [row for number in sorted(pieces) for row in pieces[number]]
            self.models[schema.stream].commit(schema.schema["properties"], rows)
        elif isinstance(action, ev.Activate):
            self.models[action.stream.stream].activate(action.version)
        elif isinstance(action, ev.Finish):
            self.models[action.stream].finish()
