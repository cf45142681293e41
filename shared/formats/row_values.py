"""Values of columnar and CSV files as JSON values, for one set of converters.

Why beside `record_text`: only values that Arrow cannot cast come here, in tasks without columns of
Spark.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa

from shared.formats.json_text import Number, Refused, Value, json_text
from shared.formats.json_values import Convert, converter
from shared.formats.spark_types import T

_NUMERIC = (T.NumericType,)
_INTERVALS = (T.DayTimeIntervalType, T.YearMonthIntervalType)
_NESTED = (T.StructType, T.ArrayType, T.MapType)
_JSON_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\Z", re.ASCII)
_WORDS = {"true": True, "false": False}
_DECODER = json.JSONDecoder(parse_float=Number, parse_int=Number)


def as_json_value(value: Any) -> Value:
    """Return a value of `plain_values` as the decoder of JSON lines would return it."""
    if isinstance(value, Mapping):
        return {_key(key): as_json_value(part) for key, part in value.items()}
    if isinstance(value, list):
        return [as_json_value(item) for item in value]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, date | time | timedelta):
        return _time(value)
    return _scalar(value)


def _scalar(value: Any) -> Value:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | Decimal):
        return Number(value)
    if isinstance(value, float):
        return Number(repr(value)) if math.isfinite(value) else value
    return str(value)


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as Python values, maps as dictionaries."""
    rows: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="lossy")
    return rows


def plain_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return values as Python values, maps as dictionaries."""
    values: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
    return values


def row_text(row: Mapping[str, Any]) -> bytes:
    """Return a row as one JSON object: numbers exact, binary as base64, times as ISO 8601."""
    return json_text(as_json_value(row)).encode()


def row_converter(data_type: T.DataType, strict: bool, texts: bool) -> Convert:
    """Return the function that converts a non-null value of a file for an Arrow column.

    Args:
        data_type: Of the column.
        strict: Reject values of another type.
        texts: Values are the texts of a CSV file.

    Raises (from the function):
        Refused: The value is not of the type.
    """
    convert = converter(data_type, strict)
    if texts:
        return _from_text(data_type, convert)
    if isinstance(data_type, _INTERVALS):
        return lambda value: value if type(value) is int else convert(as_json_value(value))
    return lambda value: convert(as_json_value(value))


def _from_text(data_type: T.DataType, convert: Convert) -> Convert:
    """Convert text of CSV, which can be a value of any type."""
    if isinstance(data_type, _NESTED):
        return lambda text: convert(_decoded(text))
    if isinstance(data_type, T.VariantType):
        return _variant
    if isinstance(data_type, T.BooleanType):
        return lambda text: convert(_WORDS.get(text.lower(), text))
    if isinstance(data_type, _INTERVALS):
        return lambda text: int(text) if re.match(r"-?\d+\Z", text) else convert(text)
    if isinstance(data_type, _NUMERIC):
        return lambda text: convert(Number(text) if _JSON_NUMBER.match(text) else text)
    return convert


def _variant(text: str) -> str:
    try:
        return json_text(_decoded(text))
    except Refused:
        return json_text(text)


def _decoded(text: str) -> Value:
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        raise Refused("not JSON, as nested values must be") from None


def _key(key: Any) -> str:
    value = as_json_value(key)
    return value if type(value) is str else json_text(value)


def _time(value: date | time | timedelta) -> str:
    if isinstance(value, datetime):
        utc = value.astimezone(timezone.utc) if value.tzinfo else value
        return utc.isoformat(timespec="microseconds")
    if isinstance(value, timedelta):
        sign = "-" if value < timedelta(0) else ""
        micros = abs(value) // timedelta(microseconds=1)
        return f"{sign}PT{micros // 1_000_000}.{micros % 1_000_000:06d}S"
    return value.isoformat()
