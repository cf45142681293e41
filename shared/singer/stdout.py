"""Standard output as the Singer message stream, claimed before other code can write to it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import sys

from shared.errors import ClosedPipeError, DestinationError, SingerSparkError
from shared.singer.logs import CONSOLE

PIPE_BYTES = 1024 * 1024

_F_SETPIPE_SZ = getattr(fcntl, "F_SETPIPE_SZ", None)


class MessageOutput:
    """Writes bytes to one file descriptor, whole and in order; not safe for several threads.

    Args:
        fd: An open descriptor; it is owned by this object and closed by `close`.

    Attributes:
        bytes_written: Bytes so far.
        is_writing: Whether a write has begun and not ended; the reader may not read.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._is_terminal = os.isatty(fd)
        self.bytes_written = 0
        self.is_writing = False
        widen_pipe(fd)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data`; its memory may change once this returns.

        Args:
            data: Whole lines, with their newline.

        Raises:
            ClosedPipeError: The reader has closed the pipe.
            DestinationError: It cannot be written (e.g. a full disk behind a redirect).
        """
        view = memoryview(data).cast("B")
        with CONSOLE.apart() if self._is_terminal else contextlib.nullcontext():
            self.is_writing = True
            while view:
                try:
                    written = os.write(self._fd, view)
                except BlockingIOError:
                    self._wait_writable()
                    continue
                except OSError as error:
                    raise _unwritable(error) from error
                self.bytes_written += written
                view = view[written:]
            self.is_writing = False

    def _wait_writable(self) -> None:
        """Block until a non-blocking descriptor takes more bytes (or its reader has closed it)."""
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        poll.poll()

    def close(self) -> None:
        """Close the descriptor; safe to call twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)


def widen_pipe(fd: int) -> None:
    """Enlarge a pipe to `PIPE_BYTES`, for speed; not if the user's quota forbids it."""
    if _F_SETPIPE_SZ is not None:
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, _F_SETPIPE_SZ, PIPE_BYTES)


_original = 1


def claim_stdout(instead: str | None = None) -> MessageOutput:
    """Return the only way to standard output; send all else that writes to fd 1 to stderr.

    Must be called before Spark starts: child processes (the JVM, Python workers) inherit fd 1.

    Args:
        instead: A file to write messages to, not to standard output.
    """
    global _original  # noqa: PLW0603
    sys.stdout.flush()
    # Neither is inheritable (PEP 446).
    _original = os.dup(1) if instead is None else os.open(instead, os.O_WRONLY)
    os.dup2(2, 1)
    return MessageOutput(_original)


def original_stdout() -> int:
    """Return the descriptor of the original standard output."""
    return _original


def _unwritable(error: OSError) -> SingerSparkError:
    if not isinstance(error, BrokenPipeError):
        reason = "it is closed" if error.errno == errno.EBADF else error.strerror
        return DestinationError(
            f"standard output cannot be written ({reason})",
            hint="see where it is redirected to, and run again",
        )
    return ClosedPipeError(
        "the reader of standard output has gone away",
        hint="see the log of the program that comes next in the pipe",
    )
