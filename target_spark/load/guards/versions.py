"""The guard of table versions: ACTIVATE_VERSION removes or marks the rows of older ones."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from target_spark.config import stream_settings
from target_spark.core.load_plans import TableRequest
from target_spark.load.guards.guard import CommitStep, EndStep, Guard
from target_spark.run_settings import TargetConfig

if TYPE_CHECKING:
    from target_spark.tables.version_edit import VersionEdit

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class VersionGuard(Guard):
    """Knows the versions of the rows of a run."""

    config: TargetConfig
    is_supported: bool
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _has_warned: bool = field(default=False, init=False)
    _loaded: dict[str, set[int]] = field(default_factory=dict, init=False)
    _emptied: set[str] = field(default_factory=set, init=False)

    def after_commit(self, step: CommitStep) -> None:
        """Note the version of rows."""
        if step.batch.version is not None and step.rows:
            with self._lock:
                self._loaded.setdefault(step.flush.stream, set()).add(step.batch.version)

    def before_end(self, step: EndStep) -> None:
        """Tell that rows of an empty stream stay."""
        if step.stream in self._emptied and step.stream not in self._loaded:
            _log.info(
                "stream '%s': no rows came, and those of its table stay, if any "
                "(`hard_delete: true` removes them)",
                step.stream,
            )

    def are_ignored(self, stream: str) -> bool:
        """Return whether table versions of a stream are ignored; warn about it once in a run."""
        if not self.config.add_record_metadata:
            why = "'add_record_metadata' is false"
        elif stream_settings(self.config, stream).method == "history":
            why = "'history' leaves unchanged rows at the version of the table that they came with"
        elif not self.is_supported:
            why = f"not supported by format '{self.config.format}'"
        else:
            return False
        with self._lock:
            has_warned, self._has_warned = self._has_warned, True
        if not has_warned:
            _log.warning("ignoring ACTIVATE_VERSION: %s", why)
        return True

    def edit(self, request: TableRequest, version: int) -> VersionEdit:
        """Return what the activation of a version does to the rows of a table."""
        from target_spark.tables.version_edit import VersionEdit  # noqa: PLC0415

        has_rows = version in self._loaded.get(request.stream, ())
        if request.replaces_source and not has_rows:
            self._emptied.add(request.stream)
        return VersionEdit(version, request.hard_delete, time.time(), has_rows)
