"""Rows that the screen clears never reach the library; the others are reported."""

from __future__ import annotations

import json
from typing import Any

import pytest
from validation_cases import OBJECT

from shared.formats import fast_json
from shared.formats.json_lines import LineReader
from shared.formats.json_text import NULL, NUMBER, TEXT
from target_spark.validation import judge
from target_spark.validation.checks import LineChecker
from target_spark.validation.screen import Facts
from target_spark.validation.validator import RecordValidator

TEXT_OR_NULL = {"type": ["string", "null"]}

CLEARED: list[tuple[Any, list[Any]]] = [
    ({"type": ["integer", "null"]}, [1, None]),
    ({"type": "integer", "minimum": 0, "maximum": 10, "multipleOf": 5}, [0, 5, 10]),
    ({"type": "integer", "exclusiveMinimum": -1, "exclusiveMaximum": 1}, [0]),
    ({"type": ["integer", "null"], "minimum": -(2**63), "maximum": 2**63 - 1}, [1, None]),
    ({"type": "integer", "enum": [1, 2]}, [1, 2]),
    ({"type": "number", "minimum": 0, "maximum": 0.5}, [0, 0.5, 0.25]),
    ({"type": "number", "enum": [0.5, 1]}, [1, 0.5]),
    ({"type": "number", "multipleOf": 0.01, "minimum": 0}, [1.1, 4.35, 7]),
    ({"type": "boolean", "const": True}, [True]),
    ({**TEXT_OR_NULL, "minLength": 1, "maxLength": 3, "pattern": r"^\w+$"}, ["ab", None, "a_1"]),
    ({**TEXT_OR_NULL, "enum": ["a", None]}, ["a", None]),
    ({**TEXT_OR_NULL, "format": "date-time"}, ["2020-01-01T00:00:00Z", None]),
    ({"type": "string", "format": "uuid"}, ["no"]),
    ({"anyOf": [{"type": "string", "maxLength": 2}, {"type": "null"}]}, ["ab", None]),
    ({"oneOf": [{"type": "null"}, {"type": "integer", "minimum": 3}]}, [3, None]),
    ({"type": "integer", "allOf": [{"minimum": 3}, {"maximum": 5}]}, [3, 5]),
    ({"type": "array", "items": {"type": "integer", "minimum": 0}, "maxItems": 2}, [[], [1, 2]]),
    ({"type": "array", "items": {"type": "object", "properties": OBJECT}}, [[{"a": 1}]]),
    ({"type": ["object", "null"], "properties": OBJECT, "required": ["a"]}, [{"a": 1}, None]),
    ({"type": "object", "properties": OBJECT, "additionalProperties": False}, [{"a": 1, "b": "x"}]),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, [{"x": 1}]),
    ({}, [1, "x", [], None]),
    ({"type": ["object", "array", "string", "number", "boolean", "null"]}, [1, "x"]),
    ({"type": "string", "format": "singer.decimal", "precision": 9, "scale": 2}, ["1.5"]),
]  # fmt: skip


@pytest.fixture
def library_calls(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    calls: list[bytes] = []

    def decoded(line: bytes, *, exact: bool) -> Any:
        calls.append(line)
        return original(line, exact=exact)

    original = judge.decoded_record
    monkeypatch.setattr(judge, "decoded_record", decoded)
    return calls


def lines(values: list[Any]) -> bytes:
    return b"".join(json.dumps({"record": {"v": value}}).encode() + b"\n" for value in values)


def checked(schema: dict[str, Any], data: bytes) -> Any:
    checker = LineChecker(schema, envelope=True)
    reader = LineReader(schema, envelope=True, strict=True, closed=checker.closed)
    return checker.fitting(reader.read(data), data)


@pytest.mark.parametrize(("node", "values"), CLEARED)
def test_the_library_sees_no_record(
    library_calls: list[bytes], node: Any, values: list[Any]
) -> None:
    for schema in (
        {"properties": {"v": node}},
        {"properties": {"v": node}, "additionalProperties": False},
    ):
        if schema.get("additionalProperties") is False and has_odd_columns(node):
            continue
        actual = checked(schema, lines(values))
        assert (actual.rejects, actual.table.num_rows) == ((), len(values))
        assert library_calls == []
        assert RecordValidator(schema).slow_keywords() == ()


VALUES = [1, -1, 0.5, 1e22, True, None, "ab", "1.50", "2020-01-01T00:00:00Z", "2020-01-01"]


@pytest.mark.parametrize("node", [node for node, _ in CLEARED])
def test_lines_without_spaces_are_judged_as_others(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_json, "LEAST_LINES", 0)
    for required in ([], ["v"]):
        schema = {"properties": {"v": node}, "required": required}
        for value in VALUES:
            spaced = lines([value, None, value])
            actual, tight = checked(schema, spaced), checked(schema, spaced.replace(b": ", b":"))
            assert tight.rejects == actual.rejects
            assert tight.table.equals(actual.table)


_KINDS = ("object", "array", "string", "number", "boolean", "null")


def has_odd_columns(node: Any) -> bool:
    return not node or len(node.get("type", ())) == len(_KINDS)


def test_a_map_in_a_closed_record_is_looked_at(library_calls: list[bytes]) -> None:
    node = {"type": "object", "additionalProperties": {"type": "integer"}}
    schema = {"properties": {"v": node}, "additionalProperties": False}
    assert checked(schema, lines([{"x": 1}])).rejects == ()
    assert len(library_calls) == 1


def test_only_suspects_are_judged(library_calls: list[bytes]) -> None:
    schema = {"properties": {"v": {"type": "integer", "minimum": 3}}}
    actual = checked(schema, lines([5, 2, 7, 1]))
    assert actual.rejects == (
        (1, "property 'v': 2 is less than the minimum of 3"),
        (3, "property 'v': 1 is less than the minimum of 3"),
    )
    assert actual.table.column("v").to_pylist() == [5, 7]
    assert actual.extracted_at.length() == actual.versions.length() == 2
    assert len(library_calls) == 2


def test_rejects_of_reader_and_library_stay_in_order(library_calls: list[bytes]) -> None:
    schema = {"properties": {"v": {"type": "integer", "minimum": 3}}}
    data = b"\n" + lines([2, "x", 4]) + b" \r\n{\n" + lines([1])
    actual = checked(schema, data)
    assert [line for line, _ in actual.rejects] == [1, 2, 5, 6]
    assert actual.rows_read == 5
    assert len(library_calls) == 2
    marked = checked(schema, b"\xef\xbb\xbf" + lines([1, 5]))
    assert [line for line, _ in marked.rejects] == [0]


def test_null_or_nothing(library_calls: list[bytes]) -> None:
    schema = {"properties": {"v": {"type": "integer"}}}
    left_out = b'{"record":{}}\n'
    assert checked(schema, left_out * 3 + lines([1])).rejects == ()
    assert library_calls == []
    assert [line for line, _ in checked(schema, left_out + lines([None, 1])).rejects] == [1]
    assert len(library_calls) == 2
    spelt = b'{"record":{"\\u0076":null}}\n'
    assert len(checked(schema, spelt).rejects) == 1


def test_told_keywords() -> None:
    schema = {
        "properties": {
            "a": {"type": "integer", "not": {"const": 3}},
            "b": {"type": "string", "pattern": "(?=x)"},
            "c": {"type": "array", "items": {"type": "integer", "multipleOf": 1.5}},
            "d": {"type": "integer"},
        },
        "required": ["d", "z"],
    }
    assert RecordValidator(schema).slow_keywords() == (
        "'not' (property 'a')",
        "'pattern' (property 'b')",
        "'multipleOf' (property 'c')",
        "'required' (property 'z')",
    )
    assert RecordValidator({**schema, "allOf": []}).slow_keywords() == ("'allOf'",)
    beside = RecordValidator(
        {**schema, "minProperties": 1, "not": {"required": ["y"]}}
    ).slow_keywords()
    assert beside[:3] == ("'minProperties'", "'not'", "'not' (property 'a')")


def test_keywords_beside_the_properties() -> None:
    schema = {
        "properties": {"v": {"type": "integer", "minimum": 3}},
        "required": ["v"],
        "additionalProperties": False,
        "anyOf": [{"required": ["v"]}],
        "patternProperties": {"^x": {"type": "string"}},
        "maxProperties": 2,
    }
    records = [{"v": 3}, {"v": 1}, {}, {"v": 3, "x1": "a"}, {"v": 3, "x1": 1}, {"v": 4, "y": 1},
               {"v": 4, "x": "", "xx": ""}]  # fmt: skip
    data = b"".join(json.dumps({"record": record}).encode() + b"\n" for record in records)
    assert [line for line, _ in checked(schema, data).rejects] == [1, 2, 4, 5, 6]


def test_idle() -> None:
    assert RecordValidator({"properties": {"a": TEXT_OR_NULL, "b": {}}}).idle
    assert RecordValidator({}).idle
    assert RecordValidator({"type": "object"}).idle
    assert not RecordValidator({"properties": {"a": {"type": "string"}}}).idle


def test_reserved_columns_are_no_more_properties() -> None:
    schema = {"properties": {"v": {"type": "integer"}}, "additionalProperties": False}
    data = b'{"record":{"v":1,"_sdc_batched_at":"x"}}\n{"record":{"v":1,"_sdc_other":"x"}}\n'
    assert [line for line, _ in checked(schema, data).rejects] == [1]


def test_only_suspected_rows_are_judged() -> None:
    schema = {"properties": {"v": {"type": "integer", "minimum": 3}}}
    validator = RecordValidator(schema)
    table = LineReader(schema, envelope=True, strict=True).read(lines([2, 3])).table
    facts, judged = validator.facts(None, unexpected=False), []

    def record(row: int) -> dict[str, int]:
        judged.append(row)
        return {"v": [2, 3][row]}

    reason = "property 'v': 2 is less than the minimum of 3"
    assert validator.rejected(table, facts, record) == {0: reason}
    assert judged == [0]


@pytest.mark.parametrize(
    ("text", "name", "kind", "actual"),
    [
        ('{"a" : null}', "a", NULL, True),
        ('{"b":null,"a":1}', "a", NULL, False),
        ('{"b":"\\"a\\":null"}', "a", NULL, False),
        ('{"\\u0061":null}', "a", NULL, True),
        ('{"b":"\\u00e9"}', "a", NULL, False),
        ('{"a":-1}', "a", NUMBER, True),
        ('{"a":"1"}', "a", NUMBER, False),
        ('{"a":\t"1"}', "a", TEXT, True),
        ('{"a":\r"1"}', "a", TEXT, True),
        ('{"a.b":"1"}', "a.b", TEXT, True),
        ('{"a-b":"1"}', "a.b", TEXT, False),
        ('{"é":"1"}', "a", TEXT, False),
        ("{}", "é", TEXT, True),
    ],
)
def test_facts(text: str, name: str, kind: str, actual: bool) -> None:
    facts = Facts(text.encode())
    assert facts.may_hold(name, kind) is facts.may_hold(name, kind) is actual
    assert not Facts(None).may_hold(name, kind)
    asked = {kind: {f"other{number}" for number in range(150)}}
    for _ in range(2):  # alone, then together with all that has been asked
        assert Facts(text.encode(), asked=asked).may_hold(name, kind) is actual
        assert len(asked[kind]) >= 150


def test_facts_of_many_names_in_one_block() -> None:
    asked: dict[str, set[str]] = {}
    for text in ('{"a":"1","b":2}', '{"a":1,"b":"2"}', '{"a":1,"b":2}', '{"a":null,"b":"2"}'):
        for kind, value in ((TEXT, '"'), (NULL, "n")):
            facts = Facts(text.encode(), asked=asked)
            actual = [facts.may_hold(name, kind) for name in "ab"]
            assert actual == [f'"{name}":{value}' in text for name in "ab"]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "object"}, None),
        ({"type": "objekt"}, "at 'type': 'objekt' is not valid under any of the given schemas"),
        ({"properties": {"a": {"minimum": 1, "exclusiveMinimum": True}}},
         "at 'properties.a.exclusiveMinimum': True is not of type 'number'"),
        ({"properties": {"a": {"pattern": "("}}},
         "at 'properties.a.pattern': '(' is not a 'regex'"),
        ({"items": [{}]}, "at 'items': [{}] is not of type 'object', 'boolean'"),
        ({"required": "a"}, "at 'required': 'a' is not of type 'array'"),
    ],
)  # fmt: skip
def test_schemas_that_are_none(schema: dict[str, Any], problem: str | None) -> None:
    assert judge.schema_problem(schema) == problem


@pytest.mark.parametrize(
    ("value", "step", "expected"),
    [
        ("1.1", 0.01, True), ("4.35", 0.01, True), ("4.355", 0.01, False), ("0e5", 0.3, True),
        ("1e308", 0.5, True), ("1e308", 0.123456789, False), ("1e-400", 1, False),
        ("1e-99999999", 0.5, False), ("1e999", 2, False), ("12391239123.0", 1e-8, True),
    ],
)  # fmt: skip
def test_multiples_are_exact(value: str, step: float, expected: bool) -> None:
    assert judge.is_multiple(judge.ExactNumber(value), step) is expected


def test_reasons_are_one_short_line() -> None:
    validator = judge.validator_of({"properties": {"a": {"type": "integer"}}})
    reason = judge.reason(validator, {"a": {"b\n": "\ud800" * 5000}})
    assert reason is not None
    assert "\n" not in reason
    assert len(reason.encode()) < 2000
    assert reason.startswith("property 'a': {")


def test_a_reference_to_nowhere_is_a_reason() -> None:
    validator = judge.validator_of({"properties": {"a": {"$ref": "http://localhost:1/none"}}})
    reason = judge.reason(validator, {"a": 1})
    assert reason is not None
    assert reason.startswith("the schema cannot be applied: ")
