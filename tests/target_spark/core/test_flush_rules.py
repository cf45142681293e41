from __future__ import annotations

from target_spark.core.policies import BatchSize, FlushRule, SizeAndAge


def test_no_limit_in_rows_by_default():
    rule: FlushRule = SizeAndAge()
    assert rule.room("s", BatchSize(rows=10**9)).rows is None
    assert not rule.is_full("s", BatchSize(rows=10**9))


def test_room_is_what_is_left_and_never_nothing():
    rule = SizeAndAge(rows=10)
    assert [rule.room("s", BatchSize(rows=n)).rows for n in (0, 4, 10, 12)] == [10, 6, 1, 1]


def test_each_limit_closes():
    rule = SizeAndAge(rows=10, size=100, files=3, seconds=5)
    assert not rule.is_full("s", BatchSize(rows=9, size=99, files=2))
    assert rule.is_full("s", BatchSize(rows=10))
    assert rule.is_full("s", BatchSize(size=100))
    assert rule.is_full("s", BatchSize(files=3))


def test_age_counts_from_the_first_message():
    assert SizeAndAge(seconds=5).deadline("s", BatchSize(opened_at=100.0)) == 105.0
