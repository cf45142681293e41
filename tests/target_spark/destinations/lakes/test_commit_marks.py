"""Marks of commits, and the SQL of merges. No Spark."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lake_loads import note_of

from target_spark.destinations.lakes.commit_marks import Mark, held, read_mark, run_of
from target_spark.destinations.lakes.merge import (
    KeyRange,
    MergePlan,
    activate_sql,
    literal,
    merge_sql,
    quoted,
    text_literal,
)
from target_spark.replays import Note

words = st.text(max_size=30)


@given(st.builds(Mark, words, words, st.none() | words.filter(bool)))
def test_a_mark_is_read_as_it_was_written(mark: Mark) -> None:
    assert read_mark(mark.to_text()) == mark


def test_what_others_have_stored_is_no_mark() -> None:
    for text in (None, "", "x", "[]", "3", '{"run": "a"}', '{"origin": "other"}'):
        assert read_mark(text) is None


def test_tokens_tell_run_and_number() -> None:
    assert run_of("abc-000012") == "abc"
    assert Mark("abc", "s", "abc-000012").number == 12
    assert Mark("abc", "s", "abc-x").number is None
    assert Mark("abc", "s").number is None
    assert run_of("t") == "t"


def test_a_table_holds_a_note_whose_commits_are_its_newest() -> None:
    note = note_of("a-1", "a-2")
    one, two = (Mark("a", "s", token) for token in ("a-1", "a-2"))
    older = [Mark("z", "s", "z-9"), None]
    assert held(note, [two, one, *older], "s") == note
    assert held(note, [Mark("a", "s"), two, Mark("a", "s"), one], "s") == note, "columns changed"
    assert held(note, [one, *older], "s") == note_of("a-1"), "killed before the second"


@pytest.mark.parametrize(
    "newest",
    [
        [None, "a-2", "a-1"],
        ["a-2", None, "a-1"],
        ["z-1", "a-2", "a-1"],
        ["a-2", "z-1", "a-1"],
        ["a-2"],
        [],
    ],
)
def test_a_table_that_others_have_changed_holds_nothing(newest: list[str | None]) -> None:
    marks = [token and Mark(run_of(token), "s", token) for token in newest]
    assert held(note_of("a-1", "a-2"), marks, "s") == Note()


def test_a_flush_of_another_stream_is_a_change_by_others() -> None:
    marks = [Mark("a", "other", "a-2"), Mark("a", "s", "a-1")]
    assert held(note_of("a-1"), marks, "s") == Note()


def test_a_merge_compares_keys_and_says_where_they_can_be() -> None:
    plan = MergePlan(
        keys=[KeyRange("id", 1, 9, nulls=False), KeyRange("c", "a", "b", values=("a", "b"))],
        insert=["id", "c", "v"],
        update=["v"],
    )
    assert merge_sql(plan, "`x`", "`w`").splitlines() == [
        "MERGE INTO `x` AS t USING `w` AS s",
        "ON t.`id` = s.`id` AND t.`c` <=> s.`c` AND t.`id` BETWEEN 1 AND 9 "
        "AND (t.`c` IN ('a', 'b') OR t.`c` IS NULL)",
        "WHEN MATCHED THEN UPDATE SET `v` = s.`v`",
        "WHEN NOT MATCHED THEN INSERT (`id`, `c`, `v`) VALUES (s.`id`, s.`c`, s.`v`)",
    ]


def test_a_merge_removes_rows_that_are_marked_and_never_inserts_them() -> None:
    plan = MergePlan([KeyRange("id")], ["id", "gone"], [], deleted="gone")
    text = merge_sql(plan, "`x`", "`w`")
    assert "WHEN MATCHED AND s.`gone` IS NOT NULL THEN DELETE" in text
    assert "UPDATE" not in text
    assert "WHEN NOT MATCHED AND s.`gone` IS NULL THEN INSERT" in text


def test_old_versions_are_removed_or_marked() -> None:
    assert activate_sql("`x`", "v", "d", 5, None) == "DELETE FROM `x` WHERE `v` < 5"
    assert activate_sql("`x`", "v", "d", 5, 1.5) == (
        "UPDATE `x` SET `d` = timestamp_micros(1500000) WHERE `v` < 5 AND `d` IS NULL"
    )


def test_literals_are_exact_or_not_made() -> None:
    assert literal(True) == "true"
    assert literal(-5) == "-5"
    assert literal(1 << 40) == "CAST('1099511627776' AS BIGINT)"
    assert literal(Decimal("1.50")) == "1.50BD"
    assert literal(Decimal("1E+3")) == "1000BD"
    assert literal(dt.date(2024, 2, 29)) == "DATE'2024-02-29'"
    at = dt.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=dt.timezone.utc)
    assert literal(at) == "TIMESTAMP'2024-02-29 01:02:03.000004+00:00'"
    for value in (1.5, b"x", None, dt.datetime(2024, 1, 1), "x" * 5000, Decimal("NaN")):
        assert literal(value) is None


def test_texts_and_names_cannot_leave_their_quotes() -> None:
    assert text_literal("it's \\ ${x}\n") == "'it\\'s \\\\ \\u0024{x}\\u000a'"
    assert text_literal("\U0001f600") == "'\\ud83d\\ude00'"
    assert quoted("a`b", "c.d") == "`a``b`.`c.d`"
