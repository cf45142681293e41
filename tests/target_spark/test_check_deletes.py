"""Tables whose rows can be deleted by KEYS messages."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from shared.errors import SettingsError
from target_spark.config import check_deletes, table_request, target_config
from target_spark.core.load_plans import StreamSchema

GOOD = {"format": "delta", "path": "/t", "load_method": "upsert"}


def check(keys: tuple[str, ...] = ("id",), **settings: Any) -> None:
    check_deletes(target_config({**GOOD, **settings}), StreamSchema("s", {}, keys))


def test_tables_that_follow() -> None:
    check()
    check(format="iceberg")
    check(hard_delete=True)
    check(load_method="append-only", streams={"s": {"load_method": "upsert"}})
    check(upsert_order_by="at", denormalized=False)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"format": "parquet", "load_method": "append-only"}, "'format': .*can be repaired"),
        ({"load_method": "append-only"}, "'load_method': .*need 'upsert'"),
        ({"load_method": "history"}, "'load_method'"),
        ({"load_method": "overwrite"}, "'load_method'"),
        ({"write_audit_publish": True}, "'write_audit_publish'"),
        ({"add_record_metadata": False}, "'add_record_metadata'"),
        ({"streams": {"s": {"key_properties": ["other"]}}}, "'key_properties'"),
        ({"keys": ()}, "'key_properties'"),
    ],
)
def test_tables_that_cannot(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsError, match=f"stream 's', setting {text}") as caught:
        check(**settings)
    assert "remove `deletes` from the stream in the tap" in str(caught.value)


@pytest.mark.parametrize("method", ["upsert", "overwrite", "append-only"])
@pytest.mark.parametrize("place", [{}, {"streams": {"s": {"hard_delete": True}}}])
def test_rows_are_not_removed_without_marks(place: dict[str, Any], method: str) -> None:
    """A record that marks its row as deleted was stored, with nulls."""
    supplied = {**GOOD, "load_method": method, **(place or {"hard_delete": True})}
    schema = StreamSchema("s", {"properties": {"id": {"type": "integer"}}}, ("id",))
    struct = StructType([StructField("id", LongType())])
    assert table_request(target_config(supplied), schema, struct).hard_delete
    config = target_config({**supplied, "add_record_metadata": False})
    if method == "append-only":
        assert table_request(config, schema, struct).hard_delete
        return
    with pytest.raises(SettingsError, match="stream 's', setting 'hard_delete': without record"):
        table_request(config, schema, struct)
