"""Rules of tables as SQL over their columns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as T  # noqa: N812

from target_spark.destinations.lakes.delta.delta_log import (
    computed_columns,
    delta_rules,
    may_compute,
)
from target_spark.destinations.lakes.lake_sql import not_null_rules
from target_spark.destinations.lakes.lake_table import DEFAULT, LakeTable, with_column_defaults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT, INT = T.StringType(), T.IntegerType()
POINT = T.StructType([T.StructField("x", INT, nullable=False), T.StructField("y", INT)])


def conditions(dtype: T.DataType, *, nullable: bool = True, inside_null: bool = False) -> list[str]:
    struct = T.StructType([T.StructField("a b", dtype, nullable)])
    return [rule.condition for rule in not_null_rules(struct, inside_null=inside_null)]


def test_conditions_of_columns() -> None:
    assert conditions(TEXT) == []
    assert conditions(TEXT, nullable=False) == ["`a b` IS NOT NULL"]
    assert conditions(POINT) == ["(`a b` IS NULL OR `a b`.`x` IS NOT NULL)"]
    assert conditions(POINT, inside_null=True) == ["`a b`.`x` IS NOT NULL"]


NESTED: list[tuple[T.DataType, str, str]] = [
    (T.ArrayType(TEXT, containsNull=False), "array('x')", "array('x', NULL)"),
    (
        T.ArrayType(T.ArrayType(TEXT, containsNull=False)),
        "array(array('x'), NULL)",
        "array(array('x'), array(CAST(NULL AS STRING)))",
    ),
    (T.MapType(TEXT, INT, valueContainsNull=False), "map('x', 1)", "map('x', CAST(NULL AS INT))"),
    (
        T.ArrayType(POINT),
        "array(named_struct('x', 1, 'y', 1))",
        "array(named_struct('x', CAST(NULL AS INT), 'y', 1))",
    ),
]


@pytest.mark.spark
def test_conditions_inside_of_columns(spark: SparkSession) -> None:
    columns, rules = [], []
    for number, (dtype, good, bad) in enumerate(NESTED):
        (condition,) = conditions(dtype)
        rules.append(condition.replace("`a b`", f"`a {number}`"))
        values = ", ".join((good, bad, "NULL"))
        typed = f"CAST(array({values}) AS {T.ArrayType(dtype).simpleString()})"
        columns.append(f"element_at({typed}, row) AS `a {number}`")
    frame = spark.sql(f"SELECT {', '.join(columns)} FROM VALUES (1), (2), (3) AS t(row)")
    actual = frame.selectExpr(*rules).collect()
    assert [tuple(row) for row in actual] == [
        (holds,) * len(NESTED) for holds in (True, False, True)
    ]


def field(name: str, **metadata: Any) -> T.StructField:
    return T.StructField(name, TEXT, True, metadata)


def test_rules_of_delta() -> None:
    invariant = {"delta.invariants": json.dumps({"expression": {"expression": "v > 'a'"}})}
    length = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}
    day = T.StructField("day", T.DateType())
    struct = T.StructType([field("v", **invariant), field("w", **length), field("x"), day])
    properties = {"delta.constraints.pos": "x > 0", "theirs": "y"}
    table = LakeTable(struct, {}, ("x", "day"), properties)
    actual = [(rule.condition, rule.column, rule.is_unchecked) for rule in delta_rules(table)]
    assert actual == [
        ("(x > 0)", "", False),
        ("(v > 'a')", "", False),
        ("(`w` IS NULL OR length(`w`) <= 3)", "w", False),
        ("(`x` IS NULL OR length(`x`) > 0)", "x", True),
    ]


def test_computed_columns_of_delta() -> None:
    identity = {"delta.identity.start": 1, "delta.identity.allowExplicitInsert": True}
    struct = T.StructType([
        field("a", **{"delta.generationExpression": "id * 2"}),
        field("b", **{**identity, "delta.identity.allowExplicitInsert": False}),
        field("c", **identity),
        field("d", **{DEFAULT: "5"}),
        field("e"),
    ])  # fmt: skip
    assert computed_columns(struct) == {"a", "b"}
    assert [f.name for f in with_column_defaults(struct) if f.metadata.get("default")] == list(
        "abcd"
    )
    assert with_column_defaults(struct)["a"].metadata[DEFAULT] == "id * 2"


@pytest.mark.parametrize(
    ("properties", "may"),
    [
        ({"delta.minWriterVersion": "2"}, False),
        ({"delta.minWriterVersion": "4"}, True),
        ({"delta.minWriterVersion": "7"}, False),
        ({"delta.minWriterVersion": "7", "delta.feature.identityColumns": "supported"}, True),
    ],
)
def test_protocols_that_compute_columns(properties: dict[str, str], may: bool) -> None:
    assert may_compute(properties) is may
