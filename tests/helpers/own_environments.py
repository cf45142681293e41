"""Environments of their own: of programs from PyPI, kept between runs, and of the wheel."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from spark_wheels import kept, spark_wheel

from shared.spark.jvm import archive_path, classpath, find_java, pyspark_home
from shared.spark.spark_release import COMPLETE

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
    folder = kept() / f"{name}-py{sys.version_info.major}.{sys.version_info.minor}"
    actual = folder / "bin" / program
    if not actual.exists():
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
    return actual


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
        archives: Java's class archives that are theirs.
    """

    wheel: Path
    folder: Path
    archives: list[Path] = field(default_factory=list)

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
            spark: The release of Spark, such as `4.3`, instead of that of this environment.
        """
        release = [f"pyspark-{spark}"] if spark else []
        folder = self.folder / "-".join([Path(python).parts[-3], *extras, *more, *release])
        if not folder.exists():
            others = [Path(sys.prefix), *(path.parent for path in self.folder.glob("*/pyvenv.cfg"))]
            _uv("venv", "--python", python, str(folder))
            wheel = f"{self.wheel}[{','.join(extras)}]"
            install = ["pip", "install", "--python", str(folder / "bin" / "python"), wheel, *more]
            environ = {**spark_links(spark or COMPLETE)}
            if spark is not None:
                # Newer ones than the wheel asks for, too.
                environ["UV_OVERRIDE"] = str(folder / "spark.txt")
                Path(environ["UV_OVERRIDE"]).write_text(f"pyspark=={spark}.*\n")
            # What a cache holds takes no second; asking the index for each package takes many.
            if _uv(*install, "--offline", check=False, **environ).returncode:
                _uv(*install, **environ)
            self.archives.extend(_shared_archive(folder))
            for other in others:
                _share_compiled(other, folder)
        return Environment(folder / "bin")

    def close(self) -> None:
        """Remove what lies outside of the folder."""
        for archive in self.archives:
            archive.unlink(missing_ok=True)


def spark_links(line: str = COMPLETE) -> Mapping[str, str]:
    """Return the environment by which uv takes the wheel of a release of Spark, and builds none."""
    return {"UV_FIND_LINKS": str(spark_wheel(line)), "UV_NO_BUILD_PACKAGE": "pyspark"}


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


def _shared_archive(environment: Path) -> Iterator[Path]:
    """Give an environment our class archive, if uv has linked the same jars into both; yield it.

    Java takes jars for those of an archive if they are the same files, whatever their names.
    """
    [home] = environment.glob("lib/*/site-packages/pyspark")
    places = (pyspark_home(os.environ), home)
    own, theirs = (next(place.glob("jars/spark-core_*.jar")) for place in places)
    if not own.samefile(theirs):
        return
    environs = [{**os.environ, "SPARK_HOME": str(place)} for place in places]
    paths = [archive_path(find_java(one), classpath(one), one) for one in environs]
    if paths[0] is not None and paths[0].exists() and paths[1] is not None:
        paths[1].hardlink_to(paths[0])
        yield paths[1]


def _share_compiled(source: Path, target: Path) -> None:
    """Give an environment what another one has compiled of modules that uv has linked into both.

    Compiling takes each environment seconds; Python compares size and time of the module.
    """
    [place], [site] = (path.glob("lib/*/site-packages") for path in (source, target))
    if place.parent.name != site.parent.name:
        return
    for folder, _, names in os.walk(place):
        above, cache = os.path.split(folder)
        if cache != "__pycache__":
            continue
        package = os.path.join(site, os.path.relpath(above, place))
        for name in names:
            modules = [os.path.join(at, f"{name.partition('.')[0]}.py") for at in (above, package)]
            with contextlib.suppress(OSError):
                if os.path.samefile(*modules):
                    os.makedirs(os.path.join(package, cache), exist_ok=True)
                    os.link(os.path.join(folder, name), os.path.join(package, cache, name))


def _uv(*args: str, check: bool = True, **environ: str) -> subprocess.CompletedProcess[str]:
    command, env = [str(uv_program()), *args], {**os.environ, **environ}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0 or not check, done.stderr
    return done
