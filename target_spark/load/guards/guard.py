"""The contract of guards, and the steps of a load that they see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from target_spark.core.balance import Committed, Counts, Loaded
from target_spark.core.load_plans import Batch, LoadResult, Segment, StreamSchema, TableRequest
from target_spark.destinations.destination import Flush


@dataclass
class ConvertStep:
    """The conversion of one piece of a batch.

    Attributes:
        batch: The batch with the files of the piece.
        result: What to report instead of a conversion; None to convert.
        segments: Segments of the piece, by which a later run can detect replays.
    """

    batch: Batch
    result: LoadResult | None = None
    segments: tuple[Segment, ...] = ()


@dataclass
class CommitStep:
    """The commit of one batch.

    Attributes:
        batch: The batch with all its files.
        flush: What the destination commits.
        is_held: It is committed at the end of the stream instead.
        committed: What the commit tells; None for nothing.
        loaded: What its table has got, as far as guards have looked.
    """

    batch: Batch
    results: Sequence[LoadResult]
    flush: Flush
    is_held: bool = False
    committed: Committed | None = None
    loaded: Loaded = field(default_factory=lambda: Loaded(Counts()))

    @property
    def rows(self) -> int:
        """Return the number of rows that were written for it."""
        return sum(result.rows for result in self.results)


@dataclass
class EndStep:
    """The end of a stream whose input has ended well.

    Attributes:
        awaits_state: Whether a STATE was to be expected: rows without one will come again.
        request: The request that rows were last written for; None if there were none.
        flushes: Flushes that were held, and are committed now.
        committed: What the destination tells at the end; None for nothing.
        loaded: What has changed since the last commit.
    """

    stream: str
    awaits_state: bool
    request: TableRequest | None
    flushes: Sequence[Flush] = ()
    committed: Committed | None = None
    loaded: Loaded = field(default_factory=lambda: Loaded(Counts()))


class Guard:
    """Looks at the steps of a load, at these moments; ends them by raising.

    By default it does nothing. Methods may be called from any thread. They may change the step that
    they get; the guards after them in the list see that.
    """

    def before_stream(self, stream: StreamSchema, source: str) -> tuple[int, ...]:  # noqa: ARG002
        """Look at a stream before its first record.

        Args:
            source: Name of the stream in the tap.

        Returns:
            Lines of each segment that may be replayed, in order; 0 for a batch file.
        """
        return ()

    def before_change(self, stream: str) -> None:
        """Look at a stream before anything in its table changes."""

    def before_conversion(self, step: ConvertStep) -> None:
        """Look at a piece; a `result` replaces its conversion."""

    def after_conversion(self, step: ConvertStep, result: LoadResult) -> LoadResult:  # noqa: ARG002
        """Look at the result of a piece, and return it; its parts are not visible yet."""
        return result

    def before_commit(self, step: CommitStep) -> None:
        """Look at a flush before it becomes durable."""

    def after_commit(self, step: CommitStep) -> None:
        """Look at a flush that is durable, or held."""

    def before_state(self, position: int, state: bytes, held: Mapping[str, int]) -> None:
        """Look at a STATE before it is emitted; see `Loader.cover`."""

    def before_end(self, step: EndStep) -> None:
        """Look at a stream before its held rows become visible."""

    def after_end(self, step: EndStep) -> None:
        """Look at a stream whose rows are all visible."""

    def before_publish(self) -> Sequence[str]:
        """Return what is wrong with all rows of the run, one line each, before they are visible."""
        return ()

    def check(self) -> None:
        """Look at the whole run once its input has ended well."""

    def close(self) -> None:
        """End the run, successfully or not."""


MOMENTS = {name: nothing for name, nothing in vars(Guard).items() if not name.startswith("_")}
"""What a guard does by default at each moment: nothing."""
