"""Calls of functions, of functions in modules, and of methods."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from shared.maps.expressions import comparisons, dates, operators, texts
from shared.maps.expressions.building import (
    Check,
    Fails,
    Make,
    called,
    computed,
    constant,
    joined,
    not_none,
    settled,
    uncompiled,
)
from shared.maps.expressions.fakes import FakeSettings, result_kind
from shared.maps.expressions.kinds import ANY, FLOAT, INT, STR, Kind
from shared.maps.expressions.personal_columns import PERSONAL
from shared.maps.expressions.sandbox import md5, sha256
from shared.maps.expressions.syntax import nearest
from shared.maps.expressions.truth import chosen, truth
from shared.maps.expressions.values import Call, Value

Function: TypeAlias = "Callable[[Call], Value]"

_TOO_LARGE = "OverflowError: an integer of more than 64 bits"
_DIGITS = "[0-9](?:_?[0-9])*"
_INTEGER = rf"\A[+-]?{_DIGITS}\z"
_FLOATING = rf"\A[+-]?(?:(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?)\z"
_SPECIAL = r"\A[+-]?(?i:nan|inf|infinity)\z"


def _without_underscores(text: Column) -> Column:
    return F.translate(text, "_", "")


def _int_of_text(text: Column) -> Column:
    return _without_underscores(texts.number_text(text)).try_cast("bigint")


def _unlike(pattern: str, message: str) -> Check:
    """Return the check of a text that is not a number."""

    def wrong(text: Column) -> Column:
        return ~F.rlike(texts.number_text(text), F.lit(pattern))

    def error(text: Column) -> Column:
        return F.concat(F.lit(f"ValueError: {message}: '"), text, F.lit("'"))

    return wrong, error


def _truncated(number: Column) -> Column:
    return number.try_cast("bigint")


_FROM_FLOAT: list[Check] = [
    (lambda number, *_: F.isnan(number), "ValueError: cannot convert float NaN to integer"),
    (lambda number, *_: (number >= 2.0**63) | (number < -(2.0**63)), _TOO_LARGE),
]
_NO_INT = _unlike(_INTEGER, "invalid literal for int() with base 10")
_INTS: Mapping[str, tuple[Make, list[Check]]] = {
    "int": (lambda number: number, []),
    "bool": (_truncated, []),
    "float": (_truncated, _FROM_FLOAT),
    "decimal": (_truncated, [(lambda number: _truncated(number).isNull(), _TOO_LARGE)]),
    "str": (_int_of_text, [_NO_INT, (lambda text: _int_of_text(text).isNull(), _TOO_LARGE)]),
}
_NO_FLOAT = _unlike(f"(?:{_FLOATING})|(?:{_SPECIAL})", "could not convert string to float")


def _int(call: Call) -> Value:
    call = _alike(call)
    alone = len(call.args) == 1 and not call.keywords
    make, checks = _INTS.get(call.args[0].kind.name, (None, [])) if alone else (None, [])
    return called(int, make, call, kind=INT, checks=checks, why="int() with such arguments")


def _float(call: Call) -> Value:
    call = _alike(call)
    name = call.args[0].kind.name if call.args else ""
    of_text = name == "str"
    make = _float_of_text if of_text else lambda number: number.cast("double")
    return called(float, make, call, kind=FLOAT, checks=[_NO_FLOAT] if of_text else [])


def _alike(call: Call) -> Call:
    """Treat arguments that may be ints as the floats that are equal to them."""
    return replace(call, args=tuple(replace(value, mixed=0) for value in call.args))


def _float_of_text(text: Column) -> Column:
    number = texts.number_text(text)
    special = F.lower(number)
    infinity = F.when(F.startswith(special, F.lit("-")), -float("inf")).otherwise(float("inf"))
    value = F.when(F.endswith(special, F.lit("nan")), float("nan"))
    value = value.when(F.contains(special, F.lit("inf")), infinity)
    return value.otherwise(_without_underscores(number).try_cast("double"))


def _str(call: Call) -> Value:
    call = _settled(call)
    if call.keywords or len(call.args) > 1:
        return uncompiled(STR, "str() of bytes", *call.args, *call.keywords.values())
    return texts.text_of(call.args[0]) if call.args else constant("")


def _bool(call: Call) -> Value:
    if len(call.args) == 1 and not call.keywords:
        return truth(call.args[0])
    return called(bool, None, call)


def _len(call: Call) -> Value:
    kind = call.args[0].kind if call.args else ANY

    def make(column: Column) -> Column:
        if kind.name == "dict" and kind.fields:
            return F.lit(len(kind.fields)).cast("bigint")
        return (F.char_length(column) if kind.name == "str" else F.size(column)).cast("bigint")

    return called(len, make, call, kind=INT)


def _round(call: Call) -> Value:
    value, *more = [*call.args, constant(None)] if len(call.args) < 2 else call.args  # noqa: PLR2004
    name = value.kind.name
    digits = more[0].known if len(more) == 1 and not call.keywords else -1
    make: Make | None = None
    if name in {"int", "bool"} and (digits is None or (isinstance(digits, int) and digits >= 0)):
        make = lambda number, *_: _truncated(number)  # noqa: E731
    elif name == "float" and digits is None and not value.mixed:
        make = _rounded
    checks = _FROM_FLOAT if make is _rounded else []
    call = _alike(call) if len(call.args) == 1 else call
    kind = value.kind.not_none() if more and more[0].kind.name == "any" else None
    return called(round, make, call, kind=kind, checks=checks, why=f"round() of {value.kind}")


def _rounded(number: Column, *_: Column) -> Column:
    return _truncated(F.rint(number))


def _digest(call: Call, function: Callable[[Any], str]) -> Value:
    def make(text: Column) -> Column:
        data = text.cast("binary")
        return F.md5(data) if function is md5 else F.sha2(data, 256)

    return called(function, make, call, kind=STR)


def _extreme(call: Call) -> Value:
    """Return `min` or `max`: their kind, for the evaluator to compute."""
    call = _settled(call)
    values = (*call.args, *call.keywords.values())
    kind = call.args[0].kind if len(call.args) > 1 and not call.keywords else ANY
    for value in call.args[1:]:
        kind = joined(kind, value.kind)
    return uncompiled(kind, "min() or max()", *values)


_UNCOMPILED: Mapping[str, Kind] = {
    **{"list": Kind("list"), "tuple": Kind("list"), "dict": Kind("dict"), "set": ANY, "sum": ANY},
    **{"rand": FLOAT, "randint": INT, "json.dumps": STR, "json.loads": ANY},
}
FUNCTIONS: Mapping[str, Function] = {
    **{"int": _int, "float": _float, "str": _str, "bool": _bool, "len": _len, "round": _round},
    "abs": lambda call: called(abs, None, _alike(call), why="abs()"),
    **{"min": _extreme, "max": _extreme},
    "md5": lambda call: _digest(call, md5),
    "sha256": lambda call: _digest(call, sha256),
    **{name: dates.uncompiled_call(name, kind) for name, kind in _UNCOMPILED.items()},
    **dates.FUNCTIONS,
    **PERSONAL,
}
"""Functions by name, those of modules with a dot."""

_MODULES = {"datetime": datetime, "json": json}


def function(name: str, call: Call) -> Value:
    """Return the result of a function, whose name begins with its module's.

    Raises:
        Fails: It does not exist, or raises for all arguments of these kinds.
    """
    if "." in name:
        module_attribute(name)
    if name in FUNCTIONS:
        return FUNCTIONS[name](call)
    return uncompiled(ANY, f"{name}()", *call.args, *call.keywords.values())


def _settled(call: Call) -> Call:
    keywords = {name: settled(value) for name, value in call.keywords.items()}
    return replace(call, args=tuple(map(settled, call.args)), keywords=keywords)


def module_attribute(name: str) -> Value:
    """Return the value of a dotted name in a module.

    Raises:
        Fails: The name does not exist, or is a module itself.
    """
    first, *parts = name.split(".")
    found: object = _MODULES[first]
    for part in parts:
        if not hasattr(found, part):
            public = [known for known in dir(found) if not known.startswith("_")]
            raise Fails(f"AttributeError: {first} has no '{part}'{nearest(part, public)}")
        found = getattr(found, part)
        if isinstance(found, ModuleType):
            raise Fails(f"the module '{part}' is not available")
    return uncompiled(ANY, name)


def fake(name: str, call: Call) -> Value:
    """Return the result of a method of `fake`, which only the evaluator has."""
    faker = call.names.faker if call.names is not None else None
    settings = FakeSettings((faker or {}).get("locale"))
    return uncompiled(Kind(result_kind(name, settings)), f"fake.{name}()")


def method(owner: Value, name: str, call: Call) -> Value:
    """Return the result of a method.

    Raises:
        Fails: Such values lack the method, or it raises for all arguments of these kinds.
    """
    owner, call = settled(owner), _settled(call)
    kind = owner.kind
    given = (owner, *call.args, *call.keywords.values())
    if kind.name == "any":
        return uncompiled(ANY, f".{name}() of a value of unknown type", *given)
    if kind.name == "none":
        raise Fails(f"AttributeError: 'NoneType' object has no attribute '{name}'")
    if kind.name == "dict" and name == "get":
        return _get(owner, call)
    if kind.name == "str" and name in texts.METHODS:
        return texts.method(owner, name, call)
    if hasattr(operators.TYPES[kind.name], name):
        return dates.method(owner, name, call)
    if kind.name == "dict" and (not kind.fields or name in dict(kind.fields)):
        raise Fails(f"TypeError: the value under '{name}' is not callable")
    raise operators.no_attribute(kind, name)


def key_of(call: Call) -> str | None:
    """Return the key that `get` is called with; None if it is not known.

    Raises:
        Fails: It is called with too few or too many arguments.
    """
    if call.keywords:
        raise Fails("TypeError: dict.get() takes no keyword arguments")
    if not 1 <= len(call.args) <= 2:  # noqa: PLR2004
        raise Fails(f"TypeError: get expected 1 or 2 arguments, got {len(call.args)}")
    key = call.args[0].known
    return key if isinstance(key, str) else None


def _get(owner: Value, call: Call) -> Value:
    """Return `owner.get(key, default)`; a null field of a struct is None, not missing."""
    key = key_of(call)
    default = call.args[1] if len(call.args) > 1 else constant(None)
    fields = dict(owner.kind.fields)
    if owner.is_known and key is not None:
        return constant(owner.known[key]) if key in owner.known else default
    if key is None or owner.is_known or (not fields and owner.kind.values is None):
        return uncompiled(ANY, "a key that is not known", owner, *call.args)
    message = "AttributeError: 'NoneType' object has no attribute 'get'"
    kind = owner.kind.not_none()
    error = computed(kind, lambda whole: whole, owner, checks=not_none(message, owner)).error
    present = replace(owner, kind=kind, error=error)
    if key in fields:
        return operators.entry(present, key)
    found = default if fields else replace(operators.entry(present, key), error=None)
    return chosen(comparisons.contained(constant(key), present), found, default)
