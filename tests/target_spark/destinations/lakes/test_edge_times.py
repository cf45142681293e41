"""Times that Python's own types cannot hold, in tables of lakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lake_loads import Load

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.costly]
Make = Callable[..., Load]

# 9999-12-31T23:59:59-05:00, 0001-01-01T00:00:00+01:00 and 0000-01-01T00:00:00+01:00.
LATE, EARLY, YEAR_0 = 253402318799000000, -62135600400000000, -62167222800000000
TIMES = [(1, LATE, 2932896), (2, EARLY, -719162), (3, YEAR_0, -719528)]
DDL = "id long, at timestamp, n timestamp_ntz, d date"
READ = (
    "SELECT id, unix_micros(at), unix_micros(CAST(n AS timestamp)), unix_date(d) FROM {t} "
    "ORDER BY 1, 2"
)


def rows(*numbers: int) -> list[dict[str, Any]]:
    actual = [{"id": n, "at": at, "n": at, "d": day} for n, at, day in TIMES]
    return [row for row in actual if row["id"] in numbers]


def stored(*numbers: int) -> list[tuple[int, ...]]:
    return [(n, at, at, day) for n, at, day in TIMES if n in numbers]


def test_times_at_the_ends_are_stored_as_they_are_and_found(lake_load: Make) -> None:
    load = lake_load(DDL)
    load.load(rows(1, 2), rows(3))
    # In turn, as Delta's two writers write bounds in their own ways.
    load.method, load.keys = "upsert", ("at", "n", "d")
    load.load(rows(2, 3))
    load.method = "append-only"
    load.load(rows(1))
    wanted = sorted(stored(1, 2, 3) + stored(1))
    assert [tuple(row) for row in load.sql(READ)] == wanted
    values = [(f"timestamp_micros({at})", f"date_from_unix_date({day})") for _, at, day in TIMES]
    # In one statement, as each costs; Spark leaves files out for each condition on its own.
    queries, expected = [], []
    for pair, same, later in zip(values, (2, 1, 1), (2, 3, 4), strict=True):
        for column, value in zip(("at", "d"), pair, strict=True):
            name = f"{column} {same} {later}"
            queries.append(
                f"SELECT '{name}', count_if({column} = {value}), count_if({column} >= {value}) "
                f"FROM {{t}} WHERE {column} >= {value}"
            )
            expected.append((name, same, later))
    actual = load.sql(" UNION ALL ".join(queries))
    assert sorted(map(tuple, actual)) == sorted(expected)


def test_a_table_is_replaced_by_such_times(lake_load: Make) -> None:
    load = lake_load(DDL, method="overwrite", keys=("at", "d"))
    load.load(rows(1, 2), rows(1, 3))
    load.end()
    assert [tuple(row) for row in load.sql(READ)] == stored(1, 2, 3)
