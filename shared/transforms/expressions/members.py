"""`in` and `not in`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from shared.transforms.expressions.building import (
    Check,
    Fails,
    computed,
    constant,
    type_name,
    uncompiled,
)
from shared.transforms.expressions.comparisons import comparable, same
from shared.transforms.expressions.kinds import BOOL
from shared.transforms.expressions.values import Value

if TYPE_CHECKING:
    from pyspark.sql import Column

_MOST = 1000
_UNHASHABLE = frozenset({"list", "dict"})


def among(value: Value, parts: Sequence[Value], *, hashed: bool) -> Value:
    """Give whether a value is one of several.

    Args:
        value: What is looked for.
        parts: The elements.
        hashed: They are those of a set, or the keys of a dict.

    Raises:
        Fails: A list or dict is looked for in a set.
    """
    if hashed and value.kind.name in _UNHASHABLE:
        raise Fails(f"TypeError: unhashable type: '{type_name(value.kind)}'")
    operands = [value, *parts]
    if all(operand.is_known for operand in operands):
        return constant(value.known in [part.known for part in parts])
    if len(parts) > _MOST:
        return uncompiled(BOOL, f"'in' more than {_MOST} values", *operands)
    if not all(_findable(value, part) for part in parts):
        return uncompiled(BOOL, "'in' values of unknown types", *operands)

    def make(looked_for: Column, *columns: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        found = [same(value, p, looked_for, c) for p, c in zip(parts, columns, strict=True)]
        texts = [part.known for part in parts if isinstance(part.known, str)]
        if value.kind.name == "str" and len(texts) == len(parts) > 1:
            return F.coalesce(looked_for.isin(texts), F.lit(False))
        return reduce(lambda one, other: one | other, found, F.lit(False))

    return computed(BOOL, make, *operands)


def _findable(value: Value, part: Value) -> bool:
    if not comparable(value, part):
        return False
    # A NaN is in a list that has this very object.
    floats = value.kind.name == part.kind.name == "float"
    return not floats or value.is_known or part.is_known


def contained(value: Value, container: Value) -> Value:
    """Give `value in container` of a list or dict.

    Raises:
        Fails: The container is neither; or a list or dict is looked for in a dict.
    """
    if container.is_known:
        return _in_known(value, container)
    name = container.kind.name
    if name == "any":
        return uncompiled(BOOL, "'in' a value of unknown type", value, container)
    if name not in {"list", "dict"}:
        raise Fails(f"TypeError: argument of type '{type_name(container.kind)}' is not iterable")
    if name == "dict":
        return _in_dict(value, container)
    item = container.kind.item
    element = Value(item) if item is not None else None
    if element is None or not comparable(value, element):
        return uncompiled(BOOL, "'in' a list of values of unknown types", value, container)

    def make(looked_for: Column, whole: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        return F.exists(whole, lambda one: same(value, element, looked_for, one))

    return computed(BOOL, make, value, container, checks=_container_checks(container))


def _container_checks(container: Value) -> list[Check]:
    if not container.kind.nullable:
        return []
    said = "TypeError: argument of type 'NoneType' is not iterable"
    return [(lambda *columns: columns[1].isNull(), said)]


def _in_known(value: Value, container: Value) -> Value:
    known = container.known
    if isinstance(known, (list, tuple, set, frozenset, dict)):
        parts = [constant(item) for item in known]
        return among(value, parts, hashed=not isinstance(known, (list, tuple)))
    raise Fails(f"TypeError: argument of type '{type_name(container.kind)}' is not iterable")


def _in_dict(value: Value, container: Value) -> Value:
    if value.kind.name in _UNHASHABLE:
        raise Fails(f"TypeError: unhashable type: '{type_name(value.kind)}'")
    fields = [name for name, _ in container.kind.fields]
    checks = _container_checks(container)
    if not fields and container.kind.values is None:
        return uncompiled(BOOL, "'in' a dict whose keys are not known", value, container)
    if fields and value.is_known and not checks and container.error is None:
        return constant(value.known in fields)
    if value.kind.name == "any":
        return uncompiled(BOOL, "'in' a dict, of a value of unknown type", value, container)

    def make(looked_for: Column, whole: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        if value.kind.name != "str":
            return F.lit(False)
        found = looked_for.isin(fields) if fields else F.map_contains_key(whole, looked_for)
        return F.coalesce(found, F.lit(False))

    return computed(BOOL, make, value, container, checks=checks)
