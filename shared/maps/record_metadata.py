"""The `_sdc_*` columns: record metadata of loaded rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812

from shared.formats.schema_nodes import HINT, json_schema_to_spark
from shared.singer import messages

METADATA = "_sdc_"
"""How the names of these columns begin."""
DELETED_AT = messages.DELETED_AT
RECEIVED_AT = "_sdc_received_at"
TABLE_VERSION = "_sdc_table_version"
TIMESTAMPS = ("_sdc_extracted_at", RECEIVED_AT, "_sdc_batched_at", DELETED_AT)
INTEGERS = ("_sdc_sequence", TABLE_VERSION, "_sdc_sync_started_at")
COLUMNS = TIMESTAMPS + INTEGERS
"""All record metadata columns, in the order in which they follow the record's own."""
REPLACED = frozenset(COLUMNS) - {DELETED_AT}
"""Those whose values are never the record's own: taps mark records as deleted by the other one."""

VALID_FROM, VALID_TO, IS_CURRENT = "_sdc_valid_from", "_sdc_valid_to", "_sdc_is_current"
VERSION_COLUMNS = (VALID_FROM, VALID_TO, IS_CURRENT)
"""Columns that `load_method: history` adds."""

_INSTANT = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class RecordMetadata:
    """The values that all rows of one conversion share.

    Attributes:
        received_at: When the batch's first message was received, seconds since the epoch.
        batched_at: When the batch was converted, seconds since the epoch.
        sync_started_at: When the run began, seconds since the epoch.
        version: Table version of the messages, or None.
    """

    received_at: float
    batched_at: float
    sync_started_at: float
    version: int | None = None

    def columns(
        self,
        rows: int,
        extracted_at: pa.ChunkedArray | None = None,
        deleted_at: pa.ChunkedArray | None = None,
        versions: pa.ChunkedArray | None = None,
    ) -> dict[str, pa.Array | pa.ChunkedArray]:
        """Return the metadata columns of `rows` rows.

        Args:
            rows: Number of rows.
            extracted_at: `time_extracted` of each record, if messages have it.
            deleted_at: `_sdc_deleted_at` of the records, which is kept.
            versions: `version` of each record, if messages have it.
        """
        nothing = pa.scalar(None, _INSTANT)
        values = {
            "_sdc_extracted_at": nothing if extracted_at is None else extracted_at,
            RECEIVED_AT: pa.scalar(round(self.received_at * 1e6), pa.int64()).cast(_INSTANT),
            "_sdc_batched_at": pa.scalar(round(self.batched_at * 1e6), pa.int64()).cast(_INSTANT),
            DELETED_AT: nothing if deleted_at is None else deleted_at,
            "_sdc_sequence": pa.scalar(round(self.received_at * 1e3), pa.int64()),
            TABLE_VERSION: pa.scalar(self.version, pa.int64()) if versions is None else versions,
            "_sdc_sync_started_at": pa.scalar(round(self.sync_started_at * 1e3), pa.int64()),
        }
        return {
            name: pa.repeat(value, rows) if isinstance(value, pa.Scalar) else value
            for name, value in values.items()
        }


def record_schema(schema: Mapping[str, Any], add: bool) -> Mapping[str, Any]:
    """Return the JSON Schema that a stream's records are read with.

    The reserved columns are removed. With metadata switched on, `_sdc_deleted_at` is read from
    records that have it, whatever the schema says of it. A schema without properties (the record
    is kept as one text) is unchanged.
    """
    if not schema.get("properties"):
        return schema
    properties = {name: node for name, node in schema["properties"].items() if name not in COLUMNS}
    if add:
        properties[DELETED_AT] = {"type": ["string", "null"], "format": "date-time"}
    changed: dict[str, Any] = {**schema, "properties": properties}
    if "required" in schema:
        changed["required"] = [name for name in schema["required"] if name not in COLUMNS]
    return changed if properties else {**changed, HINT: "struct"}


def stored_columns(schema: Mapping[str, Any], add: bool) -> T.StructType:
    """Return the columns that a stream's rows are stored with: all metadata columns or none."""
    plain = json_schema_to_spark(record_schema(schema, add=False))
    fields = [field for field in plain.fields if field.name not in COLUMNS]
    if add:
        fields += [T.StructField(name, T.TimestampType(), True) for name in TIMESTAMPS]
        fields += [T.StructField(name, T.LongType(), True) for name in INTEGERS]
    return T.StructType(fields)
