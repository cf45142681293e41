"""The batch settings of a document: read in both spellings, checked together, as a schema.

Warnings name flushes that are too small for Spark. The schema (draft 2020-12) is for editors and
`--about`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from shared.encodings.encoding_format import batch_formats
from shared.settings.batch_settings import (
    BATCH,
    BATCH_CONFIG,
    BLOCKS,
    COMPRESSION,
    COMPRESSIONS,
    DEAD_LETTER_PATH,
    DEFAULT_COMPRESSION,
    DOTTED,
    DOTTED_KEYS,
    ENABLE,
    EXCLUDE,
    FAILURE,
    FIELDS,
    FILE_PREFIX,
    FORMAT,
    GROUPS,
    INCLUDE,
    LEVEL,
    LEVELS,
    MAX_SIZE,
    MIN_SIZE,
    ORDERED_POLICIES,
    PARALLEL,
    POLICY,
    PREFIXES,
    REUSE_BUFFER,
    ROOT,
    STRATEGY,
    TARGET_LATENCY,
    VARIANT_BLOCKS,
    Strategy,
    VariantBlock,
    is_batch_key,
    split_prefix,
)
from shared.settings.checking import (
    ALLOWED,
    HIDDEN,
    OTHER_SPELLING,
    UNIT,
    Json,
    Location,
    Problem,
    nearest,
    read,
    schema_problems,
    setting_place,
    shown_setting,
    size_text,
)
from shared.settings.kinds import Field, Schema, Side, block, exported, in_properties, object_of

_MISSING: Any = object()
_NULL_IF_UNSET = [COMPRESSION.path, FILE_PREFIX.path]
"""Settings that are null in the Meltano SDK if they are not set."""
_NAMES_OF_SDK = {"params": "options"}


@dataclass
class Reading:
    """What one program finds in a document.

    Attributes:
        side: The program.
        is_shared: The document may be for either program.
        seen: Settings that are given, valid or not.
        entries: Those of them that are valid: their paths and values.
        choices: The strategy and the policy; None if it is missing or invalid.
        blocks: Blocks that hold anything, known or not.
        problems: What is wrong so far.
    """

    side: Side
    is_shared: bool
    seen: set[Field] = dataclasses.field(default_factory=set)
    entries: dict[Field, tuple[Location, Json]] = dataclasses.field(default_factory=dict)
    choices: dict[str, str | None] = dataclasses.field(default_factory=dict)
    blocks: set[str] = dataclasses.field(default_factory=set)
    problems: list[Problem] = dataclasses.field(default_factory=list)

    def value(self, setting: Field) -> Json:
        """Return the value, or the default if none is given, or None."""
        if setting in self.entries:
            return self.entries[setting][1]
        return None if setting.default is None else read(setting.schema, setting.default)

    def is_known(self, setting: Field) -> bool:
        """Tell whether `value` says what the user meant: given and valid, or not given."""
        return setting in self.entries or setting not in self.seen

    def path(self, setting: Field) -> Location:
        """Return the path of the setting in the document, or the nested one if it is not given."""
        return self.entries[setting][0] if setting in self.entries else setting.path

    def take(self, setting: Field, path: Location, schema: Schema, json: Json) -> None:
        """Keep a valid value; report it if another spelling gave a different one."""
        value = read(schema, json)
        first, earlier = self.entries.setdefault(setting, (path, value))
        if earlier != value:
            other = f"{setting_place(first)}, which sets the same thing; give one of them"
            text = shown_setting(json)
            self.problems.append(Problem(path, f"{text} differs from {other}", text))


def read_document(config: Mapping[str, Any], side: Side, *, is_shared: bool = False) -> Reading:
    """Read every batch setting of a document, by the engine of all settings.

    Args:
        is_shared: Accept settings that only the other program has.
    """
    reading = Reading(side, is_shared)
    for variants in VARIANT_BLOCKS.values():
        reading.choices[variants.name] = _choice(reading, variants, config)
    dotted = dict(_counting(reading, config))
    reading.blocks |= {name for name in BLOCKS if _holds_anything(config.get(name))}
    reading.blocks |= {setting.path[0] for setting in dotted.values()}
    available = [setting for name in BLOCKS for setting in _available(reading, name)]
    # Without a choice, settings of several owners have one key; the first of them counts.
    places = {setting.path: (setting, setting.schema) for setting in reversed(available)}
    for key, setting in dotted.items():
        if setting in available:
            places[(key,)] = setting, in_properties(setting.schema)
    schema = block(object_of({path: schema for path, (_, schema) in places.items()}))
    of_others = set(DOTTED_KEYS) - dotted.keys()
    ours = {key: config[key] for key in config if is_batch_key(str(key)) and key not in of_others}
    unknown = partial(_unknown_key, reading)
    unset = {path for path in _NULL_IF_UNSET if _at(config, path) is None}
    every = schema_problems(schema, ours, (), unknown)
    reading.problems += (problems := [problem for problem in every if problem.path not in unset])
    for path, (setting, kind) in places.items():
        value = _at(config, path)
        if value is not _MISSING and path not in unset:
            reading.seen.add(setting)
            if all(problem.path[: len(path)] != path for problem in problems):
                reading.take(setting, path, kind, value)
    return reading


def _available(reading: Reading, name: str) -> list[Field]:
    if name in VARIANT_BLOCKS:
        return VARIANT_BLOCKS[name].available(reading.choices[name])
    return [setting for setting in BATCH_CONFIG if setting.side in (None, reading.side)]


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
    if len(path) == 1:
        return _unknown_dotted_key(reading, key, value)
    named = [setting for setting in FIELDS if setting.path == path]
    if name in VARIANT_BLOCKS:
        variants = VARIANT_BLOCKS[name]
        if named:
            return _foreign_key(reading, variants, path, named[0].key, value)
        keys = list(dict.fromkeys(s.key for s in variants.available(reading.choices[name])))
        dotted = DOTTED.get(".".join(map(str, path)))
        # Text under an unknown key could be a secret.
        text = None if isinstance(value, str) else shown_setting(value)
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
    key = _NAMES_OF_SDK.get(str(path[-1]), str(path[-1]))
    match = nearest(key, siblings) or elsewhere.get(nearest(key, elsewhere) or "")
    return Problem(path, "unknown key", allowed=_listed(siblings), nearest=match)


def _choice(reading: Reading, block: VariantBlock, config: Mapping[str, Any]) -> str | None:
    """Return the one valid choice that is given; the default if none is given."""
    values = [
        config[key] for key, setting in _counting(reading, config) if setting is block.chooser
    ]
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
    return Problem(path, message, shown_setting(value), allowed, twin)


def _counting(reading: Reading, config: Mapping[str, Any]) -> Iterator[tuple[str, Field]]:
    """Yield the dotted keys that the program reads."""
    for key in map(str, config):
        prefix, name = split_prefix(key)
        if name in DOTTED and PREFIXES.get(prefix, reading.side) == reading.side:
            yield key, DOTTED[name]


def _unknown_dotted_key(reading: Reading, key: str, value: Json) -> Problem:
    prefix, name = split_prefix(key)
    if name in DOTTED:
        return _foreign_key(reading, VARIANT_BLOCKS[DOTTED[name].path[0]], (key,), name, value)
    path = tuple(name.split("."))
    same = [setting for setting in FIELDS if setting.path == path]
    message = "unknown dotted key"
    if same and same[0] in BATCH_CONFIG:
        return Problem((key,), f"{message}; write it nested, as {setting_place(path)}")
    fitting = [o for o in same if o.owner in (None, reading.choices.get(path[0]))] or same
    match = fitting[0].dotted if fitting else nearest(name, DOTTED)
    allowed = None if match else _listed(DOTTED)
    return Problem((key,), message, allowed=allowed, nearest=match and prefix + match)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, dict.fromkeys(names)))


ROWS_PER_SECOND = 10_000
BYTES_PER_SECOND = 10 * 1024 * 1024
"""A strategy that cannot load this fast because of its commits gets a warning."""

COMMITS_PER_WAIT = 2
"""A wait shorter than this many commits gets a warning: commits then take most of the time."""


def rule_problems(reading: Reading) -> Iterator[Problem]:
    """Yield what is wrong between settings that are valid by themselves."""
    for rule in (
        _root_problems,
        _package_problems,
        _compression_problems,
        _level_problems,
        _pattern_problems,
        _strategy_problems,
        _size_problems,
        _dead_letter_problems,
        _order_problems,
    ):
        yield from rule(reading)


def _root_problems(reading: Reading) -> Iterator[Problem]:
    if "batch_config" not in reading.blocks or reading.side != "tap" or ROOT in reading.seen:
        return
    # A document for either program that has keys only the target knows is the target's.
    if not any(field.side == "target" for field in reading.seen & set(BATCH_CONFIG)):
        yield Problem(ROOT.path, "is required", allowed=ROOT.schema[ALLOWED])


def _package_problems(reading: Reading) -> Iterator[Problem]:
    """Only the tap writes the format of the settings; the target reads what messages name."""
    if reading.side != "tap" or FORMAT not in reading.entries or not reading.is_known(FORMAT):
        return
    if missing := batch_formats()[reading.value(FORMAT)].missing():
        yield Problem(reading.path(FORMAT), missing)


def compression(reading: Reading) -> str:
    """Return the compression of the batch files: the given one, or the default of the format."""
    if COMPRESSION in reading.entries:
        return str(reading.value(COMPRESSION))
    return DEFAULT_COMPRESSION[reading.value(FORMAT)]


def _compression_problems(reading: Reading) -> Iterator[Problem]:
    if COMPRESSION not in reading.entries or not reading.is_known(FORMAT):
        return
    file_format, packed = reading.value(FORMAT), reading.value(COMPRESSION)
    supported = COMPRESSIONS[file_format]
    if packed not in supported:
        message = f"{packed!r} is not a compression of format {file_format!r}"
        allowed = ", ".join(map(repr, supported))
        path = reading.path(COMPRESSION)
        yield Problem(path, message, repr(packed), allowed, nearest(packed, supported))


def _level_problems(reading: Reading) -> Iterator[Problem]:
    is_known = reading.is_known(FORMAT) and reading.is_known(COMPRESSION)
    if LEVEL not in reading.entries or not is_known:
        return
    file_format, packed, level = reading.value(FORMAT), compression(reading), reading.value(LEVEL)
    highest = LEVELS[file_format].get(packed)
    if highest is None:
        supported = ", ".join(map(repr, LEVELS[file_format])) or "none"
        message = (
            f"compression {packed!r} of format {file_format!r} has no levels (with: {supported})"
        )
        yield Problem(reading.path(LEVEL), message, str(level))
    elif level > highest:
        message = f"{level} is above the highest level of compression {packed!r}, {highest}"
        yield Problem(reading.path(LEVEL), message, str(level))


def _pattern_problems(reading: Reading) -> Iterator[Problem]:
    if INCLUDE not in reading.entries or EXCLUDE not in reading.entries:
        return
    included = reading.value(INCLUDE)
    for index, pattern in enumerate(reading.value(EXCLUDE)):
        if pattern in included:
            message = f"{pattern!r} is also in 'include_streams'; give it in one of them"
            yield Problem((*reading.path(EXCLUDE), index), message, repr(pattern))


def _strategy_problems(reading: Reading) -> Iterator[Problem]:
    is_on = reading.value(ENABLE) if reading.is_known(ENABLE) else True
    if "batch" in reading.blocks and STRATEGY not in reading.seen and is_on:
        yield Problem(STRATEGY.path, "is required", allowed=STRATEGY.schema[ALLOWED])


def _size_problems(reading: Reading) -> Iterator[Problem]:
    sizes = (MIN_SIZE, MAX_SIZE)
    is_adaptive = reading.choices["batch"] == MIN_SIZE.owner
    if not is_adaptive or not all(reading.is_known(size) for size in sizes):
        return
    least, most = (reading.value(size) for size in sizes)
    if least > most:
        first, other = sizes if MIN_SIZE in reading.entries else reversed(sizes)
        value = reading.value(first)
        compared = "above" if first is MIN_SIZE else "below"
        note = "" if other in reading.entries else ", its default"
        than = f"{setting_place(reading.path(other))} ({reading.value(other)}{note})"
        message = f"{value} is {compared} {than}"
        yield Problem(reading.path(first), message, str(value))


def _dead_letter_problems(reading: Reading) -> Iterator[Problem]:
    is_needed = reading.choices["failure"] == DEAD_LETTER_PATH.owner
    if is_needed and DEAD_LETTER_PATH not in reading.seen:
        message = "is required by policy 'SendToDLQ'"
        yield Problem(DEAD_LETTER_PATH.path, message, allowed=DEAD_LETTER_PATH.schema[ALLOWED])


def needs_order(reading: Reading) -> bool:
    """Tell whether the policy loads the batches of a stream one after the other."""
    return reading.choices["failure"] in ORDERED_POLICIES


def _order_problems(reading: Reading) -> Iterator[Problem]:
    is_parallel = PARALLEL in reading.entries and reading.value(PARALLEL)
    if is_parallel and needs_order(reading):
        policy = reading.value(POLICY)
        message = f"true conflicts with policy {policy!r}, which keeps the order of batches"
        yield Problem(reading.path(PARALLEL), message, "true", "false, or another policy")


def effect_warnings(reading: Reading) -> Iterator[str]:
    """Yield a warning for each setting that is given and has no effect."""
    if REUSE_BUFFER in reading.entries and reading.side == "target":
        yield (
            f"{setting_place(reading.path(REUSE_BUFFER))}: has no effect, as no flush has a buffer "
            "of its own that could be reused: lines go from the pipe straight to disk"
        )


def cost_warnings(
    strategy: Strategy, commit_seconds: float, paths: Mapping[str, Location]
) -> Iterator[str]:
    """Yield a warning for each setting of a strategy that makes flushes too small for Spark.

    `commit_seconds` is the measured duration of a commit; `paths` are those of the settings.
    """
    for field in BATCH.variants[strategy.name]:
        text = _cost(field, getattr(strategy, field.attribute), commit_seconds)
        if text:
            yield f"{setting_place(paths[field.key])}: {text}"


def _cost(field: Field, value: Json, commit_seconds: float) -> str | None:
    """Say what a value of one setting costs, if it makes flushes too small."""
    cost = f"a commit takes about {commit_seconds:g} s"
    unit = field.schema.get(UNIT) or field.schema["type"]
    if field is TARGET_LATENCY:
        if value < commit_seconds:
            return f"{value:g} s cannot be reached, as {cost} however few its rows are"
    elif unit == "integer" and field is not MIN_SIZE:
        if value < ROWS_PER_SECOND * commit_seconds:
            most = max(1, round(value / commit_seconds))
            enough = round(ROWS_PER_SECOND * commit_seconds)
            return (
                f"{value} rows a flush load at most {most} rows/s, as {cost}; use {enough} or more"
            )
    elif unit == "bytes" and value < BYTES_PER_SECOND * commit_seconds:
        rate = size_text(max(1, round(value / commit_seconds / 1024)) * 1024)
        least = size_text(math.ceil(BYTES_PER_SECOND * commit_seconds / 2**20) * 2**20)
        return f"flushes this small load at most {rate}/s, as {cost}; use {least} or more"
    elif unit == "ms" and value < COMMITS_PER_WAIT * commit_seconds:
        wait = f"{COMMITS_PER_WAIT * commit_seconds:g} s"
        return f"{value:g} s is shorter than needed, as {cost}; use {wait} or more"
    return None


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(side: Side | None = None) -> Schema:
    """Build the JSON Schema of a settings document's batch settings.

    It says everything that JSON Schema can: not the range of durations and sizes given as text,
    and no rule that compares two values. Without `side` it is that of a document of either program.
    """
    return {
        "$schema": DIALECT,
        "title": "Batch settings of " + (f"{side}-spark" if side else "tap-spark and target-spark"),
        "type": "object",
        "properties": {
            "batch_config": _config_block(side),
            **{name: _variant_block(block) for name, block in VARIANT_BLOCKS.items()},
            **{key: _property(_target(key), dotted=True) for key in DOTTED_KEYS},
        },
        "propertyNames": _top_level_names(),
        "not": _parallel_with_order(),
    }


def settings_properties(side: Side) -> dict[str, Schema]:
    """Build what a program's own settings schema declares of batch settings.

    Names, types and descriptions only: `validate` has the values, defaults and rules. So nothing
    is reported twice, and no default hides what was given.
    """
    root: dict[str, Schema] = {}
    for field in FIELDS:
        if field.side in (None, side):
            _declare(root, field)
    return root | {
        key: {
            "description": f"Another spelling of `{'.'.join(_target(key).path)}`.",
            OTHER_SPELLING: True,
        }
        for key in DOTTED_KEYS
    }


def _target(dotted: str) -> Field:
    return DOTTED[split_prefix(dotted)[1]]


def _declare(properties: dict[str, Schema], field: Field) -> None:
    for name in field.path[:-1]:
        text = (BLOCKS | GROUPS)[name]
        block = properties.setdefault(
            name, {"type": "object", "properties": {}, "description": text}
        )
        properties = block["properties"]
    options = field.schema.get("anyOf")
    types = [option["type"] for option in options] if options else field.schema["type"]
    text = field.description
    declared = properties.setdefault(field.key, {"type": types, "description": text})
    if declared["description"] != text:
        declared["description"] += f" {text}"
    if field.schema.get(HIDDEN):
        # Not a schema: values keep their nesting, which fsspec's options need.
        declared |= {"secret": True, "additionalProperties": True}


def _property(field: Field, *, dotted: bool = False) -> Schema:
    schema = {**field.schema, "description": field.description}
    return exported(in_properties(schema) if dotted else schema)


def _config_block(side: Side | None) -> Schema:
    fields = [field for field in BATCH_CONFIG if side in (None, field.side or side)]
    block = object_of({field.path[1:]: _property(field) for field in fields})
    encoding = block["properties"]["encoding"]
    pairs = [(name, packed) for name, every in COMPRESSIONS.items() for packed in every]
    encoding["allOf"] = [_level_rule(*pair) for pair in pairs]
    encoding["allOf"] += [_format_rule(name) for name in COMPRESSIONS]
    block["description"] = BLOCKS["batch_config"]
    if side != "target":
        own = [{"required": [field.key]} for field in fields if field.side == "target"]
        _, group, name = ROOT.path
        condition = {"required": [group], "properties": {group: {"required": [name]}}}
        nothing = {
            "properties": {name: {"maxProperties": 0} for name in GROUPS},
            "propertyNames": {"enum": list(GROUPS)},
        }
        block["anyOf"] = [condition, *own, nothing]
    return block


def _format_rule(name: str) -> Schema:
    choice = {"enum": list(COMPRESSIONS[name]), "default": DEFAULT_COMPRESSION[name]}
    condition: Schema = {"properties": {"format": {"const": name}}}
    if name != "jsonl":
        condition["required"] = ["format"]
    return {"if": condition, "then": {"properties": {"compression": choice}}}


def _level_rule(name: str, packed: str) -> Schema:
    condition = {"format": ("jsonl", name), "compression": (DEFAULT_COMPRESSION[name], packed)}
    highest = LEVELS[name].get(packed)
    return {
        "if": {
            "properties": {key: {"const": value} for key, (_, value) in condition.items()},
            "required": [key for key, (default, value) in condition.items() if value != default],
        },
        "then": {
            "properties": {"compression_level": False if highest is None else {"maximum": highest}}
        },
    }


def _variant_block(block: VariantBlock) -> Schema:
    result: Schema = {
        "type": "object",
        "description": BLOCKS[block.name],
        "properties": {field.key: _property(field) for field in block.common},
        "propertyNames": {"enum": list(dict.fromkeys(field.key for field in block.fields))},
        "allOf": [_variant(block, name) for name in block.variants],
    }
    if block is BATCH:
        is_off: Schema = {"properties": {"enable": {"const": False}}, "required": ["enable"]}
        condition: Schema = {"required": [block.chooser.key]}
        result["anyOf"] = [condition, is_off, {"maxProperties": 0}]
        # Without a strategy the values of all strategies' keys are still checked.
        owned = (field for field in block.fields if field.owner)
        kinds = {field.key: _kind(field) for field in owned}
        result["allOf"].append({"if": {"not": condition}, "then": {"properties": kinds}})
    return result


def _kind(field: Field) -> Schema:
    about = ("description", "default")
    return {key: item for key, item in exported(field.schema).items() if key not in about}


def _variant(block: VariantBlock, name: str) -> Schema:
    fields = block.variants[name]
    condition: Schema = {"properties": {block.chooser.key: {"const": name}}}
    if name != block.default:
        condition["required"] = [block.chooser.key]
    then: Schema = {
        "properties": {field.key: _property(field) for field in fields},
        "propertyNames": {"enum": [field.key for field in (*block.common, *fields)]},
    }
    if DEAD_LETTER_PATH in fields:
        then["required"] = [DEAD_LETTER_PATH.key]
    return {"if": condition, "then": then}


def _top_level_names() -> Schema:
    prefixes = [*(prefix[:-1] for prefix in PREFIXES), *BLOCKS]
    ours: Schema = {"pattern": rf"^({'|'.join(prefixes)})\."}
    return {"anyOf": [{"enum": list(DOTTED_KEYS)}, {"not": ours}]}


def _parallel_with_order() -> Schema:
    strategy = {"strategy": {"const": "mega_batch"}, "parallel": {"const": True}}
    policy = {FAILURE.chooser.key: {"enum": list(ORDERED_POLICIES)}}
    return {
        "required": ["batch", "failure"],
        "properties": {
            "batch": {"required": list(strategy), "properties": strategy},
            "failure": {"required": list(policy), "properties": policy},
        },
    }
