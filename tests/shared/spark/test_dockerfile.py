"""The Dockerfile's steps, run as a script in a fresh environment on this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import shared

pytestmark = pytest.mark.pipe

ROOT = Path(shared.__file__).resolve().parents[1]
DOCKERFILE = ROOT / "Dockerfile"
NEEDS_ROOT = ("useradd",)
SECONDS = 600


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and argument of each instruction; drop comments and join lines."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        if line.strip():
            name, _, argument = line.strip().partition(" ")
            yield name.upper(), argument.strip()


@dataclass
class Build:
    """What an image would hold, below a folder of this machine."""

    image: Path
    venv: Path
    workdir: str = "/"
    env: dict[str, str] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    base: str = ""

    def inside(self, path: str) -> Path:
        """Return where a path of the image is on this machine."""
        return self.image / os.path.join(self.workdir, path).lstrip("/")

    def run(self, command: list[str]) -> str:
        """Run a program as the image would: no Java, no Python but that of the environment."""
        ended = subprocess.run(
            command,
            cwd=self.inside("."),
            env={
                **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
                "PATH": f"{self.venv / 'bin'}:{self.tools()}",
                "HOME": str(self.image / "home" / "singer"),
                "XDG_CACHE_HOME": str(self.image / "home" / "singer" / ".cache"),
                "PIP_CACHE_DIR": pip_cache(),
                "LC_ALL": "C.UTF-8",
                **self.env,
            },
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert ended.returncode == 0, f"{command}: {ended.stdout[-2000:]}{ended.stderr[-2000:]}"
        return ended.stdout + ended.stderr

    def tools(self) -> Path:
        """Return a folder with the programs of the base image, which lacks Java."""
        folder = self.image.with_name("tools")
        if not folder.exists():
            folder.mkdir()
            for program in Path("/usr/bin").iterdir():
                if not re.match(r"java|python|pip", program.name):
                    (folder / program.name).symlink_to(program)
        return folder

    def step(self, name: str, argument: str) -> None:
        """Execute one instruction."""
        match name:
            case "FROM":
                self.base = argument
            case "WORKDIR":
                self.workdir = os.path.join(self.workdir, argument)
                self.inside(".").mkdir(parents=True, exist_ok=True)
            case "COPY":
                *sources, target = argument.split()
                for source in sources:
                    self.copy(source, target)
            case "RUN":
                if argument.split(maxsplit=1)[0] not in NEEDS_ROOT:
                    # The image must not keep a cache; this machine may.
                    self.run(["/bin/sh", "-ec", argument.replace("--no-cache-dir", "")])
            case "ENV":
                self.env |= dict(pair.split("=", 1) for pair in argument.split())
            case "CMD" | "ENTRYPOINT":
                self.command = json.loads(argument)
            case "USER" | "LABEL":
                pass
            case _:
                pytest.fail(f"this test does not know {name}: teach it")

    def copy(self, source: str, target: str) -> None:
        where, place = ROOT / source, self.inside(target)
        if where.is_dir():
            skipped = shutil.ignore_patterns("__pycache__", "*.pyc")
            shutil.copytree(where, place, ignore=skipped, dirs_exist_ok=True)
        else:
            shutil.copy(where, place / where.name if target.endswith("/") else place)


def pip_cache() -> str:
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or str(Path.home() / ".cache" / "pip")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Build]:
    folder = tmp_path_factory.mktemp("image")
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=SECONDS)
    build = Build(folder / "root", venv)
    for name, argument in instructions(DOCKERFILE.read_text()):
        build.step(name, argument)
    yield build
    shutil.rmtree(folder)  # most of a gigabyte


def test_both_programs_answer(built: Build) -> None:
    for program in ("tap-spark", "target-spark"):
        assert re.fullmatch(rf"{program} v\d+\.\d+\.\d+\S*\n", built.run([program, "--version"]))


def test_the_default_command_answers(built: Build) -> None:
    assert built.command
    assert "--config" in built.run(["/bin/sh", "-ec", " ".join(built.command)])


def test_the_class_archive_is_that_of_the_wheels_java(built: Build) -> None:
    names = [path.name for path in (built.image / "home").rglob("*.jsa")]
    assert len(names) == 1
    assert names[0].startswith("java-21.")


def test_the_programs_run_what_was_installed_not_the_sources(built: Build) -> None:
    where = built.run(["python", "-c", "import shared, tap_spark; print(shared.__file__)"])
    assert "site-packages" in where


def test_the_base_image_has_a_python_we_support(built: Build) -> None:
    version = re.match(r"python:(3\.\d+)-slim$", built.base)
    assert version
    text = (ROOT / "pyproject.toml").read_text()
    assert f'"Programming Language :: Python :: {version[1]}"' in text


def test_everything_copied_reaches_the_build() -> None:
    """.dockerignore hides everything but what it names."""
    first, *others = (ROOT / ".dockerignore").read_text().split()
    assert first == "*"
    let_through = {entry.removeprefix("!") for entry in others if entry.startswith("!")}
    copied = [
        source.removeprefix("./")
        for name, argument in instructions(DOCKERFILE.read_text())
        if name == "COPY"
        for source in argument.split()[:-1]
    ]
    assert copied
    assert set(copied) == let_through


def test_instructions() -> None:
    text = '# a\nFROM x\nRUN a \\\n    b\n\n  # b\ncmd ["c"]\n'
    assert list(instructions(text)) == [("FROM", "x"), ("RUN", "a      b"), ("CMD", '["c"]')]
