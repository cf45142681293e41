"""The limit up to which threads read as Spark does, asked from Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tap_spark.sources.files import csv_blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def write(folder: Path, text: str) -> str:
    path = folder / "data"
    path.write_text(text)
    return str(path)


def test_columns_of_csv(spark: SparkSession, tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(csv_blocks.MOST_COLUMNS)]
    reader = spark.read.option("header", "true")
    assert reader.csv(write(tmp_path, ",".join(names) + "\n")).columns == names
