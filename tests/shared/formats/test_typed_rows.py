"""Rows of columnar and CSV files: which are accepted, and which are rejected, by number."""

from __future__ import annotations

import json
import math
import re
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.formats.json_lines import LineReader
from shared.formats.typed_rows import RowReader, row_text

UTC = timezone.utc
INTEGER = {"type": ["integer", "null"]}
STRING = {"type": ["string", "null"]}
NUMBER = {"type": ["number", "null"]}
FLOAT = {"type": ["number", "null"], "x-spark-type": "float"}
AT = {"type": ["string", "null"], "format": "date-time"}
TIME = {"type": ["string", "null"], "format": "time", "x-spark-type": "time(6)"}
DECIMAL = {"type": ["number", "null"], "x-spark-type": "decimal(5,2)"}
LABELS = {"additionalProperties": {"type": "string"}}
TEXTS = {"type": ["array", "null"], "items": {"type": "string"}}


def read(node: Any, values: Any, *, strict: bool = True, texts: bool = False) -> Any:
    array = values if isinstance(values, pa.Array) else pa.array(values)
    reader = RowReader({"properties": {"c": node}}, strict=strict, texts=texts)
    actual = reader.read(pa.table({"c": array}))
    assert actual.table.schema == reader.arrow_schema
    return actual.table.column("c").to_pylist(), dict(actual.rejects)


@pytest.mark.parametrize(
    ("node", "values", "expected"),
    [
        (INTEGER, pa.array([1, None], pa.int8()), [1, None]),
        (INTEGER, pa.array([1], pa.uint64()), [1]),
        (INTEGER, pa.array([1.0, 2.0]), [1, 2]),
        (NUMBER, pa.array([2**53 + 1]), [float(2**53)]),
        (NUMBER, pa.array([math.inf, 0.1], pa.float64()), [math.inf, 0.1]),
        (FLOAT, pa.array([math.inf, 0.5, None]), [math.inf, 0.5, None]),
        (NUMBER, pa.array([Decimal("1.10")]), [1.1]),
        (DECIMAL, pa.array([1.1, 2.25]), [Decimal("1.10"), Decimal("2.25")]),
        (DECIMAL, pa.array([Decimal("1.100")]), [Decimal("1.10")]),
        (DECIMAL, pa.array([7]), [Decimal("7.00")]),
        (STRING, pa.array(["a"], pa.large_string()), ["a"]),
        (STRING, pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (STRING, pa.nulls(2), [None, None]),
        (AT, pa.array([1], pa.timestamp("s")), [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]),
        (AT, pa.array([1], pa.timestamp("ms", "Europe/Berlin")),
         [datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)]),
        (AT, ["2026-01-01T01:00:00+01:00"], [datetime(2026, 1, 1, tzinfo=UTC)]),
        (AT, pa.array([date(2026, 1, 1)]), [datetime(2026, 1, 1, tzinfo=UTC)]),
        ({"type": "string", "format": "date"}, ["2026-02-28"], [date(2026, 2, 28)]),
        ({"type": "string", "contentEncoding": "base64"}, ["AP8="], [b"\x00\xff"]),
        (TEXTS, [["a"], [], None], [["a"], [], None]),
        ({"additionalProperties": INTEGER}, [{"x": 1}], [[("x", 1)]]),
        (LABELS, [{"x": "1"}, {"y": "2"}], [[("x", "1")], [("y", "2")]]),
        ({"items": {"properties": {"a": LABELS}}}, [[{"a": {"x": "1"}}, {"a": {"y": "2"}}]],
         [[{"a": [("x", "1")]}, {"a": [("y", "2")]}]]),
        ({"properties": {"a": STRING, "b": INTEGER}}, [{"b": 1, "z": 2}], [{"a": None, "b": 1}]),
        ({}, [1, None], ["1", None]),
        ({}, [{"x": [1.5, None]}],
         ['{"x":[1.5,null]}']),
    ],
)  # fmt: skip
def test_taken(node: Any, values: Any, expected: Any) -> None:
    assert read(node, values) == (expected, {})


@pytest.mark.parametrize(
    ("node", "values", "reason"),
    [
        (INTEGER, [1.5, 1.0], "1.5 is not of type integer"),
        (INTEGER, ["1", None], "'1' is not of type integer"),
        (STRING, [1, None], "1 is not of type string"),
        (FLOAT, [1e300, math.inf], r"1e\+300 is out of range"),
        ({"items": FLOAT}, [[0.5, 1e300], [0.5]], r"c\[1\]': 1e\+300 is out of range"),
        (DECIMAL, [Decimal("1.234"), Decimal("1")], "1.234"),
        (AT, ["yesterday", None], "yesterday"),
        ({"type": "boolean"}, [1, 1], "1 is not of type boolean"),
        ({"type": "integer", "maximum": 127, "minimum": -128}, [200, 1], "200"),
        (TEXTS, [["a", None], ["b"]], r"\[0\]|\[1\]|null"),
        (LABELS, pa.array([[("x", None)], []], pa.map_(pa.string(), pa.date32())), "c.x': null"),
    ],
)
def test_refused(node: Any, values: Any, reason: str) -> None:
    actual, rejects = read({**node}, values)
    assert 0 in rejects
    assert re.search(reason, rejects[0])
    assert "property 'c" in rejects[0]
    assert len(actual) == 2 - len(rejects)


FAR = pa.array([-800_000, 10**7], pa.int32()).cast(pa.date32())
NANOS = pa.array([1_700_000_000_123_456_789, -1], pa.timestamp("ns"))
FINE = ["2023-11-14T22:13:20.123456789", "1969-12-31T23:59:59.999999999"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (FAR, ["-0221-09-04", "+29349-01-26"]),
        (FAR.dictionary_encode(), ["-0221-09-04", "+29349-01-26"]),
        (FAR.cast(pa.date64()), ["-0221-09-04", "+29349-01-26"]),
        (pa.array([10**18], pa.timestamp("us")), ["+33658-09-27T01:46:40.000000"]),
        (pa.array([-(2**62)], pa.duration("s")), ["-PT4611686018427387904.000000S"]),
        (NANOS, FINE),
        (NANOS.cast(pa.timestamp("ns", "Asia/Tokyo")), [f"{text}+00:00" for text in FINE]),
        (pa.array([-1], pa.timestamp("us", "Mars/X")), ["1969-12-31T23:59:59.999999+00:00"]),
        (pa.array([-123_456_789, 1000], pa.duration("ns")), ["-PT0.123456789S", "PT0.000001S"]),
        (pa.array([3_723_000_000_001], pa.time64("ns")), ["01:02:03.000000001"]),
    ],
)
def test_times_that_python_lacks_are_texts(values: pa.Array, expected: list[str]) -> None:
    assert read(STRING, values) == (expected, {})
    nested = pa.MapArray.from_arrays([0, 1], pa.array(["a"]), values[:1])
    record = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1], nested)], ["x"])
    assert read({}, record) == ([json.dumps({"x": [{"a": expected[0]}]}).replace(" ", "")], {})


@pytest.mark.parametrize(
    ("values", "node", "micros", "cut"),
    [
        (NANOS, AT, [1_700_000_000_123_456, -1], {"c"}),
        (NANOS.cast(pa.timestamp("ns", "Asia/Tokyo")), AT, [1_700_000_000_123_456, -1], {"c"}),
        (NANOS.dictionary_encode(), AT, [1_700_000_000_123_456, -1], {"c"}),
        (pa.array([1001], pa.time64("ns")), TIME, [1], {"c"}),
        (pa.array([[value] for value in NANOS]), {"items": AT},
         [[1_700_000_000_123_456], [-1]], {"c"}),
        (FAR, AT, [-69_120_000_000_000_000, 864_000_000_000_000_000], set()),
        (pa.array([1 - 2**63], pa.timestamp("ns")), AT, [-9_223_372_036_854_776], {"c"}),
    ],
)  # fmt: skip
def test_times_that_python_lacks_as_times(
    values: pa.Array, node: Any, micros: list[Any], cut: set[str]
) -> None:
    actual = RowReader({"properties": {"c": node}}, strict=True).read(pa.table({"c": values}))
    kind = pa.list_(pa.int64()) if "items" in node else pa.int64()
    assert actual.table.column("c").cast(kind).to_pylist() == micros
    assert (actual.rejects, actual.cut) == ((), cut)


def test_a_time_that_a_column_cannot_hold_rejects_its_row() -> None:
    actual, rejects = read(AT, pa.array([2**62, 0], pa.timestamp("s")))
    assert (len(actual), list(rejects)) == (1, [0])
    assert rejects[0].startswith("property 'c': '+146138514283-06-19")


@pytest.mark.parametrize("texts", [True, False])
@pytest.mark.parametrize(("kind", "bits"), [("day to second", 63), ("year to month", 31)])
def test_intervals_out_of_range(kind: str, bits: int, texts: bool) -> None:
    node = {"type": "string", "format": "duration", "x-spark-type": f"interval {kind}"}
    values = ["0", str(2**bits)] if texts else pa.array([0, 2**bits], pa.uint64())
    actual, rejects = read(node, values, texts=texts)
    assert (len(actual), list(rejects)) == (1, [1])


def test_converted_where_not_strict() -> None:
    values, rejects = read(INTEGER, ["1", "x"], strict=False)
    assert (values, list(rejects)) == ([1], [1])
    assert read(STRING, [1, 2.5], strict=False)[0] == ["1.0", "2.5"]


def test_required() -> None:
    schema = {"properties": {"a": INTEGER, "b": {"type": "string"}}, "required": ["b"]}
    reader = RowReader(schema, strict=True)
    actual = reader.read(pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]}))
    assert actual.table.to_pylist() == [{"a": 1, "b": "x"}, {"a": 3, "b": "z"}]
    assert actual.rejects == ((1, "property 'b': null or missing where a value is required"),)
    assert len(reader.read(pa.table({"a": [1, 2]})).rejects) == 2
    lax = RowReader(schema, strict=False)
    assert lax.read(pa.table({"a": [1, 2]})).rejects == ()


@pytest.mark.parametrize(
    ("node", "texts", "expected"),
    [
        (INTEGER, ["1", None, "-5"], [1, None, -5]),
        (NUMBER, ["1.5", "Infinity", "1e3"], [1.5, math.inf, 1000.0]),
        (DECIMAL, ["1.10", "2"], [Decimal("1.10"), Decimal("2.00")]),
        ({"type": "boolean"}, ["true", "False"], [True, False]),
        (STRING, ["", "1", None], ["", "1", None]),
        (AT, ["2026-01-01 00:00:00Z", "2026-01-01T00:00:00"],
         [datetime(2026, 1, 1, tzinfo=UTC)] * 2),
        (TEXTS, ['["a"]', "[]"], [["a"], []]),
        ({}, ["plain", "1"], ["plain", "1"]),
        ({"type": "string", "contentEncoding": "base64"}, ["AP8="], [b"\x00\xff"]),
        ({"type": "string", "format": "time", "x-spark-type": "time(6)"}, ["01:02:03"],
         [time(1, 2, 3)]),
    ],
)  # fmt: skip
def test_texts_of_csv(node: Any, texts: Any, expected: Any) -> None:
    assert read(node, texts, texts=True) == (expected, {})


@pytest.mark.parametrize(
    ("node", "text"),
    [(INTEGER, "1.5"), (INTEGER, ""), (NUMBER, "one"), (TEXTS, "a,b"), (AT, "soon"),
     ({"type": "boolean"}, "yes"), (DECIMAL, "1.234")],
)  # fmt: skip
def test_refused_texts_of_csv(node: Any, text: str) -> None:
    assert list(read(node, [text], texts=True)[1]) == [0]


NUMBERS = "7 01 +1 .5 5. 1e2 0x1F 1E400 inf nan -nan infinity NaN -Infinity 1_0 1e"


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (INTEGER, "7 1 1 5 100"),
        (NUMBER, "7.0 1.0 1.0 0.5 5.0 100.0 nan -inf"),
        ({**NUMBER, "x-spark-type": "float"}, "7.0 1.0 1.0 0.5 5.0 100.0 nan -inf"),
        (DECIMAL, "7.00 1.00 1.00 0.50 5.00 100.00"),
    ],
)
def test_numbers_of_csv_are_read_alike_beside_any_others(node: Any, expected: str) -> None:
    actual = []
    for text in NUMBERS.split():
        values, rejects = read(node, [text], texts=True)
        assert str(read(node, [text, "x"], texts=True)[0]) == str(values)
        assert len(values) + len(rejects) == 1
        actual += map(str, values)
    assert actual == expected.split()


@pytest.mark.parametrize("scale", [0, 18, 38])
@pytest.mark.parametrize(
    "text", ["1" + "0" * 30, "1e30", "12e14", "5.5e37", "5e-59", "12e-57", "1e-999999999"]
)
def test_a_decimal_of_csv_is_the_number_or_refused(scale: int, text: str) -> None:
    node = {**NUMBER, "x-spark-type": f"decimal(38,{scale})"}
    values, rejects = read(node, [text], texts=True)
    assert len(rejects) == 1 or values == [Decimal(text)]


def test_free_form_streams_keep_whole_rows() -> None:
    reader = RowReader({}, strict=True)
    [text] = reader.read(pa.table({"a": [1], "b": [b"\xff"]})).table.column(0).to_pylist()
    assert json.loads(text) == {"a": 1, "b": "/w=="}


def test_columns_in_common() -> None:
    reader = RowReader({"properties": {"a": {}}}, strict=True)
    assert reader.declared == {"a"}
    assert RowReader({}, strict=True).declared is None, "any column is one of the record"


def test_rows_as_text() -> None:
    row = {"d": Decimal("1.10"), "t": timedelta(seconds=-1.5), "n": math.nan, "at": date(1, 1, 1)}
    assert row_text(row) == b'{"d":1.10,"t":"-PT1.500000S","n":"NaN","at":"0001-01-01"}'


CELLS: list[tuple[Any, str | None, str]] = [
    (INTEGER, "6", "6"),
    (INTEGER, "bad", '"bad"'),
    (INTEGER, "null", '"null"'),
    (NUMBER, "1.50", "1.50"),
    (NUMBER, ".5", '".5"'),
    (NUMBER, None, "null"),
    ({"type": "boolean"}, "True", "true"),
    ({"$ref": "#/$defs/list"}, "[1]", "[1]"),
    (TEXTS, '["\\ud800"]', r'"[\"\\ud800\"]"'),
    ({"properties": {"a": {}}}, '{"a":1}', '{"a":1}'),
    ({"type": ["integer", "boolean"]}, "5", "5"),
    (STRING, "7", '"7"'),
    ({"type": ["string", "integer"]}, "8", '"8"'),
    ({"type": "string", "format": "singer.decimal", "precision": 5, "scale": 2}, "1.5", '"1.5"'),
    ({}, "{}", '"{}"'),
    (True, "1", '"1"'),
]


@pytest.mark.parametrize(("node", "text", "written"), CELLS)
def test_a_row_of_csv_as_a_record(node: Any, text: str | None, written: str) -> None:
    schema = {"properties": {"c": node}, "$defs": {"list": {"type": "array"}}}
    table = pa.table({"c": pa.array([None, text], pa.string())})
    assert RowReader(schema, strict=True, texts=True).row_at(table, 1).decode() == (
        f'{{"c":{written}}}'
    )


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=3)


@given(
    st.lists(st.one_of(st.none(), st.integers(-(2**70), 2**70), TEXT), max_size=8),
    st.sampled_from([INTEGER, STRING, NUMBER, DECIMAL, AT, {}]),
)
def test_the_same_verdicts_as_for_json_lines(values: list[Any], node: Any) -> None:
    """A column of mixed values cannot be in a file: each is read alone, as a column of its type."""
    reader = LineReader({"properties": {"c": node}}, envelope=False, strict=True)
    for value in values:
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            continue
        line = json.dumps({"c": value}).encode()
        expected = reader.read(line)
        actual, rejects = read(node, [value])
        # As text: NaN is not equal to itself.
        assert repr(actual) == repr(expected.table.column("c").to_pylist())
        assert list(rejects.values()) == [reason for _, reason in expected.rejects]
