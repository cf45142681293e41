"""Settings by patterns of stream names, as they come out of files and variables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared.settings.loading import load_settings
from target_spark.config import SETTINGS_SCHEMA, stream_settings, target_config

BLOCK = {"format": "delta", "path": "out", "streams": {"or.d*": {"load_method": "upsert"}}}
FLAT = {"format": "delta", "path": "out", "streams.or.d*.load_method": "upsert"}


@pytest.mark.parametrize("supplied", [BLOCK, FLAT])
def test_a_file_may_hold_settings_for_patterns(supplied: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(supplied))
    actual = load_settings(SETTINGS_SCHEMA, [str(path)], "TARGET_SPARK_", {})
    assert actual["streams"] == BLOCK["streams"]
    assert stream_settings(target_config(actual), "or.ders").method == "upsert"


def test_two_files_add_to_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(FLAT))
    more = {"streams": {"or.d*": {"table_properties": {"a": {"b": 1}}}}}
    (tmp_path / "b.json").write_text(json.dumps(more))
    files = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    actual = load_settings(SETTINGS_SCHEMA, files, "TARGET_SPARK_", {})
    rule = {"load_method": "upsert", "table_properties": {"a.b": 1}}
    assert actual["streams"] == {"or.d*": rule}


def test_a_variable_may_hold_settings_for_patterns() -> None:
    environ = {"TARGET_SPARK_STREAMS": json.dumps(BLOCK["streams"])}
    actual = load_settings(SETTINGS_SCHEMA, ["ENV"], "TARGET_SPARK_", environ)
    assert actual["streams"] == BLOCK["streams"]
