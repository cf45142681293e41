"""Rows of small flushes, read without Spark."""

from __future__ import annotations

import pytest

from target_spark.core.load_plans import Part
from target_spark.destinations.lakes.lake_format import NeedsSparkError
from target_spark.destinations.lakes.small_flush import rows_of_parts


@pytest.mark.parametrize("url", ["s3://bucket/pending/a.parquet", "memory://a.parquet"])
def test_parts_on_other_storage_are_left_to_spark(url: str) -> None:
    with pytest.raises(NeedsSparkError):
        rows_of_parts([Part(url, 1, 1000)], ["id"], 1_000_000)
