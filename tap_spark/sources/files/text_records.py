"""Records as JSON text, made from columns of text without Spark: equal to `record_json`, or none.

Each value is already written as its type writes it, or nearly so. A column with another value has
no records here, and Spark reads it.

Why beside Spark's text: small files are sent before Spark has started (`benchmarks.csv_small`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812

from shared.formats.record_text import PLAIN_SCALE
from tap_spark.sources.files import text_types as forms
from tap_spark.sources.files.text_types import is_known, is_text, keeps
from tap_spark.sources.record_arrays import RecordTexts, float_text

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
    texts: list[pa.StringArray] = []
    for name, values in columns.items():
        text = _json_of(values, types[name])
        if text is None or re.search(_CONTROLS, name):
            return None
        texts.append(text)
    return RecordTexts(tuple(columns), frozenset(range(len(texts)))).of(texts) if texts else None


def _json_of(values: pa.StringArray, dtype: T.DataType) -> pa.StringArray | None:
    if is_text(dtype):
        return _string(values)
    if not is_known(dtype):
        return None
    bits = forms.add_forms(None, values)
    if bits is None:
        return values
    if not keeps(dtype, values, bits):
        return None
    make = _MAKERS.get(type(dtype))
    return values if make is None else make(values, dtype)


def _string(values: pa.StringArray) -> pa.StringArray | None:
    if pc.any(pc.match_substring_regex(values, _CONTROLS)).as_py():
        return None
    for char, escape in _ESCAPES.items():
        values = pc.replace_substring(values, char, escape)
    return _quoted(values)


def _quoted(values: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise('"', values, '"', "")


def _decimal(values: pa.StringArray, dtype: T.DecimalType) -> pa.StringArray | None:
    if dtype.scale > PLAIN_SCALE:
        return None
    # Spark writes a zero without its sign.
    signed_zero = pc.any(pc.match_substring_regex(values, "^-0[.]0*$")).as_py()
    return None if signed_zero else values


def _double(values: pa.StringArray, _: T.DataType) -> pa.StringArray:
    return float_text(pc.cast(values, pa.float64()))


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
    T.DecimalType: _decimal,
    T.DoubleType: _double,
    T.DateType: _date,
    T.TimestampNTZType: _local_time,
    T.TimestampType: _instant,
}
