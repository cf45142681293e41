"""The page for users, and how programs declare the settings."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from batch_documents import STRATEGY_KEYS

from shared.batch_config import DOTTED_KEYS, settings_properties, settings_rule, validate
from shared.errors import InvalidSettingsError
from shared.settings.batch_settings import (
    BATCH,
    BATCH_CONFIG,
    COMPRESSIONS,
    DOTTED,
    FAILURE,
    FailurePolicy,
    MegaBatch,
)
from shared.settings.checking import DURATION_UNITS, SIZE_UNITS, complete_settings
from shared.settings.loading import load_settings
from tools.docs import BATCH_TABLES as TABLES
from tools.docs import ROOT, filled, main

PAGE = ROOT / "docs" / "batch-config.md"
TEXT = PAGE.read_text(encoding="utf-8")
JSON_EXAMPLES = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)


def test_the_page_is_up_to_date():
    assert filled(TEXT) == TEXT
    assert main(["--check"]) == 0


@pytest.mark.parametrize("name", sorted(TABLES))
def test_the_page_holds_each_table(name):
    assert TEXT.count(f"<!-- batch:{name} -->\n") == 1
    assert TABLES[name]() in TEXT


def test_the_tables_name_every_setting():
    for field in BATCH_CONFIG:
        assert f"| `{'.'.join(field.path[1:])}` |" in TABLES["config"]()
    for field in BATCH.fields:
        assert f"| `{field.key}` | `{field.dotted}` |" in TABLES["strategies"]()
    for field in FAILURE.fields:
        assert f"| `{field.key}` | `{field.dotted}` |" in TABLES["failure"]()
    assert all(f"| `{name}` |" in TABLES["compressions"]() for name in COMPRESSIONS)
    assert all(f"`{unit}`" in TABLES["durations"]() for unit in DURATION_UNITS)
    assert all(f"`{unit}`" in TABLES["sizes"]() for unit in SIZE_UNITS)
    assert all(f"`{name}`" in TEXT for name in DOTTED)


def test_the_rows_of_a_table_have_equal_cells():
    for table in (write() for write in TABLES.values()):
        cells = {line.count(" | ") for line in table.splitlines()}
        assert len(cells) == 1


def test_there_are_examples():
    assert len(JSON_EXAMPLES) >= 4


@pytest.mark.parametrize("example", JSON_EXAMPLES)
def test_the_examples_are_right(example):
    validated = validate(json.loads(example)).check()
    assert validated.warnings == ()


def test_a_stale_page_is_named_and_written(tmp_path, capsys):
    page = tmp_path / "docs" / "batch-config.md"
    page.parent.mkdir()
    page.write_text("a\n<!-- batch:failure -->\nold\n<!-- /batch -->\nb\n", encoding="utf-8")
    assert main(["--check"], tmp_path) == 1
    assert "stale: docs/batch-config.md" in capsys.readouterr().err
    assert "old" in page.read_text(encoding="utf-8")
    assert main([], tmp_path) == 0
    assert TABLES["failure"]() in page.read_text(encoding="utf-8")
    assert main(["--check"], tmp_path) == 0
    assert main(["--nonsense"], tmp_path) == 2


@pytest.fixture(params=["tap", "target"])
def program(request):
    side = request.param
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"path": {"type": "string", "default": "out"}, **settings_properties(side)},
    }
    return side, schema, (settings_rule(side),)


def test_a_program_declares_every_setting(program):
    side, schema, _ = program
    properties = schema["properties"]
    assert set(DOTTED_KEYS) <= set(properties)
    keys = {key for strategy in STRATEGY_KEYS.values() for key in strategy}
    assert set(properties["batch"]["properties"]) == keys | {"strategy", "enable"}
    config = properties["batch_config"]["properties"]
    assert ("allowed_roots" in config) is (side == "target")
    assert config["storage"]["properties"]["options"]["secret"] is True
    for block in ("batch_config", "batch", "failure"):
        assert properties[block]["description"]


def test_a_program_accepts_right_settings(program):
    side, schema, rules = program
    document = {
        "batch_config": {"storage": {"root": "x", "options": {"a": {"b": 1}}}},
        "batch": {"strategy": "mega_batch", "size": 70000},
        "failure_strategy": "LogAndContinue",
    }
    completed = complete_settings(schema, document, rules)
    validated = validate(completed, side).check()
    assert validated == validate(document, side).check()
    assert completed["path"] == "out"


def test_files_and_variables_reach_the_validator(program, tmp_path):
    side, schema, rules = program
    options = {"client_kwargs": {"endpoint_url": "http://127.0.0.1:9000"}}
    document = {
        "batch_config": {"storage": {"root": "x", "options": options}},
        "batch.strategy": "mega_batch",
        "sink.batch.mega_batch_size": "70000",
        "source.batch.mega_batch_size": "70000",
    }
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    variables = {
        "P_BATCH__PARALLEL": "false",
        "P_FAILURE__POLICY": "RetryWithBackoff",
        "P_FAILURE__MAX_RETRIES": "9",
        "P_FAILURE__RETRY_BACKOFF": "2s",
        "P_BATCH_CONFIG__BATCH_SIZE": "5",
        "P_BATCH_CONFIG__INCLUDE_STREAMS": '["a"]',
        "P_BATCH_CONFIG__ENCODING__FORMAT": "csv",
    }
    loaded = load_settings(schema, [str(path), "ENV"], "P_", variables, tmp_path / ".env")
    validated = validate(complete_settings(schema, loaded, rules), side).check()
    assert validated.strategy == MegaBatch(70000, False, True)
    assert validated.failure == FailurePolicy("RetryWithBackoff", 9, 2.0)
    config = validated.batch_config
    assert (config.format, config.batch_size, config.include_streams) == ("csv", 5, ("a",))
    assert config.options == options


def test_a_program_s_defaults_add_no_batch_setting(program):
    side, schema, rules = program
    completed = complete_settings(schema, {}, rules)
    assert validate(completed, side) == validate({}, side)


@pytest.mark.parametrize(
    ("document", "paths"),
    [
        ({"batch": {"strategy": "fixed_size", "size": 0}}, ["['batch']['size']"]),
        ({"batch": {"strategy": "fixed_size", "sizee": 5}}, ["['batch']['sizee']"]),
        ({"batch": {"strategy": "fixed_size", "window": "1s"}}, ["['batch']['window']"]),
        (
            {"batch": {"strategy": "x"}, "failure": {"max_retries": 1}},
            ["['batch']['strategy']", "['failure']['max_retries']"],
        ),
        ({"batch": 3}, ["['batch']"]),
        ({"batch_config": {"storage": {"root": 3}}}, ["['batch_config']['storage']['root']"]),
    ],
    ids=str,
)
def test_a_program_names_each_problem_once(program, document, paths):
    _, schema, rules = program
    with pytest.raises(InvalidSettingsError) as caught:
        complete_settings(schema, document, rules)
    actual = [line.partition(":")[0].removeprefix("config") for line in caught.value.problems]
    assert sorted(actual) == sorted(paths)


def test_the_page_lies_in_the_repository():
    assert Path(__file__).parents[4] / "docs" / "batch-config.md" == PAGE
