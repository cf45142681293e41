"""Statements, types and places of Iceberg tables, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as T  # noqa: N812

from shared.errors import SettingsError
from shared.spark.conf import SparkSettings
from target_spark.core.load_plans import Layout, TableName, TableRequest
from target_spark.destinations.destination import Tools
from target_spark.destinations.lakes.iceberg.iceberg_format import (
    IcebergFormat,
    _chained,
)
from target_spark.destinations.lakes.iceberg.iceberg_layout import (
    _partitions,
    alterations,
    catalog_conf,
    check_empty,
    creation,
    finishing,
    hive_refusals,
    iceberg_storable,
    iceberg_widens,
    identifiers,
    location_of,
    new_properties,
    order_sql,
    partition_changes,
    partition_steps,
    partitions_sql,
    plain_columns,
    replaced_properties,
    same_partitions,
)
from target_spark.destinations.lakes.iceberg.iceberg_transaction import kept_columns
from target_spark.destinations.lakes.lake_table import LakeTable
from target_spark.operate.lake_histories import _with_ancestors
from target_spark.run_settings import TargetConfig
from target_spark.tables.table_changes import Column, TableChange

LONG, TEXT = T.LongType(), T.StringType()
STRUCT = T.StructType([T.StructField(n, LONG) for n in ("id", "a.b", "bucket(2, id)", "at")])


def request(**changes: Any) -> TableRequest:
    layout = {k: changes.pop(k) for k in tuple(changes) if k in Layout.__dataclass_fields__}
    values = {"stream": "s", "struct": STRUCT, "name": TableName("s"), **changes}
    return TableRequest(layout=Layout(**layout), **values)


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ("id", "`id`"),
        ("days(at)", "days(`at`)"),
        ("HOUR( at )", "hours(`at`)"),
        ("bucket(16, id)", "bucket(16, `id`)"),
        ("truncate(4,a.b)", "truncate(4, `a_b`)"),
        ("bucket(2, id)", "`bucket(2, id)`"),
        ("year(`at`)", "years(`at`)"),
    ],
)
def test_partitions_are_columns_or_transforms(asked: str, wanted: str) -> None:
    assert partitions_sql(request(partition_by=(asked,)), {"a.b": "a_b"}) == (wanted,)


@pytest.mark.parametrize("asked", ["nothing", "days(nothing)", "bucket(id)", "weeks(at)", "x("])
def test_partitions_that_cannot_be(asked: str) -> None:
    with pytest.raises(SettingsError, match="stream 's'"):
        partitions_sql(request(partition_by=(asked,)), {})


def test_sort_order_is_of_the_tables_names() -> None:
    assert order_sql(request(cluster_by=("a.b", "id")), {"a.b": "a_b"}) == "`a_b`, `id`"
    assert order_sql(request(), {}) == ""
    with pytest.raises(SettingsError, match=r"cluster_by.*'x'"):
        order_sql(request(cluster_by=("x",)), {})


@pytest.mark.parametrize(
    ("shown", "wanted", "actions"),
    [
        ((), ("`id`",), ["ADD PARTITION FIELD `id`"]),
        (("id", "days(at)"), ("days(`at`)",), ["DROP PARTITION FIELD `id`"]),
        (("days(at)",), ("hours(`at`)",), ["REPLACE PARTITION FIELD days(`at`) WITH hours(`at`)"]),
        (
            ("id", "bucket(4, `a b`)"),
            ("bucket(8, `a b`)", "truncate(4, `c`)"),
            [
                "REPLACE PARTITION FIELD bucket(4, `a b`) WITH bucket(8, `a b`)",
                "ADD PARTITION FIELD truncate(4, `c`)",
                "DROP PARTITION FIELD `id`",
            ],
        ),
        (("s.a",), ("`bucket(2, id)`",),
         ["ADD PARTITION FIELD `bucket(2, id)`", "DROP PARTITION FIELD `s`.`a`"]),
        (("`bucket(2, id)`", "ID"), ("`id`", "`bucket(2, id)`"), []),
        (("`a``b`",), ("`a``b`",), []),
        (("ab",), ("`a b`",), ["ADD PARTITION FIELD `a b`", "DROP PARTITION FIELD `ab`"]),
    ],
)  # fmt: skip
def test_partitions_become_the_requested_ones(
    shown: tuple[str, ...], wanted: tuple[str, ...], actions: list[str]
) -> None:
    assert list(partition_changes(partition_steps(shown, wanted))) == actions
    assert partition_steps(wanted, wanted) == ()


def test_partitions_as_spark_shows_them() -> None:
    assert plain_columns(("days(at)", "`a b`", "id"), ["id", "at", "a b"]) == ("id", "a b")
    assert same_partitions(("truncate(3, `a b`)", "id"), ("truncate(3, `a b`)", "`id`"))
    assert not same_partitions((), ("`id`",))
    plain = [("id", "int"), ("# Partition Information", ""), ("# col_name", "data_type"),
             ("`a b`", "date"), ("id", "int"), ("", ""), ("# Metadata Columns", "")]  # fmt: skip
    assert list(_partitions(plain)) == ["`a b`", "id"]
    more = [("at", "date"), ("", ""), ("# Partitioning", ""), ("Part 0", "days(at)"),
            ("Part 1", "id"), ("", ""), ("Part 2", "no")]  # fmt: skip
    assert list(_partitions(more)) == ["days(at)", "id"]
    assert list(_partitions([("id", "int")])) == []


@pytest.mark.parametrize(
    ("old", "new", "can"),
    [
        (T.IntegerType(), LONG, True),
        (T.ShortType(), T.IntegerType(), True),
        (T.FloatType(), T.DoubleType(), True),
        (T.DecimalType(5, 2), T.DecimalType(10, 2), True),
        (T.DecimalType(5, 2), T.DecimalType(10, 4), False),
        (T.IntegerType(), T.DoubleType(), False),
        (LONG, T.DecimalType(20, 0), False),
        (T.DateType(), T.TimestampNTZType(), False),
        (LONG, TEXT, False),
    ],
)
def test_what_widens_in_place(old: T.DataType, new: T.DataType, can: bool) -> None:
    assert iceberg_widens(old, new) is can


def test_types_that_iceberg_has_stay_and_others_are_text() -> None:
    dtypes = {
        "byte": (T.ByteType(), T.IntegerType()),
        "time": (T.TimeType(), TEXT),
        "interval": (T.DayTimeIntervalType(), TEXT),
        "char": (T.CharType(3), TEXT),
        "void": (T.NullType(), TEXT),
        "variant": (T.VariantType(), T.VariantType()),
        "ntz": (T.TimestampNTZType(), T.TimestampNTZType()),
        "inside": (
            T.ArrayType(T.MapType(TEXT, T.StructType([T.StructField("v", T.VariantType())]))),
            T.ArrayType(T.MapType(TEXT, T.StructType([T.StructField("v", TEXT)]))),
        ),
    }
    actual = iceberg_storable(T.StructType([T.StructField(n, d[0]) for n, d in dtypes.items()]))
    assert {f.name: f.dataType for f in actual} == {n: d[1] for n, d in dtypes.items()}


def test_a_table_is_made_by_one_statement() -> None:
    change = TableChange(
        create=(
            Column("id", "id", LONG, nullable=False, comment="it's"),
            Column("a_b", "a.b", T.VariantType()),
        ),
        mapping={"a.b": "a_b"},
    )
    asked = request(
        partition_by=("bucket(2, a.b)",), target_file_bytes=9, properties={"k": "v$"},
        schema={"description": "All"},
    )  # fmt: skip
    assert creation("`c`.`t`", change, asked) == (
        "CREATE TABLE IF NOT EXISTS `c`.`t` (`id` bigint NOT NULL COMMENT 'it\\'s', `a_b` variant) "
        "USING iceberg PARTITIONED BY (bucket(2, `a_b`)) COMMENT 'All' TBLPROPERTIES "
        "('target_spark.column_names' = '{\"a.b\": \"a_b\"}', "
        "'write.target-file-size-bytes' = '9', 'format-version' = '3', 'k' = 'v\\u0024')"
    )


def described(**nullable: bool) -> LakeTable:
    fields = [T.StructField(name, LONG, can) for name, can in nullable.items()]
    return LakeTable(T.StructType(fields))


def test_keys_identify_where_they_are_required() -> None:
    asked = request(keys=("id", "a.b"), cluster_by=("at",))
    change = TableChange(mapping={"a.b": "x"})
    actual = described(id=False, x=False, at=True)
    assert list(finishing(actual, change, asked)) == [
        "SET IDENTIFIER FIELDS `id`, `x`",
        "WRITE ORDERED BY `at`",
    ]
    assert list(finishing(described(id=True, x=False, at=True), change, asked)) == [
        "WRITE ORDERED BY `at`"
    ]
    properties = {"identifier-fields": "[id,x]", "sort-order": "at ASC"}
    done = LakeTable(actual.struct, properties=properties)
    assert list(finishing(done, change, asked)) == []
    parted = request(cluster_by=("at",), partition_by=("id",))
    assert list(finishing(actual, change, parted)) == ["WRITE LOCALLY ORDERED BY `at`"]


def test_all_keys_identify_or_none_does() -> None:
    actual = described(id=False, x=False, at=True).struct
    assert identifiers(actual, {"a.b": "x"}, request(keys=("a.b", "id"))) == ["x", "id"]
    assert identifiers(actual, {}, request(keys=("id", "at"))) == []
    assert identifiers(actual, {}, request(keys=("id", "a.b"))) == []
    assert identifiers(actual, {}, request()) == []


def test_columns_are_kept_where_name_and_type_are_there() -> None:
    now = described(id=False, x=True, gone=True)
    change = TableChange(
        create=(
            Column("id", "id", LONG, nullable=True),
            Column("x", "x", TEXT, nullable=False, comment="c"),
            Column("X", "y", LONG),
        )
    )
    assert kept_columns(now, change) == {"id"}


def test_a_replaced_table_is_given_the_properties_that_it_lacks() -> None:
    change = TableChange(create=(Column("v", "v", T.VariantType()),), mapping={"a.b": "a_b"})
    asked = request(cluster_by=("id",), properties={"k": "v"}, schema={"title": "All"})
    names = {"target_spark.column_names": '{"a.b": "a_b"}'}
    new = {**names, "format-version": "3", "k": "v", "comment": "All"}
    assert replaced_properties(change, asked, {"format-version": "2"}) == {
        **new, "write.distribution-mode": "range",
    }  # fmt: skip
    now = {**new, "write.distribution-mode": "range"}
    assert replaced_properties(change, asked, now) == {}
    parted = request(cluster_by=("id",), partition_by=("at",))
    assert replaced_properties(TableChange(), parted, {"format-version": "3"}) == {
        "write.distribution-mode": "none"
    }
    old = {"target_spark.column_names": '{"x": "y"}'}
    assert replaced_properties(TableChange(), request(), old) == {"target_spark.column_names": "{}"}


def test_a_change_is_made_statement_by_statement() -> None:
    change = TableChange(
        add=(Column("new", "new", LONG, nullable=False), Column("v", "v", T.VariantType())),
        add_nested=((("s", "element", "x y"), TEXT),),
        widen=((("s", "n"), T.IntegerType(), LONG),),
        nullable=("id", "other"),
        mapping={"a.b": "a_b"},
    )
    assert list(alterations(change, {"identifier-fields": "[id,k]"})) == [
        "ADD COLUMNS (`new` bigint, `v` variant, `s`.`element`.`x y` string)",
        "ALTER COLUMN `s`.`n` TYPE bigint",
        "DROP IDENTIFIER FIELDS `id`, `k`",
        "ALTER COLUMN `id` DROP NOT NULL",
        "ALTER COLUMN `other` DROP NOT NULL",
    ]
    assert "IDENTIFIER" not in "".join(alterations(change, {"identifier-fields": "[k]"}))
    names = {"target_spark.column_names": '{"a.b": "a_b"}'}
    assert new_properties(change, {"format-version": "2"}) == {**names, "format-version": "3"}
    assert new_properties(change, {"format-version": "3"}) == names


def test_a_path_is_a_hadoop_catalog_of_our_own(tmp_path: Path) -> None:
    conf = catalog_conf(TargetConfig(path=f"{tmp_path}/x/../lake/", format="iceberg"))
    name = "spark.sql.catalog.singer_iceberg"
    assert conf[f"{name}.type"] == "hadoop"
    assert conf[f"{name}.warehouse"] == f"{tmp_path}/lake"
    assert conf[f"{name}.cache-enabled"] == "false"
    place = location_of(f"{tmp_path}/lake", None, TableName("a/b`c", "_s"))
    assert place.table == "`singer_iceberg`.`%5Fs`.`a%2Fb``c`"
    assert place.folder == f"{tmp_path}/lake/%5Fs/a%2Fb`c"
    assert location_of("s3://b/x", None, TableName("t")).folder == "s3://b/x/t"


def test_a_folder_of_other_files_becomes_no_table(tmp_path: Path) -> None:
    check_empty(None)
    check_empty(str(tmp_path / "new"))
    (tmp_path / ".hidden").write_text("")
    check_empty(str(tmp_path))
    (tmp_path / "rows.parquet").write_text("")
    with pytest.raises(SettingsError, match=r"not an Iceberg table.*rows\.parquet"):
        check_empty(str(tmp_path))
    (tmp_path / "metadata").mkdir()
    check_empty(str(tmp_path))


def test_a_catalog_keeps_what_the_user_says_of_it() -> None:
    supplied = {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lakes.type": "hive",
        "spark.driver.memory": "1g",
    }
    spark = SparkSettings(app_name="t", conf=supplied)
    conf = catalog_conf(TargetConfig(catalog="lake", format="iceberg", spark=spark))
    assert conf == {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.cache-enabled": "false",
        "spark.sql.catalog.lake.use-nullable-query-schema": "false",
    }
    place = location_of("", "lake", TableName("Orders 2024", None))
    assert (place.table, place.folder) == ("`lake`.`default`.`Orders_2024`", None)
    assert place.shown == "lake.default.Orders_2024"


def test_marks_follow_the_parents_of_snapshots() -> None:
    rows = {
        3: (2, "append", "c"), 2: (1, "delete", None), 9: (2, "append", "x"),
        1: (None, "append", "a"),
    }  # fmt: skip
    assert [text for _, text in _chained(rows, "3")] == ["c", None, "a"]
    assert [text for _, text in _chained({2: rows[2], 3: rows[3]}, "3")] == ["c", None]
    assert list(_chained(rows, None)) == []


def test_snapshots_of_a_branch_became_the_table_together() -> None:
    snapshots = {n: (n - 1 or None, "append", None) for n in (1, 2, 3, 4)}
    log = [(10, 1), (20, 4), (30, 1), (40, 9)]
    actual = list(_with_ancestors(log, snapshots))
    assert actual == [(10, 1), (20, 2), (20, 3), (20, 4), (30, 1)]


@pytest.mark.parametrize(
    "text",
    [
        "org.apache.iceberg.exceptions.CommitFailedException: Version 3 already exists",
        "org.apache.iceberg.exceptions.ValidationException: Found conflicting files that can",
        "org.apache.iceberg.exceptions.ValidationException: Found new conflicting delete files",
        "[INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_FIND_DATA] Cannot write incompatible data",
        "org.apache.iceberg.exceptions.CommitStateUnknownException: timeout",
        "[SQLITE_BUSY] The database file is locked",
    ],
)
def test_what_is_worth_another_attempt(text: str) -> None:
    assert IcebergFormat.conflicts.search(text)


def test_what_is_not_worth_another_attempt() -> None:
    for text in ("NOT_NULL_ASSERT_VIOLATION", "ValidationException: Invalid schema", "No space"):
        assert not IcebergFormat.conflicts.search(text)


def test_object_storage_by_path_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    from target_spark.destinations.lakes.iceberg.iceberg_format import iceberg_destination

    def spark(*_: object) -> Any:
        raise AssertionError

    tools = Tools(spark, spark)
    iceberg_destination(TargetConfig(path="s3://bucket/x", format="iceberg"), tools)
    assert "one program at a time" in caplog.text
    caplog.clear()
    iceberg_destination(TargetConfig(path="/tmp/x", format="iceberg"), tools)
    iceberg_destination(TargetConfig(catalog="lake", format="iceberg"), tools)
    assert caplog.text == ""


def test_what_hives_metastore_never_takes_is_no_lost_commit() -> None:
    text = "CommitStateUnknownException: The following columns have types incompatible with the "
    with pytest.raises(SettingsError, match=r"hive\.metastore\.disallow"), hive_refusals():
        raise RuntimeError(f"{text}existing columns in their respective positions : a,b")
    with pytest.raises(RuntimeError, match="other"), hive_refusals():
        raise RuntimeError("other")
