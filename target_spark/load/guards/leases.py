"""The guard of leases: one run at a time loads a stream into a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from target_spark.config import stream_settings
from target_spark.convert.stream_tables import StreamTables
from target_spark.core.load_plans import StreamSchema
from target_spark.destinations.destination import Destination
from target_spark.destinations.leases import RunLeases
from target_spark.load.guards.guard import ConvertStep, Guard
from target_spark.run_settings import TargetConfig


@dataclass(eq=False)
class LeaseGuard(Guard):
    """Takes the lease of each stream, and makes sure before each change that the run has it."""

    config: TargetConfig
    leases: RunLeases
    destination: Destination
    tables: StreamTables

    def before_stream(self, stream: StreamSchema, source: str) -> tuple[int, ...]:  # noqa: ARG002
        """Take the lease of a stream; raise AlreadyRunningError if another run has it."""
        request = self.tables.request(stream)
        shown = self.destination.table(request.name).shown
        self.leases.take(stream.stream, shown, lambda: self.destination.lease(request))
        return ()

    def before_conversion(self, step: ConvertStep) -> None:
        """Take the lease of a stream that has a new table."""
        self.before_stream(step.batch.stream, step.batch.source)

    def before_change(self, stream: str) -> None:
        """Raise AlreadyRunningError if another run has taken over the table."""
        shown = self.destination.table(stream_settings(self.config, stream).name).shown
        self.leases.check(stream, shown)

    def before_publish(self) -> Sequence[str]:
        """Raise AlreadyRunningError if another run has taken over a table."""
        self.leases.check_all()
        return ()

    def close(self) -> None:
        """Release all leases."""
        self.leases.close()
