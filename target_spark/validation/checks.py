"""Rejects of what a reader has accepted: records that do not fit their schema, or lack a key.

A null of Parquet, Avro, ORC and CSV files represents null or a missing property, depending on the
schema. Text in a column for any JSON likewise represents the value that it has as JSON, or itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import merge
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from shared.formats.schema_nodes import JsonText, is_free_form, json_schema_to_spark
from shared.formats.spark_types import T
from shared.formats.typed_rows import plain_values
from target_spark.validation.columns import Key, missing_key_reason, record_validator

if TYPE_CHECKING:
    from shared.formats.fast_json import LinesRead
    from shared.formats.typed_rows import RowsRead
    from target_spark.validation.validator import RecordValidator, Shape

    Read = TypeVar("Read", LinesRead, RowsRead)

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WORDS = (b'NaN"', b'Infinity"')


class KeyCheck:
    """Finds the records in which a key property has no value.

    A key that the schema does not name is not a column, and is looked up in each record.
    """

    def __init__(self, schema: Mapping[str, Any], keys: Sequence[Key]) -> None:
        names = () if is_free_form(schema) else json_schema_to_spark(schema, JsonText()).names
        self._columns = [key for key in keys if key.path[0] in names]
        self._others = [key for key in keys if key.path[0] not in names]

    def rejected(
        self, table: pa.Table, record: Callable[[int], Mapping[str, Any]]
    ) -> dict[int, str]:
        """Return the rows without a key, in order, each with the reason."""
        results: dict[int, str] = {}
        for key in self._columns:
            column = column_at(table, key.path)
            if column.null_count:
                for row in pc.indices_nonzero(column.is_null()).to_pylist():
                    results.setdefault(row, missing_key_reason(key.name))
        for row in range(table.num_rows if self._others else 0):
            values = record(row)
            for key in self._others:
                if values.get(key.name) is None:
                    results.setdefault(row, missing_key_reason(key.name))
        return dict(sorted(results.items()))


def column_at(table: pa.Table, path: Sequence[str]) -> pa.ChunkedArray:
    """Return a column of a table, or the field of it that a path leads to."""
    column = table.column(path[0])
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


class LineChecker:
    """Rejects the records of JSON lines that do not fit their schema, or lack a key.

    Args:
        envelope: Lines are RECORD messages; otherwise they are the records themselves.
        strict: Whether records must fit the schema.
    """

    def __init__(
        self,
        schema: Mapping[str, Any],
        keys: Sequence[Key] = (),
        *,
        envelope: bool,
        strict: bool = True,
    ) -> None:
        self._validator = record_validator(json.dumps(schema), False) if strict else None
        self._keys = KeyCheck(schema, keys)
        self._envelope = envelope

    @property
    def closed(self) -> bool:
        """Return whether the reader must report properties that the schema does not name."""
        return self._validator is not None and self._validator.closed

    def fitting(self, read: LinesRead, data: bytes) -> LinesRead:
        """Return the records that fit, with the others added to the rejects."""
        validator = self._validator
        if validator is None or validator.idle or not read.table.num_rows:
            return read
        positions = _LinePositions(read, data)
        facts = validator.facts(data, unexpected=read.unexpected, kinds=read.kinds)
        rejected = validator.rejected(read.table, facts, self._records(validator, positions))
        return _without(read, rejected, positions.line)

    def with_keys(self, read: LinesRead, data: bytes) -> LinesRead:
        """Return the records that have a value for each key; see `fitting`."""
        positions = _LinePositions(read, data)

        def record(row: int) -> Any:
            line = json.loads(positions.text(row))
            return line["record"] if self._envelope else line

        return _without(read, self._keys.rejected(read.table, record), positions.line)

    def without(self, read: LinesRead, data: bytes, rows: Mapping[int, str]) -> LinesRead:
        """Return the records without some rows, which have a reason each, in order."""
        return _without(read, rows, _LinePositions(read, data).line)

    def without_lines(self, read: LinesRead, data: bytes, other: LinesRead) -> LinesRead:
        """Return the records without the lines that another reading of the data rejects."""
        gone, line = dict(other.rejects), _LinePositions(read, data).line
        if gone.keys() <= {place for place, _ in read.rejects}:
            return read
        rows = range(read.table.num_rows)
        return _without(read, {row: gone[line(row)] for row in rows if line(row) in gone}, line)

    def _records(
        self, validator: RecordValidator, positions: _LinePositions
    ) -> Callable[[int], Any]:
        envelope = self._envelope

        def record(row: int) -> Any:
            line = positions.text(row)
            result = validator.decoded(line)
            result = result["record"] if envelope else result
            return validator.with_numbers(result) if any(w in line for w in _WORDS) else result

        return record


@dataclass(eq=False)
class _LinePositions:
    """Positions of the accepted records in the data, computed on demand."""

    read: LinesRead
    data: bytes

    @cached_property
    def _lines(self) -> list[bytes]:
        return self.data.removeprefix(_BYTE_ORDER_MARK).split(b"\n")

    @cached_property
    def _accepted(self) -> list[int]:
        rejected = {place for place, _ in self.read.rejects}
        return [
            place
            for place, line in enumerate(self._lines)
            if place not in rejected and line.strip(b" \t\r\n")
        ]

    def line(self, row: int) -> int:
        """Return the 0-based line of a row."""
        return self._accepted[row]

    def text(self, row: int) -> bytes:
        return self._lines[self.line(row)]


@dataclass(eq=False)
class RowChecker:
    """Rejects the rows of files that do not fit their schema, or lack a key.

    Args:
        names: Columns that a file may have besides those of the schema, and that are ignored.
        strict: Whether rows must fit the schema.
    """

    schema: Mapping[str, Any]
    names: frozenset[str] = frozenset()
    keys: Sequence[Key] = ()
    strict: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        self._keys = KeyCheck(self.schema, self.keys)
        self._free_form = is_free_form(self.schema)

    @cached_property
    def _validator(self) -> RecordValidator:
        return record_validator(json.dumps(self.schema), True)

    @cached_property
    def _shape(self) -> Shape:
        """Return what makes a record of a row; only suspected rows need it."""
        return self._validator.shape()

    def fitting(self, read: RowsRead, source: pa.Table) -> RowsRead:
        """Return the rows that fit, with the others added to the rejects."""
        if not self.strict or not read.table.num_rows:
            return read
        absent = self._absent(source)
        if self._validator.idle and not absent:
            return read
        facts = self._validator.facts(
            None, unexpected=_has_more(source.schema, self._validator.struct)
        )
        positions = _RowPositions(read)

        def record(row: int) -> Any:
            stored = read.table.slice(row, 1)
            return self._record(stored, source.slice(positions.of(row), 1), absent)

        rejected = self._validator.rejected(read.table, facts, record, absent)
        return _without(read, rejected, positions.of)

    def with_keys(self, read: RowsRead, source: pa.Table) -> RowsRead:
        """Return the rows that have a value for each key; see `fitting`."""
        positions = _RowPositions(read)

        def record(row: int) -> Mapping[str, Any]:
            (values,) = plain_values(source.slice(positions.of(row), 1))
            return dict(values)

        return _without(read, self._keys.rejected(read.table, record), positions.of)

    def without(self, read: RowsRead, rows: Mapping[int, str]) -> RowsRead:
        """Return the rows without some, which have a reason each, in order."""
        return _without(read, rows, _RowPositions(read).of)

    def _absent(self, source: pa.Table) -> frozenset[str]:
        """Return the properties without a column in the file, which a record then lacks."""
        if self._free_form:
            return frozenset()
        return frozenset(self._validator.struct.names) - set(source.column_names)

    def _record(self, stored: pa.Table, source: pa.Table, absent: frozenset[str]) -> Any:
        """Return the record that a row represents, from tables of that row alone."""
        raw = {k: v for k, v in plain_values(source)[0].items() if k not in self.names}
        if self._free_form:
            return self._shape(stored.column(0)[0].as_py(), raw)
        values = {k: v for k, v in plain_values(stored)[0].items() if k not in absent}
        return self._shape(values, raw)


@dataclass(eq=False)
class _RowPositions:
    """Original positions of the accepted rows, computed on demand."""

    read: RowsRead

    @cached_property
    def _places(self) -> list[int]:
        gone = {place for place, _ in self.read.rejects}
        return [n for n in range(self.read.table.num_rows + len(gone)) if n not in gone]

    def of(self, row: int) -> int:
        """Return the original position of a row."""
        return self._places[row] if self.read.rejects else row


def _has_more(result: Any, data_type: T.DataType) -> bool:
    """Return whether columns of a file have fields, at any depth, that the stream lacks."""
    if isinstance(data_type, T.StructType):
        if not isinstance(result, pa.Schema) and not pa.types.is_struct(result):
            return True  # the text of a CSV file
        types = {field.name: field.type for field in result}
        existing = {field.name: field.dataType for field in data_type}
        return bool(types.keys() - existing.keys()) or any(
            _has_more(types[name], existing[name]) for name in types
        )
    if isinstance(data_type, T.ArrayType):
        is_list = not isinstance(result, pa.Schema) and (
            pa.types.is_list(result) or pa.types.is_large_list(result)
        )
        return _has_more(result.value_type, data_type.elementType) if is_list else True
    return False


def _without(read: Read, rejected: Mapping[int, str], place: Callable[[int], int]) -> Read:
    """Move some rows to the rejects, by their place in the input."""
    if not rejected:
        return read
    rows = pa.array(range(read.table.num_rows), pa.int64())
    kept = pc.invert(pc.is_in(rows, pa.array(rejected, pa.int64())))
    beside = {name: getattr(read, name, None) for name in ("extracted_at", "versions")}
    return replace(
        read,
        table=read.table.filter(kept),
        rejects=tuple(merge(read.rejects, ((place(row), why) for row, why in rejected.items()))),
        **{name: column.filter(kept) for name, column in beside.items() if column is not None},
    )
