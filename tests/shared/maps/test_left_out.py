"""Rows that a filter leaves out, marked instead of removed: the others are as they were."""

from __future__ import annotations

from typing import Any

import pytest
from map_cases import ORDERS, planned
from pyspark.sql import SparkSession

from shared.formats.schema_nodes import json_schema_to_spark
from shared.maps.transform import ERROR

pytestmark = pytest.mark.spark

MARK = "__left_out"
IN_PYTHON = "(name and name.translate({65: 'e', 66: 'e', 111: 'b'}))"
ROWS = [(1, "Ann", "a@x", 2.0), (2, "Bob", None, None), (3, None, "b@x", 0.0), (4, "", None, 1.0)]


@pytest.mark.parametrize(
    "rule",
    [
        {"x": IN_PYTHON, "y": f"len({IN_PYTHON})", "__filter__": IN_PYTHON},
        {"x": IN_PYTHON, "__filter__": "1 / price > 0.5"},
    ],
)
def test_rows_that_stay_are_those_of_the_filter(spark: SparkSession, rule: dict[str, Any]) -> None:
    [output] = planned({"orders": rule})
    transform = output.transform
    assert transform is not None
    frame = spark.createDataFrame(
        [(*row, None, None) for row in ROWS], json_schema_to_spark(ORDERS)
    )
    stay = transform.apply(frame, keep={"number": "id"}).collect()
    result = transform.apply(frame, keep={"number": "id"}, mark=MARK).collect()
    assert sorted(row.number for row in result) == [1, 2, 3, 4]
    assert all(row[ERROR] is None for row in result if row[MARK])
    kept = [row.asDict() for row in result if not row[MARK]]
    assert [str({k: v for k, v in row.items() if k != MARK}) for row in kept] == [
        str(row.asDict()) for row in stay
    ]
    assert 0 < len(stay) < len(ROWS)
