"""Operators on text, and f-strings: Python's results, where Spark can give them exactly."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from shared.transforms.expressions.building import (
    Check,
    Fails,
    computed,
    constant,
    not_none,
    operand_checks,
    type_name,
    uncompiled,
    why_of,
)
from shared.transforms.expressions.kinds import BOOL, STR
from shared.transforms.expressions.values import Value

if TYPE_CHECKING:
    from pyspark.sql import Column

Part: TypeAlias = "str | tuple[Value, int, str | None]"
"""Text of an f-string, or a value with its conversion, which changes nothing as in the SDK, and
its format spec."""

LONGEST = 100_000
"""What simpleeval makes at most by repeating a text."""

_TOO_LONG = "IterableTooLong: Sorry, I will not evaluate something that long."
_SPEC = re.compile(
    r"(?:(?P<fill>.)?(?P<align>[<>^]))?(?P<sign>[-+ ])?(?P<zero>0)?(?P<width>[0-9]{1,3})?"
    r"(?P<group>[,_])?(?:\.(?P<precision>[0-9]{1,3}))?(?P<type>[ds])?",
    re.DOTALL,
)
_BETWEEN_THOUSANDS = r"(?<=\d)(?=(\d{3})+$)"


def add(left: Value, right: Value) -> Value:
    """Give `left + right` of two texts."""

    def make(a: Column, b: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        return F.concat(a, b)

    return computed(STR, make, left, right, checks=operand_checks("+", left, right))


def times(left: Value, right: Value) -> Value:
    """Give `left * right` of a text and an integer, in either order."""
    reverse = left.kind.name != "str"

    def ordered(a: Column, b: Column) -> tuple[Column, Column]:
        text, count = (b, a) if reverse else (a, b)
        return text, count.cast("bigint")

    def too_long(a: Column, b: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        text, count = ordered(a, b)
        return F.char_length(text).cast("double") * count.cast("double") > LONGEST

    def make(a: Column, b: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        text, count = ordered(a, b)
        bounded = F.least(F.greatest(count, F.lit(0)), F.lit(LONGEST)).cast("int")
        return F.repeat(F.when(~too_long(a, b), text), bounded)

    checks = [*operand_checks("*", left, right), (too_long, _TOO_LONG)]
    return computed(STR, make, left, right, checks=checks)


def contains(part: Value, whole: Value) -> Value:
    """Give `part in whole` of a text."""
    if part.kind.name not in {"str", "any"}:
        kind = type_name(part.kind)
        raise Fails(f"TypeError: 'in <string>' requires string as left operand, not {kind}")

    def make(a: Column, b: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        return F.contains(b, a)

    return computed(BOOL, make, part, whole, checks=_none_in(part, whole))


def _none_in(part: Value, whole: Value) -> list[Check]:
    checks: list[Check] = []
    if whole.kind.nullable:
        text = "TypeError: argument of type 'NoneType' is not iterable"
        checks.append((lambda _, b: b.isNull(), text))
    if part.kind.nullable:
        text = "TypeError: 'in <string>' requires string as left operand, not NoneType"
        checks.append((lambda a, _: a.isNull(), text))
    return checks


def index(text: Value, position: Value) -> Value:
    """Give `text[position]`."""
    if position.kind.name not in {"int", "bool"}:
        if position.kind.name == "any":
            return uncompiled(STR, "", text, position)
        kind = type_name(position.kind)
        raise Fails(f"TypeError: string indices must be integers, not '{kind}'")

    def make(column: Column, at: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        if isinstance(position.known, int) and position.known >= 0:
            return F.substr(column, _int(position.known + 1), F.lit(1))
        length = _length(column)
        number = at.cast("bigint")
        from_start = F.when(number < 0, number + length).otherwise(F.least(number, length))
        return F.substr(column, (F.greatest(from_start, F.lit(0)) + 1).cast("int"), F.lit(1))

    def outside(column: Column, at: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        length, number = F.char_length(column).cast("bigint"), at.cast("bigint")
        return (number >= length) | (number < -length)

    checks = [
        *_none_at(text, position),
        (outside, "IndexError: string index out of range"),
    ]
    return computed(STR, make, text, position, checks=checks)


def _none_at(text: Value, position: Value) -> list[Check]:
    checks: list[Check] = []
    if text.kind.nullable:
        checks.append(
            (lambda a, _: a.isNull(), "TypeError: 'NoneType' object is not subscriptable")
        )
    if position.kind.nullable:
        said = "TypeError: string indices must be integers, not 'NoneType'"
        checks.append((lambda _, b: b.isNull(), said))
    return checks


def sliced(text: Value, lower: Value | None, upper: Value | None, step: Value | None) -> Value:
    """Give `text[lower:upper:step]`; with a step other than 1, only `[::-1]` is compiled."""
    low, high = lower or constant(None), upper or constant(None)
    by = step or constant(None)
    for bound in (low, high, by):
        if bound.kind.name not in {"int", "bool", "none", "any"}:
            raise Fails(
                "TypeError: slice indices must be integers or None or have an __index__ method"
            )
    none = "TypeError: 'NoneType' object is not subscriptable"
    checks: list[Check] = []
    if text.kind.nullable:
        checks.append((lambda *columns: columns[0].isNull(), none))
    if by.is_known and by.known == 0 and by.known is not None:
        raise Fails("ValueError: slice step cannot be zero")
    if by.is_known and by.known == -1 and low.known is None and high.known is None:

        def reversed_text(column: Column) -> Column:
            from pyspark.sql import functions as F  # noqa: N812, PLC0415

            return F.reverse(column)

        return computed(STR, reversed_text, text, checks=checks)
    if not (by.is_known and by.known in {None, 1}):
        return uncompiled(STR, "slices with a step", text, low, high)

    def make(column: Column, a: Column, b: Column) -> Column:
        return _between(column, _bound(low, a), _bound(high, b))

    return computed(STR, make, text, low, high, checks=checks)


_Bound: TypeAlias = "int | Column | None"


def _bound(value: Value, column: Column) -> _Bound:
    """Give a bound as far as it is known."""
    if value.kind.name == "none":
        return None
    return int(value.known) if value.is_known else column.cast("bigint")


def _between(text: Column, low: _Bound, high: _Bound) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    if (low is None or isinstance(low, int)) and (low or 0) >= 0:
        start = low or 0
        if high is None:
            return F.substr(text, _int(start + 1))
        if isinstance(high, int) and high >= 0:
            return F.substr(text, _int(start + 1), _int(max(high - start, 0)))
    length = _length(text)
    first = _place(low, length, F.lit(0).cast("bigint"))
    last = _place(high, length, length)
    count = F.greatest(last - first, F.lit(0))
    return F.substr(text, (first + 1).cast("int"), count.cast("int"))


def _length(text: Column) -> Column:
    """Give the length of a text; 0 where it is null, so that all bounds are small."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.coalesce(F.char_length(text), F.lit(0)).cast("bigint")


def _place(bound: _Bound, length: Column, default: Column) -> Column:
    """Give a bound counted from the start, within the text."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    if bound is None:
        return default
    zero = F.lit(0).cast("bigint")
    if isinstance(bound, int):
        far = F.lit(max(min(bound, 2**62), -(2**62))).cast("bigint")
        return F.greatest(far + length, zero) if bound < 0 else F.least(far, length)
    from_end = F.when(bound < 0, F.greatest(bound + length, zero))
    return F.when(bound.isNull(), default).otherwise(F.coalesce(from_end, F.least(bound, length)))


def _int(number: int) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.lit(min(number, 2**31 - 1)).cast("int")


def text_of(value: Value) -> Value:
    """Give `str(value)`."""
    name = value.kind.name
    if value.is_known and isinstance(value.known, (bool, int, float, str, type(None))):
        return constant(str(value.known))
    if name not in {"none", "bool", "int", "str", "date"}:
        return uncompiled(STR, f"str() of {value.kind.not_none()}", value)
    if name == "str" and not value.kind.nullable:
        return computed(STR, lambda column: column, value)

    def make(column: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        text = column.cast("string")
        if name == "bool":
            text = F.when(column, F.lit("True")).when(~column, F.lit("False"))
        return F.coalesce(text, F.lit("None"))

    return computed(STR, make, value)


def formatted(parts: Sequence[Part]) -> Value:
    """Give the text of an f-string."""
    values = [
        constant(part) if isinstance(part, str) else _formatted(part[0], part[2]) for part in parts
    ]
    if all(value.is_known for value in values):
        return constant("".join(value.known for value in values))
    if why_of(*values):
        return uncompiled(STR, "", *values)

    def make(*columns: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        return F.concat(*columns)

    return computed(STR, make, *values)


def _formatted(value: Value, spec: str | None) -> Value:
    if not spec:
        return text_of(value)
    parsed = _SPEC.fullmatch(spec)
    name = value.kind.name
    takes = {"int": _int_spec, "str": _text_spec}.get(name)
    if parsed is None or takes is None or not takes(parsed):
        return uncompiled(STR, f"the format '{spec}' of {value.kind.not_none()}", value)
    text = "TypeError: unsupported format string passed to NoneType.__format__"
    render = _number_as if name == "int" else _text_as
    return computed(STR, lambda column: render(column, parsed), value, checks=not_none(text, value))


def _int_spec(spec: re.Match[str]) -> bool:
    """Say whether an integer is formatted so."""
    zero_with_more = spec["zero"] and (spec["group"] or spec["align"])
    return spec["type"] != "s" and spec["precision"] is None and not zero_with_more


def _text_spec(spec: re.Match[str]) -> bool:
    """Say whether a text is formatted so."""
    return spec["type"] != "d" and not (spec["sign"] or spec["zero"] or spec["group"])


def _number_as(number: Column, spec: re.Match[str]) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    plus = {"+": "+", " ": " "}.get(spec["sign"], "")
    sign = F.when(number < 0, F.lit("-")).otherwise(F.lit(plus))
    digits = F.translate(number.cast("string"), "-", "")
    if spec["group"]:
        digits = F.regexp_replace(digits, _BETWEEN_THOUSANDS, spec["group"])
    width = int(spec["width"] or 0)
    if spec["zero"]:
        missing = F.lit(width) - F.char_length(digits) - F.char_length(sign)
        digits = F.concat(F.repeat(F.lit("0"), missing), digits)
    return padded(F.concat(sign, digits), width, spec["fill"] or " ", spec["align"] or ">")


def _text_as(text: Column, spec: re.Match[str]) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    shown = text if spec["precision"] is None else F.substring(text, 1, int(spec["precision"]))
    return padded(shown, int(spec["width"] or 0), spec["fill"] or " ", spec["align"] or "<")


def padded(text: Column, width: int, fill: str, align: str) -> Column:
    """Fill a text up to a width: `<` at its end, `>` at its start, `^` on both sides."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    if width == 0:
        return text
    missing = F.greatest(F.lit(width) - F.char_length(text), F.lit(0))
    before = {"<": F.lit(0), ">": missing}.get(align, F.floor(missing / 2).cast("int"))
    after = missing - before
    filling = F.lit(fill)
    return F.concat(F.repeat(filling, before), text, F.repeat(filling, after))
