"""The judge: verdicts of the jsonschema library on schemas and records.

The draft is the one that the Meltano SDK validates with. As there, formats are not asserted, and
`multipleOf` compares decimal digits, so that 1.1 is a multiple of 0.01 although its float is not.
References to other documents are never fetched.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from shared.formats.json_text import NON_FINITE
from target_spark.validation.patterns import SlowPatternError, check_time

_SHOWN = 200
_MOST_CALLS = 8_000


class ExactNumber(float):
    """A number with a fraction or an exponent, which remembers its text."""

    text: str

    def __new__(cls, text: str) -> ExactNumber:
        """Return the number of a text."""
        result = super().__new__(cls, text)
        result.text = text
        return result


@lru_cache(maxsize=1)
def draft() -> Any:
    """Return the validator class; loaded late, as not every run needs the library."""
    from jsonschema.validators import Draft202012Validator, extend  # noqa: PLC0415

    timed = {name: _timed(name, searches) for name, searches in _SEARCHES.items()}
    return extend(Draft202012Validator, {"multipleOf": _multiple_of, **timed})


TOO_DEEP = "values are nested too deeply"


def keywords() -> frozenset[str]:
    """Return the keywords by which the library can reject a value; not formats."""
    return frozenset(draft().VALIDATORS) - {"format"}


def schema_problem(schema: object) -> str | None:
    """Return the first problem of a schema by the draft's metaschema; None if it is valid."""
    from jsonschema.exceptions import best_match  # noqa: PLC0415
    from jsonschema.validators import Draft202012Validator as Draft  # noqa: PLC0415

    validator = Draft(Draft.META_SCHEMA, format_checker=Draft.FORMAT_CHECKER)
    # The library calls some 25 functions for each of the 200 levels that a message may have.
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _MOST_CALLS))
    try:
        error = best_match(validator.iter_errors(schema))
    except RecursionError:
        return "is nested too deeply"
    return None if error is None else error_line(error, "at")


def decoded(line: bytes, *, exact: bool) -> Any:
    """Return a line decoded for the library.

    Args:
        line: Valid JSON.
        exact: Keep the digits of fractions, which only `multipleOf` needs.
    """
    return json.loads(line, parse_float=ExactNumber if exact else None)


def validator_of(schema: Any) -> Any:
    """Return a validator of a whole schema; its parts come from it by `evolve`."""
    from jsonschema.validators import extend  # noqa: PLC0415
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped] # noqa: PLC0415

    result = draft()
    if patterns := tuple(_name_patterns(schema)):
        # It looks for them wherever a reference leads.
        searches = lambda _, names, __: ((pattern, names) for pattern in patterns)  # noqa: E731
        result = extend(result, {_UNEVALUATED: _timed(_UNEVALUATED, searches)})
    return result(schema, registry=REGISTRY)


def is_valid(validator: Any, value: Any) -> bool:
    """Return whether the library accepts a value; a value that it cannot judge is invalid."""
    try:
        return bool(validator.is_valid(value))
    except Exception:  # the library raises many kinds for references and patterns
        return False


def reason(validator: Any, record: Any) -> str | None:
    """Return why the library rejects a record, in one line with the path; None if it accepts it.

    Args:
        validator: Of the whole schema.
        record: As from `decoded`.
    """
    from jsonschema.exceptions import best_match  # noqa: PLC0415

    try:
        error = best_match(validator.iter_errors(record))
    except RecursionError:
        return TOO_DEEP
    except SlowPatternError as slow:
        path = (_path_of(record, slow.text) or "").removeprefix(".")
        return f"{_one_line(f'property {path!r}')}: {slow}"
    except Exception as failure:  # as in is_valid
        return _one_line(f"the schema cannot be applied: {failure}")
    return None if error is None else error_line(error, "property")


def error_line(error: Any, word: str) -> str:
    """Return an error of the library in one line.

    Args:
        error: A `ValidationError`.
        word: Name for the path.
    """
    path = "".join(_step(step) for step in error.absolute_path).removeprefix(".")
    message = _one_line(error.message)
    return f"{_one_line(f'{word} {path!r}')}: {message}" if path else message


def _step(step: str | int) -> str:
    return f"[{step}]" if isinstance(step, int) else f".{step}"


def _one_line(text: str) -> str:
    whole = " ".join(text.split()).encode("utf-8", "backslashreplace").decode()
    if len(whole) <= _SHOWN:
        return whole
    half = _SHOWN // 2
    return f"{whole[:half]} … {whole[-half:]}"


def _multiple_of(
    validator: Any, step: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415

    del schema
    if validator.is_type(instance, "number") and not is_multiple(instance, step):
        yield ValidationError(f"{instance!r} is not a multiple of {step}")


Searches = Callable[[Any, Any, Mapping[str, Any]], Iterable[tuple[str, Iterable[str]]]]
"""Returns patterns and the texts to search, for a keyword's value, an instance and the schema.

The instance is a text for `pattern`, an object for the other keywords.
"""

_UNEVALUATED = "unevaluatedProperties"
_SEARCHES: Mapping[str, Searches] = {
    "pattern": lambda value, text, _: [(value, [text])],
    "patternProperties": lambda value, names, _: ((pattern, names) for pattern in value),
    "additionalProperties": lambda _, names, schema: [
        ("|".join(schema.get("patternProperties", ())), names)
    ],
}


def _timed(name: str, searches: Searches) -> Any:
    """Return the keyword with a check that its searches end in time."""
    from jsonschema.validators import Draft202012Validator  # noqa: PLC0415

    keyword = Draft202012Validator.VALIDATORS[name]
    kind = "string" if name == "pattern" else "object"

    def timed(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if validator.is_type(instance, kind):
            for pattern, texts in searches(value, instance, schema):
                check_time(pattern, texts)
        yield from keyword(validator, value, instance, schema)

    return timed


def _name_patterns(schema: Any) -> Iterator[str]:
    """Yield all patterns of property names, at any depth."""
    left = [schema]
    while left:
        node = left.pop()
        if isinstance(node, Mapping):
            entry = node.get("patternProperties")
            yield from entry if isinstance(entry, Mapping) else ()
            left.extend(node.values())
        elif isinstance(node, list):
            left.extend(node)


def _path_of(value: Any, text: str) -> str | None:
    """Return the path at which this very text object is a value or a name."""
    parts = value.items() if isinstance(value, Mapping) else enumerate(value)
    for step, part in parts:
        if part is text or step is text:
            return _step(step)
        if isinstance(part, Mapping | list):
            below = _path_of(part, text)
            if below is not None:
                return _step(step) + below
    return None


def is_multiple(value: Any, step: Any) -> bool:
    """Return whether a number is a multiple of another, by their decimal digits."""
    from fractions import Fraction  # noqa: PLC0415

    if isinstance(value, float) and not math.isfinite(value):
        return False
    number, unit = _digits(value), _digits(step)
    if number.is_zero():
        return True
    if _spread(number, unit) > _MOST_DIGITS:  # of a number too small to be a multiple
        return False
    return (Fraction(number) / Fraction(unit)).denominator == 1


_MOST_DIGITS = 5000


def _digits(value: Any) -> Any:
    from decimal import Decimal  # noqa: PLC0415

    if isinstance(value, ExactNumber):
        return Decimal(value.text)
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def _spread(number: Any, unit: Any) -> int:
    return int(abs(number.as_tuple().exponent) + abs(unit.as_tuple().exponent))


def with_non_finite(value: Any, paths: Any) -> Any:
    """Return the value with the words for NaN and infinities as numbers at some paths.

    Args:
        value: Any JSON value.
        paths: True for a number; a mapping for properties; a list with the entry for all items.
    """
    if paths is True:
        return NON_FINITE.get(value, value) if isinstance(value, str) else value
    if isinstance(paths, list) and isinstance(value, list):
        return [with_non_finite(item, paths[0]) for item in value]
    if isinstance(paths, dict) and isinstance(value, dict):
        return {
            name: with_non_finite(part, paths[name]) if name in paths else part
            for name, part in value.items()
        }
    return value
