"""Beside another distribution with a package `shared`, the scripts say so in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = pytest.mark.parametrize("program", ["tap", "target"])


def run(
    program: str, *folders: Path, options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a script with some folders on the path, the first of which comes first."""
    code = f"import sys, singer_spark; sys.exit(singer_spark.{program}())"
    return subprocess.run(
        [sys.executable, *options, "-c", code, "--version"],
        cwd=folders[0],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def check_refusal(done: subprocess.CompletedProcess[str], program: str, place: Path | str) -> None:
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    begin = f"{program}-spark: 'shared' is not the package of singer-spark but {place}; "
    assert line.startswith(begin)
    assert "pipx install singer-spark" in line
    assert "uv tool install singer-spark" in line


@PROGRAMS
class TestOtherShared:
    def test_package_that_comes_first(self, tmp_path: Path, program: str) -> None:
        other = tmp_path / "shared"
        other.mkdir()
        (other / "__init__.py").write_text("VERSION = 1\n")
        (other / "cli.py").write_text("raise SystemExit('the wrong one')\n")
        check_refusal(run(program, tmp_path, ROOT), program, other / "__init__.py")

    def test_module_that_comes_first(self, tmp_path: Path, program: str) -> None:
        (tmp_path / "shared.py").write_text("")
        check_refusal(run(program, tmp_path, ROOT), program, tmp_path / "shared.py")

    def test_package_that_overwrote_ours(self, tmp_path: Path, program: str) -> None:
        shutil.copytree(ROOT / "shared", tmp_path / "shared")
        shutil.copy(ROOT / "singer_spark.py", tmp_path)
        assert run(program, tmp_path, ROOT).returncode == 0
        (tmp_path / "shared" / "__init__.py").write_text("")
        check_refusal(run(program, tmp_path, ROOT), program, tmp_path / "shared" / "__init__.py")

    def test_package_whose_removal_took_ours_along(self, tmp_path: Path, program: str) -> None:
        # What pip leaves behind: the files that only this project has.
        shutil.copytree(ROOT / "shared", tmp_path / "shared")
        shutil.copy(ROOT / "singer_spark.py", tmp_path)
        (tmp_path / "shared" / "__init__.py").unlink()
        # Without site-packages, which may lead to the checkout.
        done = run(program, tmp_path, options=["-S"])
        check_refusal(done, program, tmp_path / "shared")
