"""Columns of text: the forms of their values, and types that keep every value.

1. One pass over the data collects the forms of each column's values, as bits of an integer. The
   bits above `SCALE_SHIFT` are the numbers of decimal places of its fractions.
2. `decide` chooses the type from them, only if it keeps the text of every value: `00501`, `+1` and
   `1_000` have the form OTHER and stay strings.
3. A type of `schema` must keep the value alone; other values are rejected.
4. Without Spark, `typed_column` gives the columns that Spark's casts give, or none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from shared.formats.arrow_types import spark_to_arrow
from shared.singer.platform import arrow_in_task
from shared.spark.session import try_cast
from tap_spark.sources.frame_helpers import MAX_DECIMAL, col, fail_job

OTHER, SHORT_INT, INT, BIG_INT, FLOAT, FIXED, BOOLEAN, DATE, LOCAL_TIME, INSTANT = (
    1 << bit for bit in range(10)
)
SCALE_SHIFT = 10
_FORM_BITS = (1 << SCALE_SHIFT) - 1
FLOAT_DIGITS, SINGLE_DIGITS = 15, 6
"""Digits that a float of 64 or 32 bits keeps, whatever they are."""
LONG_DIGITS = 18
BIG_DIGITS = 38
MAX_FIXED_DIGITS = 18
FORMS_SCHEMA = "forms array<bigint>"
ONE_TYPE = (
    BOOLEAN,
    DATE,
    LOCAL_TIME,
    INSTANT,
    SHORT_INT | INT | BIG_INT,
    SHORT_INT | FLOAT,
)
_SAMPLE, _LOOKED_AT = 64, 1024
_ARROW = pa.schema([pa.field("forms", pa.list_(pa.int64()))])
_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_LOCAL_TIME = _DATE + r"[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
_OFFSET = "(?:Z|[+-](?:(?:0[0-9]|1[0-7]):[0-5][0-9]|18:00))"


def forms_reader(
    count: int,
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Return a function for `mapInArrow`: columns of text in, one row with the forms of each out.

    A column of nulls only has null for its forms.
    """

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrow_in_task()
        forms: list[int | None] = [None] * count
        for batch in batches:
            forms = [add_forms(bits, batch.column(n)) for n, bits in enumerate(forms)]
        yield pa.record_batch([pa.array([forms], _ARROW.field(0).type)], schema=_ARROW)

    return read


def add_forms(bits: int | None, values: pa.Array) -> int | None:
    """Add the forms of more values to those so far; stops once only text is possible."""
    values = values.drop_null()
    # A few values show that most columns are text.
    for part in (values.slice(0, _SAMPLE), values.slice(_SAMPLE)):
        if len(part) and not holds_only_text(bits):
            # If most values come again, each is looked at once.
            first = part.slice(0, _LOOKED_AT)
            is_varied = 2 * pc.count_distinct(first).as_py() > len(first)
            bits = (bits or 0) | _forms(part if is_varied else part.unique())
    return bits


def union(sets: Iterable[Sequence[int | None]], count: int) -> list[int | None]:
    """Return the forms of each of `count` columns over all tasks."""
    forms: list[int | None] = [None] * count
    for row in sets:
        forms = [b if a is None else a | (b or 0) for a, b in zip(forms, row, strict=True)]
    return forms


def holds_only_text(bits: int | None) -> bool:
    """Return whether only text can hold all these forms, with any forms that follow."""
    if bits is None:
        return False
    forms = bits & _FORM_BITS
    return all(forms & ~kept for kept in ONE_TYPE) and one_scale(bits) is None


def one_scale(bits: int) -> int | None:
    """Return the digits after the point, if all values are fractions with equally many."""
    forms, scales = bits & _FORM_BITS, bits >> SCALE_SHIFT
    if forms & ~(FLOAT | FIXED) or not scales or scales & (scales - 1):
        return None
    return scales.bit_length() - 1


def _forms(values: pa.Array) -> int:
    """Find the forms of values that are not null; stops at the first that only text can hold."""
    bits = 0
    while len(values) and not holds_only_text(bits):
        first = values[0].as_py()
        kind = next((kind for kind in _KINDS if re.fullmatch(kind, first)), None)
        if kind is None:
            return bits | OTHER
        alike = pc.match_substring_regex(values, f"^(?:{kind})$")
        uniform = alike.false_count == 0
        bits |= _KINDS[kind](values if uniform else values.filter(alike))
        values = values.slice(0, 0) if uniform else values.filter(pc.invert(alike))
    return bits


def _integers(values: pa.Array) -> int:
    longest = pc.max(pc.binary_length(values)).as_py()
    if longest <= FLOAT_DIGITS:
        return SHORT_INT
    signs = pc.cast(pc.starts_with(values, "-"), pa.int32())
    digits = pc.subtract(pc.binary_length(values), signs)
    shortest, longest = (bound.as_py() for bound in pc.min_max(digits).values())
    small = SHORT_INT if shortest <= FLOAT_DIGITS else 0
    if longest <= FLOAT_DIGITS:
        return SHORT_INT
    if longest <= LONG_DIGITS or _reads_as(values, pa.int64()):
        return small | INT
    return small | (BIG_INT if longest <= BIG_DIGITS else OTHER)


def _fractions(values: pa.Array) -> int:
    # A minus sign counts as a digit.
    digits = pc.subtract(pc.binary_length(values), 1)
    if pc.max(digits).as_py() > MAX_FIXED_DIGITS:
        return OTHER
    scales = pc.subtract(digits, pc.find_substring(values, "."))
    bits: int = reduce(or_, (1 << scale + SCALE_SHIFT for scale in pc.unique(scales).to_pylist()))
    padded = pc.and_(pc.ends_with(values, "0"), pc.greater(scales, 1))
    fixed = pc.or_(padded, pc.greater(digits, FLOAT_DIGITS))
    bits |= FIXED if fixed.true_count else 0
    return bits | (FLOAT if fixed.false_count else 0)


def _moments(values: pa.Array, form: int, kind: pa.DataType) -> int:
    has_year_0 = pc.any(pc.starts_with(values, "0000")).as_py()
    return OTHER if has_year_0 or not _reads_as(values, kind) else form


def _reads_as(values: pa.Array, kind: pa.DataType) -> bool:
    try:
        pc.cast(values, kind)
    except pa.ArrowInvalid:
        return False
    return True


_KINDS: dict[str, Callable[[pa.Array], int]] = {
    "0|-?[1-9][0-9]*": _integers,
    r"-?(?:0|[1-9][0-9]*)\.[0-9]+": _fractions,
    "true|false": lambda _: BOOLEAN,
    _DATE: lambda values: _moments(values, DATE, pa.date32()),
    _LOCAL_TIME: lambda values: _moments(values, LOCAL_TIME, pa.timestamp("us")),
    _LOCAL_TIME + _OFFSET: lambda values: _moments(values, INSTANT, pa.timestamp("us", "UTC")),
}


_LEAST: dict[type[T.DataType], float] = {T.DoubleType: 2.3e-308, T.FloatType: 1.2e-38}
"""Smaller values keep fewer digits."""

_NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?\z"
_INFINITE = r"^(?:[Nn]a[Nn]|[+-]?(?:Inf|Infinity|INF|inf|infinity))\z"
_LOOSE_DAY = r"^[+-]?[0-9]{4,7}-[0-9]{1,2}-[0-9]{1,2}"
_CLOCK = r"[0-9]{1,2}:[0-9]{1,2}(?::[0-9]{1,2}(?:\.[0-9]{1,6}0*)?)?"
_ZONE = r" ?(?:[A-Za-z+-][A-Za-z0-9_+:/-]*)?"
_EXACT_TEXTS: dict[type[T.DataType], str] = {
    **dict.fromkeys((T.ByteType, T.ShortType, T.IntegerType, T.LongType), r"^[+-]?[0-9]+\z"),
    T.BooleanType: r"^(?i:true|false)\z",
    T.DateType: _LOOSE_DAY + r"(?:[ T]00:00(?::00(?:\.0+)?)?)?\z",
    T.TimestampType: _LOOSE_DAY + rf"(?:[ T]{_CLOCK}{_ZONE})?\z",
    T.TimestampNTZType: _LOOSE_DAY + rf"(?:[ T]{_CLOCK})?\z",
}


def has_same_value(text: Column, value: Column, dtype: T.DataType) -> Column:
    """Return whether a cast has kept the value of a text; null or false if the cast is null."""
    if isinstance(dtype, T.DecimalType):
        digits, power = _digits(text)
        fits = (digits == "") | (power >= -dtype.scale)
        return value.isNotNull() & text.rlike(_NUMBER) & fits
    if isinstance(dtype, (T.DoubleType, T.FloatType)):
        return (text.rlike(_NUMBER) & _same_float(text, value, dtype)) | text.rlike(_INFINITE)
    if isinstance(dtype, (T.VarcharType, T.CharType)):
        return F.length(text) <= dtype.length
    form = _EXACT_TEXTS.get(type(dtype))
    if form is None and dtype.typeName() == "time":
        form = rf"^{_CLOCK}\z"
    return value.isNotNull() & (text.rlike(form) if form else F.lit(True))


def _same_float(text: Column, value: Column, dtype: T.DataType) -> Column:
    """Return whether the nearest float is written with the digits of the text."""
    digits, power = _digits(text)
    kept, kept_power = _digits(value.cast("string"))
    most = FLOAT_DIGITS if isinstance(dtype, T.DoubleType) else SINGLE_DIGITS
    is_sure = (F.length(text) <= most) & F.abs(value).between(_LEAST[type(dtype)], F.lit(1e30))
    return is_sure | ((digits == kept) & ((digits == "") | (power == kept_power)))


def _digits(text: Column) -> tuple[Column, Column]:
    """Return the digits of a number without zeros around them, and the power of the last one."""
    lower = F.lower(text)
    mantissa = F.substring_index(lower, "e", 1)
    written = F.when(F.instr(lower, "e") > 0, F.substring_index(lower, "e", -1)).otherwise("0")
    whole = F.regexp_replace(mantissa, "[^0-9]", "")
    places = F.when(
        F.instr(mantissa, ".") > 0, F.length(F.substring_index(mantissa, ".", -1))
    ).otherwise(0)
    kept = F.rtrim(whole, F.lit("0"))
    power = try_cast(written, "int") - places + F.length(whole) - F.length(kept)
    return F.ltrim(kept, F.lit("0")), power


SURE = 19
VALUE = "_tap_spark_value_"
PARSING = ("dateFormat", "timestampFormat", "timestampNTZFormat", "locale", "timeZone")
"""Options by which Spark parses dates and times."""
TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType)
INFERRED_HINT = "run --discover again, or set 'schema'"
EXACT_HINT = "correct it, or give the column a type in 'schema' that holds it, such as STRING"

_INT = "(?:0|-?[1-9][0-9]*)"
_FRACTION = r"-?(?:0|[1-9][0-9]*)\.[0-9]"
_PLAIN_NUMBER = rf"^(?:{_INT}|{_FRACTION}+)\z"
_WRITTEN: dict[type[T.DataType], str] = {
    T.DateType: rf"^(?!0000){_DATE}\z",
    T.TimestampNTZType: rf"^(?!0000){_LOCAL_TIME}\z",
    T.TimestampType: rf"^(?!0000){_LOCAL_TIME}(?:Z|[+-][0-9]{{2}}:[0-9]{{2}})\z",
}


def infer_types(frame: DataFrame, names: Sequence[str]) -> list[T.DataType]:
    """Infer types of some columns of text; reads the frame once."""
    # mapInArrow takes names for expressions, dots and all.
    text = frame.select(*(col(name).alias(f"c{n}") for n, name in enumerate(names)))
    rows = text.mapInArrow(forms_reader(len(names)), FORMS_SCHEMA).collect()
    return [decide(bits) for bits in union((row[0] for row in rows), len(names))]


def decide(bits: int | None) -> T.DataType:
    """Return the type that keeps every form in `bits`; None means a column of nulls."""
    if bits is None or holds_only_text(bits):
        return T.StringType()
    forms = bits & _FORM_BITS
    single: dict[int, T.DataType] = {
        BOOLEAN: T.BooleanType(),
        DATE: T.DateType(),
        LOCAL_TIME: T.TimestampNTZType(),
        INSTANT: T.TimestampType(),
    }
    if forms in single:
        return single[forms]
    if forms & BIG_INT:
        return T.DecimalType(MAX_DECIMAL, 0)
    if forms & FIXED:
        return T.DecimalType(MAX_DECIMAL, one_scale(bits) or 0)
    return T.DoubleType() if forms & FLOAT else T.LongType()


def exact_casts(
    frame: DataFrame, struct: T.StructType, file: Column, *, by_value: bool = False
) -> DataFrame:
    """Cast the struct's columns that the frame has to the struct's types.

    Text that its column's type would not keep fails the job.

    Args:
        frame: The rows; columns that are not text are cast by Spark.
        struct: Names and types.
        file: An expression for the file of a row, for the error.
        by_value: Whether only the value of a text must stay, as for types that users chose.
    """
    keeps = has_same_value if by_value else keeps_text
    kept, hint = ("", EXACT_HINT) if by_value else (" as written", INFERRED_HINT)
    types = {field.name: field.dataType for field in frame.schema.fields}
    fields = [field for field in struct.fields if field.name in types]
    # A value that a select names is computed once, even if it is used often.
    named, casts = [], []
    for number, field in enumerate(fields):
        text, dtype = col(field.name), field.dataType
        if isinstance(dtype, T.StringType) or not isinstance(types[field.name], T.StringType):
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


def keeps_text(text: Column, value: Column, dtype: T.DataType) -> Column:
    """Return whether a type keeps a text, or as a number its value; null or true for a null value.

    Trailing zeros of fractions may go; leading zeros, signs, spaces and digits may not.
    """
    if isinstance(dtype, (T.IntegralType, T.BooleanType)):
        return value.cast("string") == text
    if isinstance(dtype, T.DecimalType):
        fraction = f"|{_FRACTION}{{1,{dtype.scale}}}" if dtype.scale else ""
        return value.isNotNull() & text.rlike(rf"^(?:{_INT}{fraction})\z")
    if isinstance(dtype, (T.FloatType, T.DoubleType)):
        most = FLOAT_DIGITS if isinstance(dtype, T.DoubleType) else SINGLE_DIGITS
        return text.rlike(_PLAIN_NUMBER) & (
            (F.length(text) <= most) | _same_number(text, value, most)
        )
    written = _WRITTEN.get(type(dtype))
    return value.isNotNull() & (text.rlike(written) if written else F.lit(True))


def _same_number(text: Column, value: Column, most: int) -> Column:
    """Return whether a number kept its text, which is longer than the type surely keeps."""
    digits = F.length(text) - F.instr(text, ".").cast("boolean").cast("int")
    exact = "decimal(38,18)"
    same = try_cast(value.cast("string"), exact) == try_cast(text, exact)
    return (digits <= most) | ((F.length(text) <= SURE) & same)


_KEPT: Mapping[type[T.DataType], int] = {
    T.BooleanType: BOOLEAN,
    T.LongType: SHORT_INT | INT,
    T.DoubleType: SHORT_INT | FLOAT,
    T.DateType: DATE,
    T.TimestampNTZType: LOCAL_TIME,
    T.TimestampType: INSTANT,
}


def typed_arrays(
    columns: Sequence[pa.StringArray], types: Sequence[T.DataType]
) -> list[pa.Array] | None:
    """Return columns in their types; None if Spark must cast one of them."""
    arrays = [typed_column(v, dtype) for v, dtype in zip(columns, types, strict=True)]
    return None if any(array is None for array in arrays) else arrays


def typed_column(values: pa.StringArray, dtype: T.DataType) -> pa.Array | None:
    """Return the values of a file in a type; None if Spark must cast them."""
    if is_text(dtype):
        return values
    if not is_known(dtype):
        return None
    longest = _longest(values) if isinstance(dtype, T.DecimalType) else 0
    if not keeps_forms(dtype, add_forms(None, values), longest):
        return None
    return pc.cast(values, spark_to_arrow(dtype))


def _longest(values: pa.StringArray) -> int:
    """Return the characters of the longest number, without its sign."""
    signs = pc.cast(pc.starts_with(values, "-"), pa.int32())
    return int(pc.max(pc.subtract(pc.binary_length(values), signs)).as_py() or 0)


def is_text(dtype: T.DataType) -> bool:
    """Return whether a type is plain text, which keeps every text."""
    return type(dtype) is T.StringType and dtype == T.StringType()


def is_known(dtype: T.DataType) -> bool:
    """Return whether `keeps_forms` knows the type."""
    return is_text(dtype) or type(dtype) in _KEPT or isinstance(dtype, T.DecimalType)


def keeps_forms(dtype: T.DataType, bits: int | None, longest: int = BIG_DIGITS) -> bool:
    """Return whether a type surely keeps all values of some forms as they are written.

    Args:
        dtype: The type.
        bits: The forms; None of nulls only.
        longest: Characters of the longest number without its sign; for decimals.
    """
    if is_text(dtype) or bits is None or not is_known(dtype):
        return is_known(dtype)
    if not isinstance(dtype, T.DecimalType):
        return not bits & _FORM_BITS & ~_KEPT[type(dtype)]
    allowed = FLOAT | FIXED if dtype.scale else SHORT_INT | INT | BIG_INT
    # With as many places as digits, a zero stands before the point.
    fits = longest <= dtype.precision + bool(dtype.scale) and dtype.precision > dtype.scale
    return fits and not bits & _FORM_BITS & ~allowed and dtype.scale == (one_scale(bits) or 0)


_SIMPLE_TYPES: dict[str, T.DataType] = {
    "bigint": T.LongType(),
    "long": T.LongType(),
    "int": T.IntegerType(),
    "integer": T.IntegerType(),
    "double": T.DoubleType(),
    "boolean": T.BooleanType(),
    "string": T.StringType(),
    "date": T.DateType(),
    "timestamp": T.TimestampType(),
    "timestamp_ltz": T.TimestampType(),
    "timestamp_ntz": T.TimestampNTZType(),
}
_COLUMN = re.compile(r"\s*([a-z_][a-z0-9_]*)\s+([a-z_]+)\s*", re.IGNORECASE | re.ASCII)
_DECIMAL_COLUMN = re.compile(
    r"\s*([a-z_][a-z0-9_]*)\s+(?:decimal|numeric)\s*\(\s*([0-9]+)\s*,\s*([0-9]+)\s*\)\s*",
    re.IGNORECASE | re.ASCII,
)


def simple_ddl(text: str) -> T.StructType | None:
    """Parse plain columns of Spark DDL; None if there is anything else, or one that is wrong."""
    fields = []
    for part in re.split(r",(?![^(]*\))", text):
        plain, decimal = _COLUMN.fullmatch(part), _DECIMAL_COLUMN.fullmatch(part)
        if plain and plain[2].lower() in _SIMPLE_TYPES:
            fields.append(T.StructField(plain[1], _SIMPLE_TYPES[plain[2].lower()], True))
        elif decimal and int(decimal[3]) <= int(decimal[2]) <= MAX_DECIMAL and int(decimal[2]):
            kind = T.DecimalType(int(decimal[2]), int(decimal[3]))
            fields.append(T.StructField(decimal[1], kind, True))
        else:
            return None
    distinct = {field.name.lower() for field in fields}
    return T.StructType(fields) if len(distinct) == len(fields) else None
