"""Tables of text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared.settings.texts import text_table

ROWS = [["name", "n", "about"], ["orders", "12", "x" * 90], ["a" * 40, "3", "-"]]


def test_it_is_as_narrow_as_its_cells() -> None:
    assert list(text_table([["a", "bb"], ["ccc", "d"]])) == ["a    bb", "ccc  d"]


def test_only_some_columns_are_cut() -> None:
    head, orders, other = text_table(ROWS, 40, cuttable=(0, 2))
    assert head == "name               n   about"
    assert orders == "orders             12  xxxxxxxxxxxxxxxx…"
    assert other == "aaaaaaaaaaaaaaaa…  3   -"
    assert max(map(len, text_table(ROWS, None))) > 80


@given(st.lists(st.tuples(st.text(), st.text(max_size=20)), min_size=1), st.integers(40, 80))
def test_lines_stay_within_the_width(rows: list[tuple[str, str]], width: int) -> None:
    lines = list(text_table([("a", "b"), *rows], width, cuttable=(0,)))
    assert len(lines) == len(rows) + 1
    assert all(len(line) <= width and line.isprintable() for line in lines)
