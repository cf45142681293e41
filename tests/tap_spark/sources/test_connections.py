"""Tables of connections: patterns, catalog entries, and their plans."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from shared.errors import SourceError
from tap_spark.config import TapConfig
from tap_spark.plan.catalog import SOURCE, metadata_of, table_entry
from tap_spark.plan.replication import plan_streams
from tap_spark.sources.tables import DiscoveredTable, is_wanted, stream_name
from tap_spark.state.stream_plans import Method, Resume, StreamPlan
from tap_spark.stream_config import ConnectionConfig, StreamConfig

SHOP = ConnectionConfig(name="shop", url="jdbc:postgresql://h/d", password="hush")
STRUCT = StructType(
    [
        StructField("id", LongType(), False),
        StructField("name", StringType()),
        StructField("at", TimestampType()),
    ]
)
ORDERS = DiscoveredTable(
    StreamConfig(
        name="public-orders",
        format="jdbc",
        table="public.orders",
        connection="shop",
        database=SHOP,
        key_properties=("id",),
    ),
    STRUCT,
    "public",
    "orders",
    row_count=12,
    replication_keys=("id", "at"),
    sql_types={"id": "bigint", "at": "timestamptz"},
)


def plans(entry: dict[str, Any], **settings: Any) -> tuple[StreamPlan, ...]:
    config = TapConfig(connections=(SHOP,), **settings)
    return plan_streams(config, {"streams": [entry]}, None, 5)


def root(entry: dict[str, Any]) -> dict[str, Any]:
    actual: dict[str, Any] = entry["metadata"][0]["metadata"]
    return actual


@pytest.mark.parametrize(
    ("include", "exclude", "schema", "table", "wanted"),
    [
        (("*",), (), "public", "t", True),
        (("public.*",), (), "public", "t", True),
        (("public.*",), (), "other", "t", False),
        (("*",), ("*.tmp_*",), "public", "tmp_1", False),
        (("a.x", "a.y"), (), "a", "y", True),
        (("A.*",), (), "a", "y", False),
        (("t*",), (), None, "t1", True),
    ],
)
def test_patterns(
    include: tuple[str, ...], exclude: tuple[str, ...], schema: str | None, table: str, wanted: bool
) -> None:
    config = ConnectionConfig(name="c", url="jdbc:x", include=include, exclude=exclude)
    assert is_wanted(config, schema, table) is wanted


def test_stream_names() -> None:
    assert stream_name(SHOP, ["public", "t"]) == "public-t"
    assert stream_name(ConnectionConfig(name="c", stream_prefix="eu_"), ["t"]) == "eu_t"


def test_an_entry_describes_the_table() -> None:
    entry = table_entry(ORDERS)
    actual = root(entry)
    assert entry["table_name"] == "orders"
    assert actual["schema-name"] == "public"
    assert actual["table-name"] == "orders"
    assert actual["is-view"] is False
    assert actual["row-count"] == 12
    assert actual["valid-replication-keys"] == ["id", "at"]
    assert actual["table-key-properties"] == ["id"]
    columns = metadata_of(entry)
    assert columns["properties", "id"]["sql-datatype"] == "bigint"
    assert "sql-datatype" not in columns["properties", "name"]
    assert "hush" not in str(entry)


def test_the_entry_leads_back_to_the_table() -> None:
    (plan,) = plans(table_entry(ORDERS))
    assert plan.config == StreamConfig(
        name="public-orders",
        format="jdbc",
        table="public.orders",
        connection="shop",
        database=SHOP,
    )
    assert plan.key_properties == ("id",)
    assert plan.method is Method.FULL_TABLE


def test_the_catalog_chooses_the_replication_key() -> None:
    entry = table_entry(ORDERS)
    root(entry)["replication-method"] = "INCREMENTAL"
    root(entry)["replication-key"] = "at"
    (plan,) = plans(entry, start_date="2026-01-01")
    assert plan.resume is Resume.REPLICATION_KEY
    assert plan.start_value == "2026-01-01T00:00:00.000000+00:00"


def test_settings_of_the_same_name_win() -> None:
    own = StreamConfig(name="public-orders", format="rows", own={"row_count": 1, "column_count": 2})
    (plan,) = plans(table_entry(ORDERS), streams=(own,))
    assert plan.config is own


def test_an_unknown_connection() -> None:
    with pytest.raises(SourceError, match="the connection 'shop', which is not in the settings"):
        plan_streams(TapConfig(), {"streams": [table_entry(ORDERS)]}, None, 5)


@pytest.mark.parametrize(
    "damage", [{"connection": "shop"}, {"connection": "shop", "format": "jdbc", "table": 5}]
)
def test_a_damaged_entry(damage: dict[str, Any]) -> None:
    entry = table_entry(ORDERS)
    root(entry)[SOURCE] = damage
    with pytest.raises(SourceError, match="is invalid"):
        plans(entry)


def test_log_based_adds_the_time_of_deletion() -> None:
    entry = table_entry(
        DiscoveredTable(
            StreamConfig(
                name="t", format="delta", path="/lake/t", connection="shop", key_properties=("id",)
            ),
            STRUCT,
            None,
            "t",
        )
    )
    root(entry)["replication-method"] = "LOG_BASED"
    (plan,) = plans(entry)
    assert plan.resume is Resume.LOG_POSITION
    assert plan.columns == ("id", "name", "at")
    assert list(plan.schema["properties"]) == ["id", "name", "at", "_sdc_deleted_at"]


def test_formats_without_a_log() -> None:
    entry = table_entry(ORDERS)
    root(entry)["replication-method"] = "LOG_BASED"
    with pytest.raises(SourceError, match="format 'jdbc' has no log to replicate from"):
        plans(entry)
