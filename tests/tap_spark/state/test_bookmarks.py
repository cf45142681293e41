"""Bookmarks: values, their order, and the state after rows were written."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime, timedelta
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import SourceError
from shared.formats.date_numbers import moment_text, parse_moment
from tap_spark.state.bookmarks import (
    advance,
    advance_positions,
    end_stream,
    finish_stream,
    greater_bookmark,
    load_state,
    normal_key,
    parse_key,
    start_stream,
)
from tap_spark.state.stream_plans import Method, Resume, StreamPlan
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


@pytest.mark.parametrize("text", ["1e999999999", "-1e41", "1.5", "nan", "x"])
def test_what_is_no_integer_of_a_key_is_rejected_at_once(text):
    with pytest.raises(ValueError, match="is not a valid long"):
        parse_key(text, "long")
    assert parse_key("1e18", "long") == 10**18


def test_runs_without_the_keys_of_all_rows_are_counted():
    config = StreamConfig(name="s", format="parquet", path="x", deletes_every=2)
    plan = replace(PLAN, config=config, bookmark={"replication_key_value": 3})
    marks = [
        bookmark(end_stream(STATE, replace(plan, runs_since_keys=runs))) for runs in (None, 1, 2)
    ]
    assert marks == [{}, {"runs_since_keys": 1}, {"runs_since_keys": 0}]


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
    advance_positions(PLAN, {"files": {}}, old)
    finish_stream(old, PLAN)
    assert json.dumps(old) == before


def test_positions_replace_the_files_and_keep_the_rest():
    old = {"bookmarks": {"s": {"mine": 1, "files": {"a": 1}}}}
    state = advance_positions(PLAN, {"files": {}}, old)
    assert bookmark(state) == {"mine": 1, "files": {}}


def test_a_key_that_the_source_ordered_replaces_what_was_observed():
    plan = replace(PLAN, key_type="string")
    state = advance({}, plan, "9", ordered=False)
    said = {"replication_key": plan.replication_key, "replication_key_value": "100"}
    state = finish_stream(advance_positions(plan, said, state), plan)
    assert bookmark(state) == said


def test_full_table_streams_do_not_change_the_state():
    plan = replace(PLAN, method=Method.FULL_TABLE, resume=Resume.NOTHING, replication_key=None)
    assert advance(STATE, plan, 4, ordered=True) == STATE
    assert finish_stream(STATE, plan) == STATE


def test_not_a_number_never_becomes_a_bookmark():
    plan = replace(PLAN, key_type="double")
    state = advance({}, plan, "NaN", ordered=True)
    assert bookmark(state) in (None, {})
    assert greater_bookmark("Infinity", 2.5, "double") == 2.5


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)), st.booleans())
def test_the_bookmark_is_the_maximum(values, ordered):
    state = {}
    for value in values:
        state = advance(state, PLAN, value, ordered=ordered)
    existing = [value for value in values if value is not None]
    mark = bookmark(finish_stream(state, PLAN)) or {}
    assert mark.get("replication_key_value") == max(existing, default=None)


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
        ("2024-01-02T23:00:00-02", "date", "2024-01-02"),
        ("2026-01-02T00:30:00+02:00", "date", "2026-01-01"),
        ("2026-01-02T00:30:00+02:00", "timestamp_ntz", "2026-01-01T22:30:00.000000"),
        ("2026-01-01T22:30:00-02:00", "timestamp_ntz", "2026-01-01T22:30:00.000000"),
        ("9999-12-31T23:59:59-05:00", "timestamp", "+10000-01-01T04:59:59.000000+00:00"),
        ("0001-01-01T00:00:00+01:00", "timestamp", "0000-12-31T23:00:00.000000+00:00"),
        ("+294247-01-10T04:00:54.775807Z", "timestamp", "+294247-01-10T04:00:54.775807+00:00"),
        ("-4712-01-01", "date", "-4712-01-01"),
        ("+20000-02-29", "date", "+20000-02-29"),
        ("20000-02-29T01:02:03", "timestamp_ntz", "+20000-02-29T01:02:03.000000"),
        ("+5881580-07-11", "date", "+5881580-07-11"),
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
        (True, "string"),
        ({"a": 1}, "string"),
        (["a"], "string by value"),
        ({"a": 1}, "timestamp"),
        ([1], "double"),
        ("NaN", "decimal(10,2)"),
        ("Infinity", "long"),
        ("yesterday", "timestamp"),
        (5, "date"),
        ("2024-13-01", "date"),
        ("+20001-02-29", "date"),
        ("2024-01-01T24:00:00", "timestamp"),
        ("2024-01-01T00:00:00+99:00", "timestamp"),
        ("+294247-01-10T04:00:54.775808Z", "timestamp"),
        ("+5881580-07-12", "date"),
        ("infinity", "timestamp"),
        ("x", "double"),
    ],
)
def test_values_of_another_type_are_refused(value, kind):
    with pytest.raises(ValueError):
        normal_key(value, kind)


@given(st.datetimes())
def test_moments_agree_with_python_within_its_years(moment):
    micros = parse_moment(moment.isoformat(), "timestamp_ntz")
    assert micros == (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    assert datetime.fromisoformat(moment_text(micros, "timestamp_ntz")) == moment
    days = parse_moment(moment.date().isoformat(), "date")
    assert days == (moment.date() - date(1970, 1, 1)).days
    assert moment_text(days, "date") == moment.date().isoformat()


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1))
def test_moments_of_all_years_come_back(micros, days):
    for kind in ("timestamp", "timestamp_ntz"):
        assert parse_moment(moment_text(micros, kind), kind) == micros
    assert parse_moment(moment_text(days, "date"), "date") == days


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamp_ntz"])
def test_bookmarks_of_all_years_keep_their_order(kind):
    years = ["-4712-01-01", "0000-06-01", "2026-01-01", "+20000-01-01", "+290000-12-31"]
    plan = replace(PLAN, key_type=kind)
    for values in permutations(years, 2):
        state = {}
        for value in values:
            state = advance(state, plan, value, ordered=False)
        actual = bookmark(finish_stream(state, plan))["replication_key_value"]
        assert actual.startswith(max(values, key=years.index))


@pytest.mark.parametrize(
    ("kind", "endless"),
    [
        ("date", "9999-12-31"),
        ("date", "0001-01-01"),
        ("timestamp", "9999-12-31T23:59:59.999999+00:00"),
        ("timestamp_ntz", "0001-01-01T00:00:00.000000"),
        ("double", "Infinity"),
    ],
)
def test_an_infinite_key_is_not_a_bookmark(kind, endless):
    plan = replace(PLAN, key_type=kind)
    value = 1.5 if kind == "double" else normal_key("2026-01-01", kind)
    old = {"bookmarks": {"s": {"replication_key": "k", "replication_key_value": value}}}
    for state in (old, {"bookmarks": {"s": {"replication_key_value": endless}}}):
        actual = finish_stream(advance(state, plan, endless, ordered=True), plan)
        assert actual == state
    healed = advance(
        {"bookmarks": {"s": {"replication_key_value": endless}}}, plan, value, ordered=True
    )
    assert bookmark(healed)["replication_key_value"] == value


def test_strings_compare_as_spark_compares_them():
    # UTF-16 would put the emoji below the private use character.
    assert greater_bookmark("\ue000", "\U0001f600", "string") == "\U0001f600"


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
        ('\ufeff{"bookmarks": {}}', {"bookmarks": {}}),
        *(
            (f'{{"a":1}}\n{{"bookmarks":{{}},"a":"{end}z"}}\r\n', {"bookmarks": {}, "a": f"{end}z"})
            for end in ("\u2028", "\u2029", "\x85")
        ),
        ('{\n  "bookmarks": {}\n}\n', {"bookmarks": {}}),
        ('{"value": {"bookmarks": {"s": {}}}}', {"bookmarks": {"s": {}}}),
        ('{"type": "STATE", "value": null}', {}),
        ('{"value": 3, "bookmarks": {}}', {"value": 3, "bookmarks": {}}),
    ],
)
def test_load_state(tmp_path, text, expected):
    path = tmp_path / "state.json"
    path.write_text(text, encoding="utf-8")
    assert load_state(str(path)) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("[]", '{"bookmarks": 3}', '{"bookmarks": {"s": 1}}', "{", "\xff", "[" * 100_000),
        '{"streams": [], "stream_map_config": {"hash_salt": "x"}}',
        '{"connections": []}',
    ],
)
def test_a_wrong_state_is_refused(tmp_path, text):
    path = tmp_path / "state.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(SourceError) as caught:
        load_state(str(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"singer_state": {"bookmarks": {}}}', "inside 'singer_state'"),
        ('{"singer_state": {"custom": 1}}', "inside 'singer_state'"),
        ('{"completed": {"singer_state": {"bookmarks": {}}}}', "inside 'completed.singer_state'"),
        ('{"type": "STATE", "value": {"state": {"bookmarks": {}}}}', "inside 'state'"),
        ('{"orders": {"replication_key_value": 3}}', "inside 'orders'"),
        ('{"bookmarks": {}}\n{"type": "RECORD", "record": {"ssn": 1}}', "of type RECORD, so"),
        ('{"type": "SCHEMA", "stream": "s", "schema": {}}', "of type SCHEMA, so that all rows"),
        ('{"type": "STATE", "value": {"a": 2}}', "has no 'bookmarks'"),
        ('{"orders": {"at": "2026-01-03"}}', "has no 'bookmarks'"),
    ],
)
def test_a_state_without_bookmarks_is_refused(tmp_path, text, problem):
    path = tmp_path / "state.json"
    path.write_text(text)
    with pytest.raises(SourceError, match=problem):
        load_state(str(path))


def test_a_state_that_is_missing_is_that_of_a_first_run(tmp_path):
    assert load_state(str(tmp_path / "state.json")) == {}
    with pytest.raises(SourceError, match="its folder is missing"):
        load_state(str(tmp_path / "no" / "state.json"))
