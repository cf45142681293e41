"""The SQL text by which rows of a flush change a table. Pure."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

TARGET, SOURCE = "t", "s"
MOST_VALUES = 64
"""A column with more values in a flush is compared with the first and last of them."""


@dataclass(frozen=True)
class KeyRange:
    """What the rows of a flush have in one key column.

    Attributes:
        column: Its name in the table.
        first: Least value; None where there is none, or none that could be written as SQL.
        last: Greatest value, as `first`.
        nulls: Whether any of them is null.
        values: All values but null, where few are known.
    """

    column: str
    first: Any = None
    last: Any = None
    nulls: bool = True
    values: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class MergePlan:
    """What MERGE shall do.

    Attributes:
        keys: Columns of the table that tell rows apart, with what the flush has in them.
        insert: All columns that new rows are given.
        update: Those of them that rows of the table are given.
        deleted: Column that marks rows to be removed where it is not null; None for none.
    """

    keys: Sequence[KeyRange]
    insert: Sequence[str]
    update: Sequence[str]
    deleted: str | None = None


def merge_sql(plan: MergePlan, table: str, view: str) -> str:
    """The MERGE statement.

    Args:
        plan: What it does.
        table: Target, quoted.
        view: Source, quoted; a row for each key, with the table's column names.
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
    """When a row of the table is the row of the flush; then, which rows may be one at all.

    The second half speaks of the table alone, so that files without such rows are not read.
    """
    same = [_same(key) for key in plan.keys]
    near = [text for key in plan.keys if (text := _near(key))]
    return " AND ".join([*same, *near])


def activate_sql(table: str, version: str, deleted: str, below: int, at: float | None) -> str:
    """The statement that removes or marks rows of older versions.

    Args:
        table: Quoted.
        version: Column with the version of rows.
        deleted: Column that marks rows as deleted.
        below: Rows with a lower version are concerned.
        at: Time to mark them with, seconds since the epoch; None to remove them.
    """
    old = f"{quoted(version)} < {below}"
    if at is None:
        return f"DELETE FROM {table} WHERE {old}"  # noqa: S608
    mark = quoted(deleted)
    change = f"{mark} = timestamp_micros({round(at * 1e6)})"
    return f"UPDATE {table} SET {change} WHERE {old} AND {mark} IS NULL"  # noqa: S608


def quoted(*names: str) -> str:
    """A name of one or more parts in SQL text."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)


def text_literal(text: str) -> str:
    """A text in SQL, whatever it holds."""
    return "'" + "".join(map(_escaped, text)) + "'"


def literal(value: Any) -> str | None:
    """A value of a key in SQL; None where it cannot be told exactly in few words."""
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
    """`$` too, since Spark replaces `${…}` anywhere in a statement."""
    if char in "\\'":
        return f"\\{char}"
    if char == "$" or not " " <= char <= chr(_PLAIN_END):
        data = char.encode("utf-16-be", "surrogatepass")
        units = (data[n : n + 2].hex() for n in range(0, len(data), 2))
        return "".join(f"\\u{unit}" for unit in units)
    return char
