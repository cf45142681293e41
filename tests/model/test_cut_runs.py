"""Whole runs of the target over tables that something has happened to since a run was cut off."""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from case_matrix import with_slow
from model_stores import Store
from whole_runs import run_target

from shared.engine.engine import Engine
from target_spark.config import target_config
from target_spark.destinations.lakes import lake_work
from target_spark.destinations.lakes.lake_work import HISTORY
from target_spark.load.loader import Loader

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
# A database is one for all tests.
_PLACES = itertools.count()
AT = "2026-01-01T00:00:00Z"
SCHEMA = {
    "type": "SCHEMA",
    "stream": "s",
    "schema": {"properties": {"n": {"type": "integer"}, "time_extracted": {"type": "string"}}},
    "key_properties": [],
    "bookmark_properties": ["n"],
}


def record(number: int, inside: str = AT, outside: str = AT) -> dict[str, Any]:
    row = {"n": number, "time_extracted": inside}
    return {"type": "RECORD", "stream": "s", "record": row, "time_extracted": outside}


def state(number: int) -> dict[str, Any]:
    return {"type": "STATE", "value": {"bookmarks": {"s": number}}}


class Target:
    """Runs of the target in the tests' session, over one table."""

    def __init__(self, store: Store, spark: Any, folder: Path, **settings: Any) -> None:
        self.store, self.place = store, next(_PLACES)
        self._spark, self._folder = spark, folder
        staging = {"root": str(folder / "staging")}
        self._settings = {**store.settings(self.place), "staging": staging, **settings}

    def run(self, *messages: dict[str, Any] | str, alive: bool = False, **settings: Any) -> Loader:
        """Run the target once; with `alive` it neither ends nor releases what it owns."""
        config = target_config({**self._settings, **settings})
        loader = Loader(config, Engine.of(lambda: self._spark))
        release = loader.close
        if alive:
            loader.close = lambda: None  # type: ignore[method-assign]
            loader.finish = lambda *_, **__: {}  # type: ignore[method-assign]
        try:
            run_target(config, loader, self._folder, (SCHEMA, *messages))
        finally:
            loader.close = release  # type: ignore[method-assign]
        return loader

    def cut(self, *messages: dict[str, Any], alive: bool = False, **settings: Any) -> None:
        """Run the target on an input that ends as the tap dies: what came before is committed."""
        self.run(*messages, alive=alive, **settings)

    def numbers(self) -> Counter[int]:
        return Counter(row["n"] for row in self.store.rows(self.place, "s") or [])


@pytest.fixture
def target(store: Store, lake_spark: Any, tmp_path: Path) -> Target:
    return Target(store, lake_spark, tmp_path)


def rows(*numbers: int, **more: str) -> list[dict[str, Any]]:
    return [record(number, **more) for number in numbers]


ONCE = Counter(range(15))
# How records are compared is common to all of them; how they are noted is each one's own.
IN_ANY_STORE = with_slow("store", ["delta"], ["iceberg", "postgresql"], indirect=True)


def test_records_that_come_again_are_skipped(target: Target) -> None:
    target.cut(*rows(*range(10)))
    target.cut(*rows(*range(10), outside="2027-02-02T00:00:00Z"), *rows(10, 11))
    target.run(*rows(*range(15)), state(15))
    assert target.numbers() == ONCE
    target.run(*rows(*range(15)), state(15))
    assert target.numbers() == ONCE + ONCE, "the run before had ended well"


def test_all_are_loaded_into_a_table_that_was_emptied(target: Target, lake_spark: Any) -> None:
    target.cut(*rows(*range(10)))
    emptied(target, lake_spark)
    target.run(*rows(*range(15)), state(15))
    assert target.numbers() == ONCE


def test_all_are_loaded_into_a_table_that_was_dropped(target: Target, tmp_path: Path) -> None:
    target.cut(*rows(*range(10)))
    if target.store.name == "postgresql":
        target.store._database.run(f"drop table s{target.place}.s")
    else:
        shutil.rmtree(tmp_path / f"{target.store.name}-{target.place}" / "s")
    target.run(*rows(*range(15)), state(15))
    assert target.numbers() == ONCE


@IN_ANY_STORE
def test_equal_records_after_a_state_that_went_out_are_new(target: Target) -> None:
    target.cut(*rows(1, 1, 1, 1, 1), state(5))
    target.run(*rows(1, 1, 1, 1, 1), state(10))
    assert target.numbers() == {1: 10}


def test_records_beside_a_living_run_are_new(target: Target) -> None:
    target.cut(*rows(1, 2), alive=True)
    target.run(*rows(1, 2, 3), state(3), overlapping_runs={"policy": "allow"})
    assert target.numbers() == {1: 2, 2: 2, 3: 1}


@IN_ANY_STORE
def test_a_time_inside_of_the_record_counts(target: Target) -> None:
    target.cut(*rows(1, 2))
    target.run(*rows(1, 2, inside="2027-02-02T00:00:00Z"), state(2))
    assert target.numbers() == {1: 2, 2: 2}


@IN_ANY_STORE
def test_the_first_difference_ends_it(target: Target) -> None:
    target.cut(*rows(1, 2, 3))
    target.run(*rows(2, 3, 1), state(3))
    assert target.numbers() == {1: 2, 2: 2, 3: 2}


@IN_ANY_STORE
def test_it_can_be_turned_off(target: Target) -> None:
    target.cut(*rows(1, 2))
    target.run(*rows(1, 2), state(2), replays={"detect": False})
    assert target.numbers() == {1: 2, 2: 2}


def emptied(target: Target, spark: Any) -> None:
    """Delete every row, as another program does."""
    store = target.store
    if store.name == "postgresql":
        store._database.run(f"delete from s{target.place}.s")
    elif store.name == "delta":
        import deltalake

        deltalake.DeltaTable(str(store._folder / f"delta-{target.place}" / "s")).delete()
    else:
        name = "spark.sql.catalog.others"
        other = spark.newSession()
        other.conf.set(name, "org.apache.iceberg.spark.SparkCatalog")
        other.conf.set(f"{name}.type", "hadoop")
        other.conf.set(f"{name}.warehouse", str(store._folder / f"iceberg-{target.place}"))
        other.sql("DELETE FROM others.s")


@pytest.mark.parametrize(
    ("searched", "count"), [(2, 12), pytest.param(HISTORY, HISTORY + 30, marks=pytest.mark.slow)]
)
def test_a_note_of_more_commits_than_are_searched_at_first_is_searched_to_its_end(
    target: Target, monkeypatch: pytest.MonkeyPatch, searched: int, count: int
) -> None:
    monkeypatch.setattr(lake_work, "HISTORY", searched)
    target.cut(*rows(*range(count)), batch_size_rows=1)
    target.run(*rows(*range(count)), state(count))
    assert target.numbers() == Counter(range(count))
