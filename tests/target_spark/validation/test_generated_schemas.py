"""Schemas and records that hypothesis makes up: one verdict by our readers and by the library."""

from __future__ import annotations

import json
import re
import warnings
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from test_keyword_cases import NOT_STORED

from shared.formats.json_lines import LineReader
from shared.formats.typed_rows import RowReader
from target_spark.validation.checks import LineChecker, RowChecker
from target_spark.validation.columns import are_filled, columns_to_fill, is_plain_schema
from target_spark.validation.judge import certain_pattern, draft, schema_problem
from target_spark.validation.validator import RecordValidator

SLOW = settings(
    max_examples=400, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
NAMES = st.sampled_from(["a", "b", "c"])
NUMBERS = st.sampled_from([-1, 0, 1, 2, 3, 0.5, 1.5, 1.0, -0.0, 1e3, 2**53 + 1, 10**20])
STRINGS = st.sampled_from(["", "a", "ab", "é", "😀", "1", "a\nb", "2020-01-01", "\x1f"])
SCALARS = st.one_of(NUMBERS, STRINGS, st.booleans(), st.none())
VALUES = st.recursive(
    SCALARS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(NAMES, below, max_size=3),
    max_leaves=6,
)
BOUNDS = st.sampled_from([-1, 0, 1, 2, 0.5, 1.5, 2**53 + 1, 10**20])
SIZES = st.integers(0, 3)
PATTERNS = st.sampled_from(["^a", "b$", r"\d", r"^\w*$", "^[^a]*$", "(?=a)", ".", r"\S$", "é|a"])


def optional(draw: st.DrawFn, node: dict[str, Any], **keywords: Any) -> None:
    for keyword, values in keywords.items():
        if draw(st.integers(0, 3)) == 0:
            node[keyword] = draw(values)


@st.composite
def nodes(draw: st.DrawFn, depth: int = 2) -> Any:
    kinds = ["null", "boolean", "integer", "number", "string"] + ["object", "array"] * (depth > 0)
    node: dict[str, Any] = {}
    words = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=2, unique=True))
    if draw(st.booleans()):
        words = [words[0], "null"] if words[0] != "null" else words[:1]
    if draw(st.integers(0, 9)):
        node["type"] = words if len(words) > 1 or draw(st.booleans()) else words[0]
    optional(draw, node, enum=st.lists(SCALARS, max_size=4), const=SCALARS)
    if {"integer", "number"} & set(words):
        optional(
            draw, node, minimum=BOUNDS, maximum=BOUNDS, exclusiveMinimum=BOUNDS,
            exclusiveMaximum=BOUNDS, multipleOf=st.sampled_from([1, 2, 0.5, 0.1, 1.5]),
        )  # fmt: skip
    if "string" in words:
        optional(draw, node, minLength=SIZES, maxLength=SIZES, pattern=PATTERNS)
    if "array" in words:
        optional(
            draw, node, items=nodes(depth - 1), minItems=SIZES, maxItems=SIZES,
            uniqueItems=st.booleans(), contains=nodes(0),
            prefixItems=st.lists(nodes(0), min_size=1),
        )  # fmt: skip
    if "object" in words:
        optional(
            draw, node, properties=st.dictionaries(NAMES, nodes(depth - 1), max_size=2),
            required=st.lists(NAMES, max_size=2, unique=True),
            additionalProperties=st.booleans() | nodes(0), minProperties=SIZES,
            maxProperties=SIZES, propertyNames=nodes(0),
            patternProperties=st.dictionaries(PATTERNS, nodes(0), max_size=1),
            dependentRequired=st.dictionaries(NAMES, st.lists(NAMES, unique=True), max_size=1),
        )  # fmt: skip
    if depth:
        both = st.lists(nodes(depth - 1), min_size=1, max_size=2)
        some = st.sampled_from(["anyOf", "oneOf", "allOf", "not", "null", "", "", ""])
        word = draw(some)
        if word == "not":
            node["not"] = draw(nodes(0))
        elif word == "null":
            return {"anyOf": [node, {"type": "null"}]}
        elif word:
            node[word] = draw(both)
    return node


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = draw(st.dictionaries(NAMES, nodes(), min_size=1, max_size=3))
    optional(
        draw, schema, required=st.lists(NAMES, unique=True, max_size=2),
        additionalProperties=st.booleans(), maxProperties=SIZES,
    )  # fmt: skip
    return schema


RECORDS = st.lists(st.dictionaries(NAMES, VALUES, max_size=3), min_size=1, max_size=8)


@SLOW
@given(schemas(), RECORDS)
def test_one_verdict(schema: dict[str, Any], records: list[dict[str, Any]]) -> None:
    data = b"".join(json.dumps({"record": record}).encode() + b"\n" for record in records)
    checker = LineChecker(schema, envelope=True)
    reader = LineReader(schema, envelope=True, strict=True, closed=checker.closed)
    read = reader.read(data)
    actual = checker.fitting(read, data)
    refused, stored = dict(actual.rejects), {line for line, _ in read.rejects}
    assert actual.table.num_rows == len(records) - len(refused)
    library = draft()(schema)
    for place, record in enumerate(records):
        if library.is_valid(record):
            if place in refused:
                assert place in stored, refused[place]
                assert _is_of_columns(schema, refused[place]), (record, refused[place])
        else:
            assert place in refused, record


WORDS = ["null", "boolean", "integer", "number", "string", "object"]
TYPES = st.sampled_from(WORDS) | st.lists(st.sampled_from(WORDS), min_size=1, max_size=3)
PLAIN = st.fixed_dictionaries(
    {"type": TYPES},
    optional={
        "format": st.sampled_from(["date-time", "date", "singer.decimal", "uuid", 1]),
        "title": st.sampled_from(["t", 1]),
        "precision": st.just(4),
        "minimum": st.just(1),
    },
) | st.builds(
    lambda node, bits: {**node, "minimum": -(1 << bits - 1), "maximum": (1 << bits - 1) - 1},
    st.fixed_dictionaries({"type": TYPES}, optional={"title": st.just("t")}),
    st.sampled_from([8, 16, 32, 64]),
)
PLAIN_SCHEMAS = st.fixed_dictionaries(
    {"properties": st.dictionaries(NAMES, PLAIN, min_size=1)},
    optional={
        "type": TYPES | st.just(["null", "object"]),
        "required": st.lists(NAMES | st.just("a"), max_size=2),
        "additionalProperties": st.sampled_from([True, True, False, 1, {}]),
        "$schema": st.sampled_from([draft().META_SCHEMA["$id"], "http://json-schema.org/schema#"]),
    },
)


def test_a_bound_that_a_double_rounds_is_not_that_of_a_width() -> None:
    node = {"type": "integer", "minimum": float(-(2**63)), "maximum": 2**63 - 1}
    assert not is_plain_schema({"properties": {"a": node}})
    assert is_plain_schema({"properties": {"a": {**node, "minimum": -(2**63)}}})


@SLOW
@given(PLAIN_SCHEMAS, RECORDS)
def test_the_columns_of_a_plain_schema_show_what_must_be_checked(
    schema: dict[str, Any], records: list[dict[str, Any]]
) -> None:
    columns = columns_to_fill(schema, (), strict=True)
    if columns is None:
        assert not is_plain_schema(schema)
        return
    assert schema_problem(schema) is None
    assert RecordValidator(schema).slow_keywords() == ()
    data = b"".join(json.dumps({"record": record}).encode() + b"\n" for record in records)
    checker = LineChecker(schema, envelope=True)
    assert not checker.closed
    read = LineReader(schema, envelope=True, strict=True).read(data)
    if are_filled(read.table, columns):
        assert checker.fitting(read, data) is read
    table = read.table.select(read.table.column_names[:2])
    rows = RowReader(schema, strict=True).read(table)
    if are_filled(rows.table, columns):
        assert RowChecker(schema).fitting(rows, table).rejects == rows.rejects


def _is_of_columns(schema: dict[str, Any], reason: str) -> bool:
    """Return whether the reader says what its columns cannot hold: see docs/failure-policies.md."""
    if NOT_STORED.search(reason):
        return True
    return "is not of type" in reason and _infers(schema)


def _infers(node: Any) -> bool:
    """Return whether anything but `type` decides the type of a column."""
    if isinstance(node, list):
        return any(map(_infers, node))
    if not isinstance(node, dict):
        return False
    if "type" not in node or {"allOf", "anyOf", "oneOf"} & set(node):
        return True
    below = list(node.get("properties", {}).values())
    return any(map(_infers, [*below, node.get("items"), node.get("additionalProperties")]))


ATOMS = st.sampled_from(
    ["a", "b", ".", r"\d", r"\D", r"\s", r"\S", r"\w", r"\W", "[a-c]", "[^a-c]", r"[\d_]", "é",
     "^", "$", r"\Z", r"\A", "(a|b)", "(?:ab)", r"\.", r"\n", "[^é]", r"[\w-]", r"\x41", "-"]
)  # fmt: skip
QUANTIFIERS = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,2}", "*?", "{,2}", "{2,}"])
ODD = "ab1_-. \n\t\x0b\x1c\x85\xa0é²\u0661A\u2028😀"


@settings(max_examples=600, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(ATOMS, QUANTIFIERS), min_size=1, max_size=5),
    st.lists(st.text(ODD, max_size=5), min_size=1, max_size=10),
)
def test_what_re2_matches_python_finds(parts: list[tuple[str, str]], texts: list[str]) -> None:
    pattern = "".join(atom + many for atom, many in parts)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            python = re.compile(pattern)
    except re.error:
        return
    certain = certain_pattern(pattern)
    if certain is None:
        assert set("^$") & set(pattern) or "\\A" in pattern or "\\Z" in pattern
        return
    matched = pc.match_substring_regex(pa.array(texts), certain).to_pylist()
    for text, does in zip(texts, matched, strict=True):
        actual = python.search(text) is not None
        assert actual or not does, (pattern, certain, text)
        if text.isascii() and not set(text) & set("\n\x0b\x1c"):
            assert does == actual, (pattern, certain, text)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(nodes(1), st.lists(VALUES, min_size=1, max_size=5))
def test_multiple_of_alone_differs_from_the_library(node: Any, values: list[Any]) -> None:
    ours, theirs = draft()(node), Draft202012Validator(node)
    for value in values:
        if "multipleOf" not in json.dumps(node):
            assert ours.is_valid(value) == theirs.is_valid(value)
