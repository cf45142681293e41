"""Columns of `name=value` folders."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T  # noqa: N812

from tap_spark.sources.files.file_source import NO_PARTITION, exact_field, value_of


@pytest.mark.parametrize(
    ("values", "dtype", "kept"),
    [
        (["1", "-20", NO_PARTITION], T.IntegerType(), True),
        (["1", "01"], T.IntegerType(), False),
        (["-0"], T.LongType(), False),
        (["1.5", "0.25"], T.DoubleType(), True),
        (["1.50"], T.DoubleType(), False),
        (["1e5"], T.DoubleType(), False),
        (["2024-01-01"], T.DateType(), True),
        (["2024-1-1"], T.DateType(), False),
        (["2024-01-01 10:00:00"], T.TimestampType(), True),
        (["2024-01-01T10:00:00Z"], T.TimestampType(), False),
        (["x", "a\nb"], T.StringType(), True),
        (["A1"], T.IntegerType(), False),
        (["2147483648"], T.IntegerType(), False),
        (["2147483648"], T.LongType(), True),
        (["9223372036854775808"], T.LongType(), False),
        (["9223372036854775808"], T.DecimalType(19, 0), True),
        (["1" * 20], T.DecimalType(19, 0), False),
        (["1.2.3"], T.DoubleType(), False),
        (["2024-02-30"], T.DateType(), False),
        (["2024-01-01 25:00:00"], T.TimestampType(), False),
        (["true"], T.BooleanType(), False),
    ],
)
def test_types_that_keep_the_text(values: list[str], dtype: T.DataType, kept: bool) -> None:
    urls = [f"/t/k={value}/a.csv" for value in values]
    actual = exact_field(T.StructField("k", dtype), urls).dataType
    assert actual == (dtype if kept else T.StringType())


def test_names_and_values_are_unescaped() -> None:
    assert value_of("/t/A%20b=x%2Fy%3D/n=1/a.csv", "a b") == "x/y="
    assert value_of("/t/a.csv", "a") == NO_PARTITION
