"""Packages of other people, installed into a folder as pip would."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "sample_configs" / "extending"
DESTINATION_EXAMPLE = EXAMPLES / "destination"


def install(
    folder: Path, name: str, points: Mapping[str, Mapping[str, str]], **modules: str
) -> None:
    """Register a package with importlib: entry points by group; write its modules by name."""
    info = folder / f"{name.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    groups = [
        "\n".join((f"[{group}]", *(f"{key} = {place}" for key, place in of_group.items())))
        for group, of_group in points.items()
    ]
    (info / "entry_points.txt").write_text("\n\n".join(groups) + "\n")
    for module, code in modules.items():
        (folder / f"{module}.py").write_text(code)


def install_examples(folder: Path) -> None:
    """Install the packages of examples with what each pyproject.toml says."""
    for example in (EXAMPLES, DESTINATION_EXAMPLE):
        project = (example / "pyproject.toml").read_text()
        [name] = re.findall(r'^name = "(.+)"$', project, re.MULTILINE)
        blocks = re.findall(
            r'\[project\.entry-points\."([\w.]+)"\]\n(.*?)(?=\n\[|\Z)', project, re.DOTALL
        )
        points = {
            group: dict(re.findall(r'^(\w+) = "(.+)"$', block, re.MULTILINE))
            for group, block in blocks
        }
        install(folder, name, points)
        for path in example.glob("*.py"):
            shutil.copy(path, folder)


def python_path(folder: Path) -> str:
    """Return a PYTHONPATH with this project and the packages in a folder."""
    return os.pathsep.join((str(ROOT), str(folder)))


def run_python(
    folder: Path, *args: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python with the packages in a folder."""
    return subprocess.run(
        [sys.executable, *args],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": python_path(folder)},
        cwd=cwd or folder,
        timeout=120,
    )
