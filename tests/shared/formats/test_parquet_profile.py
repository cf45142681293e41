"""Facts of columns from Parquet footers, compared with the rows themselves."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from shared.formats.columnar_encoding import LONGEST_TEXT, merged_facts, read_footer

UTC = dt.timezone.utc


def profile(tmp_path: Path, table: pa.Table, **how: int) -> tuple[int, dict]:
    path = tmp_path / "f.parquet"
    pq.write_table(table, path, **how)
    return read_footer("parquet", str(path))


def test_bounds_and_nulls(tmp_path: Path) -> None:
    at = dt.datetime(2026, 7, 1, 12, tzinfo=UTC)
    table = pa.table(
        {
            "i": [3, None, 1],
            "f": [0.5, -1.0, None],
            "b": [True, False, None],
            "s": ["b", "a", None],
            "long": ["x" * (LONGEST_TEXT + 1), "y", "z"],
            "at": pa.array([at, at + dt.timedelta(hours=1), None], pa.timestamp("us", "UTC")),
            "day": [dt.date(2026, 1, 2), None, None],
            "n": [Decimal("1.50"), Decimal("2.25"), None],
            "nulls": pa.nulls(3, pa.int64()),
            "list": [[1], [2, 3], None],
            "struct": [{"i": 1}, None, None],
        }
    )
    rows, columns = profile(tmp_path, table, row_group_size=2)
    assert rows == 3
    assert columns == {
        "i": [1, 1, 3],
        "f": [1, -1.0, 0.5],
        "b": [1, 0, 1],
        "s": [1, "a", "b"],
        "long": [0, None, "z"],
        "at": [1, "2026-07-01T12:00:00+00:00", "2026-07-01T13:00:00+00:00"],
        "day": [2, "2026-01-02", "2026-01-02"],
        "n": [1, 1.5, 2.25],
        "nulls": [3, None, None],
    }


def test_no_rows(tmp_path: Path) -> None:
    rows, columns = profile(tmp_path, pa.table({"i": pa.array([], pa.int64())}))
    assert (rows, columns) == (0, {})


@given(st.lists(st.one_of(st.none(), st.integers(-9, 9)), min_size=1), st.data())
def test_facts_of_parts_are_those_of_the_whole(
    values: list[int | None], data: st.DataObject
) -> None:
    def facts(some: list[int | None]) -> list:
        present = [value for value in some if value is not None]
        bounds = [min(present), max(present)] if present else [None, None]
        return [len(some) - len(present), *bounds]

    cut = data.draw(st.integers(0, len(values)))
    one, other = facts(values[:cut]), facts(values[cut:])
    whole = merged_facts(one, other)
    assert whole[0] == facts(values)[0]
    if None not in (one[1], other[1]):
        assert whole == facts(values)


def test_bounds_of_other_types_are_dropped() -> None:
    assert merged_facts([1, 1, 2], [0, "a", "b"]) == [1, None, None]
