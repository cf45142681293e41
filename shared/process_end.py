"""Start and end of a process: its standard streams, and threads of libraries still at work."""

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
    open_standard_streams()
    codes: list[int] = []
    # Registered before what the run registers, so it runs last.
    atexit.register(_end_process, codes)
    codes.append(main())
    return codes[0]


def open_standard_streams() -> None:
    """Open those of the descriptors 0 to 2 that the caller has closed.

    Otherwise the next file that is opened becomes standard input, output or error. What is opened
    here refuses to be read (0) or written (1), so that its use is an error; logs get lost.
    """
    for fd, flags in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, flags)  # The lowest free descriptor: this one.
            os.set_inheritable(fd, True)
    for name, fd in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(fd, "w", closefd=False))


def _end_process(codes: list[int]) -> None:
    """End the process; do nothing if the program has not returned."""
    for code in codes:
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
