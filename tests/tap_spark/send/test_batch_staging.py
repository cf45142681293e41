"""The folder of batch files that are not announced yet: moved whole, removed after a killed run."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from shared.settings.batch_settings import BatchConfig
from shared.storage import owned_folders
from shared.storage.owned_folders import LOCK_NAME
from tap_spark.send import batch_plan
from tap_spark.send.batch_plan import PREFIX, BatchStagingFolder, staging_folder_for


def dead_folder(root: Path) -> Path:
    """Create a folder as a killed run leaves it."""
    folder = root / f"{PREFIX}{socket.gethostname()}-dead"
    folder.mkdir(parents=True)
    (folder / LOCK_NAME).touch()
    (folder / "a.parquet").write_text("x")
    return folder


def waiting(place: BatchStagingFolder, name: str) -> str:
    assert place.work is not None
    path = Path(place.work, name)
    path.write_text("whole")
    return str(path)


def test_a_file_is_moved_when_it_is_shown(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with BatchStagingFolder(str(root), "year=1/x-") as place:
        assert not root.exists()
        at = waiting(place, "x-a.csv")
        assert Path(at).parent.parent == root
        place.publish(at, f"file://{root}/year=1/x-a.csv")
        assert (root / "year=1" / "x-a.csv").read_text() == "whole"
        waiting(place, "x-b.csv")
    assert [path.name for path in root.rglob("*")] == ["year=1", "x-a.csv"]
    place.close()


def test_names_are_durable_before_they_are_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(batch_plan, "make_durable", synced.append)
    root = tmp_path / "a" / "b"
    with BatchStagingFolder(str(root), "pre/") as place:
        at = waiting(place, "f")
        # Every folder that is new is named durably by the one above it.
        assert sorted(synced) == [str(tmp_path), str(tmp_path / "a"), str(root)]
        synced.clear()
        place.publish(at, f"file://{root}/pre/f")
        assert synced == [str(root / "pre")]


def test_nothing_is_created_if_nothing_is_written(tmp_path: Path) -> None:
    with BatchStagingFolder(str(tmp_path / "root"), ""):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("prefix", ["", "pre-", "a/b/c-"])
def test_files_of_a_killed_run_are_removed(tmp_path: Path, prefix: str) -> None:
    dead = dead_folder(tmp_path)
    foreign = tmp_path / f"{PREFIX}another-machine-x"
    foreign.mkdir()
    (tmp_path / "other.parquet").touch()
    with (
        BatchStagingFolder(str(tmp_path), prefix) as place,
        BatchStagingFolder(str(tmp_path), prefix) as other,
    ):
        assert place.work
        assert other.work
        assert place.work != other.work
        assert Path(place.work).is_dir()
        assert not dead.exists()
    assert {p.name for p in tmp_path.iterdir() if p.name != "a"} == {foreign.name, "other.parquet"}


def test_a_prefix_on_another_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = dead_folder(tmp_path / "pre")
    real = Path.stat

    def stat(path: Path, **more: bool) -> os.stat_result:
        actual = real(path, **more)
        if path != tmp_path / "pre":
            return actual
        return os.stat_result((*actual[:2], actual.st_dev + 1, *actual[3:10]))

    monkeypatch.setattr(Path, "stat", stat)
    with BatchStagingFolder(str(tmp_path), "pre/x-") as place:
        assert place.work is not None
        assert Path(place.work).parent == tmp_path / "pre"
        assert not dead.exists()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EACCES])
def test_a_disk_without_locks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    code: int,
) -> None:
    def flock(*_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(owned_folders.fcntl, "flock", flock)
    with BatchStagingFolder(str(tmp_path), "") as place:
        if code == errno.EACCES:
            with pytest.raises(PermissionError):
                _ = place.work
        else:
            assert place.work is None
            assert place.work is None
            assert caplog.text.count("does not support file locks") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "root").touch()
    with (
        BatchStagingFolder(str(tmp_path / "root"), "") as place,
        pytest.raises(OSError, match="exists"),
    ):
        _ = place.work


def test_only_local_roots_have_a_staging_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert staging_folder_for(None) is None
    assert staging_folder_for(BatchConfig(root="s3://bucket/x")) is None
    monkeypatch.chdir(tmp_path)
    for root in ("out", f"file://{tmp_path}/out", str(tmp_path / "out")):
        place = staging_folder_for(BatchConfig(root=root))
        assert place is not None
        with place:
            assert Path(str(place.work)).parent == tmp_path / "out"
