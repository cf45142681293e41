"""Commits are on the disk before they are reported."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lake_loads import Load

from shared.errors import DestinationError
from target_spark.destinations.lakes import lake_destination, lake_table


class Syncs:
    """Stands for `syncfs`; counts its calls, and fails where it shall."""

    def __init__(self, code: int = 0) -> None:
        self.calls, self.code = 0, code

    def __call__(self, descriptor: int) -> int:
        assert descriptor > 2
        self.calls += 1
        return self.code


def test_only_folders_on_local_disks_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs()
    monkeypatch.setattr(lake_table, "libc_function", lambda _: syncs)
    for folder in (None, "s3://bucket/table", str(tmp_path / "missing")):
        lake_table.sync_to_disk(folder)
    assert syncs.calls == 0
    lake_table.sync_to_disk(str(tmp_path))
    lake_table.sync_to_disk(f"file://{tmp_path}")
    assert syncs.calls == 2


def test_without_the_call_everything_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[None] = []
    monkeypatch.setattr(lake_table, "libc_function", lambda _: None)
    monkeypatch.setattr("os.sync", lambda: calls.append(None))
    lake_table.sync_to_disk(str(tmp_path))
    assert len(calls) == 1


def test_a_disk_that_fails_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_table, "libc_function", lambda _: Syncs(-1))
    monkeypatch.setattr("ctypes.get_errno", lambda: errno.EIO)
    with pytest.raises(DestinationError, match=r"cannot write to .*Input/output error"):
        lake_table.sync_to_disk(str(tmp_path))


@pytest.mark.spark
@pytest.mark.server
class TestWithTables:
    @pytest.fixture
    def seen(self, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        actual: list[Any] = []
        monkeypatch.setattr(lake_destination, "sync_to_disk", actual.append)
        return actual

    def test_flushes_versions_and_replacements(
        self, delta_load: Callable[..., Load], tmp_path: Path, seen: list[Any]
    ) -> None:
        folder = str(tmp_path / "lake" / "orders")
        load = delta_load("id long, _sdc_deleted_at timestamp, _sdc_table_version long")
        load.load([{"id": 1, "_sdc_table_version": 1}])
        assert seen == [folder]
        load.activate(2)
        assert seen == [folder] * 2
        load.end()
        whole = delta_load("id long", method="overwrite")
        whole.load([{"id": 1}])
        assert seen == [folder] * 2, "nothing is durable before the end"
        whole.end()
        assert seen == [folder] * 3

    def test_a_disk_that_fails_fails_the_flush(
        self,
        delta_load: Callable[..., Load],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        load = delta_load("id long")
        flush = load.flush([{"id": 1}])
        with monkeypatch.context() as broken:
            broken.setattr(lake_table, "libc_function", lambda _: Syncs(-1))
            broken.setattr("ctypes.get_errno", lambda: errno.EIO)
            with pytest.raises(DestinationError, match=r"cannot write to .*Input/output error"):
                load.destination.commit(flush)
        load.destination.commit(flush)
        assert load.rows() == [(1,)], "the same flush again changes nothing"
