from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from open_files import open_below

from shared.errors import DestinationError, SettingsError
from shared.formats.file_formats import Encoding
from target_spark.destinations.folders.table_folder import WORK_PREFIX
from target_spark.receive.staging import REUSED_BYTES, REUSED_FILES, Staging


def folders(root: Path) -> list[Path]:
    return list(root.glob(f"{WORK_PREFIX}*"))


def test_lines_land_in_a_file_with_a_map_to_stdin(tmp_path):
    with Staging(str(tmp_path)) as staging:
        staging.append(1, b"a\nb\n", 2, 5)
        staging.append(1, memoryview(b"c\n"), 1, 7)
        staging.append(1, b"d\n", 1, 10)
        file = staging.complete(1)
        assert Path(file.url).read_bytes() == b"a\nb\nc\nd\n"
        assert (file.rows, file.size, file.encoding) == (4, 8, Encoding("singer"))
        assert file.line_map == ((1, 5), (4, 10))
        staging.remove(1)
        assert not Path(file.url).exists()


def test_a_large_file_is_written_over_once_it_is_loaded(tmp_path):
    large = b"x" * REUSED_BYTES + b"\n"
    with Staging(str(tmp_path), open_files=1) as staging:
        staging.append(1, large, 1, 1)
        staging.append(2, b"small\n", 1, 2)
        first, small = (Path(staging.complete(number).url) for number in (1, 2))
        node = first.stat().st_ino
        staging.remove(1)
        staging.remove(2)
        assert not small.exists()
        staging.append(3, b"a\n", 1, 3)
        staging.append(4, b"b\n", 1, 4)  # The other file is closed for it.
        staging.append(3, b"c\n", 1, 5)
        third, fourth = (staging.complete(number) for number in (3, 4))
        assert Path(third.url).stat().st_ino == node
        assert Path(fourth.url).stat().st_ino != node
        assert Path(third.url).read_bytes() == b"a\nc\n"
        assert Path(fourth.url).read_bytes() == b"b\n"
        assert (third.rows, third.size) == (2, 4)


def test_few_files_are_kept_to_be_written_over(tmp_path):
    with Staging(str(tmp_path)) as staging:
        for number in range(REUSED_FILES + 2):
            staging.append(number, b"x" * REUSED_BYTES + b"\n", 1, number + 1)
        paths = [Path(staging.complete(number).url) for number in range(REUSED_FILES + 2)]
        for number in range(len(paths)):
            staging.remove(number)
        assert sum(path.exists() for path in paths) == REUSED_FILES


@pytest.mark.parametrize("wide", [1, 300_000])
@pytest.mark.parametrize(
    ("before", "kept"),
    [(5, 0), (6, 1), (7, 2), (8, 3), (9, 3), (10, 3), (11, 4), (12, 5), (13, 6), (99, 6)],
)
def test_the_lines_from_one_of_stdin_on_are_cut_off(tmp_path, before, kept, wide):
    lines = [letter * wide + b"\n" for letter in (b"a", b"b", b"c", b"d", b"e", b"f")]
    with Staging(str(tmp_path)) as staging:
        staging.append(1, b"".join(lines[:3]), 3, 5)
        staging.append(1, b"".join(lines[3:]), 3, 10)
        whole = staging.complete(1)
        for _ in range(2):
            file = staging.cut(whole, before)
            assert Path(file.url).read_bytes() == b"".join(lines[:kept])
            assert (file.rows, file.size) == (kept, kept * (wide + 1))
            assert file.line_map == whole.line_map
            whole = file


def test_the_folder_is_private_and_goes_at_the_end(tmp_path):
    with Staging(str(tmp_path / "new" / "root")) as staging:
        assert folders(tmp_path / "new" / "root") == [], "it is for lines"
        staging.append(1, b"a\n", 1, 1)
        (folder,) = folders(tmp_path / "new" / "root")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert folders(tmp_path / "new" / "root") == []


def test_it_goes_after_a_failure_too(tmp_path):
    with pytest.raises(ZeroDivisionError), Staging(str(tmp_path)) as staging:
        staging.append(1, b"a\n", 1, 1)
        raise ZeroDivisionError
    assert folders(tmp_path) == []


def test_the_system_folder_is_the_default(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Staging(None) as staging:
        staging.append(1, b"a\n", 1, 1)
        assert len(folders(tmp_path)) == 1


def test_a_file_url_is_a_path(tmp_path):
    with Staging(f"file://{tmp_path}") as staging:
        staging.append(1, b"a\n", 1, 1)
        assert len(folders(tmp_path)) == 1


def test_a_file_url_may_be_escaped(tmp_path):
    (tmp_path / "a b").mkdir()
    with Staging(f"file://localhost{tmp_path}/a%20b") as staging:
        staging.append(1, b"a\n", 1, 1)
        assert len(folders(tmp_path / "a b")) == 1


@pytest.mark.parametrize("root", ["file://elsewhere/x", "s3://[x", "s3://me:[my-word]@b"])
def test_what_is_no_folder_and_no_object_store_is_refused(root):
    with pytest.raises(SettingsError, match=r"staging\.root") as caught:
        Staging(root)
    assert "my-word" not in str(caught.value)


def test_lines_wait_on_this_disk_if_the_root_is_an_object_store(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Staging("s3://bucket/x") as staging:
        staging.append(1, b"a\n", 1, 1)
        assert len(folders(tmp_path)) == 1


def test_many_streams_share_a_few_descriptors(tmp_path):
    with Staging(str(tmp_path), open_files=4) as staging:
        staging.append(99, b"a\n", 1, 1)
        staging.complete(99)
        before = open_below(tmp_path)
        for turn in range(3):
            for number in range(50):
                staging.append(number, b"%d\n" % turn, 1, turn * 50 + number + 1)
                assert before < open_below(tmp_path) <= before + 4
        for number in range(50):
            file = staging.complete(number)
            assert Path(file.url).read_bytes() == b"0\n1\n2\n"
            assert len(file.line_map) == 3


def test_removing_what_is_gone_is_fine(tmp_path):
    with Staging(str(tmp_path)) as staging:
        staging.append(1, b"a\n", 1, 1)
        Path(staging.complete(1).url).unlink()
        staging.remove(1)


def test_an_unwritable_root_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DestinationError, match=str(tmp_path / "file")):
        Staging(str(tmp_path / "file" / "x")).__enter__()


def test_a_root_that_has_gone_is_named(tmp_path):
    with Staging(str(tmp_path / "root")) as staging:
        (tmp_path / "root").rmdir()
        with pytest.raises(DestinationError, match=str(tmp_path / "root")):
            staging.append(1, b"a\n", 1, 1)


@pytest.mark.parametrize("when", ["append", "complete"])
def test_a_full_disk_is_told_with_its_path(tmp_path, monkeypatch, when):
    with Staging(str(tmp_path)) as staging:
        staging.append(1, b"a\n", 1, 1)
        (folder,) = folders(tmp_path)
        path = folder / "00000001.jsonl"
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, staging._files[1].handle.fileno())
        os.close(full)
        with pytest.raises(DestinationError, match="space") as caught:
            if when == "append":
                staging.append(1, b"x" * 10**6 + b"\n", 1, 2)
            else:
                staging.complete(1)
        assert caught.value.where.file == str(path)
        assert caught.value.__cause__.errno == errno.ENOSPC
    assert folders(tmp_path) == []


def test_a_folder_that_vanished_is_told(tmp_path):
    with Staging(str(tmp_path)) as staging:
        staging.append(1, b"a\n", 1, 1)
        (folder,) = folders(tmp_path)
        shutil.rmtree(folder)
        with pytest.raises(DestinationError, match="cannot be written"):
            staging.append(2, b"a\n", 1, 2)


def dead_run(root: Path) -> Path:
    code = (
        "import os,sys; from target_spark.receive.staging import Staging;"
        "s = Staging(sys.argv[1]).__enter__(); s.append(1, b'x\\n', 1, 1); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(root)], check=False)
    (folder,) = folders(root)
    return folder


def test_the_folder_of_a_killed_run_goes_at_the_next_start(tmp_path):
    dead = dead_run(tmp_path)
    with Staging(str(tmp_path)):
        assert not dead.exists()


def test_the_folder_of_a_living_run_stays(tmp_path):
    with Staging(str(tmp_path)) as first:
        first.append(1, b"a\n", 1, 1)
        with Staging(str(tmp_path)) as second:
            second.append(1, b"a\n", 1, 1)
            assert len(folders(tmp_path)) == 2
        assert first.complete(1).size == 2
