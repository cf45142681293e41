"""Where the partitions of a topic begin and end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shared.errors import SourceError
from shared.spark.kafka_admin import KafkaAdmin, open_admin
from tap_spark.sources.declared.kafka import start_moment
from tap_spark.sources.kafka.offset_ranges import TopicFacts

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
    with _opened(spark, options) as admin:
        topic_id, partitions = admin.describe(topic)
        end = admin.end(topic, partitions)
        first = admin.first(topic, partitions)
        # Messages may expire between the two requests.
        end = {part: max(end[part], first[part]) for part in partitions}
        facts = TopicFacts(first, end, topic_id, admin.is_gapless(topic, partitions))
        given: Given = {}
        if isinstance(start, Mapping):
            given = {int(partition): offset for partition, offset in start.items()}
        elif start == "latest":
            given = dict.fromkeys(partitions)
        elif start != "earliest":
            found = admin.at(topic, partitions, start_moment(start))
            given = {part: at if at is None else min(at, end[part]) for part, at in found.items()}
    return facts, given


def topic_names(spark: SparkSession, options: Mapping[str, str]) -> list[str]:
    """List the topics of a cluster that are not its own.

    Raises:
        SourceError: See `topic_facts`.
    """
    with _opened(spark, options) as admin:
        return admin.topics()


def _opened(spark: SparkSession, options: Mapping[str, str]) -> KafkaAdmin:
    admin = open_admin(spark, options)
    if admin is None:
        raise SourceError("Kafka cannot be read over Spark Connect", hint="set 'spark.master'")
    return admin
