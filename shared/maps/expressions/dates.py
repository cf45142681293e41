"""Dates of the `datetime` module. Values with a time of the day need the evaluator."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from shared.maps.expressions.building import (
    Check,
    Fails,
    called,
    lifted,
    uncompiled,
)
from shared.maps.expressions.kinds import ANY, DATE, DATETIME, INT, STR, TIMEDELTA, Kind
from shared.maps.expressions.values import Call, Value

Function: TypeAlias = "Callable[[Call], Value]"

_OUT_OF_RANGE = "OverflowError: date value out of range"
_ONLY_ISO_DATES = sys.version_info < (3, 11)
_WEEK_DATE = r"\A\d{4}(-W\d\d(-\d)?|W\d\d(\d)?)\z"


def iso_date(text: Column) -> Column:
    """Return `date.fromisoformat(text)`; null if Python raises."""
    found = F.when(F.rlike(text, F.lit(r"\A\d{4}-\d\d-\d\d\z")), _date(text))
    if _ONLY_ISO_DATES:
        return found
    digits = F.regexp_replace(text, r"\A(\d{4})(\d\d)(\d\d)\z", "$1-$2-$3")
    found = found.when(F.rlike(text, F.lit(r"\A\d{8}\z")), _date(digits))
    return found.when(F.rlike(text, F.lit(_WEEK_DATE)), _week_date(text))


def _week_date(text: Column) -> Column:
    """Return the date of an ISO week and day (Monday by default)."""
    plain = F.translate(text, "-W", "")
    year = F.substring(plain, 1, 4).try_cast("int")
    week = F.substring(plain, 5, 2).try_cast("int")
    day = F.coalesce(F.substring(plain, 7, 1).try_cast("int"), F.lit(1))
    fourth = _date(F.concat(F.substring(plain, 1, 4), F.lit("-01-04")))
    monday = F.date_sub(fourth, F.weekday(fourth))
    # The year has a week 53 if its 28th of December is in one.
    last = F.weekofyear(_date(F.concat(F.substring(plain, 1, 4), F.lit("-12-28"))))
    found = F.date_add(monday, (week - 1) * 7 + day - 1)
    right = (week >= 1) & (week <= last) & (day >= 1) & (day <= 7)  # noqa: PLR2004
    in_range = (F.year(found) >= 1) & (F.year(found) <= 9999)  # noqa: PLR2004
    return F.when(right & (year >= 1) & in_range, found)


def _date(text: Column) -> Column:
    """Return the date of `YYYY-MM-DD`; null if it is not a date, as in year 0."""
    return F.when(~F.startswith(text, F.lit("0000")), text.try_cast("date"))


def _from_iso(call: Call) -> Value:
    def message(column: Column) -> Column:
        return F.concat(F.lit("ValueError: Invalid isoformat string: '"), column, F.lit("'"))

    checks: list[Check] = [(lambda text: iso_date(text).isNull(), message)]
    return called(datetime.date.fromisoformat, iso_date, call, kind=DATE, checks=checks)


def _made(name: str, kind: Kind) -> Function:
    """Return a constructor: computed at once if all arguments are known, else by the evaluator."""
    function = getattr(datetime, name)
    return lambda call: called(function, None, call, kind=kind, why=f"datetime.{name}()")


def uncompiled_call(name: str, kind: Kind) -> Function:
    """Return a function that only the evaluator has."""
    return lambda call: uncompiled(kind, f"{name}()", *call.args, *call.keywords.values())


_CONSTRUCTORS = {
    DATE: "today fromtimestamp fromordinal fromisocalendar",
    DATETIME: """now utcnow today fromtimestamp utcfromtimestamp fromisoformat fromordinal
    fromisocalendar combine""",
}
FUNCTIONS: Mapping[str, Function] = {
    "datetime.date": _made("date", DATE),
    "datetime.datetime": _made("datetime", DATETIME),
    "datetime.timedelta": _made("timedelta", TIMEDELTA),
    "datetime.time": uncompiled_call("datetime.time", ANY),
    "datetime.date.fromisoformat": _from_iso,
    "datetime.datetime.strptime": lambda call: called(
        datetime.datetime.strptime, None, call, kind=DATETIME, why="strptime()"
    ),
    **{
        f"datetime.{kind.name}.{name}": uncompiled_call(f"datetime.{kind.name}.{name}", kind)
        for kind, names in _CONSTRUCTORS.items()
        for name in names.split()
    },
}
"""Functions of the module `datetime`, by their dotted names."""

_DATE_PARTS = ("year", "month", "day")
_TIME_PARTS = ("hour", "minute", "second", "microsecond")
ATTRIBUTES = frozenset(
    {(kind, name) for kind in ("date", "datetime") for name in _DATE_PARTS}
    | {("datetime", name) for name in _TIME_PARTS}
)
"""Attributes that are integers, by kind and name."""


def attribute(value: Value, name: str) -> Value:
    """Return an attribute that is an integer."""

    def make(column: Column) -> Column:
        part: Column = getattr(F, name)(column)
        return part.cast("bigint")

    why = "a date-time"
    return lifted(lambda date: getattr(date, name), make, value, kind=INT, why=why)


_METHODS: Mapping[str, Kind] = {
    **dict.fromkeys(("weekday", "isoweekday", "toordinal"), INT),
    **dict.fromkeys(("isoformat", "strftime"), STR),
    **{"date": DATE, "astimezone": DATETIME},
}


def method(owner: Value, name: str, call: Call) -> Value:
    """Return the result of a method; only the evaluator has those of other kinds than dates.

    Raises:
        Fails: It raises for all arguments of these kinds.
    """
    kinds = {**_METHODS, "replace": owner.kind.not_none()}
    if owner.kind.name not in {"date", "datetime"} or name not in kinds:
        given = (owner, *call.args, *call.keywords.values())
        return uncompiled(ANY, f".{name}() of {owner.kind.name}", *given)
    iso = name == "isoformat" and owner.kind.name == "date"

    def python(one: Any, *args: Any, **keywords: Any) -> Any:
        return getattr(one, name)(*args, **keywords)

    make = (lambda date: date.cast("string")) if iso and not (call.args or call.keywords) else None
    return called(python, make, call, owner, kind=kinds[name], why=f"{name}() of a date")


def binary(symbol: str, function: Callable[..., Any], left: Value, right: Value) -> Value:
    """Return `left symbol right` if one of them is a date, date-time or timedelta.

    Raises:
        Fails: Python lacks such an operation.
    """
    if left.kind.name == "date" and isinstance(right.known, datetime.timedelta):
        # Only the whole days count.
        days = right.known.days if symbol == "+" else -right.known.days
        return _shifted(lambda one: function(one, right.known), left, days)
    if right.kind.name == "date" and isinstance(left.known, datetime.timedelta):
        return _shifted(lambda one: function(left.known, one), right, left.known.days)
    kind = None if symbol in {"+", "-"} else ANY
    return lifted(function, None, left, right, kind=kind, why="arithmetic of dates")


def _shifted(function: Callable[..., Any], date: Value, days: int) -> Value:
    first, last = datetime.date.min, datetime.date.max
    if abs(days) > (last - first).days:
        raise Fails(_OUT_OF_RANGE)
    bound = last - datetime.timedelta(days) if days >= 0 else first - datetime.timedelta(days)

    def outside(column: Column) -> Column:
        limit = F.lit(bound.isoformat()).cast("date")
        return column > limit if days >= 0 else column < limit

    def make(column: Column) -> Column:
        return F.date_add(F.when(~outside(column), column), F.lit(days))

    return lifted(function, make, date, kind=DATE, checks=[(outside, _OUT_OF_RANGE)])
