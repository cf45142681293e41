"""How many records of a stream may be rejected before the stream fails. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from shared.errors import RecordError, Where

LEAST_RECORDS = 1000
"""Records from which on the share of rejected ones counts before the end of the input."""


@dataclass(frozen=True)
class ErrorBudget:
    """Bounds for the rejected records of a stream in one run; None for no bound."""

    max_errors: int | None = None
    max_error_share: float | None = None

    def error(
        self, stream: str, records: int, rejected: int, *, at_end: bool
    ) -> RecordError | None:
        """Return the error of a stream that has exceeded its budget, or None.

        Args:
            stream: Its name.
            records: Its records so far, rejected ones included.
            rejected: How many of them were rejected.
            at_end: Whether they are all records of the stream.
        """
        if self.max_errors is not None and rejected > self.max_errors:
            setting, bound = "max_errors", str(self.max_errors)
        elif self._is_share_exceeded(records, rejected, at_end):
            setting, bound = "max_error_share", f"{self.max_error_share:g}"
        else:
            return None
        return RecordError(
            f"{rejected} of {records} records were rejected, but `{setting}` is {bound}",
            where=Where(stream=stream),
            hint="the reasons are in the log and in the dead letters",
        )

    def _is_share_exceeded(self, records: int, rejected: int, at_end: bool) -> bool:
        share = self.max_error_share
        if share is None or not (at_end or records >= LEAST_RECORDS):
            return False
        return rejected > share * records
