"""How the messages of a stream are read: from settings, catalog, registry or a sample."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.avro.functions import from_avro

from shared.errors import SettingsError, SourceError, Where
from shared.formats.spark_conform import loose
from shared.formats.spark_functions import is_json_object, is_valid_utf8, json_types
from tap_spark.sources.frame_helpers import MAX_DECIMAL
from tap_spark.sources.kafka.message_columns import (
    MAGIC_BYTES,
    PAYLOAD,
    CatalogParts,
    MessageLayout,
    MessagePart,
    SchemaRegistry,
    envelope_of,
    row_of_envelope,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tap_spark.stream_config import StreamConfig

SAMPLE = 1_000
"""How many of the newest messages of each partition are looked at."""
_QUOTED = re.compile(r"(`(?:[^`]|``)*`)")
_WORDS = {"OBJECT<": "STRUCT<", "VARIANT": "STRING"}


class LayoutReader:
    """Finds out how messages are read. Its methods raise SourceError if it cannot.

    Args:
        spark: The session.
        stream: The stream.
        sample: Returns its newest messages; called only if columns of JSON are not known.
    """

    def __init__(
        self, spark: SparkSession, stream: StreamConfig, sample: Callable[[], DataFrame]
    ) -> None:
        self._spark = spark
        self._stream = stream
        self._sample = sample
        self._is_debezium = stream.own["envelope"] == "debezium"

    def layout(self, saved: CatalogParts | None) -> MessageLayout:
        """Return the layout.

        Args:
            saved: The types that a catalog tells; None if it does not.
        """
        value, row = self._value(None if saved is None else saved.value)
        key = self._key(None if saved is None else saved.key)
        metadata = tuple(self._stream.own["metadata_columns"])
        return MessageLayout(value, key, row, self._is_debezium, metadata)

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
        """Return the format that all have; None if there is none.

        Args:
            all_of_them: How many must have it.
            counts: How many there are, how many may be Avro, JSON objects and text.
        """
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
        return MessagePart("value", "json", dtype, has_payload=self._is_debezium), row

    def _json_row(self, saved: T.DataType | None) -> T.StructType:
        if self._stream.schema is not None:
            saved = self._declared("schema", self._stream.schema)
        elif not isinstance(saved, T.StructType):
            inferred = self._inferred[1]
            if isinstance(inferred, T.NullType):
                raise self._nothing_to_infer("value", "schema")
            saved = row_of_envelope(inferred) if self._is_debezium else inferred
            saved = None if saved is None else widened(saved)
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
            saved = widened(saved)
        return MessagePart("key", "json", saved, has_payload=self._is_debezium)

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
        return MessagePart(name, "avro", loose(decoded.schema[name].dataType), schemas)

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


def spark_words(text: str) -> str:
    """Return the type of a variant as DDL that Spark reads; text where types differ."""
    parts = _QUOTED.split(text)
    for number in range(0, len(parts), 2):
        for word, other in _WORDS.items():
            parts[number] = parts[number].replace(word, other)
    return "".join(parts)


def widened(dtype: T.DataType) -> T.DataType:
    """Return the type for later messages too: fractions as doubles, void as text."""
    if isinstance(dtype, T.NullType):
        return T.StringType()
    if isinstance(dtype, T.DecimalType):
        return T.DoubleType() if dtype.scale else T.DecimalType(MAX_DECIMAL, 0)
    if isinstance(dtype, T.ArrayType):
        return T.ArrayType(widened(dtype.elementType), True)
    if isinstance(dtype, T.StructType):
        return T.StructType([T.StructField(f.name, widened(f.dataType)) for f in dtype.fields])
    return dtype
