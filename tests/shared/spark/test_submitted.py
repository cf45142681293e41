"""The standard streams of spark-submit, opened once more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shared.spark.submitted import _opened


def process(folder: Path, number: int, position: int, flags: int) -> Path:
    """Return what /proc would show of a process with one stream, which is a file."""
    (folder / "fd").mkdir()
    (folder / "fdinfo").mkdir()
    (folder / "file").write_bytes(b"first\nsecond\n")
    (folder / "fd" / str(number)).symlink_to(folder / "file")
    text = f"pos:\t{position}\nflags:\t0{flags:o}\nmnt_id:\t25\nino:\t7\n"
    (folder / "fdinfo" / str(number)).write_text(text)
    return folder


def test_input_begins_where_others_ended(tmp_path: Path) -> None:
    taken = _opened(process(tmp_path, 0, 6, os.O_RDONLY), 0)
    assert os.read(taken, 99) == b"second\n"
    os.close(taken)


@pytest.mark.parametrize("number", [1, 2])
def test_lines_are_appended(tmp_path: Path, number: int) -> None:
    java = process(tmp_path, number, 6, os.O_WRONLY | os.O_APPEND)
    taken = _opened(java, number)
    with (tmp_path / "file").open("ab") as other:
        other.write(b"of Java\n")
    os.write(taken, b"of ours\n")
    os.close(taken)
    assert (tmp_path / "file").read_bytes() == b"first\nsecond\nof Java\nof ours\n"


@pytest.mark.parametrize("number", [1, 2])
def test_no_line_is_written_over(tmp_path: Path, number: int) -> None:
    with pytest.raises(OSError, match="it is a file that is not open for appending"):
        _opened(process(tmp_path, number, 6, os.O_WRONLY), number)


def test_a_pipe_has_no_position(tmp_path: Path) -> None:
    (tmp_path / "fd").mkdir()
    os.mkfifo(tmp_path / "fd" / "0")
    other = os.open(tmp_path / "fd" / "0", os.O_RDWR)
    taken = _opened(tmp_path, 0)
    os.write(other, b"line")
    assert os.read(taken, 9) == b"line"
    os.close(taken)
    os.close(other)
