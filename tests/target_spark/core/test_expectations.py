"""Expectations of a run: what holds, what does not, and the error that names it."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from shared.errors import ExpectationError
from target_spark.config import target_config
from target_spark.core.balance import (
    Counts,
    Expectations,
    Profile,
    check_expectations,
    violations,
)
from target_spark.load.guards.expectations import ExpectationGuard

NOW = datetime(2026, 7, 1, 12, tzinfo=timezone.utc).timestamp()
ROWS = Profile(10, {"email": [2, "a", "z"], "at": [0, None, "2026-07-01T11:00:00+00:00"]})


@pytest.mark.parametrize(
    ("expected", "texts"),
    [
        (Expectations(), []),
        (Expectations(min_rows=10), []),
        (Expectations(min_rows=11), ["10 rows, at least 11"]),
        (Expectations(max_null_share={"email": 0.2}), []),
        (Expectations(max_null_share={"email": 0.19}), ["20.0% of column 'email'"]),
        (Expectations(max_null_share={"at": 0}), []),
        (Expectations(max_null_share={"nme": 1}), ["nulls of column 'nme' are not known"]),
        (Expectations(fresh_within={"at": 3600}), []),
        (Expectations(fresh_within={"at": 3599}), ["'at' is 3,600 s old, at most 3,599 s"]),
        (Expectations(fresh_within={"email": 9}), ["newest time in column 'email' is not known"]),
        (Expectations(min_rows=11, max_null_share={"email": 0}), ["10 rows", "20.0%"]),
    ],
)
def test_what_holds(expected: Expectations, texts: list[str]) -> None:
    actual = list(violations(expected, ROWS, NOW))
    assert len(actual) == len(texts)
    for text, wanted in zip(actual, texts, strict=True):
        assert wanted in text


def test_times_without_zone_are_in_utc() -> None:
    profile = Profile(1, {"at": [0, None, "2026-07-01T11:59:00"]})
    assert list(violations(Expectations(fresh_within={"at": 61}), profile, NOW)) == []
    assert list(violations(Expectations(fresh_within={"at": 59}), profile, NOW))


def test_a_run_without_rows_has_only_their_number() -> None:
    strict = Expectations(max_null_share={"x": 0}, fresh_within={"x": 1})
    assert list(violations(strict, Profile(), NOW)) == []
    assert list(violations(Expectations(min_rows=1), Profile(), NOW))


def test_rows_that_others_replaced_do_not_count() -> None:
    guard = ExpectationGuard(target_config({"path": "out"}))
    guard.add("a", Counts(committed=2, merged=4), {"id": [3, 1, 9]})
    guard.add("a", Counts(committed=-1, merged=1), {})
    profile = guard._profiles["a"]
    held = Expectations(min_rows=1, max_null_share={"id": 0.5})
    assert list(violations(held, profile, NOW)) == []
    (text,) = violations(Expectations(min_rows=2), profile, NOW)
    assert text.startswith("1 rows, at least 2")


def test_the_error_names_every_stream() -> None:
    wanted = {"a": Expectations(min_rows=99), "b": Expectations(min_rows=1)}
    with pytest.raises(ExpectationError) as caught:
        check_expectations(wanted, {"a": ROWS}, NOW)
    assert caught.value.exit_code == 11
    for text in ("stream 'a': 10 rows", "stream 'b': 0 rows", "expect"):
        assert text in str(caught.value)
    check_expectations({"a": Expectations(min_rows=1)}, {"a": ROWS}, NOW)
