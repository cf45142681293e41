"""Reads of a table's source as in a run, and copies that follow its changes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shared.formats.record_text import record_json
from tap_spark.plan.catalog import build_entry
from tap_spark.plan.replication import plan_streams
from tap_spark.sources.source import source_for
from tap_spark.state.bookmarks import advance_positions
from tap_spark.state.stream_plans import Slice, StreamPlan
from tap_spark.stream_config import StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Record = dict[str, Any]
DELETED = "_sdc_deleted_at"


@dataclass
class LakeStream:
    """A stream over a table, with its state from run to run."""

    spark: SparkSession
    config: StreamConfig
    keys: tuple[str, ...] = ()
    state: dict[str, Any] = field(default_factory=dict)
    entry: dict[str, Any] | None = None

    def discover(self) -> dict[str, Any]:
        """Return the catalog's entry of the table as it is now."""
        source = source_for(self.config)
        struct = source.schema(self.spark)
        return build_entry(
            self.config.name,
            struct,
            key_properties=self.keys or source.key_properties,
            replication_key=self.config.replication_key,
            replication_method=self.config.replication_method,
        )

    def plan(self) -> StreamPlan:
        """Return the plan of the next run: by the kept entry, or what is discovered now."""
        catalog = {"streams": [self.entry or self.discover()]}
        config = _Config((self.config,))
        (plan,) = plan_streams(config, catalog, self.state, 1)  # type: ignore[arg-type]
        return plan

    def slices(self) -> Iterator[tuple[Slice, list[Record]]]:
        """Yield each slice of a run with its records; the state moves on after each."""
        plan = self.plan()
        for piece in source_for(self.config).slices(self.spark, plan):
            lines = piece.frame.select(record_json(piece.frame.schema)).collect()
            yield piece, [json.loads(line[0]) for line in lines]
            if piece.bookmark is not None:
                self.state = advance_positions(plan, piece.bookmark, self.state)

    def read(self) -> list[Record]:
        """Return all records of a run."""
        return [record for _, records in self.slices() for record in records]

    @property
    def bookmark(self) -> Mapping[str, Any]:
        """Return the stream's bookmark."""
        actual: Mapping[str, Any] = self.state["bookmarks"][self.config.name]
        return actual


@dataclass(frozen=True)
class _Config:
    streams: tuple[StreamConfig, ...]
    connections: tuple[Any, ...] = ()
    start_date: str | None = None


@dataclass
class Copy:
    """What a destination that upserts by a key has after the records."""

    key: str = "id"
    rows: dict[Any, Record] = field(default_factory=dict)

    def apply(self, records: Iterable[Record]) -> None:
        """Apply records in their order."""
        for record in records:
            row = {name: value for name, value in record.items() if name != DELETED}
            if record[DELETED] is None:
                self.rows[row[self.key]] = {**self.rows.get(row[self.key], {}), **row}
            else:
                self.rows.pop(row[self.key], None)

    def same_as(self, rows: Iterable[Record]) -> bool:
        """Return whether it holds exactly these rows; columns that are gone may have stayed."""
        wanted = {row[self.key]: row for row in rows}
        actual = {
            key: {name: row.get(name) for name in wanted.get(key, row)}
            for key, row in self.rows.items()
        }
        return actual == wanted


@dataclass
class Bag:
    """What someone who follows a table without key has: rows, each so many times."""

    rows: Counter[str] = field(default_factory=Counter)

    def apply(self, records: Iterable[Record]) -> None:
        """Apply records in their order."""
        for record in records:
            row = {name: value for name, value in record.items() if name != DELETED}
            self.rows[json.dumps(row, sort_keys=True)] += 1 if record[DELETED] is None else -1


def bag_of(rows: Iterable[Record]) -> Counter[str]:
    """Return rows as `Bag` counts them."""
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def table_rows(spark: SparkSession, relation: str) -> list[Record]:
    """Return the rows of a table, as the table itself says now."""
    frame = spark.sql(f"SELECT * FROM {relation}")
    return [json.loads(line[0]) for line in frame.select(record_json(frame.schema)).collect()]
