"""Makes settings documents for the tests: right ones, wrong ones, in either spelling."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For property tests: a busy machine is not a failure."""

STRATEGY_KEYS: dict[str, dict[str, str]] = {
    "fixed_size": {"size": "count", "timeout": "duration"},
    "time_window": {"window": "duration"},
    "memory_based": {"memory_size": "size"},
    "adaptive_size": {"min_size": "small", "max_size": "large", "target_latency": "duration"},
    "low_latency": {"max_size": "count", "max_wait": "duration", "eager": "flag"},
    "mega_batch": {"size": "count", "parallel": "flag", "reuse_buffer": "flag"},
}
"""Keys of each strategy and the kind of their values, independent of the program's table."""

DOTTED_NAMES: dict[tuple[str, str], str] = {
    ("fixed_size", "size"): "batch.size",
    ("fixed_size", "timeout"): "batch.timeout",
    ("time_window", "window"): "batch.window",
    ("memory_based", "memory_size"): "batch.memory_size",
    ("adaptive_size", "min_size"): "batch.min_size",
    ("adaptive_size", "max_size"): "batch.adaptive_max_size",
    ("adaptive_size", "target_latency"): "batch.target_latency",
    ("low_latency", "max_size"): "batch.low_latency_max_size",
    ("low_latency", "max_wait"): "batch.low_latency_wait",
    ("low_latency", "eager"): "batch.eager_processing",
    ("mega_batch", "size"): "batch.mega_batch_size",
    ("mega_batch", "parallel"): "batch.parallel",
    ("mega_batch", "reuse_buffer"): "batch.reuse_buffer",
}

FORMAT_COMPRESSIONS: dict[str, list[str]] = {
    "jsonl": ["none", "gzip", "zstd", "bzip2"],
    "parquet": ["none", "snappy", "gzip", "zstd", "lz4"],
    "csv": ["none", "gzip", "zstd", "bzip2"],
    "avro": ["none", "snappy", "deflate", "zstd"],
    "arrow": ["none", "lz4", "zstd"],
}

durations = st.one_of(
    st.integers(1, 10_000_000),
    st.floats(1, 10_000_000),
    st.builds(
        "{}{}{}".format,
        st.integers(1, 300),
        st.sampled_from(["", " "]),
        st.sampled_from(["ms", "s", "m", "h", "d", "second", "minutes", "hours", "day"]),
    ),
)
sizes = st.one_of(
    st.integers(1, 2**50),
    st.builds(
        "{}{}{}".format,
        st.integers(1, 1000),
        st.sampled_from(["", " "]),
        st.sampled_from(["B", "KB", "kb", "MB", "GB", "KiB", "MiB", "gib", "bytes"]),
    ),
)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "count": st.integers(1, 2**40),
    "small": st.integers(1, 1000),
    "large": st.integers(1000, 2**40),
    "duration": durations,
    "size": sizes,
    "flag": st.booleans(),
}

locations = st.sampled_from(["out", "/data/batches", "s3://bucket/x", "file:///", "memory://a"])
wrong_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.integers(2**62, 2**66),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=6),
    st.sampled_from(["true", "1 MiB", "5s", "-1s", "5 parsecs", "fixed_size", "FailBatch", "1e3"]),
    st.lists(st.text(max_size=2), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=1),
)


@st.composite
def batch_blocks(draw: st.DrawFn) -> dict[str, Any]:
    """Return a right `batch` block with some of its keys."""
    strategy = draw(st.sampled_from(sorted(STRATEGY_KEYS)))
    keys = draw(st.sets(st.sampled_from(sorted(STRATEGY_KEYS[strategy]))))
    block = {key: draw(KINDS[STRATEGY_KEYS[strategy][key]]) for key in sorted(keys)}
    if draw(st.booleans()):
        block["enable"] = draw(st.booleans())
    return {"strategy": strategy, **block}


@st.composite
def failure_blocks(draw: st.DrawFn) -> dict[str, Any]:
    """Return a right `failure` block."""
    policy = draw(st.sampled_from(["FailBatch", "LogAndContinue", "SendToDLQ", "RetryWithBackoff"]))
    block: dict[str, Any] = {"policy": policy}
    if policy == "SendToDLQ":
        block["dead_letter_path"] = draw(locations)
    if policy == "RetryWithBackoff" and draw(st.booleans()):
        block["max_retries"] = draw(st.integers(1, 1000))
        block["retry_backoff"] = draw(durations)
    return block


@st.composite
def config_blocks(draw: st.DrawFn) -> dict[str, Any]:
    """Return a right `batch_config` block of the tap."""
    file_format = draw(st.sampled_from(sorted(FORMAT_COMPRESSIONS)))
    compression = draw(st.sampled_from(FORMAT_COMPRESSIONS[file_format]))
    block: dict[str, Any] = {
        "encoding": {"format": file_format, "compression": compression},
        "storage": {"root": draw(locations), "prefix": draw(st.sampled_from(["", "a-", "a/b-"]))},
    }
    if draw(st.booleans()):
        block["batch_size"] = draw(st.integers(1, 2**40))
    names = st.lists(st.sampled_from("abc"), unique=True, max_size=2)
    block["include_streams"] = draw(names)
    block["exclude_streams"] = [name.upper() for name in draw(names)]
    return block


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Return a document of right blocks, nested; rules between blocks may be broken."""
    makers = {"batch_config": config_blocks, "batch": batch_blocks, "failure": failure_blocks}
    names = draw(st.sets(st.sampled_from(sorted(makers)), min_size=1))
    return {name: draw(makers[name]()) for name in sorted(names)}


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, Any]:
    """Return a document in which some values are replaced, keys dropped, or odd keys added."""
    document = draw(documents())
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from(sorted(document)))
        block = document[name]
        if not isinstance(block, dict):
            continue
        nested = [key for key in sorted(block) if isinstance(block[key], dict) and key != "options"]
        if nested and draw(st.booleans()):
            block = block[draw(st.sampled_from(nested))]
        _damage(draw, name, block)
    return document


def _damage(draw: st.DrawFn, name: str, block: dict[str, Any]) -> None:
    how = draw(st.sampled_from(["replace", "drop", "add"]))
    if how == "add" or not block:
        existing = sorted({key for keys in STRATEGY_KEYS.values() for key in keys})
        existing += ["policy", "max_retries", "retry_backoff", "dead_letter_path", "format", "root"]
        block[draw(st.sampled_from([*existing, "sizee", "x"]))] = draw(wrong_values)
    elif how == "drop":
        del block[draw(st.sampled_from(sorted(block)))]
    else:
        block[draw(st.sampled_from(sorted(block)))] = draw(wrong_values)


def dotted(document: dict[str, Any], prefix: str = "", *, as_text: bool = False) -> dict[str, Any]:
    """Return the same document with `batch` and `failure` in dotted spelling."""
    result = {key: item for key, item in document.items() if key == "batch_config"}
    batch = document.get("batch", {})
    for key, item in batch.items():
        name = DOTTED_NAMES.get((batch.get("strategy"), key), f"batch.{key}")
        result[prefix + name] = item
    for key, item in document.get("failure", {}).items():
        result[prefix + {"policy": "failure_strategy"}.get(key, key)] = item
    return {key: _text(item) if as_text else item for key, item in result.items()}


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else value
