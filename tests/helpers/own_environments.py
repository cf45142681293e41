"""Environments of their own: of programs from PyPI, kept between runs, and of the wheel."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

SECONDS = 300
EXTRAS = (
    "all",
    "testing",
)
"""Names of extras that together bring what every extra brings."""


def installed_program(requirement: str, program: str) -> Path:
    """Return a program of a package; install it if it is not there.

    Args:
        requirement: The package with its version: `meltano==4.4.1`.
        program: Name of the program.
    """
    name = requirement.replace("==", "-")
    folder = _kept() / f"{name}-py{sys.version_info.major}.{sys.version_info.minor}"
    found = folder / "bin" / program
    if not found.exists():
        python = str(folder / "bin" / "python")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [python, "-m", "pip", "install", "-q", requirement]
        uv = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", python, requirement]
        # uv takes a quarter of the time, where it is installed.
        for install in (uv, pip):
            done = subprocess.run(install, capture_output=True, text=True, check=False)
            if not done.returncode:
                break
        if done.returncode:
            shutil.rmtree(folder)
            if os.environ.get("SINGER_SPARK_REQUIRE_SERVERS"):
                pytest.fail(f"{requirement} could not be installed: {done.stderr[-500:]}")
            pytest.skip(f"{requirement} could not be installed from PyPI")
    return found


@dataclass(frozen=True)
class Environment:
    """An environment with the wheel and nothing else but what its extras bring.

    Attributes:
        programs: The folder of its programs.
    """

    programs: Path

    def run(
        self, folder: Path, *command: str, stdin: bytes = b"", **environ: str
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a program of it in a folder; the checkout is out of its reach."""
        # A name alone is looked up on the PATH of this process.
        program = str(self.programs / command[0])
        return subprocess.run(
            [program, *command[1:]],
            cwd=folder,
            input=stdin,
            env={**os.environ, **environ},
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )

    def result(self, folder: Path, *command: str, stdin: bytes = b"", **environ: str) -> bytes:
        """Run a program of it that must succeed; return what it prints."""
        ended = self.run(folder, *command, stdin=stdin, **environ)
        assert ended.returncode == 0, ended.stderr.decode()
        return ended.stdout


@dataclass(frozen=True)
class WheelEnvironments:
    """Environments of the wheel, made as tests ask for them.

    Attributes:
        wheel: The file.
        folder: Where they are made.
    """

    wheel: Path
    folder: Path

    def of(
        self,
        *extras: str,
        python: str = sys.executable,
        more: Sequence[str] = (),
        spark: str | None = None,
    ) -> Environment:
        """Return the environment of some extras.

        Args:
            extras: Their names.
            python: Path of its Python.
            more: Other packages, as `pip install` takes them.
            spark: The release of Spark, such as `4.3`, installed over that of the wheel.
        """
        release = [f"pyspark-{spark}"] if spark else []
        folder = self.folder / "-".join([Path(python).parts[-3], *extras, *more, *release])
        if not folder.exists():
            _uv("venv", "--python", python, str(folder))
            wheel = f"{self.wheel}[{','.join(extras)}]"
            install = ["pip", "install", "--python", str(folder / "bin" / "python"), wheel, *more]
            # What a cache holds takes no second; asking the index for each package takes many.
            if _uv(*install, "--offline", check=False, **spark_wheel()).returncode:
                _uv(*install, **spark_wheel())
            if spark is not None:
                _uv(*install[:4], f"pyspark=={spark}.*")
        return Environment(folder / "bin")


def spark_wheel() -> Mapping[str, str]:
    """Return the environment by which uv takes a wheel of PySpark that is built once.

    PySpark comes as sources: uv would build it for each environment, in a minute and a gigabyte.
    """
    folder = _kept() / f"pyspark-{version('pyspark')}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent) as parent:
                wheel = ["wheel", "--quiet", "--no-deps", "--wheel-dir", f"{parent}/wheel"]
                pip = [sys.executable, "-m", "pip", *wheel, f"pyspark=={version('pyspark')}"]
                subprocess.run(pip, check=True, capture_output=True)
                (Path(parent) / "wheel").rename(folder)
    return {"UV_FIND_LINKS": str(folder), "UV_NO_BUILD_PACKAGE": "pyspark"}


def build_wheel(source: Path, out: Path) -> Path:
    """Build the wheel of a checkout into a folder."""
    _uv("build", "--wheel", "--out-dir", str(out), str(source))
    [wheel] = out.glob("*.whl")
    return wheel


def python_of_version(version: str) -> str:
    """Return a Python of a version; skip the test if the machine has none."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    candidates = [shutil.which(f"python{version}")]
    candidates += (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python")
    for candidate in filter(None, candidates):
        # The shims of pyenv are on PATH also for versions that are not active.
        if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return str(candidate)
    pytest.skip(f"no Python {version} here")


def uv_program() -> Path:
    """Return the program of the installed uv; skip the test if there is none."""
    return Path(pytest.importorskip("uv").find_uv_bin())


def uv_cache() -> str:
    """Return the folder in which uv keeps what it has downloaded."""
    return _uv("cache", "dir").stdout.strip()


def _kept() -> Path:
    """Return the folder of what is kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "singer-spark-tests"


def _uv(*args: str, check: bool = True, **environ: str) -> subprocess.CompletedProcess[str]:
    command, env = [str(uv_program()), *args], {**os.environ, **environ}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0 or not check, done.stderr
    return done
