"""Catalog entries of the tables of a connection, and the stream settings that read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from shared.errors import SourceError, Where
from tap_spark.planning.catalog import REDISCOVER, build_entry
from tap_spark.sources.source_registry import source_format
from tap_spark.stream_config import StreamConfig

if TYPE_CHECKING:
    from tap_spark.connection_config import ConnectionConfig
    from tap_spark.sources.connections.connection import DiscoveredTable

SOURCE = "tap-spark-source"
_KEPT = ("format", "path", "table", "connection")


def table_entry(found: DiscoveredTable) -> dict[str, Any]:
    """Describe a table as a catalog entry.

    Args:
        found: The table.

    Returns:
        The entry. Its root metadata also has `schema-name`, `table-name`, `is-view`, `row-count`
        and how to read the table; the metadata of each column has `sql-datatype`.
    """
    stream = found.stream
    entry = build_entry(
        stream.name,
        found.struct,
        key_properties=stream.key_properties,
        replication_key=stream.replication_key,
        replication_method=stream.replication_method,
    )
    root = entry["metadata"][0]["metadata"]
    if found.replication_keys is not None:
        root["valid-replication-keys"] = list(found.replication_keys)
    if found.schema_name is not None:
        root["schema-name"] = found.schema_name
    root["table-name"] = entry["table_name"] = found.table_name
    root["is-view"] = entry["is_view"] = found.is_view
    if found.row_count is not None:
        root["row-count"] = entry["row_count"] = found.row_count
    values = asdict(stream)
    root[SOURCE] = {name: values[name] for name in _KEPT if values[name] is not None}
    if stream.own:
        root[SOURCE]["settings"] = dict(stream.own)
    _describe(entry["schema"], found)
    for item in entry["metadata"][1:]:
        breadcrumb = item["breadcrumb"]
        if len(breadcrumb) == 2 and breadcrumb[1] in found.sql_types:  # noqa: PLR2004
            item["metadata"]["sql-datatype"] = found.sql_types[breadcrumb[1]]
    return entry


def _describe(schema: dict[str, Any], found: DiscoveredTable) -> None:
    """Copy the source's comments on table and columns into the JSON Schema."""
    if found.comment:
        schema["description"] = found.comment
    for field in found.struct.fields:
        comment = field.metadata.get("comment")
        if comment:
            property_schema = schema["properties"][field.name]
            schema["properties"][field.name] = {**property_schema, "description": comment}


def stream_of(
    name: str, root: Mapping[str, Any], connections: Sequence[ConnectionConfig]
) -> StreamConfig | None:
    """Return the settings that read a table, from its catalog entry.

    Args:
        name: The stream.
        root: The entry's root metadata.
        connections: The connections of the settings.

    Returns:
        The settings; None if the entry is not a table of a connection.

    Raises:
        SourceError: Its connection is not in the settings, or the entry is invalid.
    """
    source = root.get(SOURCE)
    if source is None:
        return None
    known = {item.name: item for item in connections}
    wanted = source.get("connection") if isinstance(source, Mapping) else None
    if wanted not in known:
        raise SourceError(
            f"the catalog reads it from the connection {wanted!r}, which is not in the settings",
            where=Where(stream=name),
            hint=f"add it to 'connections'; known: {', '.join(known) or 'none'}",
        )
    given = {key: source[key] for key in _KEPT if isinstance(source.get(key), str)}
    form, own = source_format(given.get("format")), source.get("settings") or {}
    if form is None or not {*given, *own} & {*form.places}:
        raise SourceError(
            f"the catalog's '{SOURCE}' is invalid", where=Where(stream=name), hint=REDISCOVER
        )
    return StreamConfig(name=name, database=known[wanted], own=form.typed(dict(own)), **given)
