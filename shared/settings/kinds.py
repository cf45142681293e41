"""How a setting is declared: as a field of a frozen dataclass, with the JSON Schema of its kind.

    @dataclass(frozen=True)
    class SpoolSettings:
        bytes: int = setting(at_least(MIB), "How many bytes may wait there.", default=256 * MIB)

`schema_of` builds the JSON Schema of such a class, by which `checking` checks values. `typed` makes
the dataclass of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any, Literal, TypeVar

from shared.settings.checking import (
    ALLOWED,
    DURATION_PATTERN,
    DURATION_UNITS,
    ENGINE_KEYWORDS,
    HIDDEN,
    NEVER,
    PASSWORD_IN_URL,
    SIZE_PATTERN,
    UNIT,
    WRONG,
    Json,
    duration_text,
    read,
    size_text,
    with_defaults,
)

Schema = dict[str, Any]
Side = Literal["tap", "target"]
T = TypeVar("T")

LARGEST_COUNT = 2**63 - 1
LONGEST_MS = 365 * DURATION_UNITS["d"]
LARGEST_BYTES = 2**60
_WHOLE_TEXT = "^ *[0-9]{1,19} *$"
_FLAG_TEXT = "^ *([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]) *$"

TEXT: Schema = {"type": "string", "minLength": 1}
ANY_TEXT: Schema = {"type": "string"}
NO_PASSWORD: Schema = {
    NEVER: {
        "pattern": PASSWORD_IN_URL.pattern,
        "message": "holds a password",
        "allowed": "a URL without password; credentials come from options or the environment",
    }
}
PLACE: Schema = {**TEXT, **NO_PASSWORD}
"""A path, or a URL without a password."""
TEXTS: Schema = {"type": "array", "items": TEXT}
NAMES: Schema = {**TEXTS, "uniqueItems": True}
SWITCH: Schema = {"type": "boolean"}
POSITIVE: Schema = {"type": "number", "exclusiveMinimum": 0}
_PLAIN = {"type": ["string", "number", "boolean"]}
VALUES: Schema = {"type": "object", "additionalProperties": _PLAIN}
"""Any keys, with values that are read as text."""
SECRET_VALUES: Schema = {"type": "object", "additionalProperties": {**_PLAIN, "secret": True}}
FREE: Schema = {"type": "object", "additionalProperties": True}
"""Any keys, with values of any depth that stay as they are."""


def at_least(minimum: int) -> Schema:
    """Return the kind of whole numbers from `minimum` on."""
    return {"type": "integer", "minimum": minimum}


def count(largest: int = LARGEST_COUNT) -> Schema:
    """Return the kind of whole numbers of at least 1."""
    allowed = f"a whole number from 1 to {largest}"
    return {"type": "integer", "minimum": 1, "maximum": largest, ALLOWED: allowed}


def one_of(words: Iterable[str]) -> Schema:
    """Return the kind that is one of some words."""
    return {"type": "string", "enum": list(words)}


def choice(words: Iterable[str]) -> Schema:
    """Return the same kind for the batch settings, whose errors say what is allowed."""
    kind = one_of(words)
    return {**kind, ALLOWED: ", ".join(map(repr, kind["enum"]))}


def listing(items: Schema, allowed: str, shortest: int = 0) -> Schema:
    """Return the kind that is a list of another kind."""
    bound = {"minItems": shortest} if shortest else {}
    return {"type": "array", "items": items, **bound, ALLOWED: allowed}


def _or_text(kind: Schema, pattern: str, unit: str, allowed: str) -> Schema:
    about = ("description", "default")
    plain = {key: value for key, value in kind.items() if key not in (ALLOWED, *about)}
    text = {"type": "string", "pattern": pattern}
    kept = {key: kind[key] for key in about if key in kind}
    return {"anyOf": [plain, text], UNIT: unit, ALLOWED: allowed, **kept}


FLAG: Schema = {**SWITCH, ALLOWED: "true or false"}
WORD: Schema = {**TEXT, ALLOWED: "text that is not empty"}
OPTIONS: Schema = {"type": "object", HIDDEN: True, ALLOWED: "an object"}
"""Any object; its values may be secret."""
DURATION: Schema = _or_text(
    {"type": "number", "minimum": 1, "maximum": LONGEST_MS},
    DURATION_PATTERN,
    "ms",
    f"a time from 1ms to {duration_text(LONGEST_MS)}: milliseconds, "
    "or a number with ms, s, m, h, d or the long words",
)
"""Milliseconds, or text with a unit; read as seconds."""
SIZE: Schema = _or_text(
    {"type": "integer", "minimum": 1, "maximum": LARGEST_BYTES},
    SIZE_PATTERN,
    "bytes",
    f"a size from 1 B to {size_text(LARGEST_BYTES)}: whole bytes, "
    "or a number with B, KB, MB, GB, TB (by 1000), KiB, MiB, GiB, TiB (by 1024)",
)
"""Bytes, or text with a unit; read as bytes."""
LOCATION: Schema = {
    "type": "string",
    "pattern": r"^(?!\s)(?!://)(?!.*://$)(?![^/]*[A-Z][^/]*://)(?!.*://[^/]*:(?![0-9]+(?:/|$)).*@)"
    r"[^\u0000-\u001f\u007f]*[^\s\u0000-\u001f\u007f]$",
    ALLOWED: "a path, or a URL with a scheme in small letters",
    **NO_PASSWORD,
}
"""The same for batch files, without spaces around it and control characters."""
PREFIX: Schema = {
    "type": "string",
    "pattern": r"^(?!/)(?!(?:.*/)?\.\.(?:/|$))[^\\\u0000-\u001f\u007f]*$",
    ALLOWED: "text without a leading '/', '..' as a folder, backslashes, control characters",
}
"""The beginning of a file name."""


def in_properties(kind: Schema) -> Schema:
    """Return the kind as dotted keys take it: numbers and booleans may be text."""
    patterns = {"integer": _WHOLE_TEXT, "boolean": _FLAG_TEXT}
    name = kind.get("type")
    return _or_text(kind, patterns[name], name, kind[ALLOWED]) if name in patterns else kind


def exported(kind: Schema) -> Schema:
    """Return a kind as other programs read it, without the keywords of this engine."""
    plain = {key: value for key, value in kind.items() if key not in ENGINE_KEYWORDS}
    return plain | ({"items": exported(plain["items"])} if "items" in plain else {})


@dataclasses.dataclass(frozen=True, eq=False)
class Field:
    """A declared setting; see `setting`.

    Attributes:
        path: Its keys from the top of its block.
        schema: Its JSON Schema, with description and default.
        attribute: Its name in the dataclass.
        key: The last key of the path.
    """

    path: tuple[str, ...]
    schema: Schema
    make: Callable[[Json], Any]
    attribute: str = ""
    owner: str | None = None
    dotted: str | None = None
    side: Side | None = None
    required: bool = False
    key: str = ""

    @property
    def description(self) -> str:
        """What the setting does, with the strategy or policy that has it."""
        text = str(self.schema["description"])
        return f"({self.owner}) {text}" if self.owner else text

    @property
    def default(self) -> Json:
        """The default as a user would write it; None if it has none."""
        return self.schema.get("default")


def setting(
    kind: Schema,
    description: str,
    *,
    default: Json = None,
    unset: Json = None,
    key: str = "",
    required: bool = False,
    repr: bool = True,
    owner: str | None = None,
    dotted: str | None = None,
    side: Side | None = None,
    make: Callable[[Json], Any] | None = None,
    **keywords: Json,
) -> Any:
    """Declare a setting, as the default of a dataclass field.

    Args:
        kind: JSON Schema of its values.
        description: What it does, for schema and documentation.
        default: As a user would write it; None if it has none.
        unset: Value of the field if nothing is given and there is no default, or it differs.
        key: Its dotted path in the block, if that is not the name of the field.
        required: Whether it must be given.
        repr: Whether the dataclass shows it.
        owner: The strategy or policy that has it.
        dotted: Its dotted spelling, if that is not the path.
        side: The only program that has it.
        make: Turns a checked value into the one that the field holds; `read` if None.
        keywords: More keywords of JSON Schema, such as `examples` and `secret`.
    """
    schema = {**kind, **keywords, "description": description}
    if default is not None:
        schema["default"] = default
    path = tuple(key.split(".")) if key else ()
    make = make or partial(read, schema)
    declared = Field(path, schema, make, "", owner, dotted, side, required)
    more: dict[str, Any] = {"repr": repr, "metadata": {"setting": declared}}
    if required:
        return dataclasses.field(**more)
    value = make(default) if unset is None and default is not None else unset
    if isinstance(value, dict):
        return dataclasses.field(default_factory=lambda: dict(value), **more)
    return dataclasses.field(default=value, **more)


def group(owner: type, description: str, **defaults: Json) -> Any:
    """Declare a block of settings, as the default of a field that holds a dataclass.

    `defaults` differ from those of the fields of `owner`, that dataclass.
    """
    schema = schema_of(owner, description, **defaults)
    make = partial(typed, owner)
    return setting(schema, description, unset=make(with_defaults(schema, {})), make=make)


def typed(owner: type[T], values: Mapping[str, Json]) -> T:
    """Make a dataclass, whose keys are not dotted, of checked values; ignore other values."""
    declared = fields_of(owner)  # type: ignore[arg-type]  # It takes `type[T]` for unhashable.
    present = (field for field in declared if field.key in values)
    return owner(**{field.attribute: field.make(values[field.key]) for field in present})


@cache
def fields_of(owner: type) -> tuple[Field, ...]:
    """Return the settings that a dataclass declares."""
    settings = []
    for field in dataclasses.fields(owner):
        if "setting" in field.metadata:
            declared = field.metadata["setting"]
            path = declared.path or (field.name,)
            settings.append(
                dataclasses.replace(declared, path=path, key=path[-1], attribute=field.name)
            )
    return tuple(settings)


def schema_of(owner: type, description: str = "", **defaults: Json) -> Schema:
    """Build the JSON Schema of the settings that a dataclass declares; see `group`."""
    fields = fields_of(owner)
    schema = object_of({field.path: field.schema for field in fields})
    for name, default in defaults.items():
        schema["properties"][name] = {**schema["properties"][name], "default": default}
    required = [field.key for field in fields if field.required]
    schema |= {"required": required} if required else {}
    return schema | ({"description": description} if description else {})


def object_of(properties: Mapping[tuple[str, ...], Schema]) -> Schema:
    """Nest properties by their paths, in objects that take no other keys."""
    nested: dict[str, Schema] = {}
    for path, schema in properties.items():
        if len(path) == 1:
            nested[path[0]] = schema
        else:
            below = {other[1:]: item for other, item in properties.items() if other[0] == path[0]}
            nested[path[0]] = object_of(below)
    return {"type": "object", "properties": nested, "additionalProperties": False}


def block(schema: Schema) -> Schema:
    """Let the error of a block that is not an object hide its value, which may be a secret."""
    children = {
        name: block(child) if "properties" in child else child
        for name, child in schema["properties"].items()
    }
    return {**schema, "properties": children, WRONG: "must be an object"}
