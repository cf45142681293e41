"""The comparison of two rows, as a database evaluates it."""

from __future__ import annotations

import sqlite3
from itertools import product

from target_spark.tables.table_changes import not_older

VALUES = (None, 1, 2)


def rank(row: tuple[int | None, ...]) -> tuple[int, ...]:
    return tuple(-1 if value is None else value for value in row)


def test_null_is_the_oldest_and_the_first_difference_decides() -> None:
    names = "abc"
    database = sqlite3.connect(":memory:")
    for count in (1, 2, 3):
        condition = not_older([(f"s.{name}", f"t.{name}") for name in names[:count]], "IS")
        rows = list(product(VALUES, repeat=count))
        columns = ", ".join(f"? AS {name}" for name in names[:count])
        query = f"SELECT 1 FROM (SELECT {columns}) s, (SELECT {columns}) t WHERE {condition}"
        for new, old in product(rows, rows):
            actual = database.execute(query, (*new, *old)).fetchone() is not None
            assert actual == (rank(new) >= rank(old)), (new, old)
