"""Forms of text columns, found batch by batch, and the types they leave possible."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tap_spark.sources.files import text_types
from tap_spark.sources.files.text_types import (
    add_forms,
    decide,
    forms_reader,
    holds_only_text,
    union,
)

VALUES = [
    "0", "-1", "007", "-0", "+1", "1" * 16, "9223372036854775808", "1" * 38, "1" * 39, "1.5",
    "2.50", "0.25", "-0.0", "1.123456789012345", "1" * 17 + ".25", "1e5", "NaN", "", " 1", "1\n",
    "true", "True", "2024-02-29", "2023-02-29", "0000-01-01", "2024-1-1", "2024-01-01 10:00:00",
    "2024-01-01T10:00:00.5", "2024-01-01T24:00:00", "2024-01-01T10:00:00Z",
    "2024-01-01T10:00:00+18:00", "2024-01-01T10:00:00+18:01", "é", "٣",
]  # fmt: skip


def kind(*values: str | None) -> str:
    return decide(add_forms(None, pa.array(values, pa.string()))).simpleString()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", None, "-20"], "bigint"),
        (["9223372036854775807", "-9223372036854775808"], "bigint"),
        (["1", "9223372036854775808"], "decimal(38,0)"),
        (["-" + "9" * 38], "decimal(38,0)"),
        (["1" * 39], "string"),
        (["1", "2.5"], "double"),
        (["1" * 16, "2.5"], "string"),
        (["1.50", "2.25"], "decimal(38,2)"),
        (["1.50", "2.5"], "string"),
        (["1.50", "2"], "string"),
        (["-0.0"], "double"),
        (["1" * 17 + ".25"], "string"),
        (["1.5\n"], "string"),
        (["2024-02-29"], "date"),
        (["2024-02-29", "1"], "string"),
        (["0000-01-01"], "string"),
        (["2024-01-01 10:00:00", "2024-01-01T10:00:00.123456"], "timestamp_ntz"),
        (["2024-01-01T10:00:00.1234567"], "string"),
        (["2024-01-01T10:00:00-18:00", "2024-01-01T10:00:00Z"], "timestamp"),
        (["2024-01-01T10:00:00-18:01"], "string"),
        ([None, None], "string"),
        ([], "string"),
    ],
)
def test_types_of_values(values, expected):
    assert kind(*values) == expected


@given(st.lists(st.sampled_from(VALUES), max_size=12), st.integers(0, 12), st.integers(1, 5))
def test_batches_tasks_and_samples_do_not_matter(values, cut, sample):
    whole = kind(*values)
    parts = [pa.array(part, pa.string()) for part in (values[:cut], values[cut:])]
    before = text_types._SAMPLE
    text_types._SAMPLE = sample
    try:
        one_task = add_forms(add_forms(None, parts[0]), parts[1])
        two_tasks = union([[add_forms(None, part)] for part in parts], 1)[0]
    finally:
        text_types._SAMPLE = before
    assert decide(one_task).simpleString() == decide(two_tasks).simpleString() == whole


@given(st.lists(st.sampled_from(VALUES), min_size=1, max_size=6), st.sampled_from(VALUES))
def test_what_is_settled_stays_settled(values, more):
    bits = add_forms(None, pa.array(values))
    assert holds_only_text(bits) == (decide(bits).simpleString() == "string")
    if holds_only_text(bits):
        assert holds_only_text(add_forms(None, pa.array([*values, more])) or 0)
        assert add_forms(bits, pa.array([more])) == bits


def test_a_task_gives_one_row():
    batches = [
        pa.record_batch({"c0": pa.array(part), "c1": pa.nulls(2, pa.string())})
        for part in (["1", "2"], ["3.5", None])
    ]
    (row,) = forms_reader(2)(batches)
    forms = row.column(0).to_pylist()[0]
    assert [decide(bits).simpleString() for bits in forms] == ["double", "string"]
    assert forms[1] is None
    (empty,) = forms_reader(2)([])
    assert empty.column(0).to_pylist() == [[None, None]]
    assert union([forms, [None, None]], 2) == forms
