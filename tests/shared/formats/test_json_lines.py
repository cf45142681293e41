"""What the reader accepts, rejects and reports, line by line."""

from __future__ import annotations

import json
import pickle
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from shared.formats.fast_json import LinesRead
from shared.formats.json_lines import LineReader
from target_spark.validation.checks import LineChecker

INTEGER = {"type": ["integer", "null"]}
STRING = {"type": ["string", "null"]}
DATE_TIME = {"type": ["string", "null"], "format": "date-time"}
DATE = {"type": ["string", "null"], "format": "date"}
DURATION = {"type": "string", "format": "duration", "x-spark-type": "interval day to second"}
DECIMAL = {"type": ["number", "null"], "x-spark-type": "decimal(5,2)"}


def read(node: Any, value: str, *, strict: bool = True) -> LinesRead:
    schema = {"properties": {"a": node}}
    return LineReader(schema, envelope=False, strict=strict).read(f'{{"a":{value}}}\n'.encode())


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("node", "value", "expected"),
    [
        (INTEGER, "1.0", 1),
        (INTEGER, "1e3", 1000),
        (INTEGER, "-9223372036854775808", -(2**63)),
        ({"type": "integer", "maximum": 2**64}, "18446744073709551616", Decimal(2**64)),
        (DECIMAL, "1.1000", Decimal("1.10")),
        (DECIMAL, '"2.5"', Decimal("2.50")),
        ({"type": "number"}, "NaN", float("nan")),
        ({"type": "number"}, '"-Infinity"', float("-inf")),
        (STRING, r'"\u0000\ud83d\ude00"', "\0😀"),
        (DATE, '"2020-02-29"', date(2020, 2, 29)),
        (DATE_TIME, '"2020-01-01T00:00:00Z"', utc(2020, 1, 1)),
        (DATE_TIME, '"2020-01-01 00:00:00+02:00"', utc(2019, 12, 31, 22)),
        (DATE_TIME, '"2020-01-01T05:06:07"', utc(2020, 1, 1, 5, 6, 7)),
        (DATE_TIME, '"2020-01-01T05:06:07.123456789Z"', utc(2020, 1, 1, 5, 6, 7, 123456)),
        ({"type": "string", "contentEncoding": "base64"}, '"AP8Q"', b"\x00\xff\x10"),
        ({"type": ["integer", "string"]}, "1.50", "1.50"),
        ({"type": ["integer", "string"]}, '"x"', "x"),
        ({"type": ["number", "string"]}, "NaN", "NaN"),
        ({}, "-Infinity", "-Infinity"),
        ({}, '{"x": [NaN, "NaN"]}', '{"x":["NaN","NaN"]}'),
        ({}, '{"b": [1.10, "é", null, true, 12345678901234567890123]}',
         '{"b":[1.10,"é",null,true,12345678901234567890123]}'),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, '{"x":1,"y":0}',
         [("x", 1), ("y", 0)]),
        ({"type": "array", "items": DATE}, '["2020-01-01",null]', [date(2020, 1, 1), None]),
    ],
)  # fmt: skip
def test_values_taken_even_when_strict(node: Any, value: str, expected: Any) -> None:
    for strict in (True, False):
        got = read(node, value, strict=strict)
        assert got.rejects == ()
        actual = got.table.column("a").to_pylist()
        assert actual == [expected] or repr(actual) == repr([expected])


@pytest.mark.parametrize(
    ("node", "value", "days"),
    [
        (DATE, "-0043-03-15", -735_160),
        (DATE, "0000-12-31", -719_163),
        (DATE, "+10000-01-01", 2_932_897),
        (DATE_TIME, "-0043-03-15T00:00:00.000000+00:00", -735_160),
        (DATE_TIME, "+20000-01-01T00:00:00Z", 6_585_322),
    ],
)
def test_years_before_1_and_after_9999(node: Any, value: str, days: int) -> None:
    for strict in (True, False):
        got = read(node, f'"{value}"', strict=strict)
        assert got.rejects == ()
        column = got.table.column("a")
        wide = pa.types.is_timestamp(column.type)
        [actual] = column.cast(pa.int64() if wide else pa.int32()).to_pylist()
        assert actual == days * (86_400_000_000 if wide else 1)


@pytest.mark.parametrize(
    ("node", "value", "reason"),
    [
        (INTEGER, '"abc"', "property 'a': 'abc' is not of type integer"),
        (INTEGER, '"1"', "property 'a': '1' is not of type integer"),
        (INTEGER, "true", "property 'a': true is not of type integer"),
        (INTEGER, "1.5", "property 'a': 1.5 is not of type integer"),
        (INTEGER, "9223372036854775808", "is not between"),
        (INTEGER, "1e999999999", "is not between"),
        (INTEGER, f"1e{'9' * 19}", "property 'a': 1e9999999999999999999 is out of range"),
        (INTEGER, f"1e-{'9' * 19}", "is out of range"),
        (DECIMAL, f"1e{'9' * 19}", "is out of range"),
        (DECIMAL, f'"1e-{"9" * 19}"', "is out of range"),
        (DURATION, f'"P{"9" * 99}D"', "is out of range"),
        (DURATION, f'"P{"9" * 5000}D"', "is not of type duration"),
        ({"type": "number"}, "1e400", "property 'a': 1e400 is out of range"),
        (DECIMAL, "1.234", "has more than 2 decimal places"),
        (DECIMAL, "1000", "has too many digits for decimal(5,2)"),
        (DECIMAL, '"x"', "is not of type number"),
        (DECIMAL, "NaN", "property 'a': NaN is not of type number"),
        (INTEGER, "-Infinity", "property 'a': -Infinity is not of type integer"),
        (STRING, "NaN", "property 'a': NaN is not of type string"),
        (STRING, "1", "property 'a': 1 is not of type string"),
        (STRING, '{"x":1}', """property 'a': {"x":1} is not of type string"""),
        (STRING, r'"\ud800"', "lone surrogate"),
        ({"type": "boolean"}, "1", "is not of type boolean"),
        (DATE, '"2020-02-30"', "is not of type date"),
        (DATE, '"2020-01-01T00:00:00Z"', "is not of type date"),
        (DATE_TIME, '"2001/01/01 00:47"', "is not of type date-time"),
        (DATE_TIME, "5", "is not of type date-time"),
        (DATE_TIME, '"+300000-01-01T00:00:00Z"', "is out of range"),
        (DATE, '"10000-01-01"', "is not of type date"),
        ({"type": "string", "contentEncoding": "base64"}, '"?"', "is not of type binary"),
        ({"type": "array", "items": INTEGER}, '[1,"x"]', "property 'a[1]': 'x' is not of type"),
        ({"type": "array", "items": INTEGER}, "{}", "is not of type array"),
        ({"properties": {"b": INTEGER}}, '{"b":"x"}', "property 'a.b': 'x' is not of type integer"),
        ({"properties": {"b": INTEGER}}, "[]", "is not of type object"),
        ({"type": "null"}, "1", "is not of type null"),
        (STRING, "5" * 200, "55…"),
    ],
)
def test_values_refused_when_strict(node: Any, value: str, reason: str) -> None:
    got = read(node, value)
    assert got.table.num_rows == 0
    assert got.rows_read == 1
    assert [line for line, _ in got.rejects] == [0]
    assert reason in got.rejects[0][1]


@pytest.mark.parametrize(
    ("node", "value", "expected"),
    [
        (INTEGER, '"1"', 1),
        (INTEGER, '"1.0"', 1),
        ({"type": "number"}, '"1.5"', 1.5),
        (STRING, "1.50", "1.50"),
        (STRING, "true", "true"),
        (STRING, '{"x": 1.0}', '{"x":1.0}'),
        ({"type": "boolean"}, '"true"', True),
        (DATE, '"2020-01-01T00:00:00Z"', date(2020, 1, 1)),
        ({"type": "array", "items": {"type": "integer"}}, "[null]", [None]),
    ],
)
def test_values_converted_when_not_strict(node: Any, value: str, expected: Any) -> None:
    assert read(node, value, strict=False).table.column("a").to_pylist() == [expected]


@pytest.mark.parametrize(
    ("node", "value"),
    [(INTEGER, '"x"'), (INTEGER, '"1.5"'), (INTEGER, "true"), (DATE, '"2020-01-01T05:00:00Z"'),
     (DECIMAL, "1.234"), ({"type": "boolean"}, "1"), ({"type": "array", "items": {}}, "1")],
)  # fmt: skip
def test_what_would_lose_something_is_refused_even_when_not_strict(node: Any, value: str) -> None:
    assert len(read(node, value, strict=False).rejects) == 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"garbage", "not JSON"),
        (b'{"a":1', "not JSON"),
        (b'{"a":1} x', "not JSON"),
        (b'{"a":1}{"a":2}', "not JSON"),
        (b"null", "not a JSON object: null"),
        (b"[1]", "not a JSON object: [1]"),
        (b'{"a":"\xff"}', "not UTF-8: byte 7"),
        (b'{"b":"\xff"}', "not UTF-8"),
        (b'{"a":' + b"[" * 100_000 + b"}", "nested too deeply"),
    ],
)
def test_lines_that_are_no_records(line: bytes, reason: str) -> None:
    reader = LineReader({"properties": {"a": INTEGER}}, envelope=False, strict=False)
    for data, index in ((line, 0), (b'{"a":1}\n\n' + line + b'\n{"a":3}', 2)):
        got = reader.read(data)
        assert [at for at, _ in got.rejects] == [index]
        assert reason in got.rejects[0][1]
        assert got.table.num_rows == got.rows_read - 1


def test_framing_of_lines() -> None:
    reader = LineReader({"properties": {"a": INTEGER}}, envelope=False, strict=True)
    data = b'\xef\xbb\xbf{"a":1}\r\n\n  \n {"a":2} \n{"b":5}\n{"a":3,"a":4}'
    got = reader.read(pa.py_buffer(data))
    assert got.table.column("a").to_pylist() == [1, 2, None, 4]
    assert (got.rows_read, got.rejects) == (4, ())
    assert (got.extracted_at, got.versions) == (None, None)
    assert reader.read(b"").table.schema == reader.arrow_schema


def test_envelopes_in_any_order_of_keys() -> None:
    lines = [
        {"type": "RECORD", "stream": "s", "record": {"a": 1}, "version": 7,
         "time_extracted": "2026-11-21T06:20:21.224137+00:00"},
        {"time_extracted": "2026-11-21T08:20:21+02:00", "record": {"a": None}, "type": "RECORD"},
        {"record": {"a": "x"}, "type": "RECORD"},
        {"type": "RECORD"},
        {"record": {"a": 4}, "time_extracted": "?", "version": "?"},
    ]  # fmt: skip
    reader = LineReader({"properties": {"a": INTEGER}}, envelope=True, strict=True)
    got = reader.read("\n".join(map(json.dumps, lines)).encode())
    assert got.table.column("a").to_pylist() == [1, None, 4]
    assert got.versions is not None
    assert got.extracted_at is not None
    assert got.versions.to_pylist() == [7, None, None]
    times = [utc(2026, 11, 21, 6, 20, 21, 224137), utc(2026, 11, 21, 6, 20, 21), None]
    assert got.extracted_at.to_pylist() == times
    assert [line for line, _ in got.rejects] == [2, 3]
    assert got.rejects[1][1] == "RECORD message without a 'record' object"


def test_one_odd_line_among_many_is_found_by_its_number() -> None:
    lines = [f'{{"a":{i},"b":"{"x" * 50}"}}' for i in range(20_000)]
    lines[12_345] = '{"a":"odd"}'
    reader = LineReader({"properties": {"a": INTEGER, "b": STRING}}, envelope=False, strict=True)
    got = reader.read("\n".join(lines).encode())
    assert [line for line, _ in got.rejects] == [12_345]
    assert got.table.num_rows == 19_999
    assert got.table.column("a").to_pylist()[-1] == 19_999


def test_required_values() -> None:
    schema = {"properties": {"id": {"type": "integer"}, "n": INTEGER}, "required": ["id", "n"]}
    data = b'{"id":1}\n{"n":1}\n{"id":null}\n{"id":2,"n":null}'
    got = LineReader(schema, envelope=False, strict=True).read(data)
    assert [line for line, _ in got.rejects] == [1, 2]
    assert got.rejects[0][1] == "property 'id': null or missing where a value is required"
    loose = LineReader(schema, envelope=False, strict=False).read(data)
    assert loose.table.column("id").to_pylist() == [1, None, None, 2]


def test_free_form_streams_keep_whole_records() -> None:
    for envelope in (True, False):
        reader = LineReader({"type": "object"}, envelope=envelope, strict=True)
        record = '{"x": 1.10, "y": [null, "é"]}'
        line = f'{{"type":"RECORD","record":{record}}}' if envelope else record
        got = reader.read(line.encode())
        assert got.table.to_pydict() == {"data": ['{"x":1.10,"y":[null,"é"]}']}


def test_very_long_lines_and_no_columns() -> None:
    long = "x" * 3_000_000
    assert read(STRING, f'"{long}"').table.column("a").to_pylist() == [long]
    empty = LineReader({"x-spark-type": "struct"}, envelope=False, strict=True)
    assert empty.read(b'{"a":1}\n{}\n').table.num_rows == 2
    assert empty.read(b'{"a":1}\n\n{}\n5').table.num_rows == 2


def test_a_reader_can_be_pickled() -> None:
    reader = LineReader({"properties": {"a": DATE}}, envelope=False, strict=True)
    again = pickle.loads(pickle.dumps(reader))
    assert again.read(b'{"a":"2020-01-01"}').table.schema == reader.arrow_schema


@pytest.mark.parametrize("levels", [100, 250, 260, 300, 900, 1500])
@pytest.mark.parametrize("node", [{}, {"type": "array"}, INTEGER])
@pytest.mark.parametrize("beside", [{}, {"additionalProperties": False}])
def test_a_value_nested_deeply_is_whole_or_a_rejected_record(
    levels: int, node: Any, beside: dict[str, Any]
) -> None:
    schema = {"properties": {"a": node}, **beside}
    name = "b" if node is INTEGER else "a"
    deep = "[" * levels + "]" * levels
    data = f'{{"a":null}}\n{{"{name}":{deep}}}\n'.encode()
    read = LineReader(schema, envelope=False, strict=True, closed=True).read(data)
    actual = LineChecker(schema, envelope=False).fitting(read, data)
    for number, reason in actual.rejects:
        assert number < 2
        assert reason
    rows = [row.get(name) for row in actual.table.to_pylist()]
    refused = {number for number, _ in actual.rejects}
    assert rows == [None if name == "b" else [None, deep][n] for n in range(2) if n not in refused]


NESTED: dict[str, Any] = {
    "properties": {
        "id": INTEGER,
        "a": {"type": ["null", "object"], "properties": {"x": INTEGER}},
        "l": {"type": ["null", "array"], "items": {"type": "object", "properties": {"x": INTEGER}}},
    }
}
ODD = {"properties": {**NESTED["properties"], "any": {}}}
UNDECLARED = {("more",): 2, ("a", "y"): 1, ("l", "y"): 2}


@pytest.mark.parametrize("envelope", [True, False])
@pytest.mark.parametrize("schema", [NESTED, ODD])
@pytest.mark.parametrize("second", ["2", '"two"'])
def test_properties_that_the_schema_lacks_are_named(
    envelope: bool, schema: dict[str, Any], second: str
) -> None:
    records = [
        '{"id":1,"more":1,"none":null,"l":[{"x":1,"y":1},{"y":2}]}',
        f'{{"id":2,"more":{second},"a":{{"x":1,"y":{{}}}}}}',
        '{"id":"odd"}',
    ]
    lines = [f'{{"type":"RECORD","record":{one}}}' if envelope else one for one in records]
    data = "\n".join(lines).encode()
    reader = LineReader(schema, envelope=envelope, strict=True, closed=True)
    assert reader.undeclared(data, reader.read(data)) == UNDECLARED


def test_one_undeclared_property_among_many_lines_is_seen() -> None:
    lines = [f'{{"a":{i}}}' for i in range(20_000)]
    lines[12_345] = '{"a":1,"b":2}'
    data = "\n".join(lines).encode()
    reader = LineReader({"properties": {"a": INTEGER}}, envelope=False, strict=True, closed=True)
    assert reader.undeclared(data, reader.read(data)) == {("b",): 1}
    free = LineReader({}, envelope=False, strict=True, closed=True)
    assert free.undeclared(data, free.read(data)) == {}


def test_a_sample_of_lines_has_the_first_and_the_last_of_a_block() -> None:
    lines = [f'{{"a":{i},"n":null}}' for i in range(20_000)]
    lines[0], lines[-1] = '{"a":1,"first":2}', '{"a":1,"last":3}'
    data = ("\n".join(lines) + "\n").encode()
    reader = LineReader({"properties": {"a": INTEGER}}, envelope=False, strict=True)
    assert reader.undeclared(data, reader.read(data)) == {("first",): 1, ("last",): 1}
