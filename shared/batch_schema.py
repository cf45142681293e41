"""The JSON Schema (draft 2020-12) of batch settings, for editors and for `--about`."""

from __future__ import annotations

from typing import Any

from shared.batch_fields import (
    BATCH,
    BATCH_CONFIG,
    BLOCKS,
    COMPRESSIONS,
    DEAD_LETTER_PATH,
    DEFAULT_COMPRESSION,
    DOTTED,
    DOTTED_KEYS,
    FAILURE,
    ORDERED_POLICIES,
    PREFIXES,
    ROOT,
    VARIANT_BLOCKS,
    Field,
    VariantBlock,
)
from shared.batch_kinds import in_properties
from shared.batch_types import Side
from shared.settings_check import OTHER_SPELLING

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_BLOCK_TEXTS = {
    "batch_config": "Batch files: their encoding, where they lie, which streams use them.",
    "batch": "When a stream is flushed.",
    "failure": "What happens to records and commits that fail.",
    "encoding": "Format and compression of the batch files.",
    "storage": "Where the batch files lie.",
}
_SECRETS = ("options",)


def json_schema(side: Side | None = None) -> Schema:
    """Build the JSON Schema of a settings document's batch settings.

    It says everything that JSON Schema can: not the range of durations and sizes given as text,
    and no rule that compares two values.

    Args:
        side: The program; None for a document of either.
    """
    return {
        "$schema": DIALECT,
        "title": "Batch settings of " + (f"{side}-spark" if side else "tap-spark and target-spark"),
        "type": "object",
        "properties": {
            "batch_config": _config_block(side),
            **{block.name: _variant_block(block) for block in VARIANT_BLOCKS},
            **_dotted_properties(),
        },
        "propertyNames": _top_level_names(),
        "not": _parallel_with_order(),
    }


def settings_properties(side: Side) -> dict[str, Schema]:
    """Build what a program's own settings schema declares of batch settings.

    Names, types and descriptions only: values, defaults and rules are left to `validate`, so
    that nothing is reported twice and no default hides what was given.
    """
    fields = [*BATCH_CONFIG, *(field for block in VARIANT_BLOCKS for field in block.fields)]
    root: Schema = {"properties": {}}
    for field in fields:
        if field.side in (None, side):
            _declare(root["properties"], field)
    return dict(root["properties"]) | {
        key: {
            "description": f"Another spelling of `{'.'.join(_target(key).path)}`.",
            OTHER_SPELLING: True,
        }
        for key in DOTTED_KEYS
    }


def _target(dotted: str) -> Field:
    prefix = next((prefix for prefix in PREFIXES if dotted.startswith(prefix)), "")
    return DOTTED[dotted[len(prefix) :]]


def _declare(properties: dict[str, Schema], field: Field) -> None:
    for name in field.path[:-1]:
        block = properties.setdefault(name, {"type": "object", "properties": {}})
        block["description"] = _BLOCK_TEXTS[name]
        properties = block["properties"]
    types = _types(field.kind.schema())
    known = properties.setdefault(field.key, {"type": types, "description": described(field)})
    if known["description"] != described(field):
        known["description"] += f" {described(field)}"
    if field.key in _SECRETS:
        known["secret"] = True
        # Not a schema: values keep their nesting, which fsspec's options need.
        known["additionalProperties"] = True


def _types(schema: Schema) -> str | list[str]:
    if "anyOf" in schema:
        return [str(item["type"]) for item in schema["anyOf"]]
    return str(schema["type"])


def described(field: Field) -> str:
    """Return the description of a field, with the strategy or policy that has it."""
    return f"({field.owner}) {field.description}" if field.owner else field.description


def _property(field: Field, *, dotted: bool = False) -> Schema:
    kind = in_properties(field.kind) if dotted else field.kind
    result = {"description": described(field), **kind.schema()}
    if field.default is not None:
        default = field.default
        result["default"] = list(default) if isinstance(default, tuple) else default
    return result


def _config_block(side: Side | None) -> Schema:
    fields = {field.path[1:]: field for field in BATCH_CONFIG if side in (None, field.side or side)}
    groups: dict[str, dict[str, Schema]] = {}
    properties: dict[str, Schema] = {}
    for path, field in fields.items():
        into = groups.setdefault(path[0], {}) if len(path) > 1 else properties
        into[path[-1]] = _property(field)
    properties |= {name: _object(members) for name, members in groups.items()}
    properties["encoding"]["allOf"] = [_format_rule(name) for name in COMPRESSIONS]
    block = _object(properties)
    block["description"] = _BLOCK_TEXTS["batch_config"]
    own = [field.path[-1] for field in fields.values() if field.side == "target"]
    if side != "target":
        excuses = [{"required": [name]} for name in own] if side is None else []
        block["anyOf"] = [_root_given(), *excuses, _NOTHING_GIVEN]
    return block


_NOTHING_GIVEN: Schema = {
    "properties": {
        "encoding": {"maxProperties": 0},
        "storage": {"maxProperties": 0},
    },
    "propertyNames": {"enum": ["encoding", "storage"]},
}


def _root_given() -> Schema:
    _, group, name = ROOT.path
    return {"required": [group], "properties": {group: {"required": [name]}}}


def _object(properties: dict[str, Schema]) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _format_rule(name: str) -> Schema:
    choice = {"enum": list(COMPRESSIONS[name]), "default": DEFAULT_COMPRESSION[name]}
    condition: Schema = {"properties": {"format": {"const": name}}}
    if name != "jsonl":
        condition["required"] = ["format"]
    return {"if": condition, "then": {"properties": {"compression": choice}}}


def _variant_block(block: VariantBlock) -> Schema:
    always = (block.chooser, *block.common)
    keys = list(dict.fromkeys(field.key for field in block.fields))
    result: Schema = {
        "type": "object",
        "description": _BLOCK_TEXTS[block.name],
        "properties": {field.key: _property(field) for field in always},
        "propertyNames": {"enum": keys},
        "allOf": [_variant(block, name, always) for name in block.variants],
    }
    if block is BATCH:
        is_off: Schema = {"properties": {"enable": {"const": False}}, "required": ["enable"]}
        given: Schema = {"required": [block.chooser.key]}
        result["anyOf"] = [given, is_off, {"maxProperties": 0}]
        # Without a strategy the values of all strategies' keys are still checked.
        result["allOf"].append({"if": {"not": given}, "then": {"properties": _any_owner(block)}})
    return result


def _any_owner(block: VariantBlock) -> dict[str, Schema]:
    owned = (field for fields in block.variants.values() for field in fields)
    return {field.key: field.kind.schema() for field in owned}


def _variant(block: VariantBlock, name: str, always: tuple[Field, ...]) -> Schema:
    fields = block.variants[name]
    condition: Schema = {"properties": {block.chooser.key: {"const": name}}}
    if name != block.default:
        condition["required"] = [block.chooser.key]
    then: Schema = {
        "properties": {field.key: _property(field) for field in fields},
        "propertyNames": {"enum": [field.key for field in (*always, *fields)]},
    }
    if DEAD_LETTER_PATH in fields:
        then["required"] = [DEAD_LETTER_PATH.key]
    return {"if": condition, "then": then}


def _dotted_properties() -> dict[str, Schema]:
    return {key: _property(_target(key), dotted=True) for key in DOTTED_KEYS}


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
