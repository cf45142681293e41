"""Rules between batch settings, and warnings about flushes that are too small for Spark."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from shared.encodings.encoding_registry import batch_formats
from shared.settings.batch.batch_settings import (
    BATCH,
    BATCH_CONFIG,
    COMPRESSION,
    COMPRESSIONS,
    DEAD_LETTER_PATH,
    DEFAULT_COMPRESSION,
    ENABLE,
    EXCLUDE,
    FORMAT,
    INCLUDE,
    LEVEL,
    LEVELS,
    MAX_SIZE,
    MIN_SIZE,
    ORDERED_POLICIES,
    PARALLEL,
    POLICY,
    REUSE_BUFFER,
    ROOT,
    STRATEGY,
    TARGET_LATENCY,
    Strategy,
)
from shared.settings.batch.reading import Reading
from shared.settings.checking import ALLOWED, UNIT, Json, Location, Problem, nearest, place
from shared.settings.kinds import Field
from shared.settings.units import size_text

ROWS_PER_SECOND = 10_000
BYTES_PER_SECOND = 10 * 1024 * 1024
"""A strategy that cannot load this fast because of its commits gets a warning."""

COMMITS_PER_WAIT = 2
"""A wait shorter than this many commits gets a warning: commits then take most of the time."""


def rule_problems(reading: Reading) -> Iterator[Problem]:
    """Yield what is wrong between settings that are valid by themselves."""
    for rule in (
        _root_problems,
        _package_problems,
        _compression_problems,
        _level_problems,
        _pattern_problems,
        _strategy_problems,
        _size_problems,
        _dead_letter_problems,
        _order_problems,
    ):
        yield from rule(reading)


def _root_problems(reading: Reading) -> Iterator[Problem]:
    if "batch_config" not in reading.blocks or reading.side != "tap" or ROOT in reading.seen:
        return
    # A document for either program that has keys only the target knows is the target's.
    if not any(field.side == "target" for field in reading.seen & set(BATCH_CONFIG)):
        yield Problem(ROOT.path, "is required", allowed=ROOT.schema[ALLOWED])


def _package_problems(reading: Reading) -> Iterator[Problem]:
    """Only the tap writes the format of the settings; the target reads what messages name."""
    if reading.side != "tap" or FORMAT not in reading.found or not reading.is_known(FORMAT):
        return
    if missing := batch_formats()[reading.value(FORMAT)].missing():
        yield Problem(reading.path(FORMAT), missing)


def compression(reading: Reading) -> str:
    """Return the compression of the batch files: the given one, or the default of the format."""
    if COMPRESSION in reading.found:
        return str(reading.value(COMPRESSION))
    return DEFAULT_COMPRESSION[reading.value(FORMAT)]


def _compression_problems(reading: Reading) -> Iterator[Problem]:
    if COMPRESSION not in reading.found or not reading.is_known(FORMAT):
        return
    file_format, given = reading.value(FORMAT), reading.value(COMPRESSION)
    known = COMPRESSIONS[file_format]
    if given not in known:
        message = f"{given!r} is not a compression of format {file_format!r}"
        allowed = ", ".join(map(repr, known))
        path = reading.path(COMPRESSION)
        yield Problem(path, message, repr(given), allowed, nearest(given, known))


def _level_problems(reading: Reading) -> Iterator[Problem]:
    is_known = reading.is_known(FORMAT) and reading.is_known(COMPRESSION)
    if LEVEL not in reading.found or not is_known:
        return
    file_format, packed, given = reading.value(FORMAT), compression(reading), reading.value(LEVEL)
    highest = LEVELS[file_format].get(packed)
    if highest is None:
        known = ", ".join(map(repr, LEVELS[file_format])) or "none"
        message = f"compression {packed!r} of format {file_format!r} has no levels (with: {known})"
        yield Problem(reading.path(LEVEL), message, str(given))
    elif given > highest:
        message = f"{given} is above the highest level of compression {packed!r}, {highest}"
        yield Problem(reading.path(LEVEL), message, str(given))


def _pattern_problems(reading: Reading) -> Iterator[Problem]:
    if INCLUDE not in reading.found or EXCLUDE not in reading.found:
        return
    included = reading.value(INCLUDE)
    for index, pattern in enumerate(reading.value(EXCLUDE)):
        if pattern in included:
            message = f"{pattern!r} is also in 'include_streams'; give it in one of them"
            yield Problem((*reading.path(EXCLUDE), index), message, repr(pattern))


def _strategy_problems(reading: Reading) -> Iterator[Problem]:
    is_on = reading.value(ENABLE) if reading.is_known(ENABLE) else True
    if "batch" in reading.blocks and STRATEGY not in reading.seen and is_on:
        yield Problem(STRATEGY.path, "is required", allowed=STRATEGY.schema[ALLOWED])


def _size_problems(reading: Reading) -> Iterator[Problem]:
    sizes = (MIN_SIZE, MAX_SIZE)
    is_adaptive = reading.choices["batch"] == MIN_SIZE.owner
    if not is_adaptive or not all(reading.is_known(size) for size in sizes):
        return
    least, most = (reading.value(size) for size in sizes)
    if least > most:
        given, other = sizes if MIN_SIZE in reading.found else reversed(sizes)
        value = reading.value(given)
        compared = "above" if given is MIN_SIZE else "below"
        note = "" if other in reading.found else ", its default"
        message = (
            f"{value} is {compared} {place(reading.path(other))} ({reading.value(other)}{note})"
        )
        yield Problem(reading.path(given), message, str(value))


def _dead_letter_problems(reading: Reading) -> Iterator[Problem]:
    is_needed = reading.choices["failure"] == DEAD_LETTER_PATH.owner
    if is_needed and DEAD_LETTER_PATH not in reading.seen:
        message = "is required by policy 'SendToDLQ'"
        yield Problem(DEAD_LETTER_PATH.path, message, allowed=DEAD_LETTER_PATH.schema[ALLOWED])


def needs_order(reading: Reading) -> bool:
    """Tell whether the policy loads the batches of a stream one after the other."""
    return reading.choices["failure"] in ORDERED_POLICIES


def _order_problems(reading: Reading) -> Iterator[Problem]:
    is_parallel = PARALLEL in reading.found and reading.value(PARALLEL)
    if is_parallel and needs_order(reading):
        policy = reading.value(POLICY)
        message = f"true conflicts with policy {policy!r}, which keeps the order of batches"
        yield Problem(reading.path(PARALLEL), message, "true", "false, or another policy")


def effect_warnings(reading: Reading) -> Iterator[str]:
    """Yield a warning for each setting that is given and has no effect."""
    if REUSE_BUFFER in reading.found and reading.side == "target":
        yield (
            f"{place(reading.path(REUSE_BUFFER))}: has no effect, as no flush has a buffer of its "
            "own that could be reused: lines go from the pipe straight to disk"
        )


def cost_warnings(
    strategy: Strategy, commit_seconds: float, paths: Mapping[str, Location]
) -> Iterator[str]:
    """Yield a warning for each setting that makes flushes too small for Spark.

    Args:
        strategy: A strategy.
        commit_seconds: Measured duration of a commit.
        paths: Path of each of its settings.
    """
    for field in BATCH.variants[strategy.name]:
        text = _cost(field, getattr(strategy, field.attribute), commit_seconds)
        if text:
            yield f"{place(paths[field.key])}: {text}"


def _cost(field: Field, value: Json, commit_seconds: float) -> str | None:
    """Say what a value of one setting costs, if it makes flushes too small."""
    cost = f"a commit takes about {commit_seconds:g} s"
    unit = field.schema.get(UNIT) or field.schema["type"]
    if field is TARGET_LATENCY:
        if value < commit_seconds:
            return f"{value:g} s cannot be reached, as {cost} however few its rows are"
    elif unit == "integer" and field is not MIN_SIZE:
        if value < ROWS_PER_SECOND * commit_seconds:
            most = max(1, round(value / commit_seconds))
            enough = round(ROWS_PER_SECOND * commit_seconds)
            return (
                f"{value} rows a flush load at most {most} rows/s, as {cost}; use {enough} or more"
            )
    elif unit == "bytes" and value < BYTES_PER_SECOND * commit_seconds:
        rate = size_text(max(1, round(value / commit_seconds / 1024)) * 1024)
        least = size_text(math.ceil(BYTES_PER_SECOND * commit_seconds / 2**20) * 2**20)
        return f"flushes this small load at most {rate}/s, as {cost}; use {least} or more"
    elif unit == "ms" and value < COMMITS_PER_WAIT * commit_seconds:
        wait = f"{COMMITS_PER_WAIT * commit_seconds:g} s"
        return f"{value:g} s is shorter than needed, as {cost}; use {wait} or more"
    return None
