"""Paths and URLs on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from shared.errors import SettingsError
from tap_spark.config import tap_config
from tap_spark.place_argument import place_settings


def stream(place: str, form: str | None = None) -> dict[str, Any]:
    actual = place_settings(place, form, {})
    tap_config(actual)
    [one] = actual["streams"]
    return one


def test_a_place_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"yyy' cannot be read \(File name too long\)"):
        stream(f"{tmp_path}/{'y' * 300}")


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("orders.csv", "csv"),
        ("orders.CSV.gz", "csv"),
        ("orders.jsonl.zst", "json"),
        ("orders.parquet", "parquet"),
        ("orders.2026.avro", "avro"),
        ("orders.txt", "text"),
    ],
)
def test_the_ending_tells_the_format(tmp_path: Path, name: str, form: str) -> None:
    path = tmp_path / name
    path.touch()
    assert stream(str(path)) == {"name": "orders", "format": form, "path": str(path)}


def test_tabs_separate_the_fields_of_tsv(tmp_path: Path) -> None:
    (tmp_path / "a b.tsv").touch()
    assert stream(str(tmp_path / "a b.tsv"))["options"] == {"sep": "\t"}
    assert stream(str(tmp_path / "a b.tsv"))["name"] == "a_b"


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("s3://bucket/sales/2026.csv", "2026"),
        ("data/*.csv", "data"),
        ("/*.csv", "rows"),
        ("s3://bucket/*/part-*.csv", "part"),
    ],
)
def test_places_that_are_not_looked_at(place: str, name: str) -> None:
    actual = stream(place)
    assert (actual["name"], actual["format"], actual["path"]) == (name, "csv", place)


def test_an_unknown_url_is_shown_without_its_password() -> None:
    with pytest.raises(SettingsError, match=r"^'https://\*\*\*@h/api' has no known ending"):
        stream("https://me:hush@h/api")


def test_a_given_format_wins(tmp_path: Path) -> None:
    (tmp_path / "orders.dat").touch()
    assert stream(str(tmp_path / "orders.dat"), "csv")["format"] == "csv"
    with pytest.raises(SettingsError, match="'nothing' is not one of"):
        stream(str(tmp_path / "orders.dat"), "nothing")


def test_folders(tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    (folder / "_delta_log").mkdir(parents=True)
    assert stream(str(folder))["format"] == "delta"
    assert place_settings(str(tmp_path), None, {})["connections"][0]["path"] == str(tmp_path)
    plain = tmp_path / "plain" / "year=1"
    plain.mkdir(parents=True)
    (plain / "a.csv").touch()
    (plain / "_SUCCESS").touch()
    assert stream(f"{tmp_path}/plain/")["name"] == "plain"
    ice = tmp_path / "ice"
    (ice / "metadata").mkdir(parents=True)
    (ice / "metadata" / "v1.metadata.json").touch()
    assert stream(str(ice))["format"] == "iceberg"


def test_what_cannot_be_told_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.csv").touch()
    (tmp_path / "b.json").write_text("[1]")
    (tmp_path / "settings.json").write_text('{"streams": []}')
    (tmp_path / "settings.yaml").write_text("streams: []")
    (tmp_path / "c.dat").touch()
    for name, text in (
        ("gone.csv", "does not exist"),
        ("empty", "is empty"),
        ("", r"has files of several formats \(csv, json\)"),
        ("c.dat", "has no known ending .*--format"),
        ("settings.json", "holds settings .*--config"),
        ("settings.yaml", "holds settings .*--config"),
    ):
        with pytest.raises(SettingsError, match=text):
            stream(str(tmp_path / name) if name else str(tmp_path))
    assert stream(str(tmp_path / "b.json"))["format"] == "json"


@pytest.mark.parametrize(
    ("environ", "supplied"),
    [
        ({}, {}),
        (
            {"TAP_SPARK_USER": "me", "TAP_SPARK_PASSWORD": "secret"},
            {"user": "me", "password": "secret"},
        ),
    ],
)
def test_a_database(environ: Mapping[str, str], supplied: Mapping[str, str]) -> None:
    url = "jdbc:postgresql://localhost/shop"
    actual = place_settings(url, None, environ)
    assert actual == {"connections": [{"name": "database", "url": url, **supplied}]}
    tap_config(actual)
