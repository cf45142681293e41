"""The guard of write-audit-publish: what expectations forbid is not in any table to publish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from target_spark.config import expectations
from target_spark.destinations.operations import Operations
from target_spark.load.guards.guard import Guard
from target_spark.run_settings import TargetConfig


@dataclass(eq=False)
class AuditGuard(Guard):
    """Lets operations look for rows that the expectations of their stream forbid.

    Args:
        operations: Those of the destination, which holds the rows back.
    """

    config: TargetConfig
    operations: Operations

    def before_publish(self) -> Sequence[str]:
        """Return which conditions rows of tables meet that none may meet."""
        return self.operations.audit(self._conditions)

    def _conditions(self, stream: str) -> Sequence[str]:
        expected = expectations(self.config, stream)
        return () if expected is None else expected.no_rows_where
