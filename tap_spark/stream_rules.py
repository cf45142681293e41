"""The rules between the fields of one item of the setting `streams`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from shared.settings_check import INVALID, Problem, nearest
from shared.table_names import name_parts
from tap_spark.reader_options import NOT_RESUMED, option_problems
from tap_spark.stream_config import (
    FILE_FORMATS,
    FORMATS,
    LOG_FORMATS,
    PLACES,
    is_python_source,
)


def stream_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Cross-field rules of `streams`."""
    streams = settings.get("streams")
    seen: dict[str, int] = {}
    for index, stream in enumerate(streams if isinstance(streams, list) else ()):
        if not isinstance(stream, Mapping):
            continue
        for rule in STREAM_RULES:
            yield from (Problem(("streams", index, key), text) for key, text in rule(stream))
        for option, text in _reader_options(stream):
            yield Problem(("streams", index, "options", option), text)
        name = stream.get("name")
        if isinstance(name, str) and seen.setdefault(name, index) != index:
            text = f"{name!r} is the name of config['streams'][{seen[name]}] too"
            yield Problem(("streams", index, "name"), text)


StreamRule = Callable[[Mapping[str, Any]], Iterator[tuple[str, str]]]


def _known_format(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kind = stream.get("format")
    if not isinstance(kind, str) or kind in FORMATS or is_python_source(kind):
        return
    match = nearest(kind, FORMATS)
    hint = f"; did you mean {match!r}?" if match else ", nor package.module.Class"
    yield "format", f"{kind!r} is not one of {', '.join(map(repr, FORMATS))}{hint}"


def _place_of_rows(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kind = stream.get("format")
    places = PLACES.get(kind, ()) if isinstance(kind, str) else ()
    given = [name for name in places if name in stream]
    if places and not given:
        others = " (or " + " or ".join(map(repr, places[1:])) + ")" if places[1:] else ""
        yield places[0], f"is required for the format {kind!r}{others}"
    if len(given) > 1:
        yield given[1], f"excludes {given[0]!r}; give one of them"


def _fields_of_format(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kind = stream.get("format")
    if kind is None or kind is INVALID or not (kind in FORMATS or is_python_source(kind)):
        return
    readers = (*FILE_FORMATS, *LOG_FORMATS, "jdbc")
    only_for = {
        "path": (*FILE_FORMATS, *LOG_FORMATS),
        "table": (*LOG_FORMATS, "jdbc", "table"),
        "query": ("jdbc", "sql"),
        "connection": ("jdbc",),
        "options": (*readers, "table"),
        "schema": FILE_FORMATS,
        "records_path": ("json",),
        "columns": ("fixed_width",),
        "read_unterminated_line": ("csv", "text", "fixed_width"),
        "row_count": ("rows",),
        "column_count": ("rows",),
    }
    free = ("path", "options", "schema") if is_python_source(kind) else ()
    for name, formats in only_for.items():
        if name in stream and kind not in formats and name not in free:
            yield name, f"has no meaning for the format {kind!r}; leave it out"


def _replication(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    method, has_key = stream.get("replication_method"), "replication_key" in stream
    kind = stream.get("format")
    if method in ("FULL_TABLE", "LOG_BASED") and has_key:
        yield "replication_key", f"is not used by {method}; leave one of the two out"
    if method == "LOG_BASED" and kind not in LOG_FORMATS and kind in FORMATS:
        yield "replication_method", f"the format {kind!r} has no log of changes"
    if method == "INCREMENTAL" and not has_key and kind not in FILE_FORMATS:
        yield "replication_key", f"is required for INCREMENTAL with the format {kind!r}"
    if stream.get("sort_by_replication_key") is True and not has_key:
        yield "sort_by_replication_key", "needs a 'replication_key'"


def _needs_of_format(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kind, options = stream.get("format"), stream.get("options")
    if kind == "fixed_width" and "columns" not in stream:
        yield "columns", "is required for the format 'fixed_width'"
    names = options if isinstance(options, Mapping) else {}
    if kind == "xml" and "rowtag" not in {name.lower() for name in names}:
        yield "options", "'rowTag' is required for the format 'xml': the element that is a row"
    if is_python_source(kind) and isinstance(stream.get("path"), list):
        yield "path", "must be one path for a Spark DataSource class"


def _column_names(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    columns = stream.get("columns")
    items = columns if isinstance(columns, list) else []
    seen: set[str] = set()
    for item in items:
        name = item.get("name") if isinstance(item, Mapping) else None
        if isinstance(name, str):
            if name.lower() in seen:
                yield "columns", f"{name!r} is the name of several columns"
            seen.add(name.lower())


def _table_name(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    table = stream.get("table")
    if isinstance(table, str) and table:
        try:
            name_parts(table)
        except ValueError as error:
            yield "table", f"{error}; quote its parts where they need it"


def _reader_options(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kind, options = stream.get("format"), stream.get("options")
    if not isinstance(kind, str) or not isinstance(options, Mapping):
        return
    yield from option_problems(kind, options)
    resumed = stream.get("replication_method") == "INCREMENTAL" and "replication_key" not in stream
    if resumed and kind in FILE_FORMATS:
        refused = {name.lower() for name in NOT_RESUMED}
        for name in options:
            if name.lower() in refused:
                text = "cannot be used where files are resumed by file and line; give a glob"
                yield name, f"{text} in 'path' instead"


STREAM_RULES: tuple[StreamRule, ...] = (
    _known_format,
    _place_of_rows,
    _fields_of_format,
    _replication,
    _needs_of_format,
    _column_names,
    _table_name,
)
