"""Bookmarks and STATE: values and their order, and the state after rows were written. Pure."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from shared.errors import SettingsError, SourceError, Where
from shared.formats.date_numbers import is_infinite, moment_text, parse_moment, text_rank
from shared.settings.loading import read_whole
from shared.singer.messages import is_of_settings
from tap_spark.state.stream_plans import Resume, StreamPlan

_log = logging.getLogger(__name__)

State = dict[str, Any]
Json = Any
"""A JSON value."""
Ordered = Any
"""A value that Python orders as Spark orders the column."""
INTEGERS = {"byte": 7, "short": 15, "integer": 31, "long": 63}
"""Types, and the bits of their numbers without the sign."""
_MOST_DIGITS = 40
"""More than any integer key has."""
TEXT_BY_VALUE = "string by value"
"""The type of keys of text that Spark compares: those of databases have the database's order."""
TEMPORAL = ("date", "timestamp", "timestamp_ntz")
RUNS_SINCE_KEYS = "runs_since_keys"
NOTE = "The rows are not sorted: this value takes effect when the stream has ended."


def load_state(path: str) -> State:
    """Read a state file: `{}`, bookmarks, or a STATE message (the last of several lines).

    A file that does not exist yet, in a folder that does, is an empty state, as before a first run.

    Raises:
        SourceError: It cannot be read, or is not a state.
    """
    where = Where(file=path)
    try:
        text = read_whole(path).decode("utf-8-sig")
    except FileNotFoundError as error:
        if not Path(os.path.realpath(path)).parent.is_dir():
            problem = "cannot read the state: its folder is missing"
            raise SourceError(problem, where=where) from error
        _log.info("%s: no state yet; all streams are read from their beginning", where)
        return {}
    except OSError as error:
        raise SourceError(f"cannot read the state: {error.strerror}", where=where) from error
    except ValueError as error:
        raise SourceError("the state is not UTF-8 text", where=where) from error
    text = text.strip()
    if not text:
        return {}
    try:
        # JSON has other line ends of Unicode as they are.
        state = _json(text, text.rpartition("\n")[2])
    except (ValueError, RecursionError) as error:
        raise SourceError(f"the state is not JSON: {error}", where=where) from error
    is_wrapped = isinstance(state, Mapping) and "bookmarks" not in state
    if is_wrapped and isinstance(state.get("value"), Mapping | None):
        state = state.get("value", state)
    state = {} if state is None else state
    check_state(state, path)
    return dict(state)


def check_state(state: object, path: str | None = None) -> None:
    """Check the structure of a state.

    Raises:
        SourceError: It is not an object, or its bookmarks are not.
    """
    if isinstance(state, Mapping) and is_of_settings(state):
        raise SourceError(
            "the file holds settings or a catalog, not a state",
            where=Where(file=path),
            hint="use the last STATE of an earlier run, or {} to start over",
        )
    words = {"bookmarks", "currently_syncing"}  # The latter comes alone before the first bookmark.
    if isinstance(state, Mapping) and state and words.isdisjoint(state):
        outer, kind = _wrapper(state), state.get("type", "STATE")
        problem = "the state has no 'bookmarks'"
        if outer is not None:
            problem = f"the state has its bookmarks inside '{outer}'"
        elif kind != "STATE":
            problem = f"the last line of the state is a message of type {kind}"
        raise SourceError(
            f"{problem}, so that all rows would be read again",
            where=Where(file=path),
            hint='give `{"bookmarks": {…}}` as in the last STATE, or {} to start over',
        )
    bookmarks = state.get("bookmarks", {}) if isinstance(state, Mapping) else None
    if not isinstance(bookmarks, Mapping):
        raise SourceError(
            "the state is not an object with 'bookmarks'",
            where=Where(file=path),
            hint="use the last STATE of an earlier run, or {} to start over",
        )
    wrong = [name for name, mark in bookmarks.items() if not isinstance(mark, Mapping)]
    if wrong:
        raise SourceError(
            "the stream's bookmark is not an object", where=Where(stream=wrong[0], file=path)
        )


def _wrapper(state: Mapping[str, Any]) -> str | None:
    """Return the dotted name of what holds the bookmarks of a state that has none itself."""
    if "bookmarks" in state:
        return None
    for name, inner in state.items():
        if not isinstance(inner, Mapping):
            continue
        deeper = _wrapper(inner)
        if deeper is not None:
            return f"{name}.{deeper}"
        if name == "singer_state" or "bookmarks" in inner or _is_bookmark(inner):
            return name
    return None


def _is_bookmark(mark: Mapping[str, Any]) -> bool:
    return not mark.keys().isdisjoint({"replication_key_value", "starting_replication_value"})


def parse_key(value: Json, key_type: str) -> Ordered:
    """Convert a bookmark's JSON value to one with Spark's order for the column's type.

    Raises:
        ValueError: The value cannot be of that type.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise ValueError(f"{json.dumps(value)} is not a valid {key_type}")
    if key_type == TEXT_BY_VALUE:
        return text_rank(str(value)).encode()
    if key_type.startswith(("string", "char", "varchar")):
        return str(value).encode()
    if key_type in TEMPORAL:
        return parse_moment(value, key_type)
    return _number(value, key_type)


def normal_key(value: Json, key_type: str) -> Json:
    """Return a bookmark's JSON value: exact, and readable by every JSON parser.

    Raises:
        ValueError: The value cannot be of that type.
    """
    parsed = parse_key(value, key_type)
    if isinstance(parsed, bytes):
        return str(value)
    if key_type in TEMPORAL:
        return moment_text(parsed, key_type)
    if key_type in INTEGERS:
        return int(parsed)
    if key_type in ("float", "double"):
        return float(parsed)
    return _short_decimal(parsed, str(value))


def setting_key(value: Json, key_type: str, where: Where) -> Json:
    """Return a bound that the user gives as `normal_key` does.

    Raises:
        SettingsError: The value cannot be of that type.
    """
    try:
        bound = normal_key(value, key_type)
        most = 2 ** INTEGERS.get(key_type, 0)
        if key_type in INTEGERS and not -most <= bound < most:
            raise ValueError(f"{bound} is outside of its range")
        return bound
    except ValueError as error:
        hint = "write dates and timestamps as ISO 8601" if key_type in TEMPORAL else ""
        text = f"does not fit the replication key, which is {key_type}: {error}"
        raise SettingsError(text, where=where, hint=hint) from error


def greater_bookmark(first: Json, second: Json, key_type: str) -> Json:
    """Return the greater of two bookmark values; a value that cannot be a bookmark never wins."""
    values = [value for value in (first, second) if can_be_bookmark(value, key_type)]
    return max(values, key=lambda value: parse_key(value, key_type), default=None)


def can_be_bookmark(value: Json, key_type: str) -> bool:
    """Return whether a value can be a bookmark: neither null nor infinite."""
    if value is None:
        return False
    if key_type in TEMPORAL:
        return not is_infinite(parse_moment(value, key_type), key_type)
    if key_type not in ("float", "double"):
        return True
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def start_stream(state: Mapping[str, Any], plan: StreamPlan) -> State:
    """Return the state when a stream begins, without markers of an interrupted run."""
    state = _copy(state)
    mark = state["bookmarks"].get(plan.tap_stream_id)
    return state if mark is None else _with_bookmark(state, plan, _without_interim(mark))


def advance(state: Mapping[str, Any], plan: StreamPlan, observed: Json, *, ordered: bool) -> State:
    """Return the state after more rows of a stream were written; without a key it is the same.

    Args:
        observed: Greatest replication key (JSON value) among the rows; None if all were null.
        ordered: Whether later rows never have a smaller key, so that the bookmark may advance.
    """
    if plan.resume is not Resume.REPLICATION_KEY or observed is None:
        return _copy(state)
    mark = _bookmark(state, plan)
    if ordered:
        return _with_bookmark(state, plan, _moved(mark, plan, observed))
    key_type = plan.key_type or "string"
    # In no order, a later row may have a smaller key: what was read is kept beside the bookmark,
    # which moves at the end of the stream.
    markers = mark.get("progress_markers") or {}
    best = greater_bookmark(markers.get("replication_key_value"), observed, key_type)
    if best is None:
        return _copy(state)
    if plan.start_value is not None:
        mark["starting_replication_value"] = plan.start_value
    mark["progress_markers"] = {
        "Note": NOTE,
        "replication_key": plan.replication_key,
        "replication_key_value": normal_key(best, key_type),
    }
    return _with_bookmark(state, plan, mark)


def advance_positions(
    plan: StreamPlan, bookmark: Mapping[str, Any], state: Mapping[str, Any]
) -> State:
    """Return the state after a slice with a bookmark of its own.

    If it is one of the replication key, it replaces what was observed of the rows so far: the
    source may order its keys in another way than Spark does.
    """
    mark = {**_bookmark(state, plan), **bookmark}
    if "replication_key" in bookmark:
        mark.pop("progress_markers", None)
    return _with_bookmark(state, plan, mark)


def finish_stream(state: Mapping[str, Any], plan: StreamPlan) -> State:
    """Return the state after all rows of a stream; interim markers become the bookmark."""
    state = _copy(state)
    mark = state["bookmarks"].get(plan.tap_stream_id)
    if not mark:
        return state
    markers = mark.get("progress_markers") or {}
    if plan.resume is Resume.REPLICATION_KEY and markers.get("replication_key_value") is not None:
        mark = _moved(mark, plan, markers["replication_key_value"])
    return _with_bookmark(state, plan, _without_interim(mark))


def end_stream(state: Mapping[str, Any], plan: StreamPlan) -> State:
    """Return the state after a run of a stream, which has a bookmark from then on, if only `{}`."""
    state = finish_stream(state, plan)
    state["bookmarks"].setdefault(plan.tap_stream_id, {})
    if plan.runs_since_keys is None:
        return state
    runs = 0 if plan.sends_keys else plan.runs_since_keys
    return advance_positions(plan, {RUNS_SINCE_KEYS: runs}, state)


def _moved(mark: Mapping[str, Any], plan: StreamPlan, observed: Json) -> State:
    key_type = plan.key_type or "string"
    old = mark.get("replication_key_value")
    best = greater_bookmark(old, observed, key_type)
    if best is None:
        return dict(mark)
    value = old if best is old else normal_key(best, key_type)
    # Never back: rows without a newer key must not make the next run read more than this one.
    return {**mark, "replication_key": plan.replication_key, "replication_key_value": value}


def _json(text: str, last_line: str) -> Json:
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(last_line)


def _number(value: Json, key_type: str) -> Ordered:
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        raise ValueError(f"{json.dumps(value)} is not a valid {key_type}") from None
    if key_type in ("float", "double"):
        return float(number)
    is_wrong = not number.is_finite()
    if key_type in INTEGERS and not is_wrong:
        # First its size: an exponent may ask for a number of any length.
        is_wrong = number.adjusted() > _MOST_DIGITS or number != int(number)
    if is_wrong:
        raise ValueError(f"{json.dumps(value)} is not a valid {key_type}")
    return number


def _short_decimal(number: Decimal, text: str) -> Json:
    """Write a decimal as a JSON number if every reader keeps it, else as text."""
    # Readers of JSON in other languages keep a double's digits, and lose all others.
    if Decimal(repr(float(number))) != number:
        return str(number)
    return int(number) if number == int(number) and "." not in text else float(number)


def _bookmark(state: Mapping[str, Any], plan: StreamPlan) -> State:
    return dict((state.get("bookmarks") or {}).get(plan.tap_stream_id) or {})


def _copy(state: Mapping[str, Any]) -> State:
    return {**state, "bookmarks": dict(state.get("bookmarks") or {})}


def _with_bookmark(state: Mapping[str, Any], plan: StreamPlan, mark: State) -> State:
    bookmarks = state.get("bookmarks") or {}
    return {**state, "bookmarks": {**bookmarks, plan.tap_stream_id: mark}}


def _without_interim(mark: Mapping[str, Any]) -> State:
    interim = ("progress_markers", "starting_replication_value")
    return {key: value for key, value in mark.items() if key not in interim}
