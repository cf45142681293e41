"""A folder of any format holds nothing but data: readers need no options and no patterns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from file_tables import AB, Table, struct

from target_spark.destinations.folders import stored_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WIDER = struct("a bigint, c string, b string")
ROWS = [1, 2, 3]


def column(frame: Any) -> list[Any]:
    return sorted(int(value) for value in frame["a"])


def duck(sql: str) -> list[Any]:
    return sorted(int(value) for (value,) in duckdb.sql(f"select a from {sql}").fetchall())


Reader = Callable[[str], list[Any]]
READERS: dict[str, dict[str, Reader]] = {
    "parquet": {
        "duckdb": lambda t: duck(f"read_parquet('{t}/*.parquet')"),
        "duckdb, all names": lambda t: duck(f"read_parquet('{t}/*')"),
        "pandas": lambda t: column(pd.read_parquet(f"{t}/")),
        "pyarrow": lambda t: column(pq.read_table(f"{t}/").to_pandas()),
        "polars": lambda t: column(pl.read_parquet(f"{t}/")),
        "polars, lazy": lambda t: column(pl.scan_parquet(t).collect()),
        "polars, all names": lambda t: column(pl.read_parquet(f"{t}/*")),
    },
    "csv": {
        "duckdb": lambda t: duck(f"read_csv('{t}/*.csv')"),
        "duckdb, all names": lambda t: duck(f"read_csv('{t}/*')"),
        "polars": lambda t: column(pl.scan_csv(f"{t}/").collect()),
    },
    "json": {
        "duckdb": lambda t: duck(f"read_json('{t}/*.json')"),
        "duckdb, all names": lambda t: duck(f"read_json('{t}/*')"),
        "pyarrow": lambda t: column(ds.dataset(t, format="json").to_table().to_pandas()),
        "polars": lambda t: column(pl.scan_ndjson(f"{t}/").collect()),
    },
    "orc": {
        "pyarrow": lambda t: column(ds.dataset(t, format="orc").to_table().to_pandas()),
    },
}
PARTITIONED: dict[str, Reader] = {
    "duckdb": lambda t: duck(f"read_parquet('{t}/**/*.parquet')"),
    "pandas": lambda t: column(pd.read_parquet(f"{t}/")),
    "pyarrow": lambda t: column(pq.read_table(f"{t}/").to_pandas()),
    "polars": lambda t: column(pl.read_parquet(f"{t}/")),
}


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_folder, "GRACE_SECONDS", 0.0)


def loaded(folder: Path, form: str, **more: Any) -> str:
    """Load three times; a later run adds a column."""
    for rows, columns in (([(1, "x")], AB), ([(2, "z", "y")], WIDER), ([(3, "x")], AB)):
        t = Table(str(folder / "out"), form, **more)
        t.destination.commit(t.flush(columns, rows))
        t.destination.finish(t.request())
        t.destination.close()
    return str(t.folder)


@pytest.mark.parametrize("form", READERS)
def test_readers(tmp_path: Path, form: str) -> None:
    table = loaded(tmp_path, form)
    assert {name: read(table) for name, read in READERS[form].items()} == dict.fromkeys(
        READERS[form], ROWS
    )


def test_readers_of_partitions(tmp_path: Path) -> None:
    table = loaded(tmp_path, "parquet", partition_by=("b",))
    assert {name: read(table) for name, read in PARTITIONED.items()} == dict.fromkeys(
        PARTITIONED, ROWS
    )


@pytest.mark.spark
@pytest.mark.parametrize("form", READERS)
def test_spark(spark: SparkSession, tmp_path: Path, form: str) -> None:
    reader = spark.read.option("header", form == "csv")
    rows = reader.format(form).load(f"{loaded(tmp_path, form)}/").collect()
    assert sorted(int(row["a"]) for row in rows) == ROWS
