"""The batch settings: `batch_config`, the `batch` strategies and the `failure` policies.

Each setting is declared once, as a field of the dataclass that holds its value. Durations are in
seconds there, sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from shared.encodings.encoding_format import added_text, batch_formats
from shared.errors import InvalidSettingsError
from shared.settings.checking import Location, Problem
from shared.settings.kinds import (
    DURATION,
    FLAG,
    LOCATION,
    OPTIONS,
    PREFIX,
    SIZE,
    WORD,
    Field,
    Side,
    choice,
    count,
    fields_of,
    listing,
    setting,
)

COMPRESSIONS = {name: form.compressions for name, form in batch_formats().items()}
"""Compressions of each format of batch files."""

DEFAULT_COMPRESSION = {name: str(form.batch_compression) for name, form in batch_formats().items()}
"""Compression of a format if the settings name none."""

POLICIES: tuple[str, ...] = ("FailBatch", "LogAndContinue", "SendToDLQ", "RetryWithBackoff")
ORDERED_POLICIES = ("SendToDLQ", "RetryWithBackoff")
"""Policies under which the batches of a stream are loaded one after the other."""

MOST_RETRIES = 1000

LEVELS = {name: form.levels for name, form in batch_formats().items()}
"""Highest level of each compression that has levels, by format."""

_PATTERNS = listing(WORD, "a list of texts that are not empty, such as ['public-*']")
_ROOTS = listing(LOCATION, "a list of at least one path or URL", shortest=1)
_ALL_COMPRESSIONS = dict.fromkeys(name for names in COMPRESSIONS.values() for name in names)


@dataclass(frozen=True)
class BatchConfig:
    """The `batch_config` block."""

    format: str = setting(
        choice(COMPRESSIONS),
        f"Format of the batch files.{added_text()}",
        default="jsonl",
        key="encoding.format",
    )
    compression: str = setting(
        choice(_ALL_COMPRESSIONS),
        "Compression of the batch files; the choices depend on the format.",
        unset="gzip",
        key="encoding.compression",
    )
    root: str | None = setting(
        LOCATION, "Folder or URL of the batch files. Required in tap-spark.", key="storage.root"
    )
    prefix: str = setting(
        PREFIX, "Prefix of the name of every file.", default="", key="storage.prefix"
    )
    options: Mapping[str, Any] = setting(
        OPTIONS,
        "Passed to fsspec, such as `endpoint_url` or `key`; never shown.",
        default={},
        key="storage.options",
        repr=False,
    )
    compression_level: int | None = setting(
        count(max(highest for levels in LEVELS.values() for highest in levels.values())),
        "How hard tap-spark compresses; the choices depend on format and compression.",
        key="encoding.compression_level",
    )
    batch_size: int | None = setting(
        count(),
        "Exact rows of a file; the last one holds the rest. Bounded by bytes if not set.",
    )
    include_streams: tuple[str, ...] = setting(
        _PATTERNS,
        "Patterns (`*`, `?`, `[...]`) of the streams sent as BATCH; all if the list is empty.",
        default=[],
    )
    exclude_streams: tuple[str, ...] = setting(
        _PATTERNS,
        "Patterns of the streams sent as RECORD; overrides `include_streams`.",
        default=[],
    )
    allowed_roots: tuple[str, ...] | None = setting(
        _ROOTS,
        "The only folders and URLs that files of a manifest may be in; anywhere if not set.",
        side="target",
    )
    cleanup: bool = setting(
        FLAG,
        "Delete consumed batch files after their commit, if they are in `allowed_roots` or "
        "`storage.root`.",
        default=False,
        side="target",
    )

    def covers(self, stream: str) -> bool:
        """Tell whether a stream goes as BATCH; an excluded stream does not even if included."""
        if any(fnmatchcase(stream, pattern) for pattern in self.exclude_streams):
            return False
        included = (fnmatchcase(stream, pattern) for pattern in self.include_streams)
        return not self.include_streams or any(included)


@dataclass(frozen=True)
class FixedSize:
    """Flush at a number of rows, or when the first of them has waited long enough."""

    name: ClassVar[str] = "fixed_size"
    size: int = setting(count(), "Rows of a flush.", default=100)
    timeout_seconds: float = setting(
        DURATION, "Longest wait of a row.", default="1s", key="timeout"
    )


@dataclass(frozen=True)
class TimeWindow:
    """Flush what came within a time."""

    name: ClassVar[str] = "time_window"
    window_seconds: float = setting(DURATION, "Time between flushes.", default="1s", key="window")


@dataclass(frozen=True)
class MemoryBased:
    """Flush at a number of bytes."""

    name: ClassVar[str] = "memory_based"
    memory_bytes: int = setting(SIZE, "Bytes of a flush.", default="1 MiB", key="memory_size")


@dataclass(frozen=True)
class AdaptiveSize:
    """Flush at a number of rows that follows the measured time of a commit."""

    name: ClassVar[str] = "adaptive_size"
    min_size: int = setting(count(), "Fewest rows of a flush.", default=10)
    max_size: int = setting(
        count(), "Most rows of a flush.", default=1000, dotted="batch.adaptive_max_size"
    )
    target_latency_seconds: float = setting(
        DURATION,
        "Time that a commit should take; the number of rows follows from it.",
        default="100ms",
        key="target_latency",
    )


@dataclass(frozen=True)
class LowLatency:
    """Flush as soon as possible."""

    name: ClassVar[str] = "low_latency"
    max_size: int = setting(
        count(), "Most rows of a flush.", default=1, dotted="batch.low_latency_max_size"
    )
    max_wait_seconds: float = setting(
        DURATION,
        "Longest wait of a row.",
        default="1ms",
        key="max_wait",
        dotted="batch.low_latency_wait",
    )
    eager: bool = setting(
        FLAG,
        "Flush as soon as no more input is waiting.",
        default=True,
        dotted="batch.eager_processing",
    )


@dataclass(frozen=True)
class MegaBatch:
    """Flush large numbers of rows, several flushes converted at the same time."""

    name: ClassVar[str] = "mega_batch"
    size: int = setting(count(), "Rows of a flush.", default=50000, dotted="batch.mega_batch_size")
    parallel: bool = setting(
        FLAG,
        "Convert several flushes at the same time; false by default under "
        + " and ".join(f"`{policy}`" for policy in ORDERED_POLICIES)
        + ".",
        default=True,
    )
    reuse_buffer: bool = setting(
        FLAG, "Accepted and ignored: a flush has no buffer of its own.", default=True
    )


Strategy = FixedSize | TimeWindow | MemoryBased | AdaptiveSize | LowLatency | MegaBatch
STRATEGIES: dict[str, type[Strategy]] = {
    kind.name: kind
    for kind in (FixedSize, TimeWindow, MemoryBased, AdaptiveSize, LowLatency, MegaBatch)
}


@dataclass(frozen=True)
class _BatchBlock:
    """What the `batch` block has under every strategy."""

    strategy: str | None = setting(
        choice(STRATEGIES),
        "When a stream is flushed. Required in the block, unless `enable` is false.",
    )
    enable: bool = setting(
        FLAG,
        "Set to false to ignore the strategy and keep the program's own bounds.",
        default=True,
    )


@dataclass(frozen=True)
class FailurePolicy:
    """The `failure` block; a setting that the policy does not have is 0 or None."""

    policy: str = setting(
        choice(POLICIES),
        "How to handle records and commits that fail.",
        default="FailBatch",
        dotted="failure_strategy",
    )
    max_retries: int = setting(
        count(MOST_RETRIES),
        "How often to retry a failed commit.",
        default=3,
        unset=0,
        owner="RetryWithBackoff",
        dotted="max_retries",
    )
    backoff_seconds: float = setting(
        DURATION,
        "Pause before the first retry; later pauses are longer.",
        default="1s",
        unset=0.0,
        key="retry_backoff",
        owner="RetryWithBackoff",
        dotted="retry_backoff",
    )
    dead_letter_path: str | None = setting(
        LOCATION,
        "Folder or URL of the dead letters. Required.",
        owner="SendToDLQ",
        dotted="dead_letter_path",
    )


@dataclass(frozen=True, eq=False)
class VariantBlock:
    """A block in which one setting decides which others there are.

    Attributes:
        name: Key of the block.
        noun: What the deciding setting chooses.
        common: Settings of every choice; the deciding one is the first.
        variants: Settings of each choice.
        default: The choice if none is given; None if one must be.
    """

    name: str
    noun: str
    common: tuple[Field, ...]
    variants: Mapping[str, tuple[Field, ...]]
    default: str | None = None

    @property
    def chooser(self) -> Field:
        """The deciding setting."""
        return self.common[0]

    @property
    def fields(self) -> tuple[Field, ...]:
        """All settings."""
        return (*self.common, *(field for fields in self.variants.values() for field in fields))

    def available(self, chosen: str | None) -> list[Field]:
        """Return the settings of a choice; those of all for None."""
        return [field for field in self.fields if chosen is None or field.owner in (None, chosen)]


def _declared(block: str, owner: type, variant: str | None = None) -> tuple[Field, ...]:
    """Return the settings of a dataclass by their paths from the top."""
    return tuple(
        replace(
            field,
            path=(block, *field.path),
            owner=field.owner or variant,
            dotted=field.dotted or ".".join((block, *field.path)),
        )
        for field in fields_of(owner)
    )


BATCH_CONFIG = _declared("batch_config", BatchConfig)
FORMAT, COMPRESSION, ROOT, FILE_PREFIX = BATCH_CONFIG[:4]
(LEVEL,) = (field for field in BATCH_CONFIG if field.key == "compression_level")
INCLUDE, EXCLUDE = (field for field in BATCH_CONFIG if field.key.endswith("_streams"))

BATCH = VariantBlock(
    "batch",
    "strategy",
    _declared("batch", _BatchBlock),
    {name: _declared("batch", kind, name) for name, kind in STRATEGIES.items()},
)
STRATEGY, ENABLE = BATCH.common
MIN_SIZE, MAX_SIZE, TARGET_LATENCY = BATCH.variants["adaptive_size"]
PARALLEL, REUSE_BUFFER = BATCH.variants["mega_batch"][1:]

_FAILURE = _declared("failure", FailurePolicy)
FAILURE = VariantBlock(
    "failure",
    "policy",
    _FAILURE[:1],
    {name: tuple(field for field in _FAILURE if field.owner == name) for name in POLICIES},
    default=FailurePolicy.policy,
)
POLICY = FAILURE.chooser
(DEAD_LETTER_PATH,) = FAILURE.variants["SendToDLQ"]

VARIANT_BLOCKS = {block.name: block for block in (BATCH, FAILURE)}
FIELDS = (*BATCH_CONFIG, *BATCH.fields, *FAILURE.fields)
BLOCKS: dict[str, str] = {
    "batch_config": "Batch files: their encoding, their storage, and the streams that use them.",
    "batch": "When a stream is flushed.",
    "failure": "How to handle records and commits that fail.",
}
"""The blocks, with their descriptions."""
GROUPS: dict[str, str] = {
    "encoding": "Format and compression of the batch files.",
    "storage": "Where to store the batch files.",
}
"""The blocks within `batch_config`."""

PREFIXES: dict[str, Side] = {"source.": "tap", "sink.": "target"}
"""Prefix of a dotted key → the program that then reads it."""

DOTTED: dict[str, Field] = {
    field.dotted: field
    for block in VARIANT_BLOCKS.values()
    for field in block.fields
    if field.dotted
}
"""Every dotted key, without `source.` and `sink.`."""

DOTTED_KEYS: tuple[str, ...] = tuple(prefix + name for prefix in ("", *PREFIXES) for name in DOTTED)
"""Every dotted key, with and without a prefix."""


def split_prefix(key: str) -> tuple[str, str]:
    """Split a dotted key into `source.` or `sink.`, or nothing, and the rest."""
    prefix = next((prefix for prefix in PREFIXES if key.startswith(prefix)), "")
    return prefix, key[len(prefix) :]


def is_batch_key(name: str) -> bool:
    """Return whether `shared.batch_config.validate` checks a top-level setting."""
    begins = (*PREFIXES, *(f"{block}." for block in BLOCKS))
    return name in BLOCKS or name in DOTTED_KEYS or name.startswith(begins)


@dataclass(frozen=True)
class Validated:
    """The answer of `validate`; if there are problems, only those (and warnings) count.

    Attributes:
        side: The program it was read for.
        batch_config: None if the block is not given.
        strategy: None if the `batch` block is not given, or `enable` is false.
        strategy_paths: Key of each of its settings → where it stands, or would stand.
        failure: The default policy if the block is not given.
        problems: All of them.
        warnings: Settings that are allowed but probably not intended.
    """

    side: Side | None = None
    batch_config: BatchConfig | None = None
    strategy: Strategy | None = None
    strategy_paths: Mapping[str, Location] = field(default_factory=dict)
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
