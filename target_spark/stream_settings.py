"""Settings of one stream: the general ones, overridden by those of its patterns."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from shared.errors import MessageError, SettingsError, Where
from target_spark.config import REGISTRY
from target_spark.core.balance import Expectations
from target_spark.core.failures import ErrorBudget
from target_spark.core.load_plans import (
    Backfill,
    Layout,
    SchemaContract,
    StreamSchema,
    TableName,
    TableRequest,
)
from target_spark.run_settings import LoadSettings, StreamSettings

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from target_spark.run_settings import TargetConfig

BY_KEY = ("upsert", "history")
"""Load methods that match rows by key."""

_REMOVING = ("upsert", "overwrite")
"""Load methods by which a record that is marked removes the row of its key."""

_PLACE = re.compile(r"\{(stream|schema|table)\}")
_UNORDERED = ("struct", "array", "map", "variant", "interval")
"""Beginnings of the names of types that do not have an order in every destination."""


def stream_settings(config: TargetConfig, stream: str) -> StreamSettings:
    """Return the settings of a stream: the general ones, overridden by those of its patterns."""
    values = {field.name: getattr(config, field.name) for field in fields(LoadSettings)}
    for pattern, supplied in config.streams.items():
        if fnmatchcase(stream, pattern):
            contract = replace(values["schema_contract"], **supplied.get("schema_contract", {}))
            values |= {**supplied, "schema_contract": contract}
    return StreamSettings(**values)


def load_method(config: TargetConfig, stream: str) -> str:
    """Return the load method of a stream: `append-only`, `upsert`, `history` or `overwrite`."""
    if config.verification is not None or _backfill(config, stream) is not None:
        return "overwrite"
    return stream_settings(config, stream).load_method


def _backfill(config: TargetConfig, stream: str) -> Backfill | None:
    """Return the range of the stream's table that the run replaces, if it does."""
    backfill = config.backfill
    return backfill if backfill is not None and backfill.stream == stream else None


def table_name(config: TargetConfig, stream: str) -> TableName:
    """Return the table of a stream: with prefix, schema and the names of its patterns."""
    own = stream_settings(config, stream)
    return TableName(
        table=config.table_prefix + _filled(own.table, stream),
        schema=config.default_target_schema if own.schema is None else _filled(own.schema, stream),
    )


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
    return schema.key_properties if supplied is None else supplied


def table_request(config: TargetConfig, schema: StreamSchema, struct: StructType) -> TableRequest:
    """Return the request of a stream for its table.

    Args:
        config: The settings.
        schema: The stream's last SCHEMA.
        struct: Its columns as stored.

    Raises:
        MessageError: The load method needs a key, which is missing or is not a property.
        SettingsError: A column of `upsert_order_by` is missing, or its values have no order.
    """
    stream = schema.stream
    own, method = stream_settings(config, stream), load_method(config, stream)
    keys = key_properties(config, schema)
    _check_keys(stream, keys, struct, method)
    if config.verification is not None:
        _check_verified(config, stream, keys, struct)
    elif own.hard_delete and keys and method in _REMOVING:
        _check_marks(config, stream)
    # Then the stream may lack all other columns.
    by_keys_alone = config.verification is not None and config.verification.deletes
    backfill = _backfill(config, stream)
    if backfill is not None and own.load_method == "history":
        raise SettingsError(
            "a backfill would remove versions of rows",
            where=Where(stream=stream, setting="load_method"),
            hint="load the range without --backfill in the target: `history` adds what has changed",
        )
    if backfill is not None and backfill.column not in struct.names:
        raise MessageError(
            f"the column '{backfill.column}' of the backfill is not a property of the SCHEMA",
            where=Where(stream=stream),
            hint="see --column",
        )
    return TableRequest(
        stream=stream,
        struct=struct,
        name=table_name(config, stream),
        keys=tuple(key for key in keys if key in struct.names),
        method=method,
        schema=schema.schema,
        layout=Layout() if by_keys_alone else table_layout(config, stream),
        hard_delete=bool(own.hard_delete),
        source=schema.source,
        replaces_source=own.hard_delete is None and schema.source is not None,
        backfill=backfill,
        order_by=() if by_keys_alone else _order_by(own, stream, struct),
        contract=own.schema_contract if method != "overwrite" else SchemaContract(),
    )


def table_layout(config: TargetConfig, stream: str) -> Layout:
    """Return the physical layout of a stream's table."""
    own = stream_settings(config, stream)
    return Layout(
        partition_by=own.partition_by,
        cluster_by=own.cluster_by,
        target_file_bytes=own.target_file_bytes,
        properties=own.table_properties,
        compact=own.compact,
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
        (load_method(config, stream) == "upsert", "load_method", "'upsert'"),
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
    if own.load_method not in BY_KEY:
        return ()
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
    if method not in BY_KEY:
        return
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
