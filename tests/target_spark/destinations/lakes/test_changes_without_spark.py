"""Changes of rows of Delta tables without Spark: the rows are those that Spark makes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from changing_rows import DELETED, NOON, VALUES, chosen
from lake_loads import Load

from target_spark.destinations.lakes.lake_table import ACTIVATION

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
Make = Callable[..., Load]


def by_spark(load: Load) -> list[bool]:
    """Return whether Spark has made the commits of a table that have rows, the oldest first."""
    folder = Path(load.config.path) / load.table
    logs = sorted((folder / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    created = [line["commitInfo"] for line in lines if "commitInfo" in line]
    return [entry.get("engineInfo", "").startswith("Apache-Spark") for entry in created]


@pytest.mark.parametrize("case", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_rows_are_those_of_sparks_merge(delta_load: Make, case: int) -> None:
    chance = Random(case)
    kinds = dict(
        zip(("id", 'k"ey', "order", "v", "w"), chance.sample(list(VALUES), 5), strict=True)
    )
    ddl = ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())
    options: dict[str, Any] = {
        "keys": ("id", 'k"ey')[: chance.randrange(1, 3)],
        "method": "upsert",
        "hard_delete": case % 2 == 0,
        "order_by": ("order",) if case == 0 else (),
    }
    ddl += ", n struct<a: long, l: array<string>>, m map<string, double>, _sdc_deleted_at timestamp"
    created = [
        delta_load(ddl, table=f"t{alone}", engine="auto" if alone else "spark", **options)
        for alone in (True, False)
    ]
    for _ in range(2):
        parts = [
            [
                {
                    **chosen(chance, kinds),
                    DELETED: chance.choice([None, None, NOON]),
                    "n": chance.choice([None, {"a": 1, "l": ["x", None]}]),
                    "m": chance.choice([None, [("k", 0.5)]]),
                }
                for _ in range(chance.randrange(1, 8))
            ]
            for _ in range(2)
        ]
        for load in created:
            load.load(*parts)
    alone, other = created
    assert alone.rows() == other.rows()
    assert len(alone.other_reader().rows) == len(alone.rows())
    assert not any(by_spark(alone))
    assert any(by_spark(other))


@pytest.mark.parametrize("hard_delete", [pytest.param(True, marks=pytest.mark.slow), False])
def test_older_versions_are_changed(delta_load: Make, hard_delete: bool) -> None:
    created = [
        delta_load(
            "id long, v string, _sdc_table_version long, _sdc_deleted_at timestamp",
            table=f"t{alone}",
            engine="auto" if alone else "spark",
            hard_delete=hard_delete,
        )
        for alone in (True, False)
    ]
    for load in created:
        for version in (1, 2, None):
            rows = [{"id": version, "_sdc_table_version": version, DELETED: None}]
            load.load([*rows, {"id": 9, "_sdc_table_version": version, DELETED: NOON}])
        load.activate(2, at=1e9 + 0.000_001)
        load.activate(2, at=2e9)
    alone, other = created
    assert alone.rows() == other.rows()
    assert len(alone.rows()) == (4 if hard_delete else 6)
    assert not any(by_spark(alone))
    assert alone.marks()[0].token == ACTIVATION
    assert by_spark(other)[-1]


@pytest.mark.parametrize(
    ("table", "is_there"), [("t", False), pytest.param("a:b", True, marks=pytest.mark.slow)]
)
def test_what_the_package_cannot_use_is_changed_by_spark(
    delta_load: Make, monkeypatch: pytest.MonkeyPatch, table: str, is_there: bool
) -> None:
    ddl = "id long, v string, _sdc_table_version long, _sdc_deleted_at timestamp"
    load = delta_load(ddl, table=table, keys=("id",), method="upsert", hard_delete=True)
    first = {"id": 1, "v": "a", "_sdc_table_version": 1, DELETED: None}
    with monkeypatch.context() as hidden:
        if not is_there:
            hidden.setitem(sys.modules, "deltalake", None)
        load.load([first, {**first, "v": "b"}, {**first, "id": 2}])
        last = {**first, "v": "c", "_sdc_table_version": 2}
        load.load([last, {**first, "id": 2, DELETED: NOON}])
        load.activate(2, at=1e9)
    assert [row[:2] for row in load.rows()] == [(1, "c")]
