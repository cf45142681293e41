"""Marks of commits, and the SQL of merges. No Spark."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from decimal import Decimal
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lake_loads import note_of

from shared.settings.texts import quoted
from target_spark.destinations.lakes.lake_sql import (
    KeyRange,
    MergePlan,
    activate_sql,
    literal,
    merge_sql,
    text_literal,
    versions_sql,
)
from target_spark.destinations.lakes.lake_table import (
    ACTIVATION,
    Mark,
    held_part,
    own_session,
    read_mark,
    run_of,
)
from target_spark.replays import Note
from target_spark.run_settings import TargetConfig

words = st.text(max_size=30)
given_words = st.none() | words.filter(bool)


@given(
    st.builds(
        Mark,
        words,
        words,
        given_words,
        given_words,
        given_words,
        st.none() | st.integers(1),
        st.booleans(),
    )
)
def test_a_mark_is_read_as_it_was_written(mark: Mark) -> None:
    assert read_mark(mark.to_text()) == mark
    assert read_mark(mark.to_short_text()) == mark
    assert "$" not in mark.to_text(), "Spark would replace variables"


def test_a_long_state_is_packed_for_iceberg_or_left_out() -> None:
    """120 commits with a STATE of 30 KB took 220 MB, as each file of its log repeats them all."""
    files = {f"exports/2026/orders-{number:05d}.csv": number for number in range(700)}
    state = json.dumps({"bookmarks": {"s": {"files": files}}})
    assert len(state) > 30_000 // 2
    mark = Mark("r", "s", "r-1", state=json.dumps({"a": "x" * 30_000}))
    assert len(mark.to_short_text()) < 1024
    assert read_mark(mark.to_short_text()) == mark
    mark = Mark("r", "s", "r-1", state=state)
    assert len(mark.to_short_text()) < 5 * 1024
    random = "".join(map(chr, Random(1).choices(range(0x4E00, 0x9FFF), k=10_000)))
    mark = Mark("r", "s", "r-1", state=random)
    assert len(mark.to_short_text()) < 200
    assert read_mark(mark.to_short_text()) == replace(mark, state=None)


def test_a_mark_of_an_older_version_is_read() -> None:
    text = '{"origin": "target-spark", "run": "r", "stream": "s", "token": "r-000001"}'
    assert read_mark(text) == Mark("r", "s", "r-000001")


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
    assert held_part(note, [two, one, *older], "s") == note
    assert held_part(note, [Mark("a", "s"), two, Mark("a", "s"), one], "s") == note, (
        "columns changed"
    )
    assert held_part(note, [one, *older], "s") == note_of("a-1"), "killed before the second"
    activated = Mark("a", "s", ACTIVATION)
    assert held_part(note, [activated, two, one, *older], "s") == note
    assert held_part(note, [Mark("z", "s", ACTIVATION), two, one], "s") == Note(), "by others"


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
    assert held_part(note_of("a-1", "a-2"), marks, "s") == Note()


def test_a_flush_of_another_stream_is_a_change_by_others() -> None:
    marks = [Mark("a", "other", "a-2"), Mark("a", "s", "a-1")]
    assert held_part(note_of("a-1"), marks, "s") == Note()


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


def test_a_merge_ignores_rows_that_are_older_than_those_of_the_table() -> None:
    plan = MergePlan([KeyRange("id")], ["id", "v"], ["v"], deleted="gone", order_by=["v"])
    lines = merge_sql(plan, "`x`", "`w`").splitlines()[2:]
    assert lines == [
        "WHEN MATCHED AND (s.`v` >= t.`v` OR t.`v` IS NULL) AND s.`gone` IS NOT NULL THEN DELETE",
        "WHEN MATCHED AND (s.`v` >= t.`v` OR t.`v` IS NULL) THEN UPDATE SET `v` = s.`v`",
        "WHEN NOT MATCHED AND s.`gone` IS NULL THEN INSERT (`id`, `v`) VALUES (s.`id`, s.`v`)",
    ]


def test_versions_are_closed_and_added_in_one_merge() -> None:
    keys = [KeyRange("id", 1, 2, nulls=False)]
    assert versions_sql(keys, ["id", "v"], "until", "now", "`x`", "`w`").splitlines() == [
        "MERGE INTO `x` AS t USING `w` AS s",
        "ON s.`__step` = 'close' AND coalesce(t.`now`, true) AND t.`id` = s.`id` "
        "AND t.`id` BETWEEN 1 AND 2",
        "WHEN MATCHED THEN UPDATE SET `until` = s.`until`, `now` = false",
        "WHEN NOT MATCHED AND s.`__step` = 'add' THEN INSERT (`id`, `v`) VALUES (s.`id`, s.`v`)",
    ]


def test_old_versions_are_removed_or_marked() -> None:
    assert activate_sql("`x`", "v", "d", 5, None) == (
        "DELETE FROM `x` WHERE `v` < 5 AND coalesce(`v`, 5) < 5"
    )
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


def test_sessions_read_literals_with_their_escapes() -> None:
    conf = {"spark.sql.parser.escapedStringLiterals": "true"}
    own = Mock(**{"get.side_effect": conf.get, "set.side_effect": conf.__setitem__})
    session: Any = SimpleNamespace(conf=own)
    own_session(session, TargetConfig(), {"more": "x"})
    assert conf == {"spark.sql.parser.escapedStringLiterals": "false", "more": "x"}
    own_session(session, TargetConfig(), {"more": "x"})
    assert own.set.call_count == 3, "Spark Connect warns of a deprecated name that is set"


def test_texts_and_names_cannot_leave_their_quotes() -> None:
    assert text_literal("it's \\ ${x}\n") == "'it\\'s \\\\ \\u0024{x}\\u000a'"
    assert text_literal("\U0001f600") == "'\\ud83d\\ude00'"
    assert quoted("a`b", "c.d") == "`a``b`.`c.d`"


def test_a_mark_of_a_whole_run_stands_for_its_flushes() -> None:
    note = note_of("a-000001", "a-000003", "a-000007")
    whole = Mark("a", "s", "a-000005", whole=True)
    assert held_part(note, [whole], "s") == note_of("a-000001", "a-000003")
    assert held_part(note, [Mark("a", "s", "a-000005")], "s") == Note(), "an earlier one is missing"
    assert held_part(note, [None, whole], "s") == Note(), "others have committed since"
    assert held_part(note_of("b-000001"), [whole], "s") == Note(), "of another run"
    later = Mark("b", "s", "b-000002", whole=True)
    both = note_of("a-000001", "b-000001", "b-000002")
    assert held_part(both, [later, whole], "s") == both
