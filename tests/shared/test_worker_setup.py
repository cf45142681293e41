"""Between two tasks, a worker of Spark neither reads zips again nor looks at what it imported."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from shared.singer.platform import freeze_imports, keep_zip_directories

_END_RECORD = 22
"""Bytes at the end of a zip, without which its directory cannot be read."""


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "modules.zip"
    _write(path, "zipped_first", "zipped_second")
    monkeypatch.syspath_prepend(str(path))
    importlib.import_module("zipped_first")
    yield path
    for name in [name for name in sys.modules if name.startswith("zipped_")]:
        del sys.modules[name]


def _write(path: Path, *names: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(f"{name}.py", "")


def test_an_unchanged_zip_is_not_read_again(archive: Path) -> None:
    before = archive.stat()
    keep_zip_directories()
    with archive.open("r+b") as file:
        file.seek(-_END_RECORD, os.SEEK_END)
        file.write(bytes(_END_RECORD))
    os.utime(archive, ns=(before.st_atime_ns, before.st_mtime_ns))
    importlib.invalidate_caches()
    importlib.import_module("zipped_second")


def test_a_changed_zip_is_read_again(archive: Path) -> None:
    keep_zip_directories()
    keep_zip_directories()
    _write(archive, "zipped_third")
    importlib.invalidate_caches()
    importlib.import_module("zipped_third")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("zipped_second")


def test_only_a_worker_keeps_its_imports_from_garbage_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "pyspark.worker", raising=False)
    freeze_imports()
    assert not gc.get_freeze_count()
    monkeypatch.setitem(sys.modules, "pyspark.worker", ModuleType("pyspark.worker"))
    try:
        freeze_imports()
        count = gc.get_freeze_count()
        assert count > len(sys.modules)
        kept: list[list[int]] = [[]]
        freeze_imports()
        assert gc.get_freeze_count() <= count
        del kept
    finally:
        gc.unfreeze()
