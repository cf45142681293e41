"""Dates and times of the `datetime` module.

A date-time that is compiled has no time zone; its column is a `timestamp_ntz`. What may have one
(`fromisoformat` of a date-time, `%z`) is left to the evaluator.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from shared.transforms.expressions import date_texts
from shared.transforms.expressions.arguments import must_be, named, positional
from shared.transforms.expressions.building import (
    Check,
    Fails,
    computed,
    not_none,
    operand_text,
    uncompiled,
)
from shared.transforms.expressions.kinds import ANY, DATE, DATETIME, INT, STR, TIMEDELTA, Kind
from shared.transforms.expressions.values import Call, Value

if TYPE_CHECKING:
    from pyspark.sql import Column

Function: TypeAlias = "Callable[[Call], Value]"
Method: TypeAlias = "Callable[[Value, Call], Value]"

_OUT_OF_RANGE = "OverflowError: date value out of range"


def known(value: datetime.date | datetime.timedelta) -> Value:
    """Give the value of a date, a date-time without time zone, or a timedelta."""
    if isinstance(value, datetime.timedelta):
        return Value(TIMEDELTA, why="a timedelta as a value", known=value)
    is_time = isinstance(value, datetime.datetime)
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return Value(DATETIME, why="a date-time with a time zone", known=value)

    def column() -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        text = value.isoformat(" ") if isinstance(value, datetime.datetime) else value.isoformat()
        return F.lit(text).cast("timestamp_ntz" if is_time else "date")

    return Value(DATETIME if is_time else DATE, column, known=value)


def _made(name: str, kind: Kind, make: Callable[..., Any]) -> Function:
    """Give a constructor: computed beforehand where all is known, else left to the evaluator."""

    def function(call: Call) -> Value:
        values = [*call.args, *call.keywords.values()]
        if not all(value.is_known for value in values):
            return uncompiled(kind, f"{name}() of what is not known", *values)
        keywords = {key: value.known for key, value in call.keywords.items()}
        try:
            return known(make(*(value.known for value in call.args), **keywords))
        except Exception as error:
            raise Fails(f"{type(error).__name__}: {error}", call.node) from None

    return function


def _left(name: str, kind: Kind) -> Function:
    return lambda call: uncompiled(kind, f"{name}()", *call.args, *call.keywords.values())


def _date_from_iso(call: Call) -> Value:
    (text,) = positional(call, "date.fromisoformat", 1, 1)
    must_be(text, ("str",), "TypeError: fromisoformat: argument must be str")

    def wrong(column: Column) -> Column:
        return date_texts.iso_date(column).isNull()

    checks: list[Check] = [
        *not_none("TypeError: fromisoformat: argument must be str", text),
        (wrong, lambda column: _said("ValueError: Invalid isoformat string: '", column, "'")),
    ]
    return computed(DATE, date_texts.iso_date, text, checks=checks)


def _said(before: str, column: Column, after: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.concat(F.lit(before), column, F.lit(after))


def _strptime(call: Call) -> Value:
    text, form = positional(call, "datetime.strptime", 2, 2)
    for position, value in enumerate((text, form), 1):
        said = f"TypeError: strptime() argument {position} must be str, not {{kind}}"
        must_be(value, ("str",), said)
    if not isinstance(form.known, str):
        return uncompiled(DATETIME, "strptime() by a format that is not known", text, form)
    found = date_texts.DIRECTIVE.findall(form.known)
    pattern = date_texts.pattern_of(form.known, found)
    if pattern is None:
        return uncompiled(DATETIME, f"strptime() by the format '{form.known}'", text)

    def make(column: Column) -> Column:
        return date_texts.parsed(column, pattern, found)

    def wrong(column: Column) -> Column:
        return make(column).isNull()

    none = "TypeError: strptime() argument 1 must be str, not None"
    end = f"' does not match format '{form.known}'"
    checks: list[Check] = [
        *not_none(none, text),
        (wrong, lambda column: _said("ValueError: time data '", column, end)),
    ]
    return computed(DATETIME, make, text, checks=checks)


def _attribute(spark: str, name: str) -> Callable[[Value], Value]:
    def make(column: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        if name == "microsecond":
            return date_texts.microsecond(column)
        part: Column = getattr(F, spark)(column)
        return part.cast("bigint")

    def attribute(value: Value) -> Value:
        said = f"AttributeError: 'NoneType' object has no attribute '{name}'"
        return computed(INT, make, value, checks=not_none(said, value))

    return attribute


ATTRIBUTES: Mapping[tuple[str, str], Callable[[Value], Value]] = {
    **{
        (kind, name): _attribute(name, name)
        for kind in ("date", "datetime")
        for name in ("year", "month", "day")
    },
    **{
        ("datetime", name): _attribute(name, name)
        for name in ("hour", "minute", "second", "microsecond")
    },
}
"""Attributes that are no methods, by kind and name."""


def _method(kind: Kind, name: str, make: Callable[[Column], Column]) -> Method:
    def method(value: Value, call: Call) -> Value:
        if call.args or call.keywords:
            return uncompiled(kind, f"{name}() with arguments", value, *call.args)
        said = f"AttributeError: 'NoneType' object has no attribute '{name}'"
        return computed(kind, make, value, checks=not_none(said, value))

    return method


def _iso_date(column: Column) -> Column:
    return column.cast("string")


def _weekday(first: int) -> Callable[[Column], Column]:
    def make(column: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        return F.weekday(column).cast("bigint") + first

    return make


def _ordinal(column: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.unix_date(column.cast("date")).cast("bigint") + datetime.date(1970, 1, 1).toordinal()


def _strftime(value: Value, call: Call) -> Value:
    (form,) = named(call, "strftime", ("format",), 1)
    must_be(form, ("str",), "TypeError: strftime() argument 1 must be str, not {kind}")
    text = form.known
    if not isinstance(text, str):
        return uncompiled(STR, "strftime() by a format that is not known", value, form)
    if not date_texts.written(text):
        return uncompiled(STR, f"strftime() by the format '{text}'", value)
    pieces = re.split("(%.)", text, flags=re.DOTALL)

    def make(column: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        written = (date_texts.directive(column, piece) for piece in pieces if piece)
        return F.concat(F.lit(""), *written)

    said = "AttributeError: 'NoneType' object has no attribute 'strftime'"
    return computed(STR, make, value, checks=not_none(said, value))


def _both(name: str, method: Method) -> dict[tuple[str, str], Method]:
    return {("date", name): method, ("datetime", name): method}


METHODS: Mapping[tuple[str, str], Method] = {
    ("date", "isoformat"): _method(STR, "isoformat", _iso_date),
    ("datetime", "isoformat"): _method(STR, "isoformat", date_texts.iso_text),
    ("datetime", "date"): _method(DATE, "date", lambda column: column.cast("date")),
    **_both("weekday", _method(INT, "weekday", _weekday(0))),
    **_both("isoweekday", _method(INT, "isoweekday", _weekday(1))),
    **_both("toordinal", _method(INT, "toordinal", _ordinal)),
    **_both("strftime", _strftime),
    ("date", "replace"): lambda value, call: uncompiled(
        DATE, "replace() of a date", value, *call.args
    ),
    ("datetime", "replace"): lambda value, call: uncompiled(
        DATETIME, "replace() of a date-time", value, *call.args
    ),
    ("datetime", "astimezone"): lambda value, call: uncompiled(
        DATETIME, "astimezone()", value, *call.args
    ),
}
"""Methods of dates and date-times that are compiled, or whose result's kind is known."""

FUNCTIONS: Mapping[str, Function] = {
    "datetime.date": _made("datetime.date", DATE, datetime.date),
    "datetime.datetime": _made("datetime.datetime", DATETIME, datetime.datetime),
    "datetime.timedelta": _made("datetime.timedelta", TIMEDELTA, datetime.timedelta),
    "datetime.time": _left("datetime.time", ANY),
    "datetime.date.fromisoformat": _date_from_iso,
    "datetime.datetime.strptime": _strptime,
    **{
        f"datetime.date.{name}": _left(f"datetime.date.{name}", DATE)
        for name in ("today", "fromtimestamp", "fromordinal", "fromisocalendar")
    },
    **{
        f"datetime.datetime.{name}": _left(f"datetime.datetime.{name}", DATETIME)
        for name in (
            "now",
            "utcnow",
            "today",
            "fromtimestamp",
            "utcfromtimestamp",
            "fromisoformat",
            "fromordinal",
            "fromisocalendar",
            "combine",
        )
    },
}
"""Functions of the module `datetime`, by their dotted names."""


def binary(operator: str, left: Value, right: Value) -> Value:
    """Give `left + right` or `left - right` where one of them is a date, date-time or timedelta.

    Raises:
        Fails: Python has no such operation.
    """
    names = (left.kind.name, right.kind.name)
    kind = _RESULTS.get((operator, *names))
    if kind is None:
        if "any" in names:
            return uncompiled(ANY, "", left, right)
        raise Fails(operand_text(operator, left.kind, right.kind))
    if operator == "+" and names[0] == "timedelta":
        left, right = right, left
    if left.kind.name in {"date", "datetime"} and isinstance(right.known, datetime.timedelta):
        return _shifted(operator, left, right.known)
    return uncompiled(kind, "arithmetic of dates", left, right)


_RESULTS = {
    **{("+", moment.name, "timedelta"): moment for moment in (DATE, DATETIME)},
    **{("+", "timedelta", moment.name): moment for moment in (DATE, DATETIME)},
    **{("-", moment.name, "timedelta"): moment for moment in (DATE, DATETIME)},
    **{("-", moment.name, moment.name): TIMEDELTA for moment in (DATE, DATETIME)},
    **{(sign, "timedelta", "timedelta"): TIMEDELTA for sign in "+-"},
}


def _shifted(operator: str, moment: Value, delta: datetime.timedelta) -> Value:
    is_time = moment.kind.name == "datetime"
    least, most = datetime.datetime.min, datetime.datetime.max
    # Of a date, only the whole days count.
    step = delta if is_time else datetime.timedelta(days=delta.days)
    step = step if operator == "+" else -step
    zero = datetime.timedelta(0)
    try:
        bound = most - step if step >= zero else least - step
    except OverflowError:
        raise Fails(_OUT_OF_RANGE) from None

    def outside(column: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        limit = F.lit(bound.isoformat(" ")).cast("timestamp_ntz")
        at = column.cast("timestamp_ntz")
        return at > limit if step >= zero else at < limit

    def make(column: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        fits = F.when(~outside(column), column)
        if not is_time:
            return F.date_add(fits, F.lit(step.days))
        micros = F.lit(step // datetime.timedelta(microseconds=1)).cast("bigint")
        return F.timestamp_add("MICROSECOND", micros, fits)

    none = operand_text(operator, Kind("none"), TIMEDELTA)
    checks: list[Check] = [*not_none(none, moment), (outside, _OUT_OF_RANGE)]
    return computed(moment.kind.not_none(), make, moment, checks=checks)
