"""What Delta tables can be given in place, without Spark."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T  # noqa: N812

from target_spark.core.load_plans import Layout, TableName, TableRequest
from target_spark.destinations.lakes.delta.delta_log import additions
from target_spark.destinations.lakes.lake_table import LakeTable
from target_spark.tables.table_changes import Column, TableChange

LONG, TEXT = T.LongType(), T.StringType()


def table(*partitions: str, **required: bool) -> LakeTable:
    fields = [T.StructField(name, LONG, not must) for name, must in required.items()]
    return LakeTable(T.StructType(fields), partitions=partitions)


def request(*partitions: str) -> TableRequest:
    struct = T.StructType([T.StructField("id", LONG)])
    layout = Layout(partition_by=partitions)
    return TableRequest(stream="s", struct=struct, name=TableName("s"), layout=layout)


ID, OTHER = Column("id", "id", LONG, nullable=False), Column("x", "X", LONG, nullable=False)


def test_missing_columns_are_added_and_not_null_stays() -> None:
    change = TableChange(create=(OTHER, ID), mapping={"X": "x"})
    actual = additions(table(id=True), change, request())
    assert actual == TableChange(add=(OTHER,), mapping={"X": "x"})
    optional = Column("x", "X", LONG)
    actual = additions(table(id=True, x=True), TableChange(create=(ID, optional)), request())
    assert actual == TableChange(nullable=("x",))


@pytest.mark.parametrize(
    ("now", "create", "asked"),
    [
        (None, (ID,), request()),
        (table(id=True), None, request()),
        (table(id=False), (ID, OTHER), request()),  # nothing to keep
        (table(id=True), (Column("id", "id", LONG),), request()),
        (table(id=True, gone=False), (ID, OTHER), request()),
        (table(id=True, x=False), (ID, Column("x", "X", TEXT)), request()),
        (table(id=True), (ID, OTHER), request("id")),
        (table("id", id=True), (ID, OTHER), request()),
    ],
)
def test_other_tables_are_replaced_whole(
    now: LakeTable | None, create: tuple[Column, ...] | None, asked: TableRequest
) -> None:
    assert additions(now, TableChange(create=create), asked) is None
