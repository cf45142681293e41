"""Columns as Arrow brings them, as the values that they are in a RECORD message.

Runs on the executors; imports only modules that are sent to workers by value with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from shared.maps.expressions.value_kinds import ANY, STR, Kind

_WORDS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


@dataclass(frozen=True)
class Arrival:
    """How a column arrives: unchanged, or as JSON text.

    Attributes:
        text: Whether it is JSON text.
        kind: What the text holds.
    """

    text: bool = False
    kind: Kind = STR


def reader(arrival: Arrival) -> Callable[[pa.Array], list[Any]]:
    """Return a function that converts a column to a list of values."""
    if not arrival.text:
        return _plain
    parse = _parser(arrival.kind)
    return lambda array: [None if text is None else parse(text) for text in _plain(array)]


def _plain(array: pa.Array) -> list[Any]:
    try:
        values: list[Any] = array.to_pylist()
    except UnicodeDecodeError:
        # Spark does not check that text is UTF-8.
        data = array.cast(pa.large_binary()).to_pylist()
        return [None if item is None else item.decode("utf-8", "replace") for item in data]
    return values


def _parser(kind: Kind) -> Callable[[str], Any]:
    if kind.name == "decimal":
        return Decimal
    if kind.holds("decimal"):
        return lambda text: restored(json.loads(text, parse_float=Decimal), kind)
    if kind.holds("any"):
        # The other parser converts integers of more than 64 bits to floats.
        return lambda text: restored(json.loads(text), kind)
    loads = _fast_loads()
    if not kind.holds("float"):
        return loads

    def parse(text: str) -> Any:
        odd = 'NaN"' in text or 'Infinity"' in text
        return restored(loads(text), kind) if odd else loads(text)

    return parse


def _fast_loads() -> Callable[[str], Any]:
    try:
        import orjson  # noqa: PLC0415
    except ImportError:
        return json.loads
    return orjson.loads


def restored(value: Any, kind: Kind) -> Any:
    """Convert parsed JSON to the values it represents: decimals, and floats that JSON lacks."""
    if kind.is_loose and isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        fields = dict(kind.fields)
        return {n: restored(v, fields.get(n) or kind.values or ANY) for n, v in value.items()}
    if isinstance(value, list):
        return [restored(found, kind.item or ANY) for found in value]
    if value is None or kind.name not in {"float", "decimal"}:
        return value
    if kind.name == "decimal":
        return Decimal(value)
    return _WORDS[value] if isinstance(value, str) else float(value)


def records(
    names: Sequence[str], readers: Sequence[Callable[[pa.Array], list[Any]]], arrays: Any, rows: int
) -> list[dict[str, Any]]:
    """Return the records of a batch, with these of their columns."""
    columns = [read(array) for read, array in zip(readers, arrays, strict=True)]
    if not columns:
        return [{} for _ in range(rows)]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
