"""The first commands of README.md: installed from a checkout by pipx, or run by uvx."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from own_environments import installed_program, spark_links, uv_cache, uv_program

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.once, pytest.mark.pipe, pytest.mark.costly]
SECONDS = 600


def run(command: list[str], folder: Path, **environ: str) -> str:
    """Run a command with a home of its own, which may only share what uv has downloaded."""
    path = f"{uv_program().parent}{os.pathsep}{os.environ['PATH']}"
    own = {"HOME": str(folder / "home"), "UV_CACHE_DIR": uv_cache(), "PATH": path}
    for name in ("XDG_DATA_HOME", "XDG_BIN_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        own[name] = str(folder / "home" / name)
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **spark_links(), **own, **environ},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "orders.csv").write_text("id,name\n1,Ada\n")
    return tmp_path


def loads(tap: list[str], target: list[str], folder: Path) -> None:
    """Run the pipe of README.md."""
    messages = folder / "messages.jsonl"
    messages.write_text(run([*tap, "orders.csv"], folder))
    states = run([*target, "loaded/", "--input", str(messages)], folder)
    assert '"orders"' in states
    assert list((folder / "loaded" / "orders").glob("*.parquet"))


def test_uvx(folder: Path) -> None:
    start = [str(uv_program().with_name("uvx")), "--from", str(ROOT)]
    assert "Usage: tap-spark" in run([*start, "tap-spark", "--help"], folder)
    loads([*start, "tap-spark"], [*start, "target-spark"], folder)


def test_pipx(folder: Path) -> None:
    pipx = str(installed_program("pipx==1.18.4", "pipx"))
    bin_folder = folder / "home" / "bin"
    places = {"PIPX_HOME": str(folder / "home" / "pipx"), "PIPX_BIN_DIR": str(bin_folder)}
    run([pipx, "install", "--backend", "uv", str(ROOT)], folder, **places)
    loads([str(bin_folder / "tap-spark")], [str(bin_folder / "target-spark")], folder)
