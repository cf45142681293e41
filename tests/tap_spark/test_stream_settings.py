"""What patterns change in the settings of a stream."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from shared.errors import MessageError
from target_spark.config import TargetConfig, target_config
from target_spark.core.load_plans import Layout, StreamSchema, TableName
from target_spark.stream_settings import load_method, stream_settings, table_name, table_request

STRUCT = StructType([StructField("id", LongType()), StructField("name", StringType())])


def config(**settings: Any) -> TargetConfig:
    return target_config({"path": "out", "format": "delta", **settings})


def test_without_patterns_the_general_settings_count() -> None:
    found = config(load_method="overwrite", hard_delete=True)
    assert (load_method(found, "s"), stream_settings(found, "s").hard_delete) == ("overwrite", True)


def test_the_last_pattern_that_gives_a_setting_wins() -> None:
    found = config(
        streams={
            "*": {"load_method": "upsert", "hard_delete": True},
            "log_*": {"load_method": "append-only"},
            "log_a": {"compact": True},
        }
    )
    assert [load_method(found, name) for name in ("a", "log_a", "Log_b")] == [
        "upsert",
        "append-only",
        "upsert",
    ]
    assert stream_settings(found, "log_a").hard_delete


@pytest.mark.parametrize(
    ("stream", "rule", "expected"),
    [
        ("orders", {}, TableName("p_orders", "raw")),
        ("public-orders", {}, TableName("p_public-orders", "raw")),
        ("a-b", {"table": "{table}", "schema": "{schema}_in"}, TableName("p_b", "a_in")),
        ("a-b-c", {"table": "t_{table}", "schema": "{schema}"}, TableName("p_t_c", "a-b")),
        ("{table}-x", {"table": "{stream}"}, TableName("p_{table}-x", "raw")),
        ("x", {"table": "{other}"}, TableName("p_{other}", "raw")),
    ],
)  # fmt: skip
def test_table_names(stream: str, rule: dict[str, Any], expected: TableName) -> None:
    found = config(default_target_schema="raw", table_prefix="p_", streams={"*": rule})
    assert table_name(found, stream) == expected


def test_a_request() -> None:
    found = config(
        partition_by=["name"],
        table_properties={"a": 1},
        streams={"s": {"load_method": "upsert", "target_file_bytes": 10.0, "cluster_by": ["id"]}},
    )
    schema = StreamSchema("s", {"properties": {}}, ("id", "gone"), 2)
    with pytest.raises(MessageError, match="the key property 'gone' is not a property"):
        table_request(found, schema, STRUCT)
    request = table_request(found, StreamSchema("s", {}, ("id",)), STRUCT)
    assert (request.keys, request.method, request.struct) == (("id",), "upsert", STRUCT)
    assert request.layout == Layout(("name",), ("id",), 10, {"a": "1"}, False)
    assert isinstance(request.layout.target_file_bytes, int)


def test_keys_of_the_settings_replace_those_of_the_schema() -> None:
    found = config(load_method="upsert", streams={"s": {"key_properties": ["name"]}})
    assert table_request(found, StreamSchema("s", {}, ("id",)), STRUCT).keys == ("name",)


def test_upsert_needs_a_key_and_other_methods_do_not() -> None:
    with pytest.raises(MessageError, match=r"stream 's'.*needs key properties.*set `streams"):
        table_request(config(load_method="upsert"), StreamSchema("s", {}), STRUCT)
    assert table_request(config(), StreamSchema("s", {}, ("gone",)), STRUCT).keys == ()
