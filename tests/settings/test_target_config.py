"""Settings of target-spark: rules between fields and the typed result."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from shared.about import settings_of
from shared.settings import environment_settings
from shared.settings_check import InvalidSettingsError
from target_spark.config import (
    PROGRAM,
    SETTINGS_SCHEMA,
    StagingSettings,
    TargetConfig,
    target_config,
)


def problems(**settings: Any) -> list[str]:
    with pytest.raises(InvalidSettingsError) as caught:
        target_config({"path": "out", **settings})
    return list(caught.value.problems)


def test_defaults_of_schema_and_dataclass_agree() -> None:
    assert target_config({"path": "out"}) == TargetConfig(path="out")


def test_every_setting_reaches_the_dataclass() -> None:
    assert {field.name for field in fields(TargetConfig)} == set(SETTINGS_SCHEMA["properties"])


def test_everything_given() -> None:
    config = target_config(
        {
            "path": "out",
            "format": "csv",
            "load_method": "overwrite",
            "default_target_schema": "raw",
            "table_prefix": "p_",
            "add_record_metadata": False,
            "validate_records": False,
            "batch_size_rows": 10.0,
            "batch_size_bytes": 100,
            "batch_wait_limit_seconds": 5,
            "staging": {"root": "/x", "file_bytes": 10},
            "partition_by": ["a", "b"],
            "hard_delete": True,
            "activate_version": True,
            "options": {"compression": "zstd", "header": False},
            "spark": {"remote": "local[2]"},
        }
    )
    assert (config.format, config.load_method, config.path) == ("csv", "overwrite", "out")
    assert (config.default_target_schema, config.table_prefix) == ("raw", "p_")
    assert (config.add_record_metadata, config.validate_records) == (False, False)
    assert isinstance(config.batch_size_rows, int)
    assert (config.batch_size_rows, config.batch_size_bytes) == (10, 100)
    assert config.batch_wait_limit_seconds == 5.0
    assert config.staging == StagingSettings("/x", 10)
    assert config.partition_by == ("a", "b")
    assert config.hard_delete
    assert config.options == {"compression": "zstd", "header": "false"}
    assert config.spark.remote == "local[2]"


def test_path_is_required() -> None:
    with pytest.raises(InvalidSettingsError) as caught:
        target_config({})
    assert caught.value.problems == ("config: 'path' is a required property",)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", "delta"),
        ("load_method", "upsert"),
        ("default_target_schema", "a/b"),
        ("default_target_schema", ".."),
        ("default_target_schema", ""),
        ("table_prefix", "a/b"),
        ("table_prefix", "a\\b"),
        ("batch_size_rows", 0),
        ("batch_size_bytes", 0),
        ("batch_wait_limit_seconds", 0),
        ("partition_by", ["a", "a"]),
        ("partition_by", "a"),
        ("staging", {"file_bytes": 0}),
        ("add_record_metadata", "yes"),
        ("batch_config", {}),
        ("batch", {"strategy": "fixed_size"}),
        ("failure", {"policy": "FailBatch"}),
        ("stream_maps", {}),
        ("flattening_enabled", True),
    ],
)
def test_what_is_refused(field: str, value: object) -> None:
    [line] = problems(**{field: value})
    assert line.startswith(f"config['{field}']")


def test_names_without_slashes_are_asked_for_in_words() -> None:
    assert problems(table_prefix="a/b") == [
        "config['table_prefix']: 'a/b' is not a name without slashes"
    ]


def test_hard_delete_without_activate_version() -> None:
    [line] = problems(hard_delete=True, activate_version=False)
    assert line.startswith("config['hard_delete']: has no effect")


def test_master_and_remote() -> None:
    assert len(problems(spark={"master": "x", "remote": "y"})) == 1


def test_from_the_environment() -> None:
    variables = {
        "TARGET_SPARK_PATH": "/data/out",
        "TARGET_SPARK_ADD_RECORD_METADATA": "false",
        "TARGET_SPARK_BATCH_SIZE_ROWS": "1000",
        "TARGET_SPARK_PARTITION_BY": '["day"]',
        "TARGET_SPARK_OPTIONS__COMPRESSION": "zstd",
        "TARGET_SPARK_STAGING__ROOT": "/staging",
    }
    settings, bad = environment_settings(SETTINGS_SCHEMA, PROGRAM.env_prefix, variables)
    config = target_config(settings)
    assert bad == []
    assert (config.path, config.add_record_metadata) == ("/data/out", False)
    assert (config.batch_size_rows, config.partition_by) == (1000, ("day",))
    assert config.options == {"compression": "zstd"}
    assert config.staging.root == "/staging"


def test_every_declared_setting_has_a_description() -> None:
    assert [item.name for item in settings_of(PROGRAM) if not item.schema.get("description")] == []
