"""What a table must hold, as Python dictionaries."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

VERSION, DELETED = "_sdc_table_version", "_sdc_deleted_at"
HIDDEN = (
    "_sdc_extracted_at",
    "_sdc_received_at",
    "_sdc_batched_at",
    "_sdc_sequence",
    "_sdc_sync_started_at",
)
Row = dict[str, Any]


@dataclass
class TableModel:
    """One table; rows of a keyed stream by their key, others by their number.

    A record that comes again after a crash changes nothing, whatever the load method.
    """

    keys: tuple[str, ...]
    hard_delete: bool
    rows: dict[Any, Row] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    exists: bool = False

    def commit(self, columns: Iterable[str], records: Iterable[Row]) -> None:
        """Rows of a flush, with the columns that the stream had then."""
        self.exists = True
        columns = [*columns, VERSION, DELETED]
        for record in records:
            given = {name: record.get(name) for name in columns}
            if self.keys:
                self._upsert(given)
            elif record["n"] not in self.seen:
                self.rows[record["n"]] = given
            self.seen.add(record["n"])

    def activate(self, version: int) -> None:
        for key, row in list(self.rows.items()):
            if row[VERSION] is not None and row[VERSION] < version:
                if self.hard_delete:
                    del self.rows[key]
                else:
                    row[DELETED] = row[DELETED] or "marked"

    def expected(self, *, empty_lists: bool = True) -> Counter[str]:
        return as_texts(self.rows.values(), empty_lists=empty_lists)

    def _upsert(self, given: Row) -> None:
        key = tuple(given[name] for name in self.keys)
        if given[DELETED] is not None and self.hard_delete:
            self.rows.pop(key, None)
        else:
            self.rows.setdefault(key, {}).update(given)


def as_texts(rows: Iterable[Mapping[str, Any]], *, empty_lists: bool = True) -> Counter[str]:
    """Rows in a form in which every reader's are alike: without nulls and times of the run.

    Args:
        rows: As read.
        empty_lists: Whether an empty list is told from null.
    """
    return Counter(_text(row, empty_lists) for row in rows)


def _text(row: Mapping[str, Any], empty_lists: bool) -> str:
    shown = {name: _plain(value) for name, value in row.items() if name not in HIDDEN}
    if shown.get(DELETED) is not None:
        shown[DELETED] = "marked"
    if not empty_lists:
        shown = {name: None if value == [] else value for name, value in shown.items()}
    return json.dumps(_without_nulls(shown), sort_keys=True)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float | Decimal):
        number = Decimal(str(value))
        return f"{number.normalize():f}" if number else "0"
    if isinstance(value, Mapping):
        return _without_nulls({name: _plain(item) for name, item in value.items()})
    if hasattr(value, "asDict"):
        return _plain(value.asDict())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)


def _without_nulls(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}
