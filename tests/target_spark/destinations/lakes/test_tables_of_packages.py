"""Tables that `deltalake` and `pyiceberg` have made: loads change nothing but rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from case_matrix import matrix
from lake_loads import Load

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
Make = Callable[..., Load]
METHODS = ("append-only", "upsert", "overwrite")
ROWS = pa.table(
    {"id": pa.array([1], pa.int64()), "v": ["x"], "n": pa.array([1], pa.int64())},
    schema=pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), ("n", pa.int64())]
    ),
)
DELTA: dict[str, dict[str, Any]] = {
    "plain": {"configuration": {"delta.logRetentionDuration": "interval 9 days"}},
    "partitions": {"partition_by": ["v"]},
    "change data": {"configuration": {"delta.enableChangeDataFeed": "true"}},
    "deletion vectors": {"configuration": {"delta.enableDeletionVectors": "true"}},
    "check": {"check": "id > 0"},
}


def loaded(make: Make, form: str, method: str, **more: Any) -> Load:
    keys = () if method == "append-only" else ("id",)
    return make(form, "id long, v string, n long", method=method, keys=keys, **more)


def expected(method: str) -> list[tuple[int, str]]:
    return [*([] if method == "overwrite" else [(1, "x")]), (2, "y")]


@pytest.mark.parametrize(("kind", "method"), matrix([*DELTA], METHODS))
def test_delta(any_load: Make, kind: str, method: str) -> None:
    deltalake = pytest.importorskip("deltalake")
    load, supplied = loaded(any_load, "delta", method), dict(DELTA[kind])
    folder, check = f"{load.config.path}/orders", supplied.pop("check", None)
    deltalake.write_deltalake(folder, ROWS, name="theirs", description="of theirs", **supplied)
    if check is not None:
        deltalake.DeltaTable(folder).alter.add_constraint({"positive": check})

    def rules() -> Any:
        table = deltalake.DeltaTable(folder)
        facts = table.metadata()
        return (
            table.protocol(), table.schema(), facts.configuration, facts.partition_columns,
            facts.name, facts.description, facts.id,
        )  # fmt: skip

    check_load(load, method, rules)


def check_load(load: Load, method: str, rules: Callable[[], Any]) -> None:
    """Load a row; the table has it, and the rules that it had."""
    before = rules()
    load.load([{"id": 2, "v": "y", "n": None}])
    load.end()
    assert load.rows("id", "v") == expected(method)
    assert rules() == before


ICEBERG = ("1", "2", "partitions", "sorted")


@pytest.mark.parametrize(("kind", "method"), matrix([*ICEBERG], METHODS))
def test_iceberg(any_load: Make, tmp_path: Path, kind: str, method: str) -> None:
    load = loaded(any_load, "iceberg", method, in_catalog=True, default_target_schema="shop")
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    table = created(load, sql, kind)
    table.append(ROWS)

    def rules() -> Any:
        facts = load.pyiceberg().metadata
        return (
            facts.format_version, facts.schemas, facts.current_schema_id, facts.partition_specs,
            facts.sort_orders, facts.default_sort_order_id, facts.properties, facts.table_uuid,
            facts.location,
        )  # fmt: skip

    check_load(load, method, rules)


def created(load: Load, sql: Any, kind: str) -> Any:
    """Return a table with an identifier, made by `pyiceberg`."""
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.sorting import SortField, SortOrder
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import LongType, NestedField, StringType

    conf = load.config.spark.conf
    start = f"spark.sql.catalog.{load.config.catalog}"
    uri = conf[f"{start}.uri"].replace("jdbc:sqlite:", "sqlite:///")
    place = {"uri": uri, "warehouse": f"file://{conf[f'{start}.warehouse']}"}
    catalog = sql.SqlCatalog(load.config.catalog, **place)
    catalog.create_namespace_if_not_exists("shop")
    fields = [
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "v", StringType()),
        NestedField(3, "n", LongType()),
    ]
    more: dict[str, Any] = {"properties": {"theirs": "x"}}
    if kind in {"1", "2"}:
        more["properties"]["format-version"] = kind
    if kind == "partitions":
        field = PartitionField(2, 1000, IdentityTransform(), "v")
        more["partition_spec"] = PartitionSpec(field)
    if kind == "sorted":
        more["sort_order"] = SortOrder(SortField(2, transform=IdentityTransform()))
    try:
        return catalog.create_table(
            "shop.orders", Schema(*fields, identifier_field_ids=[1]), **more
        )
    finally:
        catalog.engine.dispose()
