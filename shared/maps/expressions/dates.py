"""Dates of the `datetime` module. Values with a time of the day need the evaluator.

What Python refuses for all values of such kinds raises `Fails`.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import Column

from shared.maps.expressions.value_kinds import DATE
from shared.maps.expressions.values import F, Fails, Rule, Value, lifted
from shared.spark.session import try_cast

_OUT_OF_RANGE = "OverflowError: date value out of range"
_ONLY_ISO_DATES = sys.version_info < (3, 11)
_WEEK_DATE = r"\A\d{4}(-W\d\d(-\d)?|W\d\d(\d)?)\z"


def _iso_date(text: Column) -> Column:
    """Return `date.fromisoformat(text)`; null if Python raises."""
    day = F.when(F.rlike(text, F.lit(r"\A\d{4}-\d\d-\d\d\z")), _date(text))
    if _ONLY_ISO_DATES:
        return day
    digits = F.regexp_replace(text, r"\A(\d{4})(\d\d)(\d\d)\z", "$1-$2-$3")
    day = day.when(F.rlike(text, F.lit(r"\A\d{8}\z")), _date(digits))
    return day.when(F.rlike(text, F.lit(_WEEK_DATE)), _week_date(text))


def _week_date(text: Column) -> Column:
    """Return the date of an ISO week and day (Monday by default)."""
    plain = F.translate(text, "-W", "")
    year, week = (try_cast(F.substring(plain, *part), "int") for part in ((1, 4), (5, 2)))
    day = F.coalesce(try_cast(F.substring(plain, 7, 1), "int"), F.lit(1))
    fourth = _date(F.concat(F.substring(plain, 1, 4), F.lit("-01-04")))
    monday = F.date_sub(fourth, F.weekday(fourth))
    # The year has a week 53 if its 28th of December is in one.
    last = F.weekofyear(_date(F.concat(F.substring(plain, 1, 4), F.lit("-12-28"))))
    date = F.date_add(monday, (week - 1) * 7 + day - 1)
    right = (week >= 1) & (week <= last) & (day >= 1) & (day <= 7)  # noqa: PLR2004
    in_range = (F.year(date) >= 1) & (F.year(date) <= 9999)  # noqa: PLR2004
    return F.when(right & (year >= 1) & in_range, date)


def _date(text: Column) -> Column:
    """Return the date of `YYYY-MM-DD`; null if it is not a date, as in year 0."""
    return F.when(~F.startswith(text, F.lit("0000")), try_cast(text, "date"))


def _wrong_date(text: Column) -> Column:
    return F.concat(F.lit("ValueError: Invalid isoformat string: '"), text, F.lit("'"))


FROM_ISO = Rule(_iso_date, [(lambda text: _iso_date(text).isNull(), _wrong_date)])
"""How Spark computes `date.fromisoformat`."""
PARTS: Mapping[str, Rule] = {
    "year": Rule(lambda date: F.year(date).cast("bigint")),
    "month": Rule(lambda date: F.month(date).cast("bigint")),
    "day": Rule(lambda date: F.day(date).cast("bigint")),
}
"""How it computes attributes of dates."""
TO_ISO = Rule(lambda date: date.cast("string"))
"""How it computes the method `isoformat` of dates."""


def shifted(function: Callable[..., Any], date: Value, delta: datetime.timedelta) -> Value:
    """Return a date shifted by as many whole days.

    Args:
        function: What it is in Python.
        date: The date.
        delta: How far; only the days count.
    """
    first, last, days = datetime.date.min, datetime.date.max, delta.days
    if abs(days) > (last - first).days:
        raise Fails(_OUT_OF_RANGE)
    bound = (last if days >= 0 else first) - datetime.timedelta(days)

    def outside(column: Column) -> Column:
        limit = F.lit(bound.isoformat()).cast("date")
        return column > limit if days >= 0 else column < limit

    def make(column: Column) -> Column:
        return F.date_add(F.when(~outside(column), column), F.lit(days))

    return lifted(function, Rule(make, [(outside, _OUT_OF_RANGE)]), date, kind=DATE)
