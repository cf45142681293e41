"""Tables found below a folder: which folders are searched, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shared.errors import SourceError
from tap_spark.sources.lakes import lake_tables
from tap_spark.sources.lakes.lake_tables import FolderTables
from tap_spark.stream_config import ConnectionConfig


def delta(folder: Path) -> None:
    (folder / "_delta_log").mkdir(parents=True)


def iceberg(folder: Path, file: str = "v1.metadata.json") -> None:
    (folder / "metadata").mkdir(parents=True)
    (folder / "metadata" / file).touch()


def places(path: object) -> list[tuple[str, tuple[str, ...]]]:
    actual = FolderTables(ConnectionConfig("lake", path=str(path)))._places()
    return [(place.format, place.parts) for place in actual]


def test_tables_of_both_kinds_are_found_in_a_stable_order(tmp_path: Path) -> None:
    iceberg(tmp_path / "sales" / "orders")
    iceberg(tmp_path / "sales" / "old", "00003-ab.gz.metadata.json")
    delta(tmp_path / "events")
    assert places(tmp_path) == [
        ("delta", ("events",)),
        ("iceberg", ("sales", "old")),
        ("iceberg", ("sales", "orders")),
    ]


def test_partition_folders_hidden_folders_and_tables_are_not_searched(tmp_path: Path) -> None:
    delta(tmp_path / "t")
    delta(tmp_path / "t" / "inner")
    delta(tmp_path / "day=2026-01-01" / "t")
    delta(tmp_path / ".trash" / "t")
    delta(tmp_path / "_old" / "t")
    (tmp_path / "metadata").mkdir()  # no table: it has no metadata file
    assert places(tmp_path) == [("delta", ("t",))]


def test_the_depth_is_bounded(tmp_path: Path) -> None:
    delta(tmp_path / "1/2/3/4/5")
    delta(tmp_path / "a/b/c/d/e/f")
    assert places(tmp_path) == [("delta", ("1", "2", "3", "4", "5"))]


def test_the_number_of_folders_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_tables, "MAX_FOLDERS", 3)
    for name in "abcd":
        (tmp_path / name).mkdir()
    with pytest.raises(SourceError, match="more than 3 folders"):
        places(tmp_path)


def test_the_folder_itself_may_be_a_table(tmp_path: Path) -> None:
    delta(tmp_path / "events")
    assert places(tmp_path / "events") == [("delta", ("events",))]
    assert places(f"file://{tmp_path}/events/") == [("delta", ("events",))]


def test_a_folder_that_cannot_be_listed_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delta(tmp_path / "events")
    iceberg(tmp_path / "private")
    listed = lake_tables.TableWalk.entries

    def entries(walk: lake_tables.TableWalk, folder: str) -> tuple[list[str], list[str]]:
        if folder.endswith("/private/metadata"):
            raise PermissionError(13, "Permission denied", folder)
        return listed(walk, folder)

    monkeypatch.setattr(lake_tables.TableWalk, "entries", entries)
    assert places(tmp_path) == [("delta", ("events",))]
    with pytest.raises(SourceError, match="Permission denied"):
        places(tmp_path / "private")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"cannot list the tables below .*'lake'|No such file"):
        places(tmp_path / "nowhere")


def test_a_url_is_listed_through_fsspec() -> None:
    import fsspec

    files: Any = fsspec.filesystem("memory")
    files.makedirs("/lake-test/sales/orders/_delta_log")
    files.pipe("/lake-test/db/t/metadata/v1.metadata.json", b"{}")
    files.pipe("/lake-test/db/day=1/t/metadata/v1.metadata.json", b"{}")
    try:
        assert places("memory://lake-test") == [
            ("iceberg", ("db", "t")),
            ("delta", ("sales", "orders")),
        ]
    finally:
        files.rm("/lake-test", recursive=True)


def test_a_url_without_a_package_is_an_error() -> None:
    with pytest.raises(SourceError, match="cannot list the tables below nosuch://x"):
        places("nosuch://x")


def test_a_cycle_of_links_ends(tmp_path: Path) -> None:
    delta(tmp_path / "t")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "a").symlink_to(tmp_path / "t")
    assert places(tmp_path) == [("delta", ("a",))]


def test_a_folder_on_s3_without_credentials_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    with pytest.raises(SourceError, match=r"s3://bucket/x: .*credentials.*\(check 'path', and"):
        places("s3://bucket/x")
