"""What users install: the wheel and the source distribution, built as a release is."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email import message_from_string
from pathlib import Path
from typing import Any

import pytest

from tools.meltano import read_project

pytestmark = [pytest.mark.once, pytest.mark.pipe, pytest.mark.costly]

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("shared", "tap_spark", "target_spark")
PROJECT = read_project(ROOT)
INFO = f"singer_spark-{PROJECT['version']}.dist-info"


def checkout(folder: Path) -> Path:
    """Copy what a clone of the repository holds; the times of the files are those of the copy."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def build(source: Path, out: Path) -> dict[str, Path]:
    """Build both distributions, the wheel of the source distribution: suffix → file."""
    uv = pytest.importorskip("uv").find_uv_bin()
    done = subprocess.run(
        [uv, "build", "--quiet", "--python", sys.executable, "--out-dir", str(out), str(source)],
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode and "hatchling" in done.stderr:
        if os.environ.get("SINGER_SPARK_REQUIRE_SERVERS"):
            pytest.fail(f"the build backend could not be installed: {done.stderr[-500:]}")
        pytest.skip("the build backend could not be installed from PyPI")
    assert done.returncode == 0, done.stderr
    return {path.suffix: path for path in out.iterdir() if not path.name.startswith(".")}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Path], ...]]:
    """Two builds from two checkouts."""
    folder = tmp_path_factory.mktemp("distribution")
    yield tuple(build(checkout(folder / one), folder / f"{one}-dist") for one in ("a", "b"))
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def installed(built: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of packages of an environment that the wheel is installed into."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(built[0][".whl"]) as wheel:
        wheel.extractall(folder)
    return folder


def tracked(*parts: str) -> set[str]:
    """Return the files of packages, as in the checkout."""
    files = (path for part in parts for path in (ROOT / part).rglob("*") if path.is_file())
    return {str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts}


def test_two_builds_are_the_same_bytes(built: Any) -> None:
    for suffix in (".whl", ".gz"):
        first, second = (hashlib.sha256(one[suffix].read_bytes()).hexdigest() for one in built)
        assert first == second, suffix


def test_the_wheel_holds_the_packages_and_nothing_else(built: Any) -> None:
    names = set(zipfile.ZipFile(built[0][".whl"]).namelist())
    about = {f"{INFO}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt")}
    about.add(f"{INFO}/licenses/LICENSE")
    pages = {name.replace("docs/", "shared/pages/", 1) for name in tracked("docs")}
    assert names == tracked(*PACKAGES) | {"singer_spark.py"} | about | pages
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert {"shared/spark/fair_scheduler.xml", "shared/spark/log4j2.properties"} <= names


def test_the_source_distribution_holds_what_the_wheel_needs(built: Any) -> None:
    with tarfile.open(built[0][".gz"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    pages = {"CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
    # The build backend adds the list of files that git ignores.
    assert names - {".gitignore"} == tracked(*PACKAGES, "docs") | {"singer_spark.py"} | pages


def test_the_metadata(installed: Path) -> None:
    fields = message_from_string((installed / INFO / "METADATA").read_text(encoding="utf-8"))
    assert fields["Version"] == PROJECT["version"]
    assert fields["License-Expression"] == "Apache-2.0"
    assert fields["License-File"] == "LICENSE"
    assert set(fields.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    urls = dict(line.split(", ") for line in fields.get_all("Project-URL", []))
    assert urls == PROJECT["urls"]
    assert "# tap-spark and target-spark" in fields.get_payload()


def run_script(folder: Path, name: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run a script as its entry point says, with the packages in a folder."""
    points = (folder / INFO / "entry_points.txt").read_text()
    [place] = [line.split(" = ")[1] for line in points.splitlines() if line.startswith(f"{name} ")]
    module, function = place.split(":")
    code = f"import sys; from {module} import {function}; sys.exit({function}())"
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        cwd=folder.parent,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", ["tap-spark", "target-spark"])
class TestScripts:
    def test_they_tell_the_version_of_the_wheel(self, installed: Path, name: str) -> None:
        done = run_script(installed, name, "--version")
        assert (done.stdout, done.stderr) == (f"{name} v{PROJECT['version']}\n", "")
        assert f"Version: {PROJECT['version']}\n" in run_script(installed, name, "--about").stdout

    def test_they_print_pages_and_schema_of_the_wheel(self, installed: Path, name: str) -> None:
        assert run_script(installed, name, "docs", "s3#credentials").stdout.startswith("## Cred")
        schema = (installed / name.replace("-", "_") / "settings.schema.json").read_text()
        assert run_script(installed, name, "--about", "--format", "json-schema").stdout == schema

    def test_arguments_and_exit_codes_pass_through(self, installed: Path, name: str) -> None:
        done = run_script(installed, name, "--config", "missing.json")
        assert done.returncode == 2
        assert "missing.json" in done.stderr
