"""Destinations that other packages declare: found, refused, and named in errors. No Spark."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from extension_packages import install, install_examples, run_python

from shared.encodings.encoding_format import DESTINATIONS, SWITCH
from target_spark.config import table_problems
from target_spark.destinations.destination_declaration import (
    BUILT_IN,
    TABLE_SETTINGS,
    Declaration,
    Registry,
    Supports,
    read_registry,
)
from tools.docs import ABILITIES, capability_table

GOOD = """
from target_spark.destinations.destination_declaration import Declaration
THING = Declaration("thing", "things", print, ("thing",), block={"type": "object"})
"""


def target(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program in a Python that has the packages of a folder."""
    return run_python(site, "-m", "target_spark.cli", *arguments)


def refusal(site: Path, settings: dict[str, object]) -> str:
    """What the program says of settings that it refuses."""
    path = site / "config.json"
    path.write_text(json.dumps(settings))
    done = target(site, "--config", str(path), "--validate-config")
    assert done.returncode == 2, done.stderr
    return done.stderr


def points(format: str, value: str) -> dict[str, dict[str, str]]:
    return {DESTINATIONS: {format: value}}


def test_a_destination_of_another_package_is_part_of_the_settings(tmp_path: Path) -> None:
    install_examples(tmp_path)
    about = json.loads(target(tmp_path, "--about", "--format", "json").stdout)
    properties = about["settings"]["properties"]
    assert properties["format"]["enum"] == [*(d.name for d in BUILT_IN), "sqlite"]
    assert properties["sqlite"]["properties"]["file"]["description"]
    text = target(tmp_path, "--about").stdout
    assert "SQLite file that holds the tables" in text
    assert "TARGET_SPARK_SQLITE__FILE" in text
    settings = tmp_path / "config.json"
    settings.write_text(json.dumps({"format": "sqlite", "sqlite": {"file": "x"}}))
    assert target(tmp_path, "--config", str(settings), "--validate-config").returncode == 0


def test_its_settings_are_checked_like_all_others(tmp_path: Path) -> None:
    install_examples(tmp_path)
    text = refusal(tmp_path, {"format": "sqlite"})
    assert "'sqlite' is a required property" in text
    text = refusal(tmp_path, {"format": "sqlite", "sqlite": {}, "path": "out"})
    assert "config['path']: is not supported by the format 'sqlite'" in text
    assert "'file' is a required property" in text
    asked = {"load_method": "upsert", "target_file_bytes": 9, "streams": {"s": {"compact": True}}}
    text = refusal(tmp_path, {"format": "sqlite", "sqlite": {"file": "x"}, **asked})
    needs = "needs the format 'delta', 'iceberg' or 'jdbc': SQLite cannot replace rows"
    assert f"config['load_method']: {needs}" in text
    useless = "has no effect on SQLite; supported by Delta and Iceberg"
    assert f"config['target_file_bytes']: {useless}" in text
    assert f"config['streams']['s']['compact']: {useless}" in text
    supplied = {"load_method": "overwrite", "streams": {"s": {"load_method": "overwrite"}}}
    text = refusal(tmp_path, {"format": "sqlite", "sqlite": {"file": "x"}, **supplied})
    assert "config['load_method']: needs the format 'parquet'" in text
    assert "config['streams']['s']['load_method']: needs the format" in text


def test_a_destination_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    install(tmp_path, "their-thing", points("thing", "thing:THING"), thing="1 / 0")
    text = refusal(tmp_path, {"format": "thing"})
    place = "package 'their-thing 0.1.0', entry point 'thing' of singer_spark.destinations"
    reason = "cannot import 'thing:THING': ZeroDivisionError: division by zero"
    assert f"config['format']: {place}: {reason}; correct or uninstall the package" in text
    assert "Traceback" not in text
    path = tmp_path / "config.json"
    path.write_text('{"path": "out"}')
    assert target(tmp_path, "--config", str(path), "--validate-config").returncode == 0
    assert target(tmp_path, "--about").returncode == 0


def test_two_packages_with_one_format_are_both_named(tmp_path: Path) -> None:
    install(tmp_path, "one", points("thing", "thing:THING"), thing=GOOD)
    install(tmp_path, "two", points("thing", "thing:THING"))
    text = refusal(tmp_path, {"format": "thing", "thing": {}})
    place = "package 'two 0.1.0', entry point 'thing' of singer_spark.destinations"
    assert f"config['format']: {place}: the package 'one 0.1.0' has that name already" in text


def test_a_format_of_ours_is_not_replaced(tmp_path: Path) -> None:
    install(tmp_path, "other", points("parquet", "thing:THING"), thing=GOOD)
    text = refusal(tmp_path, {"path": "out"})
    place = "package 'other 0.1.0', entry point 'parquet' of singer_spark.destinations"
    assert f"config['format']: {place}: the package 'singer-spark' has that name already" in text


@pytest.mark.parametrize(
    ("format", "code", "reason"),
    [
        (
            "thing",
            "THING = 5",
            "'thing_module:THING' is a int, not a Declaration",
        ),
        ("thing", "", "has no attribute 'THING'"),
        ("thing", "raise SystemExit(5)", "cannot import 'thing_module:THING': SystemExit: 5"),
        ("THING", GOOD.replace('"thing"', '"THING"'), "'name' must be a lower-case word"),
        ("other", GOOD, "it declares the name 'thing', not 'other'"),
        ("staging", GOOD.replace('"thing"', '"staging"'), "a setting has its name"),
        ("thing", GOOD.replace('("thing",)', '("home",)'), "'places' must be"),
        ("thing", GOOD.replace("block=", 'uses=frozenset({"x"}), block='), "'x' is not one of"),
    ],
)
def test_what_is_declared_wrongly_is_said(
    tmp_path: Path, format: str, code: str, reason: str
) -> None:
    install(tmp_path, "p", points(format, "thing_module:THING"), thing_module=code)
    assert reason in refusal(tmp_path, {"format": format, "path": "out"})


def test_without_other_packages_there_are_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "their-thing", points("thing", "thing:THING"), thing="1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert list(read_registry().broken) == ["thing"]
    monkeypatch.setenv(SWITCH, "off")
    actual = read_registry()
    assert actual.formats == ("parquet", "json", "csv", "orc", "delta", "iceberg", "jdbc")
    assert actual.broken == {}
    assert actual.blocks == ("jdbc",)


def test_a_view_needs_a_destination_that_has_views() -> None:
    uses = frozenset(TABLE_SETTINGS)
    plain = Declaration("plain", "plain tables", print, uses=uses)  # type: ignore[arg-type]
    settings = {"format": "plain", "path": "x", "denormalized": False, "generate_view": True}
    problems = list(table_problems(Registry({"plain": plain}), settings))
    assert [str(problem) for problem in problems] == [
        "config['generate_view']: plain tables do not support views"
    ]


def test_what_a_destination_supports_is_in_the_documentation() -> None:
    assert list(ABILITIES) == list(Supports.__dataclass_fields__)
    rows = capability_table().splitlines()
    assert rows[0] == "| | `parquet` | `json` | `csv` | `orc` | `delta` | `iceberg` | `jdbc` |"
    [upsert] = [row for row in rows if "method: upsert" in row]
    assert upsert == "| `load_method: upsert` |  |  |  |  | yes | yes | yes |"
    [replays] = [row for row in rows if "replays" in row]
    assert replays.endswith("| yes | yes | PostgreSQL |")
    assert len(rows) == 2 + len(ABILITIES) + len(TABLE_SETTINGS)
