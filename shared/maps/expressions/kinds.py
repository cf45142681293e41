"""The Python type of a value inside an expression, known before any record is read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import types as T  # noqa: N812


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
    """

    name: str
    nullable: bool = False
    item: Kind | None = None
    fields: tuple[tuple[str, Kind], ...] = ()
    values: Kind | None = None

    def or_none(self) -> Kind:
        """Return the same kind, or None."""
        return replace(self, nullable=True)

    def not_none(self) -> Kind:
        """Return the same kind, but never None."""
        return replace(self, nullable=False)

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


def kind_of(data_type: T.DataType, *, nullable: bool = True) -> Kind:
    """Return the kind that a column has as part of a JSON record.

    Dates, times, intervals and binary are the text that they are in a RECORD message.
    """
    if isinstance(data_type, T.StructType):
        fields = tuple(
            (field.name, kind_of(field.dataType, nullable=field.nullable)) for field in data_type
        )
        return Kind("dict", nullable, fields=fields)
    if isinstance(data_type, T.ArrayType):
        item = kind_of(data_type.elementType, nullable=data_type.containsNull)
        return Kind("list", nullable, item=item)
    if isinstance(data_type, T.MapType):
        values = kind_of(data_type.valueType, nullable=data_type.valueContainsNull)
        return Kind("dict", nullable, values=values)
    if isinstance(data_type, T.NullType):
        return NONE
    if isinstance(data_type, T.VariantType):
        return ANY
    return replace(_scalar(data_type), nullable=nullable)


def _scalar(data_type: T.DataType) -> Kind:
    if isinstance(data_type, T.BooleanType):
        return BOOL
    if isinstance(data_type, T.DecimalType):
        return DECIMAL
    if isinstance(data_type, T.IntegralType):
        return INT
    return FLOAT if isinstance(data_type, T.FractionalType) else STR


def data_type_of(kind: Kind) -> T.DataType:
    """Return the type of a column that holds results of a kind.

    Dates and times are stored as such; a kind that depends on the record is a VARIANT.
    """
    plain: dict[str, T.DataType] = {
        "none": T.StringType(),
        "bool": T.BooleanType(),
        "int": T.LongType(),
        "float": T.DoubleType(),
        "decimal": T.DecimalType(38, 10),
        "str": T.StringType(),
        "date": T.DateType(),
        "datetime": T.TimestampType(),
        "timedelta": T.StringType(),
    }
    if kind.name in plain:
        return plain[kind.name]
    if kind.name == "list" and kind.item is not None:
        return T.ArrayType(data_type_of(kind.item), True)
    if kind.name == "dict" and kind.fields:
        fields = [T.StructField(name, data_type_of(field), True) for name, field in kind.fields]
        return T.StructType(fields)
    if kind.name == "dict" and kind.values is not None:
        return T.MapType(T.StringType(), data_type_of(kind.values), True)
    return T.VariantType()
