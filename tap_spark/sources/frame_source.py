"""What the sources that Spark knows as one DataFrame have in common: tables, SQL, Python."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, StructType

from shared.errors import SourceError, Where
from tap_spark.plans import Slice, StreamPlan
from tap_spark.sources.frames import col, missing, prune, struct_from_text, whole

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from tap_spark.stream_config import StreamConfig

REDISCOVER = "run --discover again, or deselect them in the catalog"


class FrameSource(ABC):
    """A source whose rows are one DataFrame."""

    def __init__(self, stream: StreamConfig) -> None:
        self.stream = stream
        self.key_properties = stream.key_properties

    @abstractmethod
    def frame(self, spark: SparkSession, plan: StreamPlan | None) -> DataFrame:
        """Every column, and at least the rows that the plan asks for; None asks for all."""

    def schema(self, spark: SparkSession) -> StructType:
        """See `Source.schema`."""
        struct = self.frame(spark, None).schema
        if not struct.fields:
            raise self.error("it has no columns")
        # Spark cannot tell them apart later on either.
        counts = Counter(name.lower() for name in struct.names)
        twice = [name for name in struct.names if counts[name.lower()] > 1]
        if twice:
            raise self.error(
                f"several columns have the same name, but for case: {', '.join(twice)}",
                "give each a name of its own",
            )
        return struct

    def slices(self, spark: SparkSession, plan: StreamPlan) -> Iterator[Slice]:
        """See `Source.slices`."""
        frame = self.frame(spark, plan)
        gone = missing(plan.columns, frame.columns)
        if gone:
            raise self.error(
                f"selected columns are no longer in the source: {', '.join(gone)}", REDISCOVER
            )
        if plan.source_schema:
            self._check_types(struct_from_text(plan.source_schema), frame.schema, plan)
        yield whole(narrowed(frame, plan.schema), plan)

    def error(self, message: str, hint: str = "") -> SourceError:
        """An error at this stream."""
        return SourceError(message, where=Where(stream=self.stream.name), hint=hint)

    def _check_types(self, planned: StructType, found: StructType, plan: StreamPlan) -> None:
        was = {field.name: field.dataType for field in prune(planned, plan.schema).fields}
        now = {field.name: field.dataType for field in prune(found, plan.schema).fields}
        changed = [
            f"'{name}' was {was[name].simpleString()} and is {now[name].simpleString()}"
            for name in plan.columns
            if name in was and was[name].simpleString() != now[name].simpleString()
        ]
        if changed:
            raise self.error(
                f"columns have other types than in the catalog: {'; '.join(changed)}",
                REDISCOVER,
            )


def narrowed(frame: DataFrame, schema: Mapping[str, Any]) -> DataFrame:
    """Leave out the columns, and the fields inside of them, that a JSON Schema has not."""
    types = {field.name: field.dataType for field in frame.schema.fields}
    return frame.select(
        *(
            _narrow(col(field.name), types[field.name], field.dataType).alias(field.name)
            for field in prune(frame.schema, schema).fields
        )
    )


def _narrow(value: Column, have: DataType, want: DataType) -> Column:
    if have.simpleString() == want.simpleString():
        return value
    if isinstance(have, StructType) and isinstance(want, StructType):
        types = {field.name: field.dataType for field in have.fields}
        kept = [
            _narrow(value.getField(f.name), types[f.name], f.dataType).alias(f.name)
            for f in want.fields
        ]
        return F.when(value.isNotNull(), F.struct(*kept))
    if isinstance(have, ArrayType) and isinstance(want, ArrayType):
        inner, wanted = have.elementType, want.elementType
        return F.transform(value, lambda item: _narrow(item, inner, wanted))
    return value
