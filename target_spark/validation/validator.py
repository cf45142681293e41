"""Screen and judge combined: which records of a stream do not fit its schema, and why."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812

from shared.errors import MessageError, Where
from shared.formats.schema_nodes import JsonText, is_free_form, schema_columns
from shared.maps.record_metadata import COLUMNS
from target_spark.core.load_plans import StreamSchema
from target_spark.validation import judge
from target_spark.validation.judge import schema_problem
from target_spark.validation.screen import Check, Facts, Screen, UnscreenedKeyword, suspects

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
        name: Its name.
        required: Whether it is required.
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
    """Finds the records that the library rejects. Picklable.

    Args:
        schema: The stream's JSON Schema, which must be valid.
        files: For rows of files with typed columns; otherwise of JSON lines.

    Attributes:
        schema: As given.
        struct: The columns of the tables, as the readers make them.
        idle: The checks of the readers are sufficient.
        closed: The reader must report whether there are properties that the schema does not name.
        exact: Fractions must be decoded with their digits.
    """

    def __init__(self, schema: Mapping[str, Any], *, files: bool = False) -> None:
        self.schema = schema
        self._files = files
        self.struct = schema_columns(schema, JsonText())
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
        self.idle = not (self._plan.checked or self._plan.judged or self._plan.whole or self.closed)

    def __reduce__(self) -> tuple[Any, ...]:
        return _validator, (self.schema, self._files)

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
        """Return the records that do not fit the schema.

        Args:
            table: The records that the reader has accepted.
            facts: Facts about the data that they come from.
            record: Returns one of them, decoded, by its row.
            absent: Properties that all records lack.

        Returns:
            Rows, in order, each with the reason.
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

    def suspects(self, table: pa.Table, facts: Facts | None = None) -> Sequence[int]:
        """Return the rows that the screen suspects."""
        return sorted(self._suspects(table, facts or Facts(None), frozenset()))

    def reason(self, record: object) -> str | None:
        """Return why the library rejects a record, with the path; None if it accepts it."""
        return judge.reason(self._validator, self._own(record))

    def decoded(self, line: bytes) -> Any:
        """Return a line decoded for the library."""
        return judge.decoded(line, exact=self.exact)

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
        words = schema.get("type", "object")
        refuses = "object" not in ([words] if isinstance(words, str) else words)
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
            _Property(name, True, _anything, keyword="required")
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


def _validator(schema: Mapping[str, Any], files: bool) -> RecordValidator:
    return RecordValidator(schema, files=files)


def _anything(_: Any) -> bool:
    return True


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
        words = node["type"]
        words = {words} if isinstance(words, str) else set(words)
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


_log = logging.getLogger(__name__)


def checked(plan: Callable[[StreamSchema], bool]) -> Callable[[StreamSchema], bool]:
    """Return the plan for streams with a check of the schema before it.

    Raises (from the function):
        MessageError: The schema is not valid by the metaschema of the draft.
    """

    def check(stream: StreamSchema) -> bool:
        problem = schema_problem(stream.schema)
        if problem is not None:
            raise MessageError(
                f"the SCHEMA is not a valid JSON Schema (draft 2020-12): {problem}",
                where=Where(stream=stream.stream),
                hint="records cannot be validated; fix the tap, or set `validate_records: false`",
            )
        return plan(stream)

    return check


@dataclass(eq=False)
class SlowKeywords:
    """Logs once for each schema of a stream why the library checks every record."""

    _logged: dict[str, tuple[Any, tuple[str, ...]]] = field(default_factory=dict, init=False)

    def log(self, stream: str, schema: Mapping[str, Any], *, files: bool) -> None:
        """Log the slow keywords of a stream's schema if they are new.

        Args:
            stream: Name of the stream.
            schema: The schema for its records.
            files: For rows of files with typed columns.
        """
        last, logged = self._logged.get(stream, (None, ()))
        if last == (schema, files):
            return
        words = RecordValidator(schema, files=files).slow_keywords()
        if words and logged != words:
            _log.info(
                "stream '%s': every record is validated by the jsonschema library, which is slow, "
                "because of %s",
                stream,
                ", ".join(words),
            )
        self._logged[stream] = (schema, files), words
