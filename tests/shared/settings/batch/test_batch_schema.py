"""The exported JSON Schema: valid, of one mind with the validator, and fit for editors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from batch_documents import DOTTED_NAMES, STRATEGY_KEYS, damaged, documents, dotted
from hypothesis import given, settings
from jsonschema import Draft202012Validator

from shared.batch_config import DOTTED_KEYS, json_schema, validate
from shared.settings.batch_settings import (
    BATCH,
    BATCH_CONFIG,
    DOTTED,
    FAILURE,
    POLICIES,
    STRATEGIES,
)
from shared.settings.checking import read, schema_problems

SIDES = ("tap", "target", None)
SCHEMAS = {side: Draft202012Validator(json_schema(side)) for side in SIDES}
SAMPLES = sorted((Path(__file__).parents[4] / "sample_configs").glob("batch_config*.json"))


def beyond_schema(problem):
    """Return whether JSON Schema cannot see a problem."""
    is_text = problem.value is not None and problem.value.startswith("'")
    measured = (
        is_text and problem.allowed is not None and problem.allowed.startswith(("a time", "a size"))
    )
    compared = ("is above", "is below", "is also in 'include_streams'")
    return measured or any(words in problem.message for words in compared)


@pytest.mark.parametrize("side", SIDES)
def test_the_schema_is_valid(side):
    schema = json_schema(side)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema


@settings(max_examples=150, deadline=None)
@given(damaged())
def test_schema_and_validator_agree(document):
    for side in SIDES:
        problems = validate(document, side).problems
        accepted = SCHEMAS[side].is_valid(document)
        if not problems:
            assert accepted, [error.message for error in SCHEMAS[side].iter_errors(document)]
        elif accepted:
            assert all(beyond_schema(problem) for problem in problems), problems


@settings(max_examples=100, deadline=None)
@given(documents())
def test_the_schema_accepts_right_documents_dotted(document):
    for as_text in (False, True):
        flat = dotted(document, as_text=as_text)
        if not validate(flat, "tap").problems:
            assert SCHEMAS["tap"].is_valid(flat)


AGREED = [
    ({}, True),
    ({"anything": 1, "path": "x", "batch_size_rows": 5}, True),
    ({"batch": {}}, True),
    ({"batch": []}, False),
    ({"batch": {"strategy": "fixed_size"}}, True),
    ({"batch": {"strategy": "fixed_size", "size": 0}}, False),
    ({"batch": {"strategy": "fixed_size", "size": 5.0}}, True),
    ({"batch": {"strategy": "fixed_size", "size": 2**63}}, False),
    ({"batch": {"strategy": "fixed_size", "timeout": "1.5s"}}, True),
    ({"batch": {"strategy": "fixed_size", "timeout": "1.5 sec"}}, False),
    ({"batch": {"strategy": "fixed_size", "timeout": 0}}, False),
    ({"batch": {"strategy": "fixed_size", "window": "1s"}}, False),
    ({"batch": {"strategy": "time_window", "window": "1s"}}, True),
    ({"batch": {"strategy": "memory_based", "memory_size": "1 MiB"}}, True),
    ({"batch": {"strategy": "memory_based", "memory_size": "1 Mb"}}, False),
    ({"batch": {"strategy": "nonsense"}}, False),
    ({"batch": {"enable": True}}, False),
    ({"batch": {"enable": False}}, True),
    ({"batch": {"enable": False, "size": 5}}, True),
    ({"batch": {"enable": False, "size": "5"}}, False),
    ({"batch": {"size": 5}}, False),
    ({"failure": {}}, True),
    ({"failure": {"policy": "FailBatch"}}, True),
    ({"failure": {"policy": "SendToDLQ"}}, False),
    ({"failure": {"policy": "SendToDLQ", "dead_letter_path": "x"}}, True),
    ({"failure": {"policy": "SendToDLQ", "dead_letter_path": "s3://a:b@c"}}, False),
    ({"failure": {"dead_letter_path": "x"}}, False),
    ({"failure": {"max_retries": 3}}, False),
    ({"failure": {"policy": "RetryWithBackoff", "max_retries": 3}}, True),
    ({"failure": {"policy": "RetryWithBackoff", "max_retries": 1001}}, False),
    ({"batch.strategy": "fixed_size", "batch.size": "5"}, True),
    ({"batch.strategy": "fixed_size", "batch.size": "x"}, False),
    ({"sink.batch.strategy": "mega_batch", "sink.batch.parallel": "True"}, True),
    ({"sink.batch.strategy": "mega_batch", "sink.batch.parallel": "yes"}, False),
    ({"batch.sizee": 5}, False),
    ({"sink.nonsense": 5}, False),
    ({"failure.policy": "FailBatch"}, False),
    (
        {
            "batch": {"strategy": "mega_batch", "parallel": True},
            "failure": {"policy": "RetryWithBackoff"},
        },
        False,
    ),
    (
        {
            "batch": {"strategy": "mega_batch", "parallel": False},
            "failure": {"policy": "RetryWithBackoff"},
        },
        True,
    ),
    ({"batch": {"strategy": "mega_batch"}, "failure": {"policy": "RetryWithBackoff"}}, True),
]


@pytest.mark.parametrize(("document", "expected"), AGREED, ids=[str(doc)[:70] for doc, _ in AGREED])
@pytest.mark.parametrize("side", SIDES)
def test_schema_and_validator_agree_on_cases(document, expected, side):
    # The tap passes over values behind `sink.`; the schema checks all that it describes.
    if not (side == "tap" and any(key.startswith("sink.batch") for key in document)):
        assert (not validate(document, side).problems) is expected
    assert SCHEMAS[side].is_valid(document) is expected


CONFIGS = [
    ({}, "all"),
    ({"encoding": {}, "storage": {}}, "all"),
    ({"storage": {"root": "x"}}, "all"),
    ({"storage": {"root": ""}}, "none"),
    ({"storage": {"root": "s3://a:b@c"}}, "none"),
    ({"storage": {"root": "x", "prefix": "/a"}}, "none"),
    ({"storage": {"root": "x", "options": {"any": [1, {}]}}}, "all"),
    ({"storage": {"root": "x"}, "batch_size": 0}, "none"),
    ({"storage": {"root": "x"}, "encoding": {"format": "parquet", "compression": "lz4"}}, "all"),
    ({"storage": {"root": "x"}, "encoding": {"format": "parquet", "compression": "bzip2"}}, "none"),
    ({"storage": {"root": "x"}, "encoding": {"compression": "bzip2"}}, "all"),
    ({"storage": {"root": "x"}, "encoding": {"compression": "snappy"}}, "none"),
    ({"storage": {"root": "x"}, "encoding": {"compression_level": 9}}, "all"),
    ({"storage": {"root": "x"}, "encoding": {"compression_level": 10}}, "none"),
    ({"storage": {"root": "x"}, "encoding": {"compression_level": 0}}, "none"),
    (
        {"storage": {"root": "x"}, "encoding": {"compression": "zstd", "compression_level": 1}},
        "none",
    ),
    (
        {
            "storage": {"root": "x"},
            "encoding": {"format": "parquet", "compression": "zstd", "compression_level": 22},
        },
        "all",
    ),
    (
        {"storage": {"root": "x"}, "encoding": {"format": "arrow", "compression_level": 1}},
        "none",
    ),
    ({"batch_size": 5}, "target"),
    ({"encoding": {"format": "csv"}}, "target"),
    ({"storage": {"prefix": "x"}}, "target"),
    ({"cleanup": True}, "not tap"),
    ({"allowed_roots": ["x"], "storage": {"root": "x"}}, "not tap"),
    ({"allowed_roots": []}, "none"),
    ({"unknown": 1}, "none"),
]


@pytest.mark.parametrize(("block", "accepted"), CONFIGS, ids=[str(block) for block, _ in CONFIGS])
@pytest.mark.parametrize("side", SIDES)
def test_the_root_and_the_target_s_settings_follow_the_side(block, accepted, side):
    document = {"batch_config": block}
    expected = {
        "all": True,
        "none": False,
        "target": side == "target",
        "not tap": side != "tap",
    }[accepted]
    assert (not validate(document, side).problems) is expected
    assert SCHEMAS[side].is_valid(document) is expected


@pytest.mark.parametrize("name", STRATEGIES)
def test_an_editor_can_complete_each_strategy(name):
    rules = json_schema()["properties"]["batch"]["allOf"]
    rule = next(
        r for r in rules if r["if"].get("properties", {}).get("strategy") == {"const": name}
    )
    properties = rule["then"]["properties"]
    assert sorted(properties) == sorted(STRATEGY_KEYS[name])
    for described in properties.values():
        assert described["description"].startswith(f"({name}) ")
        assert "default" in described


@pytest.mark.parametrize("policy", POLICIES)
def test_an_editor_can_complete_each_policy(policy):
    rules = json_schema()["properties"]["failure"]["allOf"]
    assert [r["if"]["properties"]["policy"]["const"] for r in rules].count(policy) == 1


def test_the_defaults_of_the_schema_pass_it():
    for block in (BATCH, FAILURE):
        for name, fields in block.variants.items():
            keys = {field.key: field.default for field in fields if field.default is not None}
            if name == "SendToDLQ":
                keys["dead_letter_path"] = "x"
            document = {block.name: {block.chooser.key: name, **keys}}
            assert SCHEMAS[None].is_valid(document)
            bare = {key: item for key, item in keys.items() if key == "dead_letter_path"}
            short = validate({block.name: {block.chooser.key: name, **bare}})
            assert validate(document).strategy == short.strategy
            assert validate(document).failure == short.failure


def test_every_field_has_a_description_and_a_right_default():
    fields = [*BATCH_CONFIG, *BATCH.fields, *FAILURE.fields]
    for field in fields:
        assert field.description.endswith(".")
        assert field.attribute
        if field.default is not None:
            assert list(schema_problems(field.schema, field.default)) == []
            assert read(field.schema, field.default) is not None
    for block in (BATCH, FAILURE):
        assert all(field.dotted in DOTTED for field in block.fields)


def test_dotted_names_are_all_in_the_schema():
    properties = json_schema()["properties"]
    assert set(DOTTED_KEYS) <= set(properties)
    assert set(DOTTED_NAMES.values()) <= set(properties)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_the_sample_files_are_right(sample):
    document = json.loads(sample.read_text(encoding="utf-8"))
    assert validate(document).problems == ()
    assert SCHEMAS[None].is_valid(document)


def test_the_sample_files_show_every_strategy_and_policy():
    documents_read = [json.loads(path.read_text(encoding="utf-8")) for path in SAMPLES]
    results = [validate(document, "target").check() for document in documents_read]
    assert {type(result.strategy) for result in results} >= set(STRATEGIES.values())
    assert {result.failure.policy for result in results} == set(POLICIES)
    assert sum(result.batch_config is not None for result in results) >= 3
