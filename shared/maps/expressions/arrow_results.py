"""Results of expressions as Arrow columns, each of exactly the kind that was promised.

Runs on the executors; imports nothing of this project.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from json.encoder import encode_basestring
from typing import Any

import pyarrow as pa

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


@dataclass(frozen=True)
class Form:
    """The required form of a result.

    Attributes:
        name: `bool`, `int`, `float`, `decimal`, `str`, `date`, `datetime`, `timedelta`, `none`,
            `list`, `struct`, `map`, or `any`.
        scale: Decimal places of a decimal.
        item: Of elements of a list, or values of a map.
        fields: Of a struct, in order.
    """

    name: str
    scale: int = 0
    item: Form | None = None
    fields: tuple[tuple[str, Form], ...] = ()

    def is_json(self) -> bool:
        """Return whether results are JSON text, as the kind of a part depends on the record."""
        inner = [form for _, form in self.fields] + ([self.item] if self.item else [])
        return self.name == "any" or any(form.is_json() for form in inner)


def storage(form: Form) -> pa.DataType:
    """Return the Arrow type of a column of results."""
    if form.is_json():
        return pa.string()
    if form.name == "list" and form.item:
        return pa.list_(pa.field("element", storage(form.item)))
    if form.name == "map" and form.item:
        return pa.map_(pa.string(), pa.field("value", storage(form.item)))
    if form.name == "struct":
        return pa.struct([pa.field(name, storage(inner)) for name, inner in form.fields])
    if form.name == "decimal":
        return pa.decimal128(_PRECISION, form.scale)
    return _STORAGE[form.name]


_STORAGE: dict[str, pa.DataType] = {
    "none": pa.string(),
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "str": pa.string(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us", "UTC"),
    "timedelta": pa.string(),
}


def taken(form: Form) -> Callable[[Any], Any]:
    """Return a function that converts a result for Arrow; it raises if the kind is another."""
    if form.is_json():
        return lambda value: None if value is None else json_text(value, form)
    return _turn(form)


def _turn(form: Form) -> Callable[[Any], Any]:
    if form.name in _PLAIN:
        return _of_class(form.name, _PLAIN[form.name])
    if form.name == "decimal":
        return lambda value: None if value is None else _decimal(value, form.scale)
    if form.name == "struct":
        return _struct(form)
    if form.name in ("list", "map") and form.item:
        inner = _turn(form.item)
        return _list(inner) if form.name == "list" else _map(inner)
    return _OTHERS[form.name]


def _of_class(name: str, kind: type) -> Callable[[Any], Any]:
    def turn(value: Any) -> Any:
        if value is None or type(value) is kind:
            return value
        raise other_kind(value, name)

    return turn


def other_kind(value: Any, name: str) -> TypeError:
    """Return the error for a result of another kind than the expression has."""
    return TypeError(f"the result is of type {type(value).__name__}, not {name}")


_PLAIN: dict[str, type] = {"bool": bool, "str": str, "date": datetime.date}


def _float(value: Any) -> Any:
    """Convert a float, or an integer that is one exactly (`x or 0`)."""
    if value is None or type(value) is float:
        return value
    if type(value) is not int:
        raise other_kind(value, "float")
    if float(value) != value:
        raise OverflowError("the result does not fit into a double")
    return float(value)


def _int(value: Any) -> Any:
    if value is None:
        return None
    if type(value) is not int:
        raise other_kind(value, "int")
    if value not in _LONG:
        raise OverflowError("the result does not fit into 64 bits")
    return value


def _decimal(value: Any, scale: int) -> Decimal:
    if type(value) is not Decimal:
        raise other_kind(value, "decimal.Decimal")
    if not value.is_finite():
        raise ValueError("the result is not a finite number")
    if value and value.adjusted() >= _PRECISION - scale:
        raise OverflowError(f"the result does not fit into decimal({_PRECISION},{scale})")
    rounded = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_EVEN, _EXACT)
    if rounded.adjusted() >= _PRECISION - scale and rounded:
        raise OverflowError(f"the result does not fit into decimal({_PRECISION},{scale})")
    return rounded


def _datetime(value: Any) -> Any:
    if value is None:
        return None
    if type(value) is not datetime.datetime:
        raise other_kind(value, "datetime")
    return (_aware(value) - _UNIX) // _MICRO


def _aware(value: datetime.datetime) -> datetime.datetime:
    return value if value.tzinfo else value.replace(tzinfo=_UTC)


def _timedelta(value: Any) -> Any:
    if value is not None and type(value) is not datetime.timedelta:
        raise other_kind(value, "timedelta")
    return None if value is None else str(value)


def _none(value: Any) -> None:
    if value is not None:
        raise other_kind(value, "None")


_OTHERS: dict[str, Callable[[Any], Any]] = {
    "float": _float,
    "int": _int,
    "datetime": _datetime,
    "timedelta": _timedelta,
    "none": _none,
}


def _list(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def turn(value: Any) -> Any:
        if value is None:
            return None
        if type(value) not in (list, tuple):
            raise other_kind(value, "list")
        return [inner(item) for item in value]

    return turn


def _map(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def turn(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not dict or not all(type(name) is str for name in value):
            raise other_kind(value, "dict of texts")
        return [(name, inner(item)) for name, item in value.items()]

    return turn


def _struct(form: Form) -> Callable[[Any], Any]:
    turns = [(name, _turn(inner)) for name, inner in form.fields]
    names = {name for name, _ in turns}

    def turn(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not dict or not names.issuperset(value):
            raise other_kind(value, f"dict of {', '.join(sorted(names))}")
        return {name: inner(value.get(name)) for name, inner in turns}

    return turn


def json_text(value: Any, form: Form) -> str:
    """Write a result as JSON whose kind depends on the record.

    Raises:
        TypeError: It cannot be written as JSON, or is of another kind than the form.
        ValueError: It is nested too deeply.
        OverflowError: It is too long, or holds a number of too many digits.
    """
    parts: list[str] = []
    _write(value, form, DEPTH, parts.append)
    text = "".join(parts)
    if len(text) > LONGEST_RESULT or len(text.encode()) > LONGEST_RESULT:
        raise OverflowError("the result is too long")
    return text


def _write(value: Any, form: Form, depth: int, out: Callable[[str], None]) -> None:
    if value is None:
        out("null")
    elif type(value) in (list, tuple) and form.name in ("any", "list"):
        _write_list(value, form.item or ANY, _inside(depth), out)
    elif type(value) is dict and form.name in ("any", "map", "struct"):
        _write_dict(value, form, _inside(depth), out)
    elif form.name == "any":
        out(_scalar(value))
    elif form.name in ("list", "map", "struct"):
        raise other_kind(value, form.name)
    else:
        # The same checks as for a column of its own.
        found = _turn(form)(value)
        out(_scalar(_aware(value) if form.name == "datetime" else found))


def _inside(depth: int) -> int:
    if not depth:
        raise ValueError("the result is nested too deeply")
    return depth - 1


def _write_list(value: Any, item: Form, depth: int, out: Callable[[str], None]) -> None:
    before = "["
    for found in value:
        out(before)
        _write(found, item, depth, out)
        before = ","
    out("]" if value else "[]")


def _write_dict(value: dict[Any, Any], form: Form, depth: int, out: Callable[[str], None]) -> None:
    fields, before = dict(form.fields), "{"
    for name, found in value.items():
        if type(name) is not str or (fields and name not in fields):
            raise TypeError(f"a dict of the result has the key {name!r:.60}")
        out(f"{before}{encode_basestring(name)}:")
        _write(found, fields.get(name) or form.item or ANY, depth, out)
        before = ","
    out("}" if value else "{}")


ANY = Form("any")


def _scalar(value: Any) -> str:
    kind = type(value)
    if kind not in _SCALARS:
        raise TypeError(f"Object of type {kind.__name__} is not JSON serializable")
    return _SCALARS[kind](value)


def _integer_text(value: int) -> str:
    if abs(value) >= _TOO_LONG:
        raise OverflowError(f"the result has more than {_PRECISION} digits")
    return str(value)


def _float_text(value: float) -> str:
    return repr(value) if math.isfinite(value) else f'"{_WORDS[repr(value)]}"'


def _decimal_text(value: Decimal) -> str:
    if value.is_finite() and abs(value.adjusted()) > 2 * _PRECISION:
        raise OverflowError("the result has too many digits")
    return format(value, "f") if value.is_finite() else f'"{value}"'


def _iso(value: Any) -> str:
    return f'"{value.isoformat()}"'


_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_SCALARS: dict[type, Callable[[Any], str]] = {
    bool: lambda value: "true" if value else "false",
    str: encode_basestring,
    int: _integer_text,
    float: _float_text,
    Decimal: _decimal_text,
    datetime.date: _iso,
    datetime.datetime: _iso,
    datetime.time: _iso,
    datetime.timedelta: lambda value: f'"{value}"',
}


def results(form: Form, values: Sequence[Any], errors: list[str | None]) -> pa.StructArray:
    """Combine values and errors of a batch to one column.

    Args:
        form: The form of the values.
        values: The values as `taken` converts them.
        errors: Why a value is missing, for each; this function adds errors.

    Returns:
        Structs of `value` and `error`.
    """
    kind = storage(form)
    stored = _stored(values, kind, errors)
    fields = [pa.field("value", kind), pa.field("error", pa.string())]
    return pa.StructArray.from_arrays([stored, pa.array(errors, pa.string())], fields=fields)


def _stored(values: Sequence[Any], kind: pa.DataType, errors: list[str | None]) -> pa.Array:
    if kind == pa.string():
        values = _within_batch(values, errors)
    try:
        stored = pa.array(values, kind)
    except (pa.ArrowException, UnicodeEncodeError, OverflowError, ValueError, TypeError):
        stored = pa.array([_alone(v, kind, errors, at) for at, v in enumerate(values)], kind)
    return stored


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
