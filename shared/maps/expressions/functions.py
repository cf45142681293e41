"""Calls of functions, of functions in modules, and of methods.

What Python refuses for all values of such kinds raises `Fails`.
"""

from __future__ import annotations

import datetime
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from pyspark.sql import Column
from pyspark.sql.types import StringType

from shared.formats.spark_conform import arrow_udf
from shared.maps.expressions import operators, personal, records, sandbox, scalars
from shared.maps.expressions.operators import chosen, truth
from shared.maps.expressions.personal import FakeSettings, result_kind
from shared.maps.expressions.python_columns import send_by_value
from shared.maps.expressions.sandbox import Meter
from shared.maps.expressions.scalars import OVERFLOW
from shared.maps.expressions.syntax import nearest
from shared.maps.expressions.value_kinds import (
    ANY,
    BOOL,
    CLASSES,
    DATE,
    FLOAT,
    INT,
    STR,
    Kind,
    joined,
)
from shared.maps.expressions.values import (
    Check,
    F,
    Fails,
    Names,
    Rule,
    Value,
    constant,
    lifted,
    over_arrow,
    settled,
    uncompiled,
)
from shared.spark.session import try_cast

_DIGITS = "[0-9](?:_?[0-9])*"
_INTEGER = rf"\A[+-]?{_DIGITS}\z"
_FINITE = rf"\A[+-]?(?:(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?)\z"
_FLOAT = rf"(?:{_FINITE})|(?:\A[+-]?(?i:nan|inf|infinity)\z)"


@dataclass(frozen=True)
class Call:
    """The arguments of a call."""

    args: tuple[Value, ...] = ()
    keywords: Mapping[str, Value] = field(default_factory=dict)

    @property
    def operands(self) -> tuple[Value, ...]:
        """Return all arguments."""
        return (*self.args, *self.keywords.values())

    def with_each(self, change: Callable[[Value], Value]) -> Call:
        """Return the call with changed arguments."""
        keywords = {name: change(value) for name, value in self.keywords.items()}
        return Call(tuple(map(change, self.args)), keywords)

    def lifted(
        self, python: Callable[..., Any], rule: Rule | None, *owner: Value, **options: Any
    ) -> Value:
        """Return the result; the owner of a method is the first argument. See `lifted`."""
        count = len(owner) + len(self.args)

        def function(*values: Any) -> Any:
            named = dict(zip(self.keywords, values[count:], strict=True))
            return python(*values[:count], **named)

        return lifted(function, rule, *owner, *self.operands, **options)


def _without_underscores(text: Column) -> Column:
    return F.translate(text, "_", "")


def _int_of_text(text: Column) -> Column:
    return try_cast(_without_underscores(scalars.number_text(text)), "bigint")


def _float_of_text(text: Column) -> Column:
    number = scalars.number_text(text)
    special = F.lower(number)
    infinity = F.when(F.startswith(special, F.lit("-")), -float("inf")).otherwise(float("inf"))
    value = F.when(F.endswith(special, F.lit("nan")), float("nan"))
    value = value.when(F.contains(special, F.lit("inf")), infinity)
    return value.otherwise(try_cast(_without_underscores(number), "double"))


def _whole(number: Column, *_: Column) -> Column:
    return try_cast(number, "bigint")


_TOO_LARGE: Check = (lambda number, *_: _whole(number).isNull(), OVERFLOW)
_FROM_FLOAT: list[Check] = [
    (lambda number, *_: F.isnan(number), "ValueError: cannot convert float NaN to integer"),
    (lambda number, *_: (number >= 2.0**63) | (number < -(2.0**63)), OVERFLOW),
]
_NO_INT: Check = (
    lambda text: ~F.rlike(scalars.number_text(text), F.lit(_INTEGER)),
    scalars.wrong_text("invalid literal for int() with base 10"),
)
_NO_FLOAT: Check = (
    lambda text: ~F.rlike(scalars.number_text(text), F.lit(_FLOAT)),
    scalars.wrong_text("could not convert string to float"),
)
_INTS: Mapping[str, Rule] = {
    **{"int": Rule(_whole), "bool": Rule(_whole), "float": Rule(_whole, _FROM_FLOAT)},
    "decimal": Rule(_whole, [_TOO_LARGE]),
    "str": Rule(_int_of_text, [_NO_INT, (lambda text: _int_of_text(text).isNull(), OVERFLOW)]),
}
_TO_FLOAT = Rule(lambda number: number.cast("double"))


def _round(call: Call) -> Rule | None:
    digits = call.args[1].constant if len(call.args) > 1 else None
    kind = None if call.keywords else call.args[0].kind.name
    if kind == "float" and digits is None:
        return Rule(lambda number, *_: _whole(F.rint(number)), _FROM_FLOAT)
    whole = kind in {"int", "bool"} and (not digits or (isinstance(digits, int) and digits > 0))
    return Rule(_whole) if whole else None


def _len(call: Call) -> Rule:
    kind = call.operands[0].kind
    if kind.fields:
        return Rule(lambda _: F.lit(len(kind.fields)).cast("bigint"))
    length = F.char_length if kind.name == "str" else F.size
    return Rule(lambda column: length(column).cast("bigint"))


_RULES: Mapping[str, Callable[[Call], Rule | None]] = {
    "int": lambda call: (
        _INTS.get(call.args[0].kind.name) if len(call.operands) == 1 == len(call.args) else None
    ),
    "float": lambda call: (
        Rule(_float_of_text, [_NO_FLOAT]) if call.operands[0].kind.name == "str" else _TO_FLOAT
    ),
    "round": _round,
    "len": _len,
    "md5": lambda _: Rule(lambda text: F.md5(text.cast("binary"))),
    "sha256": lambda _: Rule(lambda text: F.sha2(text.cast("binary"), 256)),
    "datetime.date.fromisoformat": lambda _: scalars.FROM_ISO,
}
# Of a value that may be an int or a float, they have the same result for either.
_OF_FLOATS = frozenset({"int", "float", "abs", "round"})
# Their results do not follow from examples.
_KINDS: Mapping[str, Kind] = {
    **{"list": Kind("list"), "tuple": Kind("list"), "dict": Kind("dict"), "set": ANY, "sum": ANY},
    **{"rand": FLOAT, "randint": INT, "json.dumps": STR, "json.loads": ANY},
    # Backports of Python 3.11 replace it by a function that does not tell its class.
    "datetime.date.fromisoformat": DATE,
}
_MODULES = {"datetime": datetime, "json": json}
# Those are checked with examples, and computed at once if all arguments are known.
_PURE = frozenset(
    {
        *("datetime.date", "datetime.datetime", "datetime.timedelta"),
        *("datetime.date.fromisoformat", "datetime.datetime.strptime"),
    }
)


def function(name: str, call: Call, names: Names) -> Value:
    """Return the result of a function, whose name begins with its module's."""
    if name in personal.FUNCTIONS:
        return _hidden(name, call, names)
    if name in {"str", "bool", "min", "max"}:
        return _of_any_values(name, call)
    why, kind = f"{name.removeprefix('datetime.datetime.')}() of such arguments", _KINDS.get(name)
    if "." in name:
        python = module_attribute(name)
        owner: Any = python if isinstance(python, type) else getattr(python, "__self__", None)
        kind = kind or CLASSES.get(owner, ANY)
        if name not in _PURE:
            return uncompiled(kind, why, *call.operands)
    elif kind is not None:
        return uncompiled(kind, why, *call.operands)
    else:
        # With the limits of the evaluator.
        python = sandbox.functions(Meter())[name]
    if name in _OF_FLOATS and len(call.operands) == 1:
        call = call.with_each(lambda value: replace(value, mixed=0))
    if name == "len" and call.args and call.args[0].kind.name != "str":
        call = call.with_each(records.as_read)
    rule = _RULES[name](call) if name in _RULES and call.operands else None
    return call.lifted(python, rule, kind=kind, why=why)


def _of_any_values(name: str, call: Call) -> Value:
    """Return the result of `str` or `bool`, which accept any value, or of `min` or `max`."""
    if name == "bool":
        alone = len(call.operands) == len(call.args) == 1
        return truth(call.args[0]) if alone else call.lifted(bool, None)
    call = call.with_each(settled)
    if name == "str":
        if call.keywords or len(call.args) > 1:
            return uncompiled(STR, "str() of bytes", *call.operands)
        return scalars.text_of(call.args[0]) if call.args else constant("")
    several = len(call.args) > 1 and not call.keywords
    kind = joined(value.kind for value in call.args) if several else None
    return uncompiled(kind or ANY, f"{name}()", *call.operands)


def _hashed(text: Column, salt: str, algorithm: str) -> Column:
    return F.sha2(F.concat(F.lit(salt), text).cast("binary"), int(algorithm[3:]))


def _masked(text: Column, keep_last: int, char: str) -> Column:
    length = F.length(text)
    kept = F.right(text, F.lit(keep_last)) if keep_last else F.lit("")
    some = F.concat(F.repeat(F.lit(char), length - keep_last), kept)
    return F.when(length > keep_last, some).otherwise(F.repeat(F.lit(char), length))


def _redacted(text: Column, pattern: str | None, replacement: str) -> Column:
    if pattern is None:
        return F.when(text.isNotNull(), F.lit(replacement))
    redacted = lambda texts: personal.redacted(texts, pattern, replacement)  # noqa: E731
    if functions := over_arrow():
        column: Column = functions.kernel(redacted)(text)
        return column
    send_by_value()
    # Java's own patterns can take for ever.
    return arrow_udf(redacted, StringType())(text)


_HIDING: Mapping[str, Callable[..., Column]] = {
    "hash_value": _hashed,
    "mask": _masked,
    "redact": _redacted,
    "truncate": lambda text, length: F.substring(text, 1, length),
}


def _hidden(name: str, call: Call, names: Names) -> Value:
    """Return the result of a function that hides personal data."""
    keywords = dict(call.keywords)
    if name == "hash_value" and len(call.args) < 2:  # noqa: PLR2004
        keywords.setdefault("salt", constant(names.config.get(personal.SALT)))
    python = personal.FUNCTIONS[name]
    try:
        bound = inspect.signature(python).bind(*call.args, **keywords)
    except TypeError as error:
        raise Fails(f"TypeError: {name}() {error}") from None
    value = bound.arguments["value"]
    kind = STR.or_none() if value.kind.nullable else STR
    why = f"{name}() of a value of kind {value.kind}, or with such options"
    call = Call(bound.args, bound.kwargs)
    bound.apply_defaults()
    options = [getattr(option, "constant", option) for option in list(bound.arguments.values())[1:]]
    rule: Rule | None = None
    are_constant = all(option.is_constant for option in call.operands[1:])
    if are_constant and value.kind.name in {"str", "int", "bool", "none"}:
        rule = Rule(lambda column, *_: _HIDING[name](column.cast("string"), *options))
    return call.lifted(python, rule, kind=kind, why=why, always=(ValueError,))


def module_attribute(name: str) -> Any:
    """Return what a dotted name in a module stands for in Python."""
    first, *parts = name.split(".")
    attribute: object = _MODULES[first]
    for part in parts:
        if not hasattr(attribute, part):
            public = [member for member in dir(attribute) if not member.startswith("_")]
            raise Fails(f"AttributeError: {first} has no '{part}'{nearest(part, public)}")
        attribute = getattr(attribute, part)
        if isinstance(attribute, ModuleType):
            raise Fails(f"the module '{part}' is not available")
    return attribute


def fake(name: str, names: Names) -> Value:
    """Return the result of a method of `fake`, which only the evaluator has."""
    settings = FakeSettings((names.faker or {}).get("locale"))
    return uncompiled(Kind(result_kind(name, settings)), f"fake.{name}()")


def method(owner: Value, name: str, call: Call) -> Value:
    """Return the result of a method."""
    owner, kind = settled(owner), owner.kind
    why = f"{operators.type_name(kind)}.{name}() with such arguments"
    if kind.name == "dict" and name == "get":
        return _get(owner, call)
    if kind.name != "any" and not hasattr(operators.type_of(kind), name):
        if kind.name == "dict" and (not kind.fields or name in dict(kind.fields)):
            raise Fails(f"TypeError: the value under '{name}' is not callable")
        raise operators.no_attribute(kind, name)
    if kind.name not in {"str", "date", "datetime", "timedelta"}:
        return uncompiled(ANY, why, owner, *call.operands)
    rule = scalars.TO_ISO if kind.name == "date" and name == "isoformat" else None
    if kind.name == "str":
        rule = scalars.method(name, call.args, call.keywords)

    def python(one: Any, *args: Any, **keywords: Any) -> Any:
        return getattr(one, name)(*args, **keywords)

    always = (ValueError,) if name == "split" else ()
    return call.lifted(python, rule, owner, why=why, always=always)


def key_of(call: Call) -> str | None:
    """Return the key that `get` is called with; None if it is not known."""
    if call.keywords:
        raise Fails("TypeError: dict.get() takes no keyword arguments")
    if not 1 <= len(call.args) <= 2:  # noqa: PLR2004
        raise Fails(f"TypeError: get expected 1 or 2 arguments, got {len(call.args)}")
    key = call.args[0].constant
    return key if isinstance(key, str) else None


def _get(owner: Value, call: Call) -> Value:
    """Return `owner.get(key, default)`; a null field of a struct is None, not missing."""
    key = key_of(call)
    default = call.args[1] if len(call.args) > 1 else constant(None)
    if owner.is_constant and key is not None:
        return constant(owner.constant[key]) if key in owner.constant else default
    if key is None or owner.kind.is_loose:
        return uncompiled(ANY, "a key that is not known", owner, *call.args)
    error = records.none_error(owner, "AttributeError: 'NoneType' object has no attribute 'get'")
    present = replace(owner, kind=owner.kind.not_none(), error=error)
    if key in dict(owner.kind.fields):
        return records.field(present, key)
    value = default if owner.kind.fields else records.field(present, key)
    return chosen(uncompiled(BOOL, "a key that may be missing", present), value, default)
