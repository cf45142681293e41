"""Records as JSON text, made from columns of text without Spark: equal to `record_json`, or none.

Each value is already written as its type writes it, or nearly so. A column with another value has
no records here, and Spark reads it.

Why beside Spark's text: small files are sent before Spark has started (`benchmarks.csv_small`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812

from shared.formats.json_text import json_text
from shared.formats.row_values import as_json_value
from tap_spark.sources.files import text_types as forms
from tap_spark.sources.files.text_types import is_known, is_text, keeps
from tap_spark.state.date_numbers import moment_text

NAME_BYTES = 4 * 1024 * 1024
"""Bytes of names in one array of records."""

PLAIN_SCALE = 6
"""Decimal places up to which Spark's JSON never has an exponent."""

_LEAST, _MOST = 1e-3, 1e7
"""Between these, Java writes a double without exponent."""

_LAST_YEAR = 9999
_EXACT = Context(prec=76)

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\t": "\\t"}
_CONTROLS = r"[\x00-\x08\x0a-\x1f]"


def records_of(
    columns: Mapping[str, pa.StringArray], types: Mapping[str, T.DataType]
) -> Iterator[pa.StringArray] | None:
    """Return the JSON text of each row; None if a value is not written as its type writes it.

    Args:
        columns: Columns of text, by name, in the order of the record.
        types: Their types.
    """
    heads: list[str] = []
    texts: list[pa.StringArray] = []
    for name, values in columns.items():
        text = _json_of(values, types[name])
        if text is None or re.search(_CONTROLS, name):
            return None
        heads.append(("," if heads else "{") + json.dumps(name, ensure_ascii=False) + ":")
        texts.append(text)
    return _joined(heads, texts) if texts else None


def records_of_batch(batch: pa.RecordBatch, struct: T.StructType) -> Iterator[pa.StringArray]:
    """Return the JSON text of each row.

    Args:
        batch: The rows, in the types of `shared.formats.arrow_types`.
        struct: Their columns: plain types, and structs and arrays of them.
    """
    heads = [
        ("," if at else "{") + json.dumps(name, ensure_ascii=False) + ":"
        for at, name in enumerate(struct.names)
    ]
    fields = zip(batch.columns, struct.fields, strict=True)
    return _joined(heads, [_json_of_typed(values, field.dataType) for values, field in fields])


def _json_of_typed(values: pa.Array, dtype: T.DataType) -> pa.StringArray:
    text = None
    if _is_beyond(values):
        kind = dtype.typeName()
        numbers = values.view(pa.int32() if kind == "date" else pa.int64()).to_pylist()
        return _quoted(
            pa.array([None if n is None else moment_text(n, kind) for n in numbers], pa.string())
        )
    if is_text(dtype):
        text = _string(values)
    elif isinstance(dtype, (T.BooleanType, T.IntegralType)) or (
        isinstance(dtype, T.DecimalType) and dtype.scale <= PLAIN_SCALE
    ):
        text = pc.cast(values, pa.string())
    elif isinstance(dtype, T.FractionalType) and not isinstance(dtype, T.DecimalType):
        text = _number(values, dtype)
    elif isinstance(dtype, T.DateType):
        text = _quoted(pc.cast(values, pa.string()))
    elif isinstance(dtype, T.TimestampNTZType):
        text = _quoted(_moments(values))
    elif isinstance(dtype, T.TimestampType):
        text = _in_utc(values)
    return text if text is not None else pa.array(map(_value_text, values.to_pylist()), pa.string())


def _number(values: pa.Array, dtype: T.DataType) -> pa.StringArray:
    """Write floats; those that JSON lacks are texts."""
    finite = pc.is_finite(values)
    text = _double(pc.cast(pc.if_else(finite, values, 0), pa.string()), dtype)
    if pc.all(finite, min_count=0).as_py():
        return text
    infinite = pc.if_else(pc.less(values, 0), '"-Infinity"', '"Infinity"')
    return pc.if_else(finite, text, pc.if_else(pc.is_nan(values), '"NaN"', infinite))


def _is_beyond(values: pa.Array) -> bool:
    """Return whether there is a date or timestamp outside of the years 1 to 9999."""
    if not pa.types.is_temporal(values.type):
        return False
    years = pc.min_max(pc.year(values))
    first, last = years["min"].as_py(), years["max"].as_py()
    return first is not None and (first < 1 or last > _LAST_YEAR)


def _value_text(value: Any) -> str | None:
    if isinstance(value, Decimal):
        # As Spark writes one of many decimal places.
        return f"{value.normalize(_EXACT):f}"
    return None if value is None else json_text(as_json_value(value))


def _joined(heads: Sequence[str], texts: Sequence[pa.StringArray]) -> Iterator[pa.StringArray]:
    """Join names and values, as many rows at once as have about `NAME_BYTES` of names."""
    count = max(1, NAME_BYTES // sum(map(len, heads)))
    for start in range(0, len(texts[0]), count):
        rows = [text.slice(start, count) for text in texts]
        parts = chain.from_iterable(zip(heads, rows, strict=True))
        yield pc.binary_join_element_wise(
            *parts, "}", "", null_handling="replace", null_replacement="null"
        )


def _json_of(values: pa.StringArray, dtype: T.DataType) -> pa.StringArray | None:
    if is_text(dtype):
        return _string(values)
    if not is_known(dtype):
        return None
    bits = forms.add_forms(None, values)
    if bits is None:
        return values
    return _MAKERS[type(dtype)](values, dtype) if keeps(dtype, values, bits) else None


def _string(values: pa.StringArray) -> pa.StringArray | None:
    if pc.any(pc.match_substring_regex(values, _CONTROLS)).as_py():
        return None
    for char, escape in _ESCAPES.items():
        values = pc.replace_substring(values, char, escape)
    return _quoted(values)


def _quoted(values: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise('"', values, '"', "")


def _same(values: pa.StringArray, _: T.DataType) -> pa.StringArray:
    return values


def _decimal(values: pa.StringArray, dtype: T.DecimalType) -> pa.StringArray | None:
    if dtype.scale > PLAIN_SCALE:
        return None
    # Spark writes a zero without its sign.
    signed_zero = pc.any(pc.match_substring_regex(values, "^-0[.]0*$")).as_py()
    return None if signed_zero else values


def _double(values: pa.StringArray, _: T.DataType) -> pa.StringArray:
    number = pc.cast(values, pa.float64())
    size = pc.abs(number)
    short = pc.or_(
        pc.equal(size, 0.0), pc.and_(pc.greater_equal(size, _LEAST), pc.less(size, _MOST))
    )
    text = pc.if_else(
        pc.match_substring(values, "."), values, pc.binary_join_element_wise(values, ".0", "")
    )
    odd = pc.fill_null(pc.invert(short), False)
    if not odd.true_count:
        return text
    written = pa.array(map(with_exponent, number.filter(odd).to_pylist()), pa.string())
    return pc.replace_with_mask(text, odd, written)


def with_exponent(number: float) -> str:
    """Write a number as Java does if it is very large or small."""
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    text = "".join(map(str, digits))
    power = len(text) - 1 + int(exponent)
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{power}"


def _date(values: pa.StringArray, _: T.DataType) -> pa.StringArray:
    return _quoted(values)


def _local_time(values: pa.StringArray, _: T.DataType) -> pa.StringArray:
    return _quoted(_moments(pc.cast(values, pa.timestamp("us"))))


def _instant(values: pa.StringArray, _: T.DataType) -> pa.StringArray | None:
    moments = pc.cast(values, pa.timestamp("us", "UTC"))
    years = pc.min_max(pc.year(moments))
    if years["min"].as_py() < 1 or years["max"].as_py() > 9999:  # noqa: PLR2004
        return None
    return _in_utc(moments)


def _in_utc(moments: pa.TimestampArray) -> pa.StringArray:
    text = _moments(pc.cast(moments, pa.timestamp("us")))
    return _quoted(pc.binary_join_element_wise(text, "+00:00", ""))


def _moments(values: pa.TimestampArray) -> pa.StringArray:
    return pc.replace_substring(pc.cast(values, pa.string()), " ", "T")


_Make = Callable[[pa.StringArray, Any], "pa.StringArray | None"]
_MAKERS: Mapping[type[T.DataType], _Make] = {
    T.BooleanType: _same,
    T.LongType: _same,
    T.DecimalType: _decimal,
    T.DoubleType: _double,
    T.DateType: _date,
    T.TimestampNTZType: _local_time,
    T.TimestampType: _instant,
}
