"""Changes of a table, as plain data.

The mapping of a table holds the stream's names of its columns. It is stored in the table. Its keys
are: the name of a column; for a column with values of a type that another column could not hold
(`type_conflicts: suffix`) the name, `VARIANT` and the type; for a field inside a column the path,
joined by `NESTED`; and `OURS` if target-spark has created the table: columns without an entry then
have the stream's names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pyspark.sql import types as T  # noqa: N812

Path = tuple[str, ...]
"""Path of a column or field; elements of arrays are `element`, parts of maps `key` and `value`."""
PartitionStep = tuple[str | None, str | None]
"""A partition field that goes and one that comes, in SQL; None for none."""
NESTED = "\x1f"
OURS = NESTED
VARIANT = "\x1e"


def of_columns(mapping: Mapping[str, str]) -> Mapping[str, str]:
    """Return the entries of a mapping for columns."""
    return {source: name for source, name in mapping.items() if NESTED not in source}


@dataclass(frozen=True)
class Column:
    """A column to create.

    Attributes:
        name: Name in the table.
        source: Name in the stream.
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
    """The source of the values of one column of the table.

    Attributes:
        target: Name of the column.
        source: The stream's column; None for null.
        dtype: Type of the column after the change.
        how: `as is`, `cast`, `text` (see `spark_columns.value_text`), `exact` (null for values that
            the type does not hold exactly) or `null`.
        names: Path in the table and the stream's name, of fields whose names differ.
    """

    target: str
    source: str | None
    dtype: T.DataType
    how: str = "as is"
    names: tuple[tuple[Path, str], ...] = ()


@dataclass(frozen=True)
class TableChange:
    """The change that a table needs to hold the rows of a stream, and the projection of these rows.

    Attributes:
        create: Columns of the table, if it does not exist.
        add: Columns to add at the end.
        widen: Path, type and wider type of columns and fields to widen in place.
        add_nested: Path and type of fields to add.
        nullable: Columns whose NOT NULL is dropped.
        rewrite: Columns that get another type by a rewrite of the table.
        partitions: Partition fields to add, to drop, or to replace, for rows that come.
        projection: One entry for each column of the changed table, in order. Columns with a
            default (metadata `default`) that the stream lacks are omitted.
        mapping: The mapping for later runs; see the module.
    """

    create: tuple[Column, ...] | None = None
    add: tuple[Column, ...] = ()
    widen: tuple[tuple[Path, T.DataType, T.DataType], ...] = ()
    add_nested: tuple[tuple[Path, T.DataType], ...] = ()
    nullable: tuple[str, ...] = ()
    rewrite: tuple[tuple[str, T.DataType], ...] = ()
    partitions: tuple[PartitionStep, ...] = ()
    projection: tuple[Projected, ...] = ()
    mapping: Mapping[str, str] = field(default_factory=dict)

    @property
    def alters(self) -> bool:
        """Return whether an existing table must change (apart from its mapping)."""
        columns = self.add, self.widen, self.add_nested, self.nullable, self.rewrite
        return any((*columns, self.partitions))

    def given(self, names: Collection[str]) -> frozenset[str]:
        """Return the table's columns that rows set, with those for other types of a column.

        Args:
            names: The columns of the stream.
        """
        named = of_columns(self.mapping).items()
        variants = {name for source, name in named if source.partition(VARIANT)[0] in names}
        return frozenset(variants.union(i.target for i in self.projection if i.source is not None))

    @property
    def renamed(self) -> Mapping[str, str]:
        """Return the part of the mapping to store: entries that differ from the default."""
        changed = {source: name for source, name in self.mapping.items() if source != name}
        return self.mapping if changed and OURS not in self.mapping else changed
