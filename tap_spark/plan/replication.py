"""Planning: one plan per selected stream, from settings, catalog and state. Pure.

A type that the catalog gives to a column, other than the source's, is followed or refused.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StringType, StructType

from shared.errors import SettingsError, SourceError, Where
from shared.formats.json_schema import spark_to_json_schema
from shared.formats.schema_nodes import HINT
from shared.singer.messages import DELETED_AT
from shared.storage.urls import local_path
from tap_spark.config import TapConfig
from tap_spark.plan import catalog as catalogs
from tap_spark.plan.catalog import stream_of
from tap_spark.sources.formats import FILE_FORMATS, LOG_FORMATS
from tap_spark.sources.source_failures import Report, SourceErrors
from tap_spark.state.bookmarks import (
    RUNS_SINCE_KEYS,
    TEMPORAL,
    TEXT_BY_VALUE,
    Json,
    can_be_bookmark,
    normal_key,
    setting_key,
)
from tap_spark.state.stream_plans import FILES, Method, Resume, StreamPlan
from tap_spark.stream_config import ConnectionConfig, StreamConfig

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


Node = Mapping[str, Any]
TEXT_FORMATS = ("csv", "json", "fixed_width", "xml")
"""Formats whose values are text in the file, which a column of type string keeps."""
_TIMES = ("date", "date-time", "time")
_OF_OTHER_TYPES = (HINT, "minimum", "maximum", "multipleOf", "format", "contentEncoding")
_KEY_PASS = frozenset({"deletes", "deletes-every"})
_NESTED = ("properties", "items", "additionalProperties", "propertyNames", "required")


@dataclass(frozen=True)
class TypedColumns:
    """The columns of a stream with the types that the catalog gives them.

    Attributes:
        schema: JSON Schema of the selected properties.
        source_schema: The source's schema as Spark's JSON text.
        as_text: Columns whose values become text once they are read.
    """

    schema: dict[str, Any]
    source_schema: str | None
    as_text: tuple[str, ...] = ()


def typed_columns(
    stream: str, form: str, schema: dict[str, Any], source_schema: str | None, key: str | None
) -> TypedColumns:
    """Compare the types of the catalog with those of the source.

    Args:
        source_schema: The source's schema as Spark's JSON text; None if the catalog lacks it.
        key: The replication key, whose type stays.

    Raises:
        SourceError: Records cannot follow the catalog.
    """
    if source_schema is None:
        return TypedColumns(schema, None)
    try:
        struct = StructType.fromJson(json.loads(source_schema))
    except Exception as error:
        raise SourceError(
            f"the catalog's '{catalogs.SPARK_SCHEMA}' is invalid", hint=catalogs.REDISCOVER
        ) from error
    source = spark_to_json_schema(struct)["properties"]
    properties, types = dict(schema["properties"]), {f.name: f.dataType for f in struct.fields}
    changed: list[str] = []
    for name, node in schema["properties"].items():
        kind = source.get(name, {})
        problem = None if node == kind else _difference(node, kind)
        if problem is None:
            continue
        if problem or name == key:
            raise _refused(stream, name, problem, node, types[name], is_key=name == key)
        changed.append(name)
        dropped = (*_OF_OTHER_TYPES, *_NESTED)
        properties[name] = {k: v for k, v in node.items() if k not in dropped}
    if not changed:
        return TypedColumns(schema, source_schema)
    schema = {**schema, "properties": properties}
    if form not in TEXT_FORMATS:
        return TypedColumns(schema, source_schema, tuple(changed))
    for field in struct.fields:
        if field.name in changed:
            field.dataType = StringType()
    text = json.dumps(struct.jsonValue(), separators=(",", ":"))
    return TypedColumns(schema, text)


def _difference(node: object, source: Node) -> str | None:
    """Compare a catalog's type with the source's.

    Returns:
        None if values of the source have the catalog's type, an empty text if it is text, else
        the dotted name of what differs.
    """
    if not isinstance(node, Mapping):
        return None
    want, have = _types(node), _types(source)
    if want is None or have is None:
        return None
    if not have <= want | ({"integer"} if "number" in want else set()):
        return "" if want == {"string"} and node.get("format") not in _TIMES else "."
    if have == want == {"string"}:
        return _difference_of_text(node, source)
    for name, inner in (node.get("properties") or {}).items():
        difference = _difference(inner, (source.get("properties") or {}).get(name, {}))
        if difference is not None:
            return f".{name}{difference}"
    items = node.get("items")
    difference = _difference(items, source.get("items") or {}) if items else None
    return None if difference is None else f".items{difference}"


def _difference_of_text(node: Node, source: Node) -> str | None:
    want, have = node.get("format"), source.get("format")
    if want == have or not (want in _TIMES or have in _TIMES):
        return "" if source.get("contentEncoding") and not node.get("contentEncoding") else None
    return "." if want in _TIMES else ""


def _types(node: Node) -> set[str] | None:
    """Return the types without null; None if everything is allowed, or it is told otherwise."""
    types = node.get("type")
    if types is None:
        return None
    names = {types} if isinstance(types, str) else set(types)
    return names - {"null"} or None


def _refused(
    stream: str, name: str, problem: str, node: Node, dtype: DataType, *, is_key: bool
) -> SourceError:
    place = name + problem.rstrip(".")
    wanted = json.dumps({k: v for k, v in node.items() if k in ("type", "format")})
    reason = "the replication key keeps its type" if is_key else "only text can be chosen instead"
    return SourceError(
        f"the catalog gives '{place}' a type that the source does not have "
        f"({wanted if place == name else 'inside'}; it is {dtype.simpleString()}): {reason}",
        where=Where(stream=stream),
        hint="run --discover again, set the stream's 'schema', or cast by a stream map",
    )


START_OVER = "correct the state, or remove the stream's bookmark to read it from the start"

_log = logging.getLogger(__name__)


def plan_streams(
    config: TapConfig,
    catalog: Mapping[str, Any],
    state: Mapping[str, Any] | None,
    now_ms: int,
    failed: Report | None = None,
) -> tuple[StreamPlan, ...]:
    """Plan every selected stream, in the catalog's order.

    Args:
        catalog: The user's catalog, or the result of discovery.
        now_ms: Milliseconds since the epoch; the version of FULL_TABLE streams.
        failed: Takes streams that cannot be planned; None for an error.

    Raises:
        SourceError: Catalog or state is wrong; names every wrong stream.
        SettingsError: The bounds of a stream do not fit its replication key.
    """
    streams = {stream.name: stream for stream in config.streams}
    plans: list[StreamPlan] = []
    errors = SourceErrors(failed)
    for entry in catalog["streams"]:
        if not catalogs.stream_selected(entry):
            continue
        name = entry.get("tap_stream_id") or entry["stream"]
        with errors.of(name):
            stream = _stream(name, entry, streams, config.connections)
            plans.append(_plan(entry, stream, config.start_date, state or {}, now_ms))
    errors.raise_if_any()
    return tuple(plans)


def _stream(
    name: str,
    entry: Mapping[str, Any],
    streams: Mapping[str, StreamConfig],
    connections: Sequence[ConnectionConfig],
) -> StreamConfig:
    root = catalogs.metadata_of(entry).get((), {})
    stream = streams.get(name) or stream_of(name, root, connections)
    if stream is None:
        raise SourceError(
            "the catalog selects a stream that is not in the settings",
            where=Where(stream=name),
            hint=f"add it to 'streams' or deselect it; known: {', '.join(streams) or 'none'}",
        )
    return stream if root.keys().isdisjoint(_KEY_PASS) else _with_key_pass(stream, root)


def _with_key_pass(stream: StreamConfig, root: Mapping[str, Any]) -> StreamConfig:
    """Return the settings of a stream with those of key passes from its catalog entry."""
    deletes, every = root.get("deletes"), root.get("deletes-every", stream.deletes_every)
    if deletes not in (None, "keys") or type(every) is not int or every < 1:
        raise SourceError(
            "the catalog's 'deletes' or 'deletes-every' is invalid",
            where=Where(stream=stream.name),
            hint="write `keys`, and an integer from 1",
        )
    return replace(stream, deletes=deletes or stream.deletes, deletes_every=every)


def _plan(
    entry: Mapping[str, Any],
    stream: StreamConfig,
    start_date: str | None,
    state: Mapping[str, Any],
    now_ms: int,
) -> StreamPlan:
    name = stream.name
    metadata = catalogs.metadata_of(entry)
    root = metadata.get((), {})
    method = _method(entry, root, stream)
    key = _replication_key(entry, root, stream) if method is Method.INCREMENTAL else None
    whole = method is Method.FULL_TABLE
    resume = Resume.NOTHING if whole else _resume(method, key, stream)
    # The catalog is newer than the settings: users edit it, and Meltano adds to its metadata.
    keys = tuple(
        catalogs.root_keys(root) or entry.get("key_properties") or stream.key_properties or ()
    )
    selected = catalogs.selected_schema(entry)
    for column in sorted(entry["schema"]["properties"].keys() - selected["properties"].keys()):
        mark = metadata.get(("properties", column), {})
        if mark.get("selected") and mark.get("inclusion") != "unsupported":
            text = "stream '%s': column '%s' is left out, as none of its fields is selected; %s"
            _log.warning(text, name, column, "select those to be read, or deselect the column")
    # Before the columns, which come from the same text: it says if that is damaged.
    typed = typed_columns(name, stream.format, selected, root.get(catalogs.SPARK_SCHEMA), key)
    columns = _columns(selected, root)
    schema = typed.schema
    if keys or key:
        catalogs.check_keys(name, list(entry["schema"]["properties"]), keys, key, None)
        catalogs.check_keys(name, columns, keys, key, None, "is not selected in the catalog")
    bookmark = (state.get("bookmarks") or {}).get(name) or {}
    start_value, key_type = None, None
    if key is not None:
        key_type = _key_type(stream, key, entry, root)
        start_value = _start_value(name, key, key_type, bookmark, start_date)
    return StreamPlan(
        stream=entry.get("stream") or name,
        tap_stream_id=name,
        config=stream,
        schema=_with_deletes(schema) if method is Method.LOG_BASED else schema,
        columns=columns,
        key_properties=keys,
        method=method,
        resume=resume,
        replication_key=key,
        bookmark=bookmark,
        start_value=start_value,
        end_value=_end_value(stream, key_type) if stream.end_date is not None else None,
        version=now_ms if method is Method.FULL_TABLE else None,
        key_type=key_type,
        runs_since_keys=(
            _runs_since_keys(stream, resume, keys, bookmark) if stream.deletes is not None else None
        ),
        source_schema=typed.source_schema,
        as_text=typed.as_text,
    )


def _method(entry: Mapping[str, Any], root: Mapping[str, Any], stream: StreamConfig) -> Method:
    word = (
        root.get("forced-replication-method")
        or root.get("replication-method")
        or entry.get("replication_method")
        or stream.replication_method
        or ("INCREMENTAL" if _replication_key(entry, root, stream) else "FULL_TABLE")
    )
    where = Where(stream=stream.name)
    own, key = entry.get("replication_method"), root.get("replication-key")
    discovered = "INCREMENTAL" if stream.replication_key else "FULL_TABLE"
    is_discovered = word == (stream.replication_method or discovered)
    if key not in (None, stream.replication_key) and word == Method.FULL_TABLE.value:
        _log.warning(
            "stream '%s': the catalog's replication key '%s' has no effect with FULL_TABLE: set "
            "'replication-method' to INCREMENTAL in the metadata",
            stream.name,
            key,
        )
    # Who chooses another method in the metadata need not change the own field, too.
    if own and own != word and is_discovered:
        _log.warning(
            "stream '%s': using the replication method %s of the catalog's metadata, not %s of its "
            "'replication_method': set 'replication-method' in the metadata",
            stream.name,
            word,
            own,
        )
    try:
        method = Method(word)
    except ValueError:
        raise SourceError(
            f"unknown replication method '{word}'", where=where, hint="FULL_TABLE or INCREMENTAL"
        ) from None
    if method is Method.LOG_BASED and stream.format not in LOG_FORMATS:
        raise SourceError(
            f"format '{stream.format}' has no log to replicate from",
            where=where,
            hint="use FULL_TABLE or INCREMENTAL",
        )
    return method


def _replication_key(
    entry: Mapping[str, Any], root: Mapping[str, Any], stream: StreamConfig
) -> str | None:
    return root.get("replication-key") or entry.get("replication_key") or stream.replication_key


def _with_deletes(schema: Mapping[str, Any]) -> dict[str, Any]:
    deleted = {"type": ["string", "null"], "format": "date-time"}
    return {**schema, "properties": {**schema["properties"], DELETED_AT: deleted}}


def _resume(method: Method, key: str | None, stream: StreamConfig) -> Resume:
    if method is Method.LOG_BASED:
        return Resume.LOG_POSITION
    if key:
        return Resume.REPLICATION_KEY
    if stream.format in FILE_FORMATS:
        return Resume.FILE_POSITION
    raise SourceError(
        f"INCREMENTAL of format '{stream.format}' needs a replication key",
        where=Where(stream=stream.name),
        hint="set 'replication_key', or use FULL_TABLE",
    )


def _columns(schema: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the selected columns in the source's order, as a catalog may have been sorted."""
    selected = schema["properties"]
    order = [field["name"] for field in _fields(root)]
    ordered = [name for name in order if name in selected]
    return (*ordered, *(name for name in selected if name not in set(ordered)))


def _fields(root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    text = root.get(catalogs.SPARK_SCHEMA)
    return list(json.loads(text)["fields"]) if text else []


def _key_type(
    stream: StreamConfig, key: str, entry: Mapping[str, Any], root: Mapping[str, Any]
) -> str:
    types = [field["type"] for field in _fields(root) if field["name"] == key]
    kind = types[0] if types else _type_of_property(entry["schema"]["properties"][key])
    simple = ("string", "char", "varchar", "decimal", "float", "double")
    ordered = ("byte", "short", "integer", "long", *TEMPORAL)
    if kind == "string" and stream.format != "jdbc":
        return TEXT_BY_VALUE
    if isinstance(kind, str) and (kind in ordered or kind.startswith(simple)):
        return kind
    others = ", ".join(f"'{name}'" for name in root.get("valid-replication-keys") or ())
    raise SourceError(
        f"replication key '{key}' is not a number, date, timestamp or string",
        where=Where(stream=stream.name),
        hint=f"use {f'one of the keys {others}' if others else 'another key'}, or FULL_TABLE",
    )


def _type_of_property(schema: Mapping[str, Any]) -> str:
    """Return the Spark type of a JSON Schema, for a replication key."""
    types = schema.get("type", "string")
    types = [types] if isinstance(types, str) else types
    if "integer" in types:
        return "long"
    if "number" in types:
        return "double"
    formats = {"date": "date", "date-time": "timestamp"}
    return formats.get(str(schema.get("format")), "string")


def _end_value(stream: StreamConfig, key_type: str | None) -> Json:
    where = Where(stream=stream.name, setting="end_date")
    if key_type is None:
        hint = "choose this method in the catalog, or remove the setting"
        raise SettingsError("needs INCREMENTAL with a replication key", where=where, hint=hint)
    return setting_key(stream.end_date, key_type, where)


def _runs_since_keys(
    stream: StreamConfig, resume: Resume, keys: tuple[str, ...], bookmark: Mapping[str, Any]
) -> int:
    if resume is not Resume.REPLICATION_KEY or not keys:
        missing = "key properties" if keys == () else "INCREMENTAL with a replication key"
        raise SettingsError(
            f"needs {missing}",
            where=Where(stream=stream.name, setting="deletes"),
            hint="choose them in the settings or the catalog, or remove the setting",
        )
    runs = bookmark.get(RUNS_SINCE_KEYS)
    return runs + 1 if isinstance(runs, int) else 1


def _start_value(
    stream: str,
    key: str,
    key_type: str,
    bookmark: Mapping[str, Any],
    start_date: str | None,
) -> Json:
    old_key = bookmark.get("replication_key")
    if old_key is not None and old_key != key:
        raise SourceError(
            f"the state's bookmark has replication key '{old_key}', not '{key}'",
            where=Where(stream=stream),
            hint=START_OVER,
        )
    value = bookmark.get("replication_key_value")
    # A run that ended within a stream without order has left only where it began.
    value = bookmark.get("starting_replication_value") if value is None else value
    other = next((name for name in (key, "partitions") if bookmark.get(name)), None)
    is_ours = not {"replication_method", FILES}.isdisjoint(bookmark)
    if value is None and other is not None and not is_ours:
        raise SourceError(
            f"the state's bookmark has '{other}', but no 'replication_key_value'",
            where=Where(stream=stream),
            hint=START_OVER,
        )
    what = "the state's bookmark"
    try:
        if not can_be_bookmark(value, key_type):
            is_date = start_date is not None and key_type in (*TEMPORAL, TEXT_BY_VALUE)
            value, what = start_date if is_date else None, "the setting 'start_date'"
        return None if value is None else normal_key(value, key_type)
    except ValueError as error:
        raise SourceError(
            f"{what} does not fit replication key '{key}' of type {key_type}: {error}",
            where=Where(stream=stream),
            hint=START_OVER,
        ) from error


def source_name(plan: StreamPlan, machine: str) -> str | None:
    """Return a name that only streams of the same paths share; None for streams of anything else.

    Args:
        plan: The stream; one with bookmarks or of a range may lack rows of its files.
        machine: Name of the machine, whose files are not those of others.
    """
    if plan.version is None or not plan.config.paths:
        return None
    # Of a range, rows may be missing that are in the files: they must not count as gone.
    if plan.start_value is not None or plan.end_value is not None:
        return None
    places = []
    for path in sorted(plan.config.paths):
        local = local_path(path)
        places.append(path if local is None else f"{machine}:{os.path.abspath(local)}")  # noqa: PTH100
    return hashlib.sha256("\0".join(places).encode(errors="surrogatepass")).hexdigest()[:24]
