"""Topics of Kafka, read up to where they ended when the run began.

The messages of a stream are read by settings, catalog, registry or a sample; discovery gives each
topic the format that its newest messages show.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.avro.functions import from_avro

from shared.errors import SettingsError, SourceError, Where
from shared.formats.arrow_types import as_nullable, mapped
from shared.formats.spark_conform import conformed, is_json_object, is_valid_utf8, json_types
from shared.maps.record_metadata import DELETED_AT
from shared.spark.spark_errors import explain
from tap_spark.sources.files.json_rows import is_supported
from tap_spark.sources.formats import BUILT_IN
from tap_spark.sources.frame_helpers import (
    MAX_DECIMAL,
    col,
    missing_columns,
    prune,
    struct_from_text,
    with_deleted_at,
)
from tap_spark.sources.frame_source import REDISCOVER, FrameSource
from tap_spark.sources.kafka.message_columns import (
    AT,
    MAGIC_BYTES,
    PAYLOAD,
    PLACE,
    MessageLayout,
    MessagePart,
    SchemaRegistry,
    catalog_parts,
    current_rows,
    envelope_of,
    message_rows,
    row_of_envelope,
)
from tap_spark.sources.kafka.topic_offsets import (
    DataLoss,
    KafkaMark,
    OffsetRange,
    StartOffsets,
    TopicFacts,
    after_bookmark,
    from_start,
    mark_after,
    read_offsets,
    slices,
    spark_offsets,
    spark_partitions,
    topic_facts,
    topic_names,
)
from tap_spark.sources.source_failures import source_error
from tap_spark.sources.tables import DiscoveredTable, is_wanted, stream_name, warn_of_unmatched
from tap_spark.state.stream_plans import Resume, Slice, StreamPlan
from tap_spark.stream_config import ConnectionConfig, StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SAMPLE = 1_000
"""How many of the newest messages of each partition are looked at."""
_QUOTED = re.compile(r"(`(?:[^`]|``)*`)")
_WORDS = {"OBJECT<": "STRUCT<", "VARIANT": "STRING"}


class LayoutReader:
    """Finds out how messages are read. Its methods raise SourceError if it cannot.

    Args:
        sample: Returns its newest messages; called only if columns of JSON are not known.
    """

    def __init__(
        self, spark: SparkSession, stream: StreamConfig, sample: Callable[[], DataFrame]
    ) -> None:
        self._spark = spark
        self._stream = stream
        self._sample = sample
        self._is_debezium = stream.own["envelope"] == "debezium"

    def layout(self, key: T.DataType | None, row: T.DataType | None) -> MessageLayout:
        """Return the layout, by the types of keys and rows that a catalog tells, if it does."""
        value, columns = self._value(row)
        metadata = tuple(self._stream.own["metadata_columns"])
        return MessageLayout(value, self._key(key), columns, self._is_debezium, metadata)

    def guessed(self) -> dict[str, str]:
        """Return the formats that the newest messages show, as settings of the stream."""
        columns = []
        for name in ("key", "value"):
            text = F.col(name).cast("string")
            is_avro = F.hex(F.substring(name, 1, 1)) == "00"
            columns += [
                F.count(name),
                F.count_if(is_avro & (F.length(name) > MAGIC_BYTES)),
                F.count_if(is_valid_utf8(text) & is_json_object(text)),
                F.count_if(is_valid_utf8(text)),
            ]
        row = self._sample().agg(*columns, F.count("*")).first()
        counts = [0] * 9 if row is None else list(row)
        value = self._form(counts[4], counts[4:8])
        if value is None:
            raise SourceError("its newest messages have no values that are JSON, Avro or text")
        key = self._form(counts[8], counts[:4]) or "none"
        is_debezium = value != "text" and key in ("json", "avro") and self._has_envelopes(value)
        envelope = {"envelope": "debezium"} if is_debezium else {}
        return {"key_format": key, "value_format": value, **envelope}

    def _form(self, all_of_them: int, counts: Sequence[int]) -> str | None:
        """Return the format that all have; None if there is none."""
        # How many there are, and how many of these may be Avro, JSON objects and text.
        present, avro, json, text = counts
        if not present or present < all_of_them:
            return None
        connection = self._stream.database
        if avro == present and connection is not None and connection.schema_registry:
            return "avro"
        return "json" if json == present else "text" if text == present else None

    def _has_envelopes(self, form: str) -> bool:
        dtype = self._avro("value").dtype if form == "avro" else self._inferred[1]
        return row_of_envelope(dtype) is not None

    def _value(self, saved: T.DataType | None) -> tuple[MessagePart, T.StructType]:
        """Return how values are read, and the columns of their rows."""
        form = self._stream.own["value_format"]
        if form != "json":
            part = self._text("value") if form == "text" else self._avro("value")
            row = row_of_envelope(part.dtype) if self._is_debezium else part.struct
            if row is None:
                raise SourceError("its values are no envelopes of Debezium", hint="see 'envelope'")
            return part, row
        row = self._json_row(saved)
        dtype = envelope_of(row) if self._is_debezium else row
        return _json_part("value", dtype, has_payload=self._is_debezium), row

    def _json_row(self, saved: T.DataType | None) -> T.StructType:
        if self._stream.schema is not None:
            saved = self._declared("schema", self._stream.schema)
        elif not isinstance(saved, T.StructType):
            inferred = self._inferred[1]
            if isinstance(inferred, T.NullType):
                raise self._nothing_to_infer("value", "schema")
            saved = row_of_envelope(inferred) if self._is_debezium else inferred
            saved = None if saved is None else mapped(saved, widened)
        if not isinstance(saved, T.StructType):
            what = "envelopes of Debezium" if self._is_debezium else "JSON objects"
            raise SourceError(f"its values are no {what}", hint="set 'value_format' or 'envelope'")
        return saved

    def _key(self, saved: T.DataType | None) -> MessagePart | None:
        form = self._stream.own["key_format"]
        if form != "json":
            readers = {"none": lambda _: None, "text": self._text, "avro": self._avro}
            return readers[form]("key")
        ddl = self._stream.own.get("key_schema")
        if ddl is not None:
            saved = self._declared("key_schema", ddl)
        elif saved is None or saved == T.StructType([]):
            saved = self._inferred[0]
            if isinstance(saved, T.NullType):
                raise self._nothing_to_infer("key", "key_schema")
            if self._is_debezium and isinstance(saved, T.StructType) and PAYLOAD in saved.names:
                saved = saved[PAYLOAD].dataType
            saved = mapped(saved, widened)
        has_payload = self._is_debezium and isinstance(saved, T.StructType)
        return _json_part("key", saved, has_payload=has_payload)

    def _text(self, name: str) -> MessagePart:
        return MessagePart(name, "text", T.StringType())

    def _avro(self, name: str) -> MessagePart:
        connection, own = self._stream.database, self._stream.own
        if connection is None or connection.schema_registry is None:
            raise SourceError("Avro needs a schema registry", hint="set 'schema_registry'")
        subject = own.get(f"{name}_subject") or f"{own['topic']}-{name}"
        schemas = SchemaRegistry(connection.schema_registry).versions(subject)
        empty = F.lit(None).cast("binary")
        decoded = self._spark.range(0).select(from_avro(empty, schemas[-1].text).alias(name))
        return MessagePart(name, "avro", as_nullable(decoded.schema[name].dataType), schemas)

    @cached_property
    def _inferred(self) -> tuple[T.DataType, T.DataType]:
        """Return the types of keys and values that are JSON; void if the sample has none."""
        sample = self._sample().select(*(F.col(name).cast("string") for name in ("key", "value")))
        key, value = json_types(sample)
        return self._ddl(spark_words(key)), self._ddl(spark_words(value))

    def _declared(self, setting: str, ddl: str) -> T.DataType:
        """Return the type of a setting: columns, or the type of a single value."""
        try:
            return self._spark.createDataFrame([], ddl).schema
        except Exception:
            try:
                return self._ddl(ddl)
            except Exception as error:
                where = Where(stream=self._stream.name, setting=setting)
                raise SettingsError(f"{ddl!r} is not Spark DDL", where=where) from error

    def _ddl(self, text: str) -> T.DataType:
        return self._spark.createDataFrame([], f"v {text}").schema["v"].dataType

    def _nothing_to_infer(self, part: str, setting: str) -> SourceError:
        text = f"the newest messages have no JSON {part} from which to infer columns"
        return SourceError(text, hint=f"set '{setting}', or check '{part}_format'")


def _json_part(name: str, dtype: T.DataType, *, has_payload: bool) -> MessagePart:
    part = MessagePart(name, "json", dtype, has_payload=has_payload)
    if not is_supported(part.json_struct):
        raise SourceError(
            f"JSON cannot be read exactly as {dtype.simpleString()}",
            hint="use STRING for other types in 'schema' or 'key_schema'",
        )
    return part


def spark_words(text: str) -> str:
    """Return the type of a variant as DDL that Spark reads; text where types differ."""
    parts = _QUOTED.split(text)
    for number in range(0, len(parts), 2):
        for word, other in _WORDS.items():
            parts[number] = parts[number].replace(word, other)
    return "".join(parts)


def widened(leaf: T.DataType) -> T.DataType:
    """Return the type of a value for later messages too: fractions as doubles, void as text."""
    if isinstance(leaf, T.DecimalType):
        return T.DoubleType() if leaf.scale else T.DecimalType(MAX_DECIMAL, 0)
    return T.StringType() if isinstance(leaf, T.NullType) else leaf


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
        whole = self._from_start(*self._facts(spark))
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
        rows = with_deleted_at(message_rows(messages, layout), col(AT), (AT, PLACE))
        if gone := missing_columns(plan.columns, rows.columns):
            text = f"selected columns are no longer in the source: {', '.join(gone)}"
            raise self.error(text, REDISCOVER)
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
            earlier = read_offsets(plan.bookmark)
        except ValueError as error:
            raise self.error(f"the bookmark is damaged: {error}", START_OVER) from error
        facts, start = self._facts(spark)
        kept: Mapping[int, int] = {}
        if earlier is None:
            whole = self._from_start(facts, start)
        else:
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
            hint = "set 'on_data_loss' to 'continue' to read what is left, without them"
            raise self.error(text, hint)
        _logger.warning("stream '%s': %s; reading what is left", self.stream.name, text)

    def _facts(self, spark: SparkSession) -> tuple[TopicFacts, StartOffsets]:
        """Return the topic, and where a stream without bookmark begins."""
        start = self.stream.own["starting_offsets"]
        try:
            return topic_facts(spark, self.options, self.topic, start)
        except SourceError as error:
            raise explain(error, Where(stream=self.stream.name)) from error.__cause__

    def _from_start(self, facts: TopicFacts, start: StartOffsets) -> OffsetRange:
        """Return what a stream without bookmark reads: messages before it may have expired."""
        try:
            return from_start(facts, start)
        except ValueError as error:
            where = Where(stream=self.stream.name, setting="starting_offsets")
            raise SourceError(f"topic '{self.topic}': {error}", where=where) from error

    def _layout(self, spark: SparkSession, plan: StreamPlan | None) -> MessageLayout:
        text = None if plan is None else plan.source_schema
        saved = catalog_parts(struct_from_text(text) if text else T.StructType())
        reader = LayoutReader(spark, self.stream, lambda: self._sample(spark))
        try:
            return reader.layout(*saved)
        except SourceError as error:
            raise explain(error, Where(stream=self.stream.name)) from error.__cause__

    def _sample(self, spark: SparkSession) -> DataFrame:
        """Return the newest messages, whatever the bookmark is."""
        facts, _ = self._facts(spark)
        start = {part: max(facts.first[part], end - SAMPLE) for part, end in facts.end.items()}
        return self._messages(spark, OffsetRange(start, facts.end))


def reader_options(connection: ConnectionConfig) -> dict[str, str]:
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
        try:
            topics = topic_names(spark, reader_options(self._config))
        except SourceError as error:
            where = Where(setting=f"connections, '{self._config.name}'")
            raise explain(error, where) from error.__cause__
        warn_of_unmatched(self._config, topics)
        for topic in topics:
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
