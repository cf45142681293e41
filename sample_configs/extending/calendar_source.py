"""A format of tap-spark in one file: `calendar`, one row per day, for date dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tap_spark.sources.frame_source import FrameSource
from tap_spark.sources.source_declaration import SourceFormat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tap_spark.state.stream_plans import StreamPlan


def _day(what: str) -> dict[str, str]:
    return {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$", "description": what}


def _order(stream: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    first, last = stream.get("first_day"), stream.get("last_day")
    if isinstance(first, str) and isinstance(last, str) and last < first:
        yield "last_day", "must not be before 'first_day'"


SOURCE = SourceFormat(
    name="calendar",
    implementation="calendar_source:CalendarSource",
    description="one row per day",
    places=("first_day",),
    settings={"first_day": _day("First day of a `calendar`."), "last_day": _day("Its last day.")},
    required=("last_day",),
    rules=(_order,),
)


class CalendarSource(FrameSource):
    """The days, with what date dimensions say of them."""

    def frame(self, spark: SparkSession, plan: StreamPlan | None) -> DataFrame:
        """See `FrameSource.frame`."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        first, last = (F.lit(self.stream.own[f"{which}_day"]) for which in ("first", "last"))
        days = F.explode(F.sequence(first.cast("date"), last.cast("date"))).alias("day")
        weekday = (F.weekday("day") + 1).alias("weekday")
        return spark.range(1).select(days).select("day", F.year("day").alias("year"), weekday)
