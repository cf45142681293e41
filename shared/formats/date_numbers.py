"""Dates and timestamps as whole numbers, also beyond Python's years 1 to 9999.

Does not import this project, so that it can be sent to workers by value.
"""

from __future__ import annotations

import json
import re
from datetime import date, datetime, time, timedelta

DAY = 86_400_000_000
"""Microseconds."""
MINUS_INFINITY, INFINITY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31, as days since 1970: what infinite dates and timestamps are read as."""

_TEXT = re.compile(
    r"([+-]?\d{4,7})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d))?(?:\.(\d{1,9}))?)?"
    r"\s*(?:[Zz]|([+-])(\d\d)(?::?(\d\d))?)?"
)
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
"""The calendar repeats: Python's dates do the arithmetic within the first cycle."""
_EPOCH = date(1970, 1, 1).toordinal()
_DATES, _TIMESTAMPS = range(-(2**31), 2**31), range(-(2**63), 2**63)
"""The ranges of Spark's types."""
_LAST_YEAR = 9999


def parse_moment(value: object, kind: str) -> int:
    """Read a date or timestamp as days or microseconds since 1970, in the range of Spark's types.

    A `timestamp` is an instant, in UTC if it has no offset. A `date` or `timestamp_ntz` has no time
    zone, so a text with an offset has two meanings: as shown, and in UTC. The earlier one is used,
    as it is a lower bound.

    Args:
        value: An ISO 8601 text; years beyond 9999 have a sign, and the year 0 is 1 BC.
        kind: `date`, `timestamp` or `timestamp_ntz`.

    Raises:
        ValueError: It is not a date or timestamp, or out of the range of Spark's type.
    """
    match = _TEXT.fullmatch(value.strip()) if isinstance(value, str) else None
    try:
        if match is None:
            raise ValueError
        shown, in_utc = _micros(*match.groups())
    except ValueError:
        raise ValueError(f"{json.dumps(value)} is not a date or timestamp") from None
    micros = in_utc if kind == "timestamp" else min(shown, in_utc)
    number, limits = (micros // DAY, _DATES) if kind == "date" else (micros, _TIMESTAMPS)
    if number not in limits:
        raise ValueError(f"{json.dumps(value)} is out of range for {kind}")
    return number


def moment_text(number: int, kind: str) -> str:
    """Write days or microseconds since 1970 as ISO 8601, as Spark and STATE do."""
    days, micros = (number, 0) if kind == "date" else divmod(number, DAY)
    cycles, rest = divmod(days + _EPOCH - 1, _CYCLE_DAYS)
    day = date.fromordinal(rest + 1)
    year = day.year + cycles * _CYCLE_YEARS
    sign = "-" if year < 0 else "+" if year > _LAST_YEAR else ""
    written = f"{sign}{abs(year):04}-{day:%m-%d}"
    if kind == "date":
        return written
    clock = (datetime.min + timedelta(microseconds=micros)).time()
    zone = "+00:00" if kind == "timestamp" else ""
    return f"{written}T{clock.isoformat(timespec='microseconds')}{zone}"


def is_infinite(number: int, kind: str) -> bool:
    """Return whether days or microseconds since 1970 mean an infinite date or timestamp."""
    return (number if kind == "date" else number // DAY) in (MINUS_INFINITY, INFINITY)


_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:\.([0-9]{1,9}))?"
    r"(Z|z|[+-](?:0[0-9]|1[0-7]):?[0-5][0-9])?)?"
)
_NUMBER = re.compile(r"(-?)(0|[1-9][0-9]{0,19})(?:\.([0-9]{1,18}))?")
TEXT_CLASS, NUMBER_CLASS, MOMENT_CLASS = "0", "1", "2"
"""How ranks of texts begin: a text is a date or time, a number, or neither."""
MOMENT_SHIFT = 10**12
"""Makes all seconds since 1970 positive."""
PLACES = 18
NUMBER_SHIFT = 10**20


def text_rank(text: str) -> str:
    """Return a text that sorts as the value of a text does: a date or time, a number, or the text.

    `tap_spark.sources.frame_helpers` computes the same for columns. Times without offset are UTC.
    """
    moment = _MOMENT.fullmatch(text)
    if moment is not None:
        day, clock, fraction, zone = moment.groups()
        try:
            micros = parse_moment(f"{day}T{clock or '00:00'}{zone or ''}".upper(), "timestamp")
        except ValueError:
            return TEXT_CLASS + text
        seconds = micros // 1_000_000 + MOMENT_SHIFT
        return f"{MOMENT_CLASS}{seconds:013}{(fraction or '').ljust(9, '0')}"
    number = _NUMBER.fullmatch(text)
    if number is None:
        return TEXT_CLASS + text
    sign, whole, places = number.groups()
    size = int(whole + (places or "").ljust(PLACES, "0"))
    return f"{NUMBER_CLASS}{NUMBER_SHIFT * 10**PLACES + (-size if sign else size):039}"


def _micros(
    year: str,
    month: str,
    day: str,
    hour: str | None,
    minute: str | None,
    second: str | None,
    fraction: str | None,
    sign: str | None,
    hours: str | None,
    minutes: str | None,
) -> tuple[int, int]:
    """Return microseconds since 1970 of the clock shown, and of the clock in UTC."""
    cycles, place = divmod(int(year) - 1, _CYCLE_YEARS)
    ordinal = date(place + 1, int(month), int(day)).toordinal() + cycles * _CYCLE_DAYS
    micros = int((fraction or "")[:6].ljust(6, "0"))
    clock = time(int(hour or 0), int(minute or 0), int(second or 0), micros)
    offset = time(int(hours or 0), int(minutes or 0))
    shown = (ordinal - _EPOCH) * DAY + _since_midnight(clock)
    ahead = _since_midnight(offset)
    return shown, shown + (ahead if sign == "-" else -ahead)


def _since_midnight(clock: time) -> int:
    seconds = (clock.hour * 60 + clock.minute) * 60 + clock.second
    return seconds * 1_000_000 + clock.microsecond
