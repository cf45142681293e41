"""Patterns that Python's `re` would search for years: rejected, in seconds."""

from __future__ import annotations

import json
import multiprocessing
import signal
import threading
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.formats.json_lines import LineReader
from target_spark.validation import judge
from target_spark.validation.checks import LineChecker
from target_spark.validation.judge import (
    SlowPatternError,
    check_time,
    is_short,
    is_valid,
    reason,
    validator_of,
)

pytestmark = pytest.mark.once

EVIL = r"^(a+)+$"
TEXT = "a" * 60 + "!"
LIMIT = 1
HELPERS = judge._Helpers()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A helper of the test's own, with a shorter time limit."""
    helpers = judge._Helpers()
    monkeypatch.setattr(judge, "SECONDS", LIMIT)
    monkeypatch.setattr(judge, "_HELPERS", helpers)
    yield helpers
    helpers.close()


@pytest.mark.parametrize(
    ("schema", "record", "where"),
    [
        ({"properties": {"p": {"pattern": EVIL}}}, {"p": TEXT}, "property 'p'"),
        ({"properties": {"p": {"pattern": r"x*y(?=z)"}}}, {"p": "x" * 3_000_000}, "property 'p'"),
        ({"properties": {"p": {"items": {"not": {"pattern": EVIL}}}}}, {"p": ["", TEXT]}, "'p[1]'"),
        ({"patternProperties": {EVIL: {"type": "string"}}}, {TEXT: 1}, "!'"),
        ({"patternProperties": {EVIL: True}, "additionalProperties": False}, {TEXT: 1}, "!'"),
        ({"additionalProperties": False, "patternProperties": {EVIL: True}}, {TEXT: 1}, "!'"),
        (
            {
                "unevaluatedProperties": False,
                "$ref": "#/$defs/d",
                "$defs": {"d": {"patternProperties": {EVIL: True}}},
            },
            {TEXT: 1},
            "!'",
        ),
    ],
)
def test_a_slow_search_is_refused(schema: Any, record: Any, where: str) -> None:
    began = time.monotonic()
    validator = validator_of(schema)
    assert not is_valid(validator, record)
    said = reason(validator, record)
    assert said is not None
    assert where in said
    assert "matching the pattern '" in said
    assert "takes more than 1 s" in said
    assert "\n" not in said
    assert time.monotonic() - began < 10 * LIMIT


def test_many_records_take_no_longer() -> None:
    began = time.monotonic()
    schema = {"properties": {"p": {"type": "string", "pattern": EVIL}}}
    lines = [json.dumps({"p": text}) for text in [TEXT, "aaa", "b"] * 200]
    block = "".join(f"{line}\n" for line in lines).encode()
    reader = LineReader(schema, envelope=False, strict=True)
    actual = LineChecker(schema, envelope=False).fitting(reader.read(block), block)
    assert actual.table.column("p").to_pylist() == ["aaa"] * 200
    reported = dict(actual.rejects)
    assert "property 'p': matching the pattern '^(a+)+$' takes more than" in reported[0]
    assert "does not match" in reported[2]
    assert time.monotonic() - began < 10 * LIMIT


def test_in_any_thread() -> None:
    said: list[str | None] = []
    validator = validator_of({"properties": {"p": {"pattern": EVIL}}})
    thread = threading.Thread(target=lambda: said.append(reason(validator, {"p": TEXT})))
    thread.start()
    thread.join(20 * LIMIT)
    assert "takes more than" in str(said)


def _searched(answers: Any) -> None:
    check_time(EVIL, ["aaaa"])
    answers.put(judge._HELPERS._process is not None)


def test_a_forked_process_has_a_helper_of_its_own(soon: Any) -> None:
    check_time(EVIL, ["aaaa"])
    mine = soon._process
    fork = multiprocessing.get_context("fork")
    answers = fork.Queue()
    child = fork.Process(target=_searched, args=(answers,))
    child.start()
    assert answers.get(timeout=20)
    child.join()
    check_time(EVIL, ["aaaa"])
    assert soon._process is mine
    assert mine.poll() is None


SHORT = [
    r"^[A-Z]{2}-\d+$", r"^\+?[0-9]{7,15}$", r"[0-9]+", r"^[^@]+@[^@]+\.[a-z]{2,}$", r"^(foo|bar)?$",
    r"^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?)?$", r"(?i)^x",
    r"^(?!-).{1,63}$",
    r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "", "plain", "(",
]  # fmt: skip


@pytest.mark.parametrize("pattern", SHORT)
def test_common_patterns_need_no_helper(pattern: str, soon: Any) -> None:
    assert is_short(pattern, 100)
    check_time(pattern, ["x" * 100])
    assert soon._process is None


@pytest.mark.parametrize(
    "pattern",
    [EVIL, r"(a|aa)*b", r"(?:a?){30}a{30}", r"(.*,){20}x", r"(a|b|ab)*c", r"((a{1,9}){1,9}){1,9}x"],
)
def test_patterns_that_may_take_ages_are_tried_first(pattern: str) -> None:
    assert not is_short(pattern, 30)


def test_long_texts_are_tried_first(soon: Any) -> None:
    assert is_short(r"^[^@]+@[^@]+$", 1000)
    assert not is_short(r"^[^@]+@[^@]+$", 1_000_000)
    check_time(r"^[^@]+@[^@]+$", ["a" * 500_000 + "@" + "b" * 500_000])
    assert soon._process is not None


def test_texts_that_are_no_unicode() -> None:
    check_time(EVIL, ["\ud800aaa", "ü" * 20])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_helper_that_was_killed_is_no_verdict(soon: Any, number: int) -> None:
    check_time(EVIL, ["aa"])
    soon._process.send_signal(number)
    check_time(EVIL, ["aa"])
    check_time(r"(b+)+$", ["bb"])


def test_helpers_that_are_killed_are_no_verdict_of_years(
    soon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "_HELPER", "raise SystemExit")
    with pytest.raises(SlowPatternError):
        check_time(EVIL, ["aa"])


PARTS = st.sampled_from(
    ["a", "[ab]", ".", "a*", "b+?", "(a|b)", "(ab)?", "a{1,3}", "(?=a*)", "$", "(a+)+", "(a|ab)*",
     r"(a)\1", "(?:a?){9}", "(a*){2,5}", "((a|b)?){6}", "(?!b)", "(a*b*)*", r"\b"]
)  # fmt: skip


@given(st.lists(PARTS, max_size=4).map("".join), st.integers(0, 400), st.booleans())
@settings(deadline=None, max_examples=60)
def test_searches_that_are_said_to_be_short_are(pattern: str, times: int, anchored: bool) -> None:
    text = "a" * times + "b" * (times % 3) + "!"
    actual = f"^{pattern}" if anchored else pattern
    assert not is_short(actual, len(text)) or HELPERS.ends(actual, text)


def test_verdicts_are_those_of_the_library() -> None:
    """They are, also for patterns that the helper searches."""
    from jsonschema import Draft202012Validator

    schema = {
        "patternProperties": {"^(x+)+$": {"pattern": "(a|ab)*c$"}},
        "additionalProperties": {"type": "integer"},
        "unevaluatedProperties": False,
    }
    ours, theirs = validator_of(schema), Draft202012Validator(schema)
    records = [{"x": "abac"}, {"xx": "b"}, {"y": 1}, {"y": "c"}, {}, {"x": 1, "xy": 2}, [], "a"]
    for record in records:
        assert is_valid(ours, record) == theirs.is_valid(record)
        assert (reason(ours, record) is None) == theirs.is_valid(record)
