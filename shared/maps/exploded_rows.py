"""The rows that `__explode__` makes of the elements of an array."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from shared.maps.expressions.syntax import PARENT
from shared.releases.spark_functions import is_variant_null
from shared.releases.spark_types import T
from shared.types.record_text import at_path, quoted

PLACE = "__map_place"
"""Column of exploded rows: the place of the element, from 0; null in rows without one."""

_ELEMENT = "__map_element"


@dataclass(frozen=True, eq=False)
class Explode:
    """The rows of the elements of an array.

    Attributes:
        path: The names that lead to the array.
        element: The type of its elements.
        index: The property with the place of an element; None for none.
        parent: What expressions name of the record, under `PARENT`; empty for nothing.
        is_loose: Whether elements are of types that the schema does not tell.
    """

    path: tuple[str, ...]
    element: T.DataType
    index: str | None
    parent: T.StructType
    is_loose: bool = False

    @property
    def reads(self) -> frozenset[str]:
        """Return the source columns it needs."""
        return frozenset({self.path[0], *self.parent.names})

    @property
    def hidden(self) -> tuple[str, ...]:
        """Return the paths of the source by which patterns of names mean the array itself."""
        ends = range(1, len(self.path) + 1)
        whole = isinstance(self.element, T.StructType)
        return tuple(".".join(self.path[:end]) for end in ends if whole or end < len(self.path))

    def origin(self, name: str) -> str:
        """Return the path in the source of a path in the elements."""
        inside = isinstance(self.element, T.StructType)
        return ".".join((*(self.path if inside else self.path[:-1]), name))

    def struct(self) -> T.StructType:
        """Return the columns of the rows."""
        if isinstance(self.element, T.StructType):
            fields = list(self.element)
        else:
            fields = [T.StructField(self.path[-1], self.element, self.is_loose)]
        if self.index is not None:
            fields.append(T.StructField(self.index, T.LongType(), False))
        if self.parent.fields:
            fields.append(T.StructField(PARENT, self.parent, False))
        return T.StructType(fields)

    def rows(
        self, frame: DataFrame, carried: Mapping[str, str], bypass: str | None, *, outer: bool
    ) -> DataFrame:
        """Return one row for each element that is not null.

        Args:
            frame: A frame with the columns of `reads`.
            carried: Columns to append to each row of a record, with their new names.
            bypass: A column of `carried`: rows with a value in it become one row each.
            outer: Whether a record without elements also becomes a row, without `PLACE`.

        Returns:
            The columns of `struct()`, `PLACE` and those of `carried`.
        """
        before = [F.col(quoted(name)).alias(new) for name, new in carried.items()]
        if self.parent.fields:
            before.append(F.struct(*_packed(self.parent, (), self.path)).alias(PARENT))
        array = at_path(self.path)
        if bypass is not None:
            array = F.when(F.col(quoted(bypass)).isNull(), array)
        explode = F.posexplode_outer if outer or bypass is not None else F.posexplode
        frame = frame.select(*before, explode(array).alias(PLACE, _ELEMENT))
        element = F.col(_ELEMENT)
        is_there = element.isNotNull()
        if isinstance(self.element, T.VariantType):
            is_there &= ~is_variant_null(element)
        if bypass is not None:
            frame = frame.filter(is_there | F.col(carried[bypass]).isNotNull())
        elif not outer:
            frame = frame.filter(is_there)
        if isinstance(self.element, T.StructType):
            columns = [element.getField(name).alias(name) for name in self.element.names]
        else:
            columns = [element.alias(self.path[-1])]
        if self.index is not None:
            columns.append(F.col(PLACE).cast("bigint").alias(self.index))
        if self.parent.fields:
            columns.append(F.col(PARENT))
        place = F.when(is_there, F.col(PLACE)).alias(PLACE)
        return frame.select(*columns, place, *carried.values())


def _packed(struct: T.StructType, at: tuple[str, ...], array: tuple[str, ...]) -> Iterator[Any]:
    """Yield the fields of the record; objects around the array are made anew without it."""
    for item in struct:
        path = (*at, item.name)
        if array[: len(path)] == path and isinstance(item.dataType, T.StructType):
            yield F.struct(*_packed(item.dataType, path, array)).alias(item.name)
        else:
            yield at_path(path).alias(item.name)
