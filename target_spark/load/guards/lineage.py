"""The guard of lineage: which tables and columns a run has changed, told to logs and summaries."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from shared.singer.datasets import Dataset
from shared.singer.logs import IN_SUMMARY
from shared.singer.run_report import CREATED
from target_spark.config import stream_settings
from target_spark.core.load_plans import TableRequest
from target_spark.destinations.destination import Destination
from target_spark.load.guards.guard import CommitStep, EndStep, Guard
from target_spark.run_settings import TargetConfig

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class LineageGuard(Guard):
    """Tells what each flush has done to its table.

    Args:
        destination: Names its tables; the loader lets it call `changed`.
    """

    config: TargetConfig
    destination: Destination
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _changes: dict[str, list[str]] = field(default_factory=dict, init=False)

    def after_commit(self, step: CommitStep) -> None:
        """Add the changes of the table, and its name in lineage."""
        step.loaded = replace(
            step.loaded,
            changes=tuple(self._changes.pop(step.flush.stream, ())),
            datasets=partial(self._datasets, step.flush.request),
        )

    def after_end(self, step: EndStep) -> None:
        """Add the changes of a table whose rows were held."""
        step.loaded = replace(step.loaded, changes=tuple(self._changes.pop(step.stream, ())))

    def changed(self, stream: str, lines: Sequence[str]) -> None:
        """Log and keep what a commit has done to the columns of a table; see `Destination`."""
        with self._lock:
            logged = self._changes.setdefault(stream, [])
            new = [line for line in lines if line not in logged]
            logged += new
        shown = self.destination.table(stream_settings(self.config, stream).name).shown
        for line in new:
            extra = IN_SUMMARY if line.startswith(CREATED) else None
            _log.info("stream '%s', %s: %s", stream, shown, line, extra=extra)

    def _datasets(self, request: TableRequest) -> list[Dataset]:
        default = self.config.format, self.destination.table(request.name).shown
        place, name = self.destination.dataset(request.name) or default
        fields = tuple((f.name, f.dataType.simpleString()) for f in request.struct.fields)
        return [Dataset(name, place, fields, request.stream)]
