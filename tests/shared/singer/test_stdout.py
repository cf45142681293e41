from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shared.errors import ClosedPipeError, DestinationError
from shared.singer import stdout
from shared.singer.stdout import MessageOutput

ROOT = Path(__file__).resolve().parents[3]


class Reader:
    """Reads the other end of a pipe in a thread, slowly on request."""

    def __init__(self, fd: int, pause: float = 0.0) -> None:
        self.data = bytearray()
        self._fd = fd
        self._pause = pause
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while block := os.read(self._fd, 65536):
            self.data += block
            time.sleep(self._pause)
        os.close(self._fd)

    def all(self) -> bytes:
        self._thread.join(20)
        return bytes(self.data)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    yield os.pipe()


@pytest.mark.parametrize("size", [0, 1, 65536, 5_000_003])
@pytest.mark.parametrize("blocking", [True, False])
def test_everything_arrives_whole(pipe: tuple[int, int], size: int, blocking: bool) -> None:
    source, sink = pipe
    os.set_blocking(sink, blocking)
    reader = Reader(source, pause=0.002)
    output = MessageOutput(sink)
    data = os.urandom(size)
    output.write(data)
    output.write(b"end\n")
    output.close()
    assert reader.all() == data + b"end\n"
    assert output.bytes_written == size + 4


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_any_kind_of_buffer(pipe: tuple[int, int], make: Callable[[bytes], bytes]) -> None:
    reader = Reader(pipe[0])
    output = MessageOutput(pipe[1])
    output.write(make(b'{"type":"STATE"}\n'))
    output.close()
    assert reader.all() == b'{"type":"STATE"}\n'


def test_a_buffer_of_wider_items_is_written_as_bytes(pipe: tuple[int, int]) -> None:
    reader = Reader(pipe[0])
    output = MessageOutput(pipe[1])
    output.write(memoryview(b"abcdefgh").cast("I"))
    output.close()
    assert reader.all() == b"abcdefgh"


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("size", [0, 10, 3_000_000])
def test_many_bytes_are_written(pipe: tuple[int, int], size: int, blocking: bool) -> None:
    data = os.urandom(size)
    os.set_blocking(pipe[1], blocking)
    reader = Reader(pipe[0], pause=0.002)
    output = MessageOutput(pipe[1])
    output.write(b"head\n")
    output.write(data)
    output.close()
    assert reader.all() == b"head\n" + data
    assert output.bytes_written == size + 5


def test_an_appending_file(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_bytes(b"one\n")
    output = MessageOutput(os.open(target, os.O_WRONLY | os.O_APPEND))
    output.write(b"two\n")
    output.close()
    assert target.read_bytes() == b"one\ntwo\n"


def test_a_closed_pipe_has_its_own_error(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    with pytest.raises(ClosedPipeError) as caught:
        MessageOutput(pipe[1]).write(b"x")
    assert caught.value.exit_code == 8


def test_a_reader_that_leaves_while_the_pipe_is_full(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    timer = threading.Timer(0.2, os.close, (pipe[0],))
    timer.start()
    with pytest.raises(ClosedPipeError):
        MessageOutput(pipe[1]).write(b"x" * 10_000_000)


def test_a_full_disk_is_no_closed_pipe() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with pytest.raises(DestinationError, match=r"standard output.*No space left"):
        MessageOutput(os.open("/dev/full", os.O_WRONLY)).write(b"x")


def test_the_pipe_is_made_bigger(pipe: tuple[int, int]) -> None:
    if stdout._F_SETPIPE_SZ is None:
        pytest.skip("pipes have one size here")
    os.set_blocking(pipe[1], False)
    MessageOutput(pipe[1])
    assert os.write(pipe[1], b"x" * 2_000_000) == stdout.PIPE_BYTES


def test_close_twice(pipe: tuple[int, int]) -> None:
    output = MessageOutput(pipe[1])
    output.close()
    output.close()


def run_program(code: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=120, **options
    )


def test_only_messages_reach_standard_output() -> None:
    ended = run_program(
        "import os, subprocess, sys\n"
        "print('before')\n"
        "from shared.singer.stdout import claim_stdout\n"
        "output = claim_stdout()\n"
        "print('printed', flush=True)\n"
        "os.write(1, b'raw\\n')\n"
        "subprocess.run(['sh', '-c', 'echo child; ls -l /proc/self/fd >/dev/null'])\n"
        "assert not os.get_inheritable(output._fd)\n"
        "output.write(b'{}\\n')\n"
    )
    assert ended.returncode == 0
    assert ended.stdout == b"before\n{}\n"
    assert ended.stderr.split() == [b"printed", b"raw", b"child"]


def test_nothing_is_said_at_exit_after_a_closed_pipe() -> None:
    source, sink = os.pipe()
    os.close(source)
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            "from shared.errors import ClosedPipeError\n"
            "from shared.singer.stdout import claim_stdout\n"
            "output = claim_stdout()\n"
            "try:\n    output.write(b'x')\n"
            "except ClosedPipeError as error:\n    raise SystemExit(error.exit_code)\n",
        ],
        cwd=ROOT,
        stdout=sink,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    os.close(sink)
    assert (ended.returncode, ended.stderr) == (8, b"")


@pytest.mark.pipe
def test_java_cannot_write_between_the_messages() -> None:
    ended = run_program(
        "import logging\n"
        "logging.basicConfig(level='INFO')\n"
        "from shared.singer.stdout import claim_stdout\n"
        "output = claim_stdout()\n"
        "from shared.spark.session import SessionStarter\n"
        "from shared.spark.conf import SparkSettings\n"
        "starter = SessionStarter(SparkSettings(master='local[1]'))\n"
        "starter.start()\n"
        "java = starter.get()._jvm.java.lang.System\n"
        "text = ('noise from Java ' * 20 + chr(10)) * 200\n"
        "for n in range(50):\n"
        "    java.out.println(text)\n"
        "    java.err.println(text)\n"
        "    output.write(b'{\"n\":%d}\\n' % n)\n"
        "starter.stop()\n"
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stdout == b"".join(b'{"n":%d}\n' % n for n in range(50))
    assert ended.stderr.count(b"noise from Java") > 100_000
