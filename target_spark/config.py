"""The settings that target-spark accepts: their JSON Schema, how they are read, and their rules.

Destinations declare which settings of tables they use; the rules follow from that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
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
from shared.settings.batch_settings import FixedSize, LowLatency, TimeWindow
from shared.settings.checking import Problem, Rule, complete_settings
from shared.settings.kinds import fields_of, schema_of, typed
from shared.spark.conf import spark_problems
from shared.spark.packages import with_needs
from target_spark.destinations.destination_declaration import TABLE_SETTINGS, Declaration
from target_spark.destinations.destination_registry import Registry, read_registry
from target_spark.run_settings import LoadSettings, TableSettings, TargetConfig

_PER_STREAM = frozenset(field.key for field in fields_of(LoadSettings))


def table_rules(registry: Registry) -> tuple[Rule, ...]:
    """Return the rules between the settings of tables.

    Args:
        registry: The destinations, whose declarations decide.
    """
    return (
        partial(format_problems, registry),
        partial(place_problems, registry),
        partial(method_problems, registry),
        view_problems,
        audit_problems,
    )


def format_problems(registry: Registry, settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Check that the destination of the format can be used."""
    reason = registry.broken.get(settings.get("format", TableSettings.format))
    if reason is not None:
        yield Problem(("format",), reason)


def place_problems(registry: Registry, settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Check that exactly the location of the format is set."""
    declared = _declared(registry, settings)
    if declared is None:
        return
    supplied = [key for key in ("path", "catalog", *registry.blocks) if key in settings]
    for key in supplied:
        if key not in declared.places and key != declared.name:
            yield Problem((key,), f"is not supported by the format {declared.name!r}")
    results = [key for key in declared.places if key in settings]
    if not results:
        yield Problem((), f"{' or '.join(map(repr, declared.places))} is a required property")
    elif len(results) > 1:
        first, second, *_ = declared.places
        yield Problem((second,), f"cannot be combined with {first!r}; set only one of them")


def method_problems(registry: Registry, settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Check settings that only some destinations support."""
    declared = _declared(registry, settings)
    if declared is None:
        return
    able = {
        method: [
            name for name, one in registry.declarations.items() if getattr(one.supports, method)
        ]
        for method in _WHY
    }
    refused = [key for key in TABLE_SETTINGS if key not in declared.uses | declared.ignores]
    streams = settings.get("streams")
    blocks: list[tuple[tuple[str, ...], Any]] = [((), settings)]
    if isinstance(streams, Mapping):
        blocks += [(("streams", pattern), block) for pattern, block in streams.items()]
    for path, block in blocks:
        if not isinstance(block, Mapping):
            continue
        method = block.get("load_method")
        if method in able and declared.name not in able[method]:
            text = f"needs the format {_listed(able[method])}: {_WHY[method]}"
            yield Problem((*path, "load_method"), text.format(declared.title))
        for key in refused:
            if key in _PER_STREAM and block.get(key):
                yield Problem((*path, key), _useless(registry, declared, key))
    for key in refused:
        default = getattr(TableSettings, key, None)
        if key not in _PER_STREAM and settings.get(key, default) not in (default, {}):
            yield Problem((key,), _useless(registry, declared, key))
    is_viewed = settings.get("generate_view") is True and "denormalized" not in refused
    if is_viewed and not declared.supports.views:
        yield Problem(("generate_view",), f"{declared.title} do not support views")


_WHY = {
    "upsert": "{} cannot replace rows",
    "history": "{} cannot keep versions of rows",
    "overwrite": "{} cannot be replaced",
}


def _declared(registry: Registry, settings: Mapping[str, Any]) -> Declaration | None:
    """Return the destination of the format; None if it cannot be used."""
    name = settings.get("format", TableSettings.format)
    return None if name in registry.broken else registry.declarations.get(name)


def _useless(registry: Registry, declared: Declaration, key: str) -> str:
    users = dict.fromkeys(
        result.title for result in registry.declarations.values() if key in result.uses
    )
    *most, last = users
    names = f"{', '.join(most)} and {last}" if most else last
    return f"has no effect on {declared.title}; supported by {names}"


def _listed(formats: Sequence[str]) -> str:
    *most, last = map(repr, formats)
    return f"{', '.join(most)} or {last}" if most else last


def view_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Check that `generate_view` is set only with one column for the record."""
    if settings.get("generate_view") is True and settings.get("denormalized", True) is True:
        yield Problem(("generate_view",), "needs 'denormalized': false")


def audit_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Check that conditions for rows are set only if the rows can be checked."""
    streams = settings.get("streams")
    if settings.get("write_audit_publish") is True or not isinstance(streams, Mapping):
        return
    for pattern, block in streams.items():
        expect = block.get("expect") if isinstance(block, Mapping) else None
        if isinstance(expect, Mapping) and expect.get("no_rows_where"):
            path = ("streams", pattern, "expect", "no_rows_where")
            yield Problem(path, "needs 'write_audit_publish': true")


_logger = logging.getLogger(__name__)


def settings_schema(registry: Registry) -> dict[str, Any]:
    """Return the JSON Schema of the settings.

    Args:
        registry: The destinations.
    """
    own = schema_of(TargetConfig)["properties"]
    places = {name: own[name] for name in ("path", "format", "catalog")}
    blocks = {name: dict(registry.declarations[name].block or {}) for name in registry.blocks}
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
    supplied = {key: value for key, value in settings.items() if is_batch_key(key)}
    batch = validate(without_invalid(supplied), "target")
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
