"""The setting `storage_options`: it arrives as it is, and is shown nowhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shared.errors import SingerSparkError
from target_spark.cli import main
from target_spark.config import target_config
from target_spark.destinations.destination import Tools
from target_spark.destinations.files.file_destination import file_destination

SECRET = "hush-hush-secret"
OPTIONS = {"key": "k", "secret": SECRET, "client_kwargs": {"region_name": "r", "verify": False}}


def test_values_keep_their_nesting() -> None:
    config = target_config({"path": "s3://b/t", "storage_options": OPTIONS})
    assert config.storage_options == OPTIONS
    assert SECRET not in repr(config)
    settings = file_destination(config, Tools(pytest.fail, lambda *_: {}))
    assert settings.options.for_url("s3://b/t")["client_kwargs"] == OPTIONS["client_kwargs"]
    assert SECRET not in repr(settings) + repr(settings.options)
    assert target_config({"path": "out"}).storage_options == {}


@pytest.mark.parametrize("wrong", (SECRET, [SECRET], 7))
def test_a_wrong_value_is_not_shown(wrong: Any) -> None:
    with pytest.raises(SingerSparkError) as error:
        target_config({"path": "out", "storage_options": wrong})
    assert "storage_options" in str(error.value)
    assert SECRET not in str(error.value)


def test_about_and_validation_show_no_value(tmp_path: Path, capfd: Any) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"path": "s3://b/t", "storage_options": OPTIONS}))
    assert main(["--config", str(path), "--validate-config"]) == 0
    assert main(["--config", str(path), "--about", "--format", "json"]) == 0
    shown = capfd.readouterr()
    assert '"storage_options"' in shown.out
    assert SECRET not in shown.out + shown.err
