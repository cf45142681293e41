"""Whole runs whose rows are audited, on a branch or in a copy, before they are published."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from whole_runs import run_target

from shared.engine.engine import Engine
from shared.errors import AuditError, DestinationError, SingerSparkError
from target_spark.config import target_config
from target_spark.load.loader import Loader
from target_spark.operate.table_maintenance import LakeTables
from target_spark.run_settings import TargetConfig

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
STREAMS = ("added", "merged", "replaced")
METHODS = {
    "added": {"load_method": "append-only"},
    "merged": {"load_method": "upsert"},
    "replaced": {"load_method": "overwrite"},
}


def schema(stream: str, **more: Any) -> dict[str, Any]:
    properties = {"id": {"type": "integer"}, "v": {"type": ["null", "string"]}, **more}
    keys = [] if stream == "added" else ["id"]
    return {"type": "SCHEMA", "stream": stream, "schema": {"properties": properties},
            "key_properties": keys}  # fmt: skip


def record(stream: str, number: int, v: str | None = "x", **more: Any) -> dict[str, Any]:
    return {"type": "RECORD", "stream": stream, "record": {"id": number, "v": v, **more}}


def state(number: int) -> dict[str, Any]:
    marks = dict.fromkeys(STREAMS, number)
    return {"type": "STATE", "value": {"bookmarks": marks}}


class KilledError(SingerSparkError):
    """The run ends here."""


class Target:
    """Runs of the target into audited tables below one folder."""

    def __init__(self, spark: Any, folder: Path, form: str) -> None:
        self._spark, self._folder, self.form = spark, folder, form

    def config(self, **more: Any) -> TargetConfig:
        settings = {
            "format": self.form, "path": str(self._folder / "lake"), "batch_size_rows": 2,
            "staging": {"root": str(self._folder / "staging")}, "write_audit_publish": True,
            "streams": METHODS, "add_record_metadata": False,
        }  # fmt: skip
        return target_config({**settings, **more})

    def run(
        self, *messages: Any, change: Callable[[Loader], None] = lambda _: None, **more: Any
    ) -> int:
        """Run once; return how many STATE messages went out."""
        config = self.config(**more)
        loader = Loader(config, Engine.of(lambda: self._spark))
        change(loader)
        return len(run_target(config, loader, self._folder, messages))

    def table(self, name: str) -> Any:
        """Return the table as pyiceberg reads it."""
        static = pytest.importorskip("pyiceberg.table").StaticTable
        actual = (self._folder / "lake" / name / "metadata").glob("v*.metadata.json")
        newest = max(actual, key=lambda path: int(path.name[1:].partition(".")[0]))
        return static.from_metadata(str(newest))

    def rows(self, name: str, *columns: str, branch: str | None = None) -> list[tuple[Any, ...]]:
        if self.form == "delta":
            actual = deltalake_table(self._folder / "lake" / name).to_pyarrow_table().to_pylist()
            return sorted(tuple(row[c] for c in ("id", "v", *columns)) for row in actual)
        table = self.table(name)
        at = table.refs()[branch].snapshot_id if branch else None
        if at is None and table.current_snapshot() is None:
            return []
        actual = table.scan(snapshot_id=at).to_arrow().to_pylist()
        return sorted(tuple(row[c] for c in ("id", "v", *columns)) for row in actual)

    def all_rows(self) -> dict[str, list[tuple[Any, ...]]]:
        return {name: self.rows(name) for name in STREAMS}

    def branches(self) -> set[str]:
        """Return what waits: branches, or hidden folders of runs."""
        if self.form == "delta":
            return {str(path) for path in (self._folder / "lake").glob(".*.run-*")}
        return {ref for name in STREAMS for ref in self.table(name).refs()} - {"main"}

    def copied_rows(self, folder: str) -> list[tuple[Any, ...]]:
        """Return the rows of the table that a failed audit names, as a user reads it."""
        return sorted(map(tuple, self._spark.read.format("delta").load(folder).collect()))

    def histories(self) -> Any:
        return LakeTables(self.config(), self._spark).histories()


def deltalake_table(folder: Path) -> Any:
    return pytest.importorskip("deltalake").DeltaTable(str(folder))


@pytest.fixture(params=["iceberg", pytest.param("delta", marks=pytest.mark.slow)])
def target(lake_spark: Any, tmp_path: Path, request: Any) -> Target:
    """Return a target whose tables have rows already."""
    created = Target(lake_spark, tmp_path, request.param)
    first = [line for name in STREAMS for line in (schema(name), record(name, 1, "old"))]
    assert created.run(*first, state(1)) == 1
    return created


OLD = {name: [(1, "old")] for name in STREAMS}
LATER = [
    *(line for name in STREAMS for line in (schema(name), record(name, 2), record(name, 3))),
    *(record(name, number) for name in STREAMS for number in (4, 5)),
    state(2),
    record("merged", 1, "new"),
    state(3),
]
NEW = [(number, "x") for number in (2, 3, 4, 5)]
ALL = {"added": [(1, "old"), *NEW], "merged": [(1, "new"), *NEW], "replaced": NEW}


def test_all_tables_change_at_the_end(target: Target) -> None:
    seen: list[Any] = []

    def look(loader: Loader) -> None:
        audit = loader.audit
        loader.audit = lambda: (seen.append(target.all_rows()), audit())[1]  # type: ignore[func-returns-value,method-assign]

    wider = schema("replaced", n={"type": ["null", "integer"]})
    messages = [wider if line == schema("replaced") else line for line in LATER]
    assert target.run(*messages, change=look) == 1
    assert seen == [OLD], "all is committed, and nothing visible"
    assert target.all_rows() == ALL
    assert target.rows("replaced", "n") == [(*row, None) for row in NEW]
    assert target.branches() == set()
    histories = {history.name: history for history in target.histories()}
    flushes = [c for c in histories["added"].commits if c.mark is not None and c.mark.rows]
    rows = {"iceberg": [1, 2, 2], "delta": [1, 4]}[target.form]
    assert [commit.mark.rows for commit in flushes] == rows, "all flushes, or all in one commit"
    marks = [actual for _, actual in histories["merged"].marks(histories["merged"].newest).values()]
    assert [mark.state for mark in marks] == ['{"bookmarks":{"merged":3}}']
    for history in histories.values():
        assert list(history.lineage(history.newest))[::-1] == list(history.created), (
            "none is missing"
        )
        assert history.lost(history.created[0]) == [], "all are marked"


def test_a_failed_audit_leaves_the_rows(target: Target) -> None:
    conditions = ["v = 'x' AND id > 4", "id < 0", "nme = 1"]
    expect = {"no_rows_where": conditions, "min_rows": 9}
    streams = {**METHODS, "added": {**METHODS["added"], "expect": expect}}
    with pytest.raises(AuditError) as failed:
        target.run(*LATER, streams=streams)
    text = str(failed.value)
    assert "stream 'added': 4 rows, at least 9 are expected; " in text
    assert "stream 'added': 1 rows meet 'v = 'x' AND id > 4'" in text
    assert "the condition 'nme = 1' cannot be checked" in text
    assert "id < 0" not in text
    assert target.all_rows() == OLD
    if target.form == "iceberg":
        [branch] = target.branches()
        assert f"branch '{branch}' of '" in text
        assert target.rows("added", branch=branch) == ALL["added"]
        return
    [copy] = re.findall(r"the table '([^']*/\.added\.[^']*)'", text)
    assert target.copied_rows(copy) == ALL["added"]
    assert {history.name for history in target.histories()} == set(STREAMS), "it is hidden"


def kill(loader: Loader, point: int) -> None:
    """End the run: before the audit, before and between the tables, or before STATE."""
    operations: Any = loader._operations
    if point == 0:
        operations.audit = _die
    elif point == 3:
        audit = loader.audit
        loader.audit = lambda: _die(audit())  # type: ignore[func-returns-value,method-assign]
    else:
        held = operations.destination.held_tables
        calls, publish_one = [], held._publish

        def publish_some(*supplied: Any) -> Any:
            calls.append(supplied)
            return publish_one(*supplied) if len(calls) < point else _die()

        held._publish = publish_some


def _die(*_: Any) -> Any:
    raise KilledError("killed")


@pytest.mark.parametrize("points", [(1, 2), pytest.param((0, 3), marks=pytest.mark.slow)])
def test_a_run_that_is_killed_before_its_state(target: Target, points: tuple[int, ...]) -> None:
    """STATE never runs ahead, and the next run loads nothing twice."""
    for point in points:
        with pytest.raises(KilledError):
            target.run(*LATER, change=lambda loader, point=point: kill(loader, point))
        published = [name for name in STREAMS if target.rows(name) == ALL[name]]
        assert len(published) == {0: 0, 1: 0, 2: 1, 3: 3}[point]
        assert all(target.rows(name) == OLD[name] for name in STREAMS if name not in published)
    assert target.run(*LATER) == 1
    assert target.all_rows() == ALL


@pytest.mark.slow
def test_others_have_committed_meanwhile(target: Target, lake_spark: Any) -> None:
    def commit(loader: Loader) -> None:
        audit = loader._operations.audit

        def and_then(checks: Any) -> list[str]:
            plain = Target(lake_spark, target._folder, target.form)
            own: dict[str, Any] = {
                "write_audit_publish": False,
                "overlapping_runs": {"policy": "allow"},
            }
            plain.run(schema("added"), record("added", 9), state(9), **own)
            return audit(checks)

        loader._operations.audit = and_then  # type: ignore[method-assign]

    with pytest.raises(DestinationError, match=r"others have committed to .* since the run began"):
        target.run(*LATER, change=commit)
    assert target.all_rows() == {**OLD, "added": [(1, "old"), (9, "x")]}


@pytest.mark.slow
def test_a_version_without_rows_removes_those_before(target: Target) -> None:
    texts = {"properties": {name: {"type": "string"} for name in ("id", "v")}}
    version = {"type": "ACTIVATE_VERSION", "stream": "merged", "version": 1}
    rows = [schema("merged"), {**record("merged", 1), "version": 1}, version, state(2)]
    # A file with its header alone has text in all columns.
    header = [{**schema("merged"), "schema": texts}, {**version, "version": 2}, state(3)]
    for messages in (rows, header):
        assert target.run(*messages, add_record_metadata=True, hard_delete=True) == 1
    assert target.rows("merged") == []
