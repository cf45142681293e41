"""Packages of other people, installed into a folder as pip would."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "sample_configs" / "extending"


def install(folder: Path, name: str, points: Mapping[str, Mapping[str, str]]) -> None:
    """Tell importlib of a package: its name, and its entry points by group."""
    info = folder / f"{name.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    groups = [
        "\n".join((f"[{group}]", *(f"{key} = {place}" for key, place in of_group.items())))
        for group, of_group in points.items()
    ]
    (info / "entry_points.txt").write_text("\n\n".join(groups) + "\n")


def install_examples(folder: Path) -> None:
    """Install the examples with the entry points that their pyproject.toml has."""
    project = (EXAMPLES / "pyproject.toml").read_text()
    points = {
        group: dict(re.findall(r'^(\w+) = "(.+)"$', block, re.MULTILINE))
        for group, block in re.findall(
            r'\[project\.entry-points\."([\w.]+)"\]\n(.*?)(?=\n\[|\Z)', project, re.DOTALL
        )
    }
    install(folder, "singer-spark-examples", points)
    for path in EXAMPLES.glob("*.py"):
        shutil.copy(path, folder)
