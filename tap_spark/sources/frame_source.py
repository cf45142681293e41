"""The base of sources that Spark reads as one DataFrame: tables, SQL, Python.

A package of someone else declares a format and subclasses `FrameSource` in one module, which every
run imports. So nothing here imports PySpark before a stream is read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from shared.errors import SourceError, Where
from tap_spark.state.stream_plans import Slice, StreamPlan
from tap_spark.stream_config import StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


REDISCOVER = "run --discover again, or deselect them in the catalog"


class FrameSource(ABC):
    """A source whose rows are one DataFrame."""

    def __init__(self, stream: StreamConfig) -> None:
        self.stream = stream
        self.key_properties = stream.key_properties

    @abstractmethod
    def frame(self, spark: SparkSession, plan: StreamPlan | None) -> DataFrame:
        """Return every column, and at least the rows of the plan; without a plan every row."""

    def schema(self, spark: SparkSession) -> StructType:
        """See `Source.schema`."""
        return self.checked(self.frame(spark, None).schema)

    def checked(self, struct: StructType) -> StructType:
        """Return the columns; raise SourceError if there are none, or several of one name."""
        if not struct.fields:
            raise self.error("the source has no columns")
        # They are the same to Spark.
        counts = Counter(name.lower() for name in struct.names)
        twice = [name for name in struct.names if counts[name.lower()] > 1]
        if twice:
            raise self.error(
                f"several columns have the same name, ignoring case: {', '.join(twice)}",
                "rename them",
            )
        return struct

    def slices(self, spark: SparkSession, plan: StreamPlan) -> Iterator[Slice]:
        """See `Source.slices`."""
        from shared.formats.spark_conform import conformed  # noqa: PLC0415
        from tap_spark.sources.frame_helpers import planned_slice, prune  # noqa: PLC0415

        frame = self.frame(spark, plan)
        self.check_planned(plan, frame.schema)
        yield planned_slice(conformed(frame, prune(frame.schema, plan.schema)), plan)

    def check_planned(self, plan: StreamPlan, struct: StructType) -> None:
        """Check that the source has the columns of the plan, in the types of the catalog.

        Raises:
            SourceError: It has not.
        """
        from tap_spark.sources.frame_helpers import (  # noqa: PLC0415
            missing_columns,
            prune,
            struct_from_text,
        )

        if gone := missing_columns(plan.columns, struct.names):
            text = f"selected columns are no longer in the source: {', '.join(gone)}"
            raise self.error(text, REDISCOVER)
        if plan.source_schema:
            planned = prune(struct_from_text(plan.source_schema), plan.schema)
            self._check_types(planned, prune(struct, plan.schema), plan.columns)

    def error(self, message: str, hint: str = "") -> SourceError:
        """Build an error that names this stream."""
        return SourceError(message, where=Where(stream=self.stream.name), hint=hint)

    def _check_types(self, planned: StructType, present: StructType, names: Iterable[str]) -> None:
        was = {field.name: field.dataType.simpleString() for field in planned.fields}
        now = {field.name: field.dataType.simpleString() for field in present.fields}
        changed = [
            f"'{name}' was {was[name]} and is {now[name]}"
            for name in names
            if name in was and was[name] != now[name]
        ]
        if changed:
            raise self.error(
                f"columns have other types than in the catalog: {'; '.join(changed)}",
                REDISCOVER,
            )
