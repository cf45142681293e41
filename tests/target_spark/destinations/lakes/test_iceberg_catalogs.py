"""Iceberg tables of real REST and Hive catalogs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from catalog_servers import CatalogProcess, CatalogServer
from lake_loads import IcebergLoad, run_together, struct
from lake_story import EXPECTED, STREAMS, actual, load_story, settings

from shared.spark.conf import SparkSettings
from target_spark.core.load_plans import Layout
from target_spark.run_settings import TargetConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
Make = Callable[..., IcebergLoad]


@pytest.fixture(scope="module")
def catalog_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogProcess]:
    """The Java process of the catalogs."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    process = CatalogProcess(
        tmp_path_factory.mktemp("catalogs"), home / "singer-spark-tests" / "ivy"
    )
    yield process
    process.stop()


@pytest.fixture(scope="module", params=["rest", "hive"])
def catalog(request: pytest.FixtureRequest, catalog_process: CatalogProcess) -> CatalogServer:
    """Each of the catalogs."""
    return catalog_process.rest() if request.param == "rest" else catalog_process.hive()


@pytest.fixture
def catalog_load(lake_spark: SparkSession, catalog: CatalogServer) -> Iterator[Make]:
    """Yield a function for loads into tables of the catalog."""
    created: list[IcebergLoad] = []

    def make(ddl: str, namespace: str = "loads", **changes: Any) -> IcebergLoad:
        config = TargetConfig(
            format="iceberg",
            catalog=catalog.kind,
            default_target_schema=namespace,
            spark=SparkSettings(app_name="tests", conf=catalog.conf),
        )
        created.append(IcebergLoad(lake_spark, config, struct(ddl), **changes))
        return created[-1]

    yield make
    for load in created:
        load.destination._close()


def row(number: int, text: str | None, **more: Any) -> dict[str, Any]:
    return {"id": number, "name": text, **more}


def read_back(catalog: CatalogServer, spark: SparkSession, name: str) -> Any:
    """Return the table as pyiceberg sees it: by the REST catalog, or by its newest file."""
    if catalog.kind == "rest":
        rest = pytest.importorskip("pyiceberg.catalog.rest").RestCatalog("tests", uri=catalog.uri)
        return rest.load_table(name)
    static = pytest.importorskip("pyiceberg.table").StaticTable
    log = spark.sql(f"SELECT file FROM hive.{name}.metadata_log_entries ORDER BY timestamp DESC")
    return static.from_metadata(log.first()[0])


def test_the_target_loads_by_every_method(
    catalog: CatalogServer, lake_spark: SparkSession, tmp_path: Path
) -> None:
    supplied = settings(
        format="iceberg",
        catalog=catalog.kind,
        default_target_schema="sales",
        spark={"conf": catalog.conf},
    )
    load_story(supplied, lambda: lake_spark, tmp_path)
    for name, text in catalog.conf.items():
        lake_spark.conf.set(name, text)
    for stream in STREAMS:
        table = read_back(catalog, lake_spark, f"sales.{stream}")
        assert actual(table.scan().to_arrow().to_pylist()) == EXPECTED[stream], stream


def test_two_writers_lose_no_row(catalog_load: Make) -> None:
    one = catalog_load("id long, name string", keys=("id",), method="upsert", table="together")
    one.load([row(0, "zero")])
    other = one.other(struct=struct("id long, name string, more long"))

    def write(load: IcebergLoad, first: int, **more: Any) -> None:
        for number in (first, first + 2):
            load.load([row(number, "x", **more), row(0, str(number), **more)])

    run_together(lambda: write(one, 1), lambda: write(other, 2, more=5))
    assert [number for (number,) in one.rows("id")] == list(range(5))


def test_streams_that_make_one_namespace_together_all_load(catalog_load: Make) -> None:
    for turn in range(3):
        loads = [
            catalog_load("id long", namespace=f"fresh{turn}", table=f"t{number}")
            for number in range(4)
        ]
        run_together(*(lambda load=load: load.load([{"id": 1}]) for load in loads))
        assert [load.rows() for load in loads] == [[(1,)]] * 4


def test_columns_layout_and_rows_change_in_one_commit(catalog_load: Make) -> None:
    layout = Layout(partition_by=("name",))
    load = catalog_load("id long, name string", method="overwrite", layout=layout, table="whole")
    load.load([row(1, "a")])
    load.end()
    before = len(load.history())
    load.begin()
    load.struct = struct("id string not null, more long")
    load.layout = Layout(partition_by=("bucket(2, id)",))
    load.load([{"id": "x", "more": 1}])
    load.end()
    assert load.rows() == [("x", 1)]
    assert load.columns() == [("id", "string"), ("more", "bigint")]
    assert load.partitions() == ["bucket(2, id)"]
    assert len(load.history()) == before + 1
