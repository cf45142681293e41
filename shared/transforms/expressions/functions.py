"""The functions and methods that an expression can call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from shared.transforms.expressions import characters, dates, text_methods
from shared.transforms.expressions.arguments import INTEGERS, counted, folded, positional
from shared.transforms.expressions.building import (
    INT_MIN,
    Check,
    Fails,
    computed,
    constant,
    joined,
    not_none,
    type_name,
    uncompiled,
)
from shared.transforms.expressions.kinds import (
    ANY,
    DECIMAL,
    FLOAT,
    INT,
    NUMBERS,
    STR,
    Kind,
)
from shared.transforms.expressions.personal import PERSONAL
from shared.transforms.expressions.texts import text_of
from shared.transforms.expressions.truth import truth
from shared.transforms.expressions.values import Call, Value

if TYPE_CHECKING:
    from pyspark.sql import Column

Function: TypeAlias = "Callable[[Call], Value]"
Method: TypeAlias = "Callable[[Value, Call], Value]"

_TOO_LARGE = "OverflowError: an integer of more than 64 bits"
_NO_INT = (
    "TypeError: int() argument must be a string, a bytes-like object or a real number, not '{}'"
)
_NO_FLOAT = "TypeError: float() argument must be a string or a real number, not '{}'"
_DIGITS = "[0-9](?:_?[0-9])*"
_INTEGER = rf"\A[+-]?{_DIGITS}\z"
_FLOATING = rf"\A[+-]?(?:(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?)\z"
_SPECIAL = r"\A[+-]?(?i:nan|inf|infinity)\z"


def _number_text(text: Column) -> Column:
    """Give what `int` and `float` read: ASCII digits without space around them."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.btrim(characters.ascii_digits(text), F.lit(characters.NUMBER_SPACE))


def _without_underscores(text: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.translate(text, "_", "")


def _int(call: Call) -> Value:
    if call.keywords or len(call.args) > 1:
        return uncompiled(INT, "int() with a base", *call.args, *call.keywords.values())
    if not call.args:
        return constant(0)
    (value,) = call.args
    known = folded(int, value)
    if known:
        return known
    make = _INTS.get(value.kind.name)
    if value.kind.name == "any":
        return uncompiled(INT, "int() of what only the record tells", value)
    if make is None:
        raise Fails(_NO_INT.format(type_name(value.kind)), call.node)
    column, checks = make
    raised = [*not_none(_NO_INT.format("NoneType"), value), *checks]
    return computed(INT, column, value, checks=raised)


def _int_of_text(text: Column) -> Column:
    return _without_underscores(_number_text(text)).try_cast("bigint")


def _no_integer(text: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return ~F.rlike(_number_text(text), F.lit(_INTEGER))


def _quoted(before: str) -> Callable[[Column], Column]:
    def said(text: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        return F.concat(F.lit(f"ValueError: {before}: '"), text, F.lit("'"))

    return said


def _is_nan(number: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.isnan(number)


def _is_large(number: Column) -> Column:
    return (number >= 2.0**63) | (number < -(2.0**63))


def _truncated(number: Column) -> Column:
    return number.try_cast("bigint")


_FROM_FLOAT: list[Check] = [
    (_is_nan, "ValueError: cannot convert float NaN to integer"),
    (_is_large, _TOO_LARGE),
]
_INTS: Mapping[str, tuple[Callable[[Column], Column], list[Check]]] = {
    "int": (lambda number: number, []),
    "bool": (_truncated, []),
    "float": (_truncated, _FROM_FLOAT),
    "decimal": (_truncated, [(lambda number: _truncated(number).isNull(), _TOO_LARGE)]),
    "str": (
        _int_of_text,
        [
            (_no_integer, _quoted("invalid literal for int() with base 10")),
            (lambda text: _int_of_text(text).isNull(), _TOO_LARGE),
        ],
    ),
}


def _float(call: Call) -> Value:
    values = positional(call, "float", 0, 1)
    if not values:
        return constant(0.0)
    (value,) = values
    known = folded(float, value)
    if known:
        return known
    if value.kind.name == "any":
        return uncompiled(FLOAT, "float() of what only the record tells", value)
    if value.kind.name not in {*NUMBERS, "str"}:
        raise Fails(_NO_FLOAT.format(type_name(value.kind)), call.node)
    checks = not_none(_NO_FLOAT.format("NoneType"), value)
    if value.kind.name != "str":
        return computed(FLOAT, lambda number: number.cast("double"), value, checks=checks)
    checks.append((_no_float, _quoted("could not convert string to float")))
    return computed(FLOAT, _float_of_text, value, checks=checks)


def _no_float(text: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return ~F.rlike(_number_text(text), F.lit(f"(?:{_FLOATING})|(?:{_SPECIAL})"))


def _float_of_text(text: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    number = _number_text(text)
    special = F.lower(number)
    infinity = F.when(F.startswith(special, F.lit("-")), -float("inf")).otherwise(float("inf"))
    value = F.when(F.endswith(special, F.lit("nan")), float("nan"))
    value = value.when(F.contains(special, F.lit("inf")), infinity)
    return value.otherwise(_without_underscores(number).try_cast("double"))


def _str(call: Call) -> Value:
    if call.keywords or len(call.args) > 1:
        return uncompiled(STR, "str() of bytes", *call.args, *call.keywords.values())
    return text_of(call.args[0]) if call.args else constant("")


def _bool(call: Call) -> Value:
    values = positional(call, "bool", 0, 1)
    return truth(values[0]) if values else constant(False)


def _len(call: Call) -> Value:
    (value,) = positional(call, "len", 1, 1)
    name = value.kind.name
    if name == "any":
        return uncompiled(INT, "len() of what only the record tells", value)
    if name not in {"str", "list", "dict"}:
        raise Fails(f"TypeError: object of type '{type_name(value.kind)}' has no len()", call.node)
    if value.is_known:
        return constant(len(value.known))

    def make(column: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        if name == "dict" and value.kind.fields:
            return F.lit(len(value.kind.fields)).cast("bigint")
        return (F.char_length(column) if name == "str" else F.size(column)).cast("bigint")

    checks = not_none("TypeError: object of type 'NoneType' has no len()", value)
    return computed(INT, make, value, checks=checks)


def _round(call: Call) -> Value:
    if call.keywords:
        return uncompiled(ANY, "round() with keywords", *call.args, *call.keywords.values())
    value, *more = counted(call.args, call, "round", 1, 2)
    name = value.kind.name
    if name != "any" and name not in NUMBERS:
        text = f"TypeError: type {type_name(value.kind)} doesn't define __round__ method"
        raise Fails(text, call.node)
    checks = not_none("TypeError: type NoneType doesn't define __round__ method", value)
    whole = not more or more[0].kind.name == "none"
    if name in INTEGERS and (whole or _is_at_least_0(more[0])):
        return computed(INT, _truncated, value, checks=checks)
    if whole and name == "float" and not value.mixed:
        checks += [(_is_nan, "ValueError: cannot convert float NaN to integer"), _round_overflow()]
        return computed(INT, lambda number: _truncated(_rounded(number)), value, checks=checks)
    digits = {"decimal": DECIMAL, "float": FLOAT, "any": ANY}.get(name, INT)
    kind = INT if whole and name != "any" else digits
    return uncompiled(kind, f"round() of {value.kind} to digits", value, *more)


def _is_at_least_0(digits: Value) -> bool:
    return isinstance(digits.known, int) and digits.known >= 0


def _rounded(number: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.rint(number)


def _round_overflow() -> Check:
    return (_is_large, _TOO_LARGE)


def _abs(call: Call) -> Value:
    (value,) = positional(call, "abs", 1, 1)
    name = value.kind.name
    if name in {"any", "decimal", "timedelta"}:
        return uncompiled(value.kind.not_none(), f"abs() of {value.kind}", value)
    if name not in NUMBERS:
        text = f"TypeError: bad operand type for abs(): '{type_name(value.kind)}'"
        raise Fails(text, call.node)
    if value.mixed:
        return uncompiled(FLOAT, "abs() of a value that is an int or a float", value)
    checks = not_none("TypeError: bad operand type for abs(): 'NoneType'", value)
    if name != "float":
        checks.append((lambda number: number.cast("bigint") == INT_MIN, _TOO_LARGE))

    def make(number: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        if name == "float":
            return F.abs(number)
        long = number.cast("bigint")
        return F.when(long != INT_MIN, F.greatest(long, F.try_subtract(F.lit(0), long)))

    return computed(FLOAT if name == "float" else INT, make, value, checks=checks)


def _digest(name: str) -> Function:
    def make(text: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        data = text.cast("binary")
        return F.md5(data) if name == "md5" else F.sha2(data, 256)

    def function(call: Call) -> Value:
        values = (*call.args, *call.keywords.values())
        if call.keywords and set(call.keywords) != {"string"}:
            raise Fails(f"TypeError: {name}() got an unexpected keyword argument", call.node)
        (value,) = counted(values, call, name, 1, 1)
        text = "AttributeError: '{}' object has no attribute 'encode'"
        if value.kind.name == "any":
            return uncompiled(STR, f"{name}() of what only the record tells", value)
        if value.kind.name != "str":
            raise Fails(text.format(type_name(value.kind)), call.node)
        return computed(STR, make, value, checks=not_none(text.format("NoneType"), value))

    return function


def _dumps(call: Call) -> Value:
    """Compile `json.dumps` of what needs no escapes."""
    values = (*call.args, *call.keywords.values())
    plain = len(call.args) == 1 and not call.keywords
    if not plain or values[0].kind.name not in {"none", "bool", "int"}:
        return uncompiled(STR, "json.dumps()", *values)

    def make(column: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        return F.coalesce(column.cast("string"), F.lit("null"))

    return computed(STR, make, values[0])


def _left(name: str, kind: Kind) -> Function:
    return lambda call: uncompiled(kind, f"{name}()", *call.args, *call.keywords.values())


def _chosen(name: str) -> Function:
    """Give `min` or `max`: their kind, for the evaluator to compute."""

    def function(call: Call) -> Value:
        values = (*call.args, *call.keywords.values())
        if len(call.args) < 2 or call.keywords:  # noqa: PLR2004
            return uncompiled(ANY, f"{name}()", *values)
        kind = call.args[0].kind
        for value in call.args[1:]:
            kind = joined(kind, value.kind)
        return uncompiled(kind, f"{name}()", *values)

    return function


FUNCTIONS: Mapping[str, Function] = {
    "int": _int,
    "float": _float,
    "str": _str,
    "bool": _bool,
    "len": _len,
    "round": _round,
    "abs": _abs,
    "min": _chosen("min"),
    "max": _chosen("max"),
    "sum": _left("sum", ANY),
    "list": _left("list", ANY),
    "tuple": _left("tuple", ANY),
    "dict": _left("dict", ANY),
    "set": _left("set", ANY),
    "rand": _left("rand", FLOAT),
    "randint": _left("randint", INT),
    "md5": _digest("md5"),
    "sha256": _digest("sha256"),
    "json.dumps": _dumps,
    "json.loads": _left("json.loads", ANY),
    **dates.FUNCTIONS,
    **PERSONAL,
}
"""Functions by name, those of modules with a dot."""

METHODS: Mapping[tuple[str, str], Method] = {
    **{("str", name): method for name, method in text_methods.METHODS.items()},
    **dates.METHODS,
}
"""Methods by the kind of what they belong to, and their name."""

ATTRIBUTES = dates.ATTRIBUTES
"""Attributes that are no methods, by kind and name."""
