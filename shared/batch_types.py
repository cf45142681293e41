"""What checked batch settings are: plain data with every value in one unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Literal

from shared.settings_check import InvalidSettingsError, place

KeyPath = tuple[str | int, ...]
Side = Literal["tap", "target"]


@dataclass(frozen=True)
class BatchConfig:
    """The `batch_config` block.

    Attributes:
        format: Format of the batch files.
        compression: Their compression; one that `format` has.
        root: Folder or URL of the batch files; None in a target that only reads.
        prefix: Put before every file name.
        options: Passed to fsspec; may hold secrets, so it is left out of `repr`.
        batch_size: Exact rows of a file; None for a bound by bytes.
        include_streams: Patterns of the streams sent as BATCH; empty for all.
        exclude_streams: Patterns of the streams never sent as BATCH.
        allowed_roots: Where files of a manifest may lie; None for anywhere.
        cleanup: Delete consumed files after their commit.
    """

    format: str = "jsonl"
    compression: str = "gzip"
    root: str | None = None
    prefix: str = ""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    batch_size: int | None = None
    include_streams: tuple[str, ...] = ()
    exclude_streams: tuple[str, ...] = ()
    allowed_roots: tuple[str, ...] | None = None
    cleanup: bool = False

    def covers(self, stream: str) -> bool:
        """Tell whether a stream goes as BATCH; what is excluded stays so even if included."""
        if any(fnmatchcase(stream, pattern) for pattern in self.exclude_streams):
            return False
        included = (fnmatchcase(stream, pattern) for pattern in self.include_streams)
        return not self.include_streams or any(included)


@dataclass(frozen=True)
class FixedSize:
    """Flush at a number of rows, or when the first of them has waited long enough."""

    name: ClassVar[str] = "fixed_size"
    size: int
    timeout_seconds: float


@dataclass(frozen=True)
class TimeWindow:
    """Flush what came within a time."""

    name: ClassVar[str] = "time_window"
    window_seconds: float


@dataclass(frozen=True)
class MemoryBased:
    """Flush at a number of bytes."""

    name: ClassVar[str] = "memory_based"
    memory_bytes: int


@dataclass(frozen=True)
class AdaptiveSize:
    """Flush at a number of rows that follows the measured time of a commit."""

    name: ClassVar[str] = "adaptive_size"
    min_size: int
    max_size: int
    target_latency_seconds: float


@dataclass(frozen=True)
class LowLatency:
    """Flush as soon as possible."""

    name: ClassVar[str] = "low_latency"
    max_size: int
    max_wait_seconds: float
    eager: bool


@dataclass(frozen=True)
class MegaBatch:
    """Flush large numbers of rows, several flushes converted at the same time."""

    name: ClassVar[str] = "mega_batch"
    size: int
    parallel: bool
    reuse_buffer: bool


Strategy = FixedSize | TimeWindow | MemoryBased | AdaptiveSize | LowLatency | MegaBatch
STRATEGIES: dict[str, type[Strategy]] = {
    kind.name: kind
    for kind in (FixedSize, TimeWindow, MemoryBased, AdaptiveSize, LowLatency, MegaBatch)
}

POLICIES: tuple[str, ...] = ("FailBatch", "LogAndContinue", "SendToDLQ", "RetryWithBackoff")


@dataclass(frozen=True)
class FailurePolicy:
    """The `failure` block.

    Attributes:
        policy: One of `POLICIES`.
        max_retries: Commits tried again after the first; 0 where the policy has no retries.
        backoff_seconds: Pause before the first retry; 0 where the policy has no retries.
        dead_letter_path: Folder or URL of the dead letters; None where the policy has none.
    """

    policy: str = "FailBatch"
    max_retries: int = 0
    backoff_seconds: float = 0.0
    dead_letter_path: str | None = None


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        path: Keys from the top of the settings; a dotted spelling is one key.
        message: What is wrong, in words that name the value where it matters.
        value: What was given, as text without secrets; None where nothing was, or it is hidden.
        allowed: What may stand there instead.
        nearest: The known key or value it may be meant for.
    """

    path: KeyPath
    message: str
    value: str | None = None
    allowed: str | None = None
    nearest: str | None = None

    @property
    def text(self) -> str:
        """Everything but the path, in one line."""
        text = f"{self.message}; allowed: {self.allowed}" if self.allowed else self.message
        text += f"; did you mean {self.nearest!r}?" if self.nearest else ""
        return " ".join(text.split())

    def __str__(self) -> str:
        return f"{place(self.path)}: {self.text}"


@dataclass(frozen=True)
class Validated:
    """The answer of `validate`; where there are problems, only those (and warnings) count.

    Attributes:
        side: The program it was read for.
        batch_config: None where the block is not given.
        strategy: None where the `batch` block is not given, or `enable` is false.
        failure: The default policy where the block is not given.
        problems: All of them.
        warnings: Settings that are allowed and hardly meant.
    """

    side: Side | None = None
    batch_config: BatchConfig | None = None
    strategy: Strategy | None = None
    failure: FailurePolicy = FailurePolicy()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()

    def check(self) -> Validated:
        """Return itself.

        Raises:
            InvalidSettingsError: There are problems; a `SettingsError` whose `problems` hold one
                line for each.
        """
        if self.problems:
            raise InvalidSettingsError(map(str, self.problems))
        return self
