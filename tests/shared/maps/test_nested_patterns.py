"""Patterns of paths: they reach into objects and arrays of objects, flattened or not."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from map_cases import ORDERS, TEXT, flat, names, planned
from pyspark.sql import SparkSession

from shared.errors import InvalidSettingsError
from shared.formats.arrow_types import as_nullable
from shared.formats.schema_nodes import json_schema_to_spark
from shared.maps.expressions.syntax import ERROR
from shared.maps.stream_maps import StreamOutput

LINE = {
    "type": "object",
    "properties": {
        "sku": {"type": "string", "description": "what it is"},
        "note": TEXT,
        "codes": {"type": "array", "items": TEXT},
        "by": {"type": ["object", "null"], "properties": {"email": TEXT, "n": {"type": "integer"}}},
    },
    "required": ["sku", "note", "by"],
}
SCHEMA: dict[str, Any] = {
    **ORDERS,
    "properties": {
        **ORDERS["properties"],
        "lines": {"type": ["array", "null"], "items": LINE},
        "grid": {
            "type": "array",
            "items": {"type": "array", "items": {"$ref": "#/definitions/cell"}},
        },
        "free": {"type": "object"},
    },
    "definitions": {
        "cell": {"type": ["object", "null"], "properties": {"email": TEXT, "at": TEXT}},
    },
}
SALT = {"stream_map_config": {"hash_salt": "salt"}}


def output(*rules: dict[str, Any], **values: Any) -> StreamOutput:
    maps = dict(zip(["*", "orders"], rules, strict=False))
    [actual] = planned(maps, SCHEMA, **SALT, **values)
    return actual


class TestPlan:
    def test_the_schema_of_what_is_not_touched_stays(self) -> None:
        actual = output({"*.email": "hash_value(self)", "lines.note": "1", "*.no[t]e": None})
        assert actual.transform is not None
        properties = actual.schema["properties"]
        assert names(actual) == [*SCHEMA["properties"], "lines.note"]
        line = properties["lines"]["items"]
        assert properties["lines"]["type"] == ["array", "null"]
        assert list(line["properties"]) == ["sku", "codes", "by"]
        assert line["properties"]["sku"] == LINE["properties"]["sku"]
        assert line["required"] == ["sku", "by"]
        assert line["properties"]["by"]["type"] == ["object", "null"]
        customer = properties["customer"]
        assert (customer["type"], customer["required"]) == (["object", "null"], ["address"])
        assert properties["grid"]["items"]["items"]["type"] == ["object", "null"]
        assert properties["free"] == SCHEMA["properties"]["free"]
        assert actual.transform.struct() == json_schema_to_spark(actual.schema)

    def test_patterns_without_a_dot_are_about_properties_alone(self) -> None:
        actual = output({"*mail": None})
        assert "email" not in actual.schema["properties"]
        assert actual.schema["properties"]["customer"] == SCHEMA["properties"]["customer"]
        assert output({"no.such*": None}).transform is None

    @pytest.mark.parametrize(
        ("rules", "left"),
        [
            ([{"customer.*": "mask(self)", "*.address": None}], ["email"]),
            ([{"*.address": None, "customer.*": "mask(self)"}], ["email", "address"]),
            ([{"customer.*": None}, {"customer.[ae]*": "mask(self)"}], ["email", "address"]),
            ([{"*.city": None, "*.address": "mask(self)"}], ["email", "address"]),
        ],
    )
    def test_the_last_pattern_counts_and_an_object_before_what_is_in_it(
        self, rules: list[dict[str, Any]], left: list[str]
    ) -> None:
        customer = output(*rules).schema["properties"]["customer"]
        assert list(customer["properties"]) == left
        if "address" in left:
            assert customer["properties"]["address"]["type"] == ["string", "null"]

    def test_a_line_for_the_property_comes_first(self) -> None:
        actual = output({"customer.*": None}, {"customer": "customer"})
        assert actual.schema["properties"]["customer"] == SCHEMA["properties"]["customer"]
        assert "customer" not in output({"cust*": None, "customer.*": "1"}).schema["properties"]

    @pytest.mark.parametrize(
        ("rule", "reason"),
        [
            ({"*.email": "name"}, "at column 1: unknown name 'name'"),
            ({"*.email": {"sql": "upper(self)"}}, "SQL cannot change values inside objects"),
            ({"customer.*": None}, "every field would be dropped"),
            ({"lines.*": None}, "patterns for fields inside 'lines': every field would be dropped"),
            ({"*.sku": "truncate(self, -1)"}, "truncate"),
        ],
    )
    def test_what_cannot_be(self, rule: dict[str, Any], reason: str) -> None:
        with pytest.raises(InvalidSettingsError) as failed:
            output(rule)
        assert reason in str(failed.value)

    def test_what_runs_in_python_is_told(self) -> None:
        actual = output({"customer.email": "1", "*.emai[l]": "mask(self)"})
        assert actual.notes == (
            "stream_maps.*.*.emai[l]: runs in Python: values inside arrays",
            "stream_maps.*.customer.email: names a top-level property; to name the field inside "
            "'customer', write '[c]ustomer.email'",
        )


def hashed(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(f"salt{text}".encode()).hexdigest()


LINES = [
    ("a", "call 555-1234", ["x", None], ("b@x", 1)),
    ("b", None, None, None),
    None,
    ("ü", "555", [], (None, 2)),
]
GRID = [[("c@x", "1"), None, (None, None)], None, [], [("d@x", None)]]
CUSTOMER = ("e@x", ("Bonn", 53111))
ROWS: list[tuple[Any, ...]] = [
    (1, "Ann", "a@x", 2.0, CUSTOMER, ["t"], LINES, GRID, "{}"),
    (2, "Bob", None, None, None, None, None, [], None),
    (3, "Cy", None, None, (None, None), None, [], [], None),
]


@pytest.mark.spark
class TestRows:
    def test_values_inside(self, spark: SparkSession) -> None:
        rule = {
            "*.email": "hash_value(self)",
            "*.note": "redact(self, '[0-9-]{3,}', '#')",
            "*.zip": "str(self)[:2] if self else None",
            "*.codes": "self and len(self)",
            "grid.a[t]": None,
        }
        frame = spark.createDataFrame(ROWS, as_nullable(json_schema_to_spark(SCHEMA)))
        actual = output(rule).transform
        assert actual is not None
        one, two, three = (row.asDict(recursive=True) for row in actual.apply(frame).collect())
        assert [one[ERROR], two[ERROR], three[ERROR]] == [None] * 3
        assert one["customer"] == {"email": hashed("e@x"), "address": {"city": "Bonn", "zip": "53"}}
        assert (two["customer"], two["lines"], two["grid"]) == (None, None, [])
        assert (three["customer"], three["lines"]) == ({"email": None, "address": None}, [])
        assert one["grid"] == [
            [{"email": hashed("c@x")}, None, {"email": None}], None, [], [{"email": hashed("d@x")}],
        ]  # fmt: skip
        lines = [line and (line["sku"], line["note"], line["by"]) for line in one["lines"]]
        assert lines == [
            ("a", "call #", {"email": hashed("b@x"), "n": 1}),
            ("b", None, None),
            None,
            ("ü", "#", {"email": None, "n": 2}),
        ]
        assert [line and str(line["codes"]) for line in one["lines"]] == ["2", "None", None, "[]"]
        assert (one["email"], one["free"]) == ("a@x", "{}")

    def test_errors_and_flattening(self, spark: SparkSession) -> None:
        rule = {"*.sku": "int(self) and self", "*.email": "self[3]", "lines.note": "'new'"}
        frame = spark.createDataFrame(ROWS, as_nullable(json_schema_to_spark(SCHEMA)))
        actual = output(rule, **flat(2)).transform
        assert actual is not None
        rows = [row.asDict() for row in actual.apply(frame).collect()]
        reasons = [row[ERROR] and row[ERROR].split(": ")[:3] for row in rows]
        assert reasons == [
            ["property 'customer'", "at 'customer.email'", "IndexError"],
            None,
            ["property 'customer'", "at 'customer.email'", "TypeError"],
        ]
        assert (rows[1]["customer__email"], rows[1]["customer__address__zip"]) == (None, None)
        only = output({"lines.[s]ku": "int(self)"}, **flat(2)).transform
        assert only is not None
        rows = [row.asDict() for row in only.apply(frame).collect()]
        assert rows[0][ERROR].startswith("property 'lines': at 'lines.sku': ValueError: ")
        assert (rows[0]["customer__email"], rows[2]["lines"]) == ("e@x", "[]")
