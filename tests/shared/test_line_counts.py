"""Lines are counted alike, short and long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared.formats.json_text import newlines

LENGTHS = st.lists(st.sampled_from([0, 1, 39, 40, 41, 2000]))


@given(LENGTHS, st.booleans(), st.integers(0, 3000), st.none() | st.integers(0, 6000))
def test_as_bytes_count(lengths: list[int], ended: bool, start: int, end: int | None) -> None:
    data = b"\n".join(b"x" * length for length in lengths) + b"\n" * ended
    assert newlines(data, start, end) == data.count(b"\n", start, end)
    assert newlines(data) == data.count(b"\n")
