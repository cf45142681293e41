"""The Dockerfile's steps, run as a script in fresh environments on this machine."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from deltalake import DeltaTable

import shared
from shared.spark.bake_packages import coordinates
from shared.spark.packages import INDEX

pytestmark = [pytest.mark.pipe, pytest.mark.costly]

ROOT = Path(shared.__file__).resolve().parents[1]
DOCKERFILE = ROOT / "Dockerfile"
NEEDS_ROOT = ("useradd",)
SECONDS = 600
# Of this machine: its way to the network, and less work for Java's compiler.
PASSED_ON = re.compile(r"PIP_|UV_|SSL_|\w+_(proxy|PROXY)$|JDK_JAVA_OPTIONS$")


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and argument of each instruction; drop comments and join lines."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        if line.strip():
            name, _, argument = line.strip().partition(" ")
            yield name.upper(), argument.strip()


@dataclass
class Stage:
    """What an image would say of itself.

    Attributes:
        base: The image it starts from.
        env: Variables.
        user: Who runs its programs; empty for root.
        entrypoint: What a container runs.
        command: Its arguments by default.
    """

    base: str
    workdir: str = "/"
    env: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    user: str = ""
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)


@dataclass
class Build:
    """The images, one after the other below a folder of this machine.

    Stages that add files share it, because programs have their paths inside: a new one begins empty
    and gets what it copies from the one before.
    """

    folder: Path
    stages: dict[str, Stage] = field(default_factory=dict)
    last: Stage = field(default_factory=lambda: Stage(""))

    @property
    def image(self) -> Path:
        return self.folder / "root"

    def inside(self, path: str) -> Path:
        """Return where a path of the image is on this machine."""
        return self.image / os.path.join(self.last.workdir, path).lstrip("/")

    def run(self, command: list[str], stdin: str = "", cwd: Path | None = None) -> str:
        """Run a program as the image would: no Java, no Python but those of the image."""
        home = self.image / "home" / "singer"
        # The build stage must not keep a cache; this machine may.
        cached = self.last is self.stages.get("build")
        path = self.tools() if "PATH" not in self.last.env else self.path(self.last.env["PATH"])
        ended = subprocess.run(
            command,
            cwd=cwd or self.inside("."),
            env={
                **{name: value for name, value in os.environ.items() if PASSED_ON.match(name)},
                "PIP_CACHE_DIR": pip_cache(),
                "HOME": str(Path.home() if cached else home),
                "XDG_CACHE_HOME": str(cache_home() if cached else home / ".cache"),
                "LC_ALL": "C.UTF-8",
                **self.last.arguments,
                **{name: self.here(value) for name, value in self.last.env.items()},
                "PATH": str(path),
            },
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert ended.returncode == 0, f"{command}: {ended.stdout[-2000:]}{ended.stderr[-2000:]}"
        return ended.stdout + ended.stderr

    def path(self, value: str) -> str:
        return self.here(value).replace("$PATH", str(self.tools()))

    def here(self, text: str) -> str:
        """Return a command with the paths of the image as they are on this machine."""
        return re.sub(r"(?<![\w.$/])/(?=opt/|home/)", f"{self.image}/", text)

    def tools(self) -> Path:
        """Return a folder with the programs of the base image, which lacks Java."""
        folder = self.folder / "tools"
        if not folder.exists():
            folder.mkdir()
            for program in Path("/usr/bin").iterdir():
                if not re.match(r"java|python|pip|uv", program.name):
                    (folder / program.name).symlink_to(program)
            # What the base image installs for itself: `pip install uv`.
            base = self.folder / "base"
            make = [sys.executable, "-m", "venv", "--without-pip", base]
            subprocess.run(make, check=True, timeout=SECONDS)
            for name in ("python", "uv"):
                (folder / name).symlink_to(base / "bin" / name)
            pip = f"{sys.executable} -m pip --python {base}/bin/python"
            (folder / "pip").write_text(f'#!/bin/sh\nexec {pip} "$@"\n')
            (folder / "pip").chmod(0o755)
        return folder

    def step(self, name: str, argument: str) -> None:
        """Execute one instruction."""
        stage = self.last
        match name:
            case "FROM":
                self.begin(argument)
            case "WORKDIR":
                stage.workdir = os.path.join(stage.workdir, argument)
                self.inside(".").mkdir(parents=True, exist_ok=True)
            case "COPY":
                self.copy(argument)
            case "RUN":
                if argument.split(maxsplit=1)[0] not in NEEDS_ROOT:
                    command = re.sub(r" --no-cache(-dir)?\b", "", self.here(argument))
                    self.run(["/bin/sh", "-ec", command])
            case "ARG":
                stage.arguments |= dict([shlex.split(argument)[0].split("=", 1)])
            case "ENV":
                stage.env |= dict(pair.split("=", 1) for pair in shlex.split(argument))
            case "CMD":
                stage.command = json.loads(argument)
            case "ENTRYPOINT":
                stage.entrypoint, stage.command = json.loads(argument), []
            case "USER":
                stage.user = argument
            case _:
                pytest.fail(f"this test does not know {name}: teach it")

    def begin(self, argument: str) -> None:
        base, _, name = argument.partition(" AS ")
        existing = self.stages.get(base)
        if existing is None:
            self.last = Stage(base)
            if self.image.exists():
                self.image.rename(self.folder / "before")
            self.image.mkdir()
        else:
            self.last = Stage(**{**vars(existing), "env": dict(existing.env), "arguments": {}})
        self.stages[name] = self.last

    def copy(self, argument: str) -> None:
        *sources, target = argument.split()
        if sources[0].startswith("--from="):
            assert self.stages[sources[0].partition("=")[2]] is not self.last
            assert sources[1:] == [target], "paths inside must stay as they are"
            self.inside(target).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / "before" / target.lstrip("/")).rename(self.inside(target))
            shutil.rmtree(self.folder / "before")
            return
        for source in sources:
            where, place = ROOT / source, self.inside(target)
            if where.is_dir():
                skipped = shutil.ignore_patterns("__pycache__", "*.pyc")
                shutil.copytree(where, place, ignore=skipped, dirs_exist_ok=True)
            else:
                shutil.copy(where, place / where.name if target.endswith("/") else place)


def cache_home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def pip_cache() -> str:
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or str(cache_home() / "pip")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Build]:
    build = Build(tmp_path_factory.mktemp("image"))
    for name, argument in instructions(DOCKERFILE.read_text()):
        build.step(name, argument)
    yield build
    shutil.rmtree(build.folder)  # most of a gigabyte


@pytest.mark.parametrize("program", ["tap-spark", "target-spark"])
def test_each_program_has_an_image(built: Build, program: str) -> None:
    stage = built.stages[program]
    assert stage.entrypoint == [program]
    version = built.run([*stage.entrypoint, "--version"])
    assert re.fullmatch(rf"{program} v\d+\.\d+\.\d+\S*\n", version)
    assert "--config" in built.run([*stage.entrypoint, *stage.command])


def test_the_last_image_has_both_programs(built: Build) -> None:
    assert built.last.entrypoint == []
    assert "--config" in built.run(built.last.command)
    built.run(["target-spark", "--version"])


def test_no_image_runs_as_root(built: Build) -> None:
    users = {name: stage.user for name, stage in built.stages.items() if name != "build"}
    # A number: Kubernetes cannot tell who a name is (`runAsNonRoot`).
    assert set(users.values()) == {"10001"}
    assert {"tap-spark", "target-spark", "executor", "singer-spark"} <= set(users)


def test_images_are_small(built: Build) -> None:
    """Sources, caches and what installs packages stay behind."""
    assert {path.name for path in built.image.iterdir()} == {"opt", "home"}
    packages = {path.name for path in built.image.glob("opt/singer-spark/lib/*/site-packages/*")}
    assert "pyspark" in packages
    assert packages & {"pip", "uv", "setuptools"} == set()
    assert {path.name for path in (built.image / "home").glob("singer/.cache/*")} == {
        "singer-spark"
    }


def test_jars_of_formats_and_databases_are_there(built: Build) -> None:
    folder = built.image / "opt/singer-spark/jars"
    index = json.loads((folder / INDEX).read_text())
    arguments = built.stages["build"].arguments
    assert list(index) == coordinates(arguments["PACKAGES"].split())
    assert all(index.values())
    assert {name for jars in index.values() for name in jars} == {
        path.name for path in folder.glob("*.jar")
    }
    # Spark has its own, which Java would take.
    assert not [name for jars in index.values() for name in jars if "hadoop-client" in name]


def test_a_table_is_loaded_without_a_network(built: Build, tmp_path: Path) -> None:
    """Into Delta, beside a catalog of Iceberg; Spark knows no repository, and has no cache."""
    nowhere = tmp_path / "ivy.xml"
    nowhere.write_text(
        "<ivysettings><settings defaultResolver='none'/><resolvers><filesystem name='none'>"
        f"<artifact pattern='{tmp_path}/none/[artifact].[ext]'/></filesystem></resolvers>"
        "</ivysettings>"
    )
    conf = {
        "spark.driver.memory": "700m",
        "spark.jars.ivySettings": str(nowhere),
        "spark.jars.ivy": str(tmp_path / "ivy"),
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": str(tmp_path / "ice"),
    }
    config = {
        "spark": {"master": "local[2]", "conf": conf},
        "engine": "spark",
        "path": "lake",
        "format": "delta",
    }
    (tmp_path / "target.json").write_text(json.dumps(config))
    messages = [
        {"type": "SCHEMA", "stream": "s", "schema": {"properties": {"id": {"type": "integer"}}},
         "key_properties": []},
        {"type": "RECORD", "stream": "s", "record": {"id": 1}},
        {"type": "STATE", "value": {"bookmark": 1}},
    ]  # fmt: skip
    supplied = "".join(json.dumps(message) + "\n" for message in messages)
    actual = built.run(["target-spark", "--config", "target.json"], supplied, cwd=tmp_path)
    assert actual.startswith('{"bookmark"')
    assert "could not" not in actual.lower()
    table = DeltaTable(str(tmp_path / "lake" / "s")).to_pyarrow_table()
    assert table.column("id").to_pylist() == [1]
    assert not list((tmp_path / "ivy").rglob("*.jar"))


def test_the_class_archive_is_that_of_the_wheels_java(built: Build) -> None:
    names = [path.name for path in (built.image / "home").rglob("*.jsa")]
    assert len(names) == 1
    assert names[0].startswith("java-21.")


def test_the_programs_run_what_was_installed_not_the_sources(built: Build) -> None:
    where = built.run(["python", "-c", "import shared, tap_spark; print(shared.__file__)"])
    assert "site-packages" in where


def test_an_executor_says_who_starts_it(built: Build) -> None:
    command = shlex.join([*built.stages["executor"].entrypoint, "executor"])
    actual = built.run(["/bin/sh", "-c", f"{command} || echo code $?"])
    assert "the environment lacks SPARK_EXECUTOR_MEMORY" in actual
    assert "code 7" in actual


def test_the_base_image_has_a_python_we_support(built: Build) -> None:
    bases = {stage.base for stage in built.stages.values()}
    assert len(bases) == 1, "the environment is copied between them"
    version = re.match(r"python:(3\.\d+)-slim$", bases.pop())
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
        if name == "COPY" and not argument.startswith("--from")
        for source in argument.split()[:-1]
    ]
    assert copied
    assert set(copied) == let_through


def test_instructions() -> None:
    text = '# a\nFROM x\nRUN a \\\n    b\n\n  # b\ncmd ["c"]\n'
    assert list(instructions(text)) == [("FROM", "x"), ("RUN", "a      b"), ("CMD", '["c"]')]
