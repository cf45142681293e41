"""Where the partitions of a topic begin and end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shared.errors import SourceError
from shared.spark.kafka_admin import open_admin
from tap_spark.sources.declared.kafka import start_moment
from tap_spark.sources.kafka.offset_ranges import TopicFacts
from tap_spark.sources.kafka.topic_queries import queried_ends, queried_starts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Start = str | Mapping[str, int]
"""The setting `starting_offsets`."""
Given = Mapping[int, int | None]
"""Where to begin, by partition: its end if None, its first message if it is missing."""


def topic_facts(
    spark: SparkSession, options: Mapping[str, str], topic: str, start: Start
) -> tuple[TopicFacts, Given]:
    """Ask the brokers for a topic, and for where a stream without bookmark begins.

    Args:
        spark: The session.
        options: Those of Spark's reader.
        topic: The topic.
        start: The setting `starting_offsets`.

    Raises:
        SourceError: The brokers cannot be reached, or refuse.
    """
    admin = open_admin(spark, options)
    moment = None
    if isinstance(start, str) and start not in ("earliest", "latest"):
        moment = start_moment(start)
    if admin is None:
        end = _queried_end(spark, options, topic)
        facts = TopicFacts(queried_starts(spark, options, topic, end), end)
        found: Given = {}
        if moment is not None:
            found = queried_starts(spark, options, topic, end, moment)
        return facts, _given(start, facts, found)
    with admin:
        topic_id, partitions = admin.describe(topic)
        end = admin.end(topic, partitions)
        first = admin.first(topic, partitions)
        # Messages may expire between the two requests.
        end = {part: max(end[part], first[part]) for part in partitions}
        facts = TopicFacts(first, end, topic_id, admin.is_gapless(topic, partitions))
        found = {} if moment is None else admin.at(topic, partitions, moment)
    return facts, _given(start, facts, found)


def topic_names(spark: SparkSession, options: Mapping[str, str]) -> list[str]:
    """List the topics of a cluster that are not its own.

    Raises:
        SourceError: See `topic_facts`.
    """
    admin = open_admin(spark, options)
    if admin is None:
        found = queried_ends(spark, options, {"subscribePattern": ".*"})
        return sorted(name for name in found if not name.startswith("__"))
    with admin:
        return admin.topics()


def _queried_end(spark: SparkSession, options: Mapping[str, str], topic: str) -> dict[int, int]:
    found = queried_ends(spark, options, {"subscribe": topic}).get(topic)
    if not found:
        raise SourceError(f"topic '{topic}': Spark does not tell its offsets")
    return found


def _given(start: Start, facts: TopicFacts, at: Given) -> Given:
    """Return the offsets to begin with.

    Args:
        start: The setting.
        facts: The topic.
        at: The offsets of its moment, if it is one.
    """
    if isinstance(start, Mapping):
        return {int(partition): offset for partition, offset in start.items()}
    if start == "latest":
        return dict.fromkeys(facts.end)
    # Messages may have come or expired since the bounds were asked.
    return {
        part: None if offset is None else max(facts.first[part], min(offset, facts.end[part]))
        for part, offset in at.items()
    }
