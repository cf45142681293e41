"""The columns of a record as the values that its RECORD message has, and their parts."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from shared.maps.expressions.building import (
    Check,
    Fails,
    computed,
    joined,
    lifted,
    not_none,
    uncompiled,
)
from shared.maps.expressions.kinds import NONE, Kind, kind_of
from shared.maps.expressions.values import Thunk, Value

PATH = "path"
"""In a column's metadata: the names that lead to it, if it is a field inside another column."""

_VARIANT = "a variant"


def named(field: T.StructField) -> Column:
    """Return the column, or the field inside one, that a record has under a name."""
    from shared.maps.transform import at_path  # noqa: PLC0415

    return at_path(field.metadata.get(PATH, (field.name,)))


def column(name: str, struct: T.StructType) -> Value:
    """Return a column of the record."""

    def raw() -> Column:
        return named(struct[name])

    return _value(raw, struct[name].dataType, (name,), nullable=struct[name].nullable)


def whole(struct: T.StructType) -> Value:
    """Return the record itself, as a dict."""
    parts = [column(field.name, struct) for field in struct.fields]
    value = mapping(struct.names, parts)
    return value if struct.names else uncompiled(value.kind, "a record without properties")


def mapping(keys: Sequence[str], parts: Sequence[Value]) -> Value:
    """Return a dict of values under keys that all differ."""
    kind = Kind("dict", fields=tuple(zip(keys, (part.kind for part in parts), strict=True)))
    if not keys or len({key.lower() for key in keys}) != len(keys):
        return uncompiled(kind, "a dict without keys, or whose keys differ only in case", *parts)

    def make(*columns: Column) -> Column:
        return F.struct(*(part.alias(key) for key, part in zip(keys, columns, strict=True)))

    return computed(kind, make, *parts)


def listed(parts: Sequence[Value]) -> Value:
    """Return a list of values."""
    item: Kind | None = parts[0].kind if parts else None
    for part in parts[1:]:
        item = joined(item, part.kind) if item is not None else None
    kind = Kind("list", item=item)
    if item is None or item.name in {"any", "none"}:
        return uncompiled(kind, "a list of values of different types", *parts)

    def make(*columns: Column) -> Column:
        return F.array(*columns)

    return computed(kind, make, *parts)


def _value(
    raw: Thunk,
    data_type: T.DataType,
    source: tuple[str, ...],
    error: Thunk | None = None,
    *,
    nullable: bool = True,
) -> Value:
    kind = kind_of(data_type, nullable=nullable)
    if not _viewable(data_type):
        why = _VARIANT if kind.name == "any" else f"a value of type {data_type.simpleString()}"
        return Value(kind, None, error, why, source=source, raw=raw, data_type=data_type)
    view = lambda: viewed(raw(), data_type)  # noqa: E731
    return Value(kind, view, error, source=source, raw=raw, data_type=data_type)


def _viewable(data_type: T.DataType) -> bool:
    """Return whether a type has a column that holds the same as JSON."""
    if isinstance(data_type, T.StructType):
        names = {name.lower() for name in data_type.names}
        known = len(names) == len(data_type.names) > 0
        return known and all(_viewable(field.dataType) for field in data_type)
    if isinstance(data_type, T.ArrayType):
        return _viewable(data_type.elementType)
    if isinstance(data_type, T.MapType):
        return _is_text(data_type.keyType) and _viewable(data_type.valueType)
    return not isinstance(data_type, T.VariantType)


def _is_text(data_type: T.DataType) -> bool:
    return isinstance(data_type, (T.StringType, T.CharType, T.VarcharType))


def viewed(raw: Column, data_type: T.DataType) -> Column:
    """Convert a column to what the JSON of a record has: text of dates, bigint, double.

    Args:
        raw: The column as Spark has read it.
        data_type: Its type.
    """
    if not _turned(data_type):
        return raw
    if isinstance(data_type, T.StructType):
        parts = [viewed(raw.getField(f.name), f.dataType).alias(f.name) for f in data_type]
        return F.when(raw.isNotNull(), F.struct(*parts))
    if isinstance(data_type, T.ArrayType):
        return F.transform(raw, lambda item: viewed(item, data_type.elementType))
    if isinstance(data_type, T.MapType):
        return F.transform_values(raw, lambda _, item: viewed(item, data_type.valueType))
    return _scalar(raw, data_type)


def _turned(data_type: T.DataType) -> bool:
    """Return whether a type needs conversion at some depth."""
    if isinstance(data_type, T.StructType):
        return any(_turned(field.dataType) for field in data_type)
    if isinstance(data_type, T.ArrayType):
        return _turned(data_type.elementType)
    if isinstance(data_type, T.MapType):
        return _turned(data_type.valueType)
    plain = (T.LongType, T.DoubleType, T.BooleanType, T.DecimalType, T.NullType)
    return data_type != T.StringType() and not isinstance(data_type, plain)


def _scalar(raw: Column, data_type: T.DataType) -> Column:
    from shared.types.record_text import plain_text, scalar_text  # noqa: PLC0415

    if isinstance(data_type, T.IntegralType):
        return raw.cast("bigint")
    if isinstance(data_type, T.FloatType):
        # Through its text: the nearest double of 0.1f has more digits than the record has.
        return raw.cast("string").cast("double")
    if _is_text(data_type):
        return raw.cast("string")
    if isinstance(data_type, (T.DateType, T.TimestampType, T.TimestampNTZType, T.BinaryType)):
        return plain_text(raw, data_type)
    return scalar_text(raw, data_type)


def field(container: Value, key: str) -> Value:
    """Return `container[key]` of a dict.

    Raises:
        Fails: It never has this key.
    """
    fields = dict(container.kind.fields)
    checks = not_none("TypeError: 'NoneType' object is not subscriptable", container)
    if not fields:
        kind = (container.kind.values or Kind("any")).or_none()
        return uncompiled(kind, "a key of a dict with any keys", container)
    if key not in fields:
        raise Fails(f"KeyError: '{key}'")
    if container.raw is not None and container.data_type is not None:
        raw = container.raw
        below = container.data_type[key].dataType  # type: ignore[index]
        error = computed(NONE, lambda inside: inside, container, checks=checks).error
        return _value(lambda: raw().getField(key), below, (*container.source, key), error)
    kind = fields[key].or_none()
    return computed(kind, lambda inside: inside.getField(key), container, checks=checks)


def item(container: Value, index: Value) -> Value:
    """Return `container[index]` of a list.

    Raises:
        Fails: The index is not an integer.
    """
    kind = (container.kind.item or Kind("any")).or_none()
    make = _at if container.kind.item is not None else None
    checks: list[Check] = [(_outside, "IndexError: list index out of range")]
    why = "a list of values of different types"
    return lifted(
        lambda one, at: one[at], make, container, index, kind=kind, checks=checks, why=why
    )


def _outside(whole: Column, index: Column) -> Column:
    size, at = F.size(whole), index.cast("bigint")
    return (at >= size) | (at < -size)


def _at(whole: Column, index: Column) -> Column:
    at, size = index.cast("bigint"), F.size(whole).cast("bigint")
    place = F.when(_outside(whole, index), None).when(at < 0, at + size).otherwise(at)
    return F.get(whole, place.cast("int"))
