"""Topics of Kafka, read up to where they ended when the run began.

Discovery gives each topic the format that its newest messages show.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T  # noqa: N812

from shared.errors import SourceError, Where
from shared.formats.spark_conform import conformed
from shared.maps.record_metadata import DELETED_AT
from shared.spark.spark_errors import explain
from tap_spark.sources.formats import BUILT_IN
from tap_spark.sources.frame_helpers import col, missing_columns, prune, struct_from_text
from tap_spark.sources.frame_source import REDISCOVER, FrameSource
from tap_spark.sources.kafka.layout_reader import SAMPLE, LayoutReader
from tap_spark.sources.kafka.message_columns import (
    MessageLayout,
    catalog_parts,
    current_rows,
    message_rows,
    with_deletions,
)
from tap_spark.sources.kafka.topic_offsets import (
    DataLoss,
    KafkaMark,
    OffsetRange,
    TopicFacts,
    after_bookmark,
    from_start,
    mark_after,
    read_mark,
    slices,
    spark_offsets,
    spark_partitions,
    topic_facts,
    topic_names,
)
from tap_spark.sources.source_failures import source_error
from tap_spark.sources.tables import DiscoveredTable, is_wanted, stream_name
from tap_spark.state.stream_plans import Resume, Slice, StreamPlan
from tap_spark.stream_config import StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tap_spark.stream_config import ConnectionConfig


_logger = logging.getLogger(__name__)
START_OVER = "remove the stream's bookmark from the state to read the topic by 'starting_offsets'"


class KafkaSource(FrameSource):
    """A topic of the stream's connection."""

    def __init__(self, stream: StreamConfig) -> None:
        super().__init__(stream)
        connection = stream.database
        if connection is None or connection.brokers is None:
            raise self.error("it has no connection with brokers", "set 'connection'")
        self.topic = str(stream.own["topic"])
        self.options = {**reader_options(connection), **stream.options}

    def schema(self, spark: SparkSession) -> T.StructType:
        """See `Source.schema`; the columns of the key are the key properties."""
        layout = self._layout(spark, None)
        if layout.key is not None:
            self.key_properties = self.key_properties or tuple(layout.key.struct.names)
        return self.checked(layout.struct)

    def frame(self, spark: SparkSession, plan: StreamPlan | None) -> DataFrame:
        """See `FrameSource.frame`: the rows that the topic holds now, by their key."""
        layout = self._layout(spark, plan)
        _, whole = self._facts(spark)
        keys = () if plan is None else plan.key_properties
        return current_rows(message_rows(self._messages(spark, whole), layout), keys)

    def slices(self, spark: SparkSession, plan: StreamPlan) -> Iterator[Slice]:
        """See `Source.slices`."""
        if plan.resume is not Resume.LOG_POSITION:
            yield from super().slices(spark, plan)
            return
        layout = self._layout(spark, plan)
        facts, whole, mark = self._planned(spark, plan)
        _logger.info(
            "stream '%s': topic '%s', %d offsets of %d partitions",
            plan.stream,
            self.topic,
            whole.count,
            len(facts.end),
        )
        for part in slices(whole, int(self.stream.own["offsets_per_slice"])):
            mark = mark_after(mark, part)
            yield Slice(
                self._records(self._messages(spark, part), layout, plan),
                mark.to_json(),
                # The order of messages is that of the changes of a row.
                ordered=True,
                told_rows=part.count if facts.is_gapless else None,
            )

    def begin(self, spark: SparkSession, plan: StreamPlan) -> Mapping[str, Any]:
        """See `BoundedSource.begin`."""
        facts, whole, mark = self._planned(spark, plan)
        if whole.end != facts.end:
            _logger.info(
                "stream '%s': finishing the interrupted run first; newer messages wait for the "
                "next run",
                plan.stream,
            )
        return (mark if whole.count else mark_after(mark, whole)).to_json()

    def guessed_settings(self, spark: SparkSession) -> dict[str, str]:
        """Return settings of the stream that the newest messages show."""
        return LayoutReader(spark, self.stream, lambda: self._sample(spark)).guessed()

    def _records(self, messages: DataFrame, layout: MessageLayout, plan: StreamPlan) -> DataFrame:
        rows = with_deletions(message_rows(messages, layout))
        gone = missing_columns(plan.columns, rows.columns)
        if gone:
            raise self.error(
                f"selected columns are no longer in the source: {', '.join(gone)}", REDISCOVER
            )
        fields = [f for f in prune(rows.schema, plan.schema).fields if f.name != DELETED_AT]
        want = T.StructType([*fields, T.StructField(DELETED_AT, T.TimestampType())])
        names = [*(name for name in plan.columns if name != DELETED_AT), DELETED_AT]
        return conformed(rows, want).select(*map(col, names))

    def _messages(self, spark: SparkSession, part: OffsetRange) -> DataFrame:
        continues = self.stream.own["on_data_loss"] == "continue"
        return (
            spark.read.format("kafka")
            .options(**self.options)
            .option("assign", spark_partitions(self.topic, part))
            .option("startingOffsets", spark_offsets(self.topic, part.start))
            .option("endingOffsets", spark_offsets(self.topic, part.end))
            .option("failOnDataLoss", str(not continues).lower())
            .load()
        )

    def _planned(
        self, spark: SparkSession, plan: StreamPlan
    ) -> tuple[TopicFacts, OffsetRange, KafkaMark]:
        """Return the topic, what to read of it, and the bookmark before that."""
        try:
            earlier = read_mark(plan.bookmark)
        except ValueError as error:
            raise self.error(f"the bookmark is damaged: {error}", START_OVER) from error
        facts, whole = self._facts(spark)
        losses: list[DataLoss] = []
        kept: Mapping[int, int] = {}
        if earlier is not None:
            whole, losses = after_bookmark(facts, earlier)
            self._report(losses)
            kept = {part: at for part, at in earlier.offsets.items() if part in facts.end}
        mark = KafkaMark({**kept, **whole.start}, whole.end, facts.topic_id)
        return facts, whole, mark

    def _report(self, losses: list[DataLoss]) -> None:
        if not losses:
            return
        text = "; ".join(loss.text for loss in losses)
        count = sum(loss.count or 0 for loss in losses)
        many = f" ({count} offsets)" if count else ""
        text = f"messages after the bookmark are gone from topic '{self.topic}'{many}: {text}"
        if self.stream.own["on_data_loss"] == "stop":
            raise self.error(
                text, "set 'on_data_loss' to 'continue' to read what is left, without them"
            )
        _logger.warning("stream '%s': %s; reading what is left", self.stream.name, text)

    def _facts(self, spark: SparkSession) -> tuple[TopicFacts, OffsetRange]:
        """Return the topic, and what a stream without bookmark reads of it."""
        start = self.stream.own["starting_offsets"]
        try:
            facts, offsets = topic_facts(spark, self.options, self.topic, start)
        except SourceError as error:
            raise explain(error, Where(stream=self.stream.name)) from error.__cause__
        try:
            return facts, from_start(facts, offsets)
        except ValueError as error:
            where = Where(stream=self.stream.name, setting="starting_offsets")
            raise SourceError(f"topic '{self.topic}': {error}", where=where) from error

    def _layout(self, spark: SparkSession, plan: StreamPlan | None) -> MessageLayout:
        text = None if plan is None else plan.source_schema
        reader = LayoutReader(spark, self.stream, lambda: self._sample(spark))
        try:
            return reader.layout(catalog_parts(struct_from_text(text)) if text else None)
        except SourceError as error:
            raise explain(error, Where(stream=self.stream.name)) from error.__cause__

    def _sample(self, spark: SparkSession) -> DataFrame:
        """Return the newest messages, whatever the bookmark is."""
        facts, _ = self._facts(spark)
        start = {part: max(facts.first[part], end - SAMPLE) for part, end in facts.end.items()}
        return self._messages(spark, OffsetRange(start, facts.end))


def reader_options(connection: ConnectionConfig) -> dict[str, str]:
    """Return the options of Spark's reader for a connection."""
    servers = {"kafka.bootstrap.servers": str(connection.brokers)}
    return {"kafka.isolation.level": "read_committed", **connection.options, **servers}


class BrokerTopics:
    """The item of `connections` with `brokers`."""

    def __init__(self, config: ConnectionConfig) -> None:
        self._config = config

    def tables(self, spark: SparkSession) -> Iterator[DiscoveredTable]:
        """Yield the topics, in the order of their names; warns of what has no columns yet.

        Raises:
            SourceError: The brokers cannot be reached or read.
        """
        for topic in self._topics(spark):
            if not is_wanted(self._config, None, topic):
                continue
            try:
                yield self._discovered(spark, topic)
            except SourceError as error:
                _logger.warning(
                    "connection '%s': skipping topic '%s': %s",
                    self._config.name,
                    topic,
                    error.message,
                )

    def _topics(self, spark: SparkSession) -> list[str]:
        try:
            return topic_names(spark, reader_options(self._config))
        except SourceError as error:
            where = Where(setting=f"connections, '{self._config.name}'")
            raise explain(error, where) from error.__cause__

    def _discovered(self, spark: SparkSession, topic: str) -> DiscoveredTable:
        stream = StreamConfig(
            name=stream_name(self._config, (topic,)),
            format=BUILT_IN["kafka"].name,
            connection=self._config.name,
            database=self._config,
            replication_method=BUILT_IN["kafka"].default_method,
            own=BUILT_IN["kafka"].typed({"topic": topic}),
        )
        source = KafkaSource(stream)
        try:
            own = source.guessed_settings(spark)
            stream = replace(stream, own=BUILT_IN["kafka"].typed({"topic": topic, **own}))
            source = KafkaSource(stream)
            struct = source.schema(spark)
        except SourceError:
            raise
        except Exception as error:
            raise source_error(stream.name, error) from error
        stream = replace(stream, key_properties=source.key_properties)
        return DiscoveredTable(stream, struct, None, topic)
