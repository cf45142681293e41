"""The settings engine: checks values by their JSON Schema, reads them, and fills in defaults.

The same functions serve the settings of both programs and the batch settings. They report every
problem at once. `kinds` holds the kinds of value and how to declare a setting. Users write
durations and sizes as `500 ms`, `5 minutes`, `64 MiB`.
"""

from __future__ import annotations

import copy
import difflib
import json
import logging
import math
import operator
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from shared.errors import InvalidSettingsError, SettingsError, Where

_log = logging.getLogger(__name__)

DURATION_UNITS: dict[str, int] = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
"""Milliseconds in each unit of time."""
_WORDS = {"ms": "millisecond", "s": "second", "m": "minute", "h": "hour", "d": "day"}
DURATION_UNITS |= {
    f"{word}{end}": DURATION_UNITS[unit] for unit, word in _WORDS.items() for end in ("", "s")
}

_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}
SIZE_UNITS: dict[str, int] = {"B": 1, "byte": 1, "bytes": 1}
"""Bytes in each unit of size; `k` for `K` and all lower case are accepted too."""
SIZE_UNITS |= {f"{letter}B": 1000**power for letter, power in _POWERS.items()}
SIZE_UNITS |= {f"{letter}iB": 1024**power for letter, power in _POWERS.items()}
_SIZE_SPELLINGS = SIZE_UNITS | {unit.lower(): count for unit, count in SIZE_UNITS.items()}
_SIZE_SPELLINGS |= {"kB": 1000, "kiB": 1024}


def _pattern(units: dict[str, int]) -> str:
    words = "|".join(sorted(units, key=len, reverse=True))
    return rf"^ *([0-9]+(?:\.[0-9]+)?) *({words})? *$"


DURATION_PATTERN = _pattern(DURATION_UNITS)
SIZE_PATTERN = _pattern(_SIZE_SPELLINGS)


def milliseconds(value: int | float | str) -> Decimal:
    """Read a duration: a number of milliseconds, or text with a unit.

    Raises:
        ValueError: The text is not a number with a unit of `DURATION_UNITS`.
    """
    return _amount(value, DURATION_PATTERN, DURATION_UNITS)


def byte_count(value: int | float | str) -> int:
    """Read a size: a number of bytes, or text with a unit; fractions of a byte are truncated.

    `KB`, `MB`, ... count by 1000; `KiB`, `MiB`, ... by 1024.

    Raises:
        ValueError: The text is not a number with a unit of `SIZE_UNITS`.
    """
    return int(_amount(value, SIZE_PATTERN, _SIZE_SPELLINGS))


def duration_text(amount: Decimal | int) -> str:
    """Write milliseconds with the largest unit that leaves a whole number (`1500` → `1500ms`)."""
    units = ("d", "h", "m", "s")
    whole = (unit for unit in units if amount and amount % DURATION_UNITS[unit] == 0)
    unit = next(whole, "ms")
    return f"{(Decimal(amount) / DURATION_UNITS[unit]).normalize():f}{unit}"


def size_text(count: int) -> str:
    """Write bytes with the largest binary unit that leaves a whole number (`1048576` → `1 MiB`)."""
    units = ("TiB", "GiB", "MiB", "KiB")
    unit = next((unit for unit in units if count and count % SIZE_UNITS[unit] == 0), "B")
    return f"{count // SIZE_UNITS[unit]} {unit}"


def _amount(value: int | float | str, pattern: str, units: dict[str, int]) -> Decimal:
    if not isinstance(value, str):
        return Decimal(str(value))
    match = re.fullmatch(pattern, value)
    # `$` in the pattern, which editors read too, would let a final line break pass.
    if match is None or value.endswith("\n"):
        raise ValueError(f"{value!r} is not a number with a unit")
    number, unit = match.groups()
    return Decimal(number) * (units[unit] if unit else 1)


Json: TypeAlias = Any
"""A decoded JSON value, not checked yet."""

Schema = Mapping[str, Any]
Location = tuple[str | int, ...]

INVALID: Any = object()
"""Stands for a value that does not fit its schema, so that rules between settings skip it."""

OTHER_SPELLING = "x-other-spelling"
"""Marks a setting that is another spelling of a setting; lists of settings leave it out."""

FORMER = "x-former"
"""Settings that a setting has replaced: whoever gives them learns its name."""

ALLOWED = "x-allowed"
"""What may stand there, in words; the error then says this and not which keyword failed."""
HIDDEN = "x-hidden"
"""Marks a value that no message shows, whatever its type."""
NEVER = "x-never"
"""A `pattern` that text must not match, with `message` and `allowed` for the error."""
UNIT = "x-unit"
"""How text becomes the value of the first schema of `anyOf`: a key of `_PARSERS`."""
WRONG = "x-wrong"
"""The error of a value of a wrong type, in place of one that shows the value."""
ENGINE_KEYWORDS = frozenset({ALLOWED, FORMER, HIDDEN, NEVER, UNIT, WRONG})

_SHOWN_CHARACTERS = 60
_SHOWN_BITS = 256
_SECRET_NAME = re.compile(r"passw|secret|token|credential|access.?key|api.?key", re.IGNORECASE)
_HIDDEN_TEXT = "the value (hidden)"
PASSWORD_IN_URL = re.compile(r"://[^/]*?:((?![0-9]+(?:/|$)).*)@")


def check_folder(path: str, option: str) -> None:
    """Check that the folder of a file exists that an option names.

    Raises:
        SettingsError: It does not, or may not be searched.
    """
    if not os.path.isdir(Path(path).parent):  # noqa: PTH112 - Path fails if it may not be searched
        where, hint = Where(file=path), f"make it, or give {option} another file"
        raise SettingsError("its folder does not exist", where=where, hint=hint)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and where in the settings.

    Attributes:
        path: Keys and indexes from the top; a dotted spelling is one key.
        message: What is wrong, in words that fit behind the place.
        value: The given value as text without secrets; None if there is none or it is hidden.
        allowed: What may stand there instead.
        nearest: The known key or value that the user may have meant.
        wrong_value: The value itself does not fit (and not a key in it, or another setting).
    """

    path: Location
    message: str
    value: str | None = None
    allowed: str | None = None
    nearest: str | None = None
    wrong_value: bool = False

    @property
    def text(self) -> str:
        """Everything but the path, in one line."""
        text = f"{self.message}; allowed: {self.allowed}" if self.allowed else self.message
        text += f"; did you mean {self.nearest!r}?" if self.nearest else ""
        return " ".join(text.split())

    def __str__(self) -> str:
        return f"{setting_place(self.path)}: {self.text}"


Rule = Callable[[Mapping[str, Any]], Iterable[Problem]]
"""A check between settings; it sees them without defaults, with INVALID for wrong values."""

UnknownKey = Callable[[Schema, Location, Json], Problem | None]
"""Describes a key that is not in the schema of its object, by schema, path and value."""


def setting_place(path: Sequence[str | int]) -> str:
    """Write a path as an expression over `config`, e.g. `config['streams'][0]['name']`."""
    return "config" + "".join(f"[{part!r}]" for part in path)


def complete_settings(
    schema: Schema, settings: Mapping[str, Any], rules: Sequence[Rule] = ()
) -> dict[str, Any]:
    """Check settings, which are merged and normalized; return them with all defaults.

    Raises:
        InvalidSettingsError: With every problem found.
    """
    problems = list(schema_problems(schema, settings))
    marked = without_defaults(schema, _mark_invalid(settings, problems) if problems else settings)
    for rule in rules:
        problems.extend(rule(marked))
    if problems:
        raise InvalidSettingsError(dict.fromkeys(str(problem) for problem in problems))
    completed: dict[str, Any] = with_defaults(schema, settings)
    return completed


def without_defaults(schema: Schema, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Copy settings without those that have their default: Meltano gives every one it knows."""
    kept: dict[str, Any] = {}
    for name, value in settings.items():
        child = schema.get("properties", {}).get(name, {})
        if isinstance(value, Mapping) and "properties" in child:
            kept[name] = without_defaults(child, value)
        elif "default" not in child or value != child["default"]:
            kept[name] = value
    return kept


def with_defaults(schema: Schema, value: Json) -> Json:
    """Copy a value and add the defaults that its schema names, at every depth."""
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


def read(schema: Schema, value: Json) -> Json:
    """Return a checked value with one type for each kind.

    Durations become seconds, sizes bytes, lists tuples; objects with values of any plain type
    hold text, as Spark reads it (`true`, `8`).
    """
    value = milliseconds(value) / 1000 if schema.get(UNIT) == "ms" else _parsed(schema, value)
    kind = schema.get("anyOf", (schema,))[0].get("type")
    if kind in ("integer", "number"):
        return int(value) if kind == "integer" else float(value)
    if isinstance(value, (list, tuple)) and "items" in schema:
        return tuple(read(schema["items"], item) for item in value)
    if not isinstance(value, Mapping):
        return value
    if set(below(schema).get("type", ())) == {"string", "number", "boolean"}:
        # Any key with a plain value, as `options` and `spark.conf` take.
        return {key: as_text(item) for key, item in value.items()}
    return {key: read(below(schema, key), item) for key, item in value.items()}


def below(schema: Schema, key: str = "") -> Schema:
    """Return the schema of the value of a key in an object; by default, of a key of any name."""
    others = schema.get("additionalProperties")
    default = others if isinstance(others, Mapping) else {}
    return schema.get("properties", {}).get(key, default)  # type: ignore[no-any-return]


def as_text(value: Json) -> str:
    """Write a plain value as text, as JSON has it: `true`, `8`."""
    return value if isinstance(value, str) else json.dumps(value)


def schema_problems(
    schema: Schema, value: Json, path: Location = (), unknown: UnknownKey | None = None
) -> Iterator[Problem]:
    """Yield everything in which a value differs from its schema.

    Args:
        path: Path of the value from the top.
        unknown: Describes an unknown key, or returns None to ignore it.

    Raises:
        ValueError: The schema has a keyword that this check does not know.
    """
    supported = _SUPPORTED | {"anyOf"} if UNIT in schema else _SUPPORTED
    for keyword in sorted(schema.keys() - supported):
        if not keyword.startswith("x-"):
            raise ValueError(f"the keyword {keyword!r} is not supported in a schema of settings")
    unknown = unknown or partial(_unknown_setting, schema)
    fault = _fault(schema, path, value)
    if fault is not None:
        yield fault
    elif isinstance(value, Mapping):
        if schema.get("additionalProperties") is False:
            strange = (key for key in value if key not in schema.get("properties", {}))
            problems = (unknown(schema, (*path, key), value[key]) for key in strange)
            yield from (problem for problem in problems if problem is not None)
        for name in schema.get("required", ()):
            if name not in value:
                yield Problem(path, f"{name!r} is a required property")
        for key, item in value.items():
            yield from schema_problems(below(schema, key), item, (*path, key), unknown)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from schema_problems(schema.get("items", {}), item, (*path, index), unknown)


def _fault(schema: Schema, path: Location, value: Json) -> Problem | None:
    """Say why a value does not fit, without a look at what an object or a list holds."""
    never = schema.get(NEVER)
    if never and isinstance(value, str) and re.search(never["pattern"], value):
        text = _shown(schema, path, value)
        return Problem(path, f"{text} {never['message']}", text, never["allowed"], None, True)
    plain, parsed = schema.get("anyOf", (schema,))[0], _parsed(schema, value)
    broken = (
        keyword
        for keyword, (kind, holds, _) in _KEYWORDS.items()
        if keyword in plain and _TYPES[kind](parsed) and not holds(parsed, plain[keyword])
    )
    keyword = next(broken, None)
    if keyword is None:
        return None
    if WRONG in schema:
        return Problem(path, schema[WRONG], wrong_value=True)
    text = _shown(schema, path, value)
    near = _nearest_choice(value, schema["enum"]) if "enum" in schema else None
    if ALLOWED in schema:
        return Problem(path, f"{text} is not allowed", text, schema[ALLOWED], near, True)
    return Problem(path, _text(keyword, plain, text), text, None, near, True)


def _parsed(schema: Schema, value: Json) -> Json:
    """Turn text into the value that the first schema of `anyOf` describes, if it fits the other."""
    parse = _PARSERS.get(schema.get(UNIT, ""))
    if parse is None or not isinstance(value, str):
        return value
    return parse(value) if _matches(value, schema["anyOf"][1]["pattern"]) else value


_PARSERS: Mapping[str, Callable[[str], Json]] = {
    "ms": milliseconds,
    "bytes": byte_count,
    "integer": int,
    "boolean": lambda text: text.strip().lower() == "true",
}


def is_whole(value: Json) -> bool:
    """Tell whether JSON would call a value an integer (`1.0` is one, `true` is not)."""
    if isinstance(value, float):
        return math.isfinite(value) and value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Json) -> bool:
    """Tell whether a value is a finite number."""
    is_finite = not isinstance(value, float) or math.isfinite(value)
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool) and is_finite


_TYPES: Mapping[str, Callable[[Json], bool]] = {
    "object": lambda value: isinstance(value, Mapping) and all(isinstance(k, str) for k in value),
    "array": lambda value: isinstance(value, (list, tuple)),
    "string": lambda value: isinstance(value, str),
    "integer": is_whole,
    "number": is_number,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "any": lambda _: True,
}


def _matches(text: str, pattern: str) -> bool:
    # In JSON Schema `$` is the end of the text; in Python a line break may follow.
    exact = f"{pattern[:-1]}\\Z" if pattern.endswith("$") else pattern
    return re.search(exact, text) is not None


def _all_differ(items: Sequence[Json], _: bool) -> bool:
    return len({json.dumps(item, sort_keys=True) for item in items}) == len(items)


_KEYWORDS: Mapping[str, tuple[str, Callable[[Json, Json], bool], str]] = {
    "type": (
        "any",
        lambda value, types: any(
            _TYPES[name](value) for name in ((types,) if isinstance(types, str) else types)
        ),
        "is not of type {choices}",
    ),
    "enum": ("any", lambda value, limit: value in limit, "is not one of {choices}"),
    "minimum": ("number", operator.ge, "is less than the minimum of {limit}"),
    "exclusiveMinimum": ("number", operator.gt, "must be greater than {limit}"),
    "maximum": ("number", operator.le, "is greater than the maximum of {limit}"),
    "multipleOf": ("number", lambda value, limit: value % limit == 0, "breaks the rule {keyword}"),
    "minLength": ("string", lambda value, limit: len(value) >= limit, "must not be empty"),
    "pattern": ("string", _matches, "is not {meaning}"),
    "minItems": (
        "array",
        lambda value, limit: len(value) >= limit,
        "must have at least {limit} item(s)",
    ),
    "uniqueItems": ("array", _all_differ, "must not hold the same item twice"),
}
"""Keyword → the type it applies to, its test, and the error of a value that fails it."""

_SUPPORTED = frozenset(_KEYWORDS) | {
    *("items", "properties", "additionalProperties", "required", "secret"),
    *("$schema", "title", "description", "default", "examples", "format"),
}


def _text(keyword: str, schema: Schema, shown_value: str) -> str:
    limit = schema[keyword]
    words = {
        "limit": limit,
        "keyword": repr(keyword),
        "choices": ", ".join(map(repr, limit)) if isinstance(limit, (list, tuple)) else repr(limit),
        "meaning": schema.get("x-pattern-meaning", repr(limit)),
    }
    text = _KEYWORDS[keyword][2].format(**words)
    return text if keyword == "minLength" else f"{shown_value} {text}"


def _nearest_choice(value: Json, choices: Sequence[Json]) -> str | None:
    if not isinstance(value, str) or not value:
        return None
    words = [word for word in choices if isinstance(word, str)]
    # Short forms (`gz`) are too far from the word for a measure of likeness.
    longer = (word for word in words if word.startswith(value.lower()))
    return nearest(value, words) or next(longer, None)


def nearest(name: str, names: Iterable[str], cutoff: float = 0.7) -> str | None:
    """Find the known name closest to a mistyped one; None if none is as like as `cutoff`."""
    by_lower = {candidate.lower(): candidate for candidate in names}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[matches[0]] if matches else None


MOST_COMPARED = 20_000
"""Pairs of names that `tell_unmatched` compares letter by letter; thousands would take minutes."""


def is_for(pattern: str, stream: str) -> bool:
    """Return whether an entry of a setting by stream is for a stream: by its name, or a pattern."""
    return stream == pattern or fnmatchcase(stream, pattern)


def tell_unmatched(setting: str, patterns: Mapping[str, str], streams: Collection[str]) -> None:
    """Log which entries of a setting are for no stream of a run: a mistyped name does nothing.

    It is a warning if a stream without an entry of its own has nearly the name of one.

    Args:
        setting: The name of the setting.
        patterns: The name or pattern of streams that each entry is for, by the key of the entry.
        streams: The streams of the run; nothing is told of a run without any.
    """
    own = frozenset(streams)
    unmatched = {
        key: pattern
        for key, pattern in (patterns.items() if own else ())
        if pattern not in own and not any(is_for(pattern, stream) for stream in own)
    }
    others = own - patterns.keys()
    compared = others if len(unmatched) * len(others) <= MOST_COMPARED else ()
    matches = {key: nearest(one, compared, cutoff=0.8) for key, one in unmatched.items()}
    if matches:
        texts = [f"{k!r}" + (f" (did you mean {m!r}?)" if m else "") for k, m in matches.items()]
        level = logging.WARNING if any(matches.values()) else logging.INFO
        _log.log(level, "%s: no stream of this run matches %s", setting, ", ".join(texts))


def declared_names(schema: Schema, prefix: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield every declared setting, parents first, with its dotted name (`streams[].name`)."""
    for name, child in schema.get("properties", {}).items():
        yield prefix + name, child
        yield from declared_names(child, f"{prefix}{name}.")
        if "properties" in child.get("items", {}):
            yield from declared_names(child["items"], f"{prefix}{name}[].")


def _unknown_setting(root: Schema, schema: Schema, path: Location, _: Json) -> Problem:
    """Say which declared setting an unknown key may stand for."""
    properties = schema.get("properties", {})
    key, siblings = str(path[-1]), list(properties)
    heirs = (name for name, child in properties.items() if key in child.get(FORMER, ()))
    match = next(heirs, None) or nearest(key, siblings)
    if match is None:
        # The key may be right and only its place wrong (`master` for `spark.master`).
        elsewhere = {re.split(r"[.\]]+", name)[-1]: name for name, _ in declared_names(root)}
        match = elsewhere.get(nearest(key, elsewhere) or "")
    names = (name for name, child in properties.items() if not child.get(OTHER_SPELLING))
    text = f"unknown setting; known are {', '.join(map(repr, names))}"
    return Problem(path, "unknown setting" if match else text, nearest=match)


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


def _shown(schema: Schema, path: Location, value: Json) -> str:
    names = [part for part in path if isinstance(part, str)]
    is_secret = holds_secret(schema) or (names and _SECRET_NAME.search(names[-1]))
    is_plain = value is not None and not isinstance(value, (Mapping, list, tuple))
    return _HIDDEN_TEXT if schema.get(HIDDEN) or (is_secret and is_plain) else shown_setting(value)


def shown_setting(value: Json) -> str:
    """Write a value for a message: short, without what may be secret in a URL."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return "an enormous number"
    text = repr(redacted(value) if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def redacted(url: str) -> str:
    """Return a path or URL without user, password and query."""
    if "://" not in url:
        return url
    without_user = re.sub(r"://.*@", "://***@", url) if PASSWORD_IN_URL.search(url) else url
    return re.sub(r"\?.*", "?***", without_user)
