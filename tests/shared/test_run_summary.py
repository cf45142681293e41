"""The summary of a run, as a file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from unittest.mock import Mock

import pytest
from full_disks import largest_file
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import DestinationError, RecordError, SettingsError, Where
from shared.singer.logs import CONSOLE
from shared.singer.run_summary import (
    FORMAT,
    MOST_POINTS,
    RunSummary,
    Timeline,
    summarized,
    write_file,
)


def read(path: Path) -> dict:
    assert [path] == list(path.parent.iterdir())  # nothing is left beside it
    return json.loads(path.read_text())


def test_a_good_run(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("of the last run")
    with summarized("tap-spark", str(path)) as summary:
        summary.add("s", sent=3, bytes=30)
        summary.add("s", sent=2)
        summary.note("s", method="FULL_TABLE")
        summary.add_to_table("s", "t", committed=5)
        summary.count(state_messages=1)
        summary.moved(5)
    actual = read(path)
    assert (actual["format"], actual["program"]) == (FORMAT, "tap-spark")
    assert (actual["exit_code"], actual["error"], actual["state_messages"]) == (0, None, 1)
    assert actual["streams"] == {
        "s": {"sent": 5, "bytes": 30, "method": "FULL_TABLE", "tables": {"t": {"committed": 5}}}
    }
    assert sum(actual["timeline"]["rows"]) == 5
    assert actual["started_at"] <= actual["ended_at"]


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (RecordError("bad", where=Where(stream="s", line=3)), 5, "bad"),
        (ZeroDivisionError("nothing\nknown"), 1, "ZeroDivisionError: nothing known"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_a_failed_run(tmp_path: Path, error: BaseException, code: int, text: str) -> None:
    with pytest.raises(type(error)), summarized("p", str(tmp_path / "run.json")) as summary:
        summary.add("s", sent=1)
        raise error
    actual = read(tmp_path / "run.json")
    assert actual["exit_code"] == code
    assert text in actual["error"]
    assert actual["streams"] == {"s": {"sent": 1}}


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    path = str(tmp_path)
    with pytest.raises(DestinationError, match="--summary"), summarized("p", path):
        pass
    with pytest.raises(RecordError), summarized("p", path):
        raise RecordError("the reason why the run failed")


@pytest.mark.parametrize(("option", "place"), [("summary", 0), ("report", 1), ("metrics-file", 2)])
def test_a_folder_that_is_missing_is_told_before_the_run(
    tmp_path: Path, option: str, place: int
) -> None:
    for folder in ("missing", "x" * 300):
        files = [str(tmp_path / folder / "run") if at == place else None for at in range(3)]
        text = rf"{folder}/run': its folder does not exist \(make it, or give --{option} another"
        with (
            pytest.raises(SettingsError, match=text),
            summarized("p", *files[:2], metrics=files[2]),
        ):
            pytest.fail("the run has begun")


def test_metrics_are_in_a_file_that_is_read(tmp_path: Path) -> None:
    with (
        pytest.raises(SettingsError, match=r"a.txt': its name does not end in .prom"),
        summarized("p", metrics=f"{tmp_path}/a.txt"),
    ):
        pytest.fail("the run has begun")


def test_a_full_disk_leaves_nothing_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("{}")
    with largest_file(100), pytest.raises(DestinationError, match=r"see --summary"):
        write_file("x" * 1000, str(path), "--summary")
    assert [*tmp_path.iterdir()] == [path]
    assert path.read_text() == "{}"


def test_a_run_with_nothing_to_do_is_not_compared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "run.json")
    for rows in (500, 0):
        with summarized("tap-spark", path, warn_drift=True) as summary:
            summary.add("s", sent=rows)
            summary.has_work = rows > 0
            summary.choose_exit_code(99)
    actual = read(tmp_path / "run.json")
    assert (actual["exit_code"], actual["error"]) == (99, None)
    assert actual["baseline"]["rows"] == {"s": 500}
    assert "in the last run" not in caplog.text


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 9)), max_size=50))
def test_the_timeline_is_bounded_and_loses_nothing(moved: list[tuple[float, int]]) -> None:
    timeline = Timeline()
    for seconds, rows in moved:
        timeline.add(seconds, rows)
    assert sum(timeline.rows) == sum(rows for _, rows in moved)
    assert len(timeline.rows) <= MOST_POINTS
    last = max((seconds for seconds, _ in moved), default=0)
    assert last <= timeline.step * MOST_POINTS


def test_the_timeline_keeps_the_order() -> None:
    timeline = Timeline()
    timeline.add(0.5, 1)
    timeline.add(MOST_POINTS + 0.5, 2)
    assert timeline.step == 2
    assert (timeline.rows[0], timeline.rows[MOST_POINTS // 2]) == (1, 2)


def test_streams_may_have_any_name(tmp_path: Path) -> None:
    with summarized("p", str(tmp_path / "run.json")) as summary:
        summary.add("ünï/\n", sent=1)
    assert read(tmp_path / "run.json")["streams"] == {"ünï/\n": {"sent": 1}}
    assert RunSummary("p").as_dict(None)["streams"] == {}


@pytest.mark.parametrize("option", ["summary", "report", "metrics"])
def test_facts_are_collected_if_anybody_reads_them(
    tmp_path: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CONSOLE, "is_for_people", False)
    with summarized("p") as summary:
        assert not summary.is_read
        summary.observe([])
        assert not summary.is_read
    with summarized("tap-spark", **{option: str(tmp_path / "file.prom")}) as summary:
        assert summary.is_read
    monkeypatch.setattr(CONSOLE, "is_for_people", True)
    with summarized("p") as summary:
        assert summary.is_read
    observed, dry = RunSummary("p", is_read=False), RunSummary("p", is_read=False)
    observed.observe([Mock()])
    dry.mark_dry()
    assert observed.is_read and dry.is_read


def test_what_is_no_file_is_written_to_and_not_read(tmp_path: Path) -> None:
    """A FIFO would block, a device never end; neither may be replaced by a file."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with summarized("target-spark", str(fifo)):
        pass
    assert json.loads(os.read(reader, 1 << 16))["exit_code"] == 0
    os.close(reader)
    assert fifo.is_fifo()
    with pytest.raises(DestinationError, match="cannot be written"), summarized("t", str(fifo)):
        pass
    with summarized("target-spark", "/dev/zero"):
        pass
    assert Path("/dev/zero").is_char_device()


def test_a_link_stays_and_a_standard_stream_is_appended_to(tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to("real.json")
    with (tmp_path / "log").open("w+") as log:
        log.write("a line\n")
        log.flush()
        for place in (str(link), f"/proc/self/fd/{log.fileno()}"):
            with summarized("target-spark", place):
                pass
    assert link.is_symlink()
    summary = (tmp_path / "real.json").read_text()
    assert json.loads(summary)["program"] == "target-spark"
    assert (tmp_path / "log").read_text().startswith("a line\n{")


def test_a_file_that_is_too_large_is_no_summary(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    with path.open("w") as file:
        file.truncate(1 << 40)
    with summarized("target-spark", str(path)):
        pass
    assert json.loads(path.read_text())["exit_code"] == 0
