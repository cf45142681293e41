"""`meltano run tap-spark target-spark` on the sample project, twice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.pipe

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample_configs" / "meltano"


@pytest.fixture(scope="session")
def meltano() -> Path:
    """Meltano in an environment of its own, kept between runs."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = cache / "singer-spark-tests" / f"meltano-4.4.1-py{version}"
    program = folder / "bin" / "meltano"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        install = [str(folder / "bin" / "pip"), "install", "-q", "meltano==4.4.1"]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            shutil.rmtree(folder)
            if os.environ.get("SINGER_SPARK_REQUIRE_SERVERS"):
                pytest.fail(f"Meltano could not be installed: {done.stderr[-500:]}")
            pytest.skip("Meltano could not be installed from PyPI")
    return program


def rows(project: Path) -> list[int]:
    return sorted(pq.read_table(project / "output" / "orders")["id"].to_pylist())


def test_the_second_run_reads_only_what_is_new(meltano, tmp_path):
    project = tmp_path / "project"
    shutil.copytree(SAMPLE, project, ignore=shutil.ignore_patterns(".meltano", "output"))
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def run() -> str:
        done = subprocess.run(
            [str(meltano), "run", "tap-spark", "target-spark"],
            cwd=project,
            env=env,
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
