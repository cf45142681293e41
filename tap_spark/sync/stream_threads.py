"""Streams in parallel: threads that take one stream after another, and end together."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

STOP_SECONDS = 5.0
Work = Callable[[], None]


def run_parallel(
    works: Iterable[Work], at_once: int, stop: Callable[[BaseException], None]
) -> None:
    """Run every function, at most `at_once` at the same time.

    Args:
        works: The functions, in the order in which they start.
        at_once: Number of threads; 1 runs them in the caller's own thread.
        stop: Called once, with the reason, when a function failed or the caller is interrupted;
            makes the running functions fail soon. The others are not started.

    Raises:
        BaseException: The first failure of a function, or the interruption.
    """
    waiting = deque(works)
    if min(at_once, len(waiting)) <= 1:
        for work in waiting:
            work()
        return
    ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    threads = [
        threading.Thread(target=_take, args=(waiting, ended), name=f"stream-{number}", daemon=True)
        for number in range(min(at_once, len(waiting)))
    ]
    try:
        for thread in threads:
            thread.start()
        for _ in threads:
            found = ended.get()
            if found is not None:
                raise found
    except BaseException as failure:
        waiting.clear()
        stop(failure)
        _join(threads)
        raise


def _take(waiting: deque[Work], ended: queue.SimpleQueue[BaseException | None]) -> None:
    try:
        while True:
            try:
                work = waiting.popleft()
            except IndexError:
                break
            work()
    except BaseException as error:
        ended.put(error)
    else:
        ended.put(None)


def _join(threads: Iterable[threading.Thread]) -> None:
    until = time.monotonic() + STOP_SECONDS
    for thread in threads:
        if thread.ident is not None:
            thread.join(max(0.0, until - time.monotonic()))
