"""Fixtures of the tests of Delta and Iceberg tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Delta replays a table's log by this many tasks, 50 by default: most of the time on two cores.
SNAPSHOT_TASKS = "spark.databricks.delta.snapshotPartitions"


@pytest.fixture(autouse=True)
def _few_tasks(request: pytest.FixtureRequest) -> Iterator[None]:
    if "lake_spark" not in request.fixturenames:
        yield
        return
    spark: SparkSession = request.getfixturevalue("lake_spark")
    spark.conf.set(SNAPSHOT_TASKS, "1")
    yield
    spark.conf.unset(SNAPSHOT_TASKS)
