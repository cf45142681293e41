"""Values of expressions: columns as a RECORD message has them, results of the promised kind.

Runs on the executors; imports only modules that are sent to workers by value with it.

Why beside other writers of JSON text: Python and kernels see the text of one nested value.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal
from json.encoder import encode_basestring
from typing import Any

import pyarrow as pa

from shared.maps.expressions.value_kinds import ANY, COMPUTED_DIGITS, PYTHON, Kind

DEPTH = 200
"""Levels of lists and dicts in a result."""
LONGEST_RESULT = 8 * 1024 * 1024
"""Bytes of a result that holds lists and dicts, as JSON."""
LONGEST_BATCH = 1024 * 1024 * 1024
"""Characters of all the results of a batch."""

_LONG = range(-(2**63), 2**63)
_PRECISION = 38
_TOO_LONG = int("1" + "0" * _PRECISION)
_EXACT = Context(prec=2 * _PRECISION)
_UTC = datetime.timezone.utc
_UNIX = datetime.datetime(1970, 1, 1, tzinfo=_UTC)
_MICRO = datetime.timedelta(microseconds=1)


def is_json(kind: Kind) -> bool:
    """Return whether results are JSON text: what holds others, or depends on the record."""
    return kind.name in {"any", "list", "dict"}


def storage(kind: Kind) -> pa.DataType:
    """Return the Arrow type of a column of results."""
    if kind.name == "decimal":
        return pa.decimal128(*(kind.digits or COMPUTED_DIGITS))
    return _STORAGE.get(kind.name, pa.string())


_STORAGE: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us", "UTC"),
}


def taken(kind: Kind) -> Callable[[Any], Any]:
    """Return a function that converts a result for Arrow; it raises if the kind is another."""
    if is_json(kind):
        return lambda value: None if value is None else json_result(value, kind)
    expected, turn = PYTHON[kind.name], _TURNS.get(kind.name)

    def take(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not expected and (kind.name, type(value)) != ("float", int):
            raise _other_kind(value, _NAMES.get(kind.name, kind.name))
        return value if turn is None else turn(value, kind)

    return take


def _other_kind(value: Any, name: str) -> TypeError:
    """Return the error for a result of another kind than the expression has."""
    return TypeError(f"the result is of type {type(value).__name__}, not {name}")


def _float(value: float, _: Kind) -> float:
    """Convert a float, or an integer that is one exactly (`x or 0`)."""
    if float(value) != value and type(value) is int:
        raise OverflowError("the result does not fit into a double")
    return float(value)


def _int(value: int, _: Kind) -> int:
    if value not in _LONG:
        raise OverflowError("the result does not fit into 64 bits")
    return value


def _decimal(value: Decimal, kind: Kind) -> Decimal:
    if not value.is_finite():
        raise ValueError("the result is not a finite number")
    precision, scale = kind.digits or COMPUTED_DIGITS
    if value.adjusted() < precision - scale or not value:
        value = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_EVEN, _EXACT)
    if value and value.adjusted() >= precision - scale:
        raise OverflowError(f"the result does not fit into decimal({precision},{scale})")
    return value


def _aware(value: datetime.datetime) -> datetime.datetime:
    return value if value.tzinfo else value.replace(tzinfo=_UTC)


_NAMES = {"none": "None", "decimal": "decimal.Decimal"}
_TURNS: dict[str, Callable[[Any, Kind], Any]] = {
    **{"float": _float, "int": _int, "decimal": _decimal},
    "datetime": lambda value, _: (_aware(value) - _UNIX) // _MICRO,
    "timedelta": lambda value, _: str(value),
}


def json_result(value: Any, kind: Kind) -> str:
    """Write a result as JSON.

    Raises:
        TypeError: It cannot be written as JSON, or is of another kind.
        ValueError: It is nested too deeply.
        OverflowError: It is too long, or holds a number of too many digits.
    """
    text = _written(value, kind, DEPTH)
    if len(text) > LONGEST_RESULT or len(text.encode()) > LONGEST_RESULT:
        raise OverflowError("the result is too long")
    return text


def _written(value: Any, kind: Kind, depth: int) -> str:
    if value is None:
        return "null"
    if type(value) in (list, tuple) and (kind.name == "list" or kind.is_loose):
        item = kind.item or ANY
        if item.name == "str" and all(type(element) is str for element in value):
            return f"[{','.join(map(encode_basestring, value))}]"
        _check_depth(depth)
        return f"[{','.join([_written(element, item, depth - 1) for element in value])}]"
    if type(value) is dict and (kind.name == "dict" or kind.is_loose):
        _check_depth(depth)
        fields, other = dict(kind.fields), kind.values or ANY
        if fields and not fields.keys() >= value.keys():
            raise _other_kind(value, _name_of(kind))
        parts = [
            f"{_key(name)}:{_written(element, fields.get(name) or other, depth - 1)}"
            for name, element in value.items()
        ]
        return f"{{{','.join(parts)}}}"
    if kind.is_loose:
        return _scalar(value)
    if is_json(kind):
        raise _other_kind(value, _name_of(kind))
    # The same checks as for a column of its own.
    element = taken(kind)(value)
    text = _scalar(_aware(value) if kind.name == "datetime" else element)
    # As text it does not become a decimal.
    return f'"{text}"' if text == "-0.0" else text


def _check_depth(depth: int) -> None:
    if not depth:
        raise ValueError("the result is nested too deeply")


def _key(name: Any) -> str:
    if type(name) is not str:
        raise TypeError(f"a dict of the result has the key {name!r:.60}")
    return encode_basestring(name)


def _name_of(kind: Kind) -> str:
    names = ", ".join(sorted(dict(kind.fields)))
    return f"dict of {names}" if names else kind.name


def _scalar(value: Any) -> str:
    kind = type(value)
    if kind not in _SCALARS:
        raise TypeError(f"Object of type {kind.__name__} is not JSON serializable")
    return _SCALARS[kind](value)


def _integer_text(value: int) -> str:
    if abs(value) >= _TOO_LONG:
        raise OverflowError(f"the result has more than {_PRECISION} digits")
    return str(value)


def _decimal_text(value: Decimal) -> str:
    if value.is_finite() and abs(value.adjusted()) > 2 * _PRECISION:
        raise OverflowError("the result has too many digits")
    return format(value, "f") if value.is_finite() else f'"{value}"'


_WORDS = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}
_SCALARS: dict[type, Callable[[Any], str]] = {
    bool: lambda value: "true" if value else "false",
    str: encode_basestring,
    int: _integer_text,
    float: lambda value: _WORDS.get(repr(value), repr(value)),
    Decimal: _decimal_text,
    datetime.timedelta: lambda value: f'"{value}"',
    **dict.fromkeys(
        (datetime.date, datetime.datetime, datetime.time), lambda value: f'"{value.isoformat()}"'
    ),
}


def results(kind: Kind, values: Sequence[Any], errors: list[str | None]) -> pa.StructArray:
    """Combine values, as `taken` converts them, and errors to structs of `value` and `error`.

    Errors are added for values that Arrow does not take.
    """
    column = storage(kind)
    stored = _stored(values, column, errors)
    fields = [pa.field("value", column), pa.field("error", pa.string())]
    return pa.StructArray.from_arrays([stored, pa.array(errors, pa.string())], fields=fields)


def _stored(values: Sequence[Any], kind: pa.DataType, errors: list[str | None]) -> pa.Array:
    if kind == pa.string():
        values = _within_batch(values, errors)
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, UnicodeEncodeError, OverflowError, ValueError, TypeError):
        return pa.array([_alone(v, kind, errors, at) for at, v in enumerate(values)], kind)


def _alone(value: Any, kind: pa.DataType, errors: list[str | None], at: int) -> Any:
    """Return a value if Arrow accepts it; else record why not."""
    try:
        pa.array([value], kind)
    except Exception as error:
        errors[at] = f"{type(error).__name__}: the result is not to be stored: {error}"
        return None
    return value


def _within_batch(values: Sequence[Any], errors: list[str | None]) -> Sequence[Any]:
    total, kept = 0, list(values)
    for at, value in enumerate(kept):
        total += 0 if value is None else len(value)
        if total > LONGEST_BATCH:
            kept[at], errors[at] = None, "OverflowError: the results of a batch are too long"
    return kept


_SPECIAL_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def reader(kind: Kind | None) -> Callable[[pa.Array], list[Any]]:
    """Return a function that converts a column to a list; with a kind, from JSON text of it."""
    if kind is None:
        return _plain
    parse = _parser(kind)
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
        return [restored(element, kind.item or ANY) for element in value]
    if value is None or kind.name not in {"float", "decimal"}:
        return value
    if kind.name == "decimal":
        return Decimal(value)
    return _SPECIAL_NUMBERS[value] if isinstance(value, str) else float(value)


def records(
    names: Sequence[str], readers: Sequence[Callable[[pa.Array], list[Any]]], arrays: Any, rows: int
) -> list[dict[str, Any]]:
    """Return the records of a batch, with these of their columns."""
    columns = [read(array) for read, array in zip(readers, arrays, strict=True)]
    if not columns:
        return [{} for _ in range(rows)]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
