"""LOG_BASED replayed into a copy, compared with the table after every version."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lake_runs import Bag, Copy, LakeStream, bag_of, table_rows

from tap_spark.stream_config import StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
FEED = "'delta.enableChangeDataFeed'='true'"
MAPPED = f"{FEED}, 'delta.columnMapping.mode'='name', 'delta.enableTypeWidening'='true'"
VECTORS = f"{MAPPED}, 'delta.enableDeletionVectors'='true'"
ON_READ = (
    "'format-version'='2', 'write.delete.mode'='merge-on-read', "
    "'write.update.mode'='merge-on-read', 'write.merge.mode'='merge-on-read'"
)
MIXED = (
    "'format-version'='2', 'write.delete.mode'='merge-on-read', 'write.merge.mode'='merge-on-read'"
)


class Table:
    """A table under random changes."""

    def __init__(self, spark: SparkSession, relation: str, seed: int, *, compact: str) -> None:
        self.spark, self.relation, self.compact = spark, relation, compact
        self.random = random.Random(seed)
        self.next_id = 1
        self.text, self.extra = "a", 0
        self.greatest = 0  # of the keys that the test has read

    def sql(self, text: str) -> None:
        self.spark.sql(text.replace("{t}", self.relation))

    def insert(self) -> None:
        rows = [f"({self.next_id + n}, 'v{self.random.randint(0, 3)}')" for n in range(4)]
        self.next_id += 4
        self.sql(f"INSERT INTO {{t}} (id, {self.text}) VALUES {', '.join(rows)}")

    def update(self) -> None:
        self.sql(f"UPDATE {{t}} SET {self.text} = 'u{self.next_id}' WHERE id % 3 = {self._third()}")

    def change_key(self) -> None:
        self.next_id += 1
        self.sql(f"UPDATE {{t}} SET id = {self.next_id - 1} WHERE id = {self.greatest}")

    def delete(self) -> None:
        self.sql(f"DELETE FROM {{t}} WHERE id % 3 = {self._third()}")

    def merge(self) -> None:
        low, high = self.next_id - 3, self.next_id + 2
        self.next_id = high
        self.sql(
            f"MERGE INTO {{t}} t USING (SELECT id, 'm' AS v FROM range({low}, {high})) s "
            f"ON t.id = s.id WHEN MATCHED AND s.id % 2 = 0 THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET t.{self.text} = s.v "
            f"WHEN NOT MATCHED THEN INSERT (id, {self.text}) VALUES (s.id, s.v)"
        )

    def add_column(self) -> None:
        self.extra += 1
        self.sql(f"ALTER TABLE {{t}} ADD COLUMNS (extra{self.extra} INT)")
        self.next_id += 1
        self.sql(f"INSERT INTO {{t}} (id, extra{self.extra}) VALUES ({self.next_id - 1}, 7)")

    def rename(self) -> None:
        new = self.text + "x"
        self.sql(f"ALTER TABLE {{t}} RENAME COLUMN {self.text} TO {new}")
        self.text = new

    def drop_column(self) -> None:
        self.sql("ALTER TABLE {t} DROP COLUMN n")

    def widen(self) -> None:
        self.sql("ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT")
        self.next_id += 1
        self.sql(f"INSERT INTO {{t}} (id, n) VALUES ({self.next_id - 1}, 5000000000)")

    def optimize(self) -> None:
        self.sql(self.compact)

    def replace_rows(self) -> None:
        self.sql("INSERT OVERWRITE {t} SELECT * FROM {t} WHERE id > 2")

    def steps(self) -> list[Callable[[], None]]:
        """Return every kind of change in any order; columns change late."""
        early = [self.change_key, self.delete, self.merge, self.add_column, self.optimize]
        early.append(self.insert)
        late = [self.widen, self.rename, self.update, self.drop_column, self.replace_rows]
        self.random.shuffle(early)
        self.random.shuffle(late)
        if late.index(self.widen) > late.index(self.drop_column):
            late.remove(self.widen)
        return [*early, *late]

    def _third(self) -> int:
        return self.random.randint(0, 2)


def new_table(spark: SparkSession, kind: str, folder: Path, seed: int) -> tuple[Table, str]:
    """Return a table of a kind, with its relation and how a stream finds it."""
    columns = "(id BIGINT NOT NULL, a STRING, n INT)"
    if kind.startswith("delta"):
        path = f"{folder}/a `table`"
        relation = f"delta.`{path.replace('`', '``')}`"
        properties = VECTORS if kind == "delta-vectors" else MAPPED
        spark.sql(f"CREATE TABLE {relation} {columns} USING delta TBLPROPERTIES ({properties})")
        return Table(spark, relation, seed, compact="OPTIMIZE {t}"), path
    name = f"r{seed}_{kind.replace('-', '_')}"
    properties = {"iceberg-on-read": ON_READ, "iceberg-mixed": MIXED}.get(
        kind, "'format-version'='2'"
    )
    relation = f"ice.replays.`{name}`"
    spark.sql(f"DROP TABLE IF EXISTS {relation} PURGE")
    spark.sql(f"CREATE TABLE {relation} {columns} USING iceberg TBLPROPERTIES ({properties})")
    compact = (
        f"CALL ice.system.rewrite_data_files(table => 'replays.{name}', "
        "options => map('rewrite-all', 'true'))"
    )
    return Table(spark, relation, seed, compact=compact), relation


def stream_of(kind: str, place: str) -> StreamConfig:
    """Return a stream that follows the table."""
    if kind.startswith("delta"):
        return StreamConfig("t", "delta", path=place, replication_method="LOG_BASED")
    return StreamConfig("t", "iceberg", table=place, replication_method="LOG_BASED")


KINDS = ("delta", "delta-vectors", "iceberg", "iceberg-on-read", "iceberg-mixed")
QUICK = ("delta", "iceberg-mixed")


@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=[] if k in QUICK else [pytest.mark.slow]) for k in KINDS],
)
def test_a_copy_follows_every_version(lake_spark: SparkSession, tmp_path: Path, kind: str) -> None:
    table, place = new_table(lake_spark, kind, tmp_path, KINDS.index(kind))
    config = stream_of(kind, place)
    each, late = (LakeStream(lake_spark, config, keys=("id",)) for _ in range(2))
    copy, late_copy = Copy(), Copy()
    table.insert()
    copy.apply(each.read())
    late_copy.apply(late.read())
    steps = table.steps()
    for number, step in enumerate(steps):
        table.greatest = max(copy.rows)
        step()
        records = each.read()
        copy.apply(records)
        rows = table_rows(lake_spark, table.relation)
        assert copy.same_as(rows), (number, step.__name__, records)
        assert step.__name__ != "optimize" or records == []
        if number in (3, len(steps) - 1):  # several versions at once
            late_copy.apply(late.read())
            assert late_copy.same_as(rows), (number, "several")
    assert each.read() == late.read() == []


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_without_a_key_every_old_row_is_deleted_and_every_new_one_inserted(
    lake_spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    table, place = new_table(lake_spark, kind, tmp_path, 90)
    stream, bag = LakeStream(lake_spark, stream_of(kind, place)), Bag()
    table.insert()
    bag.apply(stream.read())
    # The merge deletes rows, too.
    for step in (table.update, table.merge, table.replace_rows):
        step()
    bag.apply(stream.read())
    assert +bag.rows == bag_of(table_rows(lake_spark, table.relation))
    assert min(bag.rows.values()) >= 0
