"""Tables and views of any catalog in Spark's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.errors import SettingsError, Where
from tap_spark.sources.frame_helpers import quoted
from tap_spark.sources.frame_source import FrameSource
from tap_spark.sources.table_names import name_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from tap_spark.state.stream_plans import StreamPlan
    from tap_spark.stream_config import StreamConfig


class TableSource(FrameSource):
    """A table or view.

    Raises:
        SettingsError: The setting `table` is not a table name.
    """

    def __init__(self, stream: StreamConfig) -> None:
        super().__init__(stream)
        try:
            self.name = spark_name(name_parts(stream.table or ""))
        except ValueError as error:
            where = Where(stream=stream.name, setting="table")
            raise SettingsError(str(error), where=where) from error

    def frame(self, spark: SparkSession, plan: StreamPlan | None) -> DataFrame:  # noqa: ARG002
        """See `FrameSource.frame`."""
        return spark.read.options(**self.stream.options).table(self.name)


def spark_name(parts: Sequence[str]) -> str:
    """Join the parts of a name so that Spark SQL reads each of them literally."""
    return ".".join(map(quoted, parts))
