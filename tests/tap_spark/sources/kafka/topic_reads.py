"""Reads of topics as in a run: settings, discovery, planning, messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tap_spark.config import TapConfig, tap_config
from tap_spark.plan.discovery import catalog_for
from tap_spark.plan.replication import plan_streams
from tap_spark.sources.source import BoundedSource, source_for
from tap_spark.testing import _run

if TYPE_CHECKING:
    from kafka_broker import KafkaBroker
    from pyspark.sql import SparkSession

    from tap_spark.state.stream_plans import Slice, StreamPlan

Message = Mapping[str, Any]
DELETED = "_sdc_deleted_at"


@dataclass(frozen=True)
class TopicReads:
    """A broker and a session, and a folder for what is written."""

    broker: KafkaBroker
    spark: SparkSession
    folder: Path

    def config(
        self,
        connection: Mapping[str, Any] | None = None,
        batch: Mapping[str, Any] | None = None,
        **stream: Any,
    ) -> TapConfig:
        """Return settings of one stream of a topic, `s`."""
        return tap_config(
            {
                **({} if batch is None else {"batch_config": batch}),
                "connections": [self.broker.connection(**(connection or {}))],
                "streams": [{"name": "s", "format": "kafka", **stream}],
            }
        )

    def run(self, config: TapConfig, state: Any = None, catalog: Any = None) -> list[Message]:
        """Return the messages of a run."""
        catalog = catalog or self.catalog(config)
        return _run(self.spark, config, self.folder, catalog=catalog, state=state)

    def catalog(self, config: TapConfig) -> dict[str, Any]:
        """Return the catalog of the stream alone."""
        entries = catalog_for(self.spark, TapConfig(streams=config.streams))["streams"]
        return {"streams": entries}

    def slices(self, config: TapConfig, state: Any = None, catalog: Any = None) -> Iterator[Slice]:
        """Yield the slices of a run; none is read."""
        plan = self.plan(config, state, catalog)
        yield from source_for(plan.config).slices(self.spark, plan)

    def plan(self, config: TapConfig, state: Any = None, catalog: Any = None) -> StreamPlan:
        """Return the plan of a run, which fixes where it ends."""
        (plan,) = plan_streams(config, catalog or self.catalog(config), state, 1)
        source = source_for(plan.config)
        assert isinstance(source, BoundedSource)
        return replace(plan, bookmark=source.begin(self.spark, plan))


def records(messages: list[Message]) -> list[dict[str, Any]]:
    """Return the records; `_sdc_deleted_at` tells only whether there is a time."""
    actual = [message["record"] for message in messages if message["type"] == "RECORD"]
    return [
        {**row, DELETED: row[DELETED] is not None} if DELETED in row else dict(row)
        for row in actual
    ]


def last_state(messages: list[Message]) -> dict[str, Any]:
    """Return the last STATE."""
    actual: dict[str, Any] = [m["value"] for m in messages if m["type"] == "STATE"][-1]
    return actual


def offsets(messages: list[Message]) -> dict[str, int]:
    """Return the offsets of the last STATE."""
    actual: dict[str, int] = last_state(messages)["bookmarks"]["s"]["offsets"]
    return actual
