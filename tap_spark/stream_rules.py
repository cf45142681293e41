"""Rules between the settings of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shared.settings.checking import Problem, nearest
from tap_spark.connection_config import KINDS
from tap_spark.sources.reader_options import NOT_RESUMED, option_problems
from tap_spark.sources.source_declaration import GENERAL, StreamRule
from tap_spark.sources.source_registry import FORMATS, source_format
from tap_spark.sources.table_names import name_parts
from tap_spark.stream_config import is_python_source
from tap_spark.stream_schema import STREAM_SCHEMA

DECLARED = frozenset(STREAM_SCHEMA["properties"])
"""Every setting of a stream; the schema reports others as unknown."""


def stream_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Check the rules between settings of `streams`, and connections that they name."""
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
            text = f"{name!r} is already the name of config['streams'][{seen[name]}]"
            yield Problem(("streams", index, "name"), text)
    yield from _unknown_connections(settings)


def _unknown_connections(settings: Mapping[str, Any]) -> Iterator[Problem]:
    connections = settings.get("connections")
    items = connections if isinstance(connections, list) else []
    streams = settings.get("streams")
    for index, stream in enumerate(streams if isinstance(streams, list) else ()):
        form = source_format(stream.get("format")) if isinstance(stream, Mapping) else None
        if form is None or "connection" not in form.takes:
            continue
        kind, name, at = form.connects, stream.get("connection"), ("streams", index, "connection")
        known = [i.get("name") for i in items if isinstance(i, Mapping) and kind in i]
        if "connection" not in stream and len(known) != 1:
            what = "several" if known else "none"
            yield Problem(at, f"is required: 'connections' has {what} with {KINDS[kind]}")
        elif isinstance(name, str) and name not in known:
            text = f"{name!r} is not a connection with {KINDS[kind]}; known: {known or 'none'}"
            yield Problem(at, text)


def _known_format(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kind = stream.get("format")
    if not isinstance(kind, str) or source_format(kind) is not None:
        return
    match = nearest(kind, FORMATS)
    hint = f"; did you mean {match!r}?" if match else ", nor package.module.Class"
    yield "format", f"{kind!r} is not one of {', '.join(map(repr, FORMATS))}{hint}"


def _place_of_rows(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kind = stream.get("format")
    form = source_format(kind)
    places = form.places if form else ()
    given = [name for name in places if name in stream]
    if places and not given:
        others = " (or " + " or ".join(map(repr, places[1:])) + ")" if places[1:] else ""
        yield places[0], f"is required for the format {kind!r}{others}"
    if len(given) > 1:
        yield given[1], f"excludes {given[0]!r}; give one of them"


def _fields_of_format(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kind = stream.get("format")
    form = source_format(kind)
    if form is None:
        return
    known = {*GENERAL, *form.fields}
    for name in stream:
        if name in DECLARED and name not in known:
            yield name, f"does not apply to the format {kind!r}; remove it"


def _replication(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    method, has_key = stream.get("replication_method"), "replication_key" in stream
    kind = stream.get("format")
    form = source_format(kind)
    if method in ("FULL_TABLE", "LOG_BASED") and has_key:
        yield "replication_key", f"is not used by {method}; remove one of the two"
    if method == "LOG_BASED" and form and not form.has_log and not is_python_source(kind):
        yield "replication_method", f"the format {kind!r} has no log of changes"
    resumes = form is not None and form.resumes
    if method == "INCREMENTAL" and not has_key and isinstance(kind, str) and not resumes:
        yield "replication_key", f"is required for INCREMENTAL with the format {kind!r}"
    if "end_date" in stream and not has_key:
        yield "end_date", "needs a 'replication_key', which it bounds; add one, or remove it"
    if "deletes" in stream and not has_key:
        yield "deletes", "needs a 'replication_key'; other methods replicate deletes, or all rows"
    if stream.get("deletes_every", 1) != 1 and "deletes" not in stream:
        yield "deletes_every", "needs 'deletes'"
    if stream.get("sort_by_replication_key") is True and not has_key:
        yield "sort_by_replication_key", "needs a 'replication_key'"


def _needs_of_format(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kind, options = stream.get("format"), stream.get("options")
    form = source_format(kind)
    if form is None:
        return
    for name in form.required:
        if name not in stream:
            yield name, f"is required for the format {kind!r}"
    names = {name.lower() for name in options} if isinstance(options, Mapping) else set()
    for option, what in form.required_options.items():
        if option.lower() not in names:
            yield "options", f"{option!r} is required for the format {kind!r}: {what}"
    for rule in form.rules:
        yield from rule(stream)


def _table_name(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    table = stream.get("table")
    if isinstance(table, str) and table:
        try:
            name_parts(table)
        except ValueError as error:
            yield "table", f"{error}; quote its parts if they need it"


def _reader_options(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kind, options = stream.get("format"), stream.get("options")
    if not isinstance(kind, str) or not isinstance(options, Mapping):
        return
    form = source_format(kind)
    yield from option_problems(kind, form.options if form else None, options)
    resumed = stream.get("replication_method") == "INCREMENTAL" and "replication_key" not in stream
    if resumed and form and form.resumes:
        refused = {name.lower() for name in NOT_RESUMED}
        for name in options:
            if name.lower() in refused:
                text = "cannot be used if files are resumed by file and line; use a glob"
                yield name, f"{text} in 'path' instead"


STREAM_RULES: tuple[StreamRule, ...] = (
    _known_format,
    _place_of_rows,
    _fields_of_format,
    _replication,
    _needs_of_format,
    _table_name,
)
