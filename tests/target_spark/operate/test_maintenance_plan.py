"""What maintenance keeps of a table. No Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from shared.errors import SettingsError
from shared.storage.access import NO_OPTIONS
from target_spark.destinations.lakes.delta.delta_log import interval_seconds
from target_spark.destinations.lakes.lake_table import Mark, Place
from target_spark.operate.table_history import (
    KeepPlan,
    TableCommit,
    TableHistory,
    maintained,
    plan_keep,
)
from target_spark.operate.table_maintenance import bookmarks_in


def flush(number: int, stream: str = "a", run: str = "r", *, state: bool = True) -> Mark:
    return Mark(run, stream, f"{run}-{number:06d}", state="{}" if state else None, rows=1)


def table(*commits: Mark | None, returns: tuple[int, ...] = ()) -> TableHistory:
    """Return a table with a commit each second, then returns to some of them."""
    created = [
        TableCommit(str(n), n, mark, str(n - 1) if n else None) for n, mark in enumerate(commits)
    ]
    for number in returns:
        first = created[number]
        created.append(TableCommit(first.version, len(created), first.mark, first.base))
    return TableHistory("t", Place("t", "t"), created)


def kept(history: TableHistory, seconds: float, **more: Any) -> tuple[str, str]:
    """Return the oldest commit that stays, and for whom, at the time of the newest one."""
    plan = plan_keep(history, history.newest.at, seconds, **more)
    return plan.kept[0].commit.version, plan.kept[0].why


PLAIN = table(None, *(flush(n) for n in range(1, 10)))


def test_a_rewind_to_each_moment_that_is_kept_needs_what_was_there_before_it() -> None:
    assert kept(PLAIN, 3) == ("6", "rewind")
    assert kept(PLAIN, 3.5) == ("5", "rewind"), "the table at that moment is an earlier commit"
    assert kept(PLAIN, 0) == ("9", "rewind"), "what the table is now stays always"
    assert kept(PLAIN, 99) == ("0", "rewind")
    assert not plan_keep(PLAIN, 9, 99).has_earlier
    assert plan_keep(PLAIN, 9, 3.5).needed_since == 6, "its files are in the table until then"
    assert plan_keep(PLAIN, 9, 0).needed_since is None


def test_a_rewind_returns_to_a_commit_with_state() -> None:
    history = table(None, flush(1), flush(2, state=False), flush(3, state=False), None, flush(5))
    assert kept(history, 1) == ("1", "rewind")
    assert kept(table(None, flush(1, state=False), flush(2, state=False)), 0) == ("2", "rewind")


def test_the_marks_of_all_streams_stay_with_their_states() -> None:
    """A STATE without the bookmark of a stream would let the tap send all of it again."""
    history = table(None, flush(1), flush(1, "b"), *(flush(n) for n in range(2, 8)))
    assert kept(history, 1) == ("2", "the STATE of stream 'b'")
    assert kept(history, 1, keeps_log=True) == ("7", "rewind"), "Delta's log has it anyway"


def test_a_return_to_an_old_commit_keeps_it() -> None:
    history = table(None, *(flush(n) for n in range(1, 8)), returns=(2,))
    assert kept(history, 0) == ("2", "rewind")
    again = TableHistory("t", history.place, [*history.commits, TableCommit("9", 9, flush(9), "2")])
    assert kept(again, 0) == ("9", "rewind")
    assert kept(again, 0.5)[0] == "2"


def test_a_note_keeps_the_marks_of_its_flushes() -> None:
    assert kept(PLAIN, 1, tokens={"r-000003", "r-000004"}) == (
        "3",
        "the note of a killed run of stream 'a'",
    )
    assert kept(PLAIN, 1, tokens={"r-000003"}, keeps_log=True) == ("8", "rewind")


def test_a_reader_keeps_what_it_goes_on_from() -> None:
    for keeps_log in (False, True):
        actual = kept(PLAIN, 1, readers={"4": "'x.json'", "77": "gone"}, keeps_log=keeps_log)
        assert actual == ("4", "reader 'x.json'")


def test_what_cannot_be_restored_any_more_is_named() -> None:
    runs = [flush(1, run="old"), flush(2, run="both"), flush(3, run="both"), flush(4, run="new")]
    plan = plan_keep(table(None, *runs), 4, 1)
    report = maintained(table(None, *runs), plan, dry_run=True)
    assert (report.restorable_version, report.lost_commits) == ("3", 2)
    assert report.lost_runs == ("old",)
    assert report.restorable_since == "1970-01-01T00:00:03.000+00:00"
    assert list(report.lines()) == [
        "'t': dry run, nothing was changed",
        "'t': a rewind can return to version 3 of 1970-01-01T00:00:03.000+00:00 and later; "
        "2 earlier commits cannot be restored; the oldest that stays is kept for rewind",
    ]
    assert json.loads(json.dumps(report.to_json()))["compacted"] == {"removed": 0, "added": 0}


def test_only_commits_with_state_are_named_as_restorable() -> None:
    for commits, version in (
        ((None, flush(1, state=False), flush(2), flush(3)), "2"),
        ((None, flush(1), None), "1"),
        ((None, flush(1, state=False)), None),
    ):
        history = table(*commits)
        report = maintained(history, plan_keep(history, 9, 99))
        assert report.restorable_version == version
    assert "no commit has a STATE" in list(report.lines())[-1]


def test_a_long_history_is_planned_at_once() -> None:
    long = table(None, *(flush(n) for n in range(1, 20_000)))
    plan: KeepPlan = plan_keep(long, 20_000, 10_000)
    assert plan.kept[0].commit.version == "10000"
    assert len(plan.lost) == 9_999


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("interval 1 week", 604800), ("interval 0 hours", 0), ("interval 2 days 3 minutes", 172980)],
)
def test_intervals_of_table_properties(text: str, seconds: float) -> None:
    assert interval_seconds(text) == seconds


class TestReaders:
    MARK: ClassVar = {"replication_method": "LOG_BASED", "table_id": "u", "version": 12}

    def actual(self, folder: Path, text: str) -> Any:
        path = folder / "state.json"
        path.write_text(text)
        return bookmarks_in(str(path), NO_OPTIONS)

    def test_state_files(self, tmp_path: Path) -> None:
        state = {"bookmarks": {"s": self.MARK, "odd": 3}}
        name = f"'{tmp_path}/state.json', stream 's'"
        for text in (
            json.dumps(state, indent=1),
            '{"bookmarks": {}}\n' + json.dumps(state) + "\n",
            json.dumps({"type": "STATE", "value": state}),
        ):
            assert self.actual(tmp_path, text) == [(name, self.MARK)]

    @pytest.mark.parametrize("text", ["", "no json", "[1]", '{"bookmarks": 1}', '{"a": {}}'])
    def test_other_files(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(SettingsError, match=r"is not a STATE with bookmarks; nothing was rem"):
            self.actual(tmp_path, text)

    def test_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(SettingsError, match="cannot be read"):
            bookmarks_in(str(tmp_path / "none.json"), NO_OPTIONS)
