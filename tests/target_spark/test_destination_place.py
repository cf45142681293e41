"""Settings for a path or URL: of a run, and those that `target-spark init` writes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from shared.errors import SettingsError
from shared.settings.config_text import config_text
from shared.settings.yaml_text import yaml_value
from target_spark.config import target_config
from target_spark.destination_place import destination_draft, place_settings
from target_spark.destinations.destination_declaration import BUILT_IN

URL = "jdbc:postgresql://db.example.com/warehouse"


def draft(place: Any, form: str | None = None, **environ: str) -> Any:
    """Return what is drafted, read back from its text."""
    actual = yaml_value(config_text([], destination_draft(str(place), form, environ)).encode())
    target_config(actual)
    return actual


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_settings_of_a_run(tmp_path: Path) -> None:
    assert place_settings("out", None) == {"path": "out"}
    assert place_settings("out", "delta") == {"path": "out", "format": "delta"}
    assert place_settings(URL, None) == {"format": "jdbc", "jdbc": {"url": URL}}
    put(tmp_path, "a.json")
    with pytest.raises(SettingsError, match=r"is a file .*--config"):
        place_settings(f"{tmp_path}/a.json", None)


@pytest.mark.parametrize("declared", BUILT_IN, ids=lambda declared: declared.name)
def test_every_format(tmp_path: Path, declared: Any) -> None:
    place = URL if declared.name == "jdbc" else str(tmp_path / "new")
    created = destination_draft(place, declared.name, {})
    assert yaml_value(config_text([], created).encode())["format"] == declared.name
    # What stands in comments is valid, too.
    target_config(yaml_value(re.sub(r"# (?=[a-z_]+: )", "", config_text([], created)).encode()))


@pytest.mark.parametrize(
    ("files", "form"),
    [
        ((), "parquet"),
        (("orders/a.parquet", "_tmp/b.csv"), "parquet"),
        (("raw/orders/part-0.csv.gz",), "csv"),
        (("orders/_delta_log/0.json", "orders/a.parquet"), "delta"),
        (("db/orders/metadata/v1.metadata.json", "db/orders/data/a.parquet"), "iceberg"),
    ],
)
def test_the_format_is_that_of_the_tables(
    tmp_path: Path, files: tuple[str, ...], form: str
) -> None:
    put(tmp_path, *files)
    assert draft(tmp_path)["format"] == form


def test_several_formats_are_asked_for(tmp_path: Path) -> None:
    put(tmp_path, "a/a.csv", "b/b.orc")
    with pytest.raises(SettingsError, match=r"several formats \(csv, orc\) .*--format"):
        draft(tmp_path)
    assert draft(tmp_path, "orc")["format"] == "orc"


def test_s3() -> None:
    assert draft("s3://bucket/lake") == {"format": "parquet", "path": "s3://bucket/lake"}
    assert "hadoop-aws" in draft("s3://bucket/lake", "iceberg")["spark"]["packages"][0]


def test_a_database_keeps_its_password_in_the_environment() -> None:
    login = {"TARGET_SPARK_JDBC__USER": "me", "TARGET_SPARK_JDBC__PASSWORD": "hush"}
    assert draft(URL, **login)["jdbc"] == {"user": "me", "url": URL}
    text = config_text([], destination_draft(URL, None, login))
    assert "export TARGET_SPARK_JDBC__PASSWORD=..." in " ".join(text.split("\n  # "))
    assert "hush" not in text


@pytest.mark.parametrize(
    "place",
    [f"{URL}?user=me&password=hush", f"{URL}?sslpassword=hush", "jdbc:mysql://me:hush@h/w",
     "s3://me:hush@bucket/lake"],
)  # fmt: skip
def test_secrets_are_refused(place: str) -> None:
    with pytest.raises(SettingsError) as caught:
        draft(place)
    assert "hush" not in str(caught.value)


def test_wrong_formats_are_refused() -> None:
    for place, form in (("out", "parket"), ("out", "jdbc"), (URL, "delta")):
        with pytest.raises(SettingsError):
            draft(place, form)
    assert json.dumps(draft("out")) == '{"format": "parquet", "path": "out"}'
