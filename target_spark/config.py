"""The settings of target-spark: their JSON Schema, their rules, and those of one stream.

Destinations declare which settings of tables they use; the rules follow from that. A stream has the
general settings, overridden by those of its patterns.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.batch_config import (
    is_batch_key,
    settings_properties,
    validate,
    without_invalid,
)
from shared.encodings.encoding_format import declared_encodings
from shared.errors import MessageError, SettingsError, Where
from shared.maps.map_settings import PROPERTIES as TRANSFORMS
from shared.maps.map_settings import supplied_transforms, transform_problems
from shared.settings.about import Program
from shared.settings.batch_settings import FixedSize, LowLatency, TimeWindow, Validated
from shared.settings.checking import Problem, complete_settings, is_for
from shared.settings.kinds import fields_of, schema_of, typed
from shared.spark.conf import spark_problems
from shared.storage.urls import local_path
from target_spark.core.balance import Expectations
from target_spark.core.failures import ErrorBudget
from target_spark.core.load_plans import (
    Layout,
    SchemaContract,
    StreamSchema,
    TableName,
    TableRequest,
)
from target_spark.destinations.destination_declaration import (
    TABLE_SETTINGS,
    Declaration,
    Registry,
    read_registry,
)
from target_spark.run_settings import LoadSettings, StreamSettings, TableSettings, TargetConfig

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


_PER_STREAM = frozenset(field.key for field in fields_of(LoadSettings))


def table_problems(registry: Registry, settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Check that the destination of the format can be used, its location, and what it supports."""
    name = settings.get("format", TableSettings.format)
    if name in registry.broken:
        yield Problem(("format",), registry.broken[name])
        return
    declared = registry.declarations.get(name)
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
    local = local_path(str(settings.get("path")))
    # `Path` takes `./~x` for `~x`.
    if local is not None and str(Path(local)).startswith("~"):
        text = "is in the home folder of a user that is not known; give the whole path"
        yield Problem(("path",), text)
    yield from _unsupported(registry, declared, settings)


def _unsupported(
    registry: Registry, declared: Declaration, settings: Mapping[str, Any]
) -> Iterator[Problem]:
    """Check the settings that only some destinations support."""
    refused = [key for key in TABLE_SETTINGS if key not in declared.uses | declared.ignores]
    streams = settings.get("streams")
    blocks: list[tuple[tuple[str, ...], Any]] = [((), settings)]
    if isinstance(streams, Mapping):
        blocks += [(("streams", pattern), block) for pattern, block in streams.items()]
    for path, block in blocks:
        if not isinstance(block, Mapping):
            continue
        method = block.get("load_method")
        if method in _WHY and not getattr(declared.supports, method):
            able = _listed(map(repr, registry.able(method)), "or")
            text = f"needs the format {able}: {_WHY[method]}"
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


def _useless(registry: Registry, declared: Declaration, key: str) -> str:
    users = (result.title for result in registry.declarations.values() if key in result.uses)
    return f"has no effect on {declared.title}; supported by {_listed(users, 'and')}"


def _listed(names: Iterable[str], word: str) -> str:
    *most, last = dict.fromkeys(names)
    return f"{', '.join(most)} {word} {last}" if most else last


def contradictions(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Check settings that need another one, whatever the destination."""
    if settings.get("hard_delete") is True and settings.get("activate_version") is False:
        yield Problem(("hard_delete",), "has no effect if 'activate_version' is false")
    if settings.get("generate_view") is True and settings.get("denormalized", True) is True:
        yield Problem(("generate_view",), "needs 'denormalized': false")
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
    """Return the JSON Schema of the settings."""
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
    declared_encodings().check()
    values = complete_settings(PROGRAM.schema, settings, PROGRAM.rules)
    batch = Validated("target")
    if any(map(is_batch_key, settings)):
        batch = validate({key: values[key] for key in values if is_batch_key(key)}, "target")
        for text in batch.check().warnings:
            _logger.warning(text)
    config = typed(TargetConfig, values)
    declared = REGISTRY.get(config.format)
    return replace(
        config,
        block=declared.typed(values.get(declared.name, {})) if declared.block is not None else None,
        batch_config=batch.batch_config,
        strategy=batch.strategy,
        strategy_paths=batch.strategy_paths,
        failure=batch.failure,
        transforms=supplied_transforms(settings, values),
    )


def batch_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Check the batch settings, and reject bounds that their strategy overrides."""
    supplied = {key: value for key, value in settings.items() if is_batch_key(key)}
    if not supplied:
        return
    batch = validate(without_invalid(supplied), "target")
    yield from batch.problems
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


REGISTRY = read_registry(settings_schema(Registry())["properties"])
"""The destinations that are installed."""
PROGRAM = Program(
    name="target-spark",
    description="Singer target that loads streams into files, Delta and Iceberg tables and "
    "databases with Apache Spark.",
    schema=settings_schema(REGISTRY),
    rules=(
        partial(table_problems, REGISTRY),
        contradictions,
        spark_problems,
        transform_problems,
        batch_problems,
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
SETTINGS_SCHEMA = PROGRAM.schema


BY_KEY = ("upsert", "history")
"""Load methods that match rows by key."""

_REMOVING = ("upsert", "overwrite")
"""Load methods by which a record that is marked removes the row of its key."""

_PLACE = re.compile(r"\{(stream|schema|table)\}")
_UNORDERED = ("struct", "array", "map", "variant", "interval")
"""Beginnings of the names of types that do not have an order in every destination."""


def stream_settings(config: TargetConfig, stream: str) -> StreamSettings:
    """Return the settings of a stream: the general ones, overridden by those of its patterns.

    Its table has prefix, schema and the names of its patterns.
    """
    values = {field.name: getattr(config, field.name) for field in fields(LoadSettings)}
    for pattern, supplied in config.streams.items():
        if is_for(pattern, stream):
            contract = replace(values["schema_contract"], **supplied.get("schema_contract", {}))
            values |= {**supplied, "schema_contract": contract}
    own = StreamSettings(**values)
    backfill = config.backfill
    if backfill is not None and backfill.stream != stream:
        backfill = None
    overwrites = config.verification is not None or backfill is not None
    schema = config.default_target_schema if own.schema is None else _filled(own.schema, stream)
    return replace(
        own,
        name=TableName(config.table_prefix + _filled(own.table, stream), schema),
        method="overwrite" if overwrites else own.load_method,
        backfill=backfill,
        layout=Layout(
            own.partition_by,
            own.cluster_by,
            own.target_file_bytes,
            own.table_properties,
            own.compact,
        ),
    )


def load_methods(config: TargetConfig) -> frozenset[str]:
    """Return the load methods that streams of a run may have."""
    if config.verification is not None:
        return frozenset({"overwrite"})
    own = (block["load_method"] for block in config.streams.values() if "load_method" in block)
    methods = frozenset({config.load_method, *own})
    return methods if config.backfill is None else methods | {"overwrite"}


def expectations(config: TargetConfig, stream: str) -> Expectations | None:
    """Return what is expected of a stream; None for nothing."""
    if config.verification is not None:
        return None
    supplied = stream_settings(config, stream).expect
    return Expectations(**supplied) if supplied else None


def error_budget(config: TargetConfig, stream: str) -> ErrorBudget:
    """Return how many records of a stream may be rejected."""
    own = stream_settings(config, stream)
    return ErrorBudget(own.max_errors, own.max_error_share)


def key_properties(config: TargetConfig, schema: StreamSchema) -> tuple[str, ...]:
    """Return the key properties of a stream: those of the settings, else of its SCHEMA."""
    supplied = stream_settings(config, schema.stream).key_properties
    return tuple(dict.fromkeys(schema.key_properties if supplied is None else supplied))


def table_request(config: TargetConfig, schema: StreamSchema, struct: StructType) -> TableRequest:
    """Return the request of a stream for its table.

    Raises:
        MessageError: The load method needs a key, which is missing or is not a property.
        SettingsError: A column of `upsert_order_by` is missing, or its values have no order.
    """
    stream = schema.stream
    own = stream_settings(config, stream)
    method, backfill = own.method, own.backfill
    keys = key_properties(config, schema)
    if method in BY_KEY:
        _check_keys(stream, keys, struct, method)
    if config.verification is not None:
        _check_verified(config, stream, keys, struct)
    elif own.hard_delete and keys and method in _REMOVING:
        _check_marks(config, stream)
    # Then the stream may lack all other columns.
    by_keys_alone = config.verification is not None and config.verification.deletes
    is_ordered = own.load_method in BY_KEY and not by_keys_alone
    if backfill is not None and own.load_method == "history":
        raise SettingsError(
            "a backfill would remove versions of rows",
            where=Where(stream=stream, setting="load_method"),
            hint="load the range without --backfill in the target: `history` adds what has changed",
        )
    if config.backfill is not None and backfill is None:
        raise SettingsError(
            f"the input of a backfill of '{config.backfill.stream}' has another stream",
            where=Where(stream=stream, setting="--backfill"),
            hint="name the stream as in its SCHEMA, after stream maps; let the tap send it alone",
        )
    if backfill is not None and backfill.column not in (
        struct.names if config.denormalized else keys
    ):
        raise MessageError(
            f"the column '{backfill.column}' of the backfill is not a property of the SCHEMA",
            where=Where(stream=stream),
            hint="see --column; with `denormalized: false`, it must be a key property",
        )
    return TableRequest(
        stream=stream,
        struct=struct,
        name=own.name,
        keys=tuple(key for key in keys if key in struct.names),
        method=method,
        schema=schema.schema,
        layout=Layout() if by_keys_alone else own.layout,
        hard_delete=bool(own.hard_delete),
        source=schema.source,
        replaces_source=own.hard_delete is None and schema.source is not None,
        backfill=backfill,
        order_by=_order_by(own, stream, struct) if is_ordered else (),
        # Rows go as a whole: columns and types may differ, what is of others may not.
        contract=own.schema_contract
        if method != "overwrite"
        else SchemaContract(rules=own.schema_contract.rules),
        has_rows=schema.has_rows or method == "overwrite",
    )


def check_deletes(config: TargetConfig, schema: StreamSchema) -> None:
    """Check that rows of a stream can be deleted by the keys that its source still has.

    Raises:
        SettingsError: They cannot; names the setting.
    """
    stream = schema.stream
    keys = key_properties(config, schema)
    needs = (
        (REGISTRY.get(config.format).supports.repair, "format", "tables that can be repaired"),
        (stream_settings(config, stream).method == "upsert", "load_method", "'upsert'"),
        (not config.write_audit_publish, "write_audit_publish", "rows that are visible at once"),
        (config.add_record_metadata, "add_record_metadata", "it"),
        ({*keys} == {*schema.key_properties} > set(), "key_properties", "those of the tap"),
    )
    for is_met, setting, needed in needs:
        if not is_met:
            raise SettingsError(
                f"KEYS messages, which delete rows, need {needed}",
                where=Where(stream=stream, setting=setting),
                hint="change the setting, or remove `deletes` from the stream in the tap",
            )


def _order_by(own: StreamSettings, stream: str, struct: StructType) -> tuple[str, ...]:
    """Return the columns that tell which row of a key is newer.

    Raises:
        SettingsError: One is not a column of the stream, or its values have no order.
    """
    supplied = own.upsert_order_by
    names = (supplied,) if isinstance(supplied, str) else tuple(supplied)
    for name in names:
        kind = struct[name].dataType.simpleString() if name in struct.names else None
        if kind is None or kind.startswith(_UNORDERED):
            why = "a column of the stream" if kind is None else f"a column with an order ({kind})"
            raise SettingsError(
                f"'{name}' is not {why}",
                where=Where(stream=stream, setting="upsert_order_by"),
                hint="name another column for this stream under `streams`",
            )
    return names


def _check_verified(
    config: TargetConfig, stream: str, keys: tuple[str, ...], struct: StructType
) -> None:
    """Raise an error if the table of a stream is not meant to hold one row for each key."""
    method = stream_settings(config, stream).load_method
    # Files have no better method for a stream whose rows never change.
    is_plain = method == "append-only" and not REGISTRY.get(config.format).supports.upsert
    if method not in {"upsert", "overwrite"} and not is_plain:
        raise SettingsError(
            f"the table of '{method}' holds other rows than the source",
            where=Where(stream=stream, setting="load_method"),
            hint="verify streams with `upsert` or `overwrite`; leave others out (tap: --streams)",
        )
    _check_keys(stream, keys, struct, "upsert")


def _check_marks(config: TargetConfig, stream: str) -> None:
    if REGISTRY.get(config.format).supports.upsert and not config.add_record_metadata:
        raise SettingsError(
            "without record metadata, a record that is marked as deleted would overwrite its row",
            where=Where(stream=stream, setting="hard_delete"),
            hint="set `add_record_metadata`, or `hard_delete: false`",
        )


def _check_keys(stream: str, keys: tuple[str, ...], struct: StructType, method: str) -> None:
    if not keys:
        raise MessageError(
            f"'{method}' needs key properties, but the SCHEMA does not have any",
            where=Where(stream=stream),
            hint="set `streams.<pattern>.key_properties`, or another `load_method` for the stream",
        )
    for key in keys:
        if key not in struct.names:
            raise MessageError(
                f"the key property '{key}' is not a property of the SCHEMA",
                where=Where(stream=stream),
            )


def _filled(template: str, stream: str) -> str:
    schema, _, table = stream.rpartition("-")
    parts = {"stream": stream, "schema": schema, "table": table}
    return _PLACE.sub(lambda result: parts[result[1]], template)
