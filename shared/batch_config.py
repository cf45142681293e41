"""Checks batch settings: `batch_config`, the `batch` strategy and the `failure` policy.

Both programs and `--validate-config` use `validate`; it also runs alone as
`python -m shared.batch_config FILE`. Nothing here needs Spark. `docs/batch-config.md` holds the
rules for users.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from shared.settings.batch_rules import (
    Reading,
    compression,
    effect_warnings,
    json_schema,
    needs_order,
    read_document,
    rule_problems,
    settings_properties,
)
from shared.settings.batch_settings import (
    BATCH,
    BATCH_CONFIG,
    BLOCKS,
    COMPRESSION,
    DOTTED_KEYS,
    ENABLE,
    FAILURE,
    GROUPS,
    PREFIXES,
    STRATEGIES,
    AdaptiveSize,
    BatchConfig,
    FailurePolicy,
    FixedSize,
    LowLatency,
    MegaBatch,
    MemoryBased,
    Strategy,
    TimeWindow,
    Validated,
    is_batch_key,
    split_prefix,
)
from shared.settings.checking import INVALID, Json, Problem, Rule, redacted, setting_place
from shared.settings.kinds import Side
from shared.settings.loading import (
    json_object,
    read_settings_file,
)

__all__ = [
    "DOTTED_KEYS",
    "AdaptiveSize",
    "BatchConfig",
    "FailurePolicy",
    "FixedSize",
    "LowLatency",
    "MegaBatch",
    "MemoryBased",
    "Problem",
    "Side",
    "Strategy",
    "TimeWindow",
    "Validated",
    "is_batch_key",
    "json_schema",
    "main",
    "settings_properties",
    "settings_rule",
    "validate",
    "without_invalid",
]

_WRONG = 2
_NEAR_TOP_LEVEL = 0.85


def validate(config: Mapping[str, Any], side: Side | None = None) -> Validated:
    """Check the batch settings of a document; ignore other settings.

    Args:
        config: The settings, nested or dotted. An empty block means the same as none.
        side: The program that reads them. None checks for both programs, with the values that
            target-spark reads.

    Returns:
        The values, or all problems; `check()` raises them.
    """
    if not any(_is_set(str(key), value) for key, value in config.items()):
        return Validated(side)
    target = read_document(config, side or "target", is_shared=side is None)
    readings, warnings = [target], list[str]()
    if side is None:
        readings.insert(0, read_document(config, "tap", is_shared=True))
        warnings += _shared_warnings(config)
    problems = [one for r in readings for one in (*r.problems, *rule_problems(r))]
    if problems:
        return Validated(side, problems=tuple(dict.fromkeys(problems)), warnings=tuple(warnings))
    strategy = _strategy(target)
    fields = () if strategy is None else BATCH.variants[strategy.name]
    paths = {field.key: target.path(field) for field in fields}
    warnings += effect_warnings(target)
    return Validated(
        side, _batch_config(target), strategy, paths, _failure(target), warnings=tuple(warnings)
    )


def _is_set(name: str, value: Json) -> bool:
    groups: Json = {group: {} for group in GROUPS} if name == "batch_config" else {}
    return is_batch_key(name) and not (name in BLOCKS and value in ({}, groups))


def settings_rule(side: Side) -> Rule:
    """Build the rule by which a program's settings check includes `validate`."""

    def rule(settings: Mapping[str, Any]) -> tuple[Problem, ...]:
        config = {key: item for key, item in settings.items() if is_batch_key(key)}
        return validate(without_invalid(config), side).problems if config else ()

    return rule


def without_invalid(value: Json) -> Json:
    """Remove what the JSON Schema has rejected, so that it is not reported twice."""
    if isinstance(value, Mapping):
        kept = {key: item for key, item in value.items() if item is not INVALID}
        return {key: without_invalid(item) for key, item in kept.items()}
    if isinstance(value, list):
        return [without_invalid(item) for item in value if item is not INVALID]
    return value


def _shared_warnings(config: Mapping[str, Any]) -> Iterator[str]:
    for key in map(str, config):
        if PREFIXES.get(split_prefix(key)[0]) == "tap" and key in DOTTED_KEYS:
            yield (
                f"{setting_place((key,))} applies to tap-spark only; shown are the values of "
                "target-spark"
            )


def _batch_config(reading: Reading) -> BatchConfig | None:
    if "batch_config" not in reading.blocks:
        return None
    values = {
        field.attribute: reading.value(field)
        for field in BATCH_CONFIG
        if field.side in (None, reading.side) and field is not COMPRESSION
    }
    return BatchConfig(compression=compression(reading), **values)


def _strategy(reading: Reading) -> Strategy | None:
    choice = reading.choices["batch"]
    if choice is None or not reading.value(ENABLE):
        return None
    values = {field.attribute: reading.value(field) for field in BATCH.variants[choice]}
    strategy = STRATEGIES[choice](**values)
    if isinstance(strategy, MegaBatch) and needs_order(reading):
        return replace(strategy, parallel=False)
    return strategy


def _failure(reading: Reading) -> FailurePolicy:
    choice = reading.choices["failure"] or FailurePolicy.policy
    values = {field.attribute: reading.value(field) for field in FAILURE.variants[choice]}
    return FailurePolicy(choice, **values)


def as_json(validated: Validated) -> dict[str, Any]:
    """Write checked settings as plain data, without secrets."""
    config = asdict(validated.batch_config) if validated.batch_config else None
    if config is not None:
        config["options"] = dict.fromkeys(config["options"], "***")
        config["root"] = config["root"] and redacted(config["root"])
        config["allowed_roots"] = [redacted(root) for root in config["allowed_roots"] or ()] or None
    failure = asdict(validated.failure)
    failure["dead_letter_path"] = (path := failure["dead_letter_path"]) and redacted(path)
    strategy = validated.strategy
    return {
        "side": validated.side,
        "batch_config": config,
        "batch": {"strategy": strategy.name, **asdict(strategy)} if strategy else None,
        "failure": failure,
    }


def _read(name: str) -> dict[str, Any]:
    """Read the settings in a file, or as JSON on standard input (`-`).

    Raises:
        ValueError: With what is wrong, in one line.
    """
    return json_object(sys.stdin.buffer.read()) if name == "-" else read_settings_file(Path(name))


def _near_misses(config: Mapping[str, Any]) -> Iterator[str]:
    """Warn of top-level keys that look like a mistyped block; only a program can check them."""
    for key in config:
        near = () if is_batch_key(key) else get_close_matches(key, BLOCKS, 1, _NEAR_TOP_LEVEL)
        for block in near:
            text = f"is not a batch setting, so it is not checked; did you mean {block!r}?"
            yield f"{setting_place((key,))} {text}"


def _arguments(args: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m shared.batch_config",
        description="Check batch_config, batch and failure in a settings file.",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("file", nargs="?", metavar="FILE", help="settings; '-' for standard input")
    what.add_argument("--schema", action="store_true", help="print the JSON Schema and end")
    parser.add_argument("--side", choices=("tap", "target"), help="the program; both if left out")
    return parser.parse_args(args)


def main(args: Sequence[str]) -> int:
    """Run the command line.

    Returns:
        0 if the settings are valid (`ok` and the values on standard output), 2 if they are not (a
        line for each problem on standard error).
    """
    arguments = _arguments(args)
    if arguments.schema:
        sys.stdout.write(json.dumps(json_schema(arguments.side), indent=2) + "\n")
        return 0
    try:
        config = _read(arguments.file)
    except ValueError as error:
        sys.stderr.write(f"file {arguments.file!r}: {' '.join(str(error).split())}\n")
        return _WRONG
    validated = validate(config, arguments.side)
    for text in (*_near_misses(config), *validated.warnings):
        sys.stderr.write(f"warning: {text}\n")
    for problem in validated.problems:
        sys.stderr.write(f"{problem}\n")
    if validated.problems:
        return _WRONG
    sys.stdout.write(f"ok\n{json.dumps(as_json(validated), indent=2)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
