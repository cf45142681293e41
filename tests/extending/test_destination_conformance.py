"""The suite for authors of destinations, over our own ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from postgres_server import PASSWORD, Database
from pyarrow import dataset
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from target_spark.destinations.destination_declaration import BUILT_IN
from target_spark.run_settings import TargetConfig
from target_spark.testing import DestinationSuite, Row

OF_ALL_FILES = frozenset(
    f"test_{name}"
    for name in (
        *("is_declared_without_spark", "state_goes_out_behind_its_rows", "dry_run", "contract"),
        *("overwrite", "versions", "replays_are_detected", "a_repeated_commit_adds_nothing"),
        *("the_commit_tells_its_rows", "abort_leaves_nothing"),
    )
)
"""What does not depend on the format of files: `.ci/run` shows it with Parquet."""
OF_THE_MODEL = frozenset(
    f"test_{name}"
    for name in (
        *("state_goes_out_behind_its_rows", "new_columns", "upsert", "overwrite", "versions"),
        *("replays_are_detected", "a_repeated_commit_adds_nothing"),
    )
)
"""What `test_destination_model` and `test_cut_runs` show of the destination in `.ci/run`."""
OF_OTHER_TABLES = frozenset({"test_dry_run", "test_contract"})
"""What `.ci/run` shows with the tables of Delta, Parquet and PostgreSQL."""


class Suite(DestinationSuite):
    """Tables in a folder, read by other packages than the one that loads them."""

    SLOW: ClassVar[frozenset[str]] = frozenset()
    """Tests that are left to `make soak`."""

    @pytest.fixture(autouse=True)
    def _give_session(self, spark: SparkSession) -> None:
        self.spark = spark

    def session(self, config: TargetConfig) -> SparkSession:
        return self.spark

    def settings(self, folder: Path) -> dict[str, Any]:
        return {"path": str(folder / "out")}

    def read(self, folder: Path, table: str) -> list[Row]:
        path = folder / "out" / table
        return self.table(path).to_pylist() if self.is_table(path) else []

    def is_table(self, path: Path) -> bool:
        return path.is_dir()

    def table(self, path: Path) -> pa.Table:
        """Return the rows of a table that exists."""
        files = [str(file) for file in path.rglob("part-*")]
        return dataset.dataset(files, format=self.format, partitioning="hive").to_table()


@pytest.mark.spark
class TestParquet(Suite):
    format = "parquet"


@pytest.mark.spark
class TestOrc(Suite):
    format = "orc"
    SLOW = OF_ALL_FILES | {"test_verify"}


@pytest.mark.spark
class TestJson(Suite):
    format = "json"
    SLOW = OF_ALL_FILES | {"test_verify"}

    def read(self, folder: Path, table: str) -> list[Row]:
        place = folder / "out" / table
        rows = []
        for file in sorted(place.rglob("part-*")):
            above = dict(name.split("=", 1) for name in file.relative_to(place).parts[:-1])
            rows += [{**json.loads(line), **above} for line in file.read_text().splitlines()]
        return rows


@pytest.mark.spark
class TestCsv(Suite):
    format = "csv"
    SLOW = OF_ALL_FILES

    def table(self, path: Path) -> pa.Table:
        reader = self.spark.read.options(header=True, escape='"', inferSchema=True)
        return reader.csv(str(path)).toArrow()


class LakeSuite(Suite):
    @pytest.fixture(autouse=True)
    def _give_lakes(self, lake_spark: SparkSession) -> None:
        self.spark = lake_spark


@pytest.mark.spark
@pytest.mark.server
class TestDelta(LakeSuite):
    format = "delta"
    # The statements are those of Iceberg.
    SLOW = OF_THE_MODEL | {"test_history", "test_verify"}

    def is_table(self, path: Path) -> bool:
        return (path / "_delta_log").is_dir()

    def table(self, path: Path) -> pa.Table:
        # By default, nanoseconds, which end in the year 2262.
        options = dataset.ParquetReadOptions(coerce_int96_timestamp_unit="us")
        return DeltaTable(path).to_pyarrow_dataset(parquet_read_options=options).to_table()


@pytest.mark.spark
@pytest.mark.server
class TestIceberg(LakeSuite):
    format = "iceberg"
    # KEYS messages are a comparison and its repair, as for Delta.
    SLOW = OF_THE_MODEL | OF_OTHER_TABLES | {"test_keys"}

    def is_table(self, path: Path) -> bool:
        return (path / "metadata").is_dir()

    def table(self, path: Path) -> pa.Table:
        return StaticTable.from_metadata(str(path)).scan().to_arrow()


@pytest.mark.spark
@pytest.mark.server
class TestPostgreSql(Suite):
    format = "jdbc"
    SLOW = OF_THE_MODEL

    @pytest.fixture(autouse=True)
    def _give_database(self, postgres: Database) -> None:
        postgres.run("drop schema public cascade; create schema public")
        self.database = postgres

    def settings(self, folder: Path) -> dict[str, Any]:
        return {"jdbc": {"url": self.database.url, "user": "postgres", "password": PASSWORD}}

    def read(self, folder: Path, table: str) -> list[Row]:
        actual = self.database.run(f"select to_regclass('public.{table}')").strip()
        if not actual:
            return []
        lines = self.database.run(f"select row_to_json(t) from {table} t").splitlines()
        return [json.loads(line) for line in lines]


def test_every_destination_of_ours_is_here() -> None:
    suites = (TestParquet, TestOrc, TestJson, TestCsv, TestDelta, TestIceberg, TestPostgreSql)
    assert {suite.format for suite in suites} == {declared.name for declared in BUILT_IN}
