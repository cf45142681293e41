"""Standard output for whole lines, and STATE after the records that it covers.

A thread writes that signals do not interrupt. STATE follows at an interval, only if changed.
"""

from __future__ import annotations

import mmap
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.errors import DISK_FULL, DestinationError, Where
from shared.singer.messages import state_line
from shared.singer.signals import Termination
from shared.singer.stdout import MessageOutput

if TYPE_CHECKING:
    from tap_spark.send.spool_files import KeyMax

SEGMENT_BYTES = 1024 * 1024
CLOSE_SECONDS = 1.0
_LOOKED_AT = 16 * 1024


@dataclass(frozen=True)
class ChunkInfo:
    """Lines that were just written to standard output.

    Attributes:
        size: Their bytes.
        key: Greatest replication key in them; None if there is none.
    """

    rows: int
    size: int
    key: KeyMax | None = None


OnChunk = Callable[[ChunkInfo], None]


class OutputClosedError(RuntimeError):
    """A line was written after `LineOutput.close`."""

    def __str__(self) -> str:
        return "standard output is closed: the run is ending"


class LineOutput:
    """Passes lines to the message stream, which it does not close; waits until they are written.

    Python raises a signal's exception in the main thread, at any point. Another thread therefore
    writes the bytes, in segments of whole lines, and `close` lets it finish its segment: the output
    then ends with a whole line, unless the reader has stopped.
    """

    def __init__(self, output: MessageOutput) -> None:
        self._output = output
        self._jobs: queue.SimpleQueue[tuple[Callable[[], None], Future[None]] | None]
        self._jobs = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="stdout", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        return self._stopped.is_set()

    @property
    def is_writing(self) -> bool:
        """See `MessageOutput.is_writing`."""
        return self._output.is_writing

    def write(self, lines: bytes | bytearray | memoryview) -> None:
        """Write lines that are in memory.

        Raises:
            ClosedPipeError: The reader has closed the pipe.
            OutputClosedError: `close` has been called.
            OSError: Any other failure of the descriptor.
        """
        self._submit(lambda: self._write_segments(memoryview(lines)))

    def copy_file(self, path: Path) -> None:
        """Write the lines of a file.

        Raises:
            ClosedPipeError: The reader has closed the pipe.
            OutputClosedError: `close` has been called.
            OSError: The file cannot be read, or the descriptor not written.
        """
        self._submit(lambda: self._copy_segments(path))

    def close(self) -> None:
        """Stop after the current segment, or after a second; nothing is written later."""
        with self._closing:
            self._stopped.set()
            self._jobs.put(None)
        self._thread.join(CLOSE_SECONDS)

    def _submit(self, job: Callable[[], None]) -> None:
        future: Future[None] = Future()
        with self._closing:
            if self._stopped.is_set():
                raise OutputClosedError
            self._jobs.put((job, future))
        future.result()

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, future = item
            try:
                job()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(None)

    def _copy_segments(self, path: Path) -> None:
        with path.open("rb") as file:
            if path.stat().st_size:
                # Unmapped when unreferenced: closing it here would fail while the traceback of
                # an error refers to it.
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                self._write_segments(memoryview(content))

    def _write_segments(self, lines: memoryview) -> None:
        start = 0
        while start < len(lines):
            if self._stopped.is_set():
                raise OutputClosedError
            stop = segment_end(lines, start, SEGMENT_BYTES)
            self._output.write(lines[start:stop])
            start = stop


def segment_end(lines: memoryview, start: int, limit: int) -> int:
    """Return where the last line ends that fits into `limit` bytes from `start`, with its newline.

    A longer line is a segment of its own.
    """
    if len(lines) - start <= limit:
        return len(lines)
    for end in range(start + limit, start, -_LOOKED_AT):
        first = max(start, end - _LOOKED_AT)
        position = bytes(lines[first:end]).rfind(b"\n")
        if position >= 0:
            return first + position + 1
    for first in range(start + limit, len(lines), limit):
        position = bytes(lines[first : first + limit]).find(b"\n")
        if position >= 0:
            return first + position + 1
    return len(lines)


def spool_error(error: OSError, folder: Path) -> DestinationError:
    """Return why lines cannot wait on disk, in the folder of the spool."""
    full = error.errno in DISK_FULL
    hint = (
        "free some space, or set spool.root to a folder on a larger disk"
        if full
        else "set spool.root to a folder that this user may write to"
    )
    return DestinationError(
        f"cannot write to the spool folder: {error.strerror or error}",
        where=Where(file=str(folder), setting="spool.root"),
        hint=hint,
    )


@contextmanager
def spooling(folder: Path | str | None) -> Iterator[None]:
    """Convert an OSError about a folder of the spool, by default the temporary one."""
    try:
        yield
    except OSError as error:
        raise spool_error(error, Path(folder or tempfile.gettempdir())) from error


Clock = Callable[[], float]
State = Mapping[str, Any]
Change = Callable[[State], State]
"""Returns the next state, given the latest one, which parallel streams share."""

LONG_BYTES = 64 * 1024
"""Bytes of a STATE above which one for each stream would be most of what a run writes."""
LONG_SECONDS = 1.0


class StateWriter:
    """Holds the state of the run and writes STATE messages. Thread-safe.

    Args:
        interval: Seconds between STATE messages inside a stream.
        clock: Returns seconds.
        termination: Ends the run after a STATE, if requested.
    """

    def __init__(
        self,
        state: State,
        write: Callable[[bytes], None],
        interval: float,
        clock: Clock = time.monotonic,
        termination: Termination | None = None,
    ) -> None:
        self.state = dict(state)
        self._write = write
        self._interval = interval
        self._clock = clock
        self._termination = termination or Termination()
        self._written_at = clock()
        self._due = False
        self._last = state_line(self.state)
        # Also held while a line is written, so that an older state never follows a newer one.
        self._lock = threading.RLock()

    def adopt(self, change: Change) -> None:
        """Change the state without writing it."""
        with self._lock:
            self.state = dict(change(self.state))

    def update(self, change: Change) -> None:
        """Change the state after records were written; write it if the interval has passed."""
        with self._lock:
            self.adopt(change)
            since = self._clock() - self._written_at
            if since >= self._interval or self._termination.requested:
                self.flush()

    def flush(self) -> None:
        """Write the state now, if it changed since it was last written.

        Raises:
            TerminatedRunError: The run was to end after a STATE.
        """
        with self._lock:
            line = state_line(self.state)
            if line != self._last:
                self._write(line)
                self._last = line
                self._written_at = self._clock()
                self._due = False
            self._termination.end_run()

    def finish(self, change: Change) -> None:
        """Change the state at the end of a stream and write it, even if it did not change.

        A long state is written once a second, and by `end`: with thousands of streams, each in the
        state, it would otherwise grow with their square.
        """
        with self._lock:
            self.adopt(change)
            since = self._clock() - self._written_at
            self._due = len(self._last) > LONG_BYTES and since < LONG_SECONDS
            if not self._due:
                self._last = b""
                self.flush()

    def end(self) -> None:
        """Write the state at the end of the run, if a stream's end has not."""
        with self._lock:
            if self._due:
                self._last = b""
                self.flush()
