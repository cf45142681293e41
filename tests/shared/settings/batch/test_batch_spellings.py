"""The dotted spelling, `source.` and `sink.`, and both spellings of one thing."""

from __future__ import annotations

import dataclasses

import pytest
from batch_documents import DOTTED_NAMES, batch_blocks, calm, documents, dotted
from hypothesis import assume, given
from hypothesis import strategies as st

from shared.batch_config import DOTTED_KEYS, is_batch_key, validate
from shared.settings.batch_settings import (
    DOTTED,
    AdaptiveSize,
    FailurePolicy,
    FixedSize,
    LowLatency,
    MegaBatch,
)

DESIGN_NAMES = [
    "batch.strategy",
    "batch.size",
    "batch.timeout",
    "batch.window",
    "batch.memory_size",
    "batch.min_size",
    "batch.adaptive_max_size",
    "batch.target_latency",
    "batch.low_latency_max_size",
    "batch.low_latency_wait",
    "batch.eager_processing",
    "batch.mega_batch_size",
    "batch.parallel",
    "batch.reuse_buffer",
    "batch.enable",
    "failure_strategy",
    "max_retries",
    "retry_backoff",
]
OWN_NAMES = ["dead_letter_path"]


def values(validated):
    return (validated.batch_config, validated.strategy, validated.failure)


def paths(document, side="target"):
    return [problem.path for problem in validate(document, side).problems]


def test_every_name_of_the_original_is_known():
    assert sorted(DOTTED) == sorted(DESIGN_NAMES + OWN_NAMES)
    assert len(DOTTED_KEYS) == 3 * len(DOTTED)


@pytest.mark.parametrize("prefix", ["", "source.", "sink."])
@pytest.mark.parametrize("name", DESIGN_NAMES + OWN_NAMES)
def test_every_name_may_stand_behind_a_prefix(name, prefix):
    assert is_batch_key(prefix + name)
    assert prefix + name in DOTTED_KEYS
    problems = validate({prefix + name: object()}, None).problems
    assert not any("unknown" in problem.message for problem in problems)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("batch_config", True),
        ("batch", True),
        ("failure", True),
        ("batch.x", True),
        ("sink.x", True),
        ("source.x", True),
        ("failure.x", True),
        ("batch_config.x", True),
        ("batch_size_rows", False),
        ("batch_wait_limit_seconds", False),
        ("sink", False),
        ("sinking", False),
        ("strategy", False),
        ("path", False),
        ("spark.master", False),
    ],
)
def test_batch_settings_are_told_from_others(name, expected):
    assert is_batch_key(name) is expected


@calm
@given(documents())
def test_dotted_means_the_same_as_nested(document):
    nested = validate(document, "target")
    assume(not nested.problems)
    assert values(validate(dotted(document), "target").check()) == values(nested)


@calm
@given(documents(), st.sampled_from(["", "sink."]))
def test_text_in_dotted_spelling_means_the_same_as_nested(document, prefix):
    nested = validate(document, "target")
    assume(not nested.problems)
    as_text = dotted(document, prefix, as_text=True)
    assert values(validate(as_text, "target").check()) == values(nested)


@calm
@given(documents())
def test_both_spellings_of_one_value_are_right(document):
    nested = validate(document, "target")
    assume(not nested.problems)
    both = {**document, **dotted(document), **dotted(document, "sink.", as_text=True)}
    assert values(validate(both, "target").check()) == values(nested)


@calm
@given(documents())
def test_what_is_wrong_nested_is_wrong_dotted(document):
    nested, flat = (validate(doc, "target").problems for doc in (document, dotted(document)))
    assert len(nested) == len(flat)


@calm
@given(batch_blocks(), batch_blocks())
def test_two_different_blocks_are_never_mixed(first, second):
    one, two = validate({"batch": first}), validate({"batch": second})
    assume(one.strategy != two.strategy)
    mixed = validate({"batch": first, **dotted({"batch": second})})
    # Keys of one strategy in only one of the spellings belong together.
    shared = [key for key in first if key in second and key != "enable"]
    if any(values_differ(one, two, key) for key in shared):
        assert mixed.problems


def values_differ(one, two, key):
    if key == "strategy":
        return type(one.strategy) is not type(two.strategy) and None not in (
            one.strategy,
            two.strategy,
        )
    field = {"timeout": "timeout_seconds", "window": "window_seconds"}.get(key, key)
    unknown = object()
    pair = [getattr(item.strategy, field, unknown) for item in (one, two)]
    return unknown not in pair and type(one.strategy) is type(two.strategy) and pair[0] != pair[1]


@pytest.mark.parametrize(("owner", "key"), sorted(DOTTED_NAMES))
def test_each_dotted_key_sets_its_nested_one(owner, key):
    value = {"eager": False, "parallel": False, "reuse_buffer": False}.get(key, 500)
    nested = validate({"batch": {"strategy": owner, key: value}}).check()
    flat = {"batch.strategy": owner, DOTTED_NAMES[owner, key]: value}
    assert validate(flat).check().strategy == nested.strategy
    default = validate({"batch": {"strategy": owner}}).check().strategy
    assert nested.strategy != default


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (
            {"batch.strategy": "fixed_size", "batch.size": "7", "batch.timeout": "5 minutes"},
            FixedSize(7, 300.0),
        ),
        (
            {"sink.batch.strategy": "low_latency", "sink.batch.eager_processing": "FALSE"},
            LowLatency(1, 0.001, False),
        ),
        (
            {"batch": {"strategy": "mega_batch"}, "sink.batch.mega_batch_size": 7},
            MegaBatch(7, True, True),
        ),
        (
            {"batch.strategy": "adaptive_size", "batch": {"max_size": 20}},
            AdaptiveSize(10, 20, 0.1),
        ),
        ({"batch.strategy": "fixed_size", "batch.enable": "false"}, None),
        ({"batch": {"strategy": "fixed_size"}, "batch.enable": "False"}, None),
        ({"batch.strategy": "fixed_size", "source.batch.enable": "false"}, FixedSize(100, 1.0)),
    ],
)
def test_dotted_settings_are_read(document, expected):
    assert validate(document, "target").check().strategy == expected


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"failure_strategy": "LogAndContinue"}, FailurePolicy("LogAndContinue")),
        (
            {"sink.failure_strategy": "RetryWithBackoff", "sink.max_retries": "5"},
            FailurePolicy("RetryWithBackoff", 5, 1.0),
        ),
        (
            {"failure_strategy": "RetryWithBackoff", "retry_backoff": "2s"},
            FailurePolicy("RetryWithBackoff", 3, 2.0),
        ),
        (
            {"failure_strategy": "SendToDLQ", "dead_letter_path": "x"},
            FailurePolicy("SendToDLQ", dead_letter_path="x"),
        ),
        (
            {"failure_strategy": "SendToDLQ", "failure": {"dead_letter_path": "x"}},
            FailurePolicy("SendToDLQ", dead_letter_path="x"),
        ),
        ({"source.failure_strategy": "LogAndContinue"}, FailurePolicy("FailBatch")),
    ],
)
def test_dotted_policies_are_read(document, expected):
    assert validate(document, "target").check().failure == expected


CONFLICTS = [
    ({"batch": {"strategy": "fixed_size", "size": 5}, "batch.size": 6}, "batch.size"),
    ({"batch": {"strategy": "fixed_size", "size": 5}, "sink.batch.size": "6"}, "sink.batch.size"),
    (
        {"batch.strategy": "fixed_size", "batch.size": 5, "sink.batch.size": 6},
        "sink.batch.size",
    ),
    (
        {"batch": {"strategy": "time_window", "window": "1s"}, "batch.window": 1001},
        "batch.window",
    ),
    (
        {"batch": {"strategy": "memory_based", "memory_size": "1 MiB"}, "batch.memory_size": "1MB"},
        "batch.memory_size",
    ),
    (
        {"batch": {"strategy": "low_latency", "eager": True}, "batch.eager_processing": "false"},
        "batch.eager_processing",
    ),
    (
        {"batch": {"strategy": "fixed_size"}, "batch.strategy": "low_latency"},
        "batch.strategy",
    ),
    (
        {"failure": {"policy": "FailBatch"}, "failure_strategy": "LogAndContinue"},
        "failure_strategy",
    ),
    (
        {"failure": {"policy": "RetryWithBackoff", "max_retries": 3}, "max_retries": "4"},
        "max_retries",
    ),
]

AGREEMENTS = [
    {"batch": {"strategy": "fixed_size", "size": 5}, "batch.size": "5"},
    {"batch": {"strategy": "fixed_size", "timeout": "1s"}, "batch.timeout": 1000},
    {"batch": {"strategy": "fixed_size", "timeout": "60s"}, "batch.timeout": "1 minute"},
    {"batch": {"strategy": "memory_based", "memory_size": "1 KiB"}, "batch.memory_size": 1024},
    {"batch": {"strategy": "mega_batch", "parallel": True}, "sink.batch.parallel": "true"},
    {"batch.strategy": "fixed_size", "sink.batch.strategy": "fixed_size"},
    {"failure": {"policy": "LogAndContinue"}, "failure_strategy": "LogAndContinue"},
]


@pytest.mark.parametrize(("document", "key"), CONFLICTS, ids=[key for _, key in CONFLICTS])
def test_different_values_of_one_thing_are_an_error(document, key):
    problems = validate(document, "target").problems
    assert [problem.path for problem in problems] == [(key,)]
    assert "differs from config[" in problems[0].message


@pytest.mark.parametrize("document", AGREEMENTS, ids=str)
def test_equal_values_of_one_thing_are_right(document):
    assert validate(document, "target").problems == ()


def test_each_program_reads_its_own_prefix():
    document = {"batch.strategy": "fixed_size", "source.batch.size": 10, "sink.batch.size": 20}
    assert validate(document, "tap").check().strategy == FixedSize(10, 1.0)
    assert validate(document, "target").check().strategy == FixedSize(20, 1.0)
    both = validate(document).check()
    assert both.strategy == FixedSize(20, 1.0)
    assert any("config['source.batch.size'] applies to tap-spark only" in w for w in both.warnings)


@pytest.mark.parametrize(("side", "prefix"), [("tap", "sink."), ("target", "source.")])
def test_the_other_program_s_values_are_not_read(side, prefix):
    document = {f"{prefix}batch.strategy": "nonsense", f"{prefix}batch.size": -1}
    assert validate(document, side) == dataclasses.replace(validate({}, side))
    assert paths(document, None) == [(f"{prefix}batch.strategy",), (f"{prefix}batch.size",)]


@pytest.mark.parametrize("side", ["tap", "target", None])
@pytest.mark.parametrize("prefix", ["source.", "sink."])
def test_unknown_names_behind_a_prefix_are_errors_for_both(side, prefix):
    assert paths({f"{prefix}batch.nonsense": 1}, side) == [(f"{prefix}batch.nonsense",)]


@pytest.mark.parametrize(
    "document",
    [
        {"batch": {"strategy": "fixed_size", "size": "5"}},
        {"batch": {"strategy": "low_latency", "eager": "true"}},
        {"batch": {"strategy": "fixed_size", "enable": "true"}},
        {"failure": {"policy": "RetryWithBackoff", "max_retries": "3"}},
        {"batch_config": {"storage": {"root": "x"}, "batch_size": "5"}},
        {"batch_config": {"storage": {"root": "x"}, "cleanup": "true"}},
    ],
    ids=str,
)
def test_text_for_numbers_and_booleans_is_for_dotted_keys_only(document):
    assert len(validate(document, "target").problems) == 1


@pytest.mark.parametrize("text", ["yes", "1", "on", "", "tru e"])
def test_a_dotted_boolean_is_true_or_false(text):
    document = {"batch.strategy": "mega_batch", "batch.parallel": text}
    assert paths(document) == [("batch.parallel",)]
