"""The guard of balance: no record is missing between a step and the next one."""

from __future__ import annotations

from dataclasses import replace

from target_spark.core.balance import check_commit, check_conversion
from target_spark.core.load_plans import LoadResult
from target_spark.load.guards.guard import CommitStep, ConvertStep, Guard


class BalanceGuard(Guard):
    """Compares the counts of each step, and raises BalanceError if they differ."""

    def after_conversion(self, step: ConvertStep, result: LoadResult) -> LoadResult:
        """Compare what was staged, read, written and rejected."""
        return check_conversion(step.batch, result)

    def after_commit(self, step: CommitStep) -> None:
        """Compare the rows of the parts with those of the commit."""
        counts = check_commit(step.batch, step.results, step.committed)
        step.loaded = replace(step.loaded, counts=counts)
