"""Validation of JSON lines that a reader has parsed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from heapq import merge
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shared.json.json_lines import LinesRead
from target_spark.validation import judge
from target_spark.validation.block_facts import Asked, Facts
from target_spark.validation.missing_keys import Key, KeyCheck
from target_spark.validation.validator import RecordValidator

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WORDS = (b'NaN"', b'Infinity"')
_SCHEMAS = 16
"""Schemas whose checks a process keeps: a worker gets many tasks of few streams."""


@lru_cache(maxsize=_SCHEMAS)
def _checks_of(schema: str) -> tuple[RecordValidator, Asked]:
    """Return the checks of a schema, and what earlier blocks of any task of this process asked."""
    return RecordValidator(json.loads(schema)), {}


class LineChecker:
    """Rejects the records of JSON lines that do not fit their schema.

    Args:
        schema: The stream's JSON Schema.
        envelope: Lines are RECORD messages; otherwise they are the records themselves.
    """

    def __init__(self, schema: Mapping[str, Any], *, envelope: bool) -> None:
        self._validator, self._asked = _checks_of(json.dumps(schema))
        self._envelope = envelope

    @property
    def closed(self) -> bool:
        """Return whether the reader must report properties that the schema does not name."""
        return self._validator.closed

    def check(self, found: LinesRead, data: bytes) -> LinesRead:
        """Return the accepted records, with the rejected ones added to the rejects.

        Args:
            found: The result of the reader.
            data: The input of the reader.
        """
        if self._validator.idle or not found.table.num_rows:
            return found
        positions = _LinePositions(found, data)
        facts = Facts(data, unexpected=found.unexpected, asked=self._asked)
        rejected = self._validator.rejected(found.table, facts, self._records(positions))
        return _without(found, rejected, positions)

    def _records(self, positions: _LinePositions) -> Callable[[int], Any]:
        validator, envelope = self._validator, self._envelope

        def record(row: int) -> Any:
            line = positions.text(row)
            found = validator.decoded(line)
            found = found["record"] if envelope else found
            return validator.with_numbers(found) if any(w in line for w in _WORDS) else found

        return record


class LineKeys:
    """Rejects the records of JSON lines without a value for a key property.

    Args:
        schema: The stream's JSON Schema.
        keys: The key properties.
        envelope: Lines are RECORD messages; otherwise they are the records themselves.
    """

    def __init__(self, schema: Mapping[str, Any], keys: Sequence[Key], *, envelope: bool) -> None:
        self._check = KeyCheck(schema, keys)
        self._envelope = envelope

    def check(self, found: LinesRead, data: bytes) -> LinesRead:
        """Return the accepted records; see `LineChecker.check`."""
        positions = _LinePositions(found, data)

        def record(row: int) -> Any:
            line = judge.decoded(positions.text(row), exact=False)
            return line["record"] if self._envelope else line

        return _without(found, self._check.rejected(found.table, record), positions)


class _LinePositions:
    """Positions of the accepted records in the data, computed on demand."""

    def __init__(self, found: LinesRead, data: bytes) -> None:
        self._rejected = {place for place, _ in found.rejects}
        self._data = data
        self._lines: list[bytes] = []
        self._accepted: list[int] = []

    def line(self, row: int) -> int:
        """Return the 0-based line of a row."""
        if not self._lines:
            self._lines = self._data.removeprefix(_BYTE_ORDER_MARK).split(b"\n")
            self._accepted = [
                place
                for place, line in enumerate(self._lines)
                if place not in self._rejected and line.strip(b" \t\r\n")
            ]
        return self._accepted[row]

    def text(self, row: int) -> bytes:
        place = self.line(row)
        return self._lines[place]


def _without(found: LinesRead, rejected: Mapping[int, str], positions: _LinePositions) -> LinesRead:
    """Move some rows to the rejects."""
    if not rejected:
        return found
    kept = _all_but(rejected, found.table.num_rows)
    rejects = [(positions.line(row), why) for row, why in rejected.items()]
    return replace(
        found,
        table=found.table.filter(kept),
        extracted_at=_kept(found.extracted_at, kept),
        versions=_kept(found.versions, kept),
        rejects=tuple(merge(found.rejects, rejects)),
    )


def _all_but(rows: Mapping[int, str], count: int) -> pa.Array:
    positions = pa.array(range(count), pa.int64())
    return pc.invert(pc.is_in(positions, pa.array(rows, pa.int64())))


def _kept(column: pa.ChunkedArray | None, kept: pa.Array) -> pa.ChunkedArray | None:
    return None if column is None else column.filter(kept)
