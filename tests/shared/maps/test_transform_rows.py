"""Transforms on rows: which stay, what is in them, and what Spark is asked to do."""

from __future__ import annotations

import re
from typing import Any

import pytest
from map_cases import ORDERS, flat, names, planned
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from shared.formats.schema_nodes import json_schema_to_spark
from shared.maps.expressions.syntax import ERROR
from shared.maps.transform import Transform

pytestmark = pytest.mark.spark

IN_PYTHON = "(name and name.translate({65: 'e', 66: 'e', 111: 'b'}))"
ROWS: list[tuple[Any, ...]] = [
    (1, "Ann", "a@x", 2.0, ("c@x", ("Bonn", 53111)), ["a", None]),
    (2, "Bob", None, None, None, None),
    (3, None, "b@x", 0.5, ("d@x", (None, None)), []),
]


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, json_schema_to_spark(ORDERS))


def transform(rule: dict[str, Any], **values: Any) -> Transform:
    [output] = planned({"orders": rule}, **values)
    assert output.transform is not None
    assert output.transform.struct() == json_schema_to_spark(output.schema)
    assert output.transform.struct().names == names(output)
    return output.transform


def rows(actual: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in actual.collect()]


def plan_of(actual: DataFrame, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    actual.explain("extended")
    return capsys.readouterr().out.split("== Physical Plan ==")[-1]


class TestRows:
    def test_copies_drops_and_new_ones(self, frame: DataFrame) -> None:
        rule = {"name": None, "who": "name", "double": "price and price * 2", "tags": None}
        mapped = transform({**rule, "customer": None})
        actual = rows(mapped.apply(frame))
        assert [set(row) for row in actual] == [
            {"id", "email", "price", "who", "double", ERROR}
        ] * 3
        assert [row["who"] for row in actual] == ["Ann", "Bob", None]
        assert [row["double"] for row in actual] == [4.0, None, 1.0]
        assert not any(row[ERROR] for row in actual)

    def test_all_expressions_see_the_record_as_it_came(self, frame: DataFrame) -> None:
        rule = {"id": "id + 100", "x": "id", "__filter__": "id < 3", "__else__": None}
        assert [(row["id"], row["x"]) for row in rows(transform(rule).apply(frame))] == [
            (101, 1), (102, 2)
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("id > 1", [2, 3]),
            ("name", [1, 2]),
            ("price", [1, 3]),
            ("tags", [1]),
            ("customer", [1, 3]),
            ("not name", [3]),
            ("None", []),
            ("name == 'Ann' or price == 0.5", [1, 3]),
        ],
    )
    def test_filters_follow_pythons_truth(
        self, frame: DataFrame, text: str, expected: list[int]
    ) -> None:
        actual = rows(transform({"__filter__": text}).apply(frame))
        assert [row["id"] for row in actual] == expected
        assert not any(row[ERROR] for row in actual)

    def test_rows_with_errors_stay_and_say_why(self, frame: DataFrame) -> None:
        actual = rows(transform({"x": "1 / (id - 1)", "y": "name + 'a'"}).apply(frame))
        assert [row["id"] for row in actual] == [1, 2, 3]
        assert actual[0][ERROR].startswith("property 'x': ZeroDivisionError")
        assert actual[1][ERROR] is None
        assert actual[2][ERROR].startswith("property 'y': TypeError: ")

    def test_the_filter_counts_first(self, frame: DataFrame) -> None:
        actual = rows(transform({"x": "1 / (id - 1)", "__filter__": "price > 1"}).apply(frame))
        assert [(row["id"], (row[ERROR] or "")[:25]) for row in actual] == [
            (1, "property 'x': ZeroDivisio"),
            (2, "filter: TypeError: '>' no"),
        ]

    def test_what_is_filtered_out_cannot_fail(self, frame: DataFrame) -> None:
        actual = rows(transform({"x": "1 / (id - 1)", "__filter__": "id != 1"}).apply(frame))
        assert [row[ERROR] for row in actual] == [None, None]

    def test_rows_that_are_passed_by(self, frame: DataFrame) -> None:
        rejected = frame.select(
            *(F.when(F.col("id") != 2, F.col(name)).alias(name) for name in frame.columns),
            F.when(F.col("id") == 2, F.lit("why")).alias("__reject"),
        )
        rule = {"x": "1 / id", "c": "'constant'", "__filter__": "id > 1"}
        mapped = transform(rule, **flat(3))
        actual = rows(mapped.apply(rejected, keep=["__reject"], bypass="__reject"))
        assert [row["id"] for row in actual] == [None, 3]
        assert actual[0].pop("__reject") == "why"
        assert set(actual[0].values()) == {None}
        assert (actual[1]["__reject"], actual[1]["c"]) == (None, "constant")

    def test_what_is_kept_beside(self, frame: DataFrame) -> None:
        mapped = transform({"id": "id * 2", "name": None})
        actual = mapped.apply(frame, keep={"__key": "id", "name": "name"})
        assert actual.columns[-3:] == [ERROR, "__key", "name"]
        assert [(row["id"], row["__key"]) for row in actual.collect()] == [(2, 1), (4, 2), (6, 3)]

    def test_only_the_columns_that_are_read_are_needed(self, frame: DataFrame) -> None:
        mapped = transform({"x": "name", "__filter__": "price", "__else__": None})
        actual = rows(mapped.apply(frame.select(*sorted(mapped.reads))))
        assert actual == [{"id": 1, "x": "Ann", ERROR: None}, {"id": 3, "x": None, ERROR: None}]

    def test_names_with_dots_and_quotes(self, spark: SparkSession) -> None:
        text = {"type": ["string", "null"]}
        schema = {"properties": {"a.b": text, "e`f": text, "c": {"properties": {"d.e": text}}}}
        odd = spark.createDataFrame([("1", "2", ("3",))], json_schema_to_spark(schema))
        maps = {"orders": {"x.y": "record['a.b'] + record['e`f']", "q": "c['d.e']"}}
        [output] = planned(maps, schema=schema, keys=(), **flat(1))
        assert output.transform is not None
        assert rows(output.transform.apply(odd)) == [
            {"a.b": "1", "e`f": "2", "c__d.e": "3", "x.y": "12", "q": "3", ERROR: None}
        ]


class TestPlans:
    def test_copies_are_a_plain_projection(
        self, frame: DataFrame, capsys: pytest.CaptureFixture[str]
    ) -> None:
        mapped = transform({"name": None, "who": "name", "__filter__": "id > 1"}, **flat(2))
        plan = plan_of(mapped.apply(frame), capsys)
        assert "Python" not in plan
        assert len(re.findall(r"\bProject\b", plan)) <= 2

    def test_python_runs_once_for_all_properties(
        self, frame: DataFrame, capsys: pytest.CaptureFixture[str]
    ) -> None:
        mapped = transform({"x": IN_PYTHON, "y": IN_PYTHON, "z": f"len({IN_PYTHON})"})
        assert mapped.notes
        plan = plan_of(mapped.apply(frame), capsys)
        assert plan.count("ArrowEvalPython") == 1
        assert len(python_calls(plan)) == 2

    @pytest.mark.parametrize(
        ("text", "kept"),
        [
            (IN_PYTHON, [1, 2]),
            (f"({IN_PYTHON} and 0, 1)[0]", []),
            (f"[x for x in [{IN_PYTHON}] if x]", [1, 2]),
            # Other kinds of values.
            pytest.param(f"str({IN_PYTHON})", [1, 2, 3], marks=pytest.mark.slow),
            pytest.param(f"len(str({IN_PYTHON})) - 4", [1, 2], marks=pytest.mark.slow),
            pytest.param(f"{IN_PYTHON} == 'enn'", [1], marks=pytest.mark.slow),
            pytest.param(f"{{'a': {IN_PYTHON}}}", [1, 2, 3], marks=pytest.mark.slow),
        ],
    )
    def test_python_runs_once_for_filter_and_property(
        self, frame: DataFrame, capsys: pytest.CaptureFixture[str], text: str, kept: list[int]
    ) -> None:
        mapped = transform({"x": text, "__filter__": text})
        actual = mapped.apply(frame)
        plan = plan_of(actual, capsys)
        assert plan.count("ArrowEvalPython") == 1
        assert len(python_calls(plan)) == 1
        expected = [row["id"] for row in rows(transform({"__filter__": text}).apply(frame))]
        assert [row["id"] for row in rows(actual)] == expected == kept

    def test_a_filter_in_python_runs_once(
        self, frame: DataFrame, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rule = {"name": None, "__filter__": f"{IN_PYTHON} == 'enn' or id == 3"}
        actual = transform(rule).apply(frame, keep={"k": "id"})
        plan = plan_of(actual, capsys)
        assert plan.count("ArrowEvalPython") == 1
        assert [row["k"] for row in rows(actual)] == [1, 3]

    def test_what_runs_in_python_is_told(self) -> None:
        mapped = transform({"x": IN_PYTHON, "y": "id"})
        [line] = mapped.notes
        assert line.startswith("stream_maps.orders.x: runs in Python: ")


def python_calls(plan: str) -> list[str]:
    actual = re.search(r"ArrowEvalPython \[(.*?)\], \[", plan)
    assert actual
    return re.findall(r"pythonUDF|<lambda>\(", actual[1])


def test_errors_of_nested_flattened_values(frame: DataFrame) -> None:
    mapped = transform({"who": "{'a': name, 'b': 10 // (id - 2)}", "customer": None}, **flat(2))
    actual = rows(mapped.apply(frame))
    assert [row["who__a"] for row in actual if not row[ERROR]] == ["Ann", None]
    assert [row["who__b"] for row in actual if not row[ERROR]] == [-10, 10]
    assert [bool(row[ERROR]) for row in actual] == [False, True, False]


def test_a_transform_may_be_applied_twice(frame: DataFrame) -> None:
    mapped = transform({"x": IN_PYTHON, "y": "id + 1"})
    first, second = mapped.apply(frame), mapped.apply(frame.filter("id = 1"))
    assert [row["y"] for row in first.collect()] == [2, 3, 4]
    assert [row["x"] for row in second.collect()] == ["enn"]
    assert isinstance(first.first(), Row)
