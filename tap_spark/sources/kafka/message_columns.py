"""Messages of a topic as rows: columns of key and value, and which rows are deleted.

JSON is read as that of files, exactly. Avro schemas come from a schema registry, by its REST
interface; Spark decodes Avro.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from http.client import InvalidURL
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import Request

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.avro.functions import from_avro

from shared.errors import SourceError, may_pass
from shared.formats.arrow_types import as_nullable
from shared.formats.json_text import Refused
from shared.formats.spark_conform import is_valid_utf8
from shared.singer.platform import arrow_in_task
from shared.storage.access import storage_error
from shared.storage.web_requests import open_without_redirects
from tap_spark.sources.files.json_rows import BadLineError, JsonRows, decoded
from tap_spark.sources.frame_helpers import col, fail_job, is_case_sensitive
from tap_spark.sources.source_failures import row_failure

SECONDS = 30.0
_NOT_FOUND = 404
_BUSY = {429, 500, 502, 503, 504}


@dataclass(frozen=True)
class RegisteredSchema:
    """A version of a subject.

    Attributes:
        number: The id that messages name.
        text: The Avro schema, as JSON.
    """

    number: int
    text: str


class SchemaRegistry:
    """A registry, by its URL with user and password if it asks for them."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        login, _, host = parts.netloc.rpartition("@")
        self._url = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        token = base64.b64encode(unquote(login).encode()).decode()
        self._headers = {"Authorization": f"Basic {token}"} if login else {}

    def versions(self, subject: str) -> tuple[RegisteredSchema, ...]:
        """Return every version of a subject, the newest that is not deleted last.

        Deleted ones are there only for messages that name them.

        Raises:
            SourceError: The registry cannot be reached, lacks the subject, or it is not Avro.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions"
        in_use = {*self._get(path, subject)}
        versions = []
        numbers = self._get(f"{path}?deleted=true", subject)
        for number in sorted(numbers, key=lambda number: (number in in_use, number)):
            version = self._get(f"{path}/{number}?deleted=true", subject)
            kind = version.get("schemaType", "AVRO")
            if kind == "AVRO" and not version.get("references"):
                versions.append(RegisteredSchema(int(version["id"]), str(version["schema"])))
            elif number in in_use and kind != "AVRO":
                raise self._error(f"subject '{subject}' has a schema of type {kind}, not AVRO")
            elif number in in_use:
                raise self._error(f"a schema of subject '{subject}' refers to other subjects")
        return tuple(versions)

    def _get(self, path: str, subject: str) -> Any:
        # The settings allow only http and https.
        request = Request(self._url + path, headers=self._headers)  # noqa: S310
        try:
            with open_without_redirects(request, SECONDS) as answer:
                return json.load(answer)
        except HTTPError as error:
            if error.code == _NOT_FOUND:
                text = f"it has no subject '{subject}', or only deleted versions of it"
                raise self._error(f"{text}; set 'value_subject' or 'key_subject'") from error
            passes = error.code in _BUSY
            raise self._error(f"it answers {error.code} {error.reason}", passes=passes) from error
        except InvalidURL as error:  # Its text may hold the password.
            raise self._error("it is not a URL") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            passes = isinstance(reason, OSError) and may_pass(storage_error(reason, self._url))
            raise self._error(str(reason), passes=passes) from error

    def _error(self, text: str, *, passes: bool = False) -> SourceError:
        return SourceError(f"schema registry {self._url}: {text}", passes=passes)


PAYLOAD = "payload"
MAGIC_BYTES = 5
"""Before the Avro data: a zero, and the schema's id in four bytes."""


@dataclass(frozen=True)
class MessagePart:
    """How the key or the value of messages is read.

    Attributes:
        name: `key` or `value`: its column in messages, and in records if it has no fields.
        form: `text`, `json` or `avro`.
        dtype: Type of what it holds.
        schemas: Versions of the Avro schema, as `SchemaRegistry.versions` returns them.
        has_payload: Whether a JSON object may hold it as `payload`, beside its schema.
    """

    name: str
    form: str
    dtype: T.DataType
    schemas: tuple[RegisteredSchema, ...] = ()
    has_payload: bool = False

    @property
    def struct(self) -> T.StructType:
        if isinstance(self.dtype, T.StructType):
            return self.dtype
        return T.StructType([T.StructField(self.name, self.dtype)])

    @property
    def json_struct(self) -> T.StructType:
        """Return the columns that are read of JSON, all of which may be missing."""
        payload = [T.StructField(PAYLOAD, self.dtype)] if self.has_payload else []
        struct = T.StructType([*self.struct.fields, *payload])
        nullable: T.StructType = as_nullable(struct if struct.fields else _NOTHING)
        return nullable

    def line(self, text: bytes) -> bytes:
        """Return JSON as a line with one object.

        Raises:
            Refused: It is none.
        """
        line = text.strip(b" \t\r\n")
        if b"\n" in line:
            decoded(line)  # Strings hold no line ends.
            line = line.replace(b"\r", b" ").replace(b"\n", b" ")
        if not isinstance(self.dtype, T.StructType):
            if decoded(line) is None:
                raise Refused("null has no type")
            return b'{"%b":%b}' % (self.name.encode(), line)
        if not line.startswith(b"{"):
            raise Refused("not a JSON object")
        return line

    def column(self) -> Column:
        """Return a struct of its columns, null if the message has none; bad data fails the job."""
        column = {"text": self._text, "json": self._json, "avro": self._avro}[self.form]()
        if self.form != "json" and not isinstance(self.dtype, T.StructType):
            column = F.struct(column.alias(self.name))
        return F.when(F.col(self.name).isNotNull(), column)

    def _text(self) -> Column:
        text = F.col(self.name).cast("string")
        bad = self._failure("is not UTF-8 text").cast("string")
        return F.when(is_valid_utf8(text), text).otherwise(bad)

    def _json(self) -> Column:
        value = F.col(self.name)
        if not self.has_payload:
            return value
        plain = F.struct(*(value[name].alias(name) for name in self.struct.names))
        return F.coalesce(value[PAYLOAD], plain)

    def _avro(self) -> Column:
        data = F.col(self.name)
        head = F.hex(F.substring(data, 1, MAGIC_BYTES))
        body = F.substring(data, MAGIC_BYTES + 1, 2**31 - 1)
        newest = {"avroSchema": self.schemas[-1].text, "mode": "FAILFAST"}
        value: Column | None = None
        for schema in self.schemas:
            is_it = head == F.lit(f"00{schema.number:08X}")
            decoded = from_avro(body, schema.text, newest)
            value = F.when(is_it, decoded) if value is None else value.when(is_it, decoded)
        problem = "is not Avro in Confluent's wire format by a schema of its subject"
        bad = self._failure(problem, head).cast(self.dtype)
        return bad if value is None else value.otherwise(bad)

    def _failure(self, problem: str, value: Column | None = None) -> Column:
        text = f"the {self.name} of a message {problem}"
        hint = f"check '{self.name}_format'"
        return fail_job(text, value=value, file=message_place(), hint=hint)


def message_place() -> Column:
    parts = (F.lit("topic "), F.col("topic"), F.lit(", partition "), F.col("partition"))
    return F.concat(*parts, F.lit(", offset "), F.col("offset"))


METADATA_TYPES = {
    "topic": T.StringType(),
    "partition": T.IntegerType(),
    "offset": T.LongType(),
    "timestamp": T.TimestampType(),
}
_NOTHING = T.StructType([T.StructField("_tap_spark_record", T.StringType())])
"""What is read of objects if no column is."""
_SHOWN = 200


@dataclass(frozen=True)
class JsonMessages:
    """Reads the JSON of messages, for `mapInArrow`: structs in its place; null stays null."""

    parts: tuple[MessagePart, ...]
    case_sensitive: bool

    def read(self, messages: DataFrame) -> DataFrame:
        """Return the messages; JSON that its type cannot keep as it is written fails the job."""
        structs = {part.name: part.json_struct for part in self.parts}
        raw = messages.select(*METADATA_TYPES, "key", "value")
        fields = (T.StructField(f.name, structs.get(f.name, f.dataType)) for f in raw.schema)
        return raw.mapInArrow(self, T.StructType([*fields]))

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches."""
        arrow_in_task()
        readers = [(p, JsonRows(p.json_struct, self.case_sensitive)) for p in self.parts]
        for batch in batches:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            for part, reader in readers:
                columns[part.name] = _json_column(part, reader, batch)
            yield pa.RecordBatch.from_pydict(columns)


def _json_column(part: MessagePart, reader: JsonRows, batch: pa.RecordBatch) -> pa.Array:
    texts = batch.column(part.name)
    lines: list[bytes] = []
    try:
        for text in texts.to_pylist():
            lines.append(b"{}" if text is None else part.line(text))
        rows = reader.table(b"\n".join(lines)).to_struct_array().combine_chunks()
    except (Refused, BadLineError) as bad:
        at = lines.index(bad.line) if isinstance(bad, BadLineError) else len(lines)
        (message,) = batch.slice(at, 1).to_pylist()
        problem = f"the {part.name} of a message is not JSON of the stream's columns: {bad}"
        raise RuntimeError(
            row_failure(
                problem=problem,
                value=message[part.name][:_SHOWN].decode("utf-8", "replace"),
                file="topic {topic}, partition {partition}, offset {offset}".format(**message),
                hint="set 'schema' or 'key_schema', or read it as 'text'",
            )
        ) from None
    return pc.if_else(texts.is_valid(), rows, None)


AT, PLACE = "_tap_spark_deleted_at", "_tap_spark_place"
_PREFIX = "_kafka_"
"""How columns of the names in the setting `metadata_columns` begin."""
_KEY, _VALUE = "_tap_spark_key", "_tap_spark_value"
_UPSERTS = ("c", "r", "u")
_IN_KEY, _IN_VALUE, _IS_KEY = "kafka-in-key", "kafka-in-value", "kafka-is-key"
"""Metadata of the columns in a catalog, from which a run knows how to read JSON."""


@dataclass(frozen=True)
class MessageLayout:
    """How the messages of a stream become rows.

    Attributes:
        value: How values are read; with Debezium, the whole envelope.
        key: How keys are read; None to ignore them.
        row: The columns of a value; with Debezium, those of `before` and `after`.
        is_debezium: Whether values are Debezium's envelopes.
        metadata: Names of the metadata columns.
    """

    value: MessagePart
    key: MessagePart | None
    row: T.StructType
    is_debezium: bool = False
    metadata: tuple[str, ...] = ()

    @property
    def struct(self) -> T.StructType:
        """Return the columns; metadata of each tell whether the key, the value or both have it."""
        keys = self.key.struct.fields if self.key is not None else []
        of_key = {field.name for field in keys}
        of_row = set(self.row.names)
        is_whole = self.key is not None and not isinstance(self.key.dtype, T.StructType)
        fields = []
        for field in (*(f for f in keys if f.name not in of_row), *self.row.fields):
            in_key, in_value = field.name in of_key, field.name in of_row
            marks = {_IN_KEY: in_key, _IN_VALUE: in_value, _IS_KEY: is_whole and in_key}
            fields.append(T.StructField(field.name, field.dataType, True, marks))
        for name in self.metadata:
            fields.append(T.StructField(_PREFIX + name, METADATA_TYPES[name], True))
        return T.StructType(fields)


def catalog_parts(struct: T.StructType) -> tuple[T.DataType, T.StructType] | tuple[None, None]:
    """Return the types of keys and of the rows of values, if the columns of a catalog tell them."""
    if not any(_IN_VALUE in (field.metadata or {}) for field in struct.fields):
        return None, None
    key, value = (
        [T.StructField(f.name, f.dataType) for f in struct.fields if (f.metadata or {}).get(mark)]
        for mark in (_IN_KEY, _IN_VALUE)
    )
    whole = [field.dataType for field in struct.fields if (field.metadata or {}).get(_IS_KEY)]
    return whole[0] if whole else T.StructType(key), T.StructType(value)


def message_rows(messages: DataFrame, layout: MessageLayout) -> DataFrame:
    """Return the rows: the layout's columns, `AT` (when it was deleted, else null) and `PLACE`.

    A message that is no row fails the job.
    """
    parts = tuple(p for p in (layout.key, layout.value) if p is not None and p.form == "json")
    if parts:
        messages = JsonMessages(parts, is_case_sensitive(messages.sparkSession)).read(messages)
    key = F.lit(None) if layout.key is None else layout.key.column()
    parsed = messages.select(
        *METADATA_TYPES,
        key.alias(_KEY),
        layout.value.column().alias(_VALUE),
        F.col("value").isNull().alias("is_empty"),
        F.col("key").isNull().alias("has_no_key"),
    )
    row, deleted_at = _unwrapped(layout) if layout.is_debezium else (col(_VALUE), F.lit(None))
    has_no_key = F.lit(True) if layout.key is None else F.col("has_no_key")
    failure = fail_job(
        "a message has no value, which deletes the row of its key, and no key that is read",
        file=message_place(),
        hint="set 'key_format'",
    )
    deleted_at = (
        F.when(F.col("is_empty") & has_no_key, failure.cast("timestamp_ltz"))
        .when(F.col("is_empty"), F.col("timestamp"))
        .otherwise(deleted_at.cast("timestamp_ltz"))
    )
    rows = parsed.select(*METADATA_TYPES, _KEY, row.alias(_VALUE), deleted_at.alias(AT))
    place = F.struct("partition", "offset", "timestamp").alias(PLACE)
    return rows.select(*_columns(layout), AT, place)


def current_rows(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the last row of each key, unless it was deleted; every row that has no key.

    Only offsets of one partition have an order: among partitions the time of messages decides.
    """
    if keys:
        names, place = [*map(col, keys)], col(PLACE)
        has_no_key = F.coalesce(*map(_is_there, keys)).isNull()
        # Both windows take the rows as they are spread here.
        rows = rows.repartition(*names)
        for order, within in (
            (place["offset"], [*names, place["partition"]]),
            (F.struct(place["timestamp"], place["partition"]), names),
        ):
            newest = F.max(order).over(Window.partitionBy(*within))
            rows = rows.withColumn(_VALUE, has_no_key | (order == newest))
            rows = rows.filter(_VALUE).drop(_VALUE)
    return rows.filter(col(AT).isNull()).drop(AT, PLACE)


def _is_there(name: str) -> Column:
    return F.when(col(name).isNotNull(), F.lit(True))


def _columns(layout: MessageLayout) -> list[Column]:
    columns: list[Column] = []
    for field in layout.struct.fields:
        name, marks = field.name, field.metadata
        if not marks:
            columns.append(F.col(name.removeprefix(_PREFIX)).alias(name))
        elif not marks[_IN_VALUE]:
            columns.append(col(_KEY)[name].alias(name))
        else:
            key = col(_KEY)[name].cast(field.dataType) if marks[_IN_KEY] else F.lit(None)
            columns.append(F.coalesce(col(_VALUE)[name], key).cast(field.dataType).alias(name))
    return columns


def _unwrapped(layout: MessageLayout) -> tuple[Column, Column]:
    """Return the row of a change event, and when it was deleted."""
    before, after, op, ts_ms = (
        col(_VALUE)[name] if name in layout.value.struct.names else F.lit(None)
        for name in ("before", "after", "op", "ts_ms")
    )
    truncated = fail_job(
        "the table was truncated, which has no rows to delete",
        file=message_place(),
        hint="empty the destination, and read the topic again after this message",
    )
    other = fail_job(
        "the value of a message is not a change event of Debezium with 'op' and a row",
        file=message_place(),
        hint="check 'envelope'",
    )
    row = (
        F.when(col(_VALUE).isNull(), F.lit(None).cast(layout.row))
        .when(op == "d", before)
        .when(op.isin(*_UPSERTS) & after.isNotNull(), after)
        .when(op == "t", truncated.cast(layout.row))
        .otherwise(other.cast(layout.row))
    )
    at = F.coalesce(F.timestamp_millis(ts_ms.cast("long")), F.col("timestamp"))
    return row, F.when(op == "d", at)


def envelope_of(row: T.StructType) -> T.StructType:
    """Return the fields of Debezium's envelope that are read."""
    rows = T.StructType().add("before", row).add("after", row)
    return rows.add("op", T.StringType()).add("ts_ms", T.LongType())


def row_of_envelope(struct: T.DataType) -> T.StructType | None:
    """Return the columns of the rows in an envelope; None if it is none."""
    payload = struct
    if isinstance(payload, T.StructType) and PAYLOAD in payload.names and "op" not in payload.names:
        payload = payload[PAYLOAD].dataType
    if not isinstance(payload, T.StructType) or "op" not in payload.names:
        return None
    rows = [payload[name].dataType for name in ("after", "before") if name in payload.names]
    fields: dict[str, T.StructField] = {}
    for field in (field for row in rows if isinstance(row, T.StructType) for field in row.fields):
        declared = fields.get(field.name)
        if declared is None or isinstance(declared.dataType, T.NullType):
            fields[field.name] = field
    return T.StructType(list(fields.values())) if fields else None
