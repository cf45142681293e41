"""What the log of a Delta table shows without Spark: its end, and whether columns changed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from target_spark.destinations.lakes.delta import newest_commits
from target_spark.destinations.lakes.delta.newest_commits import (
    LogEnd,
    log_bytes,
    log_end,
    same_columns,
)

ADD = {"add": {"path": "a.parquet", "stats": '{"metaData":1}'.replace('"', "'")}}
INFO = {"commitInfo": {"operation": "WRITE", "userMetadata": "metaData protocol"}}


def commit(table: Path, version: int, *actions: dict[str, Any], spaces: str = "") -> None:
    log = table / "_delta_log"
    log.mkdir(exist_ok=True)
    lines = (json.dumps(action, separators=("," + spaces, ":" + spaces)) for action in actions)
    (log / f"{version:020d}.json").write_text("".join(f"{line}\n" for line in lines))


def end_of(table: Path) -> LogEnd:
    found = log_end(str(table))
    assert found is not None
    return found


@pytest.fixture
def table(tmp_path: Path) -> Path:
    commit(tmp_path, 0, INFO, {"protocol": {}}, {"metaData": {}})
    return tmp_path


def test_the_newest_commit_is_found(table: Path) -> None:
    assert end_of(table).version == 0
    for name in ("00000000000000000009.checkpoint.parquet", "_last_checkpoint", "9.json.tmp"):
        (table / "_delta_log" / name).write_text("{}")
    commit(table, 10, INFO)
    assert end_of(table).version == 10


def test_places_without_a_log(tmp_path: Path) -> None:
    assert log_end(None) is None
    assert log_end("s3://bucket/t") is None
    assert log_end(str(tmp_path)) is None
    (tmp_path / "_delta_log").mkdir()
    assert log_end(str(tmp_path)) is None
    assert log_bytes(None) is log_bytes("s3://bucket/t") is None
    assert log_bytes(str(tmp_path / "t")) == 0


def test_commits_of_rows_leave_the_columns(table: Path) -> None:
    first = end_of(table)
    assert same_columns(str(table), first, first)
    for version in (1, 2):
        commit(table, version, INFO, ADD)
    assert same_columns(str(table), first, end_of(table))
    assert log_bytes(str(table)) == sum(
        path.stat().st_size for path in (table / "_delta_log").iterdir()
    )


@pytest.mark.parametrize("spaces", ["", " "])
@pytest.mark.parametrize("action", ["metaData", "protocol"])
def test_other_commits_may_change_them(table: Path, action: str, spaces: str) -> None:
    first = end_of(table)
    commit(table, 1, INFO, {action: {}}, spaces=spaces)
    commit(table, 2, INFO, ADD)
    assert not same_columns(str(table), first, end_of(table))


def test_a_table_in_the_place_of_another_is_not_the_same(table: Path) -> None:
    first = end_of(table)
    (table / "_delta_log" / f"{0:020d}.json").unlink()
    assert not same_columns(str(table), first, LogEnd(0, first.identity))
    commit(table, 0, {"metaData": {"other": 1}})
    os.utime(table / "_delta_log" / f"{0:020d}.json", ns=(1, 1))
    assert not same_columns(str(table), first, end_of(table))
    commit(table, 1, INFO, ADD)
    assert not same_columns(str(table), first, end_of(table))


def test_what_would_take_long_is_not_read(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = end_of(table)
    for version in range(1, 22):
        commit(table, version, ADD)
    assert not same_columns(str(table), first, end_of(table))
    assert same_columns(str(table), first, LogEnd(20, (0, 0, 0)))
    monkeypatch.setattr(newest_commits, "_MOST_BYTES", 10)
    assert not same_columns(str(table), first, LogEnd(1, (0, 0, 0)))


def test_a_commit_that_is_gone_is_a_change(table: Path) -> None:
    first = end_of(table)
    commit(table, 2, ADD)
    assert not same_columns(str(table), first, end_of(table))
