"""State arithmetic: values, their order, and the bookmark after what was written."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import SourceError
from tap_spark.bookmarks import (
    advance,
    advance_positions,
    finish_stream,
    greater,
    load_state,
    normal_key,
    parse_key,
    start_stream,
)
from tap_spark.plans import Method, Resume, StreamPlan
from tap_spark.stream_config import StreamConfig

PLAN = StreamPlan(
    stream="s",
    tap_stream_id="s",
    config=StreamConfig(name="s", format="parquet", path="x"),
    schema={"properties": {}},
    columns=("k",),
    method=Method.INCREMENTAL,
    resume=Resume.REPLICATION_KEY,
    replication_key="k",
    key_type="long",
)
STATE = {"bookmarks": {"other": {"x": 1}}, "custom": [1]}


def bookmark(state):
    return state["bookmarks"].get("s")


def test_an_ordered_stream_moves_its_bookmark_at_once():
    state = advance(STATE, PLAN, 7, ordered=True)
    assert bookmark(state) == {"replication_key": "k", "replication_key_value": 7}
    assert state["custom"] == [1]
    assert state["bookmarks"]["other"] == {"x": 1}


def test_an_unordered_stream_keeps_markers_until_its_end():
    plan = replace(PLAN, start_value=3)
    old = {"bookmarks": {"s": {"replication_key": "k", "replication_key_value": 3, "mine": 1}}}
    state = advance(advance(old, plan, 9, ordered=False), plan, 5, ordered=False)
    mark = bookmark(state)
    assert mark["replication_key_value"] == 3
    assert mark["starting_replication_value"] == 3
    assert mark["progress_markers"]["replication_key_value"] == 9
    done = finish_stream(state, plan)
    assert bookmark(done) == {"replication_key": "k", "replication_key_value": 9, "mine": 1}


def test_only_null_keys_leave_the_bookmark_alone():
    old = {"bookmarks": {"s": {"replication_key": "k", "replication_key_value": 3}}}
    for ordered in (True, False):
        assert finish_stream(advance(old, PLAN, None, ordered=ordered), PLAN) == old


def test_a_bookmark_never_goes_backwards():
    old = {"bookmarks": {"s": {"replication_key": "k", "replication_key_value": 30}}}
    for ordered in (True, False):
        state = finish_stream(advance(old, PLAN, 29, ordered=ordered), PLAN)
        assert bookmark(state)["replication_key_value"] == 30


def test_markers_of_an_interrupted_run_are_dropped_at_the_start():
    mark = {
        "replication_key_value": 1,
        "starting_replication_value": 1,
        "progress_markers": {"x": 2},
    }
    assert bookmark(start_stream({"bookmarks": {"s": mark}}, PLAN)) == {"replication_key_value": 1}
    assert bookmark(start_stream({}, PLAN)) is None


def test_the_given_state_is_never_changed():
    old = {"bookmarks": {"s": {"progress_markers": {"replication_key_value": 3}}}}
    before = json.dumps(old)
    start_stream(old, PLAN)
    advance(old, PLAN, 4, ordered=False)
    advance_positions(old, PLAN, {"files": {}})
    finish_stream(old, PLAN)
    assert json.dumps(old) == before


def test_positions_replace_the_files_and_keep_the_rest():
    state = advance_positions(
        {"bookmarks": {"s": {"mine": 1, "files": {"a": 1}}}}, PLAN, {"files": {}}
    )
    assert bookmark(state) == {"mine": 1, "files": {}}


def test_full_table_streams_have_no_arithmetic():
    plan = replace(PLAN, method=Method.FULL_TABLE, resume=Resume.NOTHING, replication_key=None)
    assert advance(STATE, plan, 4, ordered=True) == STATE
    assert finish_stream(STATE, plan) == STATE


def test_not_a_number_never_becomes_a_bookmark():
    plan = replace(PLAN, key_type="double")
    state = advance({}, plan, "NaN", ordered=True)
    assert bookmark(state) in (None, {})
    assert greater("Infinity", 2.5, "double") == 2.5


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)), st.booleans())
def test_the_bookmark_is_the_maximum(values, ordered):
    state = {}
    for value in values:
        state = advance(state, PLAN, value, ordered=ordered)
    known = [value for value in values if value is not None]
    mark = bookmark(finish_stream(state, PLAN)) or {}
    assert mark.get("replication_key_value") == max(known, default=None)


@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=4), min_size=1))
def test_decimal_bookmarks_are_exact(values):
    plan = replace(PLAN, key_type="decimal(38,4)")
    state = {}
    for value in values:
        state = advance(state, plan, str(value), ordered=True)
    text = json.loads(json.dumps(bookmark(state)["replication_key_value"]))
    assert parse_key(text, "decimal(38,4)") == max(values)


@given(st.datetimes(), st.integers(-840, 840))
def test_timestamps_compare_in_utc(moment, minutes):
    sign = "-" if minutes < 0 else "+"
    offset = f"{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
    text = moment.isoformat(timespec="microseconds") + offset
    try:
        value = normal_key(text, "timestamp")
    except (OverflowError, ValueError):
        return
    assert value.endswith("+00:00")
    assert parse_key(value, "timestamp") == parse_key(text, "timestamp")


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("2024-01-02", "timestamp", "2024-01-02T00:00:00.000000+00:00"),
        ("2024-01-02T03:04:05Z", "timestamp", "2024-01-02T03:04:05.000000+00:00"),
        ("2024-01-02 03:04:05.1+02:00", "timestamp", "2024-01-02T01:04:05.100000+00:00"),
        ("2024-01-02T03:04", "timestamp_ntz", "2024-01-02T03:04:00.000000"),
        ("2024-01-02T23:00:00-02", "date", "2024-01-03"),
        ("2024-01-02", "date", "2024-01-02"),
        ("17", "long", 17),
        (17.0, "integer", 17),
        (1.5, "double", 1.5),
        ("12345678901234567890.12", "decimal(38,2)", "12345678901234567890.12"),
        ("1.50", "decimal(10,2)", 1.5),
        (12, "decimal(38,0)", 12),
        ("é", "string", "é"),
        (5, "string", "5"),
    ],
)
def test_normal_key(value, kind, expected):
    assert normal_key(value, kind) == expected


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("x", "long"),
        (1.5, "long"),
        (True, "long"),
        (None, "string"),
        ("NaN", "decimal(10,2)"),
        ("Infinity", "long"),
        ("yesterday", "timestamp"),
        (5, "date"),
        ("2024-13-01", "date"),
        ("x", "double"),
    ],
)
def test_values_of_another_type_are_refused(value, kind):
    with pytest.raises(ValueError):
        normal_key(value, kind)


def test_strings_compare_as_spark_compares_them():
    # UTF-16 would put the emoji below the private use character.
    assert greater("\ue000", "\U0001f600", "string") == "\U0001f600"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", {}),
        ("", {}),
        ("null", {}),
        ('{"bookmarks": {"s": {"replication_key_value": 1}}}',) * 1
        + ({"bookmarks": {"s": {"replication_key_value": 1}}},),
        ('{"type": "STATE", "value": {"bookmarks": {}}}', {"bookmarks": {}}),
        ('{"a": 1}\n{"bookmarks": {}}\n', {"bookmarks": {}}),
        ('{"type":"STATE","value":{"a":1}}\n{"type":"STATE","value":{"a":2}}\n', {"a": 2}),
        ('{\n  "bookmarks": {}\n}\n', {"bookmarks": {}}),
    ],
)
def test_load_state(tmp_path, text, expected):
    path = tmp_path / "state.json"
    path.write_text(text)
    assert load_state(str(path)) == expected


@pytest.mark.parametrize("text", ["[]", '{"bookmarks": 3}', '{"bookmarks": {"s": 1}}', "{", "\xff"])
def test_a_wrong_state_is_refused(tmp_path, text):
    path = tmp_path / "state.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(SourceError) as caught:
        load_state(str(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_state_is_refused(tmp_path):
    with pytest.raises(SourceError, match="cannot read the state"):
        load_state(str(tmp_path / "no.json"))
