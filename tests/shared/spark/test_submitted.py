"""The standard streams of spark-submit, opened once more."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from shared.cli import read_settings
from shared.errors import SettingsError
from shared.spark import running_java
from shared.spark.running_java import Submitted, _opened
from tap_spark.config import PROGRAM


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


def test_options_of_spark_submit_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = {"spark.master": "yarn", "spark.yarn.queue": "etl"}
    monkeypatch.setattr(running_java, "_current", Submitted(None, conf, ()))
    supplied = {"spark.yarn.queue": "x", "spark.a.b": "c"}
    path = tmp_path / "tap.json"
    path.write_text(json.dumps({"spark": {"master": "local[2]", "conf": supplied}}))
    actual = read_settings(PROGRAM, [str(path)])["spark"]
    assert actual == {"master": "yarn", "conf": {**conf, "spark.a.b": "c"}}
    assert read_settings(PROGRAM, [], {"streams": []})["spark"]["master"] == "yarn"
    path.write_text(json.dumps({"spark": {"remote": "sc://host"}}))
    with pytest.raises(SettingsError, match="spark-submit has started Spark"):
        read_settings(PROGRAM, [str(path)])
