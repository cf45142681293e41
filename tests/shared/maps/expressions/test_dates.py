"""Dates and times, against Python's own module."""

from __future__ import annotations

import ast
import datetime
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
from pyspark.sql.types import LongType, StringType, StructField, StructType
from sdk_records import DAYS, TIMES

from shared.errors import SettingsError
from shared.maps.expressions import operators
from shared.maps.expressions.planned import plan
from shared.maps.expressions.syntax import parse
from shared.maps.expressions.value_kinds import DATE, DATETIME, INT, TIMEDELTA
from shared.maps.expressions.values import Fails, Names, Value, constant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STRUCT = StructType([StructField("s", StringType()), StructField("n", LongType())])
DAY = "datetime.date.fromisoformat(s)"
FORMATS = [
    "%Y-%m-%d",
    "%Y%m%d",
    "%d.%m.%y",
    "%d%Y",
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%dT%H:%M:%S.%f",
    "%Y %m",
    "%H:%M %d/%m/%Y",
    "week %Y/%m/%d (x) [y] $",
]


def strptime(form: str) -> str:
    return f"datetime.datetime.strptime(s, {form!r})"


TIME = strptime("%Y-%m-%dT%H:%M:%S.%f")
COMPILED = [
    DAY,
    *(f"{DAY}.{name}" for name in ("year", "month", "day")),
    f"{DAY}.isoformat()",
    f"{DAY} + datetime.timedelta(days=1)",
    f"{DAY} - datetime.timedelta(days=1, hours=30)",
    f"{DAY} + datetime.timedelta(hours=-1)",
    f"{DAY} - datetime.timedelta(hours=-1)",
    f"datetime.timedelta(weeks=520) + {DAY}",
    f"{DAY} - datetime.timedelta(days=-90000)",
    f"{DAY} < datetime.date(2024, 1, 1)",
    "str(datetime.date.fromisoformat(s))",
]
EVALUATED = [
    *(strptime(form) for form in FORMATS),
    *(f"{DAY}.{name}()" for name in ("weekday", "isoweekday", "toordinal")),
    *(f"{TIME}.{name}" for name in ("year", "month", "day", "hour", "minute", "second")),
    *(f"{TIME}.{name}()" for name in ("date", "isoformat", "weekday", "isoweekday", "toordinal")),
    f"{TIME}.microsecond",
    f"{DAY}.strftime('%Y-%m-%d %H:%M:%S.%f %j %y %%')",
    f"{TIME}.strftime('%Y-%m-%d %H:%M:%S.%f %j %y %%')",
    f"{TIME}.strftime('')",
    f"{TIME}.strftime(\"it's 'T' %d\")",
    f"{TIME} + datetime.timedelta(hours=36, microseconds=5)",
    f"{TIME} - datetime.timedelta(days=999)",
    f"{TIME} - datetime.timedelta(microseconds=-1)",
    f"{TIME}.date() == {TIME}.date()",
    f"{DAY} - datetime.timedelta(days=-400000)",
    "datetime.datetime(2024, 2, 29, 1)",
    "datetime.datetime.fromisoformat(s).isoformat()",
    strptime("%Y-%m-%dT%H:%M:%S%z") + ".isoformat()",
    strptime("%d %b %Y"),
    strptime("%m-%d"),
    strptime("%Y-%Y"),
    f"{DAY}.strftime('%A %d')",
    f"{DAY}.replace(day=1)",
    f"{TIME}.isoformat(' ')",
    f"{TIME}.timestamp() > 0",
    f"({DAY} - {DAY}).days",
    f"{DAY} + datetime.timedelta(days=n)",
    "datetime.date(n, 1, 1)",
    f"{DAY}.isocalendar()[1]",
]
REFUSED = {
    "datetime.date.fromisoformat(n)": "argument must be str",
    "datetime.date.fromisoformat()": "takes exactly one argument",
    "datetime.datetime.strptime(s)": "takes exactly 2 arguments",
    "datetime.datetime.strptime(n, '%Y')": "argument 1 must be str, not int",
    "datetime.date(2024, 13, 1)": "month must be in",
    "datetime.timedelta(day=1)": "day",
    f"{DAY} + 1": "unsupported operand",
    f"{DAY} + {DAY}": "unsupported operand",
    f"{DAY}.hour": "hour",
}
TEXTS = [
    *DAYS,
    *TIMES,
    *(
        "01.02.24",
        "31.12.68",
        "1.1.69",
        "32.1.24",
        "29.2.23",
        "12024",
        "312024",
        "012024",
        "2024 5",
    ),
    *("2024\t\u00a0 12", "2024  1", "23:59 29/02/2024", "1:2 3/4/2024", "24:00 1/1/2024"),
    *("WEEK 2024/1/ 2 (X) [Y] $", "wee\u212a 2024/01/02 (x) [y] $", "week 2024/01/02 (x) [y] $ "),
    *("2024-02-29T01:02:03.", "2024-02-29T01:02:03.000001", "2024-02-29T01:02:03.1 "),
    *("9999-12-31T23:59:59.999999", "0001-01-01T00:00:00.0", "1582-10-10", "1582-10-10T01:02:03.4"),
    *("2024-W1-1", "2024-W53-1", "2026-W53-7", "1999W527", "0001-W01", "9999-W52-5", "2024-W09-0"),
]


def planned(text: str):
    return plan(parse(text, WHERE), Names(STRUCT), WHERE)


def test_what_is_compiled():
    assert [text for text in COMPILED if planned(text).in_python] == []
    assert [text for text in EVALUATED if not planned(text).in_python] == []


def test_what_has_the_time_in_it_is_left_to_python():
    for text in ("datetime.datetime.now()", "datetime.datetime.utcnow()", "datetime.date.today()"):
        assert planned(text).in_python


@pytest.mark.parametrize(("text", "said"), REFUSED.items())
def test_what_fails_for_every_record_is_refused(text, said):
    with pytest.raises(SettingsError) as refused:
        planned(text)
    assert said in str(refused.value)


EVERY = [{"s": text, "n": at} for at, text in enumerate(TEXTS)]


def test_dates_without_spark_are_as_in_python():
    assert differences_without_spark(STRUCT, [*COMPILED, *EVALUATED], EVERY) == []


@pytest.mark.spark
@EACH_SHARE
def test_dates_are_as_in_python(spark: SparkSession, share: int):
    expressions = [*COMPILED, *EVALUATED]
    actual = differences_of_share(spark, "s string, n long", expressions, EVERY, share)
    assert not actual, "\n".join(actual)


@pytest.mark.spark
@generated(1)
@given(
    moments=st.lists(
        st.one_of(
            st.datetimes().map(lambda at: at.isoformat()),
            st.dates().map(str),
            st.dates().map(lambda day: day.strftime("%G-W%V-%u")),
            st.dates().map(lambda day: day.strftime("%Y%m%d")),
            st.from_regex(r"\A[0-9]{4}-[01]?[0-9]-[0-3]?[0-9]\Z"),
        ),
        min_size=200,
        max_size=300,
    )
)
def test_dates_made_by_hypothesis(spark: SparkSession, moments):
    assume(len(set(moments)) > 50)
    every = [{"s": text} for text in moments]
    expressions = [DAY, *(strptime(form) for form in FORMATS[:6]), f"{TIME}.isoformat()"]
    expressions += [
        f"{DAY}.weekday()",
        f"{DAY}.toordinal()",
        f"{DAY} + datetime.timedelta(days=31)",
    ]
    actual = differences(framed(spark, every, "s string"), expressions, every, by_python)
    assert not actual, "\n".join(actual)


OPERATORS = {"+": ast.Add(), "-": ast.Sub()}


def column() -> object:
    raise AssertionError("no column is made while expressions are compiled")


@pytest.mark.parametrize(
    ("operator", "left", "right", "kind"),
    [
        ("+", DATE, TIMEDELTA, DATE),
        ("+", TIMEDELTA, DATE, DATE),
        ("-", DATETIME, TIMEDELTA, DATETIME),
        ("-", DATE, DATE, TIMEDELTA),
        ("+", TIMEDELTA, TIMEDELTA, TIMEDELTA),
    ],
)
def test_kinds_of_arithmetic(operator, left, right, kind):
    value = operators.binary(OPERATORS[operator], Value(left, column), Value(right, why="none"))
    assert value.kind == kind


@pytest.mark.parametrize(("left", "right"), [(DATE, INT), (TIMEDELTA, DATE), (DATE, DATETIME)])
def test_arithmetic_that_there_is_not(left, right):
    with pytest.raises(Fails, match="unsupported operand"):
        operators.binary(ast.Sub(), Value(left, column), Value(right, column))


def test_a_shift_out_of_every_range():
    with pytest.raises(Fails, match="out of range"):
        operators.binary(
            ast.Add(), Value(DATE, column), constant(datetime.timedelta(days=4_000_000))
        )


def test_known_values():
    assert constant(datetime.timedelta(1)).kind == TIMEDELTA
    assert constant(datetime.date(2024, 1, 1)).kind == DATE
    aware = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
    assert constant(aware).column is None
    assert constant(aware).kind == DATETIME
    assert constant(aware.date()).column is not None


def test_a_format_that_is_not_known():
    call = parse("datetime.datetime.strptime(s, s)", WHERE)
    value = plan(call, Names(STRUCT), WHERE)
    assert value.in_python and "strptime()" in value.why
    assert constant("x").is_constant
