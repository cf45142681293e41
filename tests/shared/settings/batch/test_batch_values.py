"""What right settings become."""

from __future__ import annotations

import dataclasses

import pytest
from batch_documents import calm, config_blocks, documents
from hypothesis import given

from shared.batch_config import as_json, validate
from shared.settings.batch_settings import (
    AdaptiveSize,
    BatchConfig,
    FailurePolicy,
    FixedSize,
    LowLatency,
    MegaBatch,
    MemoryBased,
    TimeWindow,
    Validated,
)

STRATEGY_VALUES = [
    ({"strategy": "fixed_size"}, FixedSize(100, 1.0)),
    ({"strategy": "fixed_size", "size": 5}, FixedSize(5, 1.0)),
    ({"strategy": "fixed_size", "size": 5.0}, FixedSize(5, 1.0)),
    ({"strategy": "fixed_size", "timeout": "2 minutes"}, FixedSize(100, 120.0)),
    ({"strategy": "fixed_size", "timeout": 250}, FixedSize(100, 0.25)),
    ({"strategy": "fixed_size", "enable": True}, FixedSize(100, 1.0)),
    ({"strategy": "fixed_size", "enable": False}, None),
    ({"enable": False}, None),
    ({"enable": False, "size": 5}, None),
    ({"strategy": "time_window"}, TimeWindow(1.0)),
    ({"strategy": "time_window", "window": "1.5s"}, TimeWindow(1.5)),
    ({"strategy": "time_window", "window": "1d"}, TimeWindow(86400.0)),
    ({"strategy": "memory_based"}, MemoryBased(1048576)),
    ({"strategy": "memory_based", "memory_size": "64MB"}, MemoryBased(64_000_000)),
    ({"strategy": "memory_based", "memory_size": "1 MiB"}, MemoryBased(1048576)),
    ({"strategy": "memory_based", "memory_size": 7}, MemoryBased(7)),
    ({"strategy": "adaptive_size"}, AdaptiveSize(10, 1000, 0.1)),
    ({"strategy": "adaptive_size", "min_size": 1000}, AdaptiveSize(1000, 1000, 0.1)),
    (
        {"strategy": "adaptive_size", "min_size": 1, "max_size": 2, "target_latency": "20s"},
        AdaptiveSize(1, 2, 20.0),
    ),
    ({"strategy": "low_latency"}, LowLatency(1, 0.001, True)),
    (
        {"strategy": "low_latency", "max_size": 9, "max_wait": "5 ms", "eager": False},
        LowLatency(9, 0.005, False),
    ),
    ({"strategy": "mega_batch"}, MegaBatch(50000, True, True)),
    (
        {"strategy": "mega_batch", "size": 9, "parallel": False, "reuse_buffer": False},
        MegaBatch(9, False, False),
    ),
]

FAILURE_VALUES = [
    ({}, FailurePolicy()),
    ({"policy": "FailBatch"}, FailurePolicy("FailBatch", 0, 0.0, None)),
    ({"policy": "LogAndContinue"}, FailurePolicy("LogAndContinue")),
    (
        {"policy": "SendToDLQ", "dead_letter_path": "s3://b/dead"},
        FailurePolicy("SendToDLQ", dead_letter_path="s3://b/dead"),
    ),
    ({"policy": "RetryWithBackoff"}, FailurePolicy("RetryWithBackoff", 3, 1.0)),
    (
        {"policy": "RetryWithBackoff", "max_retries": 9, "retry_backoff": "2 minutes"},
        FailurePolicy("RetryWithBackoff", 9, 120.0),
    ),
    (
        {"policy": "RetryWithBackoff", "retry_backoff": 250},
        FailurePolicy("RetryWithBackoff", 3, 0.25),
    ),
]

DEFAULT_COMPRESSIONS = [
    ({}, "jsonl", "gzip"),
    ({"format": "jsonl"}, "jsonl", "gzip"),
    ({"format": "parquet"}, "parquet", "snappy"),
    ({"format": "csv"}, "csv", "gzip"),
    ({"format": "avro"}, "avro", "deflate"),
    ({"format": "arrow"}, "arrow", "lz4"),
    ({"compression": "zstd"}, "jsonl", "zstd"),
    ({"format": "parquet", "compression": "none"}, "parquet", "none"),
]

COVERS = [
    ((), (), "a", True),
    (("a",), (), "a", True),
    (("a",), (), "b", False),
    (("a",), (), "A", False),
    (("a*",), (), "abc", True),
    (("a?",), (), "abc", False),
    (("a[bc]",), (), "ab", True),
    (("a", "b"), (), "b", True),
    ((), ("a",), "a", False),
    ((), ("a",), "b", True),
    (("a*",), ("ab*",), "abc", False),
    (("a*",), ("ab*",), "acb", True),
    (("public-*",), (), "public-orders", True),
    (("*",), ("*-audit",), "x-audit", False),
]


@pytest.mark.parametrize(("block", "expected"), STRATEGY_VALUES, ids=str)
def test_a_strategy_becomes_its_dataclass(block, expected):
    validated = validate({"batch": block}, "target").check()
    assert validated.strategy == expected
    assert type(validated.strategy) is type(expected)


@pytest.mark.parametrize(("block", "expected"), FAILURE_VALUES, ids=str)
def test_a_policy_becomes_its_dataclass(block, expected):
    assert validate({"failure": block}, "target").check().failure == expected


def test_values_have_one_type_each():
    strategy = validate({"batch": {"strategy": "fixed_size", "size": 5.0, "timeout": 1000}})
    assert type(strategy.strategy.size) is int
    assert type(strategy.strategy.timeout_seconds) is float


@pytest.mark.parametrize(
    ("policy", "parallel"),
    [
        ({"policy": "FailBatch"}, True),
        ({"policy": "LogAndContinue"}, True),
        ({"policy": "SendToDLQ", "dead_letter_path": "x"}, False),
        ({"policy": "RetryWithBackoff"}, False),
    ],
    ids=str,
)
def test_parallel_follows_the_policy_where_it_is_not_given(policy, parallel):
    validated = validate({"batch": {"strategy": "mega_batch"}, "failure": policy}).check()
    assert validated.strategy == MegaBatch(50000, parallel, True)


@pytest.mark.parametrize(("encoding", "file_format", "compression"), DEFAULT_COMPRESSIONS, ids=str)
def test_each_format_has_its_default_compression(encoding, file_format, compression):
    document = {"batch_config": {"storage": {"root": "x"}, "encoding": encoding}}
    config = validate(document, "tap").check().batch_config
    assert (config.format, config.compression) == (file_format, compression)


def test_all_of_batch_config_is_read():
    block = {
        "encoding": {"format": "csv", "compression": "gzip", "compression_level": 6},
        "storage": {"root": "s3://b/x", "prefix": "p-", "options": {"key": "k", "a": {"b": 1}}},
        "batch_size": 10000,
        "include_streams": ["a*", "b"],
        "exclude_streams": ["c"],
        "allowed_roots": ["s3://b", "/data"],
        "cleanup": True,
    }
    assert validate({"batch_config": block}, "target").check().batch_config == BatchConfig(
        format="csv",
        compression="gzip",
        compression_level=6,
        root="s3://b/x",
        prefix="p-",
        options={"key": "k", "a": {"b": 1}},
        batch_size=10000,
        include_streams=("a*", "b"),
        exclude_streams=("c",),
        allowed_roots=("s3://b", "/data"),
        cleanup=True,
    )


def test_batch_config_has_defaults():
    block = {"storage": {"root": "x"}}
    assert validate({"batch_config": block}, "tap").check().batch_config == BatchConfig(root="x")
    block = {"cleanup": True}
    config = validate({"batch_config": block}, "target").check().batch_config
    assert config == BatchConfig(cleanup=True)


def test_options_are_a_copy_and_left_out_of_repr():
    options = {"secret": "hunter2"}
    document = {"batch_config": {"storage": {"root": "x", "options": options}}}
    config = validate(document, "tap").check().batch_config
    options["secret"] = "other"
    assert config.options == {"secret": "hunter2"}
    assert "hunter2" not in repr(config)


@pytest.mark.parametrize(("include", "exclude", "stream", "expected"), COVERS)
def test_patterns_decide_which_streams_are_covered(include, exclude, stream, expected):
    config = BatchConfig(root="x", include_streams=include, exclude_streams=exclude)
    assert config.covers(stream) is expected


def test_results_cannot_be_changed():
    validated = validate({"batch": {"strategy": "fixed_size"}}).check()
    for result in (validated, validated.strategy, validated.failure):
        with pytest.raises(dataclasses.FrozenInstanceError):
            result.anything = 1


def test_the_side_is_kept():
    for side in ("tap", "target", None):
        assert validate({}, side) == Validated(side)


def test_nothing_is_returned_beside_problems():
    document = {"batch": {"strategy": "fixed_size"}, "failure": {"policy": "x"}}
    validated = validate(document, "target")
    assert validated.strategy is None
    assert validated.problems


@calm
@given(config_blocks())
def test_batch_config_keeps_what_was_given(block):
    config = validate({"batch_config": block}, "tap").check().batch_config
    assert config.format == block["encoding"]["format"]
    assert config.compression == block["encoding"]["compression"]
    assert config.root == block["storage"]["root"]
    assert config.prefix == block["storage"]["prefix"]
    assert config.batch_size == block.get("batch_size")
    assert list(config.include_streams) == block["include_streams"]
    assert list(config.exclude_streams) == block["exclude_streams"]


@calm
@given(documents())
def test_seconds_and_bytes_are_positive(document):
    validated = validate(document, "tap")
    if validated.strategy is not None:
        for name, value in dataclasses.asdict(validated.strategy).items():
            assert isinstance(value, bool) or value > 0
            assert isinstance(value, float) is name.endswith("_seconds")


@calm
@given(documents())
def test_the_values_are_plain_data(document):
    validated = validate(document, "tap")
    data = as_json(validated)
    assert list(data) == ["side", "batch_config", "batch", "failure"]
    assert (data["batch"] is None) is (validated.strategy is None)


def test_the_values_as_json_hold_no_secret():
    storage = {"root": "https://h/x?sig=hunter2", "options": {"key": "hunter2", "n": {"a": 1}}}
    document = {
        "batch_config": {"storage": storage, "allowed_roots": ["https://h/?sig=hunter2"]},
        "failure": {"policy": "SendToDLQ", "dead_letter_path": "https://h/?sig=hunter2"},
    }
    data = as_json(validate(document, "target").check())
    assert "hunter2" not in repr(data)
    assert data["batch_config"]["options"] == {"key": "***", "n": "***"}
    assert data["batch_config"]["root"] == "https://h/x?***"
    assert data["failure"]["dead_letter_path"] == "https://h/?***"
