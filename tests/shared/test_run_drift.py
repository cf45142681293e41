"""Runs compared with the last one."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from own_logs import own_records

from shared.errors import RecordError, SettingsError
from shared.singer.run_summary import RunSummary, baseline_of, drift, summarized


def baseline(rows: int, **shares: float) -> dict:
    columns = {name: {"null_share": share, "min": 0, "max": 1} for name, share in shares.items()}
    return {"started_at": "", "rows": {"t": rows}, "columns": {"t": columns}}


@pytest.mark.parametrize(
    ("before", "now", "warns"),
    [
        (1000, 1999, False),
        (1000, 2000, True),
        (1000, 500, True),
        (1000, 501, False),
        (10, 60, False),
        (10, 0, True),
        (0, 99, False),
        (0, 100, True),
        (0, 0, False),
    ],
)
def test_rows(before: int, now: int, warns: bool) -> None:
    assert bool(drift(baseline(before), baseline(now))) is warns


def test_columns() -> None:
    last, now = baseline(9, a=0.0, b=0.5, c=0.2), baseline(9, a=0.1, b=0.45)
    assert drift(last, now) == [
        "stream 't', column 'a': 10% nulls, 0% in the last run",
        "stream 't', column 'c': missing, the last run had it",
    ]
    assert drift(last, {**baseline(9), "columns": {}}) == [], "without facts nothing is known"


@pytest.mark.parametrize(
    ("before", "now", "warns"),
    [
        ((0, 10), (0, 99), ""),
        ((1, 10), (1, 100), "values of another magnitude, 1 to 100; 1 to 10 in the last run"),
        ((1, 100), (1, 9.5), "values of another magnitude"),
        ((0, 0), (0, 0), ""),
        ((0, 9), (-1, 9), "negative values, -1 to 9"),
        ((-5, 9), (-9, 9), ""),
        ((1, 9), (7, 7), "one value only, 7 to 7"),
        ((7, 7), (8, 8), ""),
        (("a", "b"), ("x", "z"), ""),
        ((1, 2), ("1", "2"), "values of another type"),
        ((None, None), (1, 2), ""),
        ((1, 2), (None, 2), ""),
    ],
)
def test_ranges_of_values(before: tuple, now: tuple, warns: str) -> None:
    def run(rows: int, bounds: tuple) -> dict:
        facts = {"null_share": 0.0, "min": bounds[0], "max": bounds[1]}
        return {**baseline(rows), "columns": {"t": {"a": facts}}}

    actual = drift(run(100, before), run(150, now))
    assert len(actual) == bool(warns)
    assert not actual or actual[0].startswith(f"stream 't', column 'a': {warns}")
    assert drift(run(99, before), run(150, now)) == [], "few rows tell little"


def test_a_table_that_is_not_loaded() -> None:
    assert drift(baseline(5), {"rows": {}, "columns": {}}) == [
        "stream 't': no rows, 5 in the last run"
    ]


def run(path: Path, rows: int, error: Exception | None = None, *, dry: bool = False) -> None:
    with summarized("target-spark", str(path), warn_drift=True) as summary:
        summary.add_to_table("s", "t", committed=rows)
        if dry:
            summary.mark_dry()
        if error is not None:
            raise error


def test_a_run_is_compared_with_the_last_good_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run.json"
    run(path, 1000)
    run(path, 999)
    with pytest.raises(RecordError):
        run(path, 3, RecordError("bad"))
    run(path, 4, dry=True)
    assert not own_records(caplog)
    with caplog.at_level(logging.WARNING):
        run(path, 5)
    assert [record.message for record in own_records(caplog)] == [
        "stream 't': 5 rows, 999 in the last run"
    ]
    actual = json.loads(path.read_text())
    assert actual["drift"] == [own_records(caplog)[0].message]
    assert baseline_of(actual) == {
        "started_at": actual["started_at"], "rows": {"t": 5}, "columns": {},
    }  # fmt: skip


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"exit_code": 0}', '{"exit_code": 1}'])
def test_a_foreign_file_is_no_last_run(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    run(path, 1)
    assert "drift" not in json.loads(path.read_text())


def test_there_must_be_a_summary() -> None:
    with pytest.raises(SettingsError, match="--summary"), summarized("p", warn_drift=True):
        pass


def test_streams_of_the_tap() -> None:
    summary = RunSummary("tap-spark")
    summary.add("s", sent=7)
    actual = baseline_of(summary.as_dict(None))
    assert actual is not None
    assert actual["rows"] == {"s": 7}
