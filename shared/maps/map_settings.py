"""Settings of stream maps and flattening, shared by both programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from shared.maps.map_rules import MapRules, map_rules
from shared.settings.checking import Problem
from shared.settings.kinds import (
    ANY_TEXT,
    FREE,
    SWITCH,
    Schema,
    at_least,
    object_of,
    schema_of,
    setting,
    typed,
)
from shared.settings.loading import KEEP


@dataclass(frozen=True)
class Flattening:
    """How nested objects are flattened."""

    enabled: bool = setting(
        SWITCH,
        "Turn the fields of nested objects into columns, and arrays and objects with arbitrary "
        "keys into JSON text; see `singer-spark docs stream-maps#flattening`.",
        default=False,
        key="flattening_enabled",
    )
    max_depth: int = setting(
        at_least(0),
        "Levels of nested objects to flatten; deeper ones become JSON text. Required with "
        "`flattening_enabled`.",
        unset=0,
        key="flattening_max_depth",
    )
    max_key_length: int = setting(
        at_least(1),
        "Shorten names that have at least this many characters.",
        default=255,
        key="flattening_max_key_length",
    )
    separator: str = setting(
        ANY_TEXT,
        "Separator between the parts of a flattened name.",
        default="__",
        key="flattening_separator",
    )

    @property
    def active(self) -> bool:
        """Whether records are flattened."""
        return self.enabled and self.max_depth > 0


@dataclass(frozen=True)
class TransformSettings:
    """The transforms of records between reading and writing."""

    maps: MapRules = setting(
        {**FREE, KEEP: True},
        "Changes to streams and their properties, by stream name or pattern: expressions for new "
        "and changed properties, null to drop, and the options `__filter__`, `__alias__`, "
        "`__source__`, `__explode__`, `__index__`, `__else__` and `__key_properties__`; see "
        "`singer-spark docs stream-maps`.",
        default={},
        key="stream_maps",
        make=lambda maps: map_rules(maps, []),
        examples=[{"orders": {"total": "price * quantity", "note": None}}],
    )
    config: Mapping[str, Any] = setting(
        {**FREE, KEEP: True},
        "Values that expressions read as `config['name']`, such as `hash_salt`.",
        default={},
        key="stream_map_config",
        repr=False,
        secret=True,
    )
    faker: Mapping[str, Any] = setting(
        object_of(
            {
                ("seed",): {
                    "type": ["number", "string", "boolean"],
                    "description": "Seed that makes results the same in every run.",
                },
                ("locale",): {
                    "type": ["string", "array"],
                    "items": ANY_TEXT,
                    "description": "One or more locales, such as `de_DE`.",
                },
            }
        ),
        "Settings of `fake` in expressions (needs the extra `faker`).",
        unset={},
        key="faker_config",
        make=dict,
    )
    flattening: Flattening = field(default_factory=Flattening)

    @property
    def active(self) -> bool:
        """Whether any stream is changed."""
        return self.maps != MapRules() or self.flattening.active


PROPERTIES: Schema = {
    **schema_of(TransformSettings)["properties"],
    **schema_of(Flattening)["properties"],
}
"""For the settings schema of a program."""


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
    return replace(typed(TransformSettings, values), flattening=typed(Flattening, values))
