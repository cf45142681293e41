"""The real Meltano: the sample project, and a project with the definitions for Meltano Hub.

Their programs are those of the wheel, with the extras that `pip_url` of the loader names.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from own_environments import WheelEnvironments, installed_program

pytestmark = [pytest.mark.pipe, pytest.mark.costly]

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample_configs" / "meltano"
HUB = ROOT / "docs" / "hub"
LOADER = HUB / "loaders" / "target-spark" / "singer-spark-slim.yml"
DEFINITIONS = (HUB / "extractors" / "tap-spark" / "singer-spark.yml", LOADER)


@pytest.fixture(scope="session")
def meltano() -> Path:
    """Meltano in an environment of its own, kept between runs."""
    return installed_program("meltano==4.4.1", "meltano")


@pytest.fixture(scope="session")
def environ(environments: WheelEnvironments) -> dict[str, str]:
    """The variables of an environment as `pip_url` makes it."""
    [extras] = re.findall(r'^pip_url: "singer-spark\[(.*)\]"$', LOADER.read_text(), re.MULTILINE)
    programs = environments.of(*extras.split(",")).programs
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}


@dataclass(frozen=True)
class Project:
    """A Meltano project in a folder."""

    meltano: Path
    folder: Path
    environ: Mapping[str, str]

    def run(self, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Meltano that must succeed."""
        done = subprocess.run(
            [str(self.meltano), *args],
            cwd=self.folder,
            env={**self.environ, **environ, "MELTANO_SEND_ANONYMOUS_USAGE_STATS": "false"},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done


@pytest.fixture(scope="module")
def project(meltano, environ, tmp_path_factory) -> Project:
    """A project with both plugins, added as from the Hub; their programs come from the PATH."""
    folder = tmp_path_factory.mktemp("meltano") / "project"
    folder.mkdir()
    (folder / "meltano.yml").write_text("default_environment: dev\nenvironments:\n- name: dev\n")
    (folder / "data").mkdir()
    (folder / "data" / "orders.csv").write_text("id,city,secret\n1,Rome,x\n2,Oslo,y\n")
    project = Project(meltano, folder, environ)
    for definition in DEFINITIONS:
        text = re.sub(r"^pip_url: .*\n", "", definition.read_text(), flags=re.MULTILINE)
        copy = folder / definition.parent.name
        copy.write_text(text)
        project.run("add", copy.name, "--from-ref", str(copy))
    streams = [{"name": "orders", "format": "csv", "path": "data/*.csv"}]
    project.run("config", "set", "tap-spark", "streams", json.dumps(streams))
    project.run("config", "set", "target-spark", "path", "output")
    return project


class TestHubDefinitions:
    def test_the_configuration_passes_its_test(self, project):
        assert "Plugin configuration is valid" in project.run("config", "test", "tap-spark").stdout

    def test_discovery(self, project):
        catalog = json.loads(project.run("invoke", "tap-spark", "--discover").stdout)
        assert [stream["stream"] for stream in catalog["streams"]] == ["orders"]

    def test_a_number_from_the_environment(self, project):
        done = project.run(
            "invoke", "tap-spark", "--validate-config", TAP_SPARK_STATE_INTERVAL_SECONDS="5"
        )
        assert "the settings are valid: 1 stream(s)" in done.stderr

    def test_only_secrets_are_hidden(self, project):
        listed = project.run("config", "list", "tap-spark").stdout
        assert "data/*.csv" in listed
        assert "data/*.csv" in (project.folder / "meltano.yml").read_text()
        project.run("config", "set", "tap-spark", "stream_map_config", '{"salt": "env:SALT"}')
        assert "env:SALT" in (project.folder / ".env").read_text()
        listed = project.run("config", "list", "tap-spark").stdout
        assert re.search(r"^stream_map_config .* value: \(redacted\)", listed, re.MULTILINE)
        # Meltano hands on what it has found in `.env`.
        with (project.folder / ".env").open("a") as file:
            file.write("SALT=x\n")
        project.run("invoke", "tap-spark", "--validate-config")

    def test_run_of_selected_columns_logs_no_warnings(self, project):
        project.run("select", "tap-spark", "orders", "id")
        project.run("select", "tap-spark", "orders", "city")
        done = project.run("run", "tap-spark", "target-spark")
        table = pq.read_table(project.folder / "output" / "orders")
        assert sorted(table["city"].to_pylist()) == ["Oslo", "Rome"]
        assert "secret" not in table.column_names
        assert "Warning" not in done.stdout + done.stderr


def rows(project: Path) -> list[int]:
    return sorted(pq.read_table(project / "output" / "orders")["id"].to_pylist())


def test_the_second_run_reads_only_what_is_new(meltano, environ, tmp_path):
    project = tmp_path / "project"
    shutil.copytree(SAMPLE, project, ignore=shutil.ignore_patterns(".meltano", "output"))

    def run() -> str:
        done = subprocess.run(
            [str(meltano), "run", "tap-spark", "target-spark"],
            cwd=project,
            env=environ,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    run()
    first = rows(project)
    assert first
    with (project / "data" / "orders-1.csv").open("a") as file:
        file.write("9001,Joan,10.50,2026-06-01T08:00:00Z\n")
    run()
    assert rows(project) == [*first, 9001]
