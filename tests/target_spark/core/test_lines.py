from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from target_spark.core.reader import Lines

LINES = [b"x" * (n % 7) + b"\n" for n in range(1000)]


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 500, 998, 999, 1000])
@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_cutting_at_a_line(count, kind):
    lines = Lines(kind(b"".join(LINES)), len(LINES))
    assert bytes(lines.take(count)) == b"".join(LINES[:count])
    assert lines.count == len(LINES) - count
    if lines.count:
        assert bytes(lines.take(lines.count)) == b"".join(LINES[count:])


@given(st.lists(st.integers(1, 300), min_size=1, max_size=20))
def test_portions_of_any_size_are_all_of_it(portions):
    lines, actual = Lines(memoryview(b"".join(LINES)), len(LINES)), []
    for portion in portions:
        if lines.count:
            taken = min(portion, lines.count)
            part = bytes(lines.take(taken))
            assert part.count(b"\n") == taken
            actual.append(part)
    if lines.count:
        actual.append(bytes(lines.take(lines.count)))
    assert b"".join(actual) == b"".join(LINES)


def test_all_at_once_is_not_copied():
    data = b"a\nb\n"
    taken = Lines(data, 2).take(2)
    assert isinstance(taken, memoryview)
    assert taken.obj is data


def test_line_by_line_takes_no_time_for_what_is_left():
    count = 100_000
    lines = Lines(memoryview(b"0123456789\n" * count), count)
    began = time.process_time()
    for _ in range(count):
        lines.take(1)
    assert time.process_time() - began < 5
