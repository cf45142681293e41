"""A catalog as a table for a terminal."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from tap_spark.planning.catalog import build_entry
from tap_spark.planning.catalog_table import catalog_lines

STRUCT = StructType(
    [
        StructField("id", LongType()),
        StructField("changed_at", TimestampType()),
        StructField("address", StructType([StructField("city", StringType())])),
    ]
)


def entry(name: str, **given: Any) -> dict[str, Any]:
    return build_entry(name, STRUCT, **given)


def test_every_column() -> None:
    orders = entry("orders", key_properties=["id"], replication_key="changed_at")
    people = entry("people")
    people["metadata"][0]["metadata"]["selected"] = False
    people["metadata"][1]["metadata"]["selected"] = False
    assert list(catalog_lines({"streams": [orders, people]})) == [
        "stream  columns  key  replication key  method       selected",
        "orders  3        id   changed_at       INCREMENTAL  yes",
        "people  2 of 3   -    -                FULL_TABLE   no",
    ]


def test_long_names_are_cut() -> None:
    lines = list(catalog_lines({"streams": [entry("s" * 200, key_properties=["id"])]}))
    assert [len(line) <= 80 for line in lines] == [True, True]
    assert lines[1].startswith("ssss")
    assert "…  3        id" in lines[1]


def test_no_streams() -> None:
    assert len(list(catalog_lines({"streams": []}))) == 1
