"""Conditions that no row may meet, whatever they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from target_spark.operate.lake_operations import rows_found

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_rows_and_conditions_that_do_not_hold(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "a"), (2, None), (3, "c")], "id int, v string")
    assert list(rows_found(frame, [])) == []
    assert list(rows_found(frame, ["id < 0", "v IS NULL", "id > 1 AND v <> 'x'"])) == [
        "1 rows meet 'v IS NULL'",
        "1 rows meet 'id > 1 AND v <> 'x''",
    ]
    [unknown, met] = rows_found(frame, ["nme = 1", "id = 1"])
    assert unknown.startswith("the condition 'nme = 1' cannot be checked: [UNRESOLVED_COLUMN")
    assert met == "1 rows meet 'id = 1'"
    [text] = rows_found(frame, ["id + 1"])
    assert text.startswith("the condition 'id + 1' cannot be checked: [DATATYPE_MISMATCH")
    [text] = rows_found(frame, ["1 / (id - 2) > 5"])
    assert text.startswith("one of the conditions cannot be checked: [DIVIDE_BY_ZERO]")
