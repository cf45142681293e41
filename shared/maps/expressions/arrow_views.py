"""How expressions see Arrow columns: as they are in a RECORD message."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812

View: TypeAlias = Callable[[pa.Array], pa.Array]

WHOLE = (T.BooleanType, T.IntegralType, T.StringType)
_PLAIN_SCALE = 6
"""Decimal places up to which a decimal has the same digits in JSON."""
_YEAR_10000 = {"date": 2_932_897, "timestamp": 2_932_897 * 86_400_000_000}


def view(kind: T.DataType) -> View | None:
    """Return how a column becomes what it is in a RECORD message; None if only Spark knows."""
    if isinstance(kind, T.DateType):
        return lambda column: _time_text(column, "%Y-%m-%d", _YEAR_10000["date"], pa.int32(), "")
    if isinstance(kind, T.TimestampType | T.TimestampNTZType):
        zone = "+00:00" if isinstance(kind, T.TimestampType) else ""
        late = _YEAR_10000["timestamp"]
        return lambda column: _time_text(column, "%Y-%m-%dT%H:%M:%S", late, pa.int64(), zone)
    is_decimal = isinstance(kind, T.DecimalType) and kind.scale <= _PLAIN_SCALE
    if is_decimal or is_as_in_json(kind, (*WHOLE, T.DoubleType)):
        return unchanged
    return None


def unchanged(column: pa.Array) -> pa.Array:
    """Return a column that expressions see as it is."""
    return column


def _time_text(column: pa.Array, form: str, late: int, number: pa.DataType, zone: str) -> pa.Array:
    text = pc.strftime(column, form)
    sign = pc.if_else(pc.greater_equal(column.cast(number), late), "+", "")
    return pc.binary_join_element_wise(sign, text, zone, "")


def is_as_in_json(kind: T.DataType, plain: tuple[type[T.DataType], ...]) -> bool:
    """Return whether Arrow's values are those of JSON: some types, alone, in lists or objects."""
    if isinstance(kind, T.StructType):
        return all(is_as_in_json(field.dataType, plain) for field in kind)
    if isinstance(kind, T.ArrayType):
        return is_as_in_json(kind.elementType, plain)
    return isinstance(kind, plain) and not isinstance(kind, T.CharType | T.VarcharType)
