"""Plans as lines of a dry run."""

from __future__ import annotations

from typing import Any

import pytest

from tap_spark.send.trials import files_text, plan_line
from tap_spark.state.stream_plans import Method, Resume, StreamPlan
from tap_spark.stream_config import StreamConfig

BY_KEY = {"resume": Resume.REPLICATION_KEY, "replication_key": "at"}
BY_FILE = {"resume": Resume.FILE_POSITION}
BY_LOG = {"resume": Resume.LOG_POSITION}


def line_of(method: Method, files: str | None = None, **more: Any) -> str:
    config = StreamConfig("s", "csv")
    return plan_line(StreamPlan("s", "s", config, {}, ("a", "at"), method=method, **more), files)


@pytest.mark.parametrize(
    ("method", "more", "expected"),
    [
        (Method.FULL_TABLE, {}, "FULL_TABLE of every row"),
        (Method.INCREMENTAL, BY_KEY, "INCREMENTAL by 'at' from the start"),
        (
            Method.INCREMENTAL,
            {**BY_KEY, "start_value": "2026-01-01", "end_value": 7},
            "INCREMENTAL by 'at' from \"2026-01-01\" to below 7",
        ),
        (Method.INCREMENTAL, BY_FILE, "INCREMENTAL by file and line, from the start"),
        (
            Method.INCREMENTAL,
            {**BY_FILE, "bookmark": {"files": {"a": {}, "b": {}}}},
            "INCREMENTAL by file and line, after 2 known file(s)",
        ),
        (Method.LOG_BASED, BY_LOG, "LOG_BASED from the start"),
        (
            Method.LOG_BASED,
            {**BY_LOG, "bookmark": {"version": 3}},
            'LOG_BASED after {"version": 3}',
        ),
    ],
)
def test_where_a_stream_begins(method: Method, more: dict[str, Any], expected: str) -> None:
    assert line_of(method, **more) == f"stream 's': {expected}; 2 column(s): a, at"


def test_keys() -> None:
    line = line_of(Method.INCREMENTAL, **BY_KEY, bookmark={"x": 1}, runs_since_keys=1)
    assert line.endswith("by 'at' from the start; 2 column(s): a, at; then the keys of every row")


def test_files() -> None:
    line = line_of(Method.FULL_TABLE, files_text(3, 1_234_567_890))
    assert line.endswith("; 3 file(s), 1,234.6 MB")
    line = line_of(Method.INCREMENTAL, files_text(1, 2_000_000, 500_000), **BY_FILE)
    assert line.endswith("; 1 file(s), 2.0 MB, 0.5 MB of it new")


def test_many_columns_are_cut() -> None:
    columns = tuple(f"c{number}" for number in range(11))
    line = plan_line(StreamPlan("s", "s", StreamConfig("s", "csv"), {}, columns))
    assert line.endswith("; 11 column(s): c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, ...")
