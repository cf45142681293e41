"""Checks settings against a JSON Schema and rules, and says everything that is wrong at once."""

from __future__ import annotations

import copy
import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from shared.errors import SettingsError

Json: TypeAlias = Any
"""A decoded JSON value, not checked yet."""

Schema = Mapping[str, Any]
Location = tuple[str | int, ...]

INVALID: Any = object()
"""Stands for a value that does not fit its schema, where cross-field rules look at it."""

OTHER_SPELLING = "x-other-spelling"
"""Marks a declared setting that only spells another one; lists of settings leave it out."""

_SHOWN_CHARACTERS = 60
_SECRET_NAME = re.compile(r"passw|secret|token|credential|access.?key|api.?key", re.IGNORECASE)
_HIDDEN = "the value (hidden)"


class InvalidSettingsError(SettingsError):
    """One or more settings are wrong.

    Args:
        problems: Each problem as one line.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(" ".join(problem.split()) for problem in problems)
        super().__init__("; ".join(self.problems))


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and where in the settings.

    Attributes:
        path: Keys and indexes from the top.
        text: What is wrong, in words that fit behind the place.
        wrong_value: The value itself does not fit (and not a key in it, or another field).
    """

    path: Location
    text: str
    wrong_value: bool = False

    def __str__(self) -> str:
        return f"{place(self.path)}: {self.text}"


Rule = Callable[[Mapping[str, Any]], Iterable[Problem]]
"""A cross-field check; it sees the settings before defaults, wrong values replaced by INVALID."""


def place(path: Sequence[str | int]) -> str:
    """Write a path as an expression over `config`, e.g. `config['streams'][0]['name']`."""
    return "config" + "".join(f"[{part!r}]" for part in path)


def complete_settings(
    schema: Schema, settings: Mapping[str, Any], rules: Sequence[Rule] = ()
) -> dict[str, Any]:
    """Validate settings and fill in defaults.

    Args:
        schema: JSON Schema of the program.
        settings: What the user gave, merged and normalized.
        rules: Cross-field checks.

    Returns:
        A new dictionary with every default at its place.

    Raises:
        InvalidSettingsError: With every problem found.
    """
    problems = list(schema_problems(schema, settings))
    marked = _mark_invalid(settings, problems)
    for rule in rules:
        problems.extend(rule(marked))
    if problems:
        raise InvalidSettingsError(dict.fromkeys(str(problem) for problem in problems))
    completed: dict[str, Any] = with_defaults(schema, settings)
    return completed


def with_defaults(schema: Schema, value: Json) -> Json:
    """Copy a value, adding the defaults its schema names, at every depth."""
    if isinstance(value, Mapping) and "properties" in schema:
        result = dict(value)
        for name, child in schema["properties"].items():
            if name in result:
                result[name] = with_defaults(child, result[name])
            elif "default" in child:
                result[name] = copy.deepcopy(child["default"])
            elif "properties" in child:
                result[name] = with_defaults(child, {})
        return result
    if isinstance(value, list) and "items" in schema:
        return [with_defaults(schema["items"], item) for item in value]
    return copy.deepcopy(value)


def schema_problems(schema: Schema, settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield everything in which the settings differ from the schema."""
    # Imported here because it is the slowest import of `--help` and `--version`.
    from jsonschema import Draft202012Validator  # noqa: PLC0415

    for error in Draft202012Validator(schema).iter_errors(settings):
        path: Location = tuple(error.absolute_path)
        if error.validator == "additionalProperties":
            yield from _unknown_keys(schema, path, error.instance, error.schema)
        elif error.validator == "required":
            missing = [name for name in error.validator_value if name not in error.instance]
            yield from (Problem(path, f"{name!r} is a required property") for name in missing)
        elif error.validator != "enum" or isinstance(error.instance, str):
            # A choice of another type has its line already, from `type`.
            shown = _shown(path, error.instance, error.schema)
            text = _text(error.validator, error.schema, error.instance, shown)
            yield Problem(path, text, wrong_value=True)


def nearest(name: str, known: Iterable[str], cutoff: float = 0.7) -> str | None:
    """Find the known name closest to a mistyped one; None where nothing is as like as `cutoff`."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None


def declared_names(schema: Schema, prefix: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield every declared setting, parents first, with its dotted name (`streams[].name`)."""
    for name, child in schema.get("properties", {}).items():
        yield prefix + name, child
        yield from declared_names(child, f"{prefix}{name}.")
        if "properties" in child.get("items", {}):
            yield from declared_names(child["items"], f"{prefix}{name}[].")


def _unknown_keys(
    root: Schema, path: Location, instance: Mapping[str, Any], schema: Schema
) -> Iterator[Problem]:
    known = schema.get("properties", {})
    for key in instance:
        if key not in known:
            yield Problem((*path, key), f"unknown setting; {suggestion(root, key, known)}")


def suggestion(root: Schema, key: str, known: Iterable[str]) -> str:
    """Say which declared setting an unknown key may stand for."""
    siblings = list(known)
    match = nearest(key, siblings)
    if match is None:
        # The key may be right and only its place wrong (`master` for `spark.master`).
        elsewhere = {re.split(r"[.\]]+", name)[-1]: name for name, _ in declared_names(root)}
        match = elsewhere.get(nearest(key, elsewhere) or "")
    if match is None:
        return "known are " + ", ".join(repr(name) for name in siblings)
    return f"did you mean {match!r}?"


def _mark_invalid(settings: Mapping[str, Any], problems: Iterable[Problem]) -> dict[str, Any]:
    marked: dict[str, Any] = copy.deepcopy(dict(settings))
    wrong = (problem.path for problem in problems if problem.wrong_value and problem.path)
    for path in sorted(wrong, key=len, reverse=True):
        parent: Json = marked
        for part in path[:-1]:
            parent = parent[part]
        parent[path[-1]] = INVALID
    return marked


def holds_secret(schema: Schema) -> bool:
    """Tell whether a setting, or one below it, is secret."""
    below = [*schema.get("properties", {}).values(), schema.get("items")]
    below.append(schema.get("additionalProperties"))
    return bool(schema.get("secret")) or any(
        holds_secret(child) for child in below if isinstance(child, Mapping)
    )


def _shown(path: Location, value: Json, schema: Schema) -> str:
    names = [part for part in path if isinstance(part, str)]
    if isinstance(value, (Mapping, list)):
        return "an object" if isinstance(value, Mapping) else "an array"
    if holds_secret(schema) or (names and _SECRET_NAME.search(names[-1])):
        return _HIDDEN
    text = repr(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _text(keyword: str, schema: Schema, value: Json, shown: str) -> str:
    limit = schema[keyword]
    if keyword == "enum":
        match = nearest(value, limit) if isinstance(value, str) else None
        hint = f"; did you mean {match!r}?" if match else ""
        return f"{shown} is not one of {', '.join(map(repr, limit))}{hint}"
    types = limit if isinstance(limit, list) else [limit]
    texts = {
        "type": f"{shown} is not of type {', '.join(map(repr, types))}",
        "minimum": f"{shown} is less than the minimum of {limit}",
        "exclusiveMinimum": f"{shown} must be greater than {limit}",
        "maximum": f"{shown} is greater than the maximum of {limit}",
        "minLength": "must not be empty",
        "minItems": f"{shown} must have at least {limit} item(s)",
        "uniqueItems": f"{shown} must not hold the same item twice",
        "pattern": f"{shown} is not {schema.get('x-pattern-meaning', repr(limit))}",
    }
    return texts.get(keyword, f"{shown} breaks the rule {keyword!r}")
