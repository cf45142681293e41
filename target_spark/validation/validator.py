"""Screen and judge combined: which records of a stream do not fit its schema, and why."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shared.formats.json_text import Number
from shared.formats.schema_nodes import (
    JsonText,
    is_free_form,
    json_schema_to_spark,
    resolved_node,
    type_words,
)
from shared.formats.spark_types import T
from shared.formats.typed_rows import as_json_value
from shared.maps.record_metadata import COLUMNS
from target_spark.validation import judge
from target_spark.validation.judge import ExactNumber
from target_spark.validation.screen import (
    Asked,
    Check,
    Facts,
    Screen,
    UnscreenedKeyword,
    suspects,
)

Shape = Callable[[Any, Any], Any]
"""Converts a stored value that is not null, and the file's value for it, to JSON."""

_MONTHS = 12
_AT_THE_ROOT = frozenset({"type", "properties", "required", "additionalProperties"})
_BESIDE_PROPERTIES = frozenset(
    {"minProperties", "maxProperties", "propertyNames", "patternProperties", "dependentRequired",
     "dependentSchemas", "anyOf", "oneOf", "not", "if"}
)  # fmt: skip
"""Keywords of the whole record that mean the same without `properties`."""
_KINDS: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


@dataclass(frozen=True)
class _Property:
    """The validation of one property of the record.

    Attributes:
        takes: Whether the library accepts a value for it.
        checks: Checks of its column's values.
        nulls: Check of the nulls in the column.
        keyword: A keyword without a check, so that every record's value is judged.
    """

    name: str
    required: bool
    takes: Callable[[Any], bool]
    checks: Sequence[Check] = ()
    nulls: Check | None = None
    keyword: str | None = None

    def fits(self, record: Mapping[str, Any]) -> bool:
        return self.takes(record[self.name]) if self.name in record else not self.required


@dataclass
class _Plan:
    """The validation of records.

    Attributes:
        checked: Properties with checks.
        judged: Properties that are judged in every record.
        beside: Keywords of the record itself that are judged in every record.
        whole: Keywords for which every record is judged as a whole.
    """

    checked: list[_Property] = field(default_factory=list)
    judged: list[_Property] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)
    whole: list[str] = field(default_factory=list)

    @property
    def everywhere(self) -> bool:
        """Return whether the library must check every record."""
        return bool(self.judged or self.beside or self.whole)


class RecordValidator:
    """Finds the records that the library rejects.

    Args:
        schema: The stream's JSON Schema, which must be valid.
        files: For rows of files with typed columns; otherwise of JSON lines.

    Attributes:
        struct: The columns of the tables, as the readers make them.
        idle: The checks of the readers are sufficient.
        closed: The reader must report whether there are properties that the schema does not name.
        exact: Fractions must be decoded with their digits.
    """

    def __init__(self, schema: Mapping[str, Any], *, files: bool = False) -> None:
        self.schema = schema
        self._asked: Asked = {}
        self.struct = json_schema_to_spark(schema, JsonText())
        self.exact = _mentions(schema, "multipleOf")
        self._numbers = _numbers(self.struct)
        self._validator = judge.validator_of(schema)
        self._screen = Screen(self._validator, files=files)
        self._names = frozenset(schema.get("properties") or ())
        self._is_open = schema.get("additionalProperties", True) in ({}, True)
        self._plan = self._new_plan(is_free_form(schema))
        rest = {key: value for key, value in schema.items() if key != "properties"}
        rest = {**rest, "additionalProperties": True, "required": []}
        self._beside = self._validator.evolve(schema=rest)
        self.closed = self._screen.closed or not self._is_open
        self.idle = not (self._plan.checked or self._plan.everywhere or self.closed)

    def facts(
        self,
        data: bytes | None,
        *,
        unexpected: bool,
        kinds: frozenset[tuple[str, str]] | None = None,
    ) -> Facts:
        """Return the facts about a block for this schema; see `Facts`."""
        return Facts(data, unexpected=unexpected, asked=self._asked, kinds=kinds)

    def shape(self) -> Shape:
        """Return what makes a record of a stored row."""
        shapes = Shapes(self.schema, self._validator)
        if is_free_form(self.schema):
            return shapes.of_json(self.schema, False)
        return shapes.of(self.schema, self.struct)

    def slow_keywords(self) -> tuple[str, ...]:
        """Return the keywords for which the library checks every record, with the property."""
        return tuple(
            [f"'{keyword}'" for keyword in (*self._plan.whole, *self._plan.beside)]
            + [f"'{p.keyword}' (property '{p.name}')" for p in self._plan.judged]
        )

    def rejected(
        self,
        table: pa.Table,
        facts: Facts,
        record: Callable[[int], Any],
        absent: frozenset[str] = frozenset(),
    ) -> dict[int, str]:
        """Return the rows of records that do not fit the schema, in order, with the reasons.

        Args:
            record: Returns one of them, decoded, by its row.
            absent: Properties that all records lack.
        """
        rows = self._suspects(table, facts, absent)
        unexpected = not self._is_open and facts.unexpected
        everywhere = self._plan.everywhere or unexpected
        results = {}
        for row in range(table.num_rows) if everywhere else sorted(rows):
            try:
                why = self._verdict(record(row), rows.get(row, []), unexpected)
            except RecursionError:
                why = judge.TOO_DEEP
            if why is not None:
                results[row] = why
        return results

    def decoded(self, line: bytes) -> Any:
        """Return a line decoded for the library."""
        return judge.decoded_record(line, exact=self.exact)

    def with_numbers(self, record: Any) -> Any:
        """Return a record with the words for NaN and infinities as numbers."""
        return judge.with_non_finite(record, self._numbers)

    def _suspects(
        self, table: pa.Table, facts: Facts, absent: frozenset[str]
    ) -> dict[int, list[_Property]]:
        results: dict[int, list[_Property]] = {}
        for one in self._plan.checked:
            rows = _rows(table, one, facts)
            if one.name in absent and one.required:
                rows = range(table.num_rows)
            for row in rows:
                results.setdefault(row, []).append(one)
        return results

    def _verdict(self, record: Any, suspected: Sequence[_Property], unexpected: bool) -> str | None:
        record = self._own(record)
        if not self._plan.whole:
            fits = all(one.fits(record) for one in (*suspected, *self._plan.judged))
            fits = fits and not (unexpected and record.keys() - self._names)
            if fits and (not self._plan.beside or judge.is_valid(self._beside, record)):
                return None
        return judge.reason(self._validator, record)

    def _own(self, record: Any) -> Any:
        """Return the record without the reserved columns that the schema does not name."""
        if not isinstance(record, dict) or not (record.keys() & COLUMNS) - self._names:
            return record
        return {k: v for k, v in record.items() if k in self._names or k not in COLUMNS}

    def _new_plan(self, free_form: bool) -> _Plan:
        schema, plan = self.schema, _Plan()
        asserted = self._screen.asserts(schema)
        existing = {"type"} if free_form else _AT_THE_ROOT
        refuses = "type" in schema and "object" not in type_words(schema)
        more = [
            key for key in asserted
            if (key not in existing and not (key == "properties" and not schema[key]))
            or (key == "type" and refuses)
        ]  # fmt: skip
        if free_form or not _BESIDE_PROPERTIES.issuperset(more):
            plan.whole = more
            return plan
        plan.beside = more
        required = frozenset(schema.get("required") or ())
        for name, node in (schema.get("properties") or {}).items():
            self._add(plan, name, node, name in required)
        plan.judged += [
            _Property(name, True, lambda _: True, keyword="required")
            for name in sorted(required - self._names)
        ]
        return plan

    def _add(self, plan: _Plan, name: str, node: Any, required: bool) -> None:
        takes = _test(node, self._validator.evolve(schema=node), self._screen)
        data_type = self.struct[name].dataType
        try:
            checks = self._screen.property_checks(name, node, data_type)
        except UnscreenedKeyword as unknown:
            keyword = unknown.keyword
            plan.judged.append(_Property(name, required, takes, keyword=keyword))
            return
        nulls = self._screen.null_checks(name, node, required)
        if checks or nulls or required:
            plan.checked.append(_Property(name, required, takes, checks, nulls))


def _rows(table: pa.Table, one: _Property, facts: Facts) -> Sequence[int]:
    """Return the rows of a column that a check suspects."""
    results: list[int] = []
    first = 0
    for chunk in table.column(one.name).chunks:
        mask = suspects(chunk, one.checks, one.nulls, facts)
        if mask is not None and mask.true_count:
            results += [first + place.as_py() for place in pc.indices_nonzero(mask)]
        first += len(chunk)
    return results


def _test(node: Any, validator: Any, screen: Screen) -> Callable[[Any], bool]:
    """Return a test of a property's value; faster than the library if only types count."""
    if isinstance(node, Mapping) and screen.asserts(node) == ["type"]:
        words = type_words(node)
        kinds = tuple(kind for word in words & set(_KINDS) for kind in _KINDS[word])
        whole, boolean = "integer" in words, "boolean" in words

        def of_type(value: Any) -> bool:
            if isinstance(value, bool):
                return boolean
            if whole and isinstance(value, int | float):
                return isinstance(value, int) or value.is_integer() or "number" in words
            return isinstance(value, kinds)

        return of_type
    return lambda value: judge.is_valid(validator, value)


def _mentions(node: Any, keyword: str) -> bool:
    if isinstance(node, Mapping):
        return keyword in node or any(_mentions(part, keyword) for part in node.values())
    return isinstance(node, list) and any(_mentions(part, keyword) for part in node)


def _numbers(data_type: T.DataType) -> Any:
    """Return the paths of floating numbers for `library.with_non_finite`."""
    if isinstance(data_type, T.StructType):
        return {f.name: below for f in data_type if (below := _numbers(f.dataType)) is not None}
    if isinstance(data_type, T.ArrayType):
        below = _numbers(data_type.elementType)
        return None if below is None else [below]
    return True if isinstance(data_type, T.FloatType | T.DoubleType) else None


@dataclass(eq=False)
class Shapes:
    """Makes the functions that convert stored values back to JSON."""

    schema: Mapping[str, Any]
    validator: Any

    def of(self, node: Any, data_type: T.DataType) -> Shape:
        """Return the function for a node and the type of its column."""
        plain = resolved_node(self.schema, node) if isinstance(node, Mapping) else {}
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
            return lambda value, raw: _map(below, value, raw)
        if isinstance(data_type, JsonText | T.VariantType):
            return self.of_json(node, isinstance(data_type, JsonText))
        words = plain.get("type") or ()
        return _scalar(data_type, "string" in words)

    def _struct(self, node: Any, plain: Mapping[str, Any], data_type: T.StructType) -> Shape:
        nodes = plain.get("properties") or {}
        below = {f.name: self.of(nodes.get(f.name), f.dataType) for f in data_type}
        nulls = {name for name in below if judge.takes_null(self.validator, nodes.get(name, True))}
        validator = self.validator.evolve(schema=True if node is None else node)

        def struct(value: Any, raw: Any) -> Any:
            raw = _nested(raw)
            raw = raw if isinstance(raw, Mapping) else {}
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

    def of_json(self, node: Any, may_be_text: bool) -> Shape:
        """Return the function for JSON text, which may also be a text of its own."""
        validator = self.validator.evolve(schema=True if node is None else node)

        def value_of(value: Any, raw: Any) -> Any:
            try:
                result = json.loads(value, parse_float=ExactNumber)
            except (ValueError, RecursionError):
                return value
            if judge.is_valid(validator, result):
                return result
            is_text = type(as_json_value(raw)) is str
            other = value if is_text else _without_nulls(result)
            fits = (may_be_text or not is_text) and judge.is_valid(validator, other)
            return other if fits else result

        return value_of


def _scalar(data_type: T.DataType, is_text: bool) -> Shape:
    if isinstance(data_type, T.DecimalType):
        kind = str if is_text else int
        if data_type.scale and not is_text:
            return lambda value, _: ExactNumber(str(value))
        return lambda value, _: kind(value)
    for kinds, shape in _SCALARS.items():
        if isinstance(data_type, kinds):
            return shape
    return lambda value, _: as_json_value(value)


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
    return _with_exact(as_json_value(value))


def _with_exact(value: Any) -> Any:
    """Return JSON of the readers, whose numbers are text, as values for the library."""
    if isinstance(value, Number):
        return json.loads(value, parse_float=ExactNumber)
    if isinstance(value, dict):
        return {key: _with_exact(part) for key, part in value.items()}
    return [_with_exact(item) for item in value] if isinstance(value, list) else value


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _map(below: Shape, value: Any, raw: Any) -> dict[str, Any]:
    raw = _nested(raw)
    others = {_plain_key(k): v for k, v in raw.items()} if isinstance(raw, Mapping) else {}
    values = {_plain_key(k): v for k, v in dict(value).items()}
    return {k: None if v is None else below(v, others.get(k)) for k, v in values.items()}


def _plain_key(key: Any) -> str:
    result = as_json_value(key)
    return str(result).lower() if isinstance(result, bool) else str(result)


def _nested(raw: Any) -> Any:
    """Return a nested value of a file, which is JSON text in a CSV file."""
    with suppress(ValueError, RecursionError):
        return json.loads(raw, parse_float=ExactNumber) if isinstance(raw, str) else raw
    return None


def _at(raw: Any, place: int) -> Any:
    items = _nested(raw)
    return items[place] if isinstance(items, list) and place < len(items) else None
