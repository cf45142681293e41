"""What a schema of plain types leaves to check: the nulls of columns, without jsonschema.

The reader makes sure that a column holds values of its JSON type. If each property declares no more
than one type, and whether it may be null, the nulls of the columns tell the rest.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from shared.errors import MessageError, Where
from target_spark.core.load_plans import LoadPlan, StreamSchema
from target_spark.validation.judge import schema_problem

if TYPE_CHECKING:
    import pyarrow as pa

    from target_spark.validation.validator import RecordValidator

_log = logging.getLogger(__name__)
_SAYS_NOTHING = frozenset(
    {"description", "title", "examples", "default", "additionalProperties", "$schema", "$id",
     "$comment", "$defs"}
)  # fmt: skip
_TYPES_ONLY = frozenset({"type", "properties", "required"})
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_OF_RECORDS: Mapping[str, Sequence[object]] = {
    "$schema": (_DRAFT,),
    "type": ("object", ["object"], ["null", "object"], ["object", "null"]),
}
"""Keywords of a plain schema beside those of properties, and their values."""
_OF_PROPERTIES = frozenset({"properties", "required", "additionalProperties"})
_OF_VALUES = [
    types
    for word in ("string", "integer", "number", "boolean")
    for types in (word, [word], [word, "null"], ["null", word])
]


_SURROGATE = re.compile(r"\\ud[89a-f]")
"""Matches in the `repr` of what has a lone surrogate, and perhaps in that of other texts."""
_WIDTHS = [(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)]


@dataclass(frozen=True)
class Key:
    """A key property.

    Attributes:
        path: The property of the records that holds it, and the fields that lead into it.
    """

    name: str
    path: tuple[str, ...]


def missing_key_reason(name: str) -> str:
    """Return the reason why a record is rejected."""
    return f"key property {name!r} is null or missing"


def is_plain_schema(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema is valid, and asserts one type for each property at most."""
    properties, required = schema.get("properties"), schema.get("required", [])
    return (
        all(schema[key] in _OF_RECORDS.get(key, ()) for key in schema.keys() - _OF_PROPERTIES)
        and schema.get("additionalProperties", True) is True
        and isinstance(properties, Mapping)
        and bool(properties)
        and all(map(_is_plain_value, properties.values()))
        and isinstance(required, list)
        and all(required.count(name) == 1 and name in [*properties] for name in required)
    )


def _is_plain_value(node: Any) -> bool:
    if not isinstance(node, Mapping) or node.get("type") not in _OF_VALUES:
        return False
    texts = [node[key] for key in ("title", "description", "format") if key in node]
    bounds = node.get("minimum"), node.get("maximum")
    # A column of that width has these bounds anyway; -2**63 as a double is written as another one.
    is_width = bounds in _WIDTHS and all(isinstance(bound, int) for bound in bounds)
    plain = 2 if is_width and "integer" in node["type"] else 0
    return all(isinstance(text, str) for text in texts) and len(node) == 1 + len(texts) + plain


def filled_properties(schema: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the properties that are never null; None if a schema asserts more than types."""
    nodes = schema.get("properties", {})
    plain = _asked(schema) <= _TYPES_ONLY and nodes.keys() >= set(schema.get("required", ()))
    if not plain or not all(map(_is_typed, nodes.values())):
        return None
    # In a word as in a list of words: none is a part of another one.
    return tuple(name for name, node in nodes.items() if "null" not in (node.get("type") or ()))


def _asked(node: Mapping[str, Any]) -> set[str]:
    return {key for key in node if not key.startswith("x-") and key not in _SAYS_NOTHING}


def _is_typed(node: Any) -> bool:
    """Return whether a property asserts nothing but its types."""
    return (
        isinstance(node, Mapping)
        and _asked(node) <= {"type", "format"}
        and node.get("format") in {None, "date", "date-time"}
    )


def columns_to_fill(
    schema: Mapping[str, Any], keys: Collection[Key], *, strict: bool
) -> frozenset[str] | None:
    """Return the columns whose nulls show whether to check records one by one, or None."""
    nodes = schema.get("properties") or {}
    if (strict and not is_plain_schema(schema)) or any(key.path != (key.name,) for key in keys):
        return None
    names = {key.name for key in keys}
    if strict:
        names.update(schema.get("required", ()))
        names.update(name for name, node in nodes.items() if "null" not in node["type"])
    return frozenset(names) if names <= nodes.keys() else None


def are_filled(table: pa.Table, columns: Collection[str] | None) -> bool:
    """Return whether these columns, if they show what to check, have a value in each row."""
    return columns is not None and not any(table.column(name).null_count for name in columns)


def checked(
    plan: Callable[[StreamSchema], LoadPlan | None], stream: StreamSchema
) -> LoadPlan | None:
    """Return what `plan` returns for a stream, after a check of its schema.

    Raises:
        MessageError: The schema is not valid by the metaschema of the draft, or has odd names.
    """
    if _SURROGATE.search(repr(names := (stream.stream, stream.schema))):
        _check_names(stream, names)
    problem = None if is_plain_schema(stream.schema) else schema_problem(stream.schema)
    if problem is not None:
        hint = "records cannot be validated; fix the tap, or set `validate_records: false`"
        raise _invalid(stream, problem, hint)
    return plan(stream)


def readable(
    plan: Callable[[StreamSchema], LoadPlan | None], stream: StreamSchema
) -> LoadPlan | None:
    """Return what `plan` returns for a stream; its schema may be wrong if it still has columns.

    Raises:
        MessageError: What gives the columns is not what the draft says.
    """
    from shared.maps.record_metadata import stored_columns  # noqa: PLC0415

    if _SURROGATE.search(repr(names := (stream.stream, stream.schema))):
        _check_names(stream, names)
    try:
        planned = plan(stream)
        if planned is not None:
            stored_columns(stream.schema, False)
    except (AttributeError, KeyError, TypeError) as error:
        problem = schema_problem(stream.schema)
        if problem is None:
            raise
        hint = f"its columns cannot be read ({type(error).__name__}: {error}); fix the tap"
        raise _invalid(stream, problem, hint) from error
    return planned


def _check_names(stream: StreamSchema, part: object) -> None:
    """Raise a MessageError if a name in a part of a SCHEMA cannot be that of a table or column."""
    if not isinstance(part, dict | list | tuple):
        return
    for name in () if isinstance(part, list) else part:
        if isinstance(name, str) and re.search("[\ud800-\udfff]", name):
            raise MessageError(
                f"the name {name!a} has a lone surrogate, which is not Unicode text",
                where=Where(stream=stream.stream),
                hint="rename or deselect it in the tap",
            )
    for nested in part.values() if isinstance(part, dict) else part:
        _check_names(stream, nested)


def _invalid(stream: StreamSchema, problem: str, hint: str) -> MessageError:
    return MessageError(
        f"the SCHEMA is not a valid JSON Schema (draft 2020-12): {problem}",
        where=Where(stream=stream.stream),
        hint=hint,
    )


_SCHEMAS = 16
"""Schemas whose checks a process keeps: a worker gets many tasks of few streams."""


@lru_cache(maxsize=_SCHEMAS)
def record_validator(schema: str, files: bool) -> RecordValidator:
    """Return the validator of a schema, for which most runs need not load all that it takes."""
    from target_spark.validation.validator import RecordValidator  # noqa: PLC0415

    return RecordValidator(json.loads(schema), files=files)


@dataclass(eq=False)
class SlowKeywords:
    """Logs once for each schema of a stream why the library checks every record."""

    _logged: dict[str, tuple[Any, tuple[str, ...]]] = field(default_factory=dict, init=False)

    def log(self, stream: str, schema: Mapping[str, Any], *, files: bool) -> None:
        """Log the slow keywords of a stream's schema if they are new."""
        last, logged = self._logged.get(stream, (None, ()))
        if last == (schema, files):
            return
        words = record_validator(json.dumps(schema), files).slow_keywords()
        if words and logged != words:
            _log.info(
                "stream '%s': every record is validated by the jsonschema library, which is slow, "
                "because of %s",
                stream,
                ", ".join(words),
            )
        self._logged[stream] = (schema, files), words
