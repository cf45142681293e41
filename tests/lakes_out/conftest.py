"""Fixtures of the tests of Delta and Iceberg tables as a destination."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lake_loads import Load, struct

from target_spark.config import TargetConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def delta_load(lake_spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Load]]:
    """Makes loads into Delta tables below a folder of the test."""
    from target_spark.destinations.delta import delta_destination

    made: list[Load] = []

    def make(ddl: str, **changes: Any) -> Load:
        settings = {
            name: changes.pop(name)
            for name in ("type_conflicts", "column_names", "catalog")
            if name in changes
        }
        config = TargetConfig(
            path="" if "catalog" in settings else str(tmp_path / "lake"), format="delta", **settings
        )
        made.append(Load(lake_spark, config, struct(ddl), delta_destination, **changes))
        return made[-1]

    yield make
    for load in made:
        load.destination._close()
