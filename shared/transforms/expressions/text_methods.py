"""Methods of `str`, compiled where Spark gives exactly what Python gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from shared.transforms.expressions import characters
from shared.transforms.expressions.arguments import (
    INTEGERS,
    folded,
    must_be,
    named,
    positional,
)
from shared.transforms.expressions.building import (
    Check,
    Fails,
    Make,
    computed,
    constant,
    uncompiled,
)
from shared.transforms.expressions.kinds import BOOL, INT, STR, Kind
from shared.transforms.expressions.texts import LONGEST, padded
from shared.transforms.expressions.values import Call, Value

if TYPE_CHECKING:
    from pyspark.sql import Column

Method: TypeAlias = "Callable[[Value, Call], Value]"

_LIST_OF_STR = Kind("list", item=STR)
_NOT_FOUND = "ValueError: substring not found"
_REGEX_SIGNS = frozenset(r"\^$.|?*+()[]{}-&~#")


def _self_checks(text: Value, name: str) -> list[Check]:
    if not text.kind.nullable:
        return []
    said = f"AttributeError: 'NoneType' object has no attribute '{name}'"
    return [(lambda *columns: columns[0].isNull(), said)]


def _none_checks(text: str, *values: Value) -> list[Check]:
    """Give checks of arguments that stand after `self` among the operands."""

    def at(position: int) -> Make:
        return lambda *columns: columns[position].isNull()

    return [(at(i), text) for i, value in enumerate(values, 1) if value.kind.nullable]


def _plain(name: str, make: Callable[[Column], Column], kind: Kind = STR) -> Method:
    """Give a method without arguments."""

    def method(text: Value, call: Call) -> Value:
        positional(call, f"str.{name}", 0, 0)
        known = folded(getattr(str, name), text)
        return known or computed(kind, make, text, checks=_self_checks(text, name))

    return method


def _with_text(
    name: str, make: Callable[[Column, Column], Column], kind: Kind, *checks: Check
) -> Method:
    """Give a method with one argument, a text."""

    def method(text: Value, call: Call) -> Value:
        if len(call.args) > 1:
            return uncompiled(kind, f"str.{name}() with a range", text, *call.args)
        (part,) = positional(call, f"str.{name}", 1, 1)
        if isinstance(part.known, tuple) or part.kind.name == "list":
            return uncompiled(kind, f"str.{name}() with a tuple", text, part)
        said = f"TypeError: {name}() argument must be str, not "
        must_be(part, ("str",), said + "{kind}")
        known = folded(getattr(str, name), text, part)
        raised = [*_self_checks(text, name), *_none_checks(said + "NoneType", part), *checks]
        return known or computed(kind, make, text, part, checks=raised)

    return method


def _strip(name: str, spark: str) -> Method:
    def make(text: Column, chars: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        strip: Callable[[Column, Column], Column] = getattr(F, spark)
        return strip(text, F.coalesce(chars, F.lit(characters.WHITESPACE)))

    def method(text: Value, call: Call) -> Value:
        found = positional(call, f"str.{name}", 0, 1)
        chars = found[0] if found else constant(None)
        must_be(chars, ("str", "none"), f"TypeError: {name} arg must be None or str")
        known = folded(getattr(str, name), text, chars)
        return known or computed(STR, make, text, chars, checks=_self_checks(text, name))

    return method


def _replace(text: Value, call: Call) -> Value:
    if len(call.args) == 3 or call.keywords:  # noqa: PLR2004
        return uncompiled(STR, "str.replace() with a count", text, *call.args)
    old, new = positional(call, "str.replace", 2, 3)
    for number, part in enumerate((old, new), 1):
        must_be(part, ("str",), f"TypeError: replace() argument {number} must be str, not {{kind}}")
    known = folded(str.replace, text, old, new)
    if known:
        return known
    if not old.known or not old.is_known:
        return uncompiled(STR, "str.replace() of what may be empty", text, old, new)

    def make(column: Column, before: Column, after: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        return F.replace(column, before, after)

    said = "TypeError: replace() argument 2 must be str, not NoneType"
    checks = [*_self_checks(text, "replace"), *_none_checks(said, old, new)]
    return computed(STR, make, text, old, new, checks=checks)


def _found(text: Column, part: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return (F.instr(text, part) - 1).cast("bigint")


def _found_last(text: Column, part: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    from_end = F.instr(F.reverse(text), F.reverse(part))
    at = F.char_length(text) - F.char_length(part) - from_end + 1
    return F.when(from_end == 0, F.lit(-1)).otherwise(at).cast("bigint")


def _missing(text: Column, part: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return ~F.contains(text, part)


def _times_in(text: Column, part: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    length = F.char_length(text)
    gone = length - F.char_length(F.replace(text, part, F.lit("")))
    size = F.char_length(part)
    number = F.when(size == 0, length + 1).otherwise(F.try_divide(gone, size))
    return number.cast("bigint")


def _starts(text: Column, part: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.startswith(text, part)


def _ends(text: Column, part: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.endswith(text, part)


def _without_start(text: Column, part: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    rest = F.substr(text, F.char_length(part) + 1)
    return F.when(F.startswith(text, part), rest).otherwise(text)


def _without_end(text: Column, part: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    rest = F.substr(text, F.lit(1), F.char_length(text) - F.char_length(part))
    return F.when(F.endswith(text, part), rest).otherwise(text)


def _split(text: Value, call: Call) -> Value:
    separator, limit = named(call, "str.split", ("sep", "maxsplit"))
    must_be(separator, ("str", "none"), "TypeError: must be str or None, not {kind}")
    most = -1 if limit.kind.name == "none" else limit.known
    if not separator.is_known or not isinstance(most, int):
        return uncompiled(_LIST_OF_STR, "str.split() by what is not known", text, separator, limit)
    if separator.known == "":
        raise Fails("ValueError: empty separator", call.node)
    if separator.known is None and most >= 0:
        return uncompiled(_LIST_OF_STR, "str.split() at spaces, with a limit", text)
    pieces = -1 if most < 0 else min(most, 2**31 - 2) + 1

    def make(column: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        if separator.known is not None:
            return F.split(column, _quoted(separator.known), pieces)
        words = F.btrim(column, F.lit(characters.WHITESPACE))
        parts = F.split(words, f"[{characters.char_class('isspace')}]+", -1)
        return F.when(words == "", F.array().cast("array<string>")).otherwise(parts)

    return computed(_LIST_OF_STR, make, text, checks=_self_checks(text, "split"))


def _quoted(text: str) -> str:
    """Give the regular expression that finds a text."""
    return "".join("\\" + char if char in _REGEX_SIGNS else char for char in text)


def _join(text: Value, call: Call) -> Value:
    (parts,) = positional(call, "str.join", 1, 1)
    must_be(parts, ("list", "str", "dict"), "TypeError: can only join an iterable")
    item = parts.kind.item
    if parts.kind.name != "list" or item is None:
        return uncompiled(STR, f"str.join() of {parts.kind}", text, parts)
    if item.name not in {"str", "none"}:
        return uncompiled(STR, f"str.join() of a list of {item}", text, parts)

    glue = text.known
    if not isinstance(glue, str):
        return uncompiled(STR, "str.join() of a text that is not known", text, parts)

    def make(_: Column, column: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        return F.array_join(column, glue)

    def some_none(_: Column, column: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        return F.exists(column, lambda piece: piece.isNull())

    checks = [
        *_self_checks(text, "join"),
        *_none_checks("TypeError: can only join an iterable", parts),
    ]
    if item.nullable:
        checks.append(
            (some_none, "TypeError: sequence item: expected str instance, NoneType found")
        )
    return computed(STR, make, text, parts, checks=checks)


def _filled(name: str) -> Method:
    """Give `ljust`, `rjust`, `center` or `zfill`, by a width that is known."""
    most = 1 if name == "zfill" else 2

    def method(text: Value, call: Call) -> Value:
        width, *more = positional(call, f"str.{name}", 1, most)
        must_be(
            width, tuple(INTEGERS), "TypeError: '{kind}' object cannot be interpreted as an integer"
        )
        if not all(isinstance(value.known, (int, str)) for value in (width, *more)):
            return uncompiled(STR, f"str.{name}() to a width that is not known", text, width, *more)
        fill = more[0].known if more else " "
        if not isinstance(fill, str) or len(fill) != 1:
            raise Fails("TypeError: The fill character must be exactly one character long")
        if width.known > LONGEST:
            return uncompiled(STR, f"str.{name}() to such a width", text)
        known = folded(getattr(str, name), text, width, *more)
        size = max(int(width.known), 0)
        checks = _self_checks(text, name)
        return known or computed(STR, lambda c: _fill(c, name, size, fill), text, checks=checks)

    return method


def _fill(text: Column, name: str, width: int, fill: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    if name not in {"center", "zfill"}:
        return padded(text, width, fill, "<" if name == "ljust" else ">")
    missing = F.greatest(F.lit(width) - F.char_length(text), F.lit(0))
    if name == "zfill":
        signed = F.startswith(text, F.lit("+")) | F.startswith(text, F.lit("-"))
        zeros = F.repeat(F.lit("0"), missing)
        after = F.concat(F.substring(text, 1, 1), zeros, F.substr(text, F.lit(2)))
        return F.when(signed, after).otherwise(F.concat(zeros, text))
    before = F.floor(missing / 2).cast("int") + missing.bitwiseAND(F.lit(width % 2))
    filling = F.lit(fill)
    return F.concat(F.repeat(filling, before), text, F.repeat(filling, missing - before))


def _every(name: str) -> Method:
    return _plain(name, lambda text: characters.all_are(text, name), BOOL)


METHODS: Mapping[str, Method] = {
    "lower": _plain("lower", characters.lower),
    "upper": _plain("upper", characters.upper),
    "capitalize": _plain("capitalize", characters.capitalize),
    "isascii": _plain("isascii", characters.is_ascii, BOOL),
    **{
        name: _every(name)
        for name in ("isdigit", "isdecimal", "isnumeric", "isspace", "isalpha", "isalnum")
    },
    "strip": _strip("strip", "btrim"),
    "lstrip": _strip("lstrip", "ltrim"),
    "rstrip": _strip("rstrip", "rtrim"),
    "replace": _replace,
    "startswith": _with_text("startswith", _starts, BOOL),
    "endswith": _with_text("endswith", _ends, BOOL),
    "removeprefix": _with_text("removeprefix", _without_start, STR),
    "removesuffix": _with_text("removesuffix", _without_end, STR),
    "find": _with_text("find", _found, INT),
    "rfind": _with_text("rfind", _found_last, INT),
    "index": _with_text("index", _found, INT, (_missing, _NOT_FOUND)),
    "rindex": _with_text("rindex", _found_last, INT, (_missing, _NOT_FOUND)),
    "count": _with_text("count", _times_in, INT),
    "split": _split,
    "join": _join,
    **{name: _filled(name) for name in ("ljust", "rjust", "center", "zfill")},
}
"""Those that are compiled, by their names."""
