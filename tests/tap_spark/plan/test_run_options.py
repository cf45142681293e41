"""What the options of a run leave of settings, catalog and state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shared.errors import SettingsError
from tap_spark.config import TapConfig
from tap_spark.plan.run_options import (
    EVERYTHING,
    RunOptions,
    StreamRange,
    as_asked,
    chosen_catalog,
    chosen_settings,
    refreshed_state,
)
from tap_spark.state.stream_plans import Method, Resume, StreamPlan
from tap_spark.stream_config import ConnectionConfig, StreamConfig

NAMES = ("orders", "order_lines", "Orders", "log")
CATALOG: dict[str, Any] = {
    "streams": [
        *({"tap_stream_id": name, "stream": "x", "selected": True} for name in NAMES),
        {"tap_stream_id": "off", "selected": False, "metadata": [{"breadcrumb": []}]},
    ]
}


def names_of(catalog: Any) -> list[str]:
    return [entry["tap_stream_id"] for entry in catalog["streams"]]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (("orders",), ["orders"]),
        (("order*",), ["orders", "order_lines"]),
        (("log", "[oO]rders"), ["orders", "Orders", "log"]),
        (("*",), list(NAMES)),
    ],
)
def test_patterns_choose_streams(patterns: tuple[str, ...], expected: list[str]) -> None:
    options = RunOptions(streams=patterns)
    assert names_of(chosen_catalog(CATALOG, options)) == expected
    config = TapConfig(streams=tuple(StreamConfig(name, "csv", path="x") for name in NAMES))
    assert [item.name for item in chosen_settings(config, options).streams] == expected


def test_without_options_everything_stays() -> None:
    state = {"bookmarks": {"orders": {"a": 1}}}
    assert chosen_catalog(CATALOG, EVERYTHING) is CATALOG
    assert refreshed_state(state, EVERYTHING) is state


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (RunOptions(streams=("orders", "no*", "off")), "--streams 'no*', 'off' matches no stream"),
        (RunOptions(full_refresh=("no",)), "--full-refresh 'no' matches no stream"),
        (RunOptions(streams=("log",), full_refresh=("orders",)), "--full-refresh 'orders' matches"),
    ],
)
def test_a_pattern_that_matches_nothing(options: RunOptions, text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        chosen_catalog(CATALOG, options)
    assert str(caught.value).startswith(text)
    assert "streams: " in str(caught.value)


def test_patterns_are_checked_before_discovery() -> None:
    streams = tuple(StreamConfig(name, "csv", path="x") for name in NAMES)
    with pytest.raises(SettingsError, match=r"matches no stream.*\(streams: orders, order_lines, "):
        chosen_settings(TapConfig(streams=streams), RunOptions(streams=("no",)))
    lake = ConnectionConfig("lake", path="x")
    config = TapConfig(streams=streams, connections=(lake,))
    assert chosen_settings(config, RunOptions(streams=("no",))).streams == ()


def test_a_stream_that_failed_is_matched() -> None:
    options = RunOptions(streams=("gone", "log"), full_refresh=("gone",))
    assert names_of(chosen_catalog(CATALOG, options, ["gone"])) == ["log"]


def test_rows_of_a_limited_stream_have_its_version() -> None:
    plan = StreamPlan("s", "s", StreamConfig("s", "csv"), {}, ("a",), version=5, runs_since_keys=1)
    limited = as_asked(plan, RunOptions(limit=1))
    assert (limited.version, limited.runs_since_keys) == (5, None)
    assert as_asked(plan, EVERYTHING) is plan


def backfill(stream: str = "log", start: str = "1", end: str = "9") -> RunOptions:
    return RunOptions(backfill=StreamRange(stream, start, end))


def keyed(key_type: str = "long") -> StreamPlan:
    config = StreamConfig("log", "csv")
    return StreamPlan(
        "x",
        "log",
        config,
        {},
        ("k",),
        method=Method.INCREMENTAL,
        resume=Resume.REPLICATION_KEY,
        replication_key="k",
        key_type=key_type,
        start_value=3,
        end_value=5,
    )


def test_a_backfill_reads_one_stream_without_its_bookmark() -> None:
    options = backfill()
    assert names_of(chosen_catalog(CATALOG, options)) == ["log"]
    state = {"bookmarks": {"log": {"a": 1}, "orders": {"a": 1}}}
    assert refreshed_state(state, options) == {"bookmarks": {"log": {}, "orders": {"a": 1}}}
    plan = as_asked(keyed(), options)
    assert (plan.start_value, plan.end_value, plan.null_keys) == (1, 9, False)
    assert not options.reads_all
    with pytest.raises(SettingsError, match="--backfill 'lo\\*' matches no stream"):
        chosen_catalog(CATALOG, backfill("lo*"))


@pytest.mark.parametrize("options", [backfill(), RunOptions(limit=5)])
def test_a_part_of_a_stream_does_not_send_its_keys(options: RunOptions) -> None:
    plan = replace(keyed(), bookmark={"k": 1}, runs_since_keys=1)
    assert as_asked(plan, EVERYTHING).sends_keys
    assert as_asked(plan, RunOptions(streams=("log",))).sends_keys
    assert as_asked(plan, options).runs_since_keys is None


@pytest.mark.parametrize(
    ("plan", "options", "text"),
    [
        (keyed(), backfill(start="9"), "stream 'log': --from 9 is not below --to 9"),
        (keyed(), backfill(start="10"), "--from 10 is not below --to 9"),
        (keyed(), backfill(end="soon"), "stream 'log', setting '--to': does not fit"),
        (keyed("date"), backfill(), "setting '--from': .*date.*ISO 8601"),
        (keyed("integer"), backfill(end=str(2**31)), "--to.*2147483648 is outside of its range"),
        (keyed("byte"), backfill(start="-129"), "--from.*-129 is outside of its range"),
        (
            StreamPlan("log", "log", StreamConfig("log", "csv"), {}, ("k",)),
            backfill(),
            "stream 'log': --backfill needs a stream that is INCREMENTAL by a replication key",
        ),
    ],
)
def test_wrong_backfills(plan: StreamPlan, options: RunOptions, text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        as_asked(plan, options)


def test_bounds_have_the_order_of_the_key() -> None:
    plan = as_asked(keyed("timestamp"), backfill(start="2026-01-01T00:00+01:00", end="2026-01-01"))
    assert plan.start_value == "2025-12-31T23:00:00.000000+00:00"
    with pytest.raises(SettingsError, match="is not below"):
        as_asked(keyed("string"), backfill(start="9", end="10"))
    assert as_asked(keyed("integer"), backfill(start="9", end="10")).end_value == 10
    plan = as_asked(keyed("byte"), backfill(start="-128", end="127"))
    assert (plan.start_value, plan.end_value) == (-128, 127)


def test_only_the_bookmarks_of_refreshed_streams_are_emptied() -> None:
    state = {"bookmarks": {name: {"a": 1} for name in (*NAMES, "other")}, "more": 2}
    options = RunOptions(streams=("order*", "log"), full_refresh=("o*",))
    assert refreshed_state(state, options) == {
        "bookmarks": {
            "orders": {},
            "order_lines": {},
            "Orders": {"a": 1},
            "log": {"a": 1},
            "other": {"a": 1},
        },
        "more": 2,
    }
    assert state["bookmarks"]["orders"] == {"a": 1}
    of_run = refreshed_state(state, RunOptions(full_refresh=("*",)), ["log", "gone"])
    assert [name for name, mark in of_run["bookmarks"].items() if not mark] == ["log"]
    assert refreshed_state({}, options) == {}
