"""The Python type of a value inside an expression, known before any record is read.

Imports nothing of this project, so that it can be sent to workers by value.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import reduce

from shared.formats.spark_types import T


@dataclass(frozen=True)
class Kind:
    """The Python type of a value.

    Attributes:
        name: `none`, `bool`, `int`, `float`, `decimal`, `str`, `list`, `dict`, `date`, `datetime`,
            `timedelta`, or `any` if it depends on the record.
        nullable: Whether it may be None instead.
        item: Of the elements of a list, if they are all alike.
        fields: Of a dict that always has the same keys.
        values: Of the values of a dict with any keys, if they are all alike.
        digits: Precision and scale of the column of a decimal; None if Python computes it.
    """

    name: str
    nullable: bool = False
    item: Kind | None = None
    fields: tuple[tuple[str, Kind], ...] = ()
    values: Kind | None = None
    digits: tuple[int, int] | None = None

    def or_none(self) -> Kind:
        """Return the same kind, or None."""
        return replace(self, nullable=True)

    def not_none(self) -> Kind:
        """Return the same kind, but never None."""
        return replace(self, nullable=False)

    @property
    def parts(self) -> tuple[Kind, ...]:
        """Return the kinds of what it holds."""
        return tuple(filter(None, (self.item, self.values, *(part for _, part in self.fields))))

    @property
    def is_loose(self) -> bool:
        """Return whether only the record tells what it holds."""
        return self.name == "any" or (self.name in {"list", "dict"} and not self.parts)

    def holds(self, name: str) -> bool:
        """Return whether it is of a kind, or holds one at any depth."""
        return self.name == name or any(part.holds(name) for part in self.parts)

    @property
    def decimals(self) -> Iterator[Kind]:
        """Yield the kinds of the decimals that it is or holds at any depth."""
        if self.name == "decimal":
            yield self
        for part in self.parts:
            yield from part.decimals

    def __str__(self) -> str:
        return f"{self.name} or None" if self.nullable and self.name != "none" else self.name


NONE = Kind("none", nullable=True)
BOOL = Kind("bool")
INT = Kind("int")
FLOAT = Kind("float")
DECIMAL = Kind("decimal")
STR = Kind("str")
DATE = Kind("date")
DATETIME = Kind("datetime")
TIMEDELTA = Kind("timedelta")
ANY = Kind("any", nullable=True)

NUMBERS = frozenset({"bool", "int", "float", "decimal"})
COMPUTED_DIGITS = (38, 10)
"""Precision and scale of decimals that Python computes, at least."""


def kind_of(data_type: T.DataType, *, nullable: bool = True) -> Kind:
    """Return the kind that a column has as part of a JSON record.

    Dates, times, intervals and binary are the text that they are in a RECORD message.
    """
    if isinstance(data_type, T.StructType):
        fields = ((f.name, kind_of(f.dataType, nullable=f.nullable)) for f in data_type)
        return Kind("dict", nullable, fields=tuple(fields))
    if isinstance(data_type, T.ArrayType):
        item = kind_of(data_type.elementType, nullable=data_type.containsNull)
        return Kind("list", nullable, item=item)
    if isinstance(data_type, T.MapType):
        values = kind_of(data_type.valueType, nullable=data_type.valueContainsNull)
        return Kind("dict", nullable, values=values)
    if isinstance(data_type, T.DecimalType):
        return replace(DECIMAL, nullable=nullable, digits=(data_type.precision, data_type.scale))
    for of, kind in _SCALARS:
        if isinstance(data_type, of):
            return replace(kind, nullable=nullable or kind.nullable)
    return replace(STR, nullable=nullable)


_SCALARS: tuple[tuple[type[T.DataType], Kind], ...] = (
    (T.NullType, NONE),
    (T.VariantType, ANY),
    (T.BooleanType, BOOL),
    (T.IntegralType, INT),
    (T.FractionalType, FLOAT),
)
_COLUMNS: dict[str, T.DataType] = {
    "none": T.StringType(),
    "bool": T.BooleanType(),
    "int": T.LongType(),
    "float": T.DoubleType(),
    "str": T.StringType(),
    "date": T.DateType(),
    "datetime": T.TimestampType(),
    "timedelta": T.StringType(),
}


def data_type_of(kind: Kind) -> T.DataType:
    """Return the type of a column that holds results of a kind.

    Dates and times are stored as such; a kind that depends on the record is a VARIANT.
    """
    if kind.name == "decimal":
        return T.DecimalType(*(kind.digits or COMPUTED_DIGITS))
    if kind.item is not None:
        return T.ArrayType(data_type_of(kind.item), True)
    if kind.fields:
        fields = [T.StructField(name, data_type_of(field), True) for name, field in kind.fields]
        return T.StructType(fields)
    if kind.values is not None:
        return T.MapType(T.StringType(), data_type_of(kind.values), True)
    return _COLUMNS.get(kind.name, T.VariantType())


def constant_kind(value: object) -> Kind:
    """Return the kind of a Python value."""
    if value is None:
        return NONE
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return Kind("list", item=joined(map(constant_kind, value)))
    if isinstance(value, dict):
        plain = all(isinstance(key, str) for key in value)
        fields = tuple((key, constant_kind(item)) for key, item in value.items()) if plain else ()
        return Kind("dict", fields=fields)
    return CLASSES.get(type(value), ANY)


PYTHON: dict[str, type] = {
    **{"none": type(None), "bool": bool, "int": int, "float": float, "decimal": Decimal},
    **{"str": str, "list": list, "dict": dict, "date": datetime.date},
    **{"datetime": datetime.datetime, "timedelta": datetime.timedelta},
}
"""Classes of the values of kinds, by the kinds' names."""
CLASSES = {python: Kind(name) for name, python in PYTHON.items()}
"""Kinds of values, by their classes."""


def joined(kinds: Iterable[Kind | None]) -> Kind | None:
    """Return the kind of a value of any of these kinds: `any` if one column cannot hold all."""
    several = list(kinds)
    return reduce(_joined, several) if several else None


def _joined(one: Kind | None, other: Kind | None) -> Kind | None:
    if one is None or other is None:
        return None if one is other else ANY
    nullable = one.nullable or other.nullable
    if "none" in {one.name, other.name}:
        return (other if one.name == "none" else one).or_none()
    names = [name for name, _ in one.fields]
    if one.name != other.name or names != [name for name, _ in other.fields]:
        return ANY
    pairs = zip(one.fields, other.fields, strict=True)
    fields = tuple((name, _joined(a, b) or ANY) for (name, a), (_, b) in pairs)
    item, values = _joined(one.item, other.item), _joined(one.values, other.values)
    digits = one.digits if one.digits == other.digits else None
    kind = Kind(one.name, nullable, item, fields, values, digits)
    return ANY if any(part.name == "any" for part in kind.parts) else kind
