"""Tutorials, run as they stand: each command in order, beside what the page says it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
SECONDS = 300
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def recipe(heading: str) -> str:
    """Return the script of a recipe of README.md."""
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    section = text.split(f"### {heading}\n")[1].split("\n## ")[0].split("\n### ")[0]
    (block,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return str(block)


def tutorial(title: str) -> str:
    """Return a tutorial of docs/tutorials.md."""
    text = (DOCS / "tutorials.md").read_text(encoding="utf-8")
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def extras_of(title: str) -> list[str]:
    """Return the extras that a tutorial installs."""
    text = tutorial(title)
    [extras] = re.findall(r"^\$ pip install 'singer-spark(?:\[(.*)\])?'$", text, re.MULTILINE)
    return str(extras).split(",")


def run_tutorial(
    title: str,
    folder: Path,
    *,
    env: Mapping[str, str] | None = None,
    places: Mapping[str, str] | None = None,
    run_sql: Callable[[str], object] | None = None,
    programs: Path | None = None,
) -> int:
    """Run the blocks of a tutorial in a folder; return how many outputs were compared.

    Args:
        title: Its heading.
        folder: An empty folder.
        env: More variables of the environment.
        places: Texts in blocks to replace, and what by: addresses of servers.
        run_sql: Runs the blocks of SQL.
        programs: See `run_script`.
    """
    text = tutorial(title)
    for place, ours in (places or {}).items():
        assert place in text
        text = text.replace(place, ours)
    printed, compared = "", 0
    for language, block in _FENCE.findall(text):
        if language == "sh":
            printed = run_script(block, folder, env, programs=programs)
        elif language == "sql":
            assert run_sql is not None
            run_sql(block)
        elif not language:
            assert printed == block, f"printed {printed}, not {block}"
            compared += 1
    return compared


def run_script(
    script: str,
    folder: Path,
    env: Mapping[str, str] | None = None,
    *,
    seconds: float = SECONDS,
    programs: Path | None = None,
) -> str:
    """Run a script of a page with both programs on PATH; return what it prints.

    Args:
        script: Bash.
        folder: Where it runs.
        env: More variables of the environment.
        seconds: Longest time that it may take.
        programs: Folder of both programs and Python; by default those of this environment.
    """
    supplied = {**os.environ, **(env or {})}
    path = os.pathsep.join([str(programs or Path(sys.executable).parent), supplied["PATH"]])
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={**supplied, "PATH": path},
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
