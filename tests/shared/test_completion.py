"""Completion in shells, through the entry points that users have."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with both programs, which complain if an answer imports Spark or Arrow."""
    created = tmp_path_factory.mktemp("bin")
    for name in ("tap", "target"):
        program = created / f"{name}-spark"
        program.write_text(
            f"#!{sys.executable}\n"
            "import sys\n"
            f"sys.path.insert(0, {str(ROOT)!r})\n"
            f"from singer_spark import {name}\n"
            f"code = {name}()\n"
            "heavy = {'pyspark', 'pyarrow', 'py4j', 'pandas', 'fsspec'} & set(sys.modules)\n"
            "if heavy: print('imported:', heavy, file=sys.stderr)\n"
            "sys.exit(code)\n"
        )
        program.chmod(0o755)
    return created


def run(folder: Path, *command: str, **environ: str) -> str:
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PATH": path, **environ}
    )
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def completed(folder: Path, *words: str) -> list[str]:
    """Return what fish would offer for the last word, without descriptions."""
    program = words[0].replace("-", "_").upper()
    supplied = {"COMP_WORDS": " ".join(words), "COMP_CWORD": words[-1]}
    lines = run(folder, words[0], **{f"_{program}_COMPLETE": "fish_complete"}, **supplied).split(
        "\n"
    )
    return [line.partition(",")[2].split("\t")[0] for line in lines if line]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("tap-spark --dis", ["--discover"]),
        ("tap-spark in", ["in", "init"]),
        ("tap-spark --test s", ["schema"]),
        ("tap-spark init --ou", ["--output"]),
        ("tap-spark spark-server st", ["start", "stop", "status"]),
        ("tap-spark --config t", ["t"]),
        ("target-spark --inp", ["--input"]),
        ("target-spark re", ["re", "rewind"]),
        ("target-spark history --ta", ["--table"]),
        ("target-spark verify --rep", ["--repair"]),
    ],
)
def test_what_is_offered(folder: Path, line: str, offered: list[str]) -> None:
    assert completed(folder, *line.split()) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_documented_line(shell: str) -> None:
    page = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
    [line] = re.findall(rf"^- {shell}, in .*: `(.*)`$", page, re.MULTILINE)
    asked = f"_TAP_SPARK_COMPLETE={shell}_source tap-spark"
    assert line == (f"{asked} | source" if shell == "fish" else f'eval "$({asked})"')


@pytest.mark.parametrize("program", ["tap-spark", "target-spark"])
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell(folder: Path, program: str, shell: str) -> None:
    variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
    script = run(folder, program, **{variable: f"{shell}_source"})
    assert f"{variable}={shell}_complete" in script
    assert program in script


def test_bash_completes(folder: Path) -> None:
    script = (
        'eval "$(_TARGET_SPARK_COMPLETE=bash_source target-spark)"\n'
        "COMP_WORDS=(target-spark maintain --dry); COMP_CWORD=2\n"
        'complete -p target-spark; _target_spark_completion target-spark; echo "${COMPREPLY[@]}"\n'
    )
    registered, offered = run(folder, "bash", "--norc", "-c", script).splitlines()
    assert registered.endswith("-F _target_spark_completion target-spark")
    assert offered == "--dry-run"


def test_an_unknown_shell_is_wrong_usage(folder: Path) -> None:
    command = [str(folder / "tap-spark")]
    environ = {**os.environ, "_TAP_SPARK_COMPLETE": "cmd_source"}
    result = subprocess.run(command, capture_output=True, text=True, env=environ)
    assert result.returncode == 2
    assert "'cmd_source' is not bash_source, zsh_source or fish_source" in result.stderr
