"""Topics of Kafka, each with the format that its newest messages show."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from shared.errors import SourceError, Where
from shared.spark.spark_errors import explain
from tap_spark.sources.connections.connection import DiscoveredTable
from tap_spark.sources.connections.table_patterns import is_wanted, stream_name
from tap_spark.sources.declared.kafka import SOURCE
from tap_spark.sources.kafka.kafka_source import KafkaSource, reader_options
from tap_spark.sources.kafka.topic_facts import topic_names
from tap_spark.sources.source_failures import source_error
from tap_spark.stream_config import StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tap_spark.connection_config import ConnectionConfig

_logger = logging.getLogger(__name__)


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
                yield self._found(spark, topic)
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

    def _found(self, spark: SparkSession, topic: str) -> DiscoveredTable:
        stream = StreamConfig(
            name=stream_name(self._config, (topic,)),
            format=SOURCE.name,
            connection=self._config.name,
            database=self._config,
            replication_method=SOURCE.default_method,
            own=SOURCE.typed({"topic": topic}),
        )
        source = KafkaSource(stream)
        try:
            own = source.guessed_settings(spark)
            stream = replace(stream, own=SOURCE.typed({"topic": topic, **own}))
            source = KafkaSource(stream)
            struct = source.schema(spark)
        except SourceError:
            raise
        except Exception as error:
            raise source_error(stream.name, error) from error
        stream = replace(stream, key_properties=source.key_properties)
        return DiscoveredTable(stream, struct, None, topic)
