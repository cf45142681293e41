"""A catalog as a table for a terminal."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from tap_spark.plan.catalog import build_entry, catalog_lines

STRUCT = StructType(
    [
        StructField("id", LongType()),
        StructField("changed_at", TimestampType()),
        StructField("address", StructType([StructField("city", StringType())])),
    ]
)


def entry(name: str, **supplied: Any) -> dict[str, Any]:
    return build_entry(name, STRUCT, **supplied)


def test_every_column() -> None:
    orders = entry("orders", key_properties=["id"], replication_key="changed_at")
    people = entry("people")
    people["metadata"][0]["metadata"]["selected"] = False
    people["metadata"][1]["metadata"]["selected"] = False
    orders["metadata"][1]["metadata"]["sql-datatype"] = "int8"
    assert list(catalog_lines({"streams": [orders, people]}, {"orders": "~1,200"})) == [
        "stream  rows    columns  key  replication key  method       selected",
        "orders  ~1,200  3        id   changed_at       INCREMENTAL  yes",
        "people  -       2 of 3   -    -                FULL_TABLE   no",
        "",
        "orders      type",
        "id          int8                 key",
        "changed_at  timestamp            replication key",
        "address     struct<city:string>",
    ]


def test_columns_of_many_streams_are_left_out() -> None:
    lines = list(catalog_lines({"streams": [entry(f"s{n}") for n in range(21)]}))
    assert len(lines) == 23
    assert "--select STREAM" in lines[-1]


def test_long_names_are_cut() -> None:
    lines = list(catalog_lines({"streams": [entry("s" * 200, key_properties=["id"])]}))
    assert all(len(line) <= 80 for line in lines)
    assert lines[1].startswith("ssss")
    assert "…  -     3        id" in lines[1]


def test_no_streams() -> None:
    assert len(list(catalog_lines({"streams": []}))) == 1
