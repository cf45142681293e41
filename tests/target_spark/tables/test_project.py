"""Rows laid out as a table's columns, by Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from table_plans import applied, plan, request

from shared.formats.arrow_types import as_nullable
from shared.formats.record_text import record_json
from target_spark.tables.row_layout import project, value_text
from target_spark.tables.table_changes import NameRules, Projected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TEXTS = {
    "42": "42",
    "true": "true",
    "1.5D": "1.5",
    "double('NaN')": "NaN",
    "1.50BD": "1.50",
    "cast('0.0000000001' AS DECIMAL(20,10))": "0.0000000001",
    "DATE '2024-02-03'": "2024-02-03",
    "TIMESTAMP '2024-02-03 04:05:06.7+00:00'": "2024-02-03T04:05:06.700000+00:00",
    "TIMESTAMP_NTZ '2024-02-03 04:05:06'": "2024-02-03T04:05:06.000000",
    "TIME '04:05:06'": "04:05:06",
    "INTERVAL '1 02:03:04' DAY TO SECOND": "P1DT2H3M4.000000S",
    "X'0102'": "AQI=",
    "'say \"x\"'": 'say "x"',
    "named_struct('a', 'x', 'd', DATE '2024-02-03')": '{"a":"x","d":"2024-02-03"}',
    "array(1, null)": "[1,null]",
    "map('k', 1.5D)": '{"k":1.5}',
    "parse_json('{\"a\": [1]}')": '{"a":[1]}',
    "CAST(null AS STRUCT<a: INT>)": None,
    "CAST(null AS DATE)": None,
}


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [json.loads(line[0]) for line in frame.select(record_json(frame.schema)).collect()]


def test_values_as_text(spark: SparkSession) -> None:
    frame = spark.sql("SELECT " + ", ".join(f"{sql} AS c{n}" for n, sql in enumerate(TEXTS)))
    texts = [value_text(F.col(f.name), f.dataType).alias(f.name) for f in frame.schema]
    created = frame.select(*texts).first()
    assert created is not None
    assert dict(zip(TEXTS, created, strict=True)) == TEXTS


def test_columns_are_found_by_name_at_any_depth(spark: SparkSession) -> None:
    frame = spark.sql(
        """SELECT named_struct('b.c', 1, 'gone', 2) AS `s x`, 7 AS id,
           array(named_struct('f g', 1, 'd', DATE '2024-02-03'), null) AS l,
           map('k', named_struct('v', 1)) AS m, CAST(null AS STRUCT<b: INT>) AS n"""
    )
    table = applied(
        None,
        plan(
            None,
            request(
                T.StructType.fromDDL(
                    "m MAP<STRING, STRUCT<new: STRING, v: BIGINT>>, n STRUCT<b: BIGINT>, "
                    "l ARRAY<STRUCT<d: TIMESTAMP_NTZ, f_g: BIGINT>>, s_x STRUCT<gone: INT, x: INT>"
                )
            ),
        ),
    )
    change = plan(table, request(frame.schema), rules=NameRules(forbidden=" ."))
    created = project(frame, change.projection)
    assert as_nullable(created.schema) == as_nullable(applied(table, change))
    assert rows(created) == [
        {
            "m": {"k": {"new": None, "v": 1}},
            "n": None,
            "l": [{"d": "2024-02-03T00:00:00.000000", "f_g": 1}, None],
            "s_x": {"gone": 2, "x": None, "b_c": 1},
            "id": 7,
        }
    ]


def test_null_text_and_own_columns(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1 AS id, named_struct('a', 1) AS x, 5 AS extra")
    table = T.StructType.fromDDL("x STRING, old ARRAY<INT>, id BIGINT")
    change = plan(table, request(frame.select("id", "x").schema), "cast")
    created = project(frame, change.projection)
    assert created.schema.names == ["x", "old", "id"]
    assert rows(created) == [{"x": '{"a":1}', "old": None, "id": 1}]


def test_a_whole_table_is_turned_into_text(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1 AS id, DATE '2024-02-03' AS x")
    [(name, dtype)] = plan(frame.schema, request("id INT, x STRING"), "cast").rewrite
    item = Projected(name, name, dtype, "text")
    assert rows(project(frame, [item])) == [{"x": "2024-02-03"}]


def test_variants_that_parts_hold_as_text_become_variants(spark: SparkSession) -> None:
    frame = spark.sql("SELECT '{\"a\": 1}' AS v, array('2', null) AS l")
    items = [
        Projected("v", "v", T.VariantType()),
        Projected("l", "l", T.ArrayType(T.VariantType())),
    ]
    created = project(frame, items)
    assert created.schema["v"].dataType == T.VariantType()
    assert rows(created) == [{"v": {"a": 1}, "l": [2, None]}]


def test_void_columns_take_any_type(spark: SparkSession) -> None:
    frame = spark.sql("SELECT null AS x, 1 AS id")
    created = project(frame, [Projected("x", "x", T.StructType.fromDDL("a INT"), "cast")])
    assert created.schema["x"].dataType == T.StructType.fromDDL("a INT")
    assert rows(created) == [{"x": None}]


def test_odd_names_and_missing_columns(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1 AS `a``b.c`")
    items = [Projected("d`e.f", "a`b.c", T.LongType(), "cast"), Projected("g", "no", T.DateType())]
    assert rows(project(frame, items)) == [{"d`e.f": 1, "g": None}]


EXACT = {
    ("INT", "5L"): 5,
    ("INT", "3000000000L"): None,
    ("INT", "1.0D"): 1,
    ("INT", "1.5D"): None,
    ("INT", "'12'"): 12,
    ("INT", "'012'"): None,
    ("INT", "'x'"): None,
    ("INT", "true"): None,
    ("FLOAT", "0.5D"): 0.5,
    ("FLOAT", "0.1D"): None,
    ("DECIMAL(3,1)", "1.5D"): 1.5,
    ("DATE", "'2024-02-03'"): "2024-02-03",
    ("DATE", "TIMESTAMP_NTZ '2024-02-03 00:00:00'"): "2024-02-03",
    ("DATE", "TIMESTAMP_NTZ '2024-02-03 00:00:01'"): None,
    ("STRING", "7L"): "7",
    ("STRING", "array(1)"): None,
    ("BOOLEAN", "'true'"): True,
    ("BINARY", "'true'"): None,
    ("STRUCT<x: INT>", "named_struct('x', 5000000000L, 'y', 1)"): {"x": None},
    ("ARRAY<INT>", "array(1L, 5000000000L)"): [1, None],
    ("ARRAY<INT>", "1"): None,
}


def test_values_that_a_type_does_not_hold_exactly_are_null(spark: SparkSession) -> None:
    frame = spark.sql("SELECT " + ", ".join(f"{sql} AS c{n}" for n, (_, sql) in enumerate(EXACT)))
    items = [
        Projected(f"c{n}", f"c{n}", T._parse_datatype_string(kind), "exact")
        for n, (kind, _) in enumerate(EXACT)
    ]
    [actual] = rows(project(frame, items))
    assert dict(zip(EXACT, actual.values(), strict=True)) == EXACT
