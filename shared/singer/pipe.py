"""Both programs as a pipe of two processes that get every signal once and end together."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from shared.errors import ClosedPipeError

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
_GRACE_AFTER_FAILURE, _GRACE = 5.0, 60.0
"""Seconds that the tap has to end by itself after the target has failed, or ended well."""
_SECONDS_TO_END = 30.0


@dataclass(frozen=True)
class Command:
    """A program to start.

    Attributes:
        args: The command line.
        descriptors: What it inherits beside its standard streams.
    """

    args: Sequence[str]
    descriptors: Sequence[int] = ()


@dataclass(frozen=True)
class Ends:
    """How both programs ended, as a shell tells it: 128 and the signal if a signal killed one.

    Attributes:
        tap: Exit code of the tap.
        target: Exit code of the target.
        tap_stopped: The tap was ended because the target had ended before it.
    """

    tap: int
    target: int
    tap_stopped: bool = False

    def failed(self, good: int | None = None) -> str | None:
        """Return the program whose failure is that of the run; None if both ended well.

        It is the tap, as the failure of a target may follow from that of its tap; but the target,
        if the tap only could not write to it.

        Args:
            good: Another exit code of the tap that is no failure.
        """
        follows = self.tap_stopped or self.tap in {
            ClosedPipeError.exit_code,
            128 + signal.SIGPIPE,
        }
        if self.tap not in {0, good} and not (follows and self.target):
            return "tap"
        return "target" if self.target else None

    def code(self, good: int | None = None) -> int:
        """Return the exit code of the run."""
        return self.target if self.failed(good) == "target" else self.tap


def run_pipe(tap: Command, target: Command, folder: Path, environ: Mapping[str, str]) -> Ends:
    """Run both programs until both have ended.

    Each signal that this process gets goes to both, once: they are not in its process group, whose
    processes get the signals of a terminal by themselves. On Linux, both get SIGTERM if this
    process is killed.

    Args:
        tap: Its standard output is the standard input of the target.
        target: Its standard output is discarded.
        folder: Where both run.
        environ: Their environment variables.
    """
    received: list[int] = []
    passed_on: dict[subprocess.Popen[bytes], int] = {}

    def pass_on(process: subprocess.Popen[bytes]) -> None:
        """Send what the process lacks; a signal may interrupt this, too."""
        while passed_on[process] < len(received):
            passed_on[process] += 1
            process.send_signal(received[passed_on[process] - 1])

    def forward(number: int, _: FrameType | None) -> None:
        received.append(number)
        for process in list(passed_on):
            pass_on(process)

    def start(command: Command, stdin: int, stdout: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command.args,
            stdin=stdin,
            stdout=stdout,
            cwd=folder,
            env=environ,
            pass_fds=command.descriptors,
            start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509  # This process has no other thread.
        )
        passed_on[process] = 0
        pass_on(process)
        return process

    prepare = _ending_with(os.getpid())
    with _handled(forward):
        ends = os.pipe()
        try:
            first = start(tap, subprocess.DEVNULL, ends[1])
            last = start(target, ends[0], subprocess.DEVNULL)
        except BaseException:
            for process in passed_on:
                process.kill()
            raise
        finally:
            for end in ends:
                os.close(end)
        target_code = last.wait()
        stopped = _ended(first, _GRACE_AFTER_FAILURE if target_code else _GRACE)
        return Ends(_shell_code(first.returncode), _shell_code(target_code), stopped)


def _ended(process: subprocess.Popen[bytes], grace: float) -> bool:
    """Wait for a process, and end it if it takes too long; return whether that was needed."""
    for seconds, end in ((grace, process.terminate), (_SECONDS_TO_END, process.kill)):
        try:
            process.wait(seconds)
            return end == process.kill
        except subprocess.TimeoutExpired:
            end()
    process.wait()
    return True


def _shell_code(code: int) -> int:
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle signals, but for those that the caller has told this process to ignore (`nohup`)."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, old in before.items():
        if old is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _ending_with(parent: int) -> Callable[[], None] | None:
    """Return what lets a new process get SIGTERM when its parent ends; None if nothing does."""
    if sys.platform != "linux":
        return None
    control = ctypes.CDLL(None).prctl

    def prepare() -> None:
        control(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGTERM)

    return prepare
