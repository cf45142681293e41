"""Partitions and sort order of Iceberg tables in SQL. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from target_spark.core.load_plans import TableRequest
from target_spark.destinations.lakes.lake_sql import quoted
from target_spark.tables.evolution import PartitionField, cluster_columns, partition_fields
from target_spark.tables.table_changes import PartitionStep

_TRANSFORM = re.compile(r"(\w+)\((?:(\d+),\s*)?(.+)\)")
_NAME = re.compile(r"`((?:[^`]|``)*)`|([^`.]+)")


def partitions_sql(request: TableRequest, names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the partitions of a table: quoted columns, and transforms of them.

    Args:
        request: The request of the stream.
        names: Stream's name → table's name of columns.

    Raises:
        SettingsError: The stream lacks a column, or a transform is unknown.
    """
    return tuple(_partition(field, names) for field in partition_fields(request))


def order_sql(request: TableRequest, names: Mapping[str, str]) -> str:
    """Return the columns that a table is sorted by; empty for none.

    Raises:
        SettingsError: The stream lacks a column.
    """
    columns = cluster_columns(request, "sort")
    return ", ".join(quoted(names.get(name, name)) for name in columns)


def plain_columns(partitions: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns by which a table is partitioned without a transform.

    Args:
        partitions: As Spark shows them.
        columns: All columns of the table.
    """
    shown = set(partitions)
    return tuple(name for name in columns if name in shown or quoted(name) in shown)


def same_partitions(shown: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether Spark shows the requested partitions."""
    return [_parsed(text).key for text in shown] == [_parsed(text).key for text in wanted]


def partition_steps(shown: Sequence[str], wanted: Sequence[str]) -> tuple[PartitionStep, ...]:
    """Return the steps that make the partitions of a table the requested ones, in any order.

    Fields of one column replace each other in one step: rows are never without both.

    Args:
        shown: Its partitions, as Spark shows them.
        wanted: The requested ones; see `partitions_sql`.
    """
    return tuple(_steps([_parsed(text) for text in shown], [_parsed(text) for text in wanted]))


def partition_changes(steps: Sequence[PartitionStep]) -> Iterator[str]:
    """Yield the ALTER TABLE actions of steps."""
    for old, new in steps:
        if old is None:
            yield f"ADD PARTITION FIELD {new}"
        elif new is None:
            yield f"DROP PARTITION FIELD {old}"
        else:
            yield f"REPLACE PARTITION FIELD {old} WITH {new}"


def _steps(have: Sequence[_Field], want: Sequence[_Field]) -> Iterator[PartitionStep]:
    keys = [{field.key for field in fields} for fields in (have, want)]
    gone = [field for field in have if field.key not in keys[1]]
    come = [field for field in want if field.key not in keys[0]]
    dropped = []
    for old in gone:
        new = next((field for field in come if field.key[-1] == old.key[-1]), None)
        if new is None:
            dropped.append(old)
        else:
            come.remove(new)
            yield old.sql, new.sql
    for new in come:
        yield None, new.sql
    for old in dropped:
        yield old.sql, None


def _partition(field: PartitionField, names: Mapping[str, str]) -> str:
    column = quoted(names.get(field.column, field.column))
    if field.transform == "identity":
        return column
    number = "" if field.number is None else f"{field.number}, "
    return f"{field.transform}({number}{column})"


@dataclass(frozen=True)
class _Field:
    """A partition field: transform, its number or "", and the path of its column."""

    transform: str
    number: str
    path: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str, str]:
        """Return what is equal for equal fields, the column last: Iceberg ignores case."""
        return self.transform, self.number, quoted(*self.path).casefold()

    @property
    def sql(self) -> str:
        if not self.transform:
            return quoted(*self.path)
        number = f"{self.number}, " if self.number else ""
        return f"{self.transform}({number}{quoted(*self.path)})"


def _parsed(text: str) -> _Field:
    """Return a partition field in SQL; Spark does not always quote names."""
    match = _TRANSFORM.fullmatch(text)
    name, number, column = match.groups() if match else ("", None, text)
    path = (inside.replace("``", "`") or bare for inside, bare in _NAME.findall(column))
    return _Field(name.lower(), number or "", tuple(path))
