"""Convert rows to wanted columns: names and types at any depth, exactly or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from shared.formats.record_text import quoted

Path = tuple[str, ...]
Names = Mapping[Path, str | None]
"""Current path of a field to its name in an older version; None if it did not exist yet.

Elements of arrays are called `element`, parts of maps `key` and `value`. Fields that are not
listed have had their name all along.
"""
NO_NAMES: Names = {}
_INTEGERS: Mapping[type[T.DataType], int] = {
    T.ByteType: 3,
    T.ShortType: 5,
    T.IntegerType: 10,
    T.LongType: 20,
}
"""Integer types, narrow to wide, with the digits they need."""


class TypeChangeError(ValueError):
    """A column's type in an older version does not fit into today's."""


def conformed(frame: DataFrame, want: T.StructType, names: Names = NO_NAMES) -> DataFrame:
    """Convert rows of any version to the wanted columns, exactly or not at all.

    Args:
        frame: Rows of the table; further columns are left out.
        want: Columns and types, at any depth, that come out.
        names: What fields were called when the rows' schema was in force.

    Raises:
        TypeChangeError: A column had a type whose values the wanted one cannot hold.
    """
    have = {field.name: field.dataType for field in frame.schema.fields}
    fitting = Fitting(names, _exact)
    columns = []
    for field in want.fields:
        name = names.get((field.name,), field.name)
        dtype = have.get(name) if name is not None else None
        if name is None or dtype is None:
            fitted = F.lit(None).cast(field.dataType)
        else:
            fitted = fitting.value(F.col(quoted(name)), dtype, field.dataType, (field.name,))
        columns.append(fitted.alias(field.name))
    return frame.select(*columns)


def check_types(have: T.StructType, want: T.StructType) -> None:
    """Check that today's columns fit into the wanted types.

    Raises:
        TypeChangeError: Naming the column, and both types.
    """
    present = {field.name: field.dataType for field in have.fields}
    fitting = Fitting(NO_NAMES, _exact)
    for field in want.fields:
        if field.name in present:
            fitting.value(F.lit(None), present[field.name], field.dataType, (field.name,))


def loose(dtype: T.DataType) -> T.DataType:
    """Return the type, nullable at every depth and without metadata, for a comparison."""
    if isinstance(dtype, T.StructType):
        return T.StructType([T.StructField(f.name, loose(f.dataType), True) for f in dtype.fields])
    if isinstance(dtype, T.ArrayType):
        return T.ArrayType(loose(dtype.elementType), True)
    if isinstance(dtype, T.MapType):
        return T.MapType(loose(dtype.keyType), loose(dtype.valueType), True)
    return dtype


def widens(have: T.DataType, want: T.DataType) -> bool:
    """Return whether every value of one type is a value of the other."""
    if isinstance(have, T.NullType):
        return True
    if isinstance(want, T.DecimalType):
        if isinstance(have, T.DecimalType):
            whole = want.precision - want.scale >= have.precision - have.scale
            return whole and want.scale >= have.scale
        return want.precision - want.scale >= _INTEGERS.get(type(have), 99)
    if type(have) in _INTEGERS and type(want) in _INTEGERS:
        return _INTEGERS[type(have)] <= _INTEGERS[type(want)]
    if isinstance(want, T.DoubleType):
        return isinstance(have, (T.FloatType, T.ByteType, T.ShortType, T.IntegerType))
    return isinstance(have, T.DateType) and isinstance(want, T.TimestampNTZType)


@dataclass(frozen=True)
class Fitting:
    """How to convert values of one type to another, at any depth.

    Attributes:
        names: Names of the wanted fields in the existing values.
        leaf: Converts a value unless both types are structs, arrays or maps; the arguments are
            the value, its type, the wanted type, and the path.
    """

    names: Names
    leaf: Callable[[Column, T.DataType, T.DataType, Path], Column]

    def value(self, value: Column, have: T.DataType, want: T.DataType, path: Path) -> Column:
        """Return the value as one of the wanted type; keep a value of the same type."""
        if loose(have) == loose(want) and not any(key[: len(path)] == path for key in self.names):
            return value
        if isinstance(have, T.StructType) and isinstance(want, T.StructType):
            return F.when(value.isNotNull(), self._struct(value, have, want, path))
        if isinstance(have, T.ArrayType) and isinstance(want, T.ArrayType):
            inner, wanted = have.elementType, want.elementType
            return F.transform(
                value, lambda item: self.value(item, inner, wanted, (*path, "element"))
            )
        if isinstance(have, T.MapType) and isinstance(want, T.MapType):
            return self._map(value, have, want, path)
        return value if loose(have) == loose(want) else self.leaf(value, have, want, path)

    def _struct(self, value: Column, have: T.StructType, want: T.StructType, path: Path) -> Column:
        present = {field.name: field.dataType for field in have.fields}
        fields = []
        for field in want.fields:
            inner = (*path, field.name)
            name = self.names.get(inner, field.name)
            dtype = present.get(name) if name is not None else None
            if name is None or dtype is None:
                fitted = F.lit(None).cast(field.dataType)
            else:
                fitted = self.value(value.getField(name), dtype, field.dataType, inner)
            fields.append(fitted.alias(field.name))
        return F.struct(*fields)

    def _map(self, value: Column, have: T.MapType, want: T.MapType, path: Path) -> Column:
        def key(item: Column) -> Column:
            return self.value(item, have.keyType, want.keyType, (*path, "key"))

        def content(item: Column) -> Column:
            return self.value(item, have.valueType, want.valueType, (*path, "value"))

        turned = F.transform_values(value, lambda _, item: content(item))
        return F.transform_keys(turned, lambda item, _: key(item))


def _exact(value: Column, have: T.DataType, want: T.DataType, path: Path) -> Column:
    if widens(have, want):
        return value.cast(want)
    raise TypeChangeError(
        f"column '{'.'.join(path)}' is {have.simpleString()}, not {want.simpleString()}"
    )
