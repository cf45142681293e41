"""Versions of rows in tables of lakes, against a model in plain Python."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from case_matrix import with_slow
from lake_loads import Load, struct

from shared.maps.record_metadata import DELETED_AT, IS_CURRENT, VALID_FROM, VALID_TO

Make = Callable[..., Load]
Row = dict[str, Any]
NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.timezone.utc)
DELETED = 0.25
TICK = dt.timedelta(microseconds=1)
METADATA = f"_sdc_received_at timestamp, {DELETED_AT} timestamp"
DDL = f"id long, name string, at timestamp, doc {{0}}, tags map<string, long>, {METADATA}"


@dataclass
class Model:
    """The versions that a table must have: of each key a list, and whether it is deleted."""

    ordered: bool
    versions: dict[Any, list[Row]] = field(default_factory=dict)

    def flush(self, rows: list[Row]) -> int:
        """Apply the records of a flush; return how many versions it adds."""
        count = 0
        for key in {row["id"] for row in rows}:
            own = [row for row in rows if row["id"] == key]
            existing = self.versions.setdefault(key, [])
            if self.ordered:
                own.sort(key=_order)
                least = _order(existing[-1]) if existing else dt.datetime.min
                own = [row for row in own if _order(row) >= least]
            count += sum(self._apply(existing, row) for row in own)
        return count

    def _apply(self, existing: list[Row], row: Row) -> bool:
        current = existing[-1] if existing and existing[-1][VALID_TO] is None else None
        time = row["_sdc_received_at"]
        if row[DELETED_AT] is not None:
            if current is not None:
                current[VALID_TO] = max(row[DELETED_AT], current[VALID_FROM] + TICK)
            return False
        if current is not None and _content(current) == _content(row):
            return False
        if self.ordered and row["at"] is not None:
            time = row["at"]
        if current is not None:
            current[VALID_TO] = time = max(time, current[VALID_FROM] + TICK)
        elif existing:
            time = max(time, existing[-1][VALID_TO] + TICK)
        existing.append({**row, VALID_FROM: time, VALID_TO: None})
        return True

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted((_shown(row) for rows in self.versions.values() for row in rows), key=repr)


def _order(row: Row) -> dt.datetime:
    return dt.datetime.min if row["at"] is None else row["at"].replace(tzinfo=None)


def _content(row: Row) -> list[Any]:
    return [row["name"], row["at"], json.loads(row["doc"]), row["tags"]]


def _shown(row: Row) -> tuple[Any, ...]:
    current = row[VALID_TO] is None
    times = (row[name] and row[name].replace(tzinfo=None) for name in (VALID_FROM, VALID_TO))
    return (row["id"], row["name"], *times, current)


def read(load: Load) -> list[tuple[Any, ...]]:
    """Return keys, names and versions, by another program than Spark if it knows the types."""
    variants = "variant" in load.struct.simpleString()
    columns = ("id", "name", VALID_FROM, VALID_TO, IS_CURRENT)
    if variants:
        return load.rows(*columns)
    rows = load.other_reader().rows
    assert all(row[IS_CURRENT] == (row[VALID_TO] is None) for row in rows)
    return sorted((_shown(row) for row in rows), key=repr)


def record(chance: Random, at: dt.datetime, docs: list[str]) -> Row:
    return {
        "id": chance.choice([None, 1, 2, 3]),
        "name": chance.choice(["a", "b", None]),
        "at": chance.choice([None, *(NOON + dt.timedelta(hours=n) for n in range(6))]),
        "doc": chance.choice(docs),
        "tags": chance.choice([[("x", 1), ("y", 2)], None]),
        "_sdc_received_at": at,
        DELETED_AT: at - dt.timedelta(minutes=9) if chance.random() < DELETED else None,
    }


@pytest.mark.spark
@pytest.mark.costly
@pytest.mark.server
@pytest.mark.parametrize("ordered", [False, pytest.param(True, marks=pytest.mark.slow)])
# The statements are those of both formats.
@with_slow("lake", ["delta"], ["iceberg"], indirect=True)
def test_random_records_become_versions(lake_load: Make, lake: str, ordered: bool) -> None:
    """Each flush is also committed twice."""
    chance = Random(ordered)
    order = ("at",) if ordered else ()
    docs = ['{"b":[1.50],"a":{}}', '{"a":{},"b":[1.5]}'] if ordered else ["[1]", "[2]"]
    ddl = DDL.format("variant" if ordered else "string")
    load = lake_load(ddl, keys=("id",), method="history", order_by=order)
    model, at = Model(ordered), NOON + dt.timedelta(days=1)
    for _ in range(4):
        parts = [[record(chance, at, docs) for _ in range(chance.randrange(9))] for _ in range(2)]
        flush = load.flush(*parts)
        reported = load.destination.commit(flush)
        added = model.flush([row for rows in parts for row in rows])
        load.destination.commit(flush)
        assert read(load) == model.rows()
        assert reported.rows == added
        at += dt.timedelta(microseconds=chance.choice([0, 1, 10**9]))
    assert any(len(rows) > 3 for rows in model.versions.values())


@pytest.mark.spark
@pytest.mark.costly
@pytest.mark.server
@with_slow("lake", ["iceberg"], ["delta"], indirect=True)
def test_a_table_gets_versions_columns_and_a_note(lake_load: Make) -> None:
    """Rows from before count as current, new columns make versions, replays are detected."""
    load = lake_load("id long, name string", keys=("id",), method="upsert")
    load.load([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    load = load.other(method="history")
    load.load([{"id": 1, "name": "a"}, {"id": 2, "name": "c"}], noted=True)
    load.struct = struct("id long, more long")
    load.load([{"id": 1, "more": None}, {"id": 2, "more": None}], noted=True)
    load.load([{"id": 1, "more": 5}], noted=True)
    columns = ("id", "name", "more", IS_CURRENT)
    rows = [(*row, start is None) for *row, start in load.rows(*columns, VALID_FROM)]
    assert sorted(rows, key=repr) == sorted(
        [(1, "a", None, False, True), (2, "b", None, False, True), (2, "c", None, True, False),
         (1, None, 5, True, False)],
        key=repr,
    )  # fmt: skip
    left = frozenset(load.noted)
    load.begin()
    assert load.recall() == left


@pytest.mark.spark
@pytest.mark.costly
@pytest.mark.server
def test_versions_of_others_in_between_are_seen(
    lake_load: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program commits after the source of the MERGE was planned, before it is read."""
    load = lake_load("id long, name string", keys=("id",), method="history")
    load.load([{"id": 1, "name": "a"}])
    other, form = load.other(), load.destination._form
    theirs, execute = other.flush([{"id": 1, "name": "b"}]), form.execute

    def late(*args: Any) -> None:
        monkeypatch.setattr(form, "execute", execute)
        other.destination.commit(theirs)
        execute(*args)

    monkeypatch.setattr(form, "execute", late)
    load.load([{"id": 1, "name": "c"}])
    other.end()
    assert load.rows("name", IS_CURRENT) == [("a", False), ("b", False), ("c", True)]
