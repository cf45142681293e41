"""Dates as text: what `fromisoformat`, `strptime`, `strftime` and `isoformat` read and write."""

from __future__ import annotations

import datetime
import importlib
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shared.transforms.expressions import characters

if TYPE_CHECKING:
    from pyspark.sql import Column

DIRECTIVE = re.compile("%(.)", re.DOTALL)
"""A directive of a format."""

_ONLY_ISO_DATES = sys.version_info < (3, 11)
_PADDED_YEARS = datetime.date(33, 1, 1).strftime("%Y") == "0033"
_READ = frozenset("YmdHMSfy")
# Where the parts are in `YYYY-MM-DD HH:MM:SS.ffffff`.
_WRITTEN = {
    "Y": (1, 4),
    "m": (6, 2),
    "d": (9, 2),
    "H": (12, 2),
    "M": (15, 2),
    "S": (18, 2),
    "f": (21, 6),
    "y": (3, 2),
}


def iso_date(text: Column) -> Column:
    """Give `date.fromisoformat(text)`; null where Python raises."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    found = F.when(F.rlike(text, F.lit(r"\A\d{4}-\d\d-\d\d\z")), _date(text))
    if _ONLY_ISO_DATES:
        return found
    digits = F.regexp_replace(text, r"\A(\d{4})(\d\d)(\d\d)\z", "$1-$2-$3")
    found = found.when(F.rlike(text, F.lit(r"\A\d{8}\z")), _date(digits))
    return found.when(F.rlike(text, F.lit(_WEEK_DATE)), _week_date(text))


_WEEK_DATE = r"\A\d{4}(-W\d\d(-\d)?|W\d\d(\d)?)\z"


def _week_date(text: Column) -> Column:
    """Give the date of an ISO week and day (Monday where none is given)."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    plain = F.translate(text, "-W", "")
    year = F.substring(plain, 1, 4).try_cast("int")
    week = F.substring(plain, 5, 2).try_cast("int")
    day = F.coalesce(F.substring(plain, 7, 1).try_cast("int"), F.lit(1))
    fourth = _date(F.concat(F.substring(plain, 1, 4), F.lit("-01-04")))
    monday = F.date_sub(fourth, F.weekday(fourth))
    # The year has a week 53 where its 28th of December is in one.
    last = F.weekofyear(_date(F.concat(F.substring(plain, 1, 4), F.lit("-12-28"))))
    found = F.date_add(monday, (week - 1) * 7 + day - 1)
    right = (week >= 1) & (week <= last) & (day >= 1) & (day <= 7)  # noqa: PLR2004
    in_range = (F.year(found) >= 1) & (F.year(found) <= 9999)  # noqa: PLR2004
    return F.when(right & (year >= 1) & in_range, found)


def _date(text: Column) -> Column:
    """Give the date of `YYYY-MM-DD`; null where there is none, as in year 0."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.when(~F.startswith(text, F.lit("0000")), text.try_cast("date"))


def pattern_of(form: str, found: Sequence[str]) -> str | None:
    """Give Python's own regular expression for a format; None where it is not for Spark."""
    plain = form.isascii() and set(found) <= _READ and len(set(found)) == len(found)
    if not plain or "%" in DIRECTIVE.sub("", form) or len({"Y", "y"} & set(found)) != 1:
        return None
    try:
        pattern: str = importlib.import_module("_strptime").TimeRE().pattern(form)
    except (ImportError, AttributeError):
        return None
    return re.sub(r"\(\?P<\w>", "(", pattern)


def parsed(text: Column, pattern: str, found: Sequence[str]) -> Column:
    """Give the date-time of a text; null where it does not match or is none."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    digits, spaces = characters.char_class("isdecimal"), characters.char_class("isspace")
    wide = pattern.replace(r"\d", f"[{digits}]").replace(r"\s", f"[{spaces}]")
    regex = rf"\A(?iu:{wide})"

    def part(directive: str, default: str) -> str:
        return f"${found.index(directive) + 1}" if directive in found else default

    day = f"{part('Y', part('y', ''))}-{part('m', '1')}-{part('d', '1')}"
    time = f"{part('H', '0')}:{part('M', '0')}:{part('S', '0')}.{part('f', '0')}"
    plain = F.translate(F.regexp_replace(text, regex, f"{day}T{time}"), " ", "")
    iso = characters.ascii_digits(plain)
    if "y" in found:
        century = F.when(F.substring(iso, 1, 2) <= "68", F.lit("20")).otherwise(F.lit("19"))
        iso = F.concat(century, iso)
    # Python takes the first match, and then asks whether it is the whole text.
    matches = (F.regexp_extract(text, regex, 0) == text) & (text != "")
    return F.when(matches & ~F.startswith(iso, F.lit("0000")), iso.try_cast("timestamp_ntz"))


def _whole(moment: Column) -> Column:
    """Write a date-time without time zone, with all of its 6 decimal places."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    text = moment.cast("timestamp_ntz").cast("string")
    dotted = F.when(F.contains(text, F.lit(".")), text).otherwise(F.concat(text, F.lit(".")))
    return F.rpad(dotted, 26, "0")


def iso_text(moment: Column) -> Column:
    """Give `isoformat()` of a date-time without time zone."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    text = F.translate(_whole(moment), " ", "T")
    seconds = F.substring(text, 1, 19)
    return F.when(F.endswith(text, F.lit(".000000")), seconds).otherwise(text)


def microsecond(moment: Column) -> Column:
    """Give the microseconds of a date-time, as an integer."""
    return directive(moment, "%f").try_cast("bigint")


def written(text: str) -> bool:
    """Say whether `strftime` by this format is compiled."""
    plain = text.isascii() and "\0" not in text and "%" not in DIRECTIVE.sub("", text)
    return plain and set(DIRECTIVE.findall(text)) <= {*_WRITTEN, "j", "%"}


def directive(moment: Column, piece: str) -> Column:
    """Give what `strftime` writes for a directive, or for text between them."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    if piece == "%%" or not piece.startswith("%"):
        return F.lit("%" if piece == "%%" else piece)
    if piece == "%j":
        return F.lpad(F.dayofyear(moment).cast("string"), 3, "0")
    part = F.substring(_whole(moment), *_WRITTEN[piece[1]])
    return F.ltrim(part, F.lit("0")) if piece == "%Y" and not _PADDED_YEARS else part
