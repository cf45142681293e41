"""Columns as Arrow brings them, as the values that they are in a RECORD message.

Runs on the executors; imports nothing of this project.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

_WORDS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


@dataclass(frozen=True)
class Shape:
    """How to convert a value after its JSON text has been parsed.

    Attributes:
        name: `plain` (unchanged), `float`, `decimal`, `list`, `map`, `struct`, `any`.
        item: Of the elements of a list, or the values of a map.
        fields: Of a struct.
    """

    name: str = "plain"
    item: Shape | None = None
    fields: Mapping[str, Shape] = field(default_factory=dict)

    def holds(self, name: str) -> bool:
        """Return whether it holds such a value at any depth."""
        inner = [*self.fields.values(), *([self.item] if self.item else [])]
        return self.name == name or any(shape.holds(name) for shape in inner)


@dataclass(frozen=True)
class Arrival:
    """How a column arrives: unchanged, or as JSON text.

    Attributes:
        text: Whether it is JSON text.
        shape: What the text holds.
    """

    text: bool = False
    shape: Shape = Shape()


def reader(arrival: Arrival) -> Callable[[pa.Array], list[Any]]:
    """Return a function that converts a column to a list of values."""
    if not arrival.text:
        return _plain
    parse = _parser(arrival.shape)
    return lambda array: [None if text is None else parse(text) for text in _plain(array)]


def _plain(array: pa.Array) -> list[Any]:
    try:
        values: list[Any] = array.to_pylist()
    except UnicodeDecodeError:
        # Spark does not check that text is UTF-8.
        data = array.cast(pa.large_binary()).to_pylist()
        return [None if item is None else item.decode("utf-8", "replace") for item in data]
    return values


def _parser(shape: Shape) -> Callable[[str], Any]:
    if shape.name == "decimal":
        return Decimal
    if shape.holds("decimal"):
        return lambda text: restored(json.loads(text, parse_float=Decimal), shape)
    if shape.holds("any"):
        # The other parser converts integers of more than 64 bits to floats.
        return lambda text: restored(json.loads(text), shape)
    loads = _fast_loads()
    if not shape.holds("float"):
        return loads

    def parse(text: str) -> Any:
        odd = 'NaN"' in text or 'Infinity"' in text
        return restored(loads(text), shape) if odd else loads(text)

    return parse


def _fast_loads() -> Callable[[str], Any]:
    try:
        import orjson  # noqa: PLC0415
    except ImportError:
        return json.loads
    return orjson.loads


def restored(value: Any, shape: Shape) -> Any:
    """Convert parsed JSON to the values it represents: decimals, and floats that JSON lacks."""
    if value is None or shape.name == "plain":
        return value
    if shape.name == "struct":
        return {n: restored(v, shape.fields.get(n, Shape())) for n, v in value.items()}
    item = shape.item or Shape()
    if shape.name == "map":
        return {name: restored(found, item) for name, found in value.items()}
    if shape.name == "list":
        return [restored(found, item) for found in value]
    return _SCALARS[shape.name](value)


def _float(value: Any) -> float:
    return _WORDS[value] if isinstance(value, str) else float(value)


def _any(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {name: _any(found) for name, found in value.items()}
    return [_any(found) for found in value] if isinstance(value, list) else value


_SCALARS: dict[str, Callable[[Any], Any]] = {"float": _float, "decimal": Decimal, "any": _any}


def records(
    names: Sequence[str], readers: Sequence[Callable[[pa.Array], list[Any]]], arrays: Any, rows: int
) -> list[dict[str, Any]]:
    """Return the records of a batch, with these of their columns."""
    columns = [read(array) for read, array in zip(readers, arrays, strict=True)]
    if not columns:
        return [{} for _ in range(rows)]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
