"""Rows of records that may have several: all of them, or the first that failed. No Spark."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from target_spark.convert import spark_rows
from target_spark.convert.spark_rows import WholeRecords

SCHEMA = pa.schema([("value", pa.int64()), ("origin", pa.int64()), ("error", pa.string())])
RECORDS = st.lists(st.tuples(st.booleans(), st.lists(st.booleans(), min_size=1, max_size=9)))


def batches(
    rows: list[tuple[int, int | None, str | None]], cuts: list[int]
) -> list[pa.RecordBatch]:
    columns = [pa.array([row[at] for row in rows], SCHEMA.field(at).type) for at in range(3)]
    whole = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    ends = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    return [whole.slice(a, b - a) for a, b in pairwise(ends)]


@pytest.mark.parametrize("in_memory", [1, 4 << 20])
@given(records=RECORDS, cuts=st.lists(st.integers(0, 60)))
def test_all_rows_or_the_first_that_failed(
    in_memory: int, records: list[tuple[bool, list[bool]]], cuts: list[int]
) -> None:
    """However the rows are cut into batches; rows without an origin pass."""
    rows: list[tuple[int, int | None, str | None]] = []
    expected, exploded = list[tuple[int, int | None, str | None]](), 0
    for origin, (has_note, failures) in enumerate(records):
        if has_note:
            rows.append((-1, None, None))
            expected.append(rows[-1])
        own = [(at, origin, f"{at}" if bad else None) for at, bad in enumerate(failures)]
        rows += own
        failed = [row for row in own if row[2] is not None]
        expected += failed[:1] or own
        exploded += 0 if failed else len(own) - 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark_rows, "_IN_MEMORY", in_memory)
        whole = WholeRecords(1)
        actual = [row for part in whole.of(batches(rows, cuts)) for row in part.to_pylist()]
    assert [tuple(row.values()) for row in actual] == expected
    assert whole.exploded == exploded
