"""Packages of somebody else, as pip leaves them in `site-packages`."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "sample_configs" / "extending" / "destination"


def install(site: Path, package: str, entry_points: str, **modules: str) -> None:
    """Write modules, by name, and the metadata of a package into a folder of packages."""
    info = site / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    for name, code in modules.items():
        (site / f"{name}.py").write_text(code)


def install_example(site: Path) -> None:
    """Install the example with what its pyproject.toml says."""
    text = (EXAMPLE / "pyproject.toml").read_text()
    [name] = re.findall(r'^name = "(.+)"$', text, re.MULTILINE)
    [(group, points)] = re.findall(r'entry-points\."(.+)"\]\n((?:\w+ = ".+"\n)+)', text)
    install(site, name, f"[{group}]\n" + points.replace('"', ""))
    shutil.copy(EXAMPLE / "sqlite_destination.py", site)
