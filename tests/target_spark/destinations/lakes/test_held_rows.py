"""Rows that are held back until they are audited: what is published is what a plain load gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lake_loads import Load, struct
from pyspark.sql.types import StructType

from shared.errors import BalanceError, DestinationError, SettingsError
from target_spark.core.balance import Committed
from target_spark.core.load_plans import Part, TableName, TableRequest
from target_spark.destinations.destination import Flush
from target_spark.destinations.lakes.lake_table import Step, steps_of, summed_commits
from target_spark.tables.version_edit import VersionEdit

Make = Callable[..., Load]
DDL = "id long, v string, _sdc_deleted_at timestamp, _sdc_table_version bigint"


def flush(number: int, *parts: str, column: str = "id") -> Flush:
    request = TableRequest("s", StructType().add(column, "long"), TableName("t"))
    created = tuple(Part(name, 1, 10) for name in parts)
    return Flush("s", f"run-{number:06d}", None, request, created, state=f"state {number}")  # type: ignore[arg-type]


def test_flushes_in_a_row_become_one_step() -> None:
    edit = flush(1).request, VersionEdit(2, True, 0.0)
    held: list[Step] = [flush(1, "a"), flush(2), flush(3, "b", "c"), edit, flush(4), edit]
    [whole, *rest] = steps_of(held)
    assert isinstance(whole, Flush)
    assert [part.url for part in whole.parts] == ["a", "b", "c"]
    assert (whole.token, whole.state) == ("run-000003", "state 3")
    assert rest == [edit, edit]
    other = flush(2, "b", column="v")
    assert steps_of([flush(1, "a"), other]) == [flush(1, "a"), other], "of other columns"
    assert steps_of([flush(1)]) == []


def test_what_several_commits_tell() -> None:
    both = summed_commits([Committed(2, 3, by_key=True), Committed(4, 4, may_skip=True)])
    assert both == Committed(6, 7, by_key=True, may_skip=True)
    assert summed_commits([Committed(2), Committed()]) == Committed()
    assert summed_commits([]) == Committed(0)


def publish(load: Load, expected: str | None = None) -> None:
    """End the input, audit and publish, and end the stream."""
    load.end()
    assert load.operations.audit(lambda _: [expected] if expected else []) == []
    load.operations.publish()
    load.end()


def row(number: int, v: str | None = "x", version: int = 1, **more: Any) -> dict[str, Any]:
    return {"id": number, "v": v, "_sdc_table_version": version, **more}


GONE = {"_sdc_deleted_at": 0}


def appended(load: Load) -> None:
    load.load([row(2)], [row(3)])
    load.load([row(4, version=2)])


def activated(load: Load) -> None:
    load.load([row(2, version=2)])
    load.activate(2)


def other_columns(load: Load) -> None:
    load.load([row(1, "new"), row(2)])
    load.struct = struct("id long, w string, _sdc_deleted_at timestamp")
    load.load([{"id": 1, "w": "w"}, {"id": 3, "w": "w"}])


def merged(load: Load) -> None:
    load.load([row(1, "b"), row(2, "b")])
    load.load([row(2, "a"), row(3, "a")])
    load.load([row(3, "b", **GONE)])


Story = Callable[[Load], None]
STORIES: dict[str, tuple[Story, dict[str, Any], int]] = {
    "appended": (appended, {}, 1),
    "merged": (merged, {"method": "upsert", "hard_delete": True, "order_by": ("v",)}, 1),
    "other columns": (other_columns, {"method": "upsert"}, 1),
    "other columns appended": (other_columns, {}, 1),
    "activated": (activated, {}, 1),
    "activated and deleted": (activated, {"hard_delete": True, "method": "upsert"}, 1),
    "history": (merged, {"method": "history"}, 1),
    "overwritten": (appended, {"method": "overwrite"}, 1),
}
FAST = "activated"


@pytest.mark.parametrize(
    "story", [pytest.param(s, marks=() if s == FAST else pytest.mark.slow) for s in STORIES]
)
@pytest.mark.spark
@pytest.mark.server
def test_published_tables_are_those_of_plain_loads(delta_load: Make, story: str) -> None:
    run, supplied, commits = STORIES[story]
    keys = () if story == "appended" else ("id",)
    plain = delta_load(DDL, keys=keys, table="plain", **supplied)
    held = delta_load(
        DDL, keys=keys, table="held", write_audit_publish=True, in_catalog=story == "merged",
        **supplied,
    )  # fmt: skip
    for load in (plain, held):
        load.load([row(1, "a"), row(9, "a")])
        load.end() if load is plain else publish(load)
        load.begin()
        run(load)
        before = load.marks()
        assert (load is plain) == (load.rows("id") != [(1,), (9,)]) or story == "overwritten"
        load.end() if load is plain else publish(load, "v = 'never'")
    # Versions begin when they were loaded.
    columns = ("id", "v", *(("_sdc_is_current",) if story == "history" else ()))
    assert held.rows(*columns) == plain.rows(*columns)
    own = [mark for mark in held.marks()[: -len(before)] if mark.token is not None]
    assert len(own) == commits
    assert story == "merged" or not list(Path(held.config.path).glob(".held.run-*"))


@pytest.mark.spark
@pytest.mark.server
def test_what_ends_before_it_is_published(delta_load: Make) -> None:
    """A new table, another stream in it, commits of others, a repeated commit, other counts."""
    load = delta_load("id long, v string", write_audit_publish=True)
    load.destination.commit(again := load.flush([row(1)]))
    load.destination.commit(again)
    load.end()
    [actual] = load.operations.audit(lambda _: ["id = 1"])
    assert actual == "stream 'orders': 1 rows meet 'id = 1'"
    assert not (Path(load.config.path) / "orders").exists()
    with pytest.raises(SettingsError, match=r"'.*orders' is loaded by stream 'orders' too") as two:
        load.destination.prepare(load.other(stream="another").request)
    assert two.value.where.setting == "write_audit_publish"
    load.sql("CREATE TABLE {t} (id long) USING delta")
    [place] = load.operations.staged()
    with pytest.raises(DestinationError, match=r"others have committed .* in the table '/"):
        load.operations.publish()
    folder = place.removeprefix("the table '").rstrip("'")
    load.begin()
    assert load.spark.read.format("delta").load(folder).count() == 1, "it outlives the run"
    load.table = "counted"
    load.load([row(1)])
    load.end()
    [(_, table)] = load.destination.held_tables.waiting()
    table.copied = Committed(2)
    with pytest.raises(BalanceError, match=r"1 rows were published in .*, 2 were audited"):
        load.operations.publish()
