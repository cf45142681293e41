"""Which offsets of a topic a run reads, in which slices, and the bookmark after each. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

Offsets = Mapping[int, int]
"""An offset for each partition."""


@dataclass(frozen=True)
class TopicFacts:
    """A topic when the run began.

    Attributes:
        first: The offset of each partition's first message that is still there.
        end: The offset after each partition's last message.
        topic_id: Identifies the topic, even after another one took its name; None if unknown.
        is_gapless: Whether each offset surely holds a message, as the topic is neither compacted
            nor written by transactions.
    """

    first: Offsets
    end: Offsets
    topic_id: str | None = None
    is_gapless: bool = False


@dataclass(frozen=True)
class OffsetRange:
    """Offsets to read: from `start` to before `end`, of the same partitions."""

    start: Offsets
    end: Offsets

    @property
    def count(self) -> int:
        """Return the number of offsets."""
        return sum(self.end[partition] - at for partition, at in self.start.items())


@dataclass(frozen=True)
class KafkaMark:
    """The bookmark of a stream.

    Attributes:
        offsets: Where the next run goes on.
        until: Where the interrupted run was going to end; empty if none was interrupted. A run
            that goes on reads the same slices as that one would have, so that a target sees
            the same records in the same order.
        topic_id: The topic.
    """

    offsets: Offsets
    until: Offsets
    topic_id: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the stream's entry of the state."""
        found: dict[str, Any] = {
            "replication_method": "LOG_BASED",
            "offsets": _texts(self.offsets),
            "until": _texts(self.until),
        }
        return found if self.topic_id is None else {**found, "topic_id": self.topic_id}


@dataclass(frozen=True)
class DataLoss:
    """Messages that a run was to read and that are gone.

    Attributes:
        text: What is gone, and why.
        count: How many; None if unknown.
    """

    text: str
    count: int | None = None


def read_mark(bookmark: Mapping[str, Any]) -> KafkaMark | None:
    """Return a bookmark; None if there is none.

    Raises:
        ValueError: It is damaged.
    """
    if "offsets" not in bookmark:
        return None
    topic_id = bookmark.get("topic_id")
    return KafkaMark(
        _numbers(bookmark["offsets"]),
        _numbers(bookmark.get("until") or {}),
        None if topic_id is None else str(topic_id),
    )


def after_bookmark(facts: TopicFacts, mark: KafkaMark) -> tuple[OffsetRange, list[DataLoss]]:
    """Return what to read after a bookmark, and what of it is gone.

    Partitions that the bookmark lacks are new and are read from offset 0. A run that was
    interrupted is finished first, up to where it was going to end.
    """
    if mark.topic_id is not None and facts.topic_id not in (None, mark.topic_id):
        text = "the topic was deleted and created again after the bookmark was written"
        return OffsetRange(facts.first, facts.end), [DataLoss(text)]
    start: dict[int, int] = {}
    end: dict[int, int] = {}
    losses: list[DataLoss] = []
    for partition in sorted({*facts.end, *mark.offsets}):
        at = mark.offsets.get(partition, 0)
        until = mark.until.get(partition)
        if partition not in facts.end:
            losses.append(DataLoss(f"partition {partition} does not exist any more"))
            continue
        first, last = facts.first[partition], facts.end[partition]
        if mark.until and until is None:
            continue
        stop = last if until is None else min(until, last)
        if at > last or (until or 0) > last:
            text = f"partition {partition} ends at offset {last}, before {max(at, until or 0)}"
            losses.append(DataLoss(text))
            at, stop = first, last
        elif at < first:
            text = f"partition {partition} begins at offset {first}, after {at}"
            losses.append(DataLoss(text, first - at))
            at, stop = first, max(first, stop)
        start[partition], end[partition] = at, stop
    return OffsetRange(start, end), losses


def from_start(facts: TopicFacts, given: Mapping[int, int | None]) -> OffsetRange:
    """Return what to read from given offsets to the end.

    Args:
        facts: The topic.
        given: Where to begin; a partition that is missing begins with its first message, one with
            None at its end.

    Raises:
        ValueError: A partition does not exist or does not have that offset.
    """
    start = dict(facts.first)
    for partition, at in given.items():
        if partition not in facts.end:
            raise ValueError(f"partition {partition} does not exist")
        first, last = facts.first[partition], facts.end[partition]
        wanted = last if at is None else at
        if not first <= wanted <= last:
            raise ValueError(f"partition {partition} has the offsets {first} to {last}, not {at}")
        start[partition] = wanted
    return OffsetRange(start, facts.end)


def slices(whole: OffsetRange, most: int) -> Iterator[OffsetRange]:
    """Yield ranges of about `most` offsets, which follow from the bounds alone."""
    at = dict(whole.start)
    while left := {part: whole.end[part] - at[part] for part in at if whole.end[part] > at[part]}:
        share = max(1, most // len(left))
        start = {part: at[part] for part in left}
        end = {part: at[part] + min(share, count) for part, count in left.items()}
        yield OffsetRange(start, end)
        at.update(end)


def mark_after(mark: KafkaMark, done: OffsetRange) -> KafkaMark:
    """Return the bookmark after a slice; at the end of the range nothing is left of it."""
    offsets = {**mark.offsets, **done.end}
    is_end = all(offsets[partition] >= end for partition, end in mark.until.items())
    return replace(mark, offsets=offsets, until={} if is_end else mark.until)


def spark_offsets(topic: str, offsets: Offsets) -> str:
    """Return offsets as Spark's options take them."""
    return json.dumps({topic: _texts(offsets)})


def spark_partitions(topic: str, part: OffsetRange) -> str:
    """Return the partitions of a range as Spark's options take them."""
    return json.dumps({topic: sorted(part.start)})


def _texts(offsets: Offsets) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def _numbers(offsets: object) -> dict[int, int]:
    if not isinstance(offsets, Mapping):
        raise ValueError("offsets are not an object")
    for partition, offset in offsets.items():
        is_number = isinstance(offset, int) and not isinstance(offset, bool) and offset >= 0
        if not (str(partition).isdigit() and is_number):
            raise ValueError(f"{json.dumps(offset)} is not an offset of partition {partition}")
    return {int(partition): offset for partition, offset in offsets.items()}
