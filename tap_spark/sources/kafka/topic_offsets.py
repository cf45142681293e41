"""Which offsets of a topic a run reads, in which slices, and the bookmark after each.

The brokers tell where partitions begin and end. Spark Connect cannot ask them: there, queries do.
"""

from __future__ import annotations

import json
from ast import literal_eval
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from shared.errors import SourceError, may_pass
from shared.spark.kafka_admin import broker_reason, open_admin
from tap_spark.sources.formats import start_moment

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


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
        return sum(self.end[partition] - at for partition, at in self.start.items())


@dataclass(frozen=True)
class KafkaMark:
    """The bookmark of a stream.

    Attributes:
        offsets: Where the next run goes on.
        until: Where the interrupted run was going to end; empty if none was interrupted. A run
            that goes on reads the same slices as that one would have, so that a target sees
            the same records in the same order.
    """

    offsets: Offsets
    until: Offsets
    topic_id: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the stream's entry of the state."""
        document: dict[str, Any] = {
            "replication_method": "LOG_BASED",
            "offsets": _texts(self.offsets),
            "until": _texts(self.until),
        }
        return document if self.topic_id is None else {**document, "topic_id": self.topic_id}


@dataclass(frozen=True)
class DataLoss:
    """Messages that a run was to read and that are gone.

    Attributes:
        text: What is gone, and why.
        count: How many; None if unknown.
    """

    text: str
    count: int | None = None


def read_offsets(bookmark: Mapping[str, Any]) -> KafkaMark | None:
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
        # A partition that is newer than the interrupted run: it waits for the next one, so that
        # this one reads the same slices.
        if mark.until and until is None:
            continue
        stop = last if until is None else min(until, last)
        # The partition is shorter than it was: its topic was replaced, or a broker lost data.
        if at > last or (until or 0) > last:
            text = f"partition {partition} ends at offset {last}, before {max(at, until or 0)}"
            losses.append(DataLoss(text))
            at, stop = first, last
        # Retention has removed messages before they were read.
        elif at < first:
            text = f"partition {partition} begins at offset {first}, after {at}"
            losses.append(DataLoss(text, first - at))
            at, stop = first, max(first, stop)
        start[partition], end[partition] = at, stop
    return OffsetRange(start, end), losses


def from_start(facts: TopicFacts, offsets: Mapping[int, int | None]) -> OffsetRange:
    """Return what to read from given offsets to the end.

    Args:
        offsets: Where to begin; a partition that is missing begins with its first message, one with
            None at its end.

    Raises:
        ValueError: A partition does not exist or does not have that offset.
    """
    start = dict(facts.first)
    for partition, at in offsets.items():
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
        # Each partition gives the same share, as Spark reads one partition by one task.
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


EARLIEST = -2
"""Kafka's word for the first offset of a partition."""


def queried_ends(
    spark: SparkSession, options: Mapping[str, str], which: Mapping[str, str]
) -> dict[str, dict[int, int]]:
    """Return where the partitions of topics end: a streaming query that begins there tells.

    `which` is the option of Spark's reader that names topics, and its value.

    Raises:
        SourceError: The brokers cannot be reached, or refuse.
    """
    reader = spark.readStream.format("kafka").options(**options).options(**which)
    nothing = reader.option("startingOffsets", "latest").load().filter(F.lit(False))
    try:
        query = nothing.writeStream.format("noop").trigger(availableNow=True).start()
        query.awaitTermination()
        progress: Any = query.lastProgress
    except Exception as error:
        reason = broker_reason(str(error)) or type(error).__name__
        raise SourceError(f"the topics cannot be read: {reason}", passes=may_pass(error)) from error
    if progress is not None and hasattr(progress, "json"):  # before Spark 4.0 it is a dict
        progress = json.loads(progress.json)
    sources = [] if progress is None else progress["sources"]
    by_topic: dict[str, dict[int, int]] = {}
    for source in sources:
        ends = source["endOffset"]
        # Spark Connect writes the object as Python's text.
        topics = literal_eval(ends) if isinstance(ends, str) else ends
        for topic, offsets in (topics or {}).items():
            by_topic[topic] = {int(part): int(offset) for part, offset in offsets.items()}
    return by_topic


def queried_starts(
    spark: SparkSession,
    options: Mapping[str, str],
    topic: str,
    end: Mapping[int, int],
    millis: int | None = None,
) -> dict[int, int]:
    """Return the offset of each partition's first message; its end if it has none.

    Messages before `millis` do not count, if it is set.
    """

    def first_row(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # A task reads one partition, and no more of it than its first messages.
        for batch in batches:
            if batch.num_rows:
                yield batch.slice(0, 1)
                return

    start = OffsetRange(dict.fromkeys(end, EARLIEST), end)
    reader = (
        spark.read.format("kafka")
        .options(**options)
        .option("assign", spark_partitions(topic, start))
        .option("endingOffsets", spark_offsets(topic, end))
    )
    if millis is None:
        reader = reader.option("startingOffsets", spark_offsets(topic, start.start))
    else:
        reader = reader.option("startingTimestamp", str(millis)).option(
            "startingOffsetsByTimestampStrategy", "latest"
        )
    messages = reader.load().select("partition", "offset")
    rows = messages.mapInArrow(first_row, "partition int, offset long").collect()
    starts = dict(end)
    for partition, offset in rows:
        starts[partition] = min(starts[partition], offset)
    return starts


Start = str | Mapping[str, int]
"""The setting `starting_offsets`."""
StartOffsets = Mapping[int, int | None]
"""Where to begin, by partition: its end if None, its first message if it is missing."""


def topic_facts(
    spark: SparkSession, options: Mapping[str, str], topic: str, start: Start
) -> tuple[TopicFacts, StartOffsets]:
    """Ask the brokers for a topic, and for where a stream without bookmark begins.

    Raises:
        SourceError: The brokers cannot be reached, or refuse.
    """
    admin = open_admin(spark, options)
    moment = None
    if isinstance(start, str) and start not in ("earliest", "latest"):
        moment = start_moment(start)
    if admin is None:
        end = queried_ends(spark, options, {"subscribe": topic}).get(topic)
        if not end:
            raise SourceError(f"topic '{topic}': Spark does not tell its offsets")
        facts = TopicFacts(queried_starts(spark, options, topic, end), end)
        starts: StartOffsets = {}
        if moment is not None:
            starts = queried_starts(spark, options, topic, end, moment)
        return facts, _start_offsets(start, facts, starts)
    with admin:
        topic_id, partitions = admin.describe(topic)
        end, first = admin.end(topic, partitions), admin.first(topic, partitions)
        # Messages may expire between the two requests.
        end = {part: max(end[part], first[part]) for part in partitions}
        facts = TopicFacts(first, end, topic_id, admin.is_gapless(topic, partitions))
        starts = {} if moment is None else admin.at(topic, partitions, moment)
    return facts, _start_offsets(start, facts, starts)


def topic_names(spark: SparkSession, options: Mapping[str, str]) -> list[str]:
    """List the topics of a cluster that are not its own.

    Raises:
        SourceError: See `topic_facts`.
    """
    admin = open_admin(spark, options)
    if admin is None:
        ends = queried_ends(spark, options, {"subscribePattern": ".*"})
        return sorted(name for name in ends if not name.startswith("__"))
    with admin:
        return admin.topics()


def _start_offsets(start: Start, facts: TopicFacts, at: StartOffsets) -> StartOffsets:
    """Return the offsets to begin with; `at` are those of the moment, if the setting is one."""
    if isinstance(start, Mapping):
        return {int(partition): offset for partition, offset in start.items()}
    if start == "latest":
        return dict.fromkeys(facts.end)
    # Messages may have come or expired since the bounds were asked.
    return {
        part: None if offset is None else max(facts.first[part], min(offset, facts.end[part]))
        for part, offset in at.items()
    }
