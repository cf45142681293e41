"""Threads for slow work, and the descriptor by which they wake the run loop."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections import deque
from collections.abc import Callable
from types import FrameType

from shared.errors import SingerSparkError
from shared.singer.signals import SIGNALS, note_signal
from target_spark.core import events as ev

LONGEST_WAIT = 3600.0


class Wakeup:
    """A pipe that ends a wait for stdin at once."""

    def __init__(self) -> None:
        self.fd, self.write_fd = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self.write_fd, False)

    def set(self) -> None:
        """Wake the waiting thread, or keep it from going to sleep."""
        with contextlib.suppress(BlockingIOError):
            os.write(self.write_fd, b"\0")

    def wait(self, fd: int | None, seconds: float) -> bool:
        """Sleep until `set` is called, `fd` is readable, or the time is over.

        Args:
            fd: A descriptor to read from, or None.
            seconds: Longest time; `math.inf` means unbounded.

        Returns:
            Whether `fd` is readable (or at its end).
        """
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        if fd is not None:
            poll.register(fd, select.POLLIN)
        ready = {ready for ready, _ in poll.poll(max(0.0, min(seconds, LONGEST_WAIT)) * 1000)}
        if self.fd in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self.fd, 4096)
        return fd in ready

    def close(self) -> None:
        """Close both ends."""
        os.close(self.fd)
        os.close(self.write_fd)


class Workers:
    """Runs each piece of work in a daemon thread; the pipeline bounds how many there are.

    Args:
        wakeup: Set when an answer is there.
    """

    def __init__(self, wakeup: Wakeup) -> None:
        self._wakeup = wakeup
        self._answers: deque[ev.WorkDone | ev.WorkFailed] = deque()
        self._lock = threading.Lock()
        self._closed = False

    def start(self, work: int, task: Callable[[], ev.WorkDone]) -> None:
        """Start `task`; its result or failure will be in `answers`."""
        name = f"work-{work}"
        threading.Thread(target=self._execute, args=(work, task), name=name, daemon=True).start()

    def answers(self) -> list[ev.WorkDone | ev.WorkFailed]:
        """Return the work that has ended since the last call, in that order."""
        results = []
        while self._answers:
            results.append(self._answers.popleft())
        return results

    def close(self) -> None:
        """Ignore the results of running work."""
        with self._lock:
            self._closed = True

    def _execute(self, work: int, task: Callable[[], ev.WorkDone]) -> None:
        try:
            answer: ev.WorkDone | ev.WorkFailed = task()
        except BaseException as error:
            answer = ev.WorkFailed(work, error)
        self._answers.append(answer)
        # Under the lock: once closed, the descriptor may have become another file's.
        with self._lock:
            if not self._closed:
                self._wakeup.set()


class StopSignals:
    """Keeps the first SIGINT, SIGTERM or SIGHUP in `error` while entered; the second one raises it.

    Outside the main thread signals are left alone.

    Args:
        wakeup: Set when a signal is caught.
    """

    def __init__(self, wakeup: Wakeup) -> None:
        self.error: SingerSparkError | None = None
        self._wakeup = wakeup
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}
        self._wakeup_fd = -1

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            fd = self._wakeup.write_fd
            self._wakeup_fd = signal.set_wakeup_fd(fd, warn_on_full_buffer=False)
            for number in SIGNALS:
                if signal.getsignal(number) is signal.SIG_IGN and number == signal.SIGHUP:
                    continue  # The run was started by `nohup`.
                self._before[number] = signal.signal(number, self._caught)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before:
            signal.set_wakeup_fd(self._wakeup_fd)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _caught(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        again = self.error is not None
        note_signal(number)
        name = signal.Signals(number).name
        self.error = SIGNALS[number](f"stopped by {name}")
        if again:
            raise self.error
