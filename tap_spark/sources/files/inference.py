"""Types for columns of text, chosen only if they keep the text of every value.

One pass over the data collects the forms of the values of each column, as bits of an integer;
`decide` chooses the type from them. `00501`, `+1` and `1_000` have the form OTHER and stay
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
    FloatType,
    IntegralType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from shared.spark.session import try_cast
from tap_spark.sources.files import text_forms as forms
from tap_spark.sources.files.exact_values import has_same_value
from tap_spark.sources.frame_helpers import MAX_DECIMAL, col, fail_job

SINGLE_DIGITS = 6
SURE = 19
VALUE = "_tap_spark_value_"
PARSING = ("dateFormat", "timestampFormat", "timestampNTZFormat", "locale", "timeZone")
"""Options by which Spark parses dates and times."""
TIMES = (DateType, TimestampType, TimestampNTZType)
INFERRED_HINT = "run --discover again, or set 'schema'"
EXACT_HINT = "correct it, or give the column a type in 'schema' that holds it, such as STRING"

_INT = "(?:0|-?[1-9][0-9]*)"
_FRACTION = r"-?(?:0|[1-9][0-9]*)\.[0-9]"
_NUMBER = rf"^(?:{_INT}|{_FRACTION}+)\z"
_DAY = "^(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = _DAY + r"[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
_WRITTEN: dict[type[DataType], str] = {
    DateType: _DAY + r"\z",
    TimestampNTZType: _TIME + r"\z",
    TimestampType: _TIME + r"(?:Z|[+-][0-9]{2}:[0-9]{2})\z",
}


def infer_types(frame: DataFrame, names: Sequence[str]) -> list[DataType]:
    """Infer types of string columns; reads the frame once.

    Args:
        frame: Has the columns, all of type string.
        names: Which columns to look at.
    """
    # mapInArrow takes names for expressions, dots and all.
    text = frame.select(*(col(name).alias(f"c{n}") for n, name in enumerate(names)))
    found = text.mapInArrow(forms.forms_reader(len(names)), forms.FORMS_SCHEMA).collect()
    return [decide(bits) for bits in forms.union((row[0] for row in found), len(names))]


def decide(bits: int | None) -> DataType:
    """Return the type that keeps every form in `bits`; None means a column of nulls."""
    if bits is None or forms.settled(bits):
        return StringType()
    found = bits & ((1 << forms.SCALE_SHIFT) - 1)
    single: dict[int, DataType] = {
        forms.BOOLEAN: BooleanType(),
        forms.DATE: DateType(),
        forms.LOCAL_TIME: TimestampNTZType(),
        forms.INSTANT: TimestampType(),
    }
    if found in single:
        return single[found]
    if found & forms.BIG_INT:
        return DecimalType(MAX_DECIMAL, 0)
    if found & forms.FIXED:
        return DecimalType(MAX_DECIMAL, forms.one_scale(bits) or 0)
    return DoubleType() if found & forms.FLOAT else LongType()


def written_as(text: Column, dtype: DataType) -> Column:
    """Return whether a text keeps its text, or as a number its value, in a type.

    Trailing zeros of fractions may go; leading zeros, signs, spaces and digits may not.
    """
    return _keeps(text, try_cast(text, dtype), dtype)


def exact_casts(
    frame: DataFrame, struct: StructType, file: Column, *, by_value: bool = False
) -> DataFrame:
    """Cast the struct's columns that the frame has to the struct's types.

    Text that its column's type would not keep fails the job.

    Args:
        frame: The rows; columns that are not text are cast by Spark.
        struct: Names and types.
        file: An expression for the file of a row, for the error.
        by_value: Whether only the value of a text must stay, as for types that users chose.
    """
    keeps = has_same_value if by_value else _keeps
    kept, hint = ("", EXACT_HINT) if by_value else (" as written", INFERRED_HINT)
    types = {field.name: field.dataType for field in frame.schema.fields}
    fields = [field for field in struct.fields if field.name in types]
    # A value that a select names is computed once, even if it is used often.
    named, casts = [], []
    for number, field in enumerate(fields):
        text, dtype = col(field.name), field.dataType
        if isinstance(dtype, StringType) or not isinstance(types[field.name], StringType):
            named.append(text)
            casts.append(text.cast(dtype).alias(field.name))
            continue
        value = col(f"{VALUE}{number}")
        named += [text, try_cast(text, dtype).alias(f"{VALUE}{number}")]
        failure = fail_job(
            f"column '{field.name}' holds a value that type {dtype.simpleString()} cannot keep"
            + kept,
            value=text,
            file=col(VALUE),
            hint=hint,
        )
        good = text.isNull() | F.coalesce(
            value.isNotNull() & keeps(text, value, dtype), F.lit(False)
        )
        casts.append(F.when(good, value).otherwise(failure.cast(dtype)).alias(field.name))
    return frame.select(*named, file.alias(VALUE)).select(*casts)


def _keeps(text: Column, value: Column, dtype: DataType) -> Column:
    """Return whether a type keeps a text, given its value; null or true if the value is null."""
    if isinstance(dtype, (IntegralType, BooleanType)):
        return value.cast("string") == text
    if isinstance(dtype, DecimalType):
        fraction = f"|{_FRACTION}{{1,{dtype.scale}}}" if dtype.scale else ""
        return value.isNotNull() & text.rlike(rf"^(?:{_INT}{fraction})\z")
    if isinstance(dtype, (FloatType, DoubleType)):
        most = forms.FLOAT_DIGITS if isinstance(dtype, DoubleType) else SINGLE_DIGITS
        return text.rlike(_NUMBER) & ((F.length(text) <= most) | _same_number(text, value, most))
    written = _WRITTEN.get(type(dtype))
    return value.isNotNull() & (text.rlike(written) if written else F.lit(True))


def _same_number(text: Column, value: Column, most: int) -> Column:
    """Return whether a number kept its text, which is longer than the type surely keeps."""
    digits = F.length(text) - F.instr(text, ".").cast("boolean").cast("int")
    exact = "decimal(38,18)"
    same = try_cast(value.cast("string"), exact) == try_cast(text, exact)
    return (digits <= most) | ((F.length(text) <= SURE) & same)
