"""Settings of target-spark: rules between fields and the typed result."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from shared.batch_config import DOTTED_KEYS, BatchConfig, FailurePolicy, FixedSize, MemoryBased
from shared.errors import InvalidSettingsError
from shared.maps.map_settings import PROPERTIES as TRANSFORMS
from shared.settings.about import settings_of
from shared.settings.loading import environment_settings
from target_spark.config import PROGRAM, REGISTRY, SETTINGS_SCHEMA, expectations, target_config
from target_spark.run_settings import StagingSettings, TargetConfig


def problems(**settings: Any) -> list[str]:
    with pytest.raises(InvalidSettingsError) as caught:
        target_config({"path": "out", **settings})
    return list(caught.value.problems)


def test_defaults_of_schema_and_dataclass_agree() -> None:
    assert target_config({"path": "out"}) == TargetConfig(path="out")


def test_every_setting_reaches_the_dataclass() -> None:
    declared = {name for name in SETTINGS_SCHEMA["properties"] if name not in DOTTED_KEYS}
    own = declared - {"batch", *REGISTRY.blocks, *TRANSFORMS}
    own |= {"backfill", "dry_run", "verification", "block", "strategy", "strategy_paths"}
    own |= {"transforms", "strict_end"}
    assert {field.name for field in fields(TargetConfig)} == own


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
        ("format", "xls"),
        ("path", "~nobody-of-this-name/out"),
        ("path", "./~nobody-of-this-name/out"),
        ("path", "s3://key:pass@bucket"),
        ("jdbc", {"url": "jdbc:postgresql://h/d"}),
        ("catalog", "lake"),
        ("type_conflicts", "cast"),
        ("column_names", "lower"),
        ("denormalized", False),
        ("generate_view", True),
        ("compact", True),
        ("streams", {"a*": {"load_method": "upsert"}}),
        ("streams", {"a*": {"load_methode": "overwrite"}}),
        ("load_method", "upsert"),
        ("load_method", "history"),
        ("default_target_schema", "a/b"),
        ("default_target_schema", ".."),
        ("default_target_schema", ""),
        ("table_prefix", "a/b"),
        ("table_prefix", "a\\b"),
        ("batch_size_rows", 0),
        ("batch_size_bytes", 0),
        ("batch_wait_limit_seconds", 0),
        ("staging", {"file_bytes": 0}),
        ("add_record_metadata", "yes"),
        ("cluster_by", ["a"]),
        ("upsert_order_by", "a"),
        ("maintenance", {"after_run": True}),
        ("write_audit_publish", True),
        ("batch_config", {"encoding": {"format": "xml"}}),
        ("batch_config", {"batch_size": "many"}),
        ("batch", {"strategy": "fixed"}),
        ("batch", {"size": 5}),
        ("failure", {"policy": "SendToDLQ"}),
        ("stream_maps", []),
        ("flattening_enabled", "perhaps"),
        ("flattening_max_depth", -1),
    ],
)
def test_what_is_refused(field: str, value: object) -> None:
    [line] = problems(**{field: value})
    assert line.startswith(f"config['{field}']")


def test_rows_are_audited_in_tables_of_lakes_alone() -> None:
    expect = {"orders": {"expect": {"no_rows_where": ["amount < 0"]}}}
    audited = {"path": "/lake", "streams": expect, "write_audit_publish": True}
    for form in ("iceberg", "delta"):
        actual = expectations(target_config({"format": form, **audited}), "orders")
        assert actual is not None
        assert list(actual.no_rows_where) == ["amount < 0"]
    assert problems(format="parquet", **audited)[-1].endswith("supported by Delta and Iceberg")
    assert problems(format="iceberg", streams=expect) == [
        "config['streams']['orders']['expect']['no_rows_where']: needs 'write_audit_publish': true"
    ]


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
        "TARGET_SPARK_BATCH_WAIT_LIMIT_SECONDS": "5",
        "TARGET_SPARK_BATCH__STRATEGY": "memory_based",
        "TARGET_SPARK_BATCH__MEMORY_SIZE": "64 MiB",
        "TARGET_SPARK_FAILURE": '{"policy": "LogAndContinue"}',
        "TARGET_SPARK_OPTIONS__COMPRESSION": "zstd",
        "TARGET_SPARK_STAGING__ROOT": "/staging",
        "TARGET_SPARK_STORAGE_OPTIONS__KEY": "123",
        "TARGET_SPARK_STORAGE_OPTIONS__ANON": "false",
        "TARGET_SPARK_STORAGE_OPTIONS__client_kwargs__region_name": "eu",
        "TARGET_SPARK_STORAGE_OPTIONS__CONFIG_KWARGS": '{"retries": 1}',
        "TARGET_SPARK_BATCH_CONFIG__STORAGE__ROOT": "in",
        "TARGET_SPARK_BATCH_CONFIG__STORAGE__OPTIONS__SECRET": "s",
        "TARGET_SPARK_STREAM_MAPS__orders__mail": "md5(mail)",
        "TARGET_SPARK_STREAM_MAPS__orders____filter__": "id > 1",
        "TARGET_SPARK_STREAM_MAP_CONFIG__HASH_SALT": "salt",
    }
    settings, bad = environment_settings(SETTINGS_SCHEMA, PROGRAM.env_prefix, variables)
    config = target_config(settings)
    assert bad == []
    assert (config.path, config.add_record_metadata) == ("/data/out", False)
    assert config.batch_wait_limit_seconds == 5.0
    assert config.strategy == MemoryBased(64 * 1024 * 1024)
    assert config.failure == FailurePolicy("LogAndContinue")
    assert config.options == {"compression": "zstd"}
    assert config.staging.root == "/staging"
    options = {"key": "123", "anon": False, "client_kwargs": {"region_name": "eu"}}
    assert config.storage_options == {**options, "config_kwargs": {"retries": 1}}
    assert settings["batch_config"]["storage"]["options"] == {"secret": "s"}
    assert settings["stream_maps"] == {"orders": {"mail": "md5(mail)", "__filter__": "id > 1"}}
    assert settings["stream_map_config"] == {"hash_salt": "salt"}


def test_every_declared_setting_has_a_description() -> None:
    assert [item.name for item in settings_of(PROGRAM) if not item.schema.get("description")] == []


def test_batch_blocks_reach_the_dataclass() -> None:
    config = target_config(
        {
            "path": "out",
            "batch_config": {"cleanup": True, "allowed_roots": ["/in"]},
            "batch": {"strategy": "fixed_size", "size": 50000, "timeout": "5 minutes"},
            "failure": {"policy": "RetryWithBackoff", "retry_backoff": "2s"},
        }
    )
    assert config.batch_config == BatchConfig(cleanup=True, allowed_roots=("/in",))
    assert config.strategy == FixedSize(50000, 300.0)
    assert config.failure == FailurePolicy("RetryWithBackoff", 3, 2.0)


def test_dotted_spelling() -> None:
    config = target_config(
        {
            "path": "out",
            "sink.batch.strategy": "memory_based",
            "batch.memory_size": "32 MiB",
            "failure_strategy": "LogAndContinue",
        }
    )
    assert config.strategy == MemoryBased(32 * 1024 * 1024)
    assert config.failure.policy == "LogAndContinue"


def test_empty_blocks_are_not_given() -> None:
    config = target_config({"path": "out", "batch": {}, "batch_config": {}, "failure": {}})
    assert config == TargetConfig(path="out")


def test_a_strategy_that_is_switched_off() -> None:
    config = target_config({"path": "out", "batch": {"enable": False}, "batch_size_rows": 5})
    assert (config.strategy, config.batch_size_rows) == (None, 5)


@pytest.mark.parametrize(
    ("strategy", "setting", "is_wrong"),
    [
        ("fixed_size", "batch_size_rows", True),
        ("fixed_size", "batch_size_bytes", True),
        ("fixed_size", "batch_wait_limit_seconds", True),
        ("time_window", "batch_wait_limit_seconds", True),
        ("low_latency", "batch_wait_limit_seconds", True),
        ("memory_based", "batch_wait_limit_seconds", False),
        ("adaptive_size", "batch_wait_limit_seconds", False),
        ("mega_batch", "batch_wait_limit_seconds", False),
        ("mega_batch", "batch_size_rows", True),
    ],
)
def test_a_strategy_decides_instead_of_the_bounds(strategy, setting, is_wrong) -> None:
    settings = {"path": "out", "batch": {"strategy": strategy}, setting: 5}
    if not is_wrong:
        assert target_config(settings).batch_wait_limit_seconds == 5.0
        return
    with pytest.raises(InvalidSettingsError) as caught:
        target_config(settings)
    [line] = caught.value.problems
    assert line.startswith(
        f"config['{setting}']: cannot be combined with the strategy '{strategy}'"
    )


def test_a_setting_without_effect_is_warned_about(caplog) -> None:
    target_config({"path": "out", "batch": {"strategy": "mega_batch", "reuse_buffer": True}})
    assert "config['batch']['reuse_buffer']: has no effect" in caplog.text


@pytest.mark.parametrize("strategy", ["fixed_size", "mega_batch"])
def test_the_cost_of_commits_is_not_guessed(caplog, strategy) -> None:
    target_config({"path": "out", "batch": {"strategy": strategy}})
    assert caplog.text == ""
