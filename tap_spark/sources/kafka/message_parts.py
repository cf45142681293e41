"""Keys and values of messages as typed columns, decoded by Spark."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.avro.functions import from_avro

from shared.releases.spark_functions import is_valid_utf8, json_scalar
from tap_spark.sources.frame_helpers import CORRUPT, fail_job
from tap_spark.sources.kafka.schema_registry import RegisteredSchema

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
        schemas: Versions of the Avro schema, the newest last.
        has_payload: Whether JSON may hold it as `payload`, beside its schema.
    """

    name: str
    form: str
    dtype: T.DataType
    schemas: tuple[RegisteredSchema, ...] = ()
    has_payload: bool = False

    @property
    def struct(self) -> T.StructType:
        """Return its columns."""
        if isinstance(self.dtype, T.StructType):
            return self.dtype
        return T.StructType([T.StructField(self.name, self.dtype)])

    def column(self) -> Column:
        """Return a struct of its columns, null if the message has none; bad data fails the job."""
        found = {"text": self._text, "json": self._json, "avro": self._avro}[self.form]()
        if not isinstance(self.dtype, T.StructType):
            found = F.struct(found.alias(self.name))
        return F.when(F.col(self.name).isNotNull(), found)

    def _text(self) -> Column:
        text = F.col(self.name).cast("string")
        bad = self._failure("is not UTF-8 text").cast("string")
        return F.when(is_valid_utf8(text), text).otherwise(bad)

    def _json(self) -> Column:
        text = self._text()
        if not isinstance(self.dtype, T.StructType):
            parsed = json_scalar(text, self.dtype)
            return F.when(parsed.isNotNull(), parsed).otherwise(self._bad_json(text))
        payload = [T.StructField(PAYLOAD, self.dtype)] if self.has_payload else []
        wanted = T.StructType(
            [*self.dtype.fields, *payload, T.StructField(CORRUPT, T.StringType())]
        )
        parsed = F.from_json(text, wanted, {"columnNameOfCorruptRecord": CORRUPT})
        names = self.dtype.names
        plain = F.struct(*(parsed[name].alias(name) for name in names))
        found = F.coalesce(parsed[PAYLOAD], plain) if payload else plain
        is_good = parsed.isNotNull() & parsed[CORRUPT].isNull()
        return F.when(is_good, found).otherwise(self._bad_json(text))

    def _bad_json(self, text: Column) -> Column:
        kind = self.dtype.simpleString() if not isinstance(self.dtype, T.StructType) else "columns"
        problem = f"the {self.name} of a message is not JSON of the stream's {kind}"
        hint = "set 'schema' or 'key_schema', or read it as 'text'"
        return fail_job(problem, value=text, file=message_place(), hint=hint).cast(self.dtype)

    def _avro(self) -> Column:
        data = F.col(self.name)
        head = F.hex(F.substring(data, 1, MAGIC_BYTES))
        body = F.substring(data, MAGIC_BYTES + 1, 2**31 - 1)
        newest = {"avroSchema": self.schemas[-1].text, "mode": "FAILFAST"}
        found: Column | None = None
        for schema in self.schemas:
            is_it = head == F.lit(f"00{schema.number:08X}")
            decoded = from_avro(body, schema.text, newest)
            found = F.when(is_it, decoded) if found is None else found.when(is_it, decoded)
        problem = "is not Avro in Confluent's wire format by a schema of its subject"
        bad = self._failure(problem, head).cast(self.dtype)
        return bad if found is None else found.otherwise(bad)

    def _failure(self, problem: str, value: Column | None = None) -> Column:
        text = f"the {self.name} of a message {problem}"
        hint = f"check '{self.name}_format'"
        return fail_job(text, value=value, file=message_place(), hint=hint)


def message_place() -> Column:
    """Return the place of a message, for errors."""
    parts = (F.lit("topic "), F.col("topic"), F.lit(", partition "), F.col("partition"))
    return F.concat(*parts, F.lit(", offset "), F.col("offset"))
