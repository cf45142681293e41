"""S3 servers for the tests: moto in a process of its own, and versitygw if its binary is there."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

KEY, SECRET, REGION = "tests-key", "tests-secret-0123456789", "us-east-1"
BUCKET = "batches"


@dataclass(frozen=True)
class Server:
    """A running S3 server with an empty bucket."""

    name: str
    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables that an AWS SDK reads."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL": self.endpoint,
        }

    @property
    def options(self) -> dict[str, Any]:
        """Return the same as `batch_config.storage.options`."""
        return {
            "aws_access_key_id": KEY,
            "aws_secret_access_key": SECRET,
            "region_name": REGION,
            "endpoint_url": self.endpoint,
        }

    def folder(self) -> str:
        """Return a new prefix in the bucket."""
        return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@contextmanager
def running(name: str, folder: Path) -> Iterator[Server]:
    """Run a server; skip the test if it is not installed.

    Args:
        name: `moto` or `versitygw`.
        folder: An empty folder for its objects.
    """
    port = _free_port()
    command = {"moto": _moto, "versitygw": _versitygw}[name](port, folder)
    server = Server(name, f"http://127.0.0.1:{port}")
    roots = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    with (folder.parent / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command, env={**os.environ, **roots}, stdout=log, stderr=log, cwd=folder.parent
        )
        try:
            _wait_for(process, server.endpoint)
            if name == "moto":
                _create_bucket(server)
            yield server
        finally:
            process.terminate()
            process.wait(10)


def versitygw_program() -> str | None:
    return os.environ.get("SINGER_SPARK_VERSITYGW") or shutil.which("versitygw")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _moto(port: int, folder: Path) -> list[str]:
    pytest.importorskip("moto.server", reason="moto is missing: pip install -e '.[dev]'")
    return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]


def _versitygw(port: int, folder: Path) -> list[str]:
    program = versitygw_program()
    if not program:
        pytest.skip(
            "no versitygw: go install github.com/versity/versitygw/cmd/versitygw@latest and set "
            "SINGER_SPARK_VERSITYGW to its path"
        )
    (folder / BUCKET).mkdir()
    where = ["--port", f"127.0.0.1:{port}", "--region", REGION]
    return [program, *where, "posix", str(folder)]


def _wait_for(process: subprocess.Popen[bytes], endpoint: str) -> None:
    for _ in range(600):
        assert process.poll() is None, "the S3 server has ended"
        try:
            urllib.request.urlopen(endpoint, timeout=5)
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
        else:
            return
    pytest.fail("the S3 server does not answer")


def _create_bucket(server: Server) -> None:
    import botocore.session

    client = botocore.session.get_session().create_client(
        "s3",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name=REGION,
        endpoint_url=server.endpoint,
    )
    client.create_bucket(Bucket=BUCKET)
