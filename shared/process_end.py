"""The end of a process, in which threads of libraries may still be at work."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress


def run_to_exit(main: Callable[[], int]) -> int:
    """Run a program; end the process with its exit code once all functions at exit have run.

    Python's own finalization is left out: if a thread of Arrow still lets go of Python's objects,
    it aborts or hangs.

    Args:
        main: Returns the exit code.

    Returns:
        The exit code, for `sys.exit`.
    """
    codes: list[int] = []
    # Registered before what the run registers, so it runs last.
    atexit.register(_end_process, codes)
    codes.append(main())
    return codes[0]


def _end_process(codes: list[int]) -> None:
    """End the process; do nothing if the program has not returned."""
    for code in codes:
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
