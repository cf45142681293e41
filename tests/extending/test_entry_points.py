"""Formats of other packages: found, documented, and refused with a clear error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from extension_packages import EXAMPLES, ROOT, install, install_examples, run_python

from shared.encodings.encoding_format import (
    ENCODINGS,
    SOURCES,
    SWITCH,
    Declared,
    EncodingFormat,
    declared,
)
from shared.errors import InvalidSettingsError, SettingsError
from tap_spark.sources.formats import BUILT_IN
from tap_spark.sources.source_declaration import SourceFormat

SOURCE = """
from tap_spark.sources.source_declaration import SourceFormat
SOURCE = SourceFormat(name="{name}", implementation="{module}:Source", {more})
"""


def actual(
    folder: Path, monkeypatch: pytest.MonkeyPatch, module: str, text: str, name: str = "mine"
) -> Declared[SourceFormat]:
    """What a package with one entry point adds."""
    points = {SOURCES: {name: f"{module}:SOURCE"}}
    install(folder, f"package-{module}", points, **{module: text})
    monkeypatch.syspath_prepend(str(folder))
    return declared(SOURCES, SourceFormat, BUILT_IN)


def run(folder: Path, program: str, *args: str) -> subprocess.CompletedProcess[str]:
    return run_python(folder, "-m", f"{program}.cli", *args)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*_*.py")), ids=lambda path: path.name)
def test_an_example_is_one_file_of_less_than_50_lines(path: Path) -> None:
    if not path.name.startswith("test_"):
        assert len(path.read_text().splitlines()) < 50


@pytest.mark.parametrize("style", ["text", "json", "markdown"])
def test_about_documents_a_source(tmp_path: Path, style: str) -> None:
    install_examples(tmp_path)
    done = run(tmp_path, "tap_spark", "--about", "--format", style)
    assert done.returncode == 0, done.stderr
    text = "`calendar` (of singer-spark-examples 0.1.0): one row per day; takes `first_day`, "
    assert text in done.stdout
    assert "First day of a `calendar`." in done.stdout


@pytest.mark.parametrize("program", ["tap_spark", "target_spark"])
def test_about_documents_an_encoding(tmp_path: Path, program: str) -> None:
    install_examples(tmp_path)
    done = run(tmp_path, program, "--about")
    assert "Of installed packages: `ipc_stream` (singer-spark-examples 0.1.0)." in done.stdout


def test_the_schema_of_the_batch_settings_has_an_encoding(tmp_path: Path) -> None:
    install_examples(tmp_path)
    script = (
        "import json, shared.settings.batch_rules as b; print(json.dumps(b.json_schema('tap')))"
    )
    done = run_python(tmp_path, "-c", script)
    encoding = json.loads(done.stdout)["properties"]["batch_config"]["properties"]["encoding"]
    assert encoding["properties"]["format"]["enum"] == [
        *("jsonl", "parquet", "csv", "avro", "arrow", "ipc_stream")
    ]
    rule = encoding["allOf"][-1]
    assert rule["if"]["properties"]["format"] == {"const": "ipc_stream"}
    assert rule["then"]["properties"]["compression"] == {
        "enum": ["none", "zstd", "lz4"],
        "default": "zstd",
    }


def test_settings_of_an_installed_source_are_checked(tmp_path: Path) -> None:
    install_examples(tmp_path)
    days = {"first_day": "2026-01-01", "last_day": "2026-01-02"}

    def checked(**stream: str) -> subprocess.CompletedProcess[str]:
        config = tmp_path / "config.json"
        config.write_text(json.dumps({"streams": [{"name": "s", "format": "calendar", **stream}]}))
        return run(tmp_path, "tap_spark", "--config", str(config), "--validate-config")

    assert checked(**days).returncode == 0
    wrong = checked(first_day="yesterday", path="x")
    assert wrong.returncode == SettingsError.exit_code
    assert "config['streams'][0]['first_day']" in wrong.stderr
    assert "['path']: does not apply to the format 'calendar'" in wrong.stderr
    assert "['last_day']: is required for the format 'calendar'" in wrong.stderr


def test_pages_are_generated_without_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_examples(tmp_path)
    monkeypatch.setenv(SWITCH, "off")
    done = run_python(tmp_path, "-m", "tools.docs", "--check", cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_source_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = SOURCE.format(name="mine", module="good", more="")
    existing = actual(tmp_path, monkeypatch, "good", text)
    assert existing.problems == ()
    assert list(existing.items) == [*BUILT_IN, "mine"]
    assert existing.packages == {"mine": "package-good 0.1.0"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named"),
        ("x = 1", "AttributeError: module 'bad' has no attribute 'SOURCE'"),
        ("raise SystemExit(5)", "cannot import 'bad:SOURCE': SystemExit: 5"),
        ("raise ValueError('one\\n  two')", "cannot import 'bad:SOURCE': ValueError: one two;"),
        ("raise ValueError", "cannot import 'bad:SOURCE': ValueError; correct"),
        ("SOURCE = 'text'", "'bad:SOURCE' is a str, not a SourceFormat"),
        (SOURCE.format(name="other", module="bad", more=""), "declares the name 'other', not"),
        (
            SOURCE.format(name="mine", module="bad", more="places=('nowhere',)"),
            "ValueError: source format 'mine': 'nowhere' is neither a shared setting nor",
        ),
        (
            SOURCE.format(name="mine", module="bad", more="settings={'path': {}}"),
            "'path' is a shared setting: name it in 'places' or 'takes'",
        ),
        (
            SOURCE.format(name="mine", module="bad", more="settings={'speed': {'type': 'number'}}"),
            "the setting 'speed' needs a JSON Schema with 'type' and 'description'",
        ),
    ],
)
def test_a_broken_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    monkeypatch.delitem(sys.modules, "bad", raising=False)
    existing = actual(tmp_path, monkeypatch, "bad", text)
    assert dict(existing.items) == BUILT_IN
    with pytest.raises(InvalidSettingsError) as caught:
        existing.check()
    (line,) = caught.value.problems
    place = "package 'package-bad 0.1.0', entry point 'mine' of singer_spark.sources: "
    assert line.startswith(place)
    assert problem in line
    assert line.endswith("; correct or uninstall the package")


def test_names_that_clash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = SOURCE.format(name="csv", module="our_name", more="")
    existing = actual(tmp_path, monkeypatch, "our_name", ours, name="csv")
    assert existing.items["csv"] is BUILT_IN["csv"]
    assert "the package 'singer-spark' has that name already" in existing.problems[0]
    for module in ("first", "second"):
        text = SOURCE.format(name="mine", module=module, more="")
        existing = actual(tmp_path, monkeypatch, module, text)
    assert existing.packages == {"mine": "package-first 0.1.0"}
    assert "the package 'package-first 0.1.0' has that name already" in existing.problems[-1]


CLASHES = [
    ("mine", "settings={'columns': {'type': 'string', 'description': 'C.'}}", "'fixed_width'"),
    ("mine", "aliases=('csv',)", "its alias 'csv' is the name of another format"),
    ("my.Source", "", "it looks like package.module.Class"),
]


@pytest.mark.parametrize(("name", "more", "problem"), CLASHES)
@pytest.mark.parametrize("args", [("--about",), ("--config", "c.json", "--validate-config")])
def test_what_clashes_ends_the_program(
    tmp_path: Path, name: str, more: str, problem: str, args: tuple[str, ...]
) -> None:
    rows = {"name": "r", "format": "rows", "row_count": 1}
    (tmp_path / "c.json").write_text(json.dumps({"streams": [rows]}))
    (tmp_path / "bad.py").write_text(SOURCE.format(name=name, module="bad", more=more))
    install(tmp_path, "bad", {SOURCES: {name: "bad:SOURCE"}})
    done = run(tmp_path, "tap_spark", *args)
    assert done.returncode == SettingsError.exit_code
    assert problem in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert run(tmp_path, "tap_spark", "--help").returncode == 0


@pytest.mark.parametrize("program", ["tap_spark", "target_spark"])
def test_a_broken_encoding_ends_either_program(tmp_path: Path, program: str) -> None:
    (tmp_path / "bad.py").write_text("import nothing_of_this_name")
    install(tmp_path, "bad", {ENCODINGS: {"mine": "bad:ENCODING"}})
    (tmp_path / "c.json").write_text("{}")
    for args in (("--about",), ("--config", "c.json", "--validate-config")):
        done = run(tmp_path, program, *args)
        assert done.returncode == SettingsError.exit_code
        assert "entry point 'mine' of singer_spark.encodings: cannot import" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"default_compression": "zip"}, "'zip' is not one of its compressions"),
        (
            {"compressions": ("none", "lz4"), "packed": True},
            "files cannot be compressed as a whole by 'lz4'",
        ),
        ({"implementation": "nowhere"}, "not package.module:Class"),
    ],
)
def test_encodings_that_contradict_themselves(settings: dict[str, object], problem: str) -> None:
    supplied = {"name": "mine", "implementation": "m:C", "suffix": ".m", **settings}
    with pytest.raises(ValueError, match="encoding 'mine'") as caught:
        EncodingFormat(**supplied)  # type: ignore[arg-type]
    assert problem in str(caught.value)


def test_an_encoding_whose_package_is_missing(tmp_path: Path) -> None:
    lacks = EncodingFormat(
        name="mine", implementation="m:C", suffix=".m", requires={"no_such_module": "mine[all]"}
    )
    with pytest.raises(OSError, match="no_such_module: pip install 'mine\\[all\\]'"):
        list(lacks.read(str(tmp_path / "x")))


def test_an_alias_stands_for_its_format(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(
        SOURCE.format(name="mine", module="good", more="aliases=('ours',), places=('path',)")
    )
    install(tmp_path, "good", {SOURCES: {"mine": "good:SOURCE"}})
    script = (
        "from tap_spark.config import tap_config\n"
        "stream = {'name': 's', 'format': 'ours', 'path': 'x'}\n"
        "print(tap_config({'streams': [stream]}).streams[0].format)"
    )
    assert run_python(tmp_path, "-c", script).stdout == "mine\n"


@pytest.mark.parametrize(
    ("program", "added"), [("tap_spark", "calendar"), ("target_spark", "sqlite")]
)
def test_installed_packages_can_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, added: str
) -> None:
    install_examples(tmp_path)
    assert added in run(tmp_path, program, "--about").stdout
    monkeypatch.setenv(SWITCH, "off")
    done = run(tmp_path, program, "--about")
    assert done.returncode == 0, done.stderr
    assert added not in done.stdout
    assert "ipc_stream" not in done.stdout


def test_a_name_that_is_an_alias_of_another_package(tmp_path: Path) -> None:
    for module, name, more in (("first", "mine", "aliases=('yours',)"), ("second", "yours", "")):
        text = SOURCE.format(name=name, module=module, more=more)
        install(tmp_path, module, {SOURCES: {name: f"{module}:SOURCE"}}, **{module: text})
    done = run(tmp_path, "tap_spark", "--about")
    assert done.returncode == SettingsError.exit_code
    assert "package 'second 0.1.0', entry point 'yours' of singer_spark.sources" in done.stderr
    assert "the name 'yours' is an alias of another format" in done.stderr
