"""Iceberg tables by path on a local disk, created and given more columns without Spark."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from shared.storage.urls import local_path
from target_spark.destinations.lakes.column_ddl import table_comment
from target_spark.destinations.lakes.conflicts import LostCommit
from target_spark.destinations.lakes.iceberg.iceberg_ddl import (
    identifiers,
    names_property,
    own_properties,
)
from target_spark.destinations.lakes.iceberg.iceberg_metadata import (
    commit,
    commit_first,
    newest,
    now_ms,
)
from target_spark.destinations.lakes.iceberg.iceberg_types import iceberg_scalar
from target_spark.destinations.lakes.lake_format import NeedsSparkError
from target_spark.tables.table_changes import Column

if TYPE_CHECKING:
    from target_spark.core.load_plans import TableRequest
    from target_spark.tables.table_changes import TableChange


def create(folder: str, change: TableChange, request: TableRequest) -> None:
    """Create a table without partitions and order; keep one that was created concurrently.

    Args:
        folder: Its folder.
        change: A change with `create`.
        request: The request of the stream.

    Raises:
        NeedsSparkError: Only Spark can create such a table; nothing was done.
    """
    layout = request.layout
    if newest(folder) is not None:
        return
    other_version = layout.properties.get("format-version", "2") != "2"
    if layout.partition_by or layout.cluster_by or other_version:
        raise NeedsSparkError
    columns = change.create or ()
    ids = itertools.count(1)
    fields = _fields(columns, ids)
    struct = StructType([StructField(c.name, c.dtype, c.nullable) for c in columns])
    known = {field["name"]: field["id"] for field in fields}
    keys = [known[name] for name in identifiers(struct, change.mapping, request)]
    schema = {"type": "struct", "schema-id": 0, "identifier-field-ids": keys, "fields": fields}
    comment = table_comment(request.schema)
    properties = {
        "write.parquet.compression-codec": "zstd",
        **({"comment": comment} if comment else {}),
        **own_properties(change, request),
    }
    # It belongs to the table itself.
    properties.pop("format-version", None)
    commit_first(
        folder,
        {
            "format-version": 2,
            "table-uuid": str(uuid.uuid4()),
            "location": local_path(folder),
            "last-sequence-number": 0,
            "last-updated-ms": int(time.time() * 1000),
            "last-column-id": next(ids) - 1,
            "current-schema-id": 0,
            "schemas": [schema],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": properties,
            "current-snapshot-id": -1,
            "refs": {},
            "snapshots": [],
            "statistics": [],
            "partition-statistics": [],
            "snapshot-log": [],
            "metadata-log": [],
        },
    )


def alter(folder: str, change: TableChange) -> None:
    """Add columns at the end, and store the names of renamed ones, in one commit.

    Args:
        folder: Folder of the table.
        change: A change that does nothing else.

    Raises:
        NeedsSparkError: Only Spark can add such columns.
        LostCommit: Others have committed meanwhile; nothing was done.
    """
    base = newest(folder)
    if base is None:
        raise LostCommit
    have = {field["name"].casefold() for field in base.schema["fields"]}
    if have & {column.name.casefold() for column in change.add}:
        raise LostCommit
    ids = itertools.count(int(base.content["last-column-id"]) + 1)
    added = _fields(change.add, ids)
    number = max(schema["schema-id"] for schema in base.content["schemas"]) + 1
    fields = [*base.schema["fields"], *({**field, "required": False} for field in added)]
    schema = {**base.schema, "schema-id": number, "fields": fields}
    columns = {
        "schemas": [*base.content["schemas"], schema],
        "current-schema-id": number,
        "last-column-id": next(ids) - 1,
    }
    properties = {**base.properties, **names_property(change)}
    content = {**base.content, **(columns if added else {}), "properties": properties}
    commit(base, content, now_ms(base))


def _fields(columns: Sequence[Column], ids: Iterator[int]) -> list[dict[str, Any]]:
    numbers = [next(ids) for _ in columns]
    return [
        {
            "id": number,
            "name": column.name,
            "required": not column.nullable,
            "type": _type(column.dtype, ids),
            **({"doc": column.comment} if column.comment else {}),
        }
        for number, column in zip(numbers, columns, strict=True)
    ]


def _type(dtype: DataType, ids: Iterator[int]) -> Any:
    """Return a type as Iceberg's JSON has it; what is inside of others may be null."""
    if isinstance(dtype, ArrayType):
        number = next(ids)
        element = _type(dtype.elementType, ids)
        return {"type": "list", "element-id": number, "element": element, "element-required": False}
    if isinstance(dtype, MapType):
        numbers = {"key-id": next(ids), "value-id": next(ids)}
        key, value = _type(dtype.keyType, ids), _type(dtype.valueType, ids)
        return {"type": "map", **numbers, "key": key, "value": value, "value-required": False}
    if isinstance(dtype, StructType):
        inside = [Column(field.name, field.name, field.dataType) for field in dtype]
        return {"type": "struct", "fields": _fields(inside, ids)}
    return iceberg_scalar(dtype)
