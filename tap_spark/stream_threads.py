"""Several streams at once: threads that take one stream after another, and end together."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

STOP_SECONDS = 5.0
Work = Callable[[], None]


def run_each(works: Iterable[Work], at_once: int, stop: Callable[[BaseException], None]) -> None:
    """Run every piece of work, at most so many at the same time.

    Args:
        works: What to do, in the order it is begun.
        at_once: Threads; 1 works in the caller's own.
        stop: Called once, with the reason, when a piece of work failed or the caller is
            interrupted: makes those that still run fail soon. Work that has not begun is left.

    Raises:
        BaseException: What the first piece of work failed with, or the interruption.
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
