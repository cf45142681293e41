"""Settings of stream maps and flattening, shared by both programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.maps.map_rules import MapRules, map_rules
from shared.settings.checking import Problem
from shared.settings.loading import KEEP

PROPERTIES: dict[str, Any] = {
    "stream_maps": {
        "type": "object",
        # Not a schema: keys hold dots and patterns, and null means something.
        "additionalProperties": True,
        KEEP: True,
        "default": {},
        "description": "Changes to streams and their properties, by stream name or pattern: "
        "expressions for new and changed properties, null to drop, and the options "
        "`__filter__`, `__alias__`, `__source__`, `__else__` and `__key_properties__`; see "
        "docs/stream-maps.md.",
        "examples": [{"orders": {"total": "price * quantity", "note": None}}],
    },
    "stream_map_config": {
        "type": "object",
        "secret": True,
        "additionalProperties": True,
        KEEP: True,
        "default": {},
        "description": "Values that expressions read as `config['name']`, such as `hash_salt`.",
    },
    "faker_config": {
        "type": "object",
        "additionalProperties": False,
        "description": "Settings of `fake` in expressions (needs the extra `faker`).",
        "properties": {
            "seed": {
                "type": ["number", "string", "boolean"],
                "description": "Seed that makes results the same in every run.",
            },
            "locale": {
                "type": ["string", "array"],
                "items": {"type": "string"},
                "description": "One or more locales, such as `de_DE`.",
            },
        },
    },
    "flattening_enabled": {
        "type": "boolean",
        "default": False,
        "description": "Turn the fields of nested objects into columns, and arrays and objects "
        "with arbitrary keys into JSON text; see docs/flattening.md.",
    },
    "flattening_max_depth": {
        "type": "integer",
        "minimum": 0,
        "description": "Levels of nested objects to flatten; deeper ones become JSON text. "
        "Required with `flattening_enabled`.",
    },
    "flattening_max_key_length": {
        "type": "integer",
        "minimum": 1,
        "default": 255,
        "description": "Shorten names that have at least this many characters.",
    },
    "flattening_separator": {
        "type": "string",
        "default": "__",
        "description": "Separator between the parts of a flattened name.",
    },
}
"""For the settings schema of a program."""


@dataclass(frozen=True)
class Flattening:
    """How nested objects are flattened.

    Attributes:
        max_depth: Levels; at least 1.
        separator: Between names.
        max_key_length: Names this long or longer are shortened.
    """

    max_depth: int
    separator: str = "__"
    max_key_length: int = 255


@dataclass(frozen=True)
class TransformSettings:
    """The transforms of records between reading and writing.

    Attributes:
        maps: `stream_maps`.
        config: `stream_map_config`; may hold secrets.
        faker: `faker_config`.
        flattening: None if records are not flattened.
    """

    maps: MapRules = field(default_factory=MapRules)
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    faker: Mapping[str, Any] = field(default_factory=dict)
    flattening: Flattening | None = None

    @property
    def active(self) -> bool:
        """Whether any stream is changed."""
        return self.maps != MapRules() or self.flattening is not None


def transform_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Check the maps, as far as possible without a stream, and the rules between fields."""
    maps = settings.get("stream_maps")
    problems: list[Problem] = []
    if isinstance(maps, Mapping):
        map_rules(maps, problems)
    yield from problems
    if settings.get("flattening_enabled") is True and "flattening_max_depth" not in settings:
        yield Problem((), "'flattening_max_depth' is required if 'flattening_enabled' is true")


def transform_settings(values: Mapping[str, Any]) -> TransformSettings:
    """Return the settings of this module from validated settings with their defaults."""
    depth = int(values.get("flattening_max_depth") or 0)
    flattening = None
    if values.get("flattening_enabled") and depth > 0:
        flattening = Flattening(
            depth, values["flattening_separator"], int(values["flattening_max_key_length"])
        )
    return TransformSettings(
        maps=map_rules(values.get("stream_maps") or {}, []),
        config=values.get("stream_map_config") or {},
        faker=values.get("faker_config") or {},
        flattening=flattening,
    )
