"""Checks of one keyword on columns of every type: they never accept what the library rejects."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T  # noqa: N812

from shared.formats.arrow_types import spark_to_arrow
from target_spark.validation import screen as C  # noqa: N812
from target_spark.validation.judge import ExactNumber, draft
from target_spark.validation.screen import Facts

BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
COLUMNS: dict[str, T.DataType] = {
    "byte": T.ByteType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "double": T.DoubleType(),
    "wide": T.DecimalType(38, 0),
    "money": T.DecimalType(10, 2),
    "fine": T.DecimalType(38, 25),
}
LIMITS = st.one_of(
    st.integers(-5, 5),
    st.integers(-(2**70), 2**70),
    st.sampled_from([127, 128, -128, -129, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**63, 10**37]),
    st.sampled_from([0.1, -0.1, 0.5, 1.0, 1.1, 2.675, 1e-300, -1e-300, 1e300, 127.5, 99999999.99]),
    st.floats(allow_nan=False, allow_infinity=False),
)


def near(limit: float) -> list[Decimal]:
    """Return the numbers at a limit and next to it."""
    exact, units = Decimal(repr(limit)), (Decimal(1), Decimal("0.01"), Decimal("1e-25"))
    around = [exact + sign * unit for unit in units for sign in (-1, 1)]
    return [exact, Decimal(limit), *around, Decimal(0), Decimal(1)]


def stored(value: Decimal, data_type: T.DataType) -> Any:
    """Return what a column of a type holds for a number, or None."""
    if isinstance(data_type, T.DoubleType):
        return float(value)
    scale = data_type.scale if isinstance(data_type, T.DecimalType) else 0
    text = f"{value:.{scale}f}"
    whole = Decimal(text)
    if isinstance(data_type, T.DecimalType):
        return whole if len(whole.as_tuple().digits) <= data_type.precision else None
    low, high = C.INTEGER_WIDTHS[type(data_type)]
    return int(whole) if low <= whole <= high else None


def in_json(value: Any, data_type: T.DataType) -> Any:
    """Return the number as the library sees it."""
    if isinstance(value, Decimal):
        return ExactNumber(str(value)) if data_type.scale else int(value)  # type: ignore[attr-defined]
    return value


def cleared(actual: list[C.Check], array: pa.Array) -> list[bool]:
    masks = [mask.to_pylist() for check in actual if (mask := check(array, Facts(None)))]
    return [not any(mask[row] for mask in masks) for row in range(len(array))]


def compare(keyword: str, limit: Any, data_type: T.DataType, actual: list[C.Check]) -> int:
    values = [stored(value, data_type) for value in near(limit)]
    values = [value for value in values if value is not None]
    array = pa.array(values, spark_to_arrow(data_type))
    library, right = draft()({keyword: limit}), 0
    for value, clear in zip(values, cleared(actual, array), strict=True):
        valid = library.is_valid(in_json(value, data_type))
        assert valid or not clear, (keyword, limit, value)
        right += valid == clear
    return right


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.sampled_from(BOUNDS), LIMITS, st.sampled_from(sorted(COLUMNS)))
def test_bounds(keyword: str, limit: Any, column: str) -> None:
    data_type = COLUMNS[column]
    try:
        actual = C.bound_checks(keyword, limit, data_type, spark_to_arrow(data_type))
    except C.Unscreened:
        return
    compare(keyword, limit, data_type, actual)


@pytest.mark.parametrize("keyword", BOUNDS)
@pytest.mark.parametrize("column", ["byte", "int", "long", "double", "money"])
@pytest.mark.parametrize("limit", [0, 1, -3, 100])
def test_bounds_of_plain_numbers_are_screened_exactly(
    keyword: str, column: str, limit: int
) -> None:
    data_type = COLUMNS[column]
    actual = C.bound_checks(keyword, limit, data_type, spark_to_arrow(data_type))
    count = len([v for v in near(limit) if stored(v, data_type) is not None])
    assert compare(keyword, limit, data_type, actual) == count


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(LIMITS | st.booleans() | st.sampled_from(["a", None]), max_size=5),
    st.sampled_from(sorted(COLUMNS)),
)
def test_values(allowed: list[Any], column: str) -> None:
    data_type = COLUMNS[column]
    actual = C.value_checks(allowed, data_type, spark_to_arrow(data_type))
    numbers = [value for value in allowed if C.is_number(value)]
    values = [stored(one, data_type) for number in [*numbers, 0] for one in near(number)]
    array = pa.array([v for v in values if v is not None], spark_to_arrow(data_type))
    library = draft()({"enum": allowed})
    for value, clear in zip(array.to_pylist(), cleared(actual, array), strict=True):
        assert library.is_valid(in_json(value, data_type)) or not clear


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.one_of(st.integers(1, 20), st.sampled_from([0.5, 0.25, 0.1, 0.01, 1.5, 2.0, 10**20, 1e-8])),
    st.sampled_from(sorted(COLUMNS)),
    st.lists(st.integers(-1000, 1000), min_size=1),
)
def test_multiples(step: Any, column: str, numbers: list[int]) -> None:
    data_type = COLUMNS[column]
    try:
        actual = C.multiple_checks(step, data_type)
    except C.Unscreened:
        return
    values = [stored(Decimal(number), data_type) for number in numbers]
    array = pa.array([v for v in values if v is not None], spark_to_arrow(data_type))
    library = draft()({"multipleOf": step})
    for value, clear in zip(array.to_pylist(), cleared(actual, array), strict=True):
        assert library.is_valid(in_json(value, data_type)) == clear


def test_columns_that_are_not_compared() -> None:
    for data_type in (T.FloatType(), T.DateType(), T.StringType()):
        with pytest.raises(C.Unscreened):
            C.bound_checks("minimum", 1, data_type, spark_to_arrow(data_type))
    for data_type in (T.FloatType(), T.DoubleType(), T.DecimalType(5, 2)):
        with pytest.raises(C.Unscreened):
            C.multiple_checks(0.003, data_type)
    with pytest.raises(C.Unscreened):
        C.value_checks(["AA=="], T.BinaryType(), pa.binary())


def test_sizes() -> None:
    array = pa.array(["", "é", "ab😀", None])
    least, most = (
        C.size_checks("minLength", 1, pa.compute.utf8_length),
        C.size_checks("maxLength", 2, pa.compute.utf8_length),
    )
    assert [check(array, Facts(None)).to_pylist() for check in (*least, *most)] == [
        [True, False, False, None],
        [False, False, True, None],
    ]
    assert C.size_checks("minLength", 0, pa.compute.utf8_length) == []
