"""Times at the limits of what a message can hold: stored unchanged, or rejected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from database_loads import PG, Loads, MariaDb, request, tables_of

from shared.errors import RecordError

pytestmark = pytest.mark.server
NewLoads = Callable[..., Loads]

# 9999-12-31T23:59:59-05:00, 0001-01-01T00:00:00+01:00 and 0000-01-01T00:00:00+01:00.
LATE, EARLY, YEAR_0 = 253402318799000000, -62135600400000000, -62167222800000000
LAST_DAY, FIRST_DAY, DAY_OF_YEAR_0 = 2932896, -719162, -719528
TIMES = request("id int!, at timestamp, n timestamp_ntz, d date", "id", "upsert")
ROWS = [
    (1, LATE, LATE, LAST_DAY),
    (2, EARLY, EARLY, FIRST_DAY),
    (3, YEAR_0, YEAR_0, DAY_OF_YEAR_0),
]


@pytest.mark.parametrize("method", ["upsert", "append-only"])
def test_postgresql_holds_all_of_them(pg: PG, new_loads: NewLoads, method: str):
    new_loads(pg).load(replace(TIMES, method=method), ROWS)
    assert pg.table("select * from t order by id") == [
        ("1", "10000-01-01 04:59:59+00", "10000-01-01 04:59:59", "9999-12-31"),
        ("2", "0001-12-31 23:00:00+00 BC", "0001-12-31 23:00:00 BC", "0001-01-01"),
        ("3", "0002-12-31 23:00:00+00 BC", "0002-12-31 23:00:00 BC", "0001-01-01 BC"),
    ]


@pytest.mark.parametrize("method", ["upsert", "append-only"])
def test_mariadb_holds_those_of_years_up_to_9999(maria: MariaDb, new_loads: NewLoads, method: str):
    last = 253402300799999999
    new_loads(maria).load(replace(TIMES, method=method), [(1, last, last, LAST_DAY), ROWS[1]])
    assert maria.table("select * from t order by id") == [
        ("1", "9999-12-31 23:59:59.999999", "9999-12-31 23:59:59.999999", "9999-12-31"),
        ("2", "0000-12-31 23:00:00.000000", "0000-12-31 23:00:00.000000", "0001-01-01"),
    ]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("timestamp", LATE),
        ("timestamp_ntz", LATE),
        ("timestamp", YEAR_0),
        ("date", LAST_DAY + 1),
        ("double", float("inf")),
        ("double", float("nan")),
        ("float", float("-inf")),
    ],
)
def test_mariadb_stores_nothing_else_for_what_it_cannot_hold(
    maria: MariaDb, new_loads: NewLoads, kind: str, value: Any
):
    loads = new_loads(maria)
    one = request(f"id int!, v {kind}", "id", "upsert")
    with pytest.raises(RecordError, match="property 'v': the value does not fit its column"):
        loads.load(one, [(1, None), (2, value)])
    assert "t" not in tables_of(maria)
