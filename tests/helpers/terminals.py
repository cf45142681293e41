"""Programs whose standard output is a real terminal."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Sequence
from pathlib import Path


def on_terminal(command: Sequence[str], folder: Path) -> str:
    """Return what a program writes to standard output, if that is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, cwd=folder)
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
    assert process.returncode == 0, err.decode()
    return b"".join(parts).decode().replace("\r\n", "\n")
