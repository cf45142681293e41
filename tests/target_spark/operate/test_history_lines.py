"""The table of `target-spark history`. No Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.errors import AnalysisException
from terminals import on_terminal

from shared.errors import DestinationError
from target_spark.destinations.lakes import lake_table
from target_spark.destinations.lakes.iceberg.iceberg_format import IcebergFormat
from target_spark.destinations.lakes.lake_table import Mark, Place, TableHandle
from target_spark.operate.lake_histories import DeltaHistory, IcebergHistory
from target_spark.operate.rewind import history_lines, maintain, rewind
from target_spark.operate.table_history import TableCommit, TableHistory
from target_spark.operate.table_maintenance import LakeTables
from target_spark.run_settings import TargetConfig

RUN, SNAPSHOT = "0123456789abcdef", "8744736658442914487"


class Tables:
    """Tables with known histories."""

    def __init__(self, name: str, version: str, state: str) -> None:
        mark = Mark(RUN, name, f"{RUN}-000001", state=state, rows=1_234_567)
        self._history = TableHistory(
            name, Place(name, name), [TableCommit(version, 1e9, mark, None)]
        )

    def histories(self, _: Any) -> list[TableHistory]:
        return [self._history]


def lines(name: str, version: str, width: int | None) -> list[str]:
    state = json.dumps({"bookmarks": {name: {"replication_key_value": "2026-01-31T00:00:00"}}})
    tables: Any = Tables(name, version, state)
    return list(history_lines(tables, (), 20, as_json=False, width=width))


@pytest.mark.parametrize(("name", "version"), [("orders", "12"), ("a_long_name" * 9, SNAPSHOT)])
def test_a_terminal_gets_80_columns(name: str, version: str) -> None:
    head, line = lines(name, version, 80)
    assert head.startswith("time (UTC)")
    assert max(len(head), len(line)) <= 80
    # What `rewind --to` takes stays whole.
    assert line.startswith("2001-09-09T01:46:40")
    assert RUN[:12] in line


def test_a_pipe_gets_everything() -> None:
    _, line = lines("a_long_name" * 9, SNAPSHOT, None)
    assert SNAPSHOT in line
    assert "a_long_name" * 9 in line


def test_what_cannot_be_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A rewind must know the STATE of all tables."""
    for name in ("a/_delta_log", "b/_delta_log", "lost+found"):
        (tmp_path / name).mkdir(parents=True)
    entries = lake_table._entries

    def listed(url: str, options: Any) -> Any:
        if url.endswith("lost+found"):
            raise PermissionError(13, "Permission denied")
        return entries(url, options)

    def commits(_: Any, table: TableHandle) -> list[TableCommit]:
        if table.name.endswith("/b`"):
            raise AnalysisException("no log")
        mark = Mark(RUN, "a", f"{RUN}-000001", state='{"bookmarks": {}}')
        return [TableCommit("7", 1e9, mark)]

    monkeypatch.setattr(lake_table, "_entries", listed)
    monkeypatch.setattr(DeltaHistory, "commits", commits)
    conf = SimpleNamespace(get=lambda _, default: default, set=lambda *_: None)
    spark: Any = SimpleNamespace(newSession=lambda: SimpleNamespace(conf=conf))
    tables = LakeTables(TargetConfig(format="delta", path=str(tmp_path)), spark)
    [line] = history_lines(tables, (), 20, as_json=True)
    assert json.loads(line)["table"] == "a"
    unlisted, unread = (record.getMessage() for record in caplog.records)
    text = "the folder cannot be listed: Permission denied"
    assert unlisted == f"'lost+found' is left out: file '{tmp_path}/lost+found': {text}"
    assert unread.startswith(f"'b' is left out: file '{tmp_path}/b': no log")
    with pytest.raises(DestinationError, match="no log"):
        list(history_lines(tables, ("b",), 20, as_json=True))
    reports = Mock(return_value=Mock(lines=list, to_json=lambda: {"table": "a"}))
    monkeypatch.setattr(tables, "maintain", reports)
    monkeypatch.setattr(tables, "alone", lambda _: nullcontext())
    maintained = maintain(tables, (), dry_run=True)
    assert next(maintained) == '{"table": "a"}'
    with pytest.raises(DestinationError, match="no log"):
        next(maintained)
    with pytest.raises(DestinationError, match="/lost"):
        rewind(tables, RUN, (), force=False, dry_run=True)
    (tmp_path / "a" / "_delta_log").rmdir()
    with pytest.raises(DestinationError, match="no log"):
        list(history_lines(tables, (), 20, as_json=True))


def test_a_folder_of_iceberg_has_files_of_metadata(tmp_path: Path) -> None:
    files = (
        "a/metadata/v1.metadata.json",
        "b/metadata/version-hint.text",
        "theirs/metadata/notes.txt",
        "deep/metadata/metadata/00000-1f.gz.metadata.json",
    )
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    config = TargetConfig(format="iceberg", path=str(tmp_path))
    history = IcebergHistory(IcebergFormat(config), config)
    spark: Any = None
    assert sorted(history.tables(spark, pytest.fail)) == ["a", "b", "deep.metadata"]


OF_A_PROGRAM = f"""
import contextlib, sys
sys.path[:] = {sys.path!r}
import target_spark.cli
from test_history_lines import SNAPSHOT, Tables
tables = Tables("a_long_name" * 9, SNAPSHOT, "{{}}")
target_spark.cli._tables = lambda _: contextlib.nullcontext(tables)
sys.exit(target_spark.cli.main(["history"]))
"""


@pytest.mark.pipe
def test_the_command_knows_a_terminal(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OF_A_PROGRAM]
    shown = on_terminal(command, tmp_path).splitlines()
    assert [len(line) <= 80 for line in shown] == [True, True]
    piped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert SNAPSHOT in piped
