"""Notes beside tables: who owns them, and what is read of them. No Spark."""

from __future__ import annotations

import errno
import json
import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest
from lake_loads import DeltaLoad, lake_config, note_of
from pyspark.sql.types import LongType, StructType

from shared.errors import DestinationError
from shared.storage import owned_folders
from shared.storage.access import NO_OPTIONS
from shared.storage.owned_folders import process_owner
from target_spark.destinations.lakes import run_files
from target_spark.destinations.lakes.lake_table import Place
from target_spark.destinations.lakes.run_files import LocalNoteFile, RemoteNoteFile
from target_spark.replays import Note

NOTE = note_of("a-1", "a-2")
WRITE_MORE = "file.write(note_of('a-1', 'a-2', 'a-3'))"
URL = "memory://bucket/.t.uncovered-x"


def write_note_and(path: Path, end: str) -> None:
    """Write `NOTE` in a process of its own, which `end` must kill."""
    code = (
        "import os, signal, sys; sys.path[:0] = sys.argv[2:]\n"
        "from pathlib import Path; from lake_loads import note_of\n"
        "from target_spark.destinations.lakes import run_files\n"
        "file = run_files.LocalNoteFile(Path(sys.argv[1])); file.take()\n"
        "file.write(note_of('a-1', 'a-2'))\n"
        "die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", code + end, str(path), *sys.path]
    assert subprocess.run(command).returncode == -9


def test_a_note_is_compared_with_the_table_without_spark(tmp_path: Path) -> None:
    config = lake_config("delta", tmp_path, in_catalog=False)
    load = DeltaLoad(None, config, StructType().add("id", LongType()))
    load.load([{"id": 1}], noted=True)
    load.load([{"id": 2}], noted=True)
    left = frozenset(load.noted)
    load.begin()
    assert load.recall() == left
    load.load([{"id": 3}])
    load.begin()
    assert load.recall() == frozenset(), "others have committed"
    load.destination._close()


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(
    ("chosen", "state"),
    [("", ".local/state"), ("relative/state", ".local/state"), ("{}/chosen", "chosen")],
)
def test_notes_of_a_catalog_lie_in_the_home_of_the_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: bool, chosen: str, state: str
) -> None:
    """Runs of one user by a login shell, cron or sudo find each other."""
    homes = (str(tmp_path / "none"), str(tmp_path)) if missing else (str(tmp_path), "/another")
    account = pwd.struct_passwd([*pwd.getpwuid(os.getuid())[:5], homes[0], "/bin/sh"])
    monkeypatch.setattr(pwd, "getpwuid", lambda _: account)
    monkeypatch.setenv("HOME", homes[1])
    monkeypatch.setenv("XDG_STATE_HOME", chosen.format(tmp_path))
    config = lake_config("delta", tmp_path, in_catalog=True)
    folder = run_files.hidden_folder(config, Place("`lake`.`t`", "lake.t"))
    assert Path(folder).parent == tmp_path / state / "singer-spark" / "notes"


def test_a_note_ends_at_a_commit_to_delta_that_says_nothing_about_itself(tmp_path: Path) -> None:
    config = lake_config("delta", tmp_path, in_catalog=False)
    load = DeltaLoad(None, config, StructType().add("id", LongType()))
    load.load([{"id": 1}], noted=True)
    load.begin()
    newest = max((tmp_path / "lake" / "orders" / "_delta_log").glob("*.json"))
    later = newest.with_name(f"{int(newest.stem) + 1:020d}.json")
    later.write_text('{"txn":{"appId":"others","version":1}}\n')
    assert load.recall() == frozenset()
    load.destination._close()


class TestLocal:
    def test_a_note_outlives_its_run(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / "note"
        first = LocalNoteFile(path)
        assert first.take() == Note()
        first.write(NOTE)
        assert first.take() == NOTE, "asked twice"
        first.close(remove=False)
        second = LocalNoteFile(path)
        assert second.take() == NOTE
        second.write(note_of("b-1"))
        second.write(Note())
        second.close(remove=False)
        assert not path.exists(), "there is nothing to keep"

    def test_a_run_that_ended_well_leaves_nothing(self, tmp_path: Path) -> None:
        file = LocalNoteFile(tmp_path / "note")
        file.take()
        file.write(NOTE)
        file.close(remove=True)
        assert list(tmp_path.iterdir()) == []

    def test_beside_a_living_run_nothing_is_taken_or_written(self, tmp_path: Path) -> None:
        living, other = (LocalNoteFile(tmp_path / "note") for _ in range(2))
        living.take()
        living.write(NOTE)
        assert other.take() == Note()
        other.write(note_of("z-1"))
        other.close(remove=True)
        living.close(remove=False)
        assert LocalNoteFile(tmp_path / "note").take() == NOTE

    def test_a_killed_process_lives_no_longer(self, tmp_path: Path) -> None:
        write_note_and(tmp_path / "note", "die()")
        assert LocalNoteFile(tmp_path / "note").take() == NOTE

    @pytest.mark.parametrize(
        "step", ["os.pwrite", "os.fsync", "Path.replace", "run_files.make_durable"]
    )
    def test_a_run_killed_while_it_writes_leaves_the_old_note(
        self, tmp_path: Path, step: str
    ) -> None:
        write_note_and(tmp_path / "note", f"{step} = die; {WRITE_MORE}")
        later = LocalNoteFile(tmp_path / "note")
        assert later.take() == NOTE
        later.write(Note())
        later.close(remove=True)
        assert list(tmp_path.iterdir()) == [], "nothing of the killed run stays"

    def test_after_a_restart_of_the_machine_the_new_note_is_valid(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_note_and(tmp_path / "note", f"run_files.make_durable = die; {WRITE_MORE}")
        monkeypatch.setattr(run_files, "boot_id", lambda: "another")
        assert LocalNoteFile(tmp_path / "note").take() == note_of("a-1", "a-2", "a-3")

    def test_a_run_that_came_before_the_new_file_does_not_own_it(self, tmp_path: Path) -> None:
        living, other = (LocalNoteFile(tmp_path / "note") for _ in range(2))
        living.take()
        assert other.take() == Note()
        living.write(NOTE)
        assert other.take() == Note()
        other.write(note_of("z-1"))
        living.close(remove=False)
        assert LocalNoteFile(tmp_path / "note").take() == NOTE

    @pytest.mark.parametrize("code", [errno.ENOLCK, errno.EMFILE])
    def test_a_disk_that_does_not_lock(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        code: int,
    ) -> None:
        def fail(*_: object) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(owned_folders, "_set_lock", fail)
        note = LocalNoteFile(tmp_path / "note")
        if code == errno.ENOLCK:
            assert note.take() == Note()
            assert caplog.text.count("replays are not detected") == 1
        else:
            with pytest.raises(DestinationError, match="Too many open files"):
                note.take()

    @pytest.mark.parametrize("cut", [1, 40, 70, 90])
    def test_a_damaged_file_is_no_note(self, tmp_path: Path, cut: int) -> None:
        path = tmp_path / "note"
        file = LocalNoteFile(path)
        file.take()
        file.write(NOTE)
        file.close(remove=False)
        path.write_bytes(path.read_bytes()[:-cut])
        assert LocalNoteFile(path).take() == Note()


def stored(owner: dict[str, Any]) -> None:
    fsspec.filesystem("memory").pipe_file(URL, json.dumps([owner, NOTE.to_text()]).encode())


def remote() -> RemoteNoteFile:
    return RemoteNoteFile(URL, NO_OPTIONS)


@pytest.fixture(autouse=True)
def no_object() -> None:
    filesystem = fsspec.filesystem("memory")
    if filesystem.exists(URL):
        filesystem.rm(URL)


class TestRemote:
    def test_a_note_of_a_run_that_ended_by_an_error(self) -> None:
        first = remote()
        assert first.take() == Note()
        first.write(NOTE)
        assert remote().take() == Note(), "its process lives"
        first.close(remove=False)
        second = remote()
        assert second.take() == NOTE
        second.write(NOTE)
        assert remote().take() == Note(), "another owns it now"
        second.close(remove=True)
        assert not fsspec.filesystem("memory").exists(URL)

    def test_a_note_of_a_killed_process_of_this_machine(self) -> None:
        owner = process_owner()
        stored({**owner, "pid": 2**22 + 1})
        assert remote().take() == NOTE
        stored({**owner, "started": "1"})
        assert remote().take() == NOTE, "another process has its number"

    @pytest.mark.parametrize("change", [{"place": ["other", "boot", "ns"]}, {"place": []}])
    def test_nobody_knows_of_a_process_elsewhere(self, change: dict[str, Any]) -> None:
        stored({**process_owner(), "pid": 2**22 + 1, **change})
        file = remote()
        assert file.take() == Note()
        file.write(note_of("b-1"))
        file.close(remove=False)
        assert remote().take() == note_of("b-1")

    def test_beside_a_living_run_nothing_is_written(self) -> None:
        living, other = remote(), remote()
        living.take()
        living.write(NOTE)
        assert other.take() == Note()
        other.write(note_of("z-1"))
        other.close(remove=True)
        living.close(remove=False)
        assert remote().take() == NOTE

    def test_what_is_no_note(self) -> None:
        fsspec.filesystem("memory").pipe_file(URL, b"{")
        assert remote().take() == Note()
