"""Finds batch settings in a document, in both spellings, and reads each value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from shared.settings.batch.batch_settings import (
    BATCH_CONFIG,
    BLOCKS,
    DOTTED,
    FIELDS,
    GROUPS,
    PREFIXES,
    VARIANT_BLOCKS,
    VariantBlock,
    split_prefix,
)
from shared.settings.checking import (
    Json,
    Location,
    Problem,
    nearest,
    place,
    read,
    schema_problems,
    shown,
)
from shared.settings.kinds import Field, Schema, Side, block, in_properties, object_of

_MISSING: Any = object()


@dataclass
class Reading:
    """What one program finds in a document.

    Attributes:
        side: The program.
        is_shared: The document may be for either program.
        seen: Settings that are given, valid or not.
        found: Those of them that are valid: their paths and values.
        choices: The strategy and the policy; None if it is missing or invalid.
        blocks: Blocks that hold anything, known or not.
        problems: What is wrong so far.
    """

    side: Side
    is_shared: bool
    seen: set[Field] = field(default_factory=set)
    found: dict[Field, tuple[Location, Json]] = field(default_factory=dict)
    choices: dict[str, str | None] = field(default_factory=dict)
    blocks: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)

    def value(self, setting: Field) -> Json:
        """Return the value, or the default if none is given, or None."""
        if setting in self.found:
            return self.found[setting][1]
        return None if setting.default is None else read(setting.schema, setting.default)

    def is_known(self, setting: Field) -> bool:
        """Tell whether `value` says what the user meant: given and valid, or not given."""
        return setting in self.found or setting not in self.seen

    def path(self, setting: Field) -> Location:
        """Return the path of the setting in the document, or the nested one if it is not given."""
        return self.found[setting][0] if setting in self.found else setting.path

    def take(self, setting: Field, path: Location, schema: Schema, given: Json) -> None:
        """Keep a valid value; report it if another spelling gave a different one."""
        value = read(schema, given)
        first, known = self.found.setdefault(setting, (path, value))
        if known != value:
            other = f"{place(first)}, which sets the same thing; give one of them"
            text = shown(given)
            self.problems.append(Problem(path, f"{text} differs from {other}", text))


def read_document(config: Mapping[str, Any], side: Side, *, is_shared: bool = False) -> Reading:
    """Read every batch setting of a document.

    Args:
        config: The settings; other keys are ignored.
        side: The program to read it for.
        is_shared: Accept settings that only the other program has.
    """
    reading = Reading(side, is_shared)
    for variants in VARIANT_BLOCKS.values():
        reading.choices[variants.name] = _choice(reading, variants, config)
    for name in BLOCKS:
        _read_block(reading, name, config.get(name, {}))
    _read_dotted(reading, config)
    return reading


def _available(reading: Reading, name: str) -> list[Field]:
    if name in VARIANT_BLOCKS:
        return VARIANT_BLOCKS[name].available(reading.choices[name])
    return [setting for setting in BATCH_CONFIG if setting.side in (None, reading.side)]


def _read_block(reading: Reading, name: str, value: Json) -> None:
    # Without a choice, settings of several owners have one key; the first of them counts.
    fields = {setting.path[1:]: setting for setting in reversed(_available(reading, name))}
    schema = block(object_of({path: setting.schema for path, setting in fields.items()}))
    problems = list(schema_problems(schema, value, (name,), partial(_unknown_key, reading)))
    reading.problems += problems
    if _holds_anything(value):
        reading.blocks.add(name)
    for path, setting in fields.items():
        given = _at(value, path)
        if given is not _MISSING:
            reading.seen.add(setting)
            if all(problem.path[: len(setting.path)] != setting.path for problem in problems):
                reading.take(setting, setting.path, setting.schema, given)


def _at(value: Json, path: Iterable[str]) -> Json:
    for key in path:
        value = value.get(key, _MISSING) if isinstance(value, Mapping) else _MISSING
    return value


def _holds_anything(value: Json) -> bool:
    return isinstance(value, Mapping) and any(
        key not in GROUPS or item != {} for key, item in value.items()
    )


def _unknown_key(reading: Reading, _: Schema, path: Location, value: Json) -> Problem | None:
    name, key = str(path[0]), str(path[-1])
    named = [setting for setting in FIELDS if setting.path == path]
    if name in VARIANT_BLOCKS:
        variants = VARIANT_BLOCKS[name]
        if named:
            return _foreign_key(reading, variants, path, named[0].key, value)
        keys = list(dict.fromkeys(s.key for s in variants.available(reading.choices[name])))
        dotted = DOTTED.get(".".join(map(str, path)))
        # Text under an unknown key could be a secret.
        text = None if isinstance(value, str) else shown(value)
        match = dotted.key if dotted else nearest(key, keys)
        return Problem(path, "unknown key", text, _listed(keys), match)
    if not named:
        return _unknown_config_key(path)
    if not reading.is_shared:
        return Problem(path, f"is a setting of {named[0].side}-spark only")
    reading.seen.update(named)
    return None


def _unknown_config_key(path: Location) -> Problem:
    paths = [setting.path for setting in BATCH_CONFIG]
    depth = len(path)
    siblings = sorted({p[depth - 1] for p in paths if p[: depth - 1] == path[:-1]})
    elsewhere = {p[-1]: ".".join(p[1:]) for p in paths}
    key = str(path[-1])
    match = nearest(key, siblings) or elsewhere.get(nearest(key, elsewhere) or "")
    return Problem(path, "unknown key", allowed=_listed(siblings), nearest=match)


def _choice(reading: Reading, block: VariantBlock, config: Mapping[str, Any]) -> str | None:
    """Return the one valid choice that is given; the default if none is given."""
    values = [config[key] for key, found in _counting(reading, config) if found is block.chooser]
    nested = _at(config.get(block.name), [block.chooser.key])
    values += [] if nested is _MISSING else [nested]
    if not values:
        return block.default
    reading.seen.add(block.chooser)
    right = {value for value in values if isinstance(value, str) and value in block.variants}
    return right.pop() if len(right) == 1 else None


def _foreign_key(
    reading: Reading, block: VariantBlock, path: Location, name: str, value: Json
) -> Problem:
    """Report a setting of another choice; `name` is its key in its spelling."""
    chosen = reading.choices[block.name]
    is_dotted = len(path) == 1
    names = {other: (other.dotted if is_dotted else other.key) or "" for other in block.fields}
    mine = next(other for other in block.fields if names[other] == name)
    owners = [other.owner for other in block.fields if names[other] == name]
    message = f"belongs to {block.noun} {' and '.join(map(repr, owners))}, not to {chosen!r}"
    if block.chooser not in reading.seen:
        message += f" (the {block.noun} if none is given)"
    available = block.available(chosen)
    twin = next((names[other] for other in available if other.key == mine.key), None)
    allowed = _listed(names[other] for other in available)
    return Problem(path, message, shown(value), allowed, twin)


def _read_dotted(reading: Reading, config: Mapping[str, Any]) -> None:
    for key in map(str, config):
        prefix, name = split_prefix(key)
        is_ours = prefix or name.startswith(tuple(f"{block}." for block in BLOCKS))
        if key not in BLOCKS and name not in DOTTED and is_ours:
            reading.problems.append(_unknown_dotted_key(reading, key))
    for key, setting in _counting(reading, config):
        variants = VARIANT_BLOCKS[setting.path[0]]
        reading.blocks.add(variants.name)
        if setting not in variants.available(reading.choices[variants.name]):
            problem = _foreign_key(reading, variants, (key,), setting.dotted or "", config[key])
            reading.problems.append(problem)
            continue
        reading.seen.add(setting)
        schema = in_properties(setting.schema)
        problems = list(schema_problems(schema, config[key], (key,)))
        reading.problems += problems
        if not problems:
            reading.take(setting, (key,), schema, config[key])


def _counting(reading: Reading, config: Mapping[str, Any]) -> Iterator[tuple[str, Field]]:
    """Yield the dotted keys that the program reads."""
    for key in map(str, config):
        prefix, name = split_prefix(key)
        if name in DOTTED and PREFIXES.get(prefix, reading.side) == reading.side:
            yield key, DOTTED[name]


def _unknown_dotted_key(reading: Reading, key: str) -> Problem:
    prefix, name = split_prefix(key)
    path = tuple(name.split("."))
    same = [setting for setting in FIELDS if setting.path == path]
    message = "unknown dotted key"
    if same and same[0] in BATCH_CONFIG:
        return Problem((key,), f"{message}; write it nested, as {place(path)}")
    fitting = [o for o in same if o.owner in (None, reading.choices.get(path[0]))] or same
    match = fitting[0].dotted if fitting else nearest(name, DOTTED)
    allowed = None if match else _listed(DOTTED)
    return Problem((key,), message, allowed=allowed, nearest=match and prefix + match)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, dict.fromkeys(names)))
