"""Net changes and columns of older versions, for every type, without a table format."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from shared.formats.record_text import record_json
from shared.formats.spark_conform import TypeChangeError, check_types, conformed, widens
from tap_spark.sources.lakes.lake_source import (
    as_records,
    both_versions,
    net_changes,
    with_commit_columns,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def records(frame: DataFrame) -> list[dict[str, Any]]:
    lines = frame.select(record_json(frame.schema)).collect()
    return [json.loads(line[0]) for line in lines]


def changes(spark: SparkSession, rows: list[tuple[int, bool, int, str]], *keys: str) -> list[Any]:
    frame = spark.createDataFrame(rows, "o INT, old BOOLEAN, id INT, v STRING")
    created = with_commit_columns(
        frame.select("id", "v", "o", "old"), F.col("o"), F.col("old"), F.lit(0).cast("timestamp")
    )
    actual = records(as_records(net_changes(created.drop("o", "old"), keys), ordered=True))
    return [(row["id"], row["v"], row["_sdc_deleted_at"] is not None) for row in actual]


def test_rows_that_a_commit_restores_are_not_changes(spark: SparkSession) -> None:
    rows = [(0, True, 1, "a"), (0, False, 1, "a"), (1, True, 1, "a"), (2, False, 1, "a")]
    assert changes(spark, rows, "id") == [(1, "a", True), (1, "a", False)]


def test_an_update_is_one_record_with_a_key_and_two_without(spark: SparkSession) -> None:
    rows = [(0, True, 1, "a"), (0, False, 1, "b"), (0, True, 2, "x"), (0, False, 3, "x")]
    keyed = changes(spark, rows, "id")
    assert keyed[0] == (2, "x", True)
    assert Counter(keyed) == Counter([(2, "x", True), (1, "b", False), (3, "x", False)])
    assert [row[2] for row in changes(spark, rows)] == [True, True, False, False]


def test_equal_rows_are_counted(spark: SparkSession) -> None:
    rows = [(0, True, 1, "a")] * 3 + [(0, False, 1, "a")]
    assert changes(spark, rows) == [(1, "a", True)] * 2
    turned = [(order, not old, key, text) for order, old, key, text in rows]
    assert changes(spark, turned) == [(1, "a", False)] * 2


def test_values_that_spark_treats_as_equal_are_distinguished(spark: SparkSession) -> None:
    select = (
        "SELECT 1 AS id, {d} AS d, map('k', {d}) AS m, parse_json('{j}') AS v, "
        "'{t}' COLLATE UTF8_LCASE AS t, named_struct('d', {d}) AS s"
    )
    minus, plus, nan, text = (
        spark.sql(select.format(d=d, j=j, t=t))
        for d, j, t in [
            ("-0.0D", "[1]", "a"),
            ("0.0D", "[1]", "a"),
            ("double('NaN')", "[1]", "a"),
            ("0.0D", "[1]", "A"),
        ]
    )
    at = F.lit(0).cast("timestamp")
    for before, after in ((minus, plus), (plus, nan), (plus, text)):
        net = as_records(net_changes(both_versions(before, after, at), ("id",)), ordered=False)
        assert records(net.drop("_sdc_deleted_at")) == records(after)
    for same in (minus, nan, text):
        assert net_changes(both_versions(same, same, at), ()).count() == 0


def test_older_rows_come_under_todays_names_and_types(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT 1 AS id, 'x' AS `old.name`, array(named_struct('p', 1S), null) AS items, "
        "map('k', named_struct('q', 2)) AS m, 9 AS gone, CAST(null AS STRUCT<y: INT>) AS s"
    )
    want = T._parse_datatype_string(
        "id BIGINT, `new.name` STRING, items ARRAY<STRUCT<p: INT, more: STRING>>, "
        "m MAP<STRING, STRUCT<r: BIGINT>>, s STRUCT<y: BIGINT>, later DATE"
    )
    assert isinstance(want, T.StructType)
    names = {("new.name",): "old.name", ("m", "value", "r"): "q", ("later",): None}
    created = conformed(frame, want, names)
    assert created.schema.simpleString() == want.simpleString()
    assert records(created) == [
        {
            "id": 1,
            "new.name": "x",
            "items": [{"p": 1, "more": None}, None],
            "m": {"k": {"r": 2}},
            "s": None,
            "later": None,
        }
    ]


def test_swapped_names_are_swapped_back(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1 AS a, 2 AS b, named_struct('x', 3, 'y', 4) AS s")
    names = {("a",): "b", ("b",): "a", ("s", "x"): "y", ("s", "y"): "x"}
    assert records(conformed(frame, frame.schema, names)) == [
        {"a": 2, "b": 1, "s": {"x": 4, "y": 3}}
    ]


def test_a_type_that_cannot_hold_older_values_is_an_error(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1L AS a, array(named_struct('p', 'x')) AS t")
    narrow = T.StructType([T.StructField("a", T.IntegerType())])
    with pytest.raises(TypeChangeError, match="column 'a' is bigint, not int"):
        conformed(frame, narrow)
    with pytest.raises(TypeChangeError, match="column 'a' is bigint"):
        check_types(frame.schema, narrow)
    inner = T._parse_datatype_string("t ARRAY<STRUCT<p: INT>>")
    assert isinstance(inner, T.StructType)
    with pytest.raises(TypeChangeError, match=r"column 't.element.p' is string, not int"):
        conformed(frame, inner)


@pytest.mark.parametrize(
    ("have", "want", "fits"),
    [
        (T.ByteType(), T.LongType(), True),
        (T.LongType(), T.IntegerType(), False),
        (T.IntegerType(), T.DoubleType(), True),
        (T.LongType(), T.DoubleType(), False),
        (T.FloatType(), T.DoubleType(), True),
        (T.DoubleType(), T.FloatType(), False),
        (T.ShortType(), T.FloatType(), True),
        (T.IntegerType(), T.FloatType(), False),
        (T.IntegerType(), T.DecimalType(10, 0), True),
        (T.LongType(), T.DecimalType(19, 0), True),
        (T.LongType(), T.DecimalType(19, 1), False),
        (T.IntegerType(), T.DecimalType(10, 1), False),
        (T.DecimalType(10, 2), T.DecimalType(12, 4), True),
        (T.DecimalType(10, 2), T.DecimalType(11, 4), False),
        (T.DecimalType(10, 2), T.DecimalType(12, 1), False),
        (T.DateType(), T.TimestampNTZType(), True),
        (T.DateType(), T.TimestampType(), False),
        (T.StringType(), T.DecimalType(38, 0), False),
        (T.NullType(), T.BinaryType(), True),
    ],
)
def test_a_type_widens_if_no_value_is_lost(have: T.DataType, want: T.DataType, fits: bool) -> None:
    assert widens(have, want) is fits
