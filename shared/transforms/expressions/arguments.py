"""Arguments of calls: their number, their kinds, and results known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shared.transforms.expressions.building import Fails, constant, type_name
from shared.transforms.expressions.kinds import Kind
from shared.transforms.expressions.values import Call, Value

LARGEST_FOLDED = 100_000
"""Nothing longer is computed beforehand."""
INTEGERS = frozenset({"int", "bool"})


def positional(call: Call, name: str, least: int, most: int) -> tuple[Value, ...]:
    """Give the arguments of a function that takes no keywords.

    Raises:
        Fails: There are too few or too many of them, or some have a name.
    """
    if call.keywords:
        raise Fails(f"TypeError: {name}() takes no keyword arguments", call.node)
    return counted(call.args, call, name, least, most)


def named(call: Call, name: str, names: Sequence[str], least: int = 0) -> tuple[Value, ...]:
    """Give the arguments in the order of `names`, by position or by name, None where missing.

    Raises:
        Fails: There are too few or too many of them, or a name is unknown.
    """
    counted(call.args, call, name, 0, len(names))
    given = dict(zip(names, call.args, strict=False))
    for keyword, value in call.keywords.items():
        if keyword not in names:
            said = f"TypeError: '{keyword}' is an invalid keyword argument for {name}()"
            raise Fails(said, call.node)
        if keyword in given:
            raise Fails(f"TypeError: {name}() got '{keyword}' twice", call.node)
        given[keyword] = value
    missing = [found for found in names[:least] if found not in given]
    if missing:
        raise Fails(f"TypeError: {name}() missing required argument '{missing[0]}'", call.node)
    return tuple(given.get(found, constant(None)) for found in names)


def counted(
    values: tuple[Value, ...], call: Call, name: str, least: int, most: int
) -> tuple[Value, ...]:
    """Give the values if their number is right.

    Raises:
        Fails: It is not.
    """
    if not least <= len(values) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        said = f"TypeError: {name}() takes {wanted} arguments ({len(values)} given)"
        raise Fails(said, call.node)
    return values


def must_be(value: Value, names: Sequence[str], text: str) -> None:
    """Refuse a value of another kind.

    Args:
        value: An argument.
        names: Kinds that do.
        text: What Python says; `{kind}` in it is the kind's name.

    Raises:
        Fails: No value of its kind does.
    """
    if value.kind.name not in names and value.kind.name != "any":
        raise Fails(text.format(kind=type_name(value.kind)))


def folded(function: Callable[..., Any], *values: Value) -> Value | None:
    """Give the result of a call whose arguments are all known; None where they are not.

    Raises:
        Fails: The call raises.
    """
    if not all(value.is_known and _small(value.known) for value in values):
        return None
    try:
        return constant(function(*(value.known for value in values)))
    except Exception as error:
        raise Fails(f"{type(error).__name__}: {error}") from None


def _small(known: object) -> bool:
    """Say whether results of this stay small whatever is done with it."""
    if isinstance(known, str):
        return len(known) <= 1000  # noqa: PLR2004
    if isinstance(known, int):
        return abs(known) <= LARGEST_FOLDED
    return known is None or isinstance(known, float)


def nullable_as(kind: Kind, *values: Value) -> Kind:
    """Give a kind that is None where one of the values is."""
    return kind.or_none() if any(value.kind.nullable for value in values) else kind
