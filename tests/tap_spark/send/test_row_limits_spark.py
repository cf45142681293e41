"""The first rows of slices, with Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tap_spark.send.spark_slices import first_slices
from tap_spark.state.stream_plans import Slice

pytestmark = pytest.mark.spark


def slices(spark: Any, *sizes: int) -> Iterator[Slice]:
    for size in sizes:
        yield Slice(spark.range(0, size, numPartitions=3))


@pytest.mark.parametrize(
    ("most", "sizes", "expected"),
    [(5, (3, 0, 7, 9), [3, 0, 2]), (3, (3, 9), [3]), (9, (2, 3), [2, 3]), (1, (9,), [1])],
)
def test_slices_have_so_many_rows_together(
    spark: Any, most: int, sizes: tuple[int, ...], expected: list[int]
) -> None:
    actual = [len(piece.frame.collect()) for piece in first_slices(slices(spark, *sizes), most)]
    assert actual == expected
