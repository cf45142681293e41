"""Both programs as forks of one process that has their modules already.

Each is a process of its own, which signals end for real; it starts in milliseconds, so that a test
can kill hundreds. What a program is asked for comes over a socket, with its standard streams.
"""

from __future__ import annotations

import contextlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
PACKAGES = ("shared", "tap_spark", "target_spark")
OTHERS = ("deltalake", "psycopg", "pymysql", "s3fs", "pyarrow.dataset", "pyspark.sql")
Main = Callable[[Sequence[str]], int]


class Forked:
    """A running program; the part of `subprocess.Popen` that tests use."""

    def __init__(self, answers: socket.socket, pipes: Sequence[int]) -> None:
        self._answers = answers
        self.stdin: IO[bytes] = os.fdopen(pipes[0], "wb")
        self.stdout: IO[bytes] = os.fdopen(pipes[1], "rb")
        self.stderr: IO[bytes] = os.fdopen(pipes[2], "rb")
        self.pid = int(self._line())
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Return how it ended; raise TimeoutError if it does not in so many seconds."""
        if self.returncode is None:
            self._answers.settimeout(timeout)
            self.returncode = int(self._line())
            self._answers.close()
        return self.returncode

    def poll(self) -> int | None:
        """Return how it ended; None if it has not."""
        with contextlib.suppress(BlockingIOError):
            return self.wait(0.0)
        return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, data: bytes, timeout: float) -> tuple[bytes, bytes]:
        """Send input to its end; return output and errors."""
        with ThreadPoolExecutor() as threads:
            sent = threads.submit(self._send, data)
            pipes = [threads.submit(pipe.read) for pipe in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            finally:
                self.kill()
            sent.result()
            out, log = (pipe.result() for pipe in pipes)
        self.stdout.close()
        self.stderr.close()
        return out, log

    def _send(self, data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.stdin.write(data)
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()

    def _line(self) -> bytes:
        line = self._answers.recv(64)
        assert line, "the process that forks programs has ended"
        return line


class ForkServer:
    """The process that forks programs, while entered.

    Args:
        module: Of the helper whose `main` takes the arguments of a forked program.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._folder = tempfile.TemporaryDirectory()
        self._path = f"{self._folder.name}/socket"

    def __enter__(self) -> ForkServer:
        command = [sys.executable, __file__, self._path, self._module]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._folder.cleanup()

    def start(self, arguments: Sequence[str], environ: Mapping[str, str]) -> Forked:
        """Start a program.

        Args:
            arguments: Of `main`.
            environ: Its whole environment.
        """
        ours, theirs = [], []
        for is_input in (True, False, False):
            read, write = os.pipe()
            ours.append(write if is_input else read)
            theirs.append(read if is_input else write)
        answers = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        answers.connect(self._path)
        request = json.dumps({"arguments": list(arguments), "environ": dict(environ)})
        socket.send_fds(answers, [request.encode()], theirs)
        for fd in theirs:
            os.close(fd)
        return Forked(answers, ours)


def _serve(path: str, main: Main) -> int | None:
    """Fork programs until standard input ends; return the exit code of one within its process."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(64)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == sys.stdin.fileno():
                    return None
                if key.fileobj is not listener:
                    selector.unregister(key.fd)
                    _report(key.fd, *key.data)
                    continue
                client, _ = listener.accept()
                data, fds, _, _ = socket.recv_fds(client, 1 << 20, 3)
                pid = os.fork()
                if pid == 0:
                    return _run(main, json.loads(data), fds)
                for fd in fds:
                    os.close(fd)
                client.send(str(pid).encode())
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, client))


def _report(pidfd: int, pid: int, client: socket.socket) -> None:
    """Tell how a program ended."""
    os.close(pidfd)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        client.send(str(os.waitstatus_to_exitcode(status)).encode())
    client.close()


def _run(main: Main, request: Mapping[str, list[str]], fds: Sequence[int]) -> int:
    """Run a program in this process, which has nothing but its standard streams."""
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
    os.closerange(3, 1024)
    os.environ.clear()
    os.environ.update(request["environ"])
    return main(request["arguments"])


def _modules() -> Iterator[str]:
    for name in PACKAGES:
        actual = pkgutil.walk_packages(import_module(name).__path__, f"{name}.")
        yield from (module.name for module in actual if not module.name.endswith("__main__"))
    yield from OTHERS


if __name__ == "__main__":
    for module in _modules():
        with contextlib.suppress(ImportError):
            import_module(module)
    sys.exit(_serve(sys.argv[1], import_module(sys.argv[2]).main))
