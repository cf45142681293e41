"""Tables that other programs have made: protocol, features, rules and nullability stay theirs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from case_matrix import matrix, with_slow
from lake_loads import Load, struct

from shared.errors import SettingsError, SingerSparkError
from target_spark.core.load_plans import SchemaContract
from target_spark.destinations.lakes.iceberg.iceberg_transaction import IcebergTransaction

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
Make = Callable[..., Load]

METHODS = ("append-only", "upsert", "overwrite")
RICH = (
    "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true', "
    "'delta.columnMapping.mode' = 'name', 'theirs' = 'x')"
)
DELTA = {
    "plain": "CREATE TABLE {t} (id BIGINT NOT NULL, v STRING NOT NULL, n INT) USING delta",
    "rich": "CREATE TABLE {t} (id BIGINT NOT NULL, v STRING NOT NULL, n INT) USING delta " + RICH,
}
ICEBERG = {
    "version 1": "CREATE TABLE {t} (id BIGINT NOT NULL, v STRING NOT NULL, n INT) USING iceberg "
    "TBLPROPERTIES ('format-version' = '1', 'theirs' = 'x')",
    "version 2": "CREATE TABLE {t} (id BIGINT NOT NULL, v STRING NOT NULL, n INT) USING iceberg",
}
AFTER = {
    "delta": ["ADD CONSTRAINT positive CHECK (id > 0)"],
    "iceberg": ["SET IDENTIFIER FIELDS id", "WRITE ORDERED BY v"],
}
CHANGING = {"current-snapshot-id", "snapshot-count"}


def snapshot(load: Load) -> Any:
    """Return the rules of a table: properties with protocol and constraints, and its columns."""
    properties = {k: v for k, v in load.properties().items() if k not in CHANGING}
    return properties, load.required(), load.columns(), load.partitions()


def theirs(make: Make, statement: str, after: list[str], **more: Any) -> Load:
    load = make("id long, v string, n int", **more)
    load.sql(statement)
    for action in after:
        load.sql(f"ALTER TABLE {{t}} {action}")
    load.sql("INSERT INTO {t} (id, v, n) VALUES (1, 'x', 1)")
    return load


@pytest.mark.parametrize(("kind", "method"), matrix([*DELTA, *ICEBERG], METHODS))
def test_loads_change_nothing_but_rows(any_load: Make, kind: str, method: str) -> None:
    form = "delta" if kind in DELTA else "iceberg"
    statement = (DELTA | ICEBERG)[kind]
    keys = () if method == "append-only" else ("id",)
    load = theirs(
        lambda ddl, **more: any_load(form, ddl, **more),
        statement, AFTER[form], method=method, keys=keys,
    )  # fmt: skip
    before = snapshot(load)
    load.load([{"id": 2, "v": "y", "n": None}])
    load.end()
    assert load.rows("id", "v") == [*([] if method == "overwrite" else [(1, "x")]), (2, "y")]
    assert snapshot(load) == before
    load.begin()
    with pytest.raises(SingerSparkError):
        load.load([{"id": 3, "v": None, "n": 1}])
        load.end()
    assert snapshot(load) == before


@pytest.mark.parametrize(
    "method", [pytest.param("append-only", marks=pytest.mark.slow), *METHODS[1:]]
)
def test_an_integer_does_not_switch_on_type_widening(delta_load: Make, method: str) -> None:
    deltalake = pytest.importorskip("deltalake")
    keys = ("id",) if method == "upsert" else ()
    load = delta_load("id long", method=method, keys=keys)
    folder = f"{load.config.path}/orders"
    deltalake.write_deltalake(folder, pa.table({"id": pa.array([1], pa.int32())}))
    before = deltalake.DeltaTable(folder)
    with pytest.raises(SingerSparkError) as raised:
        load.load([{"id": 2}])
        load.end()
    assert "schema_contract.rules" in str(raised.value)
    after = deltalake.DeltaTable(folder)
    assert (after.version(), after.protocol()) == (before.version(), before.protocol())
    same = load.other(struct=struct("id int"))
    same.load([{"id": 2}])
    same.end()
    after = deltalake.DeltaTable(folder)
    assert after.protocol() == before.protocol()
    assert after.metadata().configuration == before.metadata().configuration
    assert after.schema() == before.schema()


@pytest.mark.parametrize(
    ("form", "added", "value"),
    [
        ("delta", "at timestamp_ntz", dt.datetime(2024, 1, 1)),
        ("delta", "j variant", '{"a": 1}'),
        ("iceberg", "j variant", '{"a": 1}'),
    ],
)
def test_columns_of_newer_features_need_the_setting(
    any_load: Make, form: str, added: str, value: Any
) -> None:
    load = any_load(form, f"id long, {added}")
    load.sql(f"CREATE TABLE {{t}} (id BIGINT) USING {form}")
    before = snapshot(load)
    row = {"id": 2, added.split(maxsplit=1)[0]: value}
    with pytest.raises(SingerSparkError) as raised:
        load.load([row])
    assert "schema_contract.rules" in str(raised.value)
    assert snapshot(load) == before
    allowed = load.other(contract=SchemaContract(rules="evolve"))
    allowed.load([row])
    assert load.rows("id") == [(2,)]


def test_the_setting_widens_and_drops_not_null(lake: str, lake_load: Make) -> None:
    load = lake_load("id long, v string", contract=SchemaContract(rules="evolve"))
    load.sql(f"CREATE TABLE {{t}} (id INT, v STRING NOT NULL) USING {lake}")
    load.load([{"id": 1 << 40, "v": None}])
    assert load.rows() == [(1 << 40, None)]
    assert load.required() == []


@with_slow("lake", ["delta"], ["iceberg"], indirect=True)
def test_a_column_that_the_table_requires(lake: str, lake_load: Make) -> None:
    load = lake_load("id long")
    load.sql(f"CREATE TABLE {{t}} (id BIGINT, v STRING NOT NULL) USING {lake}")
    with pytest.raises(SingerSparkError, match="no column 'v', which the table requires"):
        load.load([{"id": 1}])
    assert load.required() == ["v"]


@with_slow("lake", ["iceberg"], ["delta"], indirect=True)
def test_a_rewrite_for_other_types_is_refused(lake: str, lake_load: Make) -> None:
    load = lake_load("id long, v string", type_conflicts="cast")
    load.sql(f"CREATE TABLE {{t}} (id BIGINT, v INT) USING {lake}")
    before = snapshot(load)
    with pytest.raises(SingerSparkError) as raised:
        load.load([{"id": 1, "v": "x"}])
    assert "schema_contract.rules" in str(raised.value)
    assert snapshot(load) == before


def test_columns_are_added_and_theirs_stay(lake: str, lake_load: Make) -> None:
    for method in METHODS:
        load = lake_load("id long, more string", method=method, table=method, keys=("id",))
        load.sql(f"CREATE TABLE {{t}} (id BIGINT NOT NULL, v STRING) USING {lake}")
        load.load([{"id": 1, "more": "x"}])
        load.end()
        assert load.rows() == [(1, None, "x")]
        assert load.required() == ["id"]


IDS = [f"{first}fffffff-0000-4000-8000-00000000000a" for first in "07af"]


@pytest.mark.parametrize("method", METHODS)
def test_uuids_and_defaults_of_iceberg(iceberg_load: Make, method: str) -> None:
    """Java alone makes them: UUIDs are in another order in files than as the texts of Spark."""
    load = iceberg_load("id string, v string", method=method, keys=("id",))
    load.sql("CREATE TABLE {t} (v STRING) USING iceberg TBLPROPERTIES ('format-version' = '3')")
    opened = IcebergTransaction(load.reader(), load.name, load.name.split("`")[1])
    types, literal = opened._iceberg.types.Types, opened._iceberg.expressions.Literal.of
    change = opened._table.updateSchema().addColumn("id", types.UUIDType.get())
    change.addColumn("n", types.IntegerType.get(), "", literal(5))
    change.addRequiredColumn("r", types.StringType.get(), "", literal("DE")).commit()
    for value in "ab" if method == "upsert" else "b":
        load.load([{"id": key, "v": value} for key in IDS])
    load.end()
    assert load.rows("id", "v", "n", "r") == [(key, "b", 5, "DE") for key in IDS]


@pytest.mark.parametrize("method", ["upsert", "history"])
def test_a_key_that_delta_pads(delta_load: Make, method: str) -> None:
    load = delta_load("id string, v string", method=method, keys=("id",))
    load.sql("CREATE TABLE {t} (id CHAR(5), v STRING) USING delta")
    with pytest.raises(SettingsError, match="the key 'id' is a column of the type CHAR"):
        load.load([{"id": "a", "v": "b"}])


@with_slow("lake", ["delta"], ["iceberg"], indirect=True)
def test_tables_of_ours_go_on_as_before(lake: str, lake_load: Make) -> None:
    load = lake_load("id int")
    load.load([{"id": 1}])
    later = replace(load, destination=None, struct=struct("id long"))
    later.load([{"id": 1 << 40}])
    assert later.columns() == [("id", "bigint")]
    later.destination._close()
