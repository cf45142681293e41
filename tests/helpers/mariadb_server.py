"""A MariaDB server of the tests' own, on loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from postgres_server import free_port

PASSWORD = "tests' own: Secret 2"
WAIT_SECONDS = 60.0


def server_program(name: str) -> str | None:
    """Return the path of a program of MariaDB."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin")


class MariaDbServer:
    """A running server with an empty database `tests`; its user is `tester`."""

    def __init__(self) -> None:
        self.port = free_port()
        self.options: list[str] = []
        self.folder = Path(tempfile.mkdtemp(prefix="tap-spark-mariadb-"))
        self._socket = self.folder / "socket"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        as_root = ["--user=mysql"] if os.geteuid() == 0 else []
        if as_root:
            shutil.chown(self.folder, "mysql")
        data = f"--datadir={self.folder / 'data'}"
        install = server_program("mariadb-install-db")
        program = server_program("mariadbd")
        assert install is not None
        assert program is not None
        made = subprocess.run(
            [
                install,
                "--no-defaults",
                data,
                *as_root,
                "--skip-test-db",
                "--auth-root-socket-user=root",
                "--auth-root-authentication-method=normal",
            ],
            capture_output=True,
            cwd=self.folder,
        )
        assert made.returncode == 0, made.stdout + made.stderr
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    program,
                    "--no-defaults",
                    data,
                    *as_root,
                    f"--socket={self._socket}",
                    f"--port={self.port}",
                    "--bind-address=127.0.0.1",
                    "--skip-log-bin",
                    "--default-time-zone=+03:00",
                    "--character-set-server=utf8mb4",
                    f"--pid-file={self.folder / 'pid'}",
                    "--innodb-flush-log-at-trx-commit=0",
                    # The kernel of a sandbox may refuse io_uring in the middle of a run.
                    "--innodb-use-native-aio=0",
                    *self.options,
                ],
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        self._wait()
        secret = PASSWORD.replace("'", "''")
        self.run("create database tests character set utf8mb4", "mysql")
        self.run(f"create user tester@'127.0.0.1' identified by '{secret}'", "mysql")
        self.run("grant all on tests.* to tester@'127.0.0.1'", "mysql")

    def stop(self) -> None:
        """End the server by its own process id and remove what it wrote."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, sql: str, database: str = "tests") -> str:
        """Run a script; return the rows it prints, tabs between values."""
        client = server_program("mariadb")
        assert client is not None
        done = subprocess.run(
            [
                client,
                "--no-defaults",
                f"--socket={self._socket}",
                "-uroot",
                "-N",
                "-B",
                "--default-character-set=utf8mb4",
                database,
            ],
            input=sql.encode(),
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr.decode() + self._end()
        return done.stdout.decode()

    def _end(self) -> str:
        """Return what a server that has ended wrote last."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return ""
        log = (self.folder / "log").read_text(errors="replace")
        return f"\nthe server has ended, exit code {code}:\n{log[-4000:]}"

    def _wait(self) -> None:
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end:
            assert self._process is not None
            if self._process.poll() is not None:
                break
            try:
                self.run("select 1", "mysql")
            except AssertionError:
                time.sleep(0.1)
            else:
                return
        raise AssertionError((self.folder / "log").read_text())
