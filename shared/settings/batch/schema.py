"""The JSON Schema (draft 2020-12) of batch settings, for editors and for `--about`."""

from __future__ import annotations

from shared.settings.batch.batch_settings import (
    BATCH,
    BATCH_CONFIG,
    BLOCKS,
    COMPRESSIONS,
    DEAD_LETTER_PATH,
    DEFAULT_COMPRESSION,
    DOTTED,
    DOTTED_KEYS,
    FAILURE,
    FIELDS,
    GROUPS,
    LEVELS,
    ORDERED_POLICIES,
    PREFIXES,
    ROOT,
    VARIANT_BLOCKS,
    VariantBlock,
    split_prefix,
)
from shared.settings.checking import HIDDEN, OTHER_SPELLING
from shared.settings.kinds import Field, Schema, Side, exported, in_properties, object_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"


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
    known = properties.setdefault(field.key, {"type": types, "description": text})
    if known["description"] != text:
        known["description"] += f" {text}"
    if field.schema.get(HIDDEN):
        # Not a schema: values keep their nesting, which fsspec's options need.
        known |= {"secret": True, "additionalProperties": True}


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
        given = {"required": [group], "properties": {group: {"required": [name]}}}
        nothing = {
            "properties": {name: {"maxProperties": 0} for name in GROUPS},
            "propertyNames": {"enum": list(GROUPS)},
        }
        block["anyOf"] = [given, *own, nothing]
    return block


def _format_rule(name: str) -> Schema:
    choice = {"enum": list(COMPRESSIONS[name]), "default": DEFAULT_COMPRESSION[name]}
    condition: Schema = {"properties": {"format": {"const": name}}}
    if name != "jsonl":
        condition["required"] = ["format"]
    return {"if": condition, "then": {"properties": {"compression": choice}}}


def _level_rule(name: str, packed: str) -> Schema:
    given = {"format": ("jsonl", name), "compression": (DEFAULT_COMPRESSION[name], packed)}
    highest = LEVELS[name].get(packed)
    return {
        "if": {
            "properties": {key: {"const": value} for key, (_, value) in given.items()},
            "required": [key for key, (default, value) in given.items() if value != default],
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
        given: Schema = {"required": [block.chooser.key]}
        result["anyOf"] = [given, is_off, {"maxProperties": 0}]
        # Without a strategy the values of all strategies' keys are still checked.
        owned = (field for field in block.fields if field.owner)
        kinds = {field.key: _kind(field) for field in owned}
        result["allOf"].append({"if": {"not": given}, "then": {"properties": kinds}})
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
