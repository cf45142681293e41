"""What a table must hold, as Python dictionaries."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any

from model_source import CHANGING, DELETED, NUMBER, VERSION

HIDDEN = (
    "_sdc_extracted_at",
    "_sdc_received_at",
    "_sdc_batched_at",
    "_sdc_sequence",
    "_sdc_sync_started_at",
)
KINDS: dict[str, Any] = {
    "integer": int,
    "double": (float, Decimal, int),
    "string": str,
    "boolean": bool,
    "date": (str, date),
    "struct": Mapping,
    "variant": Mapping,
}
"""What a column with such a suffix holds."""
Row = dict[str, Any]


@dataclass
class TableModel:
    """One table; rows of a keyed stream by their key, others by their number.

    A record that is replayed after a crash does not change anything, by any load method.

    Attributes:
        keys: Of the stream.
        hard_delete: The setting.
        is_replaced: The load method is `overwrite`: a run's rows are seen at its end.
        rows: What readers see.
        seen: Numbers of records that have been loaded.
        held: Rows of this run that are not seen yet.
    """

    keys: tuple[str, ...]
    hard_delete: bool
    is_replaced: bool = False
    rows: dict[Any, Row] = field(default_factory=dict)
    seen: set[Any] = field(default_factory=set)
    held: list[Row] = field(default_factory=list)

    def commit(self, columns: Iterable[str], records: Iterable[Row]) -> None:
        """Commit rows of a flush, with the columns that the stream had then."""
        columns = [*columns, VERSION, DELETED]
        rows = [{name: record.get(name) for name in columns} for record in records]
        if self.is_replaced:
            self.held += rows
            return
        for row in rows:
            if self.keys:
                self._upsert(row)
            elif row[NUMBER] not in self.seen:
                self.rows[row[NUMBER]] = row
            self.seen.add(row[NUMBER])

    def finish(self) -> None:
        """Make the rows of a run that ended well visible."""
        if self.is_replaced:
            newest = {self._key(row): row for row in self.held}
            self.rows = {
                key: row
                for key, row in newest.items()
                if not (self.keys and self.hard_delete and row[DELETED] is not None)
            }

    def forget(self) -> None:
        """Forget the rows that an ended run has not made visible."""
        self.held.clear()

    def activate(self, version: int) -> None:
        if self.is_replaced:
            self.held = [
                row for row in self.held if row[VERSION] is None or row[VERSION] >= version
            ]
            return
        for key, row in list(self.rows.items()):
            if row[VERSION] is not None and row[VERSION] < version:
                if self.hard_delete:
                    del self.rows[key]
                else:
                    row[DELETED] = row[DELETED] or "marked"

    def _upsert(self, row: Row) -> None:
        key = self._key(row)
        if row[DELETED] is not None and self.hard_delete:
            self.rows.pop(key, None)
        else:
            self.rows.setdefault(key, {}).update(row)

    def _key(self, row: Row) -> Any:
        return tuple(row[name] for name in self.keys) if self.keys else row[NUMBER]


def as_texts(
    rows: Iterable[Mapping[str, Any]], *, empty_lists: bool = True, cast: bool = False
) -> Counter[str]:
    """Return rows in a form that is equal for all readers: without nulls and times of the run.

    Args:
        rows: As read.
        empty_lists: Whether an empty list differs from null.
        cast: Whether values of the column that changes its type may have become text.
    """
    return Counter(_text(row, empty_lists, cast) for row in rows)


def _text(row: Mapping[str, Any], empty_lists: bool, cast: bool) -> str:
    shown = {name: _plain(value) for name, value in row.items() if name not in HIDDEN}
    if shown.get(DELETED) is not None:
        shown[DELETED] = "marked"
    if not empty_lists:
        shown = {name: None if value == [] else value for name, value in shown.items()}
    for name in [name for name in shown if name.startswith(f"{CHANGING}__")]:
        value = shown.pop(name)
        if value is not None:
            assert isinstance(row[name], KINDS[name.partition("__")[2]]), row
            assert shown.get(CHANGING) is None, row
            shown[CHANGING] = value
    if cast:
        shown[CHANGING] = _of_text(shown.get(CHANGING))
    return json.dumps(_without_nulls(shown), sort_keys=True)


def _of_text(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return _plain(json.loads(value, parse_float=Decimal))
    except ValueError:
        return value


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
