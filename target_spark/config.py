"""The settings that target-spark accepts: their JSON Schema, their rules, and how they are read."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from shared.batch_config import (
    is_batch_key,
    settings_properties,
    settings_rule,
    validate,
    without_invalid,
)
from shared.encodings.encoding_registry import check_encodings
from shared.maps.map_settings import PROPERTIES as TRANSFORMS
from shared.maps.map_settings import transform_problems, transform_settings
from shared.settings.about import Program
from shared.settings.batch.batch_settings import FixedSize, LowLatency, TimeWindow
from shared.settings.checking import Problem, complete_settings
from shared.settings.kinds import schema_of, typed
from shared.spark.packages import with_needs
from shared.spark.spark_settings import spark_problems
from target_spark.destinations.destination_registry import Registry, read_registry
from target_spark.run_settings import TargetConfig
from target_spark.table_rules import table_rules

_logger = logging.getLogger(__name__)


def settings_schema(registry: Registry) -> dict[str, Any]:
    """Return the JSON Schema of the settings.

    Args:
        registry: The destinations.
    """
    own = schema_of(TargetConfig)["properties"]
    places = {name: own[name] for name in ("path", "format", "catalog")}
    blocks = {name: dict(registry.known[name].block or {}) for name in registry.blocks}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of target-spark",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            **places,
            **blocks,
            **own,
            "format": {**own["format"], "enum": list(registry.formats)},
            **TRANSFORMS,
            **settings_properties("target"),
        },
    }


def target_config(settings: Mapping[str, Any]) -> TargetConfig:
    """Validate settings and turn them into their typed form.

    Args:
        settings: As `shared.settings.loading.load_settings` returns them, or written by hand.

    Raises:
        InvalidSettingsError: With every problem found.
    """
    check_encodings()
    values = complete_settings(PROGRAM.schema, settings, PROGRAM.rules)
    batch = validate({key: values[key] for key in values if is_batch_key(key)}, "target")
    for text in batch.check().warnings:
        _logger.warning(text)
    config = typed(TargetConfig, values)
    declared = REGISTRY.get(config.format)
    return replace(
        config,
        block=declared.typed(values.get(declared.name, {})) if declared.block is not None else None,
        spark=with_needs(config.spark, declared.needs),
        batch_config=batch.batch_config,
        strategy=batch.strategy,
        failure=batch.failure,
        transforms=transform_settings(values),
    )


def deletion_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Check the settings of ACTIVATE_VERSION together."""
    if settings.get("hard_delete") is True and settings.get("activate_version") is False:
        yield Problem(("hard_delete",), "has no effect if 'activate_version' is false")


def strategy_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Reject bounds that a strategy overrides."""
    given = {key: value for key, value in settings.items() if is_batch_key(key)}
    batch = validate(without_invalid(given), "target")
    if batch.strategy is None:
        return
    has_wait = isinstance(batch.strategy, FixedSize | TimeWindow | LowLatency)
    bounds = (
        "batch_size_rows",
        "batch_size_bytes",
        *(("batch_wait_limit_seconds",) if has_wait else ()),
    )
    for name in bounds:
        if name in settings:
            text = f"cannot be combined with the strategy {batch.strategy.name!r}"
            yield Problem((name,), f"{text}, which decides instead; remove one of the two")


def program(registry: Registry) -> Program:
    """Describe the program.

    Args:
        registry: The destinations.
    """
    return Program(
        name="target-spark",
        description="Singer target that loads streams into files, Delta and Iceberg tables and "
        "databases with Apache Spark.",
        schema=settings_schema(registry),
        rules=(
            *table_rules(registry),
            deletion_problems,
            spark_problems,
            transform_problems,
            settings_rule("target"),
            strategy_problems,
        ),
        capabilities=(
            "about",
            "batch",
            "stream-maps",
            "schema-flattening",
            "structured-logging",
            "validate-records",
            "activate-version",
            "target-schema",
            "hard-delete",
            "soft-delete",
        ),
        setting_groups=(("path",), ("format", "catalog"), ("format", "jdbc.url")),
    )


REGISTRY = read_registry(settings_schema(Registry())["properties"])
"""The destinations that are installed."""
PROGRAM = program(REGISTRY)
SETTINGS_SCHEMA = PROGRAM.schema
