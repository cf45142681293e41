"""Types for columns of text, chosen only where every value's text survives the round trip.

One pass over the data folds, per column, the set of forms its values have into one integer of
bits; `decide` reads the type from it. `00501`, `+1` and `1_000` have the form OTHER: they stay
strings.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from tap_spark.sources.frames import MAX_DECIMAL, col

OTHER, SHORT_INT, INT, BIG_INT, FLOAT, FIXED, BOOLEAN, DATE, LOCAL_TIME, INSTANT = (
    1 << bit for bit in range(10)
)
SCALE_SHIFT = 10
SCALE_BITS = 20
FLOAT_DIGITS = 15
LONG_DIGITS = 18
BIG_DIGITS = 38
MAX_FIXED_DIGITS = 18

_INT = r"^(0|-?[1-9][0-9]*)$"
_FRACTION = r"^-?(0|[1-9][0-9]*)\.[0-9]+$"
_PLAIN_FRACTION = r"^-?(0|[1-9][0-9]*)\.([0-9]*[1-9]|0)$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"


def infer_types(frame: DataFrame, names: Sequence[str]) -> list[DataType]:
    """Types for string columns; reads the frame once.

    Args:
        frame: Has the columns, all of type string.
        names: Which columns to look at.
    """
    forms = [F.bit_or(form(col(name))).alias(f"f{index}") for index, name in enumerate(names)]
    row = frame.agg(*forms).collect()[0]
    return [decide(bits) for bits in row]


def decide(bits: int | None) -> DataType:  # noqa: PLR0911
    """The type that keeps every form in `bits`; None stands for a column of nulls."""
    if bits is None:
        return StringType()
    forms, scales = bits & ((1 << SCALE_SHIFT) - 1), bits >> SCALE_SHIFT
    single: dict[int, DataType] = {
        BOOLEAN: BooleanType(),
        DATE: DateType(),
        LOCAL_TIME: TimestampNTZType(),
        INSTANT: TimestampType(),
    }
    if forms in single:
        return single[forms]
    if not forms & ~(SHORT_INT | INT):
        return LongType()
    if not forms & ~(SHORT_INT | INT | BIG_INT):
        return DecimalType(MAX_DECIMAL, 0)
    if not forms & ~(SHORT_INT | FLOAT):
        return DoubleType()
    one_scale = scales and not scales & (scales - 1)
    if not forms & ~(FLOAT | FIXED) and one_scale:
        return DecimalType(MAX_DECIMAL, scales.bit_length() - 1)
    return StringType()


def form(text: Column) -> Column:
    """The form of a value as bits; null for null."""
    return (
        F.when(text.isNull(), F.lit(None).cast("long"))
        .when(text.rlike("^-?[0-9]") & (F.length(text) <= BIG_DIGITS + 2), _of_digits(text))
        .when(text.isin("true", "false"), F.lit(BOOLEAN).cast("long"))
        .otherwise(F.lit(OTHER).cast("long"))
    )


def _of_digits(text: Column) -> Column:
    digits = F.length(F.regexp_replace(text, "[-.]", ""))
    scale = F.length(text) - F.instr(text, ".")
    scale_bit = F.expr("1L").cast("long") * F.pow(F.lit(2.0), scale + SCALE_SHIFT).cast("long")
    plain = text.rlike(_PLAIN_FRACTION) & (digits <= FLOAT_DIGITS)
    fixed = text.rlike(_FRACTION) & (digits <= MAX_FIXED_DIGITS)
    return (
        F.when(
            text.rlike(_INT),
            F.when(digits <= FLOAT_DIGITS, F.lit(SHORT_INT))
            .when(digits <= LONG_DIGITS, F.lit(INT))
            .when(text.try_cast("long").isNotNull(), F.lit(INT))
            .when(digits <= BIG_DIGITS, F.lit(BIG_INT))
            .otherwise(F.lit(OTHER)),
        )
        .when(plain, F.lit(FLOAT).bitwiseOR(scale_bit))
        .when(fixed, F.lit(FIXED).bitwiseOR(scale_bit))
        .when(text.rlike(_DATE), _if_castable(text, "date", DATE))
        .when(text.rlike(_TIME + "$"), _if_castable(text, "timestamp_ntz", LOCAL_TIME))
        .when(
            text.rlike(_TIME + r"(Z|[+-][0-9]{2}:[0-9]{2})$"),
            _if_castable(text, "timestamp", INSTANT),
        )
        .otherwise(F.lit(OTHER))
        .cast("long")
    )


def _if_castable(text: Column, kind: str, bit: int) -> Column:
    good = text.try_cast(kind).isNotNull() & (F.substring(text, 1, 4) != "0000")
    return F.when(good, F.lit(bit)).otherwise(F.lit(OTHER))
