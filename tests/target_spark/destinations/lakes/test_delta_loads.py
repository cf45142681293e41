"""What only Delta tables do: marks in its log, names, views, layouts."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lake_loads import Load, struct

from shared.errors import DestinationError, SettingsError
from target_spark.core.load_plans import Layout
from target_spark.destinations.destination import RefusedByStoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
Make = Callable[..., Load]


def row(number: int | None, text: str | None, **more: Any) -> dict[str, Any]:
    return {"id": number, "name": text, **more}


def test_delta_itself_refuses_a_flush_it_has(delta_load: Make) -> None:
    """As when the answer to a commit got lost: the destination knows nothing of it."""
    load = delta_load("id long, name string")
    flush = load.flush([row(1, "a")], token="r-000001")
    load.destination.commit(flush)
    again = load.other()
    again.destination.commit(again.flush([row(1, "a")], token="r-000001"))
    assert load.rows() == [(1, "a")]


def test_flushes_whose_numbers_do_not_rise_are_all_there(delta_load: Make) -> None:
    load = delta_load("id long, name string")
    for number in (5, 3, 4):
        load.destination.commit(load.flush([row(number, "x")], token=f"r-{number:06d}"))
    assert [number for number, _ in load.rows()] == [3, 4, 5]


def test_a_folder_that_holds_other_files_is_an_error(delta_load: Make, tmp_path: Path) -> None:
    folder = tmp_path / "lake" / "orders"
    folder.mkdir(parents=True)
    (folder / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(DestinationError, match="orders' holds files, but no table of this format"):
        delta_load("id long").load([{"id": 1}])


def test_odd_table_and_column_names_are_kept_or_made_legal(delta_load: Make) -> None:
    load = delta_load("`a b` long, `a.b` long, `a``c` long, `$x` long", keys=("a b", "a.b"),
                      method="upsert", table="we[i]rd {n}% #a'm`e ${x}")  # fmt: skip
    values = {"a b": 1, "a.b": 2, "a`c": 3, "$x": 4}
    load.load([values])
    load.load([values, {**values, "a b": 5}])
    names = [name for name, _ in load.columns()]
    assert names[1:] == ["a.b", "a`c", "$x"]
    assert sorted(load.rows()) == [(1, 2, 3, 4), (5, 2, 3, 4)]
    load.begin()
    load.struct = struct("a_b string, `a b` long, `a.b` long")
    load.load([{"a_b": "other", "a b": 1, "a.b": 3}])
    assert len({name for name, _ in load.columns()}) == 5


def test_tables_of_a_catalog(delta_load: Make) -> None:
    load = delta_load("id long, name string", keys=("id",), method="upsert",
                      in_catalog=True, table="From A Catalog!")  # fmt: skip
    load.load([row(1, "a")])
    load.load([row(1, "b")], noted=True)
    assert load.rows() == [(1, "b")]
    load.end()
    assert load.name.startswith("`spark_catalog`.`default`.`")


def test_a_record_in_one_column_has_a_typed_view(
    delta_load: Make, lake_spark: SparkSession
) -> None:
    load = delta_load("id long, data variant, _sdc_sequence long", keys=("id",), method="upsert",
                      in_catalog=True, table="documents")  # fmt: skip
    load.view = struct("id long, `it's` string, day date, n struct<a: int>, `a.b` decimal(5,2)")
    text = '{"id": 1, "it\'s": "x", "day": "2024-02-29", "n": {"a": 1}, "a.b": 1.5}'
    load.load([{"id": 1, "data": text}, {"id": 2, "data": '{"day": "no day"}'}])
    view = lake_spark.table("spark_catalog.default.documents_view").orderBy("id")
    assert view.columns == ["id", "_sdc_sequence", "it's", "day", "n", "a.b"]
    first, second = view.collect()
    assert (first[2], first[3], first[4].toJson(), first[5]) == (
        "x", dt.date(2024, 2, 29), '{"a":1}', Decimal("1.50"),
    )  # fmt: skip
    assert tuple(second) == (2, None, None, None, None, None)
    lake_spark.sql("DROP VIEW spark_catalog.default.documents_view")


def test_a_view_needs_a_catalog(delta_load: Make) -> None:
    load = delta_load("id long, data variant", view=struct("id long"))
    with pytest.raises(SettingsError, match="catalog"):
        load.load([{"id": 1, "data": "{}"}])


def test_comments_properties_and_constraints_come_from_the_schema(delta_load: Make) -> None:
    schema = {
        "description": "All the orders",
        "required": ["id"],
        "properties": {"id": {"type": "integer", "description": "it's the 'key'"}},
    }
    layout = Layout(properties={"delta.appendOnly": "true", "a'b": "c"})
    load = delta_load("id long not null, name string", keys=("id",), schema=schema, layout=layout)
    load.load([row(1, "a")])
    actual = load.spark.table(load.name).schema
    assert actual["id"].metadata["comment"] == "it's the 'key'"
    assert not actual["id"].nullable
    detail = load.spark.sql(f"DESCRIBE DETAIL {load.name}").first()
    assert detail["description"] == "All the orders"
    assert detail["properties"]["delta.appendOnly"] == "true"
    assert detail["properties"]["a'b"] == "c"


def test_partitions_clusters_and_compaction(delta_load: Make) -> None:
    layout = Layout(partition_by=("day",), cluster_by=("id",), compact=True)
    load = delta_load(
        "id long, name string, day date", keys=("id", "day"), method="upsert", layout=layout
    )
    days = [dt.date(2024, 1, 1), dt.date(2024, 1, 2)]
    for n in range(3):
        load.load([row(n, "a", day=day) for day in days])
    load.end()
    detail = load.spark.sql(f"DESCRIBE DETAIL {load.name}").first()
    assert detail["partitionColumns"] == ["day"]
    assert detail["numFiles"] == 2
    assert len(load.rows()) == 6
    other = delta_load("id long, name string", layout=Layout(cluster_by=("name",)), table="c")
    other.load([row(1, "a")])
    assert other.spark.sql(f"DESCRIBE DETAIL {other.name}").first()["clusteringColumns"] == ["name"]


def test_a_merge_reads_only_partitions_of_its_rows(delta_load: Make) -> None:
    load = delta_load("id long, name string, day date", keys=("id", "day"), method="upsert",
                      layout=Layout(partition_by=("day",)))  # fmt: skip
    load.load([row(n, "a", day=dt.date(2024, 1, 1 + n)) for n in range(5)])
    load.load([row(3, "b", day=dt.date(2024, 1, 4))])
    metrics = load.history()[0]["operationMetrics"]
    assert metrics["numTargetFilesRemoved"] == "1"
    predicate = json.dumps(load.history()[0]["operationParameters"])
    assert "2024-01-04" in predicate


def test_a_layout_that_cannot_be_is_an_error(delta_load: Make) -> None:
    for layout, text in (
        (Layout(partition_by=("truncate(4, id)",)), "by columns"),
        (Layout(cluster_by=("nothing",)), "no column 'nothing'"),
        (Layout(partition_by=("nothing",)), "no column 'nothing'"),
    ):
        with pytest.raises(SettingsError, match=text):
            delta_load("id long", layout=layout, table="bad").load([{"id": 1}])


@pytest.mark.parametrize(
    "limits",
    # The last one is what small tables of other tests have.
    [(-1, -1), (1 << 20, -1), pytest.param((1 << 20, 1 << 20), marks=pytest.mark.slow)],
)
def test_light_and_heavy_work_gives_the_same_table(
    delta_load: Make, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int]
) -> None:
    for name, limit in zip(("ONE_TASK_BYTES", "NO_CODE_BYTES"), limits, strict=True):
        monkeypatch.setattr(f"target_spark.destinations.lakes.delta.delta_format.{name}", limit)
    load = delta_load("id long not null, name string", method="upsert", keys=("id",))
    load.load([{"id": n, "name": "a"} for n in (1, 2, 3)])
    load.load([{"id": 2, "name": "b"}, {"id": 4, "name": "b"}])
    load.load([{"id": 2, "name": "c"}, {"id": 2, "name": "d"}])
    assert load.rows() == [(1, "a"), (2, "d"), (3, "a"), (4, "b")]
    assert [entry["operation"] for entry in load.history()] == [
        *("MERGE", "MERGE", "WRITE", "CREATE TABLE")
    ]
    with pytest.raises(RefusedByStoreError, match="id"):
        load.load([{"id": None, "name": "e"}])
    assert len(load.rows()) == 4
