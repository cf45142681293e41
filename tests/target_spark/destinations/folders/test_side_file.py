"""The side file beside a table folder: a crash between its change and that of the folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.errors import DestinationError
from target_spark.destinations.folders import stored_folder
from target_spark.destinations.folders.stored_folder import LocalFolder, RemoteFolder, TableFolder
from target_spark.destinations.folders.table_folder import (
    FolderChange,
    announced,
    holding,
    is_ours,
    is_settled,
)

OURS = "part-0000000000001-r-1-00000.json"
NEXT = "part-0000000000002-r-2-00000.json"


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_folder, "GRACE_SECONDS", 0.0)


@pytest.mark.parametrize(
    ("old", "marker", "names", "held"),
    [
        (b"old", NEXT, {OURS}, b"old"),
        (b"old", NEXT, {OURS, NEXT}, b"new"),
        (None, NEXT, set(), None),
        (None, NEXT, {NEXT}, b"new"),
        (b"old", None, {OURS}, b"new"),
    ],
)
def test_the_folder_tells_which_content_holds(
    old: bytes | None, marker: str | None, names: set[str], held: bytes | None
) -> None:
    content = announced(b"new", old, marker)
    assert holding(content, names) == held
    assert is_settled(content) is (marker is None)


def test_a_folder_of_others_has_no_content_of_ours() -> None:
    assert holding(b"{}", {"x.json"}) is None
    assert holding(b"{}", set()) == b"{}"
    assert holding(b"{", {OURS}) == b"{", "damaged ones are errors, not missing"
    assert is_ours(f"a=1/{OURS}")


@pytest.fixture(params=["local", "remote"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> TableFolder:
    if request.param == "local":
        return LocalFolder(str(tmp_path / "t"), "run").open()
    return RemoteFolder(f"memory://{tmp_path.name}-{id(request)}/t", "run").open()


def put(folder: TableFolder, name: str, side: bytes | None) -> None:
    folder.publish(FolderChange({pending(folder, name): name}, side=side))


def pending(folder: TableFolder, name: str) -> str:
    url = f"{folder.pending}/{name}"
    if isinstance(folder, RemoteFolder):
        folder._place[0].pipe_file(url, b"{}")
    else:
        Path(url).write_text("{}")
    return url


def test_a_kill_between_both_steps_changes_nothing(
    folder: TableFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, OURS, b"old")
    with monkeypatch.context() as patch:
        if isinstance(folder, LocalFolder):
            patch.setattr(stored_folder, "exchange", lambda *_: 1 / 0)
        else:
            patch.setattr(folder._place[0], "cp_file", lambda *_: 1 / 0)  # type: ignore[attr-defined]
        with pytest.raises((ZeroDivisionError, DestinationError)):
            put(folder, NEXT, b"new")
    assert (folder.files(), folder.side()) == ((OURS,), b"old")
    put(folder, NEXT, None)
    assert (folder.files(), folder.side()) == ((OURS, NEXT), b"old")
    put(folder, "part-0000000000003-r-3-0.json", b"new")
    assert folder.side() == b"new"
    put(folder, "part-0000000000004-r-4-0.json", None)
    assert folder.side() == b"new"


def test_a_killed_run_is_settled_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = LocalFolder(str(tmp_path / "t"), "one").open()
    put(folder, OURS, b"old")
    monkeypatch.setattr(folder, "_write_side", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        put(folder, NEXT, b"new")
    monkeypatch.undo()
    side = tmp_path / ".t.schema"
    side.write_bytes(announced(b"new", b"old", NEXT))
    other = LocalFolder(str(tmp_path / "t"), "two").open()
    assert other.side() == side.read_bytes() == b"old"


def test_a_removed_table_leaves_no_columns(folder: TableFolder) -> None:
    put(folder, OURS, b"old")
    if isinstance(folder, RemoteFolder):
        folder._place[0].rm(folder._place[1], recursive=True)
        return
    Path(folder.table, OURS).unlink()
    Path(folder.table).rmdir()
    assert folder.side() is None


class OldS3:
    """What s3fs did before 2026: it had no other `cat_file`, and found the folder itself."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects

    def invalidate_cache(self, path: str = "") -> None:
        pass

    def cat_file(self, path: str) -> bytes:
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path]

    def find(self, path: str, prefix: str = "") -> list[str]:
        return [name for name in self.objects if name.startswith(f"{path}/{prefix}")] or [path]


def test_an_old_s3fs_reads_a_table() -> None:
    storage = OldS3({"old/data/.t.schema": b"{}", f"old/data/u/{OURS}": b""})
    for name, side, files in (("t", b"{}", ()), ("u", None, (OURS,)), ("v", None, ())):
        folder = RemoteFolder(f"s3://old/data/{name}", "run")
        folder.__dict__["_place"] = storage, f"old/data/{name}"
        assert (folder.side(), folder.files()) == (side, files)
