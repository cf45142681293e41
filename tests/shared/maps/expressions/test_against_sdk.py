"""Every expression of a long table, against the SDK's own mapper: same value, or both an error."""

from __future__ import annotations

import decimal
import math
from typing import TYPE_CHECKING, Any

import pytest
from comparing import (
    EACH_SHARE,
    Raised,
    by_evaluation,
    by_python,
    by_sdk,
    differences,
    differences_of_share,
    differences_without_spark,
    framed,
    generated,
    large_within,
    same,
)
from hypothesis import assume, given
from hypothesis import strategies as st
from pyspark.sql import types as T  # noqa: N812
from sdk_expressions import EXPRESSIONS, MORE
from sdk_records import DDL, handmade, records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STRUCT = (
    T.StructType()
    .add("id", "long").add("name", "string").add("code", "string").add("n", "long")
    .add("m", "long").add("x", "double").add("y", "double").add("price", T.DecimalType(12, 2))
    .add("flag", "boolean").add("tags", T.ArrayType(T.StringType()))
    .add("item", T.StructType().add("sku", "string").add("qty", "long"))
    .add("day", "string").add("ts", "string")
)  # fmt: skip
"""The columns of `DDL`, which only Spark can parse."""
MOST = 240
"""Fewer than the expressions whose results are no lists, objects or values of changing types."""


def test_the_table_is_long_enough():
    assert len(set(EXPRESSIONS)) >= 150
    assert len(set(EXPRESSIONS)) == len(EXPRESSIONS)


def test_records_made_by_hand_without_spark():
    all_records = handmade()
    assert len(by_evaluation(STRUCT, EXPRESSIONS, all_records[:1])) > MOST
    actual = differences_without_spark(STRUCT, EXPRESSIONS, all_records, by_sdk)
    assert not actual, "\n".join(actual)


@pytest.mark.spark
@EACH_SHARE
@generated(1)
@given(others=st.lists(records, min_size=40, max_size=60))
def test_records_made_by_hand_and_by_hypothesis(
    spark: SparkSession, share: int, others: list[dict[str, Any]]
):
    # The first that hypothesis makes are the simplest there are.
    assume(len({record["name"] for record in others}) > 8)
    # In one frame: not the rows take Spark its time, but the expressions.
    all_records = [*handmade(), *others]
    actual = differences_of_share(spark, DDL, EXPRESSIONS, all_records, share, by_sdk)
    assert not actual, "\n".join(actual)


@pytest.mark.spark
def test_functions_that_the_sdk_lacks_are_as_in_python(spark: SparkSession):
    all_records = handmade()
    actual = differences(framed(spark, all_records, DDL), MORE, all_records, by_python)
    assert not actual, "\n".join(actual)


def test_parts_of_more_than_64_bits():
    assert large_within("-n // 7", {"n": -(2**63)})
    assert large_within("int(name) > 0", {"name": str(2**63)})
    assert not large_within("-n // 7", {"n": 2**63 - 1})
    assert not large_within("n.lower()", {"n": None})


def test_what_is_the_same():
    assert same(1, 1)
    assert not same(1, 1.0)
    assert not same(True, 1)
    assert not same(0.0, -0.0)
    assert same(math.nan, math.nan)
    assert same(Raised("a"), Raised("b"))
    assert not same(Raised("a"), None)
    assert not same(None, Raised("a"))
    assert same([1, {"a": math.nan}], [1, {"a": math.nan}])
    assert same(decimal.Decimal("1.50"), decimal.Decimal("1.5"))
