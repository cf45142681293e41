"""The one table of batch settings: validator, JSON Schema and documentation come from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.batch_kinds import (
    Choice,
    Count,
    Duration,
    Flag,
    Kind,
    Listing,
    Location,
    Options,
    Prefix,
    Size,
    Word,
)
from shared.batch_types import POLICIES, STRATEGIES, Side
from shared.encoding_registry import added_text, batch_formats
from shared.settings_check import Json

COMPRESSIONS = {name: form.compressions for name, form in batch_formats().items()}
"""Compressions of each format of batch files."""

DEFAULT_COMPRESSION = {name: str(form.batch_compression) for name, form in batch_formats().items()}
"""What a format gets where the settings name none."""

ORDERED_POLICIES = ("SendToDLQ", "RetryWithBackoff")
"""Policies under which the batches of a stream are loaded one after the other."""

MOST_RETRIES = 1000


@dataclass(frozen=True, eq=False)
class Field:
    """One setting.

    Attributes:
        path: Its keys from the top of the settings.
        kind: What it takes.
        description: For schema and documentation.
        default: As a user would write it; None where it has none.
        attribute: Its name in the dataclass of the result.
        owner: The strategy or policy that has it; None for the block itself.
        dotted: Its dotted spelling.
        side: The only program that has it; None for both.
    """

    path: tuple[str, ...]
    kind: Kind
    description: str
    default: Any = None
    attribute: str = ""
    owner: str | None = None
    dotted: str | None = None
    side: Side | None = None

    @property
    def key(self) -> str:
        """The last key of the path."""
        return self.path[-1]


@dataclass(frozen=True, eq=False)
class VariantBlock:
    """A block in which one setting decides which others there are.

    Attributes:
        name: Key of the block.
        noun: What the deciding setting chooses.
        chooser: The deciding setting.
        common: Settings that are there in any case.
        variants: Settings of each choice.
        default: The choice where none is given; None where one must be.
    """

    name: str
    noun: str
    chooser: Field
    common: tuple[Field, ...]
    variants: Mapping[str, tuple[Field, ...]]
    default: str | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        """All settings."""
        owned = (field for fields in self.variants.values() for field in fields)
        return (self.chooser, *self.common, *owned)


_PATTERNS = Listing(Word(), "a list of texts that are not empty, such as ['public-*']")
_ROOTS = Listing(Location(), "a list of at least one path or URL", shortest=1)
_ALL_COMPRESSIONS = tuple(dict.fromkeys(name for names in COMPRESSIONS.values() for name in names))


def _config(
    path: str,
    kind: Kind,
    attribute: str,
    description: str,
    *,
    default: Json = None,
    side: Side | None = None,
) -> Field:
    return Field(
        ("batch_config", *path.split(".")), kind, description, default, attribute, side=side
    )


ROOT = _config(
    "storage.root",
    Location(),
    "root",
    "Folder or URL of the batch files. Required in tap-spark.",
)
FORMAT = _config(
    "encoding.format",
    Choice(tuple(COMPRESSIONS)),
    "format",
    f"Format of the batch files.{added_text()}",
    default="jsonl",
)
COMPRESSION = _config(
    "encoding.compression",
    Choice(_ALL_COMPRESSIONS),
    "compression",
    "Compression of the batch files; which there are depends on the format.",
)
INCLUDE = _config(
    "include_streams",
    _PATTERNS,
    "include_streams",
    "Patterns (`*`, `?`, `[...]`) of the streams sent as BATCH; all where the list is empty.",
    default=(),
)
EXCLUDE = _config(
    "exclude_streams",
    _PATTERNS,
    "exclude_streams",
    "Patterns of the streams sent as RECORD; wins over `include_streams`.",
    default=(),
)
BATCH_CONFIG: tuple[Field, ...] = (
    FORMAT,
    COMPRESSION,
    ROOT,
    _config("storage.prefix", Prefix(), "prefix", "Put before the name of every file.", default=""),
    _config(
        "storage.options",
        Options(),
        "options",
        "Passed to fsspec, such as `endpoint_url` or `key`; never shown.",
        default={},
    ),
    _config(
        "batch_size",
        Count(),
        "batch_size",
        "Exact rows of a file; the last one holds the rest. Bounded by bytes where not set.",
    ),
    INCLUDE,
    EXCLUDE,
    _config(
        "allowed_roots",
        _ROOTS,
        "allowed_roots",
        "The only folders and URLs that files of a manifest may lie in; anywhere where not set.",
        side="target",
    ),
    _config(
        "cleanup",
        Flag(),
        "cleanup",
        "Delete consumed batch files after their commit, where they lie in `allowed_roots` or "
        "`storage.root`.",
        default=False,
        side="target",
    ),
)


def _key(
    path: str,
    dotted: str,
    kind: Kind,
    *,
    attribute: str,
    description: str,
    default: Json = None,
    owner: str | None = None,
) -> Field:
    keys = tuple(path.split("."))
    return Field(keys, kind, description, default, attribute, owner=owner, dotted=dotted)


_LIST: dict[str, tuple[tuple[str, str, Kind, str, Any, str], ...]] = {
    "fixed_size": (
        ("size", "size", Count(), "size", 100, "Rows of a flush."),
        ("timeout", "timeout", Duration(), "timeout_seconds", "1s", "Longest wait of a row."),
    ),
    "time_window": (
        ("window", "window", Duration(), "window_seconds", "1s", "Time between flushes."),
    ),
    "memory_based": (
        ("memory_size", "memory_size", Size(), "memory_bytes", "1 MiB", "Bytes of a flush."),
    ),
    "adaptive_size": (
        ("min_size", "min_size", Count(), "min_size", 10, "Fewest rows of a flush."),
        ("max_size", "adaptive_max_size", Count(), "max_size", 1000, "Most rows of a flush."),
        (
            "target_latency",
            "target_latency",
            Duration(),
            "target_latency_seconds",
            "100ms",
            "Time a commit is steered to, by the number of its rows.",
        ),
    ),
    "low_latency": (
        ("max_size", "low_latency_max_size", Count(), "max_size", 1, "Most rows of a flush."),
        (
            "max_wait",
            "low_latency_wait",
            Duration(),
            "max_wait_seconds",
            "1ms",
            "Longest wait of a row.",
        ),
        (
            "eager",
            "eager_processing",
            Flag(),
            "eager",
            True,
            "Flush as soon as nothing more waits on the input.",
        ),
    ),
    "mega_batch": (
        ("size", "mega_batch_size", Count(), "size", 50000, "Rows of a flush."),
        (
            "parallel",
            "parallel",
            Flag(),
            "parallel",
            True,
            "Convert several flushes at the same time; false by default under "
            + " and ".join(f"`{policy}`" for policy in ORDERED_POLICIES)
            + ".",
        ),
        (
            "reuse_buffer",
            "reuse_buffer",
            Flag(),
            "reuse_buffer",
            True,
            "Accepted, without effect: no flush has a buffer of its own.",
        ),
    ),
}

STRATEGY = _key(
    "batch.strategy",
    "batch.strategy",
    Choice(tuple(STRATEGIES)),
    attribute="strategy",
    description="When a stream is flushed. Required in the block, unless `enable` is false.",
)
ENABLE = _key(
    "batch.enable",
    "batch.enable",
    Flag(),
    attribute="enable",
    description="Set to false to ignore the strategy and keep the program's own bounds.",
    default=True,
)
BATCH = VariantBlock(
    "batch",
    "strategy",
    STRATEGY,
    (ENABLE,),
    {
        name: tuple(
            _key(
                f"batch.{key}",
                f"batch.{dotted}",
                kind,
                attribute=attribute,
                description=text,
                default=default,
                owner=name,
            )
            for key, dotted, kind, attribute, default, text in fields
        )
        for name, fields in _LIST.items()
    },
)

POLICY = _key(
    "failure.policy",
    "failure_strategy",
    Choice(POLICIES),
    attribute="policy",
    description="What happens to records and commits that fail.",
    default="FailBatch",
)
DEAD_LETTER_PATH = _key(
    "failure.dead_letter_path",
    "dead_letter_path",
    Location(),
    attribute="dead_letter_path",
    description="Folder or URL of the dead letters. Required.",
    owner="SendToDLQ",
)
FAILURE = VariantBlock(
    "failure",
    "policy",
    POLICY,
    (),
    {
        "FailBatch": (),
        "LogAndContinue": (),
        "SendToDLQ": (DEAD_LETTER_PATH,),
        "RetryWithBackoff": (
            _key(
                "failure.max_retries",
                "max_retries",
                Count(MOST_RETRIES),
                attribute="max_retries",
                description="How often a failed commit is tried again.",
                default=3,
                owner="RetryWithBackoff",
            ),
            _key(
                "failure.retry_backoff",
                "retry_backoff",
                Duration(),
                attribute="backoff_seconds",
                description="Pause before the first retry; later ones are longer.",
                default="1s",
                owner="RetryWithBackoff",
            ),
        ),
    },
    default="FailBatch",
)

VARIANT_BLOCKS = (BATCH, FAILURE)
BLOCKS = ("batch_config", "batch", "failure")
PREFIXES: dict[str, Side] = {"source.": "tap", "sink.": "target"}
"""What may stand before a dotted key, and the program it then counts for."""

DOTTED: dict[str, Field] = {
    field.dotted: field for block in VARIANT_BLOCKS for field in block.fields if field.dotted
}
"""Every dotted key, without `source.` and `sink.`."""

DOTTED_KEYS: tuple[str, ...] = tuple(prefix + name for prefix in ("", *PREFIXES) for name in DOTTED)
"""Every dotted key, with and without what may stand before it."""
