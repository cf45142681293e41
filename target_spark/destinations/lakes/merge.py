"""SQL of MERGE and ACTIVATE_VERSION for lake tables. Pure."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

TARGET, SOURCE = "t", "s"
MOST_VALUES = 64
"""For a column with more values in a flush, only their range is compared."""


@dataclass(frozen=True)
class KeyRange:
    """The values of a flush in one key column.

    Attributes:
        column: Name in the table.
        first: Least value; None if there is none, or it cannot be written as SQL.
        last: Greatest value, like `first`.
        nulls: Whether any value is null.
        values: All values but null, if there are only a few.
    """

    column: str
    first: Any = None
    last: Any = None
    nulls: bool = True
    values: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class MergePlan:
    """The plan of a MERGE.

    Attributes:
        keys: Key columns of the table, with the values of the flush.
        insert: All columns to insert.
        update: The columns to update.
        deleted: Column that marks rows to delete if it is not null, or None.
    """

    keys: Sequence[KeyRange]
    insert: Sequence[str]
    update: Sequence[str]
    deleted: str | None = None


def merge_sql(plan: MergePlan, table: str, view: str) -> str:
    """Return the MERGE statement.

    Args:
        plan: The plan.
        table: Target, quoted.
        view: Source, quoted; one row for each key, with the table's column names.
    """
    lines = [f"MERGE INTO {table} AS {TARGET} USING {view} AS {SOURCE}", f"ON {condition(plan)}"]
    gone = None if plan.deleted is None else f"{SOURCE}.{quoted(plan.deleted)}"
    if gone is not None:
        lines.append(f"WHEN MATCHED AND {gone} IS NOT NULL THEN DELETE")
    if plan.update:
        pairs = ", ".join(f"{quoted(name)} = {SOURCE}.{quoted(name)}" for name in plan.update)
        lines.append(f"WHEN MATCHED THEN UPDATE SET {pairs}")
    names = ", ".join(map(quoted, plan.insert))
    values = ", ".join(f"{SOURCE}.{quoted(name)}" for name in plan.insert)
    only = "" if gone is None else f" AND {gone} IS NULL"
    lines.append(f"WHEN NOT MATCHED{only} THEN INSERT ({names}) VALUES ({values})")  # noqa: S608
    return "\n".join(lines)


def condition(plan: MergePlan) -> str:
    """Return the MERGE condition: equal keys, and the range of keys in the flush.

    The range depends only on the table, so that files without such rows are not read.
    """
    same = [_same(key) for key in plan.keys]
    near = [text for key in plan.keys if (text := _near(key))]
    return " AND ".join([*same, *near])


def activate_sql(table: str, version: str, deleted: str, below: int, at: float | None) -> str:
    """Return the statement that removes or marks rows of older versions.

    Args:
        table: Quoted.
        version: Column with the version of rows.
        deleted: Column that marks rows as deleted.
        below: Change rows with a lower version.
        at: Time for the mark, seconds since the epoch; None to delete the rows.
    """
    old = f"{quoted(version)} < {below}"
    if at is None:
        return f"DELETE FROM {table} WHERE {old}"  # noqa: S608
    mark = quoted(deleted)
    change = f"{mark} = timestamp_micros({round(at * 1e6)})"
    return f"UPDATE {table} SET {change} WHERE {old} AND {mark} IS NULL"  # noqa: S608


def quoted(*names: str) -> str:
    """Return a quoted name of one or more parts."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)


def text_literal(text: str) -> str:
    """Return a text as an SQL literal, with any content."""
    return "'" + "".join(map(_escaped, text)) + "'"


def literal(value: Any) -> str | None:
    """Return a key value as an SQL literal; None if it cannot be written exactly and shortly."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return (
            f"CAST({text_literal(str(value))} AS BIGINT)" if abs(value) >= 1 << 31 else str(value)
        )
    if isinstance(value, decimal.Decimal):
        return f"{value:f}BD" if value.is_finite() else None
    if isinstance(value, str):
        return text_literal(value) if len(value) <= _LONGEST else None
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP'{value.isoformat(' ')}'" if value.tzinfo is not None else None
    return f"DATE'{value.isoformat()}'" if isinstance(value, dt.date) else None


_LONGEST = 500
_PLAIN_END = 127


def _same(key: KeyRange) -> str:
    name = quoted(key.column)
    equal = "<=>" if key.nulls else "="
    return f"{TARGET}.{name} {equal} {SOURCE}.{name}"


def _near(key: KeyRange) -> str:
    name = f"{TARGET}.{quoted(key.column)}"
    found = _few(key, name) or _between(key, name)
    if not found:
        return ""
    return f"({found} OR {name} IS NULL)" if key.nulls else found


def _few(key: KeyRange, name: str) -> str:
    if not key.values or len(key.values) > MOST_VALUES:
        return ""
    texts = [text for value in key.values if (text := literal(value))]
    return f"{name} IN ({', '.join(texts)})" if len(texts) == len(key.values) else ""


def _between(key: KeyRange, name: str) -> str:
    first, last = literal(key.first), literal(key.last)
    return f"{name} BETWEEN {first} AND {last}" if first and last else ""


def _escaped(char: str) -> str:
    """Return an escaped character; also `$`, as Spark replaces `${…}` anywhere in a statement."""
    if char in "\\'":
        return f"\\{char}"
    if char == "$" or not " " <= char <= chr(_PLAIN_END):
        data = char.encode("utf-16-be", "surrogatepass")
        units = (data[n : n + 2].hex() for n in range(0, len(data), 2))
        return "".join(f"\\u{unit}" for unit in units)
    return char
