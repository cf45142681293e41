"""Fixtures of the tests of Delta and Iceberg tables as a destination."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lake_loads import CATALOGS, DeltaLoad, IcebergLoad, Load, lake_config, struct

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = (
    "type_conflicts",
    "column_names",
    "default_target_schema",
    "engine",
    "maintenance",
    "write_audit_publish",
)


@pytest.fixture
def any_load(lake_spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Yield a function for loads into tables of a format, below a folder or in a catalog."""
    created: list[Load] = []

    def make(form: str, ddl: str, *, in_catalog: bool = False, **changes: Any) -> Load:
        supplied = {name: changes.pop(name) for name in SETTINGS if name in changes}
        config = lake_config(form, tmp_path, in_catalog=in_catalog, **supplied)
        kind = DeltaLoad if form == "delta" else IcebergLoad
        created.append(kind(lake_spark, config, struct(ddl), **changes))
        return created[-1]

    yield make
    for load in created:
        load.destination._close()
        if load.config.catalog == CATALOGS["delta"]:
            lake_spark.sql(f"DROP TABLE IF EXISTS {load.name}")


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest) -> str:
    """Each format in turn."""
    return str(request.param)


@pytest.fixture
def lake_load(lake: str, any_load: Callable[..., Any]) -> Callable[..., Load]:
    """Return a function for loads into tables of each format in turn."""
    return partial(any_load, lake)


@pytest.fixture
def delta_load(any_load: Callable[..., Any]) -> Callable[..., DeltaLoad]:
    """Return a function for loads into Delta tables."""
    return partial(any_load, "delta")


@pytest.fixture
def iceberg_load(any_load: Callable[..., Any]) -> Callable[..., IcebergLoad]:
    """Return a function for loads into Iceberg tables."""
    return partial(any_load, "iceberg")
