"""A PostgreSQL cluster of the tests' own, on loopback, and databases in it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tap_spark.stream_config import ConnectionConfig

PASSWORD = "tests' own: Secret 1"
WAIT_SECONDS = 60.0
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "log_min_messages": "fatal",
    "wal_level": "logical",
    "timezone": "Europe/Athens",  # not the one of Spark's session
}

SUPERUSER_RULES = "host all postgres 127.0.0.1/32 password\nlocal all postgres password\n"
"""The superuser's password comes as it is: SCRAM hashes it 4096 times for each session, which takes
Java a third of its time where Spark reads small tables. All other roles use SCRAM."""


def server_programs() -> Path | None:
    """Return the folder of PostgreSQL's newest server programs."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    actual = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[4])
    )
    return actual[-1].parent if actual else None


class PostgresServer:
    """A running cluster; its superuser is `postgres`."""

    def __init__(self, programs: Path, port: int) -> None:
        self.programs = programs
        self.port = port
        self._folder = Path(tempfile.mkdtemp(prefix="tap-spark-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        as_user = self._as_user()
        data = self._folder / "data"
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        if as_user:
            shutil.chown(self._folder, "postgres")
            shutil.chown(secret, "postgres")
        created = subprocess.run(
            [
                *as_user,
                str(self.programs / "initdb"),
                "-D",
                str(data),
                "-U",
                "postgres",
                "-A",
                "scram-sha-256",
                f"--pwfile={secret}",
                "-E",
                "UTF8",
                "--locale=C.UTF-8",
                "--no-sync",
            ],
            capture_output=True,
            cwd=self._folder,
        )
        assert created.returncode == 0, created.stderr.decode()
        rules = data / "pg_hba.conf"
        rules.write_text(SUPERUSER_RULES + rules.read_text())
        options = {**SETTINGS, "unix_socket_directories": str(self._folder)}
        changes = [part for item in options.items() for part in ("-c", "=".join(item))]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *as_user,
                    str(self.programs / "postgres"),
                    "-D",
                    str(data),
                    "-p",
                    str(self.port),
                    *changes,
                ],
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )
        self._wait()

    def stop(self) -> None:
        """End the server by its own process id and remove what it wrote."""
        if self._process is not None:
            pid_file = self._folder / "data" / "postmaster.pid"
            if self._process.poll() is None and pid_file.exists():
                os.kill(int(pid_file.read_text().split()[0]), 2)  # SIGINT: fast shutdown
            self._process.wait(30)
        shutil.rmtree(self._folder, ignore_errors=True)

    def program(self, name: str, *args: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start one of PostgreSQL's client programs, logged in as the superuser."""
        env = {
            **os.environ,
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.port),
            "PGUSER": "postgres",
            "PGPASSWORD": PASSWORD,
            "PGCLIENTENCODING": "UTF8",
        }
        return subprocess.Popen([str(self.programs / name), *args], env=env, **options)

    def psql(self, sql: str, database: str = "postgres", *flags: str) -> bytes:
        """Run a script and return what it prints: unaligned, tuples only."""
        pipe = subprocess.PIPE
        arguments = ("-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", *flags, "-d", database)
        client = self.program("psql", *arguments, stdin=pipe, stdout=pipe, stderr=pipe)
        out, reported = client.communicate(sql.encode())
        assert client.returncode == 0, reported.decode()
        return out

    def _as_user(self) -> list[str]:
        """Return a prefix that runs commands as another user than root, whom PostgreSQL rejects."""
        return ["setpriv", *_POSTGRES_USER] if os.geteuid() == 0 else []

    def _wait(self) -> None:
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end:
            assert self._process is not None
            if self._process.poll() is not None:
                break
            if self.program("pg_isready", "-q").wait() == 0:
                return
            time.sleep(0.05)
        raise AssertionError((self._folder / "log").read_text())


_POSTGRES_USER = ("--reuid=postgres", "--regid=postgres", "--init-groups")


@dataclass(frozen=True)
class Database:
    """A database of a server, for the tests of one module."""

    server: PostgresServer
    name: str

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.server.port}/{self.name}"

    def run(self, sql: str) -> str:
        """Run a script; return what it prints."""
        return self.server.psql(sql, self.name).decode()

    def value(self, query: str) -> str:
        """Return the one value of a query, as PostgreSQL writes it."""
        return self.run(query).rstrip("\n")

    def copy(self, query: str, form: str = "csv, header, force_quote *") -> str:
        """Return what COPY TO STDOUT writes for a query, with UTC as time zone."""
        script = f"set timezone to 'UTC'; copy ({query}) to stdout with (format {form})"
        return self.run(script)

    def connection(self, **changes: Any) -> ConnectionConfig:
        """Return how the tap reaches it."""
        supplied = {"user": "postgres", "password": PASSWORD, "retries": 0, **changes}
        return ConnectionConfig(**{"name": "pg", "url": self.url, **supplied})


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
