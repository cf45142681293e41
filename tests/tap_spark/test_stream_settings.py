"""What patterns change in the settings of a stream."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from shared.errors import MessageError, SettingsError
from target_spark.config import (
    stream_settings,
    table_request,
    target_config,
)
from target_spark.core.load_plans import Layout, SchemaContract, StreamSchema, TableName
from target_spark.run_settings import TargetConfig

STRUCT = StructType([StructField("id", LongType()), StructField("name", StringType())])


def config(**settings: Any) -> TargetConfig:
    return target_config({"path": "out", "format": "delta", **settings})


def test_without_patterns_the_general_settings_count() -> None:
    actual = config(load_method="overwrite", hard_delete=True)
    own = stream_settings(actual, "s")
    assert (own.method, own.hard_delete) == ("overwrite", True)


def test_the_last_pattern_that_gives_a_setting_wins() -> None:
    actual = config(
        streams={
            "*": {"load_method": "upsert", "hard_delete": True},
            "log_*": {"load_method": "append-only"},
            "log_a": {"compact": True},
        }
    )
    assert [stream_settings(actual, name).method for name in ("a", "log_a", "Log_b")] == [
        "upsert",
        "append-only",
        "upsert",
    ]
    assert stream_settings(actual, "log_a").hard_delete


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
    actual = config(default_target_schema="raw", table_prefix="p_", streams={"*": rule})
    assert stream_settings(actual, stream).name == expected


def test_a_request() -> None:
    actual = config(
        partition_by=["name"],
        table_properties={"a": 1},
        streams={"s": {"load_method": "upsert", "target_file_bytes": 10.0, "cluster_by": ["id"]}},
    )
    schema = StreamSchema("s", {"properties": {}}, ("id", "gone"), 2)
    with pytest.raises(MessageError, match="the key property 'gone' is not a property"):
        table_request(actual, schema, STRUCT)
    request = table_request(actual, StreamSchema("s", {}, ("id",)), STRUCT)
    assert (request.keys, request.method, request.struct) == (("id",), "upsert", STRUCT)
    assert request.layout == Layout(("name",), ("id",), 10, {"a": "1"}, False)
    assert isinstance(request.layout.target_file_bytes, int)


def test_keys_of_the_settings_replace_those_of_the_schema() -> None:
    actual = config(load_method="upsert", streams={"s": {"key_properties": ["name"]}})
    assert table_request(actual, StreamSchema("s", {}, ("id",)), STRUCT).keys == ("name",)


def test_upsert_needs_a_key_and_other_methods_do_not() -> None:
    with pytest.raises(MessageError, match=r"stream 's'.*needs key properties.*set `streams"):
        table_request(config(load_method="upsert"), StreamSchema("s", {}), STRUCT)
    assert table_request(config(), StreamSchema("s", {}, ("gone",)), STRUCT).keys == ()


@pytest.mark.parametrize(
    ("supplied", "expected"), [("id", ("id",)), (["name", "id"], ("name", "id")), ([], ())]
)
def test_the_order_of_rows_is_that_of_upserts(supplied: Any, expected: tuple[str, ...]) -> None:
    actual = config(upsert_order_by=supplied, streams={"u": {"load_method": "upsert"}})
    assert table_request(actual, StreamSchema("u", {}, ("id",)), STRUCT).order_by == expected
    assert table_request(actual, StreamSchema("a", {}, ("id",)), STRUCT).order_by == ()


def test_a_column_without_order_is_refused() -> None:
    struct = StructType([*STRUCT, StructField("tags", ArrayType(StringType()))])
    actual = config(load_method="upsert", streams={"s": {"upsert_order_by": "at"}})
    with pytest.raises(SettingsError, match=r"'s'.*'upsert_order_by': 'at' is not a column of the"):
        table_request(actual, StreamSchema("s", {}, ("id",)), struct)
    actual = config(load_method="upsert", upsert_order_by=["id", "tags"])
    with pytest.raises(
        SettingsError, match=r"'tags' is not a column with an order \(array<string>"
    ):
        table_request(actual, StreamSchema("s", {}, ("id",)), struct)


def test_a_stream_changes_parts_of_the_contract() -> None:
    actual = config(
        schema_contract={"columns": "freeze", "types": "discard"},
        streams={
            "a*": {"schema_contract": {"types": "freeze"}},
            "ab": {"schema_contract": {"tables": "discard"}, "load_method": "overwrite"},
        },
    )
    assert stream_settings(actual, "x").schema_contract == SchemaContract(
        columns="freeze", types="discard"
    )
    assert stream_settings(actual, "ab").schema_contract == SchemaContract(
        "discard", "freeze", "freeze"
    )
    schema = StreamSchema("a", {}, ("id",))
    assert table_request(actual, schema, STRUCT).contract.types == "freeze"
    whole = table_request(actual, replace(schema, stream="ab"), STRUCT)
    assert whole.contract == SchemaContract(), "a whole table has the columns of its stream"
