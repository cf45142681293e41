"""Rejects of what a reader has accepted: records that do not fit their schema, or lack a key.

A null of Parquet, Avro, ORC and CSV files represents null or a missing property, depending on the
schema. Text in a column for any JSON likewise represents the value that it has as JSON, or itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property, lru_cache
from heapq import merge
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from shared.formats.json_text import Number
from shared.formats.row_values import as_json_value, plain_rows
from shared.formats.schema_nodes import JsonText, is_free_form, resolved_node, schema_columns
from shared.formats.spark_types import T
from target_spark.validation import judge
from target_spark.validation.judge import ExactNumber
from target_spark.validation.screen import Asked, Facts
from target_spark.validation.validator import RecordValidator

if TYPE_CHECKING:
    from shared.formats.fast_json import LinesRead
    from shared.formats.typed_rows import RowsRead

    Read = TypeVar("Read", LinesRead, RowsRead)

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WORDS = (b'NaN"', b'Infinity"')
_MONTHS = 12
_SCHEMAS = 16
"""Schemas whose checks a process keeps: a worker gets many tasks of few streams."""

Shape = Callable[[Any, Any], Any]
"""Converts a stored value that is not null, and the file's value for it, to JSON."""


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

    def check(self, read: LinesRead, data: bytes) -> LinesRead:
        """Return the accepted records, with the rejected ones added to the rejects.

        Args:
            read: The result of the reader.
            data: The input of the reader.
        """
        if self._validator.idle or not read.table.num_rows:
            return read
        positions = _LinePositions(read, data)
        facts = Facts(data, unexpected=read.unexpected, asked=self._asked, kinds=read.kinds)
        rejected = self._validator.rejected(read.table, facts, self._records(positions))
        return _without(read, rejected, positions.line)

    def _records(self, positions: _LinePositions) -> Callable[[int], Any]:
        validator, envelope = self._validator, self._envelope

        def record(row: int) -> Any:
            line = positions.text(row)
            result = validator.decoded(line)
            result = result["record"] if envelope else result
            return validator.with_numbers(result) if any(w in line for w in _WORDS) else result

        return record


def lines_with_keys(read: LinesRead, data: bytes, keys: KeyCheck, *, envelope: bool) -> LinesRead:
    """Return the accepted records that have a value for each key; see `LineChecker.check`."""
    positions = _LinePositions(read, data)

    def record(row: int) -> Any:
        line = judge.decoded(positions.text(row), exact=False)
        return line["record"] if envelope else line

    return _without(read, keys.rejected(read.table, record), positions.line)


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


class RowChecker:
    """Rejects the rows of files that do not fit their schema.

    Args:
        schema: The stream's JSON Schema.
        names: Columns that a file may have besides those of the schema, and that are ignored.
    """

    def __init__(self, schema: Mapping[str, Any], names: frozenset[str] = frozenset()) -> None:
        self._validator = RecordValidator(schema, files=True)
        self._free_form = is_free_form(schema)
        self._names = names

    @cached_property
    def _shape(self) -> Shape:
        """Return what makes a record of a row; only suspected rows need it."""
        schema = self._validator.schema
        return _Shapes(schema).of(schema, self._validator.struct)

    def check(self, read: RowsRead, source: pa.Table) -> RowsRead:
        """Return the accepted rows, with the rejected ones added to the rejects.

        Args:
            read: The result of the reader.
            source: The input of the reader.
        """
        rows, absent = read.table.num_rows, self._absent(source)
        if not rows or (self._validator.idle and not absent):
            return read
        facts = Facts(None, unexpected=_has_more(source.schema, self._validator.struct))
        positions = _RowPositions(read)

        def record(row: int) -> Any:
            stored = read.table.slice(row, 1)
            return self._record(stored, source.slice(positions.of(row), 1), absent)

        rejected = self._validator.rejected(read.table, facts, record, absent)
        return _without(read, rejected, positions.of)

    def _absent(self, source: pa.Table) -> frozenset[str]:
        """Return the properties without a column in the file, which a record then lacks."""
        if self._free_form:
            return frozenset()
        return frozenset(self._validator.struct.names) - set(source.column_names)

    def _record(self, stored: pa.Table, source: pa.Table, absent: frozenset[str]) -> Any:
        """Return the record that a row represents, from tables of that row alone."""
        if self._free_form:
            return self._validator.decoded(stored.column(0)[0].as_py().encode())
        values = {k: v for k, v in plain_rows(stored)[0].items() if k not in absent}
        raw = {k: v for k, v in plain_rows(source)[0].items() if k not in self._names}
        return self._shape(values, raw)


def rows_with_keys(read: RowsRead, source: pa.Table, keys: KeyCheck) -> RowsRead:
    """Return the accepted rows that have a value for each key; see `RowChecker.check`."""
    positions = _RowPositions(read)

    def record(row: int) -> Mapping[str, Any]:
        return plain_rows(source.slice(positions.of(row), 1))[0]

    return _without(read, keys.rejected(read.table, record), positions.of)


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


class _Shapes:
    """Makes the functions that convert stored values back to JSON."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._validator = judge.validator_of(schema)

    def of(self, node: Any, data_type: T.DataType) -> Shape:
        """Return the function for a node and the type of its column."""
        plain = resolved_node(self._schema, node) if isinstance(node, Mapping) else {}
        if isinstance(data_type, T.StructType):
            return self._struct(node, plain, data_type)
        if isinstance(data_type, T.ArrayType):
            below = self.of(plain.get("items"), data_type.elementType)
            return lambda value, raw: [
                None if item is None else below(item, _at(raw, place))
                for place, item in enumerate(value)
            ]
        if isinstance(data_type, T.MapType):
            below = self.of(plain.get("additionalProperties"), data_type.valueType)
            return lambda value, _: {
                _plain_key(key): None if part is None else below(part, None)
                for key, part in dict(value).items()
            }
        if isinstance(data_type, JsonText | T.VariantType):
            return self._any(node, isinstance(data_type, JsonText))
        words = plain.get("type") or ()
        return _scalar(data_type, "string" in words)

    def _struct(self, node: Any, plain: Mapping[str, Any], data_type: T.StructType) -> Shape:
        nodes = plain.get("properties") or {}
        below = {f.name: self.of(nodes.get(f.name), f.dataType) for f in data_type}
        nulls = {name for name in below if self._takes_null(nodes.get(name, True))}
        validator = self._validator.evolve(schema=True if node is None else node)

        def struct(value: Any, raw: Any) -> Any:
            raw = _object(raw)
            results = {
                name: None if part is None else below[name](part, raw.get(name))
                for name, part in value.items()
                if part is not None or name in nulls
            }
            results |= {k: _json(v) for k, v in raw.items() if k not in below and v is not None}
            less = {key: part for key, part in results.items() if part is not None}
            if len(less) < len(results) and not judge.is_valid(validator, results):
                return less if judge.is_valid(validator, less) else results
            return results

        return struct

    def _takes_null(self, node: Any) -> bool:
        return judge.is_valid(self._validator.evolve(schema=node), None)

    def _any(self, node: Any, may_be_text: bool) -> Shape:
        validator = self._validator.evolve(schema=True if node is None else node)

        def value_of(value: Any, _: Any) -> Any:
            try:
                result = json.loads(value, parse_float=ExactNumber)
            except (ValueError, RecursionError):
                return value
            return value if may_be_text and not judge.is_valid(validator, result) else result

        return value_of


def _scalar(data_type: T.DataType, is_text: bool) -> Shape:
    if isinstance(data_type, T.DecimalType):
        if is_text:
            return lambda value, _: str(value)
        return (lambda value, _: ExactNumber(str(value))) if data_type.scale else _int
    for kinds, shape in _SCALARS.items():
        if isinstance(data_type, kinds):
            return shape
    return lambda value, _: as_json_value(value)


def _int(value: Any, _: Any) -> int:
    return int(value)


def _shortest(value: float) -> float:
    """Return the number with the fewest digits that is equal in single precision."""
    tried = (float(f"{value:.{digits}g}") for digits in (6, 7, 8))
    return next((one for one in tried if pa.scalar(one, pa.float32()).as_py() == value), value)


def _year_month(months: int) -> str:
    years, rest = divmod(abs(months), _MONTHS)
    return f"{'-' if months < 0 else ''}P{years}Y{rest}M"


_SCALARS: Mapping[tuple[type[T.DataType], ...], Shape] = {
    (T.FloatType,): lambda value, _: _shortest(value),
    (T.NumericType, T.BooleanType, T.NullType): lambda value, _: value,
    (T.DayTimeIntervalType,): lambda value, _: as_json_value(timedelta(microseconds=value)),
    (T.YearMonthIntervalType,): lambda value, _: _year_month(value),
}


def _json(value: Any) -> Any:
    return _numbers(as_json_value(value))


def _numbers(value: Any) -> Any:
    """Return JSON of the readers, whose numbers are text, as values for the library."""
    if isinstance(value, Number):
        return json.loads(value, parse_float=ExactNumber)
    if isinstance(value, dict):
        return {key: _numbers(part) for key, part in value.items()}
    return [_numbers(item) for item in value] if isinstance(value, list) else value


def _plain_key(key: Any) -> str:
    result = as_json_value(key)
    return str(result).lower() if isinstance(result, bool) else str(result)


def _object(raw: Any) -> Mapping[str, Any]:
    """Return the object in a file: a struct, or the JSON text of a CSV file."""
    if isinstance(raw, str):
        try:
            raw = json.loads(raw, parse_float=ExactNumber)
        except (ValueError, RecursionError):
            return {}
    return raw if isinstance(raw, Mapping) else {}


def _at(raw: Any, place: int) -> Any:
    if isinstance(raw, str):
        try:
            raw = json.loads(raw, parse_float=ExactNumber)
        except (ValueError, RecursionError):
            return None
    return raw[place] if isinstance(raw, list) and place < len(raw) else None
