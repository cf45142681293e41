"""Random expressions on records of edge cases: Spark's results are Python's."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pytest
from case_matrix import with_slow
from compiled_oracle import ERROR, differences, python, value_of
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T  # noqa: N812

from shared.errors import SettingsError
from shared.maps.expressions.values import Names

STRUCT = T.StructType(
    [
        T.StructField("i", T.LongType()),
        T.StructField("j", T.LongType(), False),
        T.StructField("n", T.IntegerType()),
        T.StructField("x", T.DoubleType()),
        T.StructField("y", T.DoubleType(), False),
        T.StructField("b", T.BooleanType()),
        T.StructField("s", T.StringType()),
        T.StructField("t", T.StringType(), False),
        T.StructField("l", T.ArrayType(T.LongType())),
    ]
)
NAMES = Names(STRUCT)
INTEGERS = [0, 1, -1, 2, -7, 60, 2**31, 2**53 + 1, -(2**53) - 1, 2**62 + 1, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.0, -2.5, 0.1, 1e300, 2.0**63, float("inf"), float("-inf"), float("nan")]
TEXTS = ["", "a", "A", "abc", "é", "\U0001f600x", "\uffff", "1", " a "]


def rows(seed: int, count: int = 60) -> list[dict[str, Any]]:
    """Return records of edge cases."""
    draw = random.Random(seed)

    def maybe(values: list[Any]) -> Any:
        return None if draw.random() < 0.1 else draw.choice(values)

    actual = [
        {
            "i": maybe(INTEGERS),
            "j": draw.choice(INTEGERS),
            "n": maybe([0, 1, -3, 2**31 - 1]),
            "x": maybe(FLOATS),
            "y": draw.choice(FLOATS),
            "b": maybe([True, False]),
            "s": maybe(TEXTS),
            "t": draw.choice(TEXTS),
            "l": maybe([[], [1, 2], [None, -7], [2**53 + 1]]),
        }
        for _ in range(count)
    ]
    # As records are read: equal numbers are not one object, which `is` would tell.
    decoded: list[dict[str, Any]] = pickle.loads(pickle.dumps(actual))
    return decoded


NUMBER_LEAVES = st.sampled_from(
    [*"ijnxyb", "0", "1", "-1", "3", "2.5", "0.0", "True", "9007199254740993", "None"]
)
TEXT_LEAVES = st.sampled_from(["s", "t", "'a'", "''", "'b'"])


def _numbers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["+", "-", "*", "/", "//", "%", "&", "|", "or", "and"])
    compares = st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "is", "is not"])
    return st.one_of(
        st.builds("({} {} {})".format, inner, operators, inner),
        st.builds("({} {} {})".format, inner, compares, inner),
        st.builds("({} {} {} {} {})".format, inner, compares, inner, compares, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("({} {})".format, st.sampled_from(["-", "+", "~", "not"]), inner),
        st.builds("({} in [{}, {}, 1])".format, inner, inner, inner),
        st.builds("({} in l)".format, inner),
        st.builds("l[{}]".format, inner),
    )


NUMBERS = st.recursive(NUMBER_LEAVES, _numbers, max_leaves=6)


def _texts(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} + {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("({} if {} else {})".format, inner, NUMBERS, inner),
        st.builds("({} if {} else None)".format, inner, inner),
    )


BOOLEANS = st.one_of(
    st.builds("{} {} {}".format, TEXT_LEAVES, st.sampled_from(["<", "==", "in"]), TEXT_LEAVES),
    st.builds("{} and {} > 1".format, TEXT_LEAVES, NUMBERS),
)
EXPRESSIONS = st.one_of(NUMBERS, NUMBERS, st.recursive(TEXT_LEAVES, _texts, max_leaves=4), BOOLEANS)


def _compiles(text: str, records: list[dict[str, Any]]) -> bool:
    """Return whether it compiles; a rejected expression is an error for every record."""
    try:
        value_of(text, NAMES)
    except SettingsError as error:
        results = [python(text, record, NAMES) for record in records]
        assert all(isinstance(r, str) and r == ERROR for r in results), f"{text}: {error}"
        return False
    return True


@pytest.mark.spark
# `make soak` has three examples.
@with_slow("turn", [0], [1, 2])
@settings(
    max_examples=1,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(EXPRESSIONS, min_size=60, max_size=60, unique=True), st.integers(0, 1000))
def test_random_expressions(spark: Any, turn: int, texts: list[str], seed: int) -> None:
    """In one job per example, as Spark compiles slowly."""
    # The first that hypothesis makes are the simplest there are.
    assume(sum(len(text) > 12 for text in texts) > 20)
    records = rows(seed)
    assert differences(spark, records, NAMES, [t for t in texts if _compiles(t, records)]) == []


@settings(max_examples=400, deadline=None)
@given(EXPRESSIONS)
def test_what_is_refused_fails_for_every_record(text: str) -> None:
    """An expression that Python can evaluate for some record is not rejected."""
    _compiles(text, rows(5, 30))
