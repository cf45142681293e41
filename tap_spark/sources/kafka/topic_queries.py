"""The bounds of topics by queries alone: Spark Connect cannot ask the brokers."""

from __future__ import annotations

import json
from ast import literal_eval
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from shared.errors import SourceError
from shared.spark.kafka_admin import known_reason
from shared.transient_failures import may_pass
from tap_spark.sources.kafka.offset_ranges import OffsetRange, spark_offsets, spark_partitions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

EARLIEST = -2
"""Kafka's word for the first offset of a partition."""


def queried_ends(
    spark: SparkSession, options: Mapping[str, str], which: Mapping[str, str]
) -> dict[str, dict[int, int]]:
    """Return where the partitions of topics end: a streaming query that begins there tells.

    Args:
        spark: The session.
        options: Those of Spark's reader.
        which: The option that names topics, and its value.

    Raises:
        SourceError: The brokers cannot be reached, or refuse.
    """
    reader = spark.readStream.format("kafka").options(**options).options(**which)
    nothing = reader.option("startingOffsets", "latest").load().filter(F.lit(False))
    try:
        query = nothing.writeStream.format("noop").trigger(availableNow=True).start()
        query.awaitTermination()
        progress = query.lastProgress
    except Exception as error:
        reason = known_reason(str(error)) or type(error).__name__
        raise SourceError(f"the topics cannot be read: {reason}", passes=may_pass(error)) from error
    sources = [] if progress is None else json.loads(progress.json)["sources"]
    found: dict[str, dict[int, int]] = {}
    for source in sources:
        ends = source["endOffset"]
        # Spark Connect writes the object as Python's text.
        topics = literal_eval(ends) if isinstance(ends, str) else ends
        for topic, offsets in (topics or {}).items():
            found[topic] = {int(part): int(offset) for part, offset in offsets.items()}
    return found


def queried_starts(
    spark: SparkSession,
    options: Mapping[str, str],
    topic: str,
    end: Mapping[int, int],
    millis: int | None = None,
) -> dict[int, int]:
    """Return the offset of each partition's first message; its end if it has none.

    Args:
        spark: The session.
        options: Those of Spark's reader.
        topic: The topic.
        end: Where its partitions end.
        millis: Messages before this moment do not count; None for all.
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
    found = dict(end)
    for partition, offset in rows:
        found[partition] = min(found[partition], offset)
    return found
