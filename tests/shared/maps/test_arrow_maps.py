"""Whole maps that Python evaluates over Arrow tables, beside the same maps by Spark."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from map_cases import settings
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812

from shared.formats.arrow_types import struct_to_arrow
from shared.formats.json_schema import spark_type_to_json_schema
from shared.maps.arrow_maps import arrow_map
from shared.maps.stream_maps import outputs
from shared.maps.transform import Transform

PAIR = T.StructType().add("a", "string").add("b", "long")
SOURCE = (
    T.StructType()
    .add("id", "long").add("name", "string").add("x", "double").add("small", "short")
    .add("price", T.DecimalType(20, 4)).add("fine", T.DecimalType(20, 8)).add("flag", "boolean")
    .add("day", "date").add("at", "timestamp").add("local", "timestamp_ntz").add("real", "float")
    .add("tags", T.ArrayType(T.StringType())).add("pair", PAIR)
    .add("deep", T.StructType().add("pairs", T.ArrayType(PAIR)).add("n", "double"))
    .add("ratios", T.ArrayType(T.DoubleType()))
)  # fmt: skip
UTC = dt.timezone.utc
ROWS: list[dict[str, Any]] = [
    {
        "id": 1, "name": "Ann", "x": 0.1, "small": 7, "price": Decimal("1.5000"), "flag": True,
        "fine": Decimal("1.50000000"), "day": dt.date(2024, 2, 29), "real": 0.1,
        "at": dt.datetime(2024, 2, 29, 1, 2, 3, 45, UTC),
        "local": dt.datetime(2024, 2, 29, 1, 2, 3),
        "tags": ["a", None, 'q"\\\n\x1f\x7fé\u2028'], "pair": {"a": "\\u001f", "b": None},
        "deep": {"pairs": [{"a": "z", "b": 2}, None], "n": 1e20}, "ratios": [0.5, None],
    },
    {"id": 2, "name": None, "at": dt.datetime(1, 1, 1, tzinfo=UTC), "day": dt.date(1, 1, 1)},
    {"id": 3, "name": "", "x": -0.0, "at": dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
     "day": dt.date(9999, 12, 31), "tags": [], "pair": {"a": None, "b": 2}, "flag": False,
     "local": dt.datetime(1969, 12, 31, 23, 59, 59, 1)},
    {"id": 4, "name": "7", "small": -1, "price": Decimal("-0.0001"), "deep": {}},
]  # fmt: skip
TABLE = pa.Table.from_pylist(ROWS, struct_to_arrow(SOURCE))
RULES: dict[str, dict[str, Any]] = {
    "as text": {"t": "f'{at}|{day}|{local}'", "u": "at[:10] if at else None", "v": "str(price)"},
    "dates": {"d": "datetime.date.fromisoformat(day)", "t": "datetime.datetime.fromisoformat(at)"},
    "errors in order": {"one": "int(name)", "two": "name.upper()", "three": "1 / (id - 1)"},
    "a filter": {"__filter__": "id % 2 == 1 and price > 1", "label": "f'{id}-{name}'"},
    "a filter that fails": {"__filter__": "int(name) > 0", "twice": "name * 2"},
    "a filter by Python": {"__filter__": "id ** 2 > 4", "bits": "id | 8", "power": "id ** 2"},
    "dropped": {"__else__": None, "id": "id", "tag": "tags[0] if tags else 'none'"},
    "an object": {"__else__": None, "id": "id", "b": "pair['b'] if pair else 0", "p": "pair"},
    "decimals": {"__else__": None, "id": "id", "double": "price * 2", "s": "small + 1"},
    "hashes": {"__else__": None, "id": "id", "h": "md5(name)", "m": "mask(name) if name else ''"},
    "redacted": {"name": "redact(name, '[A-Z]+', '#')", "whole": "redact(name)"},
    "a truth": {"__else__": None, "id": "id", "t": "not flag", "n": "None", "x": "x or 0"},
}
FLAT = {"flattening_enabled": True, "flattening_max_depth": 1}


def transform(rule: dict[str, Any], **values: Any) -> Transform:
    properties = {f.name: spark_type_to_json_schema(f.dataType, True) for f in SOURCE}
    schema = {"type": "object", "properties": properties}
    actual = settings({"s": rule} if rule else {}, **values)
    [output] = outputs(actual, "s", schema, SOURCE, ("id",))
    assert output.transform is not None
    return output.transform


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    return table.sort_by("id").to_pylist()


def tables_alike(spark: SparkSession, created: Transform) -> None:
    evaluated = arrow_map(created, SOURCE)
    assert evaluated is not None
    ours = evaluated.apply(TABLE)
    by_spark = created.apply(spark.createDataFrame(TABLE, SOURCE)).toArrow()
    assert ours.column_names == by_spark.column_names
    assert rows_of(ours) == rows_of(by_spark)
    kinds = struct_to_arrow(created.struct())
    assert [f.type for f in ours.schema][:-1] == kinds.types, "of the columns of the table"


@pytest.mark.spark
@pytest.mark.parametrize("rule", RULES)
def test_rows_are_those_of_spark(spark: SparkSession, rule: str) -> None:
    tables_alike(spark, transform(RULES[rule]))


@pytest.mark.spark
@pytest.mark.parametrize("rule", [{}, {"label": "f'{id}'"}], ids=["alone", "after a map"])
def test_flattened_rows_are_those_of_spark(spark: SparkSession, rule: dict[str, Any]) -> None:
    without = {"ratios": None, "deep": None}
    tables_alike(spark, transform({**rule, **without}, **FLAT))


def test_redacted_without_spark() -> None:
    created = arrow_map(transform(RULES["redacted"]), SOURCE)
    assert created is not None
    assert created.apply(TABLE).column("name").to_pylist() == ["#nn", None, "", "7"]


def test_kept_columns_stay_beside_the_rows_that_stay() -> None:
    evaluated = arrow_map(transform({"__filter__": "id > 2", "a": "id + 1"}), SOURCE)
    assert evaluated is not None
    places = pa.array(range(10, 14), pa.int64())
    actual = evaluated.apply(TABLE.append_column("place", places), ["place"])
    assert actual.select(["id", "a", "place"]).to_pylist() == [
        {"id": 3, "a": 4, "place": 12}, {"id": 4, "a": 5, "place": 13},
    ]  # fmt: skip


@pytest.mark.parametrize(
    "expression",
    [
        "mask(name, 1)", "name.split()[0]", "tags[0]", "(name if flag else None).upper()",
        "(None if flag else name) + 'x'", "len(name if x else None)", "int(x if flag else None)",
        "'a' and (-small if id - 1 else None) > 1", "pair['a'].strip()",
        "datetime.date.fromisoformat(day if flag else None).year", "config['words'][id - 1]",
    ],
)  # fmt: skip
def test_a_row_alone_is_what_it_is_among_others(expression: str) -> None:
    config = {"words": ["a", "b"]}
    created = transform({"__else__": None, "id": "id", "v": expression}, stream_map_config=config)
    evaluated = arrow_map(created, SOURCE)
    assert evaluated is not None
    assert not evaluated.in_python
    whole = evaluated.apply(TABLE)
    alone = [evaluated.apply(TABLE.slice(at, 1)) for at in range(TABLE.num_rows)]
    assert pa.concat_tables(alone) == whole
    assert evaluated.apply(TABLE.slice(0, 0)) == whole.slice(0, 0)


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        ({"r": "real * 2"}, {}),
        ({"f": "str(fine)"}, {}),
        ({"made": "[id, id]"}, {}),
        ({"made": "json.loads(name)"}, {}),
        ({"pair.*": "'x'"}, {}),
        ({"x": "id + 1"}, FLAT),
        ({"made": "fake.name()"}, {"faker_config": {"seed": 1}}),
    ],
    ids=["float", "digits", "list", "any", "inside", "json of floats", "seed"],
)
def test_some_maps_are_left_to_spark(rule: dict[str, Any], values: dict[str, Any]) -> None:
    assert arrow_map(transform(rule, **values), SOURCE) is None


@pytest.mark.spark
def test_sql_is_left_to_spark(spark: SparkSession) -> None:
    assert spark is not None
    assert arrow_map(transform({"made": {"sql": "id + 1"}}), SOURCE) is None


def test_elements_of_arrays_are_left_to_spark() -> None:
    """Also if the record itself is needed, which is no column of the elements' stream."""
    properties = {f.name: spark_type_to_json_schema(f.dataType, True) for f in SOURCE}
    schema = {"type": "object", "properties": properties}
    rule = {"__source__": "s", "__explode__": "deep.pairs", "a": "a", "id": "__parent__['id']"}
    _, exploded = outputs(settings({"pairs": rule}), "s", schema, SOURCE, ("id",))
    assert exploded.transform is not None
    assert arrow_map(exploded.transform, SOURCE) is None
