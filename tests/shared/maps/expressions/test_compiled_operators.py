"""Operators as Python has them, computed by Spark: every expression on every record."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from comparing import EACH_SHARE, share_of
from compiled_oracle import differences, differences_over_arrow, value_of
from pyspark.sql import types as T  # noqa: N812

from shared.maps.expressions.values import Names

NUMBERS = T.StructType(
    [
        T.StructField("i", T.LongType()),
        T.StructField("j", T.LongType()),
        T.StructField("n", T.IntegerType(), False),
        T.StructField("x", T.DoubleType()),
        T.StructField("y", T.DoubleType()),
        T.StructField("b", T.BooleanType()),
        T.StructField("c", T.BooleanType(), False),
    ]
)
INTEGERS = [0, 1, -1, 2, 3, -7, 100, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**62 + 1, 2**63 - 1]
INTEGERS += [-(2**63), -(2**63) + 1, 10**18, 3 * 10**17 + 1, None]
FLOATS = [0.0, -0.0, 1.0, -1.5, 0.1, 3.0, 1e16, -(2.0**63), 2.0**63, 1e308, 5e-324, None]
FLOATS += [float("inf"), float("-inf"), float("nan"), 9007199254740993.0, 100.25, -7.0]


def number_rows() -> list[dict[str, Any]]:
    """Return rows with every pair of integers, and floats beside them."""
    pairs = [*itertools.product(INTEGERS, FLOATS)]
    others = itertools.cycle(itertools.product(INTEGERS, FLOATS[::-1]))
    rows = []
    for place, (i, x) in enumerate(pairs):
        j, y = next(others) if place % 2 else (INTEGERS[place // 2 % len(INTEGERS)], x)
        b = (True, False, None)[place % 3]
        rows.append({"i": i, "j": j, "n": place % 7 - 3, "x": x, "y": y, "b": b, "c": bool(b)})
    return rows


ARITHMETIC = [
    *(f"{a} {op} {b}" for op in ("+", "-", "*", "/", "//", "%") for a, b in ("ij", "ix", "xi")),
    *(f"{a} {op} {b}" for op in ("+", "-", "*", "/", "//", "%") for a, b in ("xy", "bi", "nx")),
    *(f"{a} {op} {b}" for op in ("&", "|", "^") for a, b in ("ij", "bc", "bi")),
    *("-i", "+i", "~i", "-x", "+x", "-b", "+b", "~b", "not i", "not x", "not b", "-n"),
    *("i ** 0", "i ** 1", "i ** 2", "n ** 3", "i ** 4", "b ** 2"),
    *("i + 1", "1 - i", "i * -1", "i // -1", "i % -1", "i // 7", "i % 7", "7 % i", "7 // i"),
    *("i / 3", "i / 1000000000", "i / 86400000000000", "i / 9007199254740993", "1 / i"),
    *("x * 1.1 + 2", "x // 0.3", "x % -0.3", "x / 1e-300", "-x // 2", "1e308 * x"),
    *("i + True", "(i + j) - j", "i - j * 2 + n", "(n * n + 1) // 3 % 4"),
]
COMPARISONS = [
    *(f"{a} {op} {b}" for op in ("==", "!=", "<", "<=", ">", ">=") for a, b in ("ij", "ix", "xi")),
    *(f"{a} {op} {b}" for op in ("==", "!=", "<", "<=", ">", ">=") for a, b in ("xy", "bi", "xb")),
    *(f"{a} {op} 9007199254740993" for a in "ix" for op in ("==", "<", "<=", ">", ">=")),
    *(f"{a} {op} 1" for a in "ixbcn" for op in ("==", "!=", "<", ">=")),
    *(f"{a} {op} 0.1" for a in "ix" for op in ("==", "<", "<=", ">", ">=")),
    *("0 < i < 10", "i < j < 5 < 7", "n < i <= j", "1 < n < i / 0", "i == i", "x == x"),
    *("i is None", "x is not None", "b is True", "b is not False", "i is True", "None is None"),
    *("i == None", "None != x", "i == 'a'", "x != 'a'", "b == None", "None == None"),
    *(
        "i in [1, 2, 3]",
        "i not in (1, 2.0, None)",
        "i in {1: 2}",
        "x in [0, 1, 1.5]",
        "i in [j, n]",
    ),
    *("i in [x]", "b in [1]", "1 in [i, x]", "i in []", "i in ['a', None]", "i in (j, j + 1)"),
]
LOGIC = [
    *(
        "i and j",
        "i or j",
        "x or y",
        "b and c",
        "b or c",
        "i and j and n",
        "i or j or n",
        "i and None",
    ),
    *(
        "i or 0",
        "x or 0",
        "(x or 0) + 1.5",
        "(x or 0) * 2",
        "(x or 0) / 4",
        "(x or 0) > i",
        "-(x or 1)",
    ),
    *(
        "x if x else 0",
        "i if b else j",
        "i if b else None",
        "None if c else x",
        "i / j if j else None",
    ),
    *("i // j if j and i is not None else 0", "1 / 0 if c else n", "n if not c else 'a' + 1 and n"),
    *(
        "(i if b else None) + 1",
        "not (i and x)",
        "not i or x > 2",
        "i > 1 and x < 2",
        "i > 1 or x < 2",
    ),
    *("n == 0 or 10 / n > 2", "n != 0 and 10 // n", "True and i", "0 or i", "i or 5", "None or i"),
    *("(b or i) is None", "bool(b or x)", "not (b or x)", "1 if (b or x) else 2", "c and 1 / 0"),
    *("(x or 0) // 2 % 3", "(x or 7) * 0.5", "(b and c) + 1", "i if i is not None else -1"),
]


GROUPS = {"arithmetic": ARITHMETIC, "comparisons": COMPARISONS, "logic": LOGIC}


@pytest.mark.spark
@pytest.mark.parametrize("group", GROUPS)
@EACH_SHARE
def test_numbers_are_python_s(spark: Any, group: str, share: int) -> None:
    """Each expression, with each pair of edge cases, has Python's value or is its error."""
    texts = share_of(GROUPS[group], share)
    assert differences(spark, number_rows(), Names(NUMBERS), texts) == []


@pytest.mark.parametrize("group", GROUPS)
def test_numbers_are_python_s_without_spark(group: str) -> None:
    assert differences_over_arrow(number_rows(), Names(NUMBERS), GROUPS[group]) == []


@pytest.mark.parametrize("text", [*ARITHMETIC, *COMPARISONS, *LOGIC])
def test_numbers_are_compiled(text: str) -> None:
    """Of the above only powers, bits, and `//` and `%` of floats are left to the evaluator."""
    value = value_of(text, Names(NUMBERS))
    left = {"n != 0 and 10 // n", "(b or i) is None", "bool(b or x)", "(x or 0) // 2 % 3"}
    left.add("i is True")
    rare = re.search(r"[&|^~]|\*\*|[ixny] (//|%) -?[xy0]|[xy] (//|%) ", text) is not None
    assert (value.column is not None) is (not rare and text not in left), value.why
