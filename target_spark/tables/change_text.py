"""Changes of a table in words, for messages and reports. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import types as T  # noqa: N812

from shared.run_lines import CREATED, RENAMED
from target_spark.tables.table_changes import VARIANT, Column, TableChange, of_columns

_LONGEST = 60


def change_lines(change: TableChange) -> tuple[str, ...]:
    """Return what a change does to a table, one phrase for each step; none for no change."""
    return tuple(_lines(change))


def _lines(change: TableChange) -> Iterator[str]:
    if change.create is not None:
        columns = ", ".join(f"{column.name} {_shown(column.dtype)}" for column in change.create)
        yield f"{CREATED}{columns}"
        yield from _renamed(change, change.create)
        return
    for column in change.add:
        yield f"add the column '{column.name}' ({_shown(column.dtype)})"
    yield from _renamed(change, change.add)
    for path, dtype in change.add_nested:
        yield f"add the field '{'.'.join(path)}' ({_shown(dtype)})"
    for path, old, new in change.widen:
        yield f"widen '{'.'.join(path)}' from {_shown(old)} to {_shown(new)}"
    for name, dtype in change.rewrite:
        yield f"rewrite the table for '{name}' as {_shown(dtype)}"
    for name in change.nullable:
        yield f"allow nulls in '{name}'"
    for gone, come in change.partitions:
        yield _repartitioned(gone, come)


def _renamed(change: TableChange, columns: Sequence[Column]) -> Iterator[str]:
    new = {column.name for column in columns}
    for source, name in of_columns(change.mapping).items():
        if name in new and source != name and VARIANT not in source:
            yield f"{RENAMED}'{source}' as '{name}'"


def _repartitioned(old: str | None, new: str | None) -> str:
    gone, come = ((text or "").replace("`", "") for text in (old, new))
    if not come:
        return f"no longer partition new rows by {gone}"
    return f"partition new rows by {come}" + (f" instead of {gone}" if gone else "")


def struct_change(old: T.StructType | None, new: Sequence[T.StructField]) -> tuple[str, ...]:
    """Return how the columns of a table become others; none for no change.

    Args:
        old: The columns; None for a table that does not exist.
        new: Those after the change, which have all names of the old ones.
    """
    if old is None:
        columns = ", ".join(f"{column.name} {_shown(column.dataType)}" for column in new)
        return (f"{CREATED}{columns}",)
    known = {column.name: column.dataType for column in old}
    added = (
        f"add the column '{column.name}' ({_shown(column.dataType)})"
        for column in new
        if column.name not in known
    )
    widened = (
        f"widen '{column.name}' from {_shown(known[column.name])} to {_shown(column.dataType)}"
        for column in new
        if known.get(column.name, column.dataType) != column.dataType
    )
    return (*added, *widened)


def _shown(dtype: T.DataType) -> str:
    text = dtype.simpleString()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
