"""The guard of balance: no record is missing between a step and the next one."""

from __future__ import annotations

from dataclasses import replace

from target_spark.core.balance import Counts, check_commit, check_conversion, merged_rows
from target_spark.core.load_plans import LoadResult
from target_spark.load.guards.guard import CommitStep, ConvertStep, EndStep, Guard


class BalanceGuard(Guard):
    """Compares the counts of each step, and raises BalanceError if they differ."""

    def after_conversion(self, step: ConvertStep, result: LoadResult) -> LoadResult:
        """Compare what was staged, read, written and rejected."""
        return check_conversion(step.batch, result)

    def after_commit(self, step: CommitStep) -> None:
        """Compare the rows of the parts with those of the commit."""
        counts = check_commit(step.batch, step.results, step.committed)
        step.loaded = replace(step.loaded, counts=counts)

    def after_end(self, step: EndStep) -> None:
        """Compare the rows of flushes that were held with those of their commit."""
        older = step.left_out
        counts = Counts(committed=-older, merged=older, unconfirmed=-older)
        if step.committed is not None and step.committed.rows is not None:
            merged = merged_rows(step.stream, step.written, step.committed)
            counts += Counts(committed=-merged, merged=merged, unconfirmed=-step.written)
        step.loaded = replace(step.loaded, counts=counts)
