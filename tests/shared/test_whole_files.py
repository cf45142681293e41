"""Files that are read whole: settings, catalogs and states."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.errors import SourceError
from shared.settings import loading
from shared.settings.loading import read_settings_file
from tap_spark.plan.catalog import load_catalog
from tap_spark.state.bookmarks import load_state

READERS = pytest.mark.parametrize(
    "read",
    [lambda path: read_settings_file(Path(path)), load_catalog, load_state],
    ids=["settings", "catalog", "state"],
)


@READERS
def test_a_device_that_never_ends(
    read: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "LARGEST", 1 << 20)
    with pytest.raises((SourceError, ValueError), match="it has more than 1 MiB"):
        read("/dev/zero")


@READERS
def test_a_pipe_of_a_shell(read: Callable[[str], Any], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p")
    text = '{"streams": [], "bookmarks": {}}'
    writer = threading.Thread(target=(tmp_path / "p").write_text, args=(text,))
    writer.start()
    assert read(str(tmp_path / "p"))
    writer.join()
