"""`tap-spark spark-server`: a server that stays, and both programs by it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from pipe_programs import TAP, Programs

from shared.spark.connect import record_path, running_server

pytest.importorskip("grpc")
pytestmark = [pytest.mark.pipe, pytest.mark.once, pytest.mark.costly]
STREAM = {"name": "s", "format": "rows", "row_count": 50, "column_count": 3}
MASTER = ("--master", "local[2]")
LOOPBACK = {"127.0.0.1", "::ffff:127.0.0.1"}
Server = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"SINGER_SPARK_CLASS_ARCHIVE": str(tmp_path / "cache")}


@pytest.fixture
def server(environ: dict[str, str], tmp_path: Path) -> Iterator[Server]:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*TAP, "spark-server", *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, **environ},
            timeout=120,
        )

    yield run
    run("stop")


def processes(tmp_path: Path) -> list[psutil.Process]:
    """The processes of the test's server: the one that holds it, Java, and Python workers."""
    actual = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("SINGER_SPARK_CLASS_ARCHIVE") == str(tmp_path / "cache"):
                actual.append(process)
        except psutil.Error:
            pass
    return actual


def left_after(seconds: float, tmp_path: Path) -> list[psutil.Process]:
    """Its processes that have not ended within a time."""
    until = time.monotonic() + seconds
    while processes(tmp_path) and time.monotonic() < until:
        time.sleep(0.2)
    return processes(tmp_path)


def settings(tmp_path: Path, url: str) -> tuple[dict[str, Any], dict[str, Any]]:
    spark = {"remote": url}
    target = {"path": str(tmp_path / "out"), "engine": "spark", "spark": spark}
    return {"streams": [STREAM], "spark": spark}, target


def test_the_pipe_by_a_server_that_stays(
    server: Server, environ: dict[str, str], tmp_path: Path
) -> None:
    assert server("status").stdout == server("stop").stdout == "no server runs\n"
    secret = "spark.hadoop.fs.s3a.secret.key=not-for-others"
    started = server("start", "--port", "0", *MASTER, "--conf", secret)
    assert started.returncode == 0, started.stderr
    assert not any("not-for-others" in " ".join(one.cmdline()) for one in processes(tmp_path))
    url = started.stdout.strip()
    assert url.startswith("sc://localhost:")
    assert server("status").stdout == f"{url}\n"
    again = server("start")
    assert again.returncode != 0
    assert f"a server runs already: {url}" in again.stderr

    programs = Programs(tmp_path, environ=environ)
    for runs in (1, 2):
        result = programs.pipe(*settings(tmp_path, url)).check()
        assert result.states
        assert pq.read_table(tmp_path / "out" / "s").num_rows == 50 * runs

    # Others on this machine reach the port, but have no token.
    strangers = Programs(tmp_path, environ={"SINGER_SPARK_CLASS_ARCHIVE": str(tmp_path / "none")})
    done = strangers.run([*strangers.tap_command(settings(tmp_path, url)[0]), "--discover"])
    assert done.returncode != 0
    assert b"UNAUTHENTICATED" in done.stderr
    assert b"setting 'spark.remote'" in done.stderr

    record = running_server(environ)
    assert record is not None
    path = record_path(environ)
    assert path is not None
    assert record.token not in path.with_suffix(".log").read_text()
    assert path.stat().st_mode & 0o077 == 0
    assert all(one.laddr.ip in LOOPBACK for one in _listening(processes(tmp_path)))
    assert server("stop").stdout == f"{url}\n"
    assert running_server(environ) is None
    assert left_after(10, tmp_path) == []


def test_a_server_that_nobody_uses_ends(server: Server, tmp_path: Path) -> None:
    started = server("start", "--port", "0", *MASTER, "--idle-minutes", "0.01")
    assert started.returncode == 0, started.stderr
    assert left_after(60, tmp_path) == []
    assert server("status").stdout == "no server runs\n"


def test_a_server_that_cannot_start_says_why(server: Server) -> None:
    done = server("start", "--conf", "spark.driver.memory=nonsense")
    assert done.returncode != 0
    assert "the server has ended: " in done.stderr
    assert "nonsense" in done.stderr


def _listening(actual: list[psutil.Process]) -> Iterator[Any]:
    for process in actual:
        for one in process.net_connections("tcp"):
            if one.status == psutil.CONN_LISTEN:
                yield one
