"""Singer catalogs: entries of streams and tables, checked, read for the selection, and shown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from shared.errors import SourceError, Where
from shared.settings.loading import read_whole
from shared.settings.texts import text_table
from tap_spark.sources.formats import source_format
from tap_spark.sources.tables import DiscoveredTable
from tap_spark.stream_config import ConnectionConfig, StreamConfig

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


Breadcrumb = tuple[str, ...]
Metadata = Mapping[Breadcrumb, Mapping[str, Any]]
SPARK_SCHEMA = "spark-schema"
REDISCOVER = "run --discover again, or correct the catalog"
_FLAGS = ("selected", "selected-by-default")
_TEXTS = ("stream", "replication_key", "replication-key", SPARK_SCHEMA)
_NAMES = ("key_properties", "table-key-properties", "view-key-properties", "valid-replication-keys")
_INCLUSIONS = ("available", "automatic", "unsupported")


def build_entry(
    name: str,
    struct: StructType,
    *,
    key_properties: Sequence[str] = (),
    replication_key: str | None = None,
    replication_method: str | None = None,
) -> dict[str, Any]:
    """Describe one stream as a catalog entry with the standard metadata.

    Args:
        name: The stream; also its `tap_stream_id`.
        struct: Its columns, kept exactly in the root metadata so that a sync does not infer them.
        replication_method: FULL_TABLE or INCREMENTAL; None to derive it from the replication key.

    Raises:
        SourceError: A key is not a column, or the replication key cannot be ordered.
    """
    from pyspark.sql import types as t  # noqa: PLC0415

    from shared.formats.json_schema import spark_to_json_schema  # noqa: PLC0415

    kinds = (t.NumericType, t.DateType, t.TimestampType, t.TimestampNTZType, t.StringType)
    valid_keys = [field.name for field in struct.fields if isinstance(field.dataType, kinds)]
    if key_properties or replication_key:
        check_keys(name, struct.names, key_properties, replication_key, valid_keys)
    method = replication_method or ("INCREMENTAL" if replication_key else "FULL_TABLE")
    root: dict[str, Any] = {
        "inclusion": "available",
        "selected-by-default": True,
        "table-key-properties": list(key_properties),
        "valid-replication-keys": valid_keys,
        "replication-method": method,
        SPARK_SCHEMA: json.dumps(struct.jsonValue(), separators=(",", ":")),
    }
    entry: dict[str, Any] = {
        "tap_stream_id": name,
        "stream": name,
        "replication_method": method,
        "key_properties": list(key_properties),
        "schema": spark_to_json_schema(struct),
    }
    if replication_key:
        root["replication-key"] = entry["replication_key"] = replication_key
    automatic = {*key_properties, *([replication_key] if replication_key else [])}
    entry["metadata"] = [{"breadcrumb": [], "metadata": root}]
    for _, breadcrumb in schema_paths(entry["schema"]):
        # No pattern of Meltano reaches below `items`: it would deselect all fields there.
        if {*breadcrumb[::2]} != {"properties"}:
            continue
        is_automatic = len(breadcrumb) == 2 and breadcrumb[1] in automatic  # noqa: PLR2004
        inclusion = "automatic" if is_automatic else "available"
        metadata = {"inclusion": inclusion, "selected-by-default": True}
        entry["metadata"].append({"breadcrumb": list(breadcrumb), "metadata": metadata})
    return entry


def check_keys(
    stream: str,
    columns: Sequence[str],
    key_properties: Sequence[str],
    replication_key: str | None,
    valid_keys: Sequence[str] | None,
    missing: str = "is not a column",
) -> None:
    """Check that keys are columns, and that the replication key is one of the valid keys, which
    have an order, if these are known.

    Args:
        missing: What to say of a key that is not among `columns`.

    Raises:
        SourceError: Keys are wrong; names each of them.
    """
    wrong = [f"key property '{key}' {missing}" for key in key_properties if key not in columns]
    hint, listed = "columns: {}", columns
    if replication_key is not None and replication_key not in columns:
        wrong.append(f"replication key '{replication_key}' {missing}")
    elif replication_key is not None and replication_key not in (valid_keys or columns):
        wrong.append(
            f"replication key '{replication_key}' is not a number, date, timestamp or string"
        )
        hint, listed = "use one of the keys {}, or FULL_TABLE", valid_keys or columns
    if wrong:
        shown = ", ".join(listed[:20]) + (", ..." if len(listed) > 20 else "")  # noqa: PLR2004
        raise SourceError("; ".join(wrong), where=Where(stream=stream), hint=hint.format(shown))


def schema_paths(
    schema: Any, above: str = "", base: Breadcrumb = ()
) -> Iterator[tuple[str, Breadcrumb]]:
    """Yield the dotted path and breadcrumb of every property, nested ones after their parent."""
    if not isinstance(schema, Mapping):
        return
    yield from schema_paths(schema.get("items"), above, (*base, "items"))
    for name, child in (schema.get("properties") or {}).items():
        breadcrumb = (*base, "properties", name)
        yield above + name, breadcrumb
        yield from schema_paths(child, f"{above}{name}.", breadcrumb)


def metadata_of(entry: Mapping[str, Any]) -> Metadata:
    """Return the metadata of an entry by breadcrumb."""
    return {
        tuple(item.get("breadcrumb") or ()): item.get("metadata") or {}
        for item in entry.get("metadata") or ()
    }


def stream_selected(entry: Mapping[str, Any]) -> bool:
    """Return whether the stream itself is selected; without any metadata it is."""
    metadata = metadata_of(entry)
    root = {"selected": entry.get("selected"), **metadata.get((), {})}
    return _selected(root, parent=not metadata)


def selected_schema(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry's JSON Schema without the properties that are not selected, at any depth."""
    return _prune(entry["schema"], metadata_of(entry), (), parent=True)


def load_catalog(path: str) -> dict[str, Any]:
    """Read a catalog file.

    Raises:
        SourceError: It cannot be read, is not JSON, or is not a catalog.
    """
    where = Where(file=path)
    try:
        catalog = json.loads(read_whole(path))
    except OSError as error:
        raise SourceError(f"cannot read the catalog: {error.strerror}", where=where) from error
    except (ValueError, RecursionError) as error:
        raise SourceError(f"the catalog is not JSON: {error}", where=where) from error
    check_catalog(catalog, path)
    return dict(catalog)


def check_catalog(catalog: object, path: str | None = None) -> None:
    """Check the structure of a catalog.

    Raises:
        SourceError: It is wrong; names every problem and its stream.
    """
    problems = list(_problems(catalog))
    if problems:
        raise SourceError(
            "the catalog is wrong: " + "; ".join(problems),
            where=Where(file=path),
            hint=REDISCOVER,
        )


def _problems(catalog: object) -> Iterator[str]:
    streams = catalog.get("streams") if isinstance(catalog, Mapping) else None
    if not isinstance(streams, list):
        yield "it has no list 'streams'"
        return
    seen: set[str] = set()
    for number, entry in enumerate(streams):
        name = stream_id(entry)
        if name is None:
            yield f"streams[{number}] has no 'tap_stream_id'"
            continue
        if name in seen:
            yield f"stream '{name}' is listed twice"
        seen.add(name)
        yield from (f"stream '{name}' {problem}" for problem in _entry_problems(entry))


def _entry_problems(entry: Mapping[str, Any]) -> Iterator[str]:
    schema = entry.get("schema")
    if not isinstance(schema, Mapping) or not isinstance(schema.get("properties"), Mapping):
        yield "has no schema with properties"
    else:
        yield from _node_problems(schema, "the schema")
    yield from _word_problems(entry, "")
    metadata = entry.get("metadata") or []
    if not isinstance(metadata, list):
        yield "has metadata that is not a list"
        return
    for item in metadata:
        good = item and isinstance(item, Mapping) and _is_names(item.get("breadcrumb"))
        if not good or not isinstance(item.get("metadata") or {}, Mapping):
            yield "has a metadata item without breadcrumb and metadata"
            return
        place = "/".join(item.get("breadcrumb") or ())
        yield from _word_problems(item.get("metadata") or {}, f" in the metadata of '{place}'")


def root_keys(root: Mapping[str, Any]) -> Sequence[str]:
    """Return the key of a stream by the metadata of its root."""
    return root.get("table-key-properties") or root.get("view-key-properties") or ()


def _is_names(value: object) -> bool:
    is_list = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return value is None or is_list


def _word_problems(words: Mapping[str, Any], where: str) -> Iterator[str]:
    """Yield what would be read in another way than it is meant; null is as if it was missing."""
    for key, value in words.items():
        if key in _FLAGS and not isinstance(value, bool | None):
            yield f"has {key!r} {value!r}{where}, which is neither true nor false"
        elif key in _TEXTS and not isinstance(value, str | None):
            yield f"has {key!r}{where} that is not a text"
        elif key in _NAMES and not _is_names(value):
            yield f"has {key!r}{where} that is not a list of names"
        elif key == "inclusion" and value not in (None, *_INCLUSIONS):
            yield f"has {key!r} {value!r}{where}, which is none of {', '.join(_INCLUSIONS)}"


def _node_problems(node: object, place: str) -> Iterator[str]:
    if not isinstance(node, Mapping):
        yield f"has a JSON Schema of {place} that is not an object"
        return
    kinds, properties = node.get("type"), node.get("properties") or {}
    if not (isinstance(kinds, str) or _is_names(kinds)) or not isinstance(properties, Mapping):
        yield f"has a JSON Schema of {place} whose 'type' or 'properties' is invalid"
        return
    for name, child in properties.items():
        yield from _node_problems(child, f"'{name}'")
    if isinstance(node.get("items"), Mapping):
        yield from _node_problems(node["items"], f"the items of {place}")


def stream_id(entry: object) -> str | None:
    """Return the `tap_stream_id` of an entry; None if it has no name."""
    name = entry.get("tap_stream_id") or entry.get("stream") if isinstance(entry, Mapping) else None
    return name if isinstance(name, str) else None


def _selected(metadata: Mapping[str, Any], *, parent: bool) -> bool:
    inclusion = metadata.get("inclusion")
    if inclusion in ("automatic", "unsupported"):
        return bool(inclusion == "automatic")
    for key in ("selected", "selected-by-default"):
        if metadata.get(key) is not None:
            return bool(metadata[key])
    return parent


def _prune(
    node: Mapping[str, Any], metadata: Metadata, breadcrumb: Breadcrumb, *, parent: bool
) -> dict[str, Any]:
    pruned = dict(node)
    if isinstance(node.get("items"), Mapping):
        pruned["items"] = _prune(node["items"], metadata, (*breadcrumb, "items"), parent=parent)
    properties = node.get("properties")
    if not isinstance(properties, Mapping):
        return pruned
    kept: dict[str, Any] = {}
    for name, child in properties.items():
        path = (*breadcrumb, "properties", name)
        if _selected(metadata.get(path, {}), parent=parent):
            kept_child = _prune(child, metadata, path, parent=True) if child else child
            if kept_child == child or not _emptied(child, kept_child):
                kept[name] = kept_child
    pruned["properties"] = kept
    if isinstance(node.get("required"), list):
        pruned["required"] = [name for name in node["required"] if name in kept]
    return pruned


def _emptied(before: object, after: dict[str, Any]) -> bool:
    """Return whether every field of a struct was deselected; it is then removed, too."""
    if not isinstance(before, Mapping):
        return False
    if isinstance(before.get("items"), Mapping):
        return _emptied(before["items"], after["items"])
    return bool(before.get("properties")) and not after["properties"]


SOURCE = "tap-spark-source"
_KEPT = ("format", "path", "table", "connection")


def table_entry(table: DiscoveredTable) -> dict[str, Any]:
    """Describe a table as a catalog entry.

    Its root metadata also has `schema-name`, `table-name`, `is-view`, `row-count` and how to read
    the table; the metadata of each column has `sql-datatype`.
    """
    stream = table.stream
    entry = build_entry(
        stream.name,
        table.struct,
        key_properties=stream.key_properties,
        replication_key=stream.replication_key,
        replication_method=stream.replication_method,
    )
    root = entry["metadata"][0]["metadata"]
    if table.replication_keys is not None:
        root["valid-replication-keys"] = list(table.replication_keys)
    if table.schema_name is not None:
        root["schema-name"] = table.schema_name
    root["table-name"] = entry["table_name"] = table.table_name
    root["is-view"] = entry["is_view"] = table.is_view
    if table.row_count is not None:
        root["row-count"] = entry["row_count"] = table.row_count
    values = asdict(stream)
    root[SOURCE] = {name: values[name] for name in _KEPT if values[name] is not None}
    if stream.own:
        root[SOURCE]["settings"] = dict(stream.own)
    _describe(entry["schema"], table)
    for item in entry["metadata"][1:]:
        breadcrumb = item["breadcrumb"]
        if len(breadcrumb) == 2 and breadcrumb[1] in table.sql_types:  # noqa: PLR2004
            item["metadata"]["sql-datatype"] = table.sql_types[breadcrumb[1]]
    return entry


def _describe(schema: dict[str, Any], table: DiscoveredTable) -> None:
    """Copy the source's comments on table and columns into the JSON Schema."""
    if table.comment:
        schema["description"] = table.comment
    for field in table.struct.fields:
        comment = field.metadata.get("comment")
        if comment:
            property_schema = schema["properties"][field.name]
            schema["properties"][field.name] = {**property_schema, "description": comment}


def stream_of(
    name: str, root: Mapping[str, Any], connections: Sequence[ConnectionConfig]
) -> StreamConfig | None:
    """Return the settings that read a table, from the root metadata of its catalog entry; None if
    it is not a table of a connection.

    Raises:
        SourceError: Its connection is not in the settings, or the entry is invalid.
    """
    source = root.get(SOURCE)
    if source is None:
        return None
    by_name = {item.name: item for item in connections}
    wanted = source.get("connection") if isinstance(source, Mapping) else None
    if wanted not in by_name:
        raise SourceError(
            f"the catalog reads it from the connection {wanted!r}, which is not in the settings",
            where=Where(stream=name),
            hint=f"add it to 'connections'; known: {', '.join(by_name) or 'none'}",
        )
    kept = {key: source[key] for key in _KEPT if isinstance(source.get(key), str)}
    form, own = source_format(kept.get("format")), source.get("settings") or {}
    if form is None or not {*kept, *own} & {*form.places}:
        raise SourceError(
            f"the catalog's '{SOURCE}' is invalid", where=Where(stream=name), hint=REDISCOVER
        )
    return StreamConfig(name=name, database=by_name[wanted], own=form.typed(dict(own)), **kept)


MOST_STREAMS = 20
"""Streams up to which the columns are shown, too."""
_HEAD = ("stream", "rows", "columns", "key", "replication key", "method", "selected")
_CUTTABLE = (0, 3, 4)


def catalog_lines(
    catalog: Mapping[str, Any], rows: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yield a table with a line for each stream, and one of the columns of each selected stream.

    Args:
        rows: How many rows streams have, as text.
    """
    table = [_HEAD, *(_cells(entry, rows or {}) for entry in catalog["streams"])]
    yield from text_table(table, cuttable=_CUTTABLE)
    chosen = [entry for entry in catalog["streams"] if stream_selected(entry)]
    if len(chosen) > MOST_STREAMS:
        yield f"\n`--select STREAM` shows the columns of up to {MOST_STREAMS} streams."
        return
    for entry in chosen:
        yield ""
        head = (entry["tap_stream_id"], "type", "")
        yield from text_table([head, *_columns(entry)], cuttable=(0, 1))


def _cells(entry: Mapping[str, Any], rows: Mapping[str, str]) -> tuple[str, ...]:
    root = metadata_of(entry).get((), {})
    every = len(entry["schema"]["properties"])
    chosen = len(selected_schema(entry)["properties"])
    return (
        entry["tap_stream_id"],
        rows.get(entry["tap_stream_id"], "-"),
        str(every) if chosen == every else f"{chosen} of {every}",
        ", ".join(root_keys(root)) or "-",
        root.get("replication-key") or "-",
        root.get("replication-method") or entry.get("replication_method") or "-",
        "yes" if stream_selected(entry) else "no",
    )


def _columns(entry: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    from pyspark.sql.types import StructType  # noqa: PLC0415

    metadata = metadata_of(entry)
    root, chosen = metadata.get((), {}), selected_schema(entry)["properties"]
    struct = StructType.fromJson(json.loads(root[SPARK_SCHEMA]))
    for field in struct.fields:
        sql_type = metadata.get(("properties", field.name), {}).get("sql-datatype")
        roles = {
            "key": field.name in root_keys(root),
            "replication key": field.name == root.get("replication-key"),
            "not selected": field.name not in chosen,
        }
        role = ", ".join(name for name, applies in roles.items() if applies)
        yield field.name, sql_type or field.dataType.simpleString(), role
