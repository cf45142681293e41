"""Warnings of strategies that flush too often for Spark."""

from __future__ import annotations

import pytest
from batch_documents import batch_blocks, calm
from hypothesis import given

from shared.batch_config import validate
from shared.settings.batch_rules import cost_warnings


def warnings(block, commit_seconds=0.5, **more):
    return after_commits(validate({"batch": block, **more}, "target").check(), commit_seconds)


def after_commits(validated, seconds):
    if validated.strategy is None:
        return validated.warnings
    costs = cost_warnings(validated.strategy, seconds, validated.strategy_paths)
    return (*costs, *validated.warnings)


LINES = [
    (
        {"strategy": "fixed_size", "size": 100, "timeout": "10s"},
        "config['batch']['size']: 100 rows a flush load at most 200 rows/s, as a commit "
        "takes about 0.5 s; use 5000 or more",
    ),
    (
        {"strategy": "fixed_size", "size": 50000, "timeout": "0.9s"},
        "config['batch']['timeout']: 0.9 s is shorter than needed, as a commit takes about 0.5 s; "
        "use 1 s or more",
    ),
    (
        {"strategy": "time_window", "window": "100ms"},
        "config['batch']['window']: 0.1 s is shorter than needed, as a commit takes about 0.5 s; "
        "use 1 s or more",
    ),
    (
        {"strategy": "memory_based"},
        "config['batch']['memory_size']: flushes this small load at most 2 MiB/s, as a "
        "commit takes about 0.5 s; use 5 MiB or more",
    ),
    (
        {"strategy": "adaptive_size", "target_latency": "1s"},
        "config['batch']['max_size']: 1000 rows a flush load at most 2000 rows/s, as a "
        "commit takes about 0.5 s; use 5000 or more",
    ),
    (
        {"strategy": "adaptive_size", "max_size": 5000},
        "config['batch']['target_latency']: 0.1 s cannot be reached, as a commit takes about "
        "0.5 s however few its rows are",
    ),
    (
        {"strategy": "low_latency", "max_wait": "1s"},
        "config['batch']['max_size']: 1 rows a flush load at most 2 rows/s, as a commit "
        "takes about 0.5 s; use 5000 or more",
    ),
    (
        {"strategy": "mega_batch", "size": 10},
        "config['batch']['size']: 10 rows a flush load at most 20 rows/s, as a commit "
        "takes about 0.5 s; use 5000 or more",
    ),
]

QUIET = [
    {"strategy": "fixed_size", "size": 5000, "timeout": "1s"},
    {"strategy": "time_window", "window": "1s"},
    {"strategy": "memory_based", "memory_size": "5 MiB"},
    {"strategy": "adaptive_size", "max_size": 5000, "target_latency": "500ms"},
    {"strategy": "low_latency", "max_size": 5000, "max_wait": "1s"},
    {"strategy": "mega_batch"},
    {"strategy": "low_latency", "enable": False},
    {"enable": False},
]


@pytest.mark.parametrize(("block", "line"), LINES, ids=[str(block) for block, _ in LINES])
def test_a_strategy_too_fine_is_warned_of(block, line):
    assert warnings(block) == (line,)


@pytest.mark.parametrize("block", QUIET, ids=str)
def test_a_strategy_sized_for_spark_is_not(block):
    assert warnings(block) == ()


def test_the_defaults_of_the_original_are_too_fine():
    for strategy in ("fixed_size", "memory_based", "adaptive_size", "low_latency"):
        assert warnings({"strategy": strategy})


@pytest.mark.parametrize("cost", [0.0, 0.0001])
def test_nothing_is_too_fine_where_commits_are_cheap(cost):
    assert warnings({"strategy": "fixed_size"}, cost) == ()
    assert warnings({"strategy": "memory_based"}, cost) == ()


def test_the_measured_cost_is_named():
    assert "about 7.25 s" in warnings({"strategy": "fixed_size"}, 7.25)[0]


def test_nothing_is_said_of_a_cost_that_was_not_measured():
    for strategy in ("fixed_size", "memory_based", "adaptive_size", "low_latency"):
        assert validate({"batch": {"strategy": strategy}}).warnings == ()


EFFECTS = [
    (
        {"batch": {"strategy": "mega_batch", "reuse_buffer": False}},
        "config['batch']['reuse_buffer']",
    ),
    ({"batch.strategy": "mega_batch", "batch.reuse_buffer": True}, "config['batch.reuse_buffer']"),
]


@pytest.mark.parametrize(("document", "where"), EFFECTS)
def test_a_setting_without_effect_is_named(document, where):
    for side in ("target", None):
        assert validate(document, side).warnings == (
            f"{where}: has no effect, as no flush has a buffer of its own that could be reused: "
            "lines go from the pipe straight to disk",
        )
    assert validate(document, "tap").warnings == ()


def test_its_default_is_not():
    assert validate({"batch": {"strategy": "mega_batch"}}, "target").warnings == ()


def test_a_warning_names_the_key_that_was_given():
    document = {"batch.strategy": "fixed_size", "sink.batch.size": "10"}
    first = after_commits(validate(document, "target"), 0.5)[0]
    assert first.startswith("config['sink.batch.size']: 10 rows")


def test_problems_come_without_cost_warnings():
    document = {"batch": {"strategy": "low_latency"}, "failure": {"policy": "x"}}
    assert validate(document, "target").warnings == ()


@calm
@given(batch_blocks())
def test_warnings_are_single_lines(block):
    lines = after_commits(validate({"batch": block}, "target"), 0.4)
    assert len(lines) <= 3
    for line in lines:
        assert line.startswith("config['batch']['")
        assert "\n" not in line
        assert line.count("a commit takes about") == ("reuse_buffer" not in line)
