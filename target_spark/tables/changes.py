"""What is to be done to a table, as plain data.

The mapping of a table tells what its columns are called in the stream. It is stored in the table.
Its keys are: a column's name; for a column that holds values of a type which another column could
not take (`type_conflicts: suffix`) the name, `VARIANT` and the type; for a field inside of a column
the path, joined by `NESTED`; and `OURS`, where the table was made by target-spark: its columns that
no entry names have the stream's names then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pyspark.sql import types as T  # noqa: N812

Path = tuple[str, ...]
"""Of a column or field; elements of arrays are `element`, parts of maps `key` and `value`."""
NESTED = "\x1f"
OURS = NESTED
VARIANT = "\x1e"


def of_columns(mapping: Mapping[str, str]) -> Mapping[str, str]:
    """The entries of a mapping that name columns."""
    return {source: name for source, name in mapping.items() if NESTED not in source}


@dataclass(frozen=True)
class Column:
    """A column that is made.

    Attributes:
        name: In the table.
        source: In the stream.
        dtype: Its type.
        nullable: False for NOT NULL.
        comment: The description in the stream's schema.
    """

    name: str
    source: str
    dtype: T.DataType
    nullable: bool = True
    comment: str | None = None


@dataclass(frozen=True)
class Projected:
    """Where the values of one column of the table come from.

    Attributes:
        target: Its name.
        source: The stream's column; None for null.
        dtype: Its type, once the change has been made.
        how: `as is`, `cast`, `text` (see `spark_columns.value_text`) or `null`.
        names: Path in the table and the stream's name, of fields that have another one.
    """

    target: str
    source: str | None
    dtype: T.DataType
    how: str = "as is"
    names: tuple[tuple[Path, str], ...] = ()


@dataclass(frozen=True)
class TableChange:
    """What has to happen to a table before rows of a stream fit, and how they fit then.

    Attributes:
        create: Columns of the table, where there is none.
        add: Columns that are added at the end.
        widen: Path, type and wider type of columns and fields that are widened in place.
        add_nested: Path and type of fields that are added.
        nullable: Columns whose NOT NULL is dropped.
        rewrite: Columns that are given another type by writing the table anew.
        projection: One for each column of the table then, in its order. Columns that have a
            default (metadata `default`) and that the stream does not have are left out.
        mapping: Everything to be known in later runs; see the module.
    """

    create: tuple[Column, ...] | None = None
    add: tuple[Column, ...] = ()
    widen: tuple[tuple[Path, T.DataType, T.DataType], ...] = ()
    add_nested: tuple[tuple[Path, T.DataType], ...] = ()
    nullable: tuple[str, ...] = ()
    rewrite: tuple[tuple[str, T.DataType], ...] = ()
    projection: tuple[Projected, ...] = ()
    mapping: Mapping[str, str] = field(default_factory=dict)

    @property
    def alters(self) -> bool:
        """Whether a table that is there has to change (its mapping aside)."""
        return any((self.add, self.widen, self.add_nested, self.nullable, self.rewrite))

    def given(self, names: Collection[str]) -> frozenset[str]:
        """The table's columns that a row has a say in, with those for other types of a column.

        Args:
            names: The columns of the stream.
        """
        named = of_columns(self.mapping).items()
        variants = {name for source, name in named if source.partition(VARIANT)[0] in names}
        return frozenset(variants.union(i.target for i in self.projection if i.source is not None))

    @property
    def renamed(self) -> Mapping[str, str]:
        """The part of the mapping that has to be stored: the rest goes without saying."""
        if OURS not in self.mapping:
            return self.mapping
        return {source: name for source, name in self.mapping.items() if source != name}
