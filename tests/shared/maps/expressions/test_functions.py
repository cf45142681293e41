"""Functions, against Python's own: int and float of any text above all."""
# ruff: noqa: RUF001, RUF007

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from comparing import (
    EACH_SHARE,
    WHERE,
    by_python,
    differences,
    differences_of_share,
    differences_without_spark,
    framed,
    generated,
)
from hypothesis import assume, given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)
from sdk_records import FLOATS, INTEGERS, NAMES, PRICES, TAGS

from shared.errors import SettingsError
from shared.maps.expressions import personal, sandbox
from shared.maps.expressions.planned import plan
from shared.maps.expressions.sandbox import Meter
from shared.maps.expressions.syntax import FUNCTION_NAMES, parse
from shared.maps.expressions.values import Names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STRUCT = StructType(
    [
        StructField("s", StringType()),
        StructField("n", LongType()),
        StructField("x", DoubleType()),
        StructField("d", DecimalType(20, 2)),
        StructField("b", BooleanType()),
        StructField("a", ArrayType(StringType())),
        StructField("o", StructType([StructField("k", LongType())])),
    ]
)
DDL = "s string, n long, x double, d decimal(20,2), b boolean, a array<string>, o struct<k: long>"
COMPILED = """
int(s)
int(n)
int(x)
int(d)
int(b)
int()
float(s)
float(n)
float(x)
float(d)
float(b)
float()
str(s)
str(n)
str(b)
str()
bool(s)
bool(n)
bool(x)
bool(d)
bool(b)
bool(a)
bool(o)
bool()
len(s)
len(a)
len(o)
len('abc')
round(n)
round(b)
round(x)
round(x, None)
round(n, 0)
round(n, 3)
md5(s)
md5(str(n))
sha256(s)
sha256(string=s)
int(float(s))
int(' 1_000 ')
float('-inf')
str(1.5)
""".strip().splitlines()
EVALUATED = """
abs(n)
abs(x)
abs(b)
json.dumps(n)
json.dumps(b)
int(s, 16)
str(x)
str(d)
str(a)
str(o)
round(x, 2)
round(d)
round(d, 1)
round(n, -2)
abs(d)
min(n, 3)
max(n, len(s))
sum([n, 1])
list(s)
json.dumps(s)
json.dumps(a)
json.dumps(n, indent=1)
json.loads(s)
""".strip().splitlines()
REFUSED = {
    "int(a)": "not 'list'",
    "int('x')": "invalid literal",
    "int(None)": "not 'NoneType'",
    "float(o)": "not 'dict'",
    "float('1', 2)": "expected at most 1 argument",
    "len(n)": "object of type 'int' has no len()",
    "len()": "takes exactly one argument",
    "round(s)": "type str doesn't define __round__",
    "abs(s)": "bad operand type for abs(): 'str'",
    "md5(n)": "'int' object has no attribute 'encode'",
    "sha256(text=s)": "unexpected keyword",
    "md5()": "missing 1 required positional argument",
}

# What `int` or `float` may take for a number, and much that it does not.
NUMBERS = """
0 7 42 007 4_2 4__2 _4 4_ 1e5 1E-5 1.5 . .5 5. 1_0.0_1 1._5 1_.5 1e e5 1e1_0 0x1f 0b1 1d 1f 1L
0x1p3 inf INFINITY iNf infinit nan NaN nan(1) １２ ٣٫٥ 1٣ ² Ⅷ 9223372036854775807
9223372036854775808 999999999999999999999999999999 00000000000000000000000000000000005 1e308 1e309
4.9e-324 2.4e-324 2.5e-324 0.1 1.7976931348623158e308 True None 9007199254740993 8.5e-5
123456789.123456789 𝟘𝟙 ٣
"""
DIGITS = NUMBERS.split()
SIGNS = ["", "+", "-", "--", "+-", "- "]
AROUND = ["", " ", "\t\n\r\x0b\x0c", "\x1c", "\x85", "\xa0", "\u2003\u3000", "\u200b", "\x7f"]


def numbers_as_text() -> list[str]:
    signed = [sign + digits for sign, digits in itertools.product(SIGNS, ["", *DIGITS])]
    both = zip(AROUND, AROUND[1:], strict=False)
    spaced = [left + text + right for left, right in both for text in ("7", "１.5")]
    one_side = [text for space in (*AROUND, "\x00") for text in (f"{space}7", f"5{space}")]
    return [*signed, *spaced, *one_side]


def planned(text: str):
    return plan(parse(text, WHERE), Names(STRUCT), WHERE)


def test_what_is_compiled():
    assert [text for text in COMPILED if planned(text).in_python] == []
    assert [text for text in EVALUATED if not planned(text).in_python] == []


@pytest.mark.parametrize(("text", "said"), REFUSED.items())
def test_what_fails_for_every_record_is_refused(text, said):
    with pytest.raises(SettingsError) as refused:
        planned(text)
    assert said in str(refused.value)


def test_every_function_that_may_be_called_is_there():
    assert {*sandbox.functions(Meter()), *personal.FUNCTIONS} >= FUNCTION_NAMES


def test_random_numbers_are_not_compiled():
    assert planned("rand()").in_python
    assert planned("randint(5)").in_python


def function_rows() -> list[dict[str, object]]:
    return [
        {
            "s": NAMES[at],
            "n": INTEGERS[at % len(INTEGERS)],
            "x": FLOATS[at % len(FLOATS)],
            "d": PRICES[at % len(PRICES)],
            "b": [None, True, False][at % 3],
            "a": TAGS[at % len(TAGS)],
            "o": [None, {"k": 1}][at % 2],
        }
        for at in range(len(NAMES))
    ]


# A variant has no infinity: it is the text that JSON has for it here.
COMPARED = [*COMPILED, *(text for text in EVALUATED if text != "json.loads(s)")]


def test_functions_without_spark_are_as_in_python():
    assert differences_without_spark(STRUCT, COMPARED, function_rows()) == []


@pytest.mark.spark
@EACH_SHARE
def test_functions_are_as_in_python(spark: SparkSession, share: int):
    actual = differences_of_share(spark, DDL, COMPARED, function_rows(), share)
    assert not actual, "\n".join(actual)


@pytest.mark.spark
def test_any_text_as_a_number(spark: SparkSession):
    every = [{"s": text} for text in numbers_as_text()]
    actual = differences(framed(spark, every, "s string"), ["int(s)", "float(s)"], every, by_python)
    assert not actual, "\n".join(actual)


@pytest.mark.spark
@generated(2)
@given(
    texts=st.lists(
        st.one_of(
            st.floats().map(repr),
            st.floats().map(str).map(lambda text: f" {text}\n"),
            st.integers(-(2**66), 2**66).map(str),
            st.integers(0, 2**40).map(lambda number: f"{number:_}"),
            st.from_regex(r"\A\s?[+-]?[0-9_]{0,25}\.?[0-9_]{0,25}([eE][+-]?[0-9_]{1,4})?\s?\Z"),
            st.from_regex(r"\A[+-]?\d{1,3}[.]?\d{0,3}\Z"),
        ),
        min_size=250,
        max_size=300,
    ),
    floats=st.lists(st.floats(), min_size=250, max_size=250),
)
def test_numbers_made_by_hypothesis(spark: SparkSession, texts, floats):
    assume(len(set(texts)) > 50 and len(set(floats)) > 50)
    every = [{"s": text, "x": x} for text, x in zip(texts, floats, strict=False)]
    expressions = ["int(s)", "float(s)", "int(x)", "round(x)", "abs(x)", "len(s)"]
    actual = differences(framed(spark, every, "s string, x double"), expressions, every, by_python)
    assert not actual, "\n".join(actual)
