"""What only Iceberg tables do: catalogs, snapshots rolled back, names."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from lake_loads import IcebergLoad, struct

from shared.errors import SettingsError
from target_spark.core.load_plans import Layout
from target_spark.run_settings import TargetConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.server]
Make = Callable[..., IcebergLoad]
NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.timezone.utc)


def row(number: int | None, text: str | None, **more: Any) -> dict[str, Any]:
    return {"id": number, "name": text, **more}


DDL = (
    "id long not null, name string, at timestamp, local timestamp_ntz, day date, amount "
    "decimal(12,2), tags array<string>, raw binary, place struct<lat: double, `on map`: boolean>, "
    "counts map<string, int>, small tinyint"
)


def full_row(number: int) -> dict[str, Any]:
    return {
        "id": number, "name": f"n'{number}", "at": NOON, "local": dt.datetime(2024, 1, 1, 1),
        "day": dt.date(2024, 2, 29), "amount": Decimal("1.50"), "tags": ["x", None],
        "raw": b"\xff", "place": {"lat": 1.5, "on map": None}, "counts": [("a", 1)], "small": 7,
    }  # fmt: skip


@pytest.mark.parametrize("in_catalog", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_another_reader_sees_everything(iceberg_load: Make, in_catalog: bool) -> None:
    schema = {"description": "All orders", "properties": {"id": {"description": "it's the key"}}}
    load = iceberg_load(DDL, keys=("id",), method="upsert", schema=schema, in_catalog=in_catalog)
    load.load([full_row(n) for n in range(5)])
    load.load([{"id": 2, "name": "two"}])
    load.end()
    table = load.pyiceberg()
    rows = {r["id"]: r for r in table.scan().to_arrow().to_pylist()}
    empty = dict.fromkeys(full_row(2))
    assert rows == {**{n: full_row(n) for n in range(5)}, 2: {**empty, "id": 2, "name": "two"}}
    assert table.schema().identifier_field_names() == {"id"}
    assert table.schema().find_field("id").doc == "it's the key"
    assert table.properties["comment"] == "All orders"


def test_tables_of_a_catalog_have_schemas(iceberg_load: Make) -> None:
    load = iceberg_load("id long", in_catalog=True, default_target_schema="sales")
    load.load([{"id": 1}])
    assert load.name == "`warehouse`.`sales`.`orders`"
    assert load.other_reader().rows == [{"id": 1}]


def test_a_flush_that_was_rolled_back_is_committed_again(iceberg_load: Make) -> None:
    load = iceberg_load("id long, name string")
    load.load([row(1, "a")])
    first = load.history()[-1]["snapshot_id"]
    flush = load.flush([row(2, "b")])
    load.destination.commit(replace(flush, parts=()))
    kept = load.flush([row(3, "c")], noted=True)
    load.destination.commit(kept)
    catalog = load.name.partition(".")[0]
    load.sql(f"CALL {catalog}.system.rollback_to_snapshot('{{t}}', {first})")
    again = load.flush([row(3, "c")], token=kept.token, noted=True)
    load.destination.commit(again)
    assert load.rows() == [(1, "a"), (3, "c")]


def test_odd_names_are_kept_or_made_legal(iceberg_load: Make) -> None:
    load = iceberg_load(
        "`a b` long, `a.b` long, `a``c` long, `$x` long",
        keys=("a b", "a.b"),
        method="upsert",
        table="we[i]rd {n}% #a'm`.`e ${x}",
        default_target_schema="d b.o",
        layout=Layout(partition_by=("bucket(2, a.b)",), cluster_by=("a`c",)),
    )
    values = {"a b": 1, "a.b": 2, "a`c": 3, "$x": 4}
    load.load([values])
    load.load([values, {**values, "a b": 5}])
    names = [name for name, _ in load.columns()]
    assert "." not in "".join(names)
    assert [names[0], *names[2:]] == ["a b", "a`c", "$x"]
    assert load.rows() == [(1, 2, 3, 4), (5, 2, 3, 4)]
    load.begin()
    load.struct = struct("a_b string, `a b` long, `a.b` long")
    load.load([{"a_b": "other", "a b": 1, "a.b": 3}])
    assert len({name for name, _ in load.columns()}) == 5
    load.layout = replace(load.layout, compact=True)
    load.end()
    assert len(load.rows()) == 3


def test_a_catalog_nobody_described_is_an_error(lake_spark: SparkSession) -> None:
    config = TargetConfig(format="iceberg", catalog="nowhere")
    load = IcebergLoad(lake_spark, config, struct("id long"))
    with pytest.raises(SettingsError, match=r"spark\.sql\.catalog\.nowhere"):
        load.load([{"id": 1}])
