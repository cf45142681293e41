"""What the command line asks of one run: which streams, how much of them, from where on. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from shared.errors import SettingsError, Where
from tap_spark.planning.catalog import stream_id, stream_selected
from tap_spark.planning.catalog_rules import NO_RULES, CatalogRules, no_match
from tap_spark.state.bookmarks import given_key, parse_key
from tap_spark.state.stream_plans import Resume, StreamPlan

if TYPE_CHECKING:
    from tap_spark.config import TapConfig

SHOWN_NAMES = 20


@dataclass(frozen=True)
class StreamRange:
    """A range of a stream to read again.

    Attributes:
        stream: The stream.
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
    """Return the catalog without streams that the options leave out.

    Args:
        catalog: A checked catalog.
        options: The options.
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


def refreshed_state(state: Mapping[str, Any], options: RunOptions) -> Mapping[str, Any]:
    """Return the state with empty bookmarks for streams whose bookmarks do not count."""
    if (options.backfill is None and not options.full_refresh) or not state.get("bookmarks"):
        return state
    # Empty, not removed: it is not the first run of the stream.
    patterns = options.full_refresh if options.backfill is None else ("*",)
    bookmarks = {
        name: {} if _matches(name, patterns) and _is_chosen(name, options) else mark
        for name, mark in state["bookmarks"].items()
    }
    return {**state, "bookmarks": bookmarks}


def as_asked(plan: StreamPlan, options: RunOptions) -> StreamPlan:
    """Return the plan of a stream as the options change it.

    Raises:
        SettingsError: The range of a backfill does not fit the stream.
    """
    if options.backfill is not None:
        plan = _backfilled(plan, options.backfill)
    # A target removes the rows of older versions, and those whose keys were not sent.
    return plan if options.reads_all else replace(plan, version=None, runs_since_keys=None)


def _backfilled(plan: StreamPlan, backfill: StreamRange) -> StreamPlan:
    kind = plan.key_type
    if plan.resume is not Resume.REPLICATION_KEY or kind is None:
        raise SettingsError(
            "--backfill needs a stream that is INCREMENTAL by a replication key",
            where=Where(stream=plan.tap_stream_id),
            hint="set its 'replication_key'",
        )
    given = {"--from": backfill.start, "--to": backfill.end}
    low, high = (
        given_key(value, kind, Where(stream=plan.tap_stream_id, setting=option))
        for option, value in given.items()
    )
    if not parse_key(low, kind) < parse_key(high, kind):
        raise SettingsError(
            f"--from {backfill.start} is not below --to {backfill.end}",
            where=Where(stream=plan.tap_stream_id),
        )
    return replace(plan, start_value=low, end_value=high, null_keys=False)


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
