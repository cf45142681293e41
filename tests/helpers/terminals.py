"""Programs whose standard output is a real terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Sequence
from pathlib import Path


def on_terminal(command: Sequence[str], folder: Path) -> str:
    """Return what a program writes to standard output, if that is a terminal."""
    return _read(command, folder, subprocess.PIPE)


def on_one_terminal(script: str, folder: Path) -> str:
    """Return what a script of bash shows on a terminal of 80 columns, all its outputs together."""
    return _read(["bash", "-c", script], folder, None)


def _read(command: Sequence[str], folder: Path, errors: int | None) -> str:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    stderr = theirs if errors is None else errors
    process = subprocess.Popen(command, stdout=theirs, stderr=stderr, cwd=folder)
    os.close(theirs)
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # So Linux ends a terminal whose other side is closed.
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err or parts
    return b"".join(parts).decode().replace("\r\n", "\n")
