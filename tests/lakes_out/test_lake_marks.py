"""Marks of commits, and the SQL of merges. No Spark."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from target_spark.destinations.lakes.marks import Mark, open_flush, read_mark, run_of
from target_spark.destinations.lakes.merge import (
    KeyRange,
    MergePlan,
    activate_sql,
    literal,
    merge_sql,
    quoted,
    text_literal,
)

words = st.text(max_size=30)


@given(st.builds(Mark, words, words, st.none() | words.filter(bool), words, st.tuples(words)))
def test_a_mark_is_read_as_it_was_written(mark: Mark) -> None:
    found = read_mark(mark.to_text())
    assert found is not None
    assert (found.run, found.stream, found.token, found.note) == (
        mark.run,
        mark.stream,
        mark.token,
        mark.note,
    )


def test_what_others_have_stored_is_no_mark() -> None:
    for text in (None, "", "x", "[]", "3", '{"run": "a"}', '{"origin": "other"}'):
        assert read_mark(text) is None


def test_tokens_tell_run_and_number() -> None:
    assert run_of("abc-000012") == "abc"
    assert Mark("abc", "s", "abc-000012").number == 12
    assert Mark("abc", "s", "abc-x").number is None
    assert Mark("abc", "s").number is None
    assert run_of("t") == "t"


def test_the_newest_flush_of_a_run_that_has_not_ended_is_open() -> None:
    crashed = [Mark("a", "s", "a-2", "n2"), Mark("a", "s", "a-1", "n1")]
    assert open_flush(crashed, "s") == crashed[0]
    assert open_flush(crashed, "other") is None
    assert open_flush([Mark("a", "s", ended=("a",)), *crashed], "s") is None
    assert open_flush([], "s") is None


def test_a_run_that_took_over_ends_the_one_before_too() -> None:
    crashed = Mark("a", "s", "a-1", "n1")
    taken_over = [Mark("b", "s", ended=("b", "a")), Mark("b", "s", "b-1", "n"), crashed]
    assert open_flush(taken_over, "s") is None


def test_the_end_of_one_run_leaves_the_notes_of_another() -> None:
    marks = [Mark("b", "s", ended=("b",)), Mark("a", "s", "a-2", "n2"), Mark("b", "s", "b-1")]
    assert open_flush(marks, "s") == marks[1]


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
