"""Finds batch settings in a document, in both spellings, and reads each value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.batch_fields import (
    BATCH_CONFIG,
    BLOCKS,
    DOTTED,
    PREFIXES,
    VARIANT_BLOCKS,
    Field,
    VariantBlock,
)
from shared.batch_kinds import Fault, RefusedValueError, in_properties, shown
from shared.batch_types import KeyPath, Problem, Side
from shared.settings_check import Json, nearest, place

_CONFIG_FIELDS = {setting.path: setting for setting in BATCH_CONFIG}
_CONFIG_GROUPS = {setting.path[:end] for setting in BATCH_CONFIG for end in (1, 2)} - {
    *_CONFIG_FIELDS
}
_OURS = tuple(f"{name}." for name in BLOCKS)


@dataclass(frozen=True)
class Given:
    """A setting as it stands in the document."""

    path: KeyPath
    field: Field
    value: Json
    is_dotted: bool = False


@dataclass(frozen=True)
class Found:
    """A setting whose value is right, in its one unit."""

    path: KeyPath
    value: Json


@dataclass
class Reading:
    """What one program finds in a document.

    Attributes:
        side: The program.
        is_shared: The document may be for either program.
        seen: Settings that are given, right or wrong.
        found: Those of them that are right.
        choices: The strategy and the policy; None where it is missing or wrong.
        blocks: Blocks that hold anything, known or not.
        problems: What is wrong so far.
    """

    side: Side
    is_shared: bool
    seen: set[Field] = field(default_factory=set)
    found: dict[Field, Found] = field(default_factory=dict)
    choices: dict[str, str | None] = field(default_factory=dict)
    blocks: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)

    def value(self, setting: Field) -> Json:
        """Return the value, or the default where none is given, or None."""
        if setting in self.found:
            return self.found[setting].value
        return None if setting.default is None else setting.kind.read(setting.default)

    def is_known(self, setting: Field) -> bool:
        """Tell whether `value` says what the user meant: given and right, or not given."""
        return setting in self.found or setting not in self.seen

    def path(self, setting: Field) -> KeyPath:
        """Return where the setting stands, or would stand."""
        return self.found[setting].path if setting in self.found else setting.path


def read_document(config: Mapping[str, Any], side: Side, *, is_shared: bool = False) -> Reading:
    """Read every batch setting of a document.

    Args:
        config: The settings; keys that are no batch settings are passed over.
        side: The program to read it for.
        is_shared: Settings that only the other program has are no problem.
    """
    reading = Reading(side, is_shared)
    given = list(_config_settings(reading, ("batch_config",), config.get("batch_config", {})))
    for block in VARIANT_BLOCKS:
        given += _nested_settings(reading, block, config)
    given += _dotted_settings(reading, config)
    for setting in given:
        _accept(reading, setting)
    return reading


def _accept(reading: Reading, given: Given) -> None:
    reading.seen.add(given.field)
    try:
        kind = in_properties(given.field.kind) if given.is_dotted else given.field.kind
        value = kind.read(given.value)
    except RefusedValueError as error:
        reading.problems += (_fault_problem(given.path, fault) for fault in error.faults)
        return
    first = reading.found.setdefault(given.field, Found(given.path, value))
    if first.value != value:
        other = f"{place(first.path)}, which sets the same thing; give one of them"
        text = shown(given.value)
        reading.problems.append(Problem(given.path, f"{text} differs from {other}", text))


def _fault_problem(path: KeyPath, fault: Fault) -> Problem:
    message = f"{fault.value} {fault.message}"
    return Problem((*path, *fault.at), message, fault.value, fault.allowed, fault.nearest)


def _config_settings(reading: Reading, path: tuple[str, ...], value: Json) -> Iterator[Given]:
    if not isinstance(value, Mapping):
        # The value is hidden: it may be a secret that stands one level too high.
        reading.problems.append(Problem(path, "must be an object"))
        return
    for key, item in value.items():
        below = (*path, str(key))
        setting = _CONFIG_FIELDS.get(below)
        if below in _CONFIG_GROUPS:
            yield from _config_settings(reading, below, item)
            continue
        reading.blocks.add(path[0])
        if setting is None:
            reading.problems.append(_unknown_config_key(below))
        elif setting.side not in (None, reading.side) and not reading.is_shared:
            message = f"is a setting of {setting.side}-spark only"
            reading.problems.append(Problem(below, message))
        elif setting.side in (None, reading.side):
            yield Given(below, setting, item)
        else:
            reading.seen.add(setting)


def _unknown_config_key(path: tuple[str, ...]) -> Problem:
    known = [*_CONFIG_FIELDS, *_CONFIG_GROUPS]
    siblings = sorted(other[-1] for other in known if other[:-1] == path[:-1])
    elsewhere = {other[-1]: ".".join(other[1:]) for other in _CONFIG_FIELDS}
    match = nearest(path[-1], siblings) or elsewhere.get(nearest(path[-1], elsewhere) or "")
    return Problem(path, "unknown key", allowed=_listed(siblings), nearest=match)


def _nested_settings(
    reading: Reading, block: VariantBlock, config: Mapping[str, Any]
) -> Iterator[Given]:
    nested = config.get(block.name, {})
    choice = _choice(reading, block, config)
    reading.choices[block.name] = choice
    if not isinstance(nested, Mapping):
        reading.problems.append(Problem((block.name,), "must be an object", shown(nested)))
        return
    for key, item in nested.items():
        path = (block.name, str(key))
        reading.blocks.add(block.name)
        setting = _field(block, path[-1], choice)
        if setting is None:
            reading.problems.append(_unknown_nested_key(block, path, choice, item))
        elif _is_foreign(setting, choice):
            reading.problems.append(_foreign_key(reading, block, Given(path, setting, item)))
        else:
            yield Given(path, setting, item)


def _choice(reading: Reading, block: VariantBlock, config: Mapping[str, Any]) -> str | None:
    dotted = {key for key, setting in _counting(reading, config) if setting is block.chooser}
    values = [value for key, value in config.items() if key in dotted]
    nested = config.get(block.name)
    if isinstance(nested, Mapping) and block.chooser.key in nested:
        values.append(nested[block.chooser.key])
    if not values:
        return block.default
    reading.seen.add(block.chooser)
    right = {value for value in values if isinstance(value, str) and value in block.variants}
    return right.pop() if len(right) == 1 else None


def _field(block: VariantBlock, key: str, choice: str | None) -> Field | None:
    fields = [setting for setting in block.fields if setting.key == key]
    return next((setting for setting in fields if not _is_foreign(setting, choice)), None) or next(
        iter(fields), None
    )


def _is_foreign(setting: Field, choice: str | None) -> bool:
    return setting.owner is not None and choice is not None and setting.owner != choice


def _available(block: VariantBlock, choice: str | None) -> list[Field]:
    return [setting for setting in block.fields if not _is_foreign(setting, choice)]


def _unknown_nested_key(
    block: VariantBlock, path: tuple[str, str], choice: str | None, value: Json
) -> Problem:
    keys = list(dict.fromkeys(setting.key for setting in _available(block, choice)))
    dotted = DOTTED.get(".".join(path))
    match = dotted.key if dotted else nearest(path[-1], keys)
    return Problem(path, "unknown key", _hidden_text(value), _listed(keys), match)


def _foreign_key(reading: Reading, block: VariantBlock, given: Given) -> Problem:
    choice = reading.choices[block.name]
    names = {other: _name(other, given.is_dotted) for other in block.fields}
    name = names[given.field]
    owners = [other.owner for other in block.fields if names[other] == name]
    message = f"belongs to {block.noun} {' and '.join(map(repr, owners))}, not to {choice!r}"
    if block.chooser not in reading.seen:
        message += f" (the {block.noun} where none is given)"
    available = _available(block, choice)
    twin = next((names[other] for other in available if other.key == given.field.key), None)
    allowed = _listed(names[other] for other in available)
    return Problem(given.path, message, shown(given.value), allowed, twin)


def _name(setting: Field, is_dotted: bool) -> str:
    return (setting.dotted if is_dotted else None) or setting.key


def _dotted_settings(reading: Reading, config: Mapping[str, Any]) -> Iterator[Given]:
    for key in config:
        prefix, name = split_prefix(str(key))
        if key not in BLOCKS and name not in DOTTED and (prefix or name.startswith(_OURS)):
            reading.problems.append(_unknown_dotted_key(reading, str(key)))
    for key, setting in _counting(reading, config):
        block = next(block for block in VARIANT_BLOCKS if block.name == setting.path[0])
        choice = reading.choices[block.name]
        reading.blocks.add(block.name)
        if _is_foreign(setting, choice):
            given = Given((key,), setting, config[key], is_dotted=True)
            reading.problems.append(_foreign_key(reading, block, given))
        else:
            yield Given((key,), setting, config[key], is_dotted=True)


def split_prefix(key: str) -> tuple[str, str]:
    """Split a dotted key into `source.` or `sink.`, or nothing, and the rest."""
    prefix = next((prefix for prefix in PREFIXES if key.startswith(prefix)), "")
    return prefix, key[len(prefix) :]


def _counting(reading: Reading, config: Mapping[str, Any]) -> Iterator[tuple[str, Field]]:
    """Yield the dotted keys that count for the program of the reading."""
    for key in config:
        prefix, name = split_prefix(str(key))
        if name in DOTTED and PREFIXES.get(prefix, reading.side) == reading.side:
            yield str(key), DOTTED[name]


def _unknown_dotted_key(reading: Reading, key: str) -> Problem:
    prefix, name = split_prefix(key)
    path = tuple(name.split("."))
    fields = [setting for block in VARIANT_BLOCKS for setting in block.fields]
    same = [setting for setting in fields if setting.path == path]
    fitting = [o for o in same if o.owner in (None, reading.choices.get(path[0]))] or same
    match = fitting[0].dotted if fitting else nearest(name, DOTTED)
    message = "unknown dotted key"
    if path in _CONFIG_FIELDS:
        return Problem((key,), f"{message}; write it nested, as {place(path)}")
    allowed = None if match else _listed(DOTTED)
    return Problem((key,), message, allowed=allowed, nearest=match and prefix + match)


def _hidden_text(value: Json) -> str | None:
    """Show a value under an unknown key, which could be a secret where it is text."""
    return None if isinstance(value, str) else shown(value)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, dict.fromkeys(names)))
