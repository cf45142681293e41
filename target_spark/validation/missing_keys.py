"""Records without a value for a key property, found by the nulls of columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shared.types.schema_nodes import JsonText, is_free_form, schema_columns


@dataclass(frozen=True)
class Key:
    """A key property.

    Attributes:
        name: Its name.
        path: The property of the records that holds it, and the fields that lead into it.
    """

    name: str
    path: tuple[str, ...]


def missing_key_reason(name: str) -> str:
    """Return the reason why a record is rejected."""
    return f"key property {name!r} is null or missing"


class KeyCheck:
    """Finds the records in which a key property has no value.

    A key that the schema does not name is not a column, and is looked up in each record.

    Args:
        schema: The stream's JSON Schema.
        keys: The key properties.
    """

    def __init__(self, schema: Mapping[str, Any], keys: Sequence[Key]) -> None:
        names = () if is_free_form(schema) else schema_columns(schema, JsonText()).names
        self._columns = [key for key in keys if key.path[0] in names]
        self._others = [key for key in keys if key.path[0] not in names]

    def rejected(
        self, table: pa.Table, record: Callable[[int], Mapping[str, Any]]
    ) -> dict[int, str]:
        """Return the rows without a key, in order, each with the reason.

        Args:
            table: Records that have been accepted so far.
            record: Returns one of them, decoded, by its row.
        """
        found: dict[int, str] = {}
        for key in self._columns:
            column = column_at(table, key.path)
            if column.null_count:
                for row in pc.indices_nonzero(column.is_null()).to_pylist():
                    found.setdefault(row, missing_key_reason(key.name))
        for row in range(table.num_rows if self._others else 0):
            values = record(row)
            for key in self._others:
                if values.get(key.name) is None:
                    found.setdefault(row, missing_key_reason(key.name))
        return dict(sorted(found.items()))


def column_at(table: pa.Table, path: Sequence[str]) -> pa.ChunkedArray:
    """Return a column of a table, or the field of it that a path leads to."""
    column = table.column(path[0])
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column
