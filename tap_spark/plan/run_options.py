"""What the command line asks of one run: which streams, how much of them, from where on. Pure.

Its rules come on top of the catalog's: streams, columns and their keys.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from shared.errors import SettingsError, Where
from tap_spark.config import TapConfig
from tap_spark.plan.catalog import Breadcrumb, schema_paths, stream_id, stream_selected
from tap_spark.state.bookmarks import parse_key, setting_key
from tap_spark.state.stream_plans import Resume, StreamPlan

_NEAR, _LIKENESS = 5, 0.4
_WILDCARDS = "*?["


@dataclass(frozen=True)
class CatalogRules:
    """The options `--select`, `--key` and `--replication-key`.

    Attributes:
        select: Patterns of `stream` and `stream.column`; with `!`, of what to leave out.
        keys: `stream=column,...`: the key properties.
        replication_keys: `stream=column`: the replication keys.
    """

    select: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    replication_keys: tuple[str, ...] = ()

    @property
    def positive(self) -> tuple[str, ...]:
        """The patterns that select."""
        return tuple(pattern for pattern in self.select if not pattern.startswith("!"))

    @property
    def negative(self) -> tuple[str, ...]:
        """The patterns that leave out."""
        return tuple(pattern[1:] for pattern in self.select if pattern.startswith("!"))

    def may_select(self, stream: str) -> bool:
        """Return whether a stream may be read, as far as its name tells."""
        return not self.positive or any(_may_match(one, stream) for one in self.positive)


NO_RULES = CatalogRules()


def _may_match(pattern: str, stream: str) -> bool:
    at = next((i for i, sign in enumerate(pattern) if sign in _WILDCARDS), len(pattern))
    literal, name = pattern[:at], f"{stream}."
    most = min(len(literal), len(name))
    return literal[:most] == name[:most]


def ruled_catalog(
    catalog: Mapping[str, Any], rules: CatalogRules, failed: Iterable[str] = ()
) -> Mapping[str, Any]:
    """Return a catalog as the rules change it.

    Args:
        rules: The rules; a stream also goes by the name `schema.table`.
        failed: Streams that discovery could not describe; patterns may match them.

    Raises:
        SettingsError: A rule matches nothing, names a column that the stream lacks, or leaves out a
            column of its key.
    """
    if rules == NO_RULES:
        return catalog
    streams = [_Stream(deepcopy(entry)) for entry in catalog["streams"]]
    lost = tuple(failed)
    for rule in rules.keys:
        for stream, columns in _of_rule("--key", rule, streams, lost):
            stream.set_key(columns)
    for rule in rules.replication_keys:
        for stream, columns in _of_rule("--replication-key", rule, streams, lost):
            stream.set_replication_key(columns)
    for pattern in (*rules.positive, *rules.negative):
        if not any(stream.matches(pattern) for stream in streams):
            _check_lost("--select", pattern, streams, lost)
    for stream in streams:
        stream.select(rules.positive, rules.negative)
    return {**catalog, "streams": [stream.entry for stream in streams]}


def _of_rule(
    option: str, rule: str, streams: Sequence[_Stream], lost: Sequence[str]
) -> Iterator[tuple[_Stream, list[str]]]:
    pattern, _, text = rule.partition("=")
    columns = [part.strip() for part in text.split(",")]
    is_single = option == "--replication-key"
    if not pattern or not all(columns) or (is_single and len(columns) > 1):
        form = "STREAM=COLUMN" if is_single else "STREAM=COLUMN,..."
        raise SettingsError(f"{option} {rule!r} is not {form}")
    matched = [stream for stream in streams if stream.is_named(pattern)]
    if not matched:
        _check_lost(option, pattern, streams, lost)
    for stream in matched:
        stream.check_columns(option, columns)
        yield stream, columns


def _check_lost(option: str, pattern: str, streams: Sequence[_Stream], lost: Sequence[str]) -> None:
    """Raise SettingsError unless a pattern matches a stream that could not be described."""
    if any(_may_match(pattern, name) for name in lost):
        return
    names = [name for stream in streams for name in stream.names]
    paths = [f"{stream.names[-1]}.{path}" for stream in streams for path in stream.paths]
    raise no_match(option, pattern, names if option != "--select" else [*names, *paths], names)


def no_match(
    option: str, pattern: str, choices: Sequence[str], names: Sequence[str]
) -> SettingsError:
    """Return the error of a pattern that matches none of the choices; it lists those that are like
    it, else names.
    """
    near = get_close_matches(pattern, choices, _NEAR, _LIKENESS) or list(names[:_NEAR])
    hint = f"near: {', '.join(near)}" if near else "there is no stream"
    return SettingsError(f"{option} {pattern!r} matches nothing", hint=hint)


class _Stream:
    """A copy of a catalog entry, which the rules change."""

    def __init__(self, entry: dict[str, Any]) -> None:
        self.entry = entry
        self._items: dict[Breadcrumb, dict[str, Any]] = {}
        for item in entry.get("metadata") or ():
            item["metadata"] = item.get("metadata") or {}
            self._items[tuple(item.get("breadcrumb") or ())] = item["metadata"]
        if not self._items:
            self._metadata(())["selected"] = stream_selected(entry)
        root = self._items.get((), {})
        names = [str(stream_id(entry))]
        if "table-name" in root:
            parts = (root.get("schema-name"), root["table-name"])
            names.append(".".join(str(part) for part in parts if part is not None))
        self.names = tuple(dict.fromkeys(names))
        self.paths = dict(schema_paths(entry["schema"]))

    def is_named(self, pattern: str) -> bool:
        """Return whether a pattern matches the stream itself."""
        return any(fnmatchcase(name, pattern) for name in self.names)

    def matches(self, pattern: str) -> bool:
        """Return whether a pattern matches the stream or one of its columns."""
        return self.is_named(pattern) or any(map(self._is_hit(pattern), self.paths))

    def _is_hit(self, pattern: str) -> Callable[[str], bool]:
        return lambda path: any(fnmatchcase(f"{name}.{path}", pattern) for name in self.names)

    def check_columns(self, option: str, columns: Sequence[str]) -> None:
        """Raise SettingsError if the stream lacks a column."""
        present = list(self.entry["schema"]["properties"])
        for column in columns:
            if column not in present:
                near = get_close_matches(column, present, _NEAR, _LIKENESS) or present[:_NEAR]
                raise SettingsError(
                    f"{option}: '{column}' is not a column",
                    where=Where(stream=self.names[0]),
                    hint=f"near: {', '.join(near)}",
                )

    def set_key(self, columns: Sequence[str]) -> None:
        root = self._metadata(())
        for column in {*(root.get("table-key-properties") or ())} - {root.get("replication-key")}:
            self._metadata(("properties", column))["inclusion"] = "available"
        root["table-key-properties"] = self.entry["key_properties"] = list(columns)
        self._always(columns)

    def set_replication_key(self, columns: Sequence[str]) -> None:
        """Set the replication key, and the method INCREMENTAL."""
        root, [column] = self._metadata(()), columns
        valid = root.get("valid-replication-keys")
        # Texts without an index are not offered; databases say whether they can be one.
        is_text = "string" in (self.entry["schema"]["properties"][column].get("type") or ())
        if valid is not None and column not in valid and not is_text:
            raise SettingsError(
                f"--replication-key: '{column}' is not a number, date, timestamp or string",
                where=Where(stream=self.names[0]),
                hint=f"choose one of {', '.join(valid) or 'other streams'}",
            )
        root.pop("forced-replication-method", None)
        root["replication-key"] = self.entry["replication_key"] = column
        root["replication-method"] = self.entry["replication_method"] = "INCREMENTAL"
        self._always(columns)

    def _always(self, columns: Iterable[str]) -> None:
        for column in columns:
            self._metadata(("properties", column))["inclusion"] = "automatic"

    def select(self, positive: Sequence[str], negative: Sequence[str]) -> None:
        """Select the stream and its columns."""
        if positive:
            wanted = self._hits(positive)
            self._metadata(())["selected"] = bool(wanted) or any(map(self.is_named, positive))
            above = {crumb[:length] for crumb in wanted for length in range(len(crumb))}
            for crumb in self.paths.values():
                self._metadata(crumb)["selected"] = crumb in wanted or crumb in above
        unwanted = self._hits(negative)
        if any(map(self.is_named, negative)) or (unwanted and len(unwanted) == len(self.paths)):
            self._metadata(())["selected"] = False
            return
        for crumb in unwanted:
            if self._metadata(crumb).get("inclusion") == "automatic":
                raise SettingsError(
                    f"--select leaves out '{crumb[-1]}', which is part of a key",
                    where=Where(stream=self.names[0]),
                    hint="choose other columns by --key and --replication-key, or hash it by "
                    "stream_maps",
                )
            self._metadata(crumb)["selected"] = False

    def _hits(self, patterns: Sequence[str]) -> set[Breadcrumb]:
        """Return what patterns match, and what is inside of it."""
        whole = any(map(self.is_named, patterns))
        tests = [self._is_hit(pattern) for pattern in patterns]
        hits: set[Breadcrumb] = set()
        for path, crumb in self.paths.items():
            inside = any(crumb[:length] in hits for length in range(1, len(crumb)))
            if whole or inside or any(test(path) for test in tests):
                hits.add(crumb)
        return hits

    def _metadata(self, crumb: Breadcrumb) -> dict[str, Any]:
        """Return the metadata of a breadcrumb, which the entry has from now on."""
        if crumb not in self._items:
            self._items[crumb] = {}
            item = {"breadcrumb": list(crumb), "metadata": self._items[crumb]}
            self.entry["metadata"] = [*(self.entry.get("metadata") or ()), item]
        return self._items[crumb]


SHOWN_NAMES = 20


@dataclass(frozen=True)
class StreamRange:
    """A range of a stream to read again.

    Attributes:
        start: Least replication key (inclusive).
        end: Upper bound of the replication key (exclusive).
    """

    stream: str
    start: str
    end: str


@dataclass(frozen=True)
class RunOptions:
    """The options of a run.

    Attributes:
        streams: Patterns of the streams to read; empty for all.
        full_refresh: Patterns of streams to read again as a whole.
        limit: Most records of each stream; None for all.
        backfill: The only range to read, without any bookmark; None for an ordinary run.
        rules: Rules on top of the catalog.
    """

    streams: tuple[str, ...] = ()
    full_refresh: tuple[str, ...] = ()
    limit: int | None = None
    backfill: StreamRange | None = None
    rules: CatalogRules = NO_RULES

    @property
    def reads_all(self) -> bool:
        """Return whether streams are read to their end, so that STATE and versions are true."""
        return self.limit is None and self.backfill is None


EVERYTHING = RunOptions()


def chosen_settings(config: TapConfig, options: RunOptions) -> TapConfig:
    """Return the settings without streams that the options leave out.

    Raises:
        SettingsError: A pattern matches no stream, and connections have no others.
    """
    names, rules = [item.name for item in config.streams], options.rules
    if not config.connections:
        _check_names(names, options)
        for pattern in rules.positive:
            if not any(CatalogRules((pattern,)).may_select(name) for name in names):
                raise no_match("--select", pattern, names, names)
    streams = (item for item in config.streams if _is_chosen(item.name, options))
    return replace(config, streams=tuple(item for item in streams if rules.may_select(item.name)))


def chosen_catalog(
    catalog: Mapping[str, Any], options: RunOptions, failed: Iterable[str] = ()
) -> Mapping[str, Any]:
    """Return a checked catalog without streams that the options leave out.

    Args:
        failed: Streams that discovery could not describe.

    Raises:
        SettingsError: A pattern matches none of the selected streams.
    """
    if not options.streams and not options.full_refresh and options.backfill is None:
        return catalog
    entries = [entry for entry in catalog["streams"] if stream_selected(entry)]
    names = [*(str(stream_id(entry)) for entry in entries), *failed]
    _check_names(names, options)
    chosen = [entry for entry in entries if _is_chosen(str(stream_id(entry)), options)]
    return {**catalog, "streams": chosen}


def refreshed_state(
    state: Mapping[str, Any], options: RunOptions, streams: Container[str] | None = None
) -> Mapping[str, Any]:
    """Return the state with empty bookmarks for streams whose bookmarks do not count.

    Args:
        streams: The streams of the run; None if they are not planned yet.
    """
    if (options.backfill is None and not options.full_refresh) or not state.get("bookmarks"):
        return state
    # Empty, not removed: it is not the first run of the stream.
    patterns = options.full_refresh if options.backfill is None else ("*",)
    chosen = {
        name
        for name in state["bookmarks"]
        if _matches(name, patterns) and _is_chosen(name, options)
        if streams is None or name in streams
    }
    bookmarks = {name: {} if name in chosen else mark for name, mark in state["bookmarks"].items()}
    return {**state, "bookmarks": bookmarks}


def as_asked(plan: StreamPlan, options: RunOptions) -> StreamPlan:
    """Return the plan of a stream as the options change it.

    Raises:
        SettingsError: The range of a backfill does not fit the stream.
    """
    if options.backfill is not None:
        plan = _backfilled(plan, options.backfill)
    # Rows of a trial keep their version, without ACTIVATE_VERSION: the next complete run removes
    # them, as those of a run that failed. No target may remove rows whose keys were not sent.
    return plan if options.reads_all else replace(plan, runs_since_keys=None)


def _backfilled(plan: StreamPlan, backfill: StreamRange) -> StreamPlan:
    kind = plan.key_type
    if plan.resume is not Resume.REPLICATION_KEY or kind is None:
        raise SettingsError(
            "--backfill needs a stream that is INCREMENTAL by a replication key",
            where=Where(stream=plan.tap_stream_id),
            hint="set its 'replication_key'",
        )
    bounds = {"--from": backfill.start, "--to": backfill.end}
    low, high = (
        setting_key(value, kind, Where(stream=plan.tap_stream_id, setting=option))
        for option, value in bounds.items()
    )
    if not parse_key(low, kind) < parse_key(high, kind):
        raise SettingsError(
            f"--from {backfill.start} is not below --to {backfill.end}",
            where=Where(stream=plan.tap_stream_id),
        )
    return replace(plan, start_value=low, end_value=high, null_keys=False, version=None)


def _is_chosen(name: str, options: RunOptions) -> bool:
    if options.backfill is not None:
        return name == options.backfill.stream
    return not options.streams or _matches(name, options.streams)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _check_names(names: Sequence[str], options: RunOptions) -> None:
    if options.backfill is not None and options.backfill.stream not in names:
        raise _no_match("--backfill", [options.backfill.stream], names)
    _check_patterns("--streams", options.streams, names)
    left = [name for name in names if _is_chosen(name, options)]
    _check_patterns("--full-refresh", options.full_refresh, left)


def _check_patterns(option: str, patterns: Iterable[str], names: Sequence[str]) -> None:
    wrong = [pattern for pattern in patterns if not any(_matches(n, [pattern]) for n in names)]
    if wrong:
        raise _no_match(option, wrong, names)


def _no_match(option: str, wrong: Sequence[str], names: Sequence[str]) -> SettingsError:
    shown = ", ".join(names[:SHOWN_NAMES]) + (", ..." if len(names) > SHOWN_NAMES else "")
    return SettingsError(
        f"{option} {', '.join(map(repr, wrong))} matches no stream of this run",
        hint=f"streams: {shown or 'none'}",
    )
