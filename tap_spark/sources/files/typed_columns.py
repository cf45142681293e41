"""Columns of text as typed Arrow columns without Spark: equal to Spark's casts, or none."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812

from shared.types.arrow_types import spark_to_arrow
from tap_spark.sources.files import text_forms as forms

_FORMS = (1 << forms.SCALE_SHIFT) - 1
_KEPT: Mapping[type[T.DataType], int] = {
    T.BooleanType: forms.BOOLEAN,
    T.LongType: forms.SHORT_INT | forms.INT,
    T.DoubleType: forms.SHORT_INT | forms.FLOAT,
    T.DateType: forms.DATE,
    T.TimestampNTZType: forms.LOCAL_TIME,
    T.TimestampType: forms.INSTANT,
}


def typed_column(values: pa.StringArray, dtype: T.DataType) -> pa.Array | None:
    """Return the values in a type; None if Spark must cast them.

    Args:
        values: Text, as it stands in a file.
        dtype: The type.
    """
    if is_text(dtype):
        return values
    if not is_known(dtype):
        return None
    bits = forms.add_forms(None, values)
    if bits is not None and not keeps(dtype, values, bits):
        return None
    return pc.cast(values, spark_to_arrow(dtype))


def is_text(dtype: T.DataType) -> bool:
    """Return whether a type is plain text, which keeps every text."""
    return type(dtype) is T.StringType and dtype == T.StringType()


def is_known(dtype: T.DataType) -> bool:
    """Return whether `keeps` knows the type."""
    return type(dtype) in _KEPT or isinstance(dtype, T.DecimalType)


def keeps(dtype: T.DataType, values: pa.StringArray, bits: int) -> bool:
    """Return whether a type surely keeps values as they are written.

    Args:
        dtype: The type; none of text.
        values: The values.
        bits: Their forms.
    """
    if isinstance(dtype, T.DecimalType):
        return _decimal_keeps(dtype, values, bits)
    return not bits & _FORMS & ~_KEPT[type(dtype)]


def _decimal_keeps(dtype: T.DecimalType, values: pa.StringArray, bits: int) -> bool:
    whole = forms.SHORT_INT | forms.INT | forms.BIG_INT
    allowed = forms.FLOAT | forms.FIXED if dtype.scale else whole
    if bits & _FORMS & ~allowed or (dtype.scale and forms.one_scale(bits) != dtype.scale):
        return False
    places = dtype.precision + bool(dtype.scale)
    signs = pc.cast(pc.starts_with(values, "-"), pa.int32())
    longest = pc.max(pc.subtract(pc.binary_length(values), signs)).as_py()
    # With as many places as digits, a zero stands before the point.
    return bool(longest <= places and dtype.precision > dtype.scale)
