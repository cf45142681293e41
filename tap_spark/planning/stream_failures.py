"""Streams that fail while the others are read (`on_stream_failure: continue`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from shared.errors import PartialRunError, RecordError, SingerSparkError, SourceError

OF_STREAM = (SourceError, RecordError)
"""Failures of one stream; all others concern the whole run."""

_logger = logging.getLogger(__name__)

Report = Callable[[str, SingerSparkError], None]
"""Takes a stream that failed, and its error."""


@dataclass(frozen=True)
class StreamFailures:
    """The first error of each stream that failed. Safe for several threads."""

    errors: dict[str, SingerSparkError] = field(default_factory=dict)

    def report(self, stream: str, error: SingerSparkError) -> None:
        """Log the error of a stream, and keep it."""
        if error.where.stream is None:
            error.where = replace(error.where, stream=stream)
        _logger.error("%s; going on with the other streams", error)
        self.errors.setdefault(stream, error)

    def raise_if_any(self, planned: Iterable[str]) -> None:
        """Raise one error about every stream that failed.

        Args:
            planned: The streams whose planning did not fail.

        Raises:
            PartialRunError: A stream failed.
        """
        if self.errors:
            every = {*planned, *self.errors}
            reasons = "; ".join(map(str, self.errors.values()))
            raise PartialRunError(f"{len(self.errors)} of {len(every)} streams failed: {reasons}")
