"""Servers of MariaDB and MySQL, the tests' own, on loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import ClassVar

from postgres_server import free_port

PASSWORD = "tests' own: Secret 2"
WAIT_SECONDS = 60.0
_ALONE = ["--mysqlx=OFF", "--local-infile=1", "--secure-file-priv=NULL"]
"""Options of MySQL: nothing outside of its folder, and what MariaDB's default is."""
_QUICK = ["--performance-schema=OFF", "--innodb-flush-method=nosync", "--innodb-doublewrite=OFF"]
"""Options of MySQL for tables that need not survive the server."""
MYSQL_FOLDER = "SINGER_SPARK_MYSQL"
"""Environment variable: a folder with the files of Debian's packages of MySQL's own server."""


def server_program(name: str) -> str | None:
    """Return the path of a program of MariaDB."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin")


def mysql_program() -> list[str] | None:
    """Return the command of MySQL's own server, which may need another C library than ours."""
    named = os.environ.get(MYSQL_FOLDER)
    if not named:
        return None
    folder = Path(named)
    [loader] = folder.glob("usr/lib/*/ld-linux-*.so.*")
    program = [str(loader), "--library-path", str(loader.parent), str(folder / "usr/sbin/mysqld")]
    return [*program, "--no-defaults", f"--lc-messages-dir={folder / 'usr/share/mysql'}"]


class MySqlLikeServer:
    """A running server with an empty database `tests`; its user is `tester`."""

    kind: ClassVar[str]

    def __init__(self) -> None:
        self.port = free_port()
        self.options: list[str] = []
        self.folder = Path(tempfile.mkdtemp(prefix=f"tap-spark-{self.kind}-"))
        self.data = f"--datadir={self.folder / 'data'}"
        self.as_user = ["--user=mysql"] if os.geteuid() == 0 else []
        # The system's folder for temporary files may be closed to the server's user.
        self.temporary = f"--tmpdir={self.folder / 'tmp'}"
        self._socket = self.folder / "socket"
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def missing(cls) -> str:
        """Return why the server cannot be started; empty if it can."""
        raise NotImplementedError

    def install(self) -> list[str]:
        """Return the command that makes the server's own tables."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """Return the command that starts the server, with options that only this server has."""
        raise NotImplementedError

    def start(self) -> None:
        temporary = self.folder / "tmp"
        temporary.mkdir()
        if self.as_user:
            for folder in (self.folder, temporary):
                shutil.chown(folder, "mysql")
        env = {**os.environ, "TMPDIR": str(temporary)}
        installed = subprocess.run(self.install(), capture_output=True, cwd=self.folder, env=env)
        assert installed.returncode == 0, (installed.stdout + installed.stderr).decode()
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *self.command(),
                    self.data,
                    self.temporary,
                    *self.as_user,
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
                env=env,
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

    def url(self, database: str = "tests") -> str:
        """Return the JDBC URL of a database."""
        return f"jdbc:{self.kind}://127.0.0.1:{self.port}/{database}"

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


class MariaDbServer(MySqlLikeServer):
    """A server of MariaDB, by the operating system's packages."""

    kind = "mariadb"

    @classmethod
    def missing(cls) -> str:
        return "" if server_program("mariadbd") else "MariaDB's server program is not installed"

    def install(self) -> list[str]:
        program = server_program("mariadb-install-db")
        assert program is not None
        root = ["--auth-root-socket-user=root", "--auth-root-authentication-method=normal"]
        places = [self.data, self.temporary]
        return [program, "--no-defaults", *places, *self.as_user, "--skip-test-db", *root]

    def command(self) -> list[str]:
        program = server_program("mariadbd")
        assert program is not None
        return [program, "--no-defaults"]


class MySqlServer(MySqlLikeServer):
    """A server of MySQL itself; the folder that it comes from is named by `MYSQL_FOLDER`."""

    kind = "mysql"

    @classmethod
    def missing(cls) -> str:
        # Stable releases of Debian do not have it.
        return "" if mysql_program() else f"not offered: MySQL's own server ({MYSQL_FOLDER})"

    def install(self) -> list[str]:
        places = [self.data, self.temporary]
        return [*(mysql_program() or []), "--initialize-insecure", *places, *self.as_user]

    def command(self) -> list[str]:
        return [*(mysql_program() or []), *_ALONE, *_QUICK]
