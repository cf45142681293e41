"""Rows of the elements of arrays: which there are, what is in them, and what fails."""

from __future__ import annotations

from typing import Any

import pytest
from map_cases import INTEGER, TEXT, mapped, planned
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from shared.formats.schema_nodes import json_schema_to_spark
from shared.maps.transform import ERROR, PLACE, Transform

pytestmark = pytest.mark.spark

ITEM = {"type": ["object", "null"], "properties": {"id": INTEGER, "sku": TEXT}}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": INTEGER,
        "country": TEXT,
        "items": {"type": ["array", "null"], "items": ITEM},
        "codes": {"type": ["array", "null"], "items": INTEGER},
        "any": {"type": ["array", "null"], "items": {}},
        "payload": {
            "type": ["object", "null"],
            "properties": {
                "no": INTEGER,
                "lines": {"type": ["array", "null"], "items": {"type": "array", "items": TEXT}},
            },
        },
    },
}
RECORDS: list[dict[str, Any]] = [
    {
        "id": 1,
        "country": "DE",
        "items": [{"id": 7, "sku": "a"}, None, {"id": None, "sku": "b"}],
        "codes": [5, None, 6],
        "any": [{"x": 1}, None, "y"],
        "payload": {"no": 3, "lines": [["p", "q"], []]},
    },
    {"id": 2, "country": "FR", "items": [], "codes": [], "payload": {"no": 4, "lines": []}},
    {"id": 3, "country": None, "items": None, "codes": None, "payload": None},
    {"id": 4, "country": "FR", "items": [{"id": 8, "sku": "c"}], "codes": [0]},
]


def output(array: str, **values: Any) -> Any:
    rule = {"__source__": "s", "__explode__": array, **values}
    [actual] = planned({"s": None, "child": rule}, SCHEMA, (), "s")
    return actual


def rows(spark: SparkSession, array: str, **values: Any) -> list[dict[str, Any]]:
    return mapped(spark, output(array, **values), SCHEMA, RECORDS)


def test_null_and_empty_arrays_and_null_elements_have_no_rows(spark: SparkSession) -> None:
    actual = rows(spark, "items", __index__="n", order="__parent__['id']")
    assert actual == [
        {"id": 7, "sku": "a", "n": 0, "order": 1},
        {"id": None, "sku": "b", "n": 2, "order": 1},
        {"id": 8, "sku": "c", "n": 0, "order": 4},
    ]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        ("codes", [{"codes": 5}, {"codes": 6}, {"codes": 0}]),
        ("any", [{"any": '{"x":1}'}, {"any": "y"}]),
        ("payload.lines", [{"lines": ["p", "q"]}, {"lines": []}]),
    ],
)
def test_elements_that_are_no_objects(
    spark: SparkSession, array: str, expected: list[dict[str, Any]]
) -> None:
    assert rows(spark, array) == expected


def test_expressions_know_the_element_and_its_record(spark: SparkSession) -> None:
    actual = rows(
        spark,
        "items",
        __index__="n",
        sku="self.upper() + sku",
        both="f'{__parent__[\"id\"]}-{id}'",
        place="n + 1",
        sql={"sql": "concat(sku, __parent__.country, n)"},
        python="str([sku, __parent__['country'], n])",
        whole="str(__parent__)",
    )
    assert actual[0] | {"whole": None} == {
        "id": 7, "sku": "Aa", "n": 0, "both": "1-7", "place": 1, "sql": "aDE0",
        "python": "['a', 'DE', 0]", "whole": None,
    }  # fmt: skip
    assert "'country': 'DE'" in actual[0]["whole"]
    assert "items" not in actual[0]["whole"]


def test_the_object_around_an_array_stays_readable(spark: SparkSession) -> None:
    actual = rows(
        spark, "payload.lines", no="__parent__['payload']['no']", all="__parent__.payload"
    )
    assert actual[0] == {"lines": ["p", "q"], "no": 3, "all": {"no": 3}}


@pytest.mark.parametrize(
    "condition",
    ["__parent__['country'] == 'DE' and sku == 'b'", "str([__parent__.id, sku]) == \"[1, 'b']\""],
)
def test_filters_see_both(spark: SparkSession, condition: str) -> None:
    assert rows(spark, "items", __filter__=condition) == [{"id": None, "sku": "b"}]


def test_patterns_hide_what_elements_hold(spark: SparkSession) -> None:
    rule = {"__source__": "s", "__explode__": "items"}
    maps = {"s": None, "child": rule, "*": {"items.s*": "self + '!' if self else self"}}
    [actual] = planned(maps, SCHEMA, (), "s")
    assert [row["sku"] for row in mapped(spark, actual, SCHEMA, RECORDS)] == ["a!", "b!", "c!"]


def transform(array: str, **values: Any) -> Transform:
    actual: Transform = output(array, **values).transform
    return actual


def test_an_error_names_the_element(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [(1, None, None, [4, 0], None, None)], json_schema_to_spark(SCHEMA)
    )
    actual = transform("codes", x="12 // codes").apply(frame, keep={"of": "id"}).collect()
    assert (actual[0].of, actual[0].x) == (1, 3)
    errors = [row[ERROR] for row in actual]
    assert errors[0] is None
    assert errors[1].startswith("element 1: property 'x': ZeroDivisionError")


@pytest.mark.parametrize("condition", [None, "codes > 5", "str([codes]) == '[6]'"])
def test_rows_that_pass_by(spark: SparkSession, condition: str | None) -> None:
    """A record without elements, or a row that is no record, is one marked row if asked for."""
    struct = json_schema_to_spark(SCHEMA)
    records = [(1, None, None, [5, None, 6], None, None), (2, None, None, [], None, None)]
    frame = spark.createDataFrame(records, struct)
    mapping = transform("codes", **({"__filter__": condition} if condition else {}))
    marked = mapping.apply(frame, keep={"of": "id"}, mark="out").collect()
    kept = [(row.of, row.codes) for row in marked if not row.out]
    assert kept == ([(1, 6)] if condition else [(1, 5), (1, 6)])
    assert {row.of for row in marked} == {1, 2}
    noted = frame.withColumn("note", F.when(F.col("id") == 1, "x"))
    passed = mapping.apply(noted, keep=["note", "id"], bypass="note").collect()
    assert [(row.note, row.id, row[ERROR]) for row in passed] == [("x", 1, None)]
    assert PLACE not in marked[0].asDict()
