"""One Spark SQL statement that reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.errors import Where
from tap_spark.sources.frame_source import FrameSource
from tap_spark.sources.read_only_sql import as_subquery, check_reads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tap_spark.state.stream_plans import StreamPlan
    from tap_spark.stream_config import StreamConfig


class SqlSource(FrameSource):
    """The rows of a query.

    Raises:
        SettingsError: It is not exactly one statement that reads.
    """

    def __init__(self, stream: StreamConfig) -> None:
        super().__init__(stream)
        query = stream.query or ""
        check_reads(query, "spark", Where(stream=stream.name, setting="query"))
        # Spark runs commands at once, but rejects them in a subquery if the check missed them.
        self.text = f"SELECT * FROM {as_subquery(query, 'spark')}"  # noqa: S608

    def frame(self, spark: SparkSession, plan: StreamPlan | None) -> DataFrame:  # noqa: ARG002
        """See `FrameSource.frame`."""
        return spark.sql(self.text)
