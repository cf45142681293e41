"""Many files at once, on a local disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_files_are_removed_when_the_process_ends(tmp_path: Path) -> None:
    """Functions at exit get no new threads."""
    paths = [str(tmp_path / name) for name in "ab"]
    for path in paths:
        Path(path).touch()
    code = (
        "import atexit, sys; from shared.storage.access import delete_all; "
        "atexit.register(delete_all, sys.argv[1:])"
    )
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True)
    assert done.stderr == ""
    assert not list(tmp_path.iterdir())
