"""Which commits tables return to. No Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from shared.errors import SettingsError
from target_spark.destinations.lakes.lake_table import ACTIVATION, Mark, Place
from target_spark.operate.lake_histories import _delta_commit
from target_spark.operate.rewind import RewindPlan, Target, plan_rewind, target_of
from target_spark.operate.table_history import TableCommit, TableHistory, shown_time


def flush(run: str, number: int, bookmark: int | None, stream: str = "a") -> Mark:
    state = None if bookmark is None else json.dumps({"bookmarks": {stream: bookmark}})
    return Mark(run, stream, f"{run}-{number:06d}", state=state, rows=1)


def table(name: str, *commits: Mark | TableCommit | None, start: float = 0.0) -> TableHistory:
    """Return a table with a commit each second, as Delta numbers them."""
    created = [
        one
        if isinstance(one, TableCommit)
        else TableCommit(str(n), start + n, one, str(n - 1) if n else None)
        for n, one in enumerate(commits)
    ]
    return TableHistory(name, Place(name, name), created)


def returned(plan: RewindPlan) -> dict[str, str]:
    return {one.history.name: one.commit.version for one in plan.returns if not one.is_there}


def bookmarks(plan: RewindPlan) -> Any:
    assert plan.state is not None
    return json.loads(plan.state.state)["bookmarks"]


def at(text: str, *histories: TableHistory, names: set[str] | None = None) -> RewindPlan:
    return plan_rewind(histories, target_of(text, histories), names)


def test_a_run_is_its_last_commit_in_each_table() -> None:
    a = table("a", None, flush("r1", 1, 1), flush("r1", 2, 2), flush("r2", 1, 3))
    b = table("b", None, flush("r1", 3, 5, "b"), start=0.5)
    plan = at("r1", a, b)
    assert returned(plan) == {"a": "2"}
    assert bookmarks(plan) == {"a": 2, "b": 5}
    assert (plan.problems, plan.losses, plan.notes) == ((), (), ())


def test_a_table_without_commits_of_the_run_is_what_it_was_at_its_end() -> None:
    a = table("a", None, flush("r1", 1, 1), flush("r2", 1, 2), flush("r3", 1, 3))
    b = table("b", None, flush("r1", 2, 5, "b"), None, flush("r3", 2, 6, "b"))
    assert returned(at("r2", a, b)) == {"a": "2", "b": "2"}


def test_a_time_is_the_newest_commit_at_or_before_it() -> None:
    a = table("a", None, *(flush("r", n, n) for n in range(1, 5)), start=1e9)
    for text in ("2001-09-09T01:46:42Z", "2001-09-09 01:46:42.9", "2001-09-09T03:46:42+02:00"):
        assert returned(at(text, a)) == {"a": "2"}
    assert shown_time(1e9 + 2) == "2001-09-09T01:46:42.000+00:00"
    assert returned(at(shown_time(1e9 + 2), a)) == {"a": "2"}


def test_a_run_is_named_by_its_beginning_if_that_is_enough() -> None:
    a = table("a", None, flush("2024ab", 1, 1), flush("2024cd", 1, 2), flush("f00", 1, 3))
    assert target_of("2024c", [a]) == Target(2.0, "2024cd")
    with pytest.raises(SettingsError, match="2 runs begin with '2024': 2024ab, 2024cd"):
        target_of("2024", [a])
    with pytest.raises(SettingsError, match="'yesterday' is neither a run"):
        target_of("yesterday", [a])


def test_a_commit_without_state_is_no_moment() -> None:
    a = table("a", None, flush("r1", 1, 1), flush("r1", 2, None), flush("r2", 1, 3))
    plan = at("r1", a)
    assert returned(plan) == {"a": "1"}
    assert "'a' returns to an earlier commit" in plan.notes[0]
    assert bookmarks(plan) == {"a": 1}
    old = table("a", None, flush("r1", 1, None), flush("r2", 1, 3))
    assert "no commit of 'a' up to then can be used" in at("r1", old).problems[0]


def test_every_stream_of_a_table_needs_a_state() -> None:
    marks = [flush("r", 1, 1), flush("r", 2, 2, "b"), flush("r", 3, None, "b"), flush("s", 1, 4)]
    assert returned(at("r", table("t", None, *marks))) == {"t": "2"}
    assert bookmarks(at("r", table("t", None, *marks))) == {"a": 1, "b": 2}


def test_changes_without_rows_belong_to_their_run() -> None:
    changes = [Mark("r1", "a"), flush("r1", 1, 1), Mark("r1", "a", ACTIVATION)]
    a = table("a", None, *changes, flush("r2", 1, 2))
    assert returned(at("r1", a)) == {"a": "3"}


def test_commits_of_others_are_lost_only_with_consent() -> None:
    a = table("a", None, flush("r1", 1, 1), None, flush("r2", 1, 2))
    assert at("r1", a).losses == (
        "'a' would lose 1 commits of others, the last at 1970-01-01T00:00:02.000+00:00",
    )
    assert at("r2", a).losses == ()


def test_compactions_are_no_commits_of_others_and_change_no_rows() -> None:
    compacted = TableCommit("2", 2.0, None, "1", keeps_rows=True)
    a = table("a", None, flush("r1", 1, 1), compacted)
    assert (returned(at("r1", a)), at("r1", a).losses) == ({}, ())
    b = table("a", None, flush("r1", 1, 1), compacted, flush("r2", 1, 2))
    assert (returned(at("r1", b)), at("r1", b).losses) == ({"a": "1"}, ())


def test_a_rewind_that_is_repeated_leaves_the_table_alone() -> None:
    back = TableCommit("3", 3.0, None, "1", keeps_rows=True)
    a = table("a", None, flush("r1", 1, 1), None, back)
    plan = at("r1", a)
    assert (returned(plan), plan.losses, bookmarks(plan)) == ({}, (), {"a": 1})


def test_after_a_rewind_the_commits_that_were_undone_do_not_count() -> None:
    back = TableCommit("3", 3.0, None, "1", keeps_rows=True)
    a = table("a", None, flush("r1", 1, 1), flush("r2", 1, None), back, None)
    plan = plan_rewind([a], Target(9.0))
    assert (returned(plan), bookmarks(plan)) == ({}, {"a": 1})
    assert returned(at("1970-01-01T00:00:03Z", a)) == {"a": "3"}


def test_a_snapshot_that_became_current_again_counts_by_its_first_time() -> None:
    first, second = flush("r1", 1, 1), flush("r2", 1, 2)
    log = [("s1", 1.0, first, None), ("s2", 2.0, second, "s1"), ("s1", 3.0, first, None)]
    a = TableHistory("a", Place("a", "a"), [TableCommit(*entry) for entry in log])
    assert target_of("r1", [a]) == Target(1.0, "r1")
    assert returned(plan_rewind([a], Target(2.5))) == {"a": "s2"}
    assert returned(plan_rewind([a], Target(3.0))) == {}
    assert [commit.version for commit in a.created] == ["s1", "s2"]


def test_a_table_that_was_created_later_needs_consent() -> None:
    a, b = table("a", None, flush("r1", 1, 1)), table("b", None, flush("r2", 1, 1, "b"), start=5.0)
    plan = at("r1", a, b)
    assert "'b' was created later and stays as it is" in plan.losses[0]
    assert bookmarks(plan) == {"a": 1}, "the tap must send b again"


def test_commits_that_are_gone_are_a_problem() -> None:
    kept = TableCommit("7", 7.0, flush("r2", 1, 2), "6")
    a, b = table("a", None, flush("r1", 1, 1)), TableHistory("b", Place("b", "b"), [kept])
    plan = at("r1", a, b)
    assert plan.problems == ("the commits of 'b' up to then are gone (expired)",)
    assert plan.state is None


@pytest.mark.parametrize(
    ("restored", "bookmark"), [(None, None), ("null", None), ("1", 1), ("2", 2)]
)
def test_a_restore_to_a_time_hides_which_state_is_true(
    restored: str | None, bookmark: int | None
) -> None:
    first, last = (flush(f"r{n}", n, n).to_text() for n in (1, 2))
    commits = [
        _delta_commit(0, 0, "CREATE TABLE", None, None),
        _delta_commit(1, 1_000_000, "WRITE", None, first),
        _delta_commit(2, 2_000_000, "WRITE", None, last),
        _delta_commit(3, 3_000_000, "RESTORE", restored, None),
    ]
    a, b = TableHistory("a", Place("a", "a"), commits), table("b", None, flush("r1", 3, 7, "b"))
    now, stays = (plan_rewind([a, b], Target(5.0), names) for names in (None, {"b"}))
    if bookmark is not None:
        assert bookmarks(now) == bookmarks(stays) == {"a": bookmark, "b": 7}
        return
    text = "others had restored 'a' to a time: its STATE then is unknown"
    assert (now.state, now.problems, now.losses) == (None, (text,), ())
    assert bookmarks(stays) == {"b": 7}
    assert "'a' stays and has no STATE" in stays.losses[0]
    back = at("r1", a)
    assert (returned(back), bookmarks(back)) == ({"a": "1"}, {"a": 1})
    assert "'a' would lose 1 commits of others" in back.losses[0]


def test_tables_that_stay_keep_their_bookmarks() -> None:
    a = table("a", None, flush("r1", 1, 1), flush("r2", 1, 2))
    b = table("b", None, flush("r1", 2, 5, "b"), flush("r2", 2, 6, "b"))
    plan = at("r1", a, b, names={"a"})
    assert (returned(plan), bookmarks(plan)) == ({"a": "1"}, {"a": 1, "b": 6})
    c = table("c", None, flush("r1", 3, 1, "c"), flush("r2", 3, None, "c"))
    assert "'c' stays and has no STATE" in at("r1", a, c, names={"a"}).losses[0]


def test_before_all_commits_there_is_nothing_to_return_to() -> None:
    a = table("a", None, flush("r1", 1, 1), start=1e9)
    plan = at("1999-01-01", a)
    assert plan.problems == ("no table has a commit up to then",)


def test_states_that_contradict_each_other_are_a_problem() -> None:
    a, b = (table(n, None, Mark("r", n, "r-1", state=f'{{"n":"{n}"}}')) for n in "ab")
    assert "differ and have no `bookmarks`" in at("r", a, b).problems[0]


def test_a_table_that_stream_maps_have_named_holds_the_bookmark_of_its_source() -> None:
    mark = replace(flush("r", 1, 7, "a"), stream="renamed", source="a")
    assert bookmarks(at("r", table("t", None, mark))) == {"a": 7}
