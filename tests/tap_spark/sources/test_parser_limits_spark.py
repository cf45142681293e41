"""The limits up to which threads read as Spark does, asked from Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tap_spark.sources.files import csv_blocks, small_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def write(folder: Path, text: str) -> str:
    path = folder / "data"
    path.write_text(text)
    return str(path)


def test_names_of_json(spark: SparkSession, tmp_path: Path) -> None:
    name = "n" * small_json.MOST_NAME
    frame = spark.read.json(write(tmp_path, json.dumps({"id": 1, name: 2})))
    assert frame.columns == ["id", name]
    assert [tuple(row) for row in frame.collect()] == [(1, 2)]


def test_depth_of_json(spark: SparkSession, tmp_path: Path) -> None:
    depth = small_json.MOST_BRACKETS - 1
    text = '{"id": 1, "deep": ' + "[" * depth + "]" * depth + "}"
    frame = spark.read.schema("id long, deep string").json(write(tmp_path, text))
    (row,) = frame.collect()
    assert (row["id"], row["deep"]) == (1, "[" * depth + "]" * depth)


def test_numbers_of_json(spark: SparkSession, tmp_path: Path) -> None:
    """Longer ones are left to Spark: a pattern finds them."""
    digits = "0." + "0" * 50 + "1" * 47
    frame = spark.read.schema("d double").json(write(tmp_path, f'{{"d": {digits}}}'))
    assert frame.collect()[0]["d"] == float(digits)
    assert not any(pattern.search(digits.encode()) for pattern in small_json._PATTERNS)


def test_columns_of_json(spark: SparkSession, tmp_path: Path) -> None:
    record = {f"c{number:05}": number for number in range(small_json.MOST_COLUMNS)}
    frame = spark.read.json(write(tmp_path, json.dumps(record)))
    assert frame.columns == list(record)


def test_columns_of_csv(spark: SparkSession, tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(csv_blocks.MOST_COLUMNS)]
    reader = spark.read.option("header", "true")
    assert reader.csv(write(tmp_path, ",".join(names) + "\n")).columns == names
