"""Replication keys of text in the order of their values: dates and times, numbers, then as text."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from shared.spark.session import try_cast
from tap_spark.state.date_numbers import (
    MOMENT_CLASS,
    MOMENT_SHIFT,
    NUMBER_CLASS,
    NUMBER_SHIFT,
    PLACES,
    TEXT_CLASS,
    text_rank,
)

_MOMENT = (
    r"^([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:\.([0-9]{1,9}))?"
    r"(Z|z|[+-](?:0[0-9]|1[0-7]):?[0-5][0-9])?)?\z"
)
_NUMBER = r"^(-?)(0|[1-9][0-9]{0,19})(?:\.([0-9]{1,18}))?\z"


def rank_column(key: Column) -> Column:
    """Return what `text_rank` returns for the texts of a column."""
    day, clock, fraction, zone = (F.regexp_extract(key, _MOMENT, n) for n in range(1, 5))
    clock = F.when(clock == "", F.lit("00:00:00")).otherwise(F.rpad(clock, 8, ":00"))
    zone = F.when((zone == "") | (F.upper(zone) == "Z"), F.lit("+00:00")).otherwise(
        F.concat(F.substring(zone, 1, 3), F.lit(":"), F.substring(zone, -2, 2))
    )
    moment = try_cast(F.concat(day, F.lit("T"), clock, zone), "timestamp")
    shifted = F.unix_seconds(moment) + F.lit(MOMENT_SHIFT)
    as_moment = F.concat(
        F.lit(MOMENT_CLASS), F.lpad(shifted.cast("string"), 13, "0"), F.rpad(fraction, 9, "0")
    )
    sign, whole, places = (F.regexp_extract(key, _NUMBER, n) for n in range(1, 4))
    size = try_cast(F.concat(whole, F.rpad(places, PLACES, "0")), "decimal(38,0)")
    # A decimal has 38 digits: the digit that the shift adds is written before the others.
    rest = F.lit(str(NUMBER_SHIFT * 10**PLACES - 1)).cast("decimal(38,0)")
    below = (rest - size + F.lit(1)).cast("decimal(38,0)")
    positive = F.concat(F.lit("1"), F.lpad(size.cast("string"), 38, "0"))
    negative = F.when(size == 0, positive).otherwise(
        F.concat(F.lit("0"), F.lpad(below.cast("string"), 38, "0"))
    )
    as_number = F.concat(F.lit(NUMBER_CLASS), F.when(sign == "-", negative).otherwise(positive))
    return (
        F.when(key.rlike(_MOMENT) & moment.isNotNull(), as_moment)
        .when(key.rlike(_NUMBER), as_number)
        .otherwise(F.concat(F.lit(TEXT_CLASS), key))
    )


def is_at_or_above(key: Column, start: str) -> Column:
    """Return whether a text is not below another; one of another kind has no order to it."""
    rank, bound = rank_column(key), text_rank(start)
    return (rank >= F.lit(bound)) | (F.substring(rank, 1, 1) != F.lit(bound[0]))


def is_below(key: Column, end: str) -> Column:
    """Return whether a text is below another, or of another kind than a date, time or number."""
    rank, bound = rank_column(key), text_rank(end)
    if bound.startswith(TEXT_CLASS):
        # Sources can compare it themselves.
        return key < F.lit(end)
    return (rank < F.lit(bound)) | (F.substring(rank, 1, 1) != F.lit(bound[0]))
