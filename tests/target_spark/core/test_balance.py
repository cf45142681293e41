"""The balance of records: every difference is an error, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import BalanceError
from shared.formats.file_formats import Encoding
from target_spark.core.balance import (
    Committed,
    Counts,
    check_commit,
    check_conversion,
    check_flush,
    merged_rows,
)
from target_spark.core.load_plans import Batch, InputFile, LoadResult, Making, StreamSchema

FEW = st.integers(0, 5)


def batch(*rows: int | None, mapped: bool = False) -> Batch:
    files = tuple(
        InputFile(f"/f{n}", Encoding("singer"), count, line_map=((1, 1),))
        for n, count in enumerate(rows)
    )
    making = Making("s", {}, (), None) if mapped else None  # type: ignore[arg-type]
    return Batch(StreamSchema("s", {}), files, "t-1", making=making)


def result(
    received: int, rows: int, rejected: int = 0, replayed: int = 0, exploded: int = 0
) -> LoadResult:
    counts = {"rejected": rejected, "received": received, "replayed": replayed}
    return LoadResult(rows=rows, exploded=exploded, **counts)


@given(FEW, FEW, FEW, st.one_of(st.none(), FEW), st.booleans(), FEW)
def test_a_conversion_balances_or_fails(
    received: int, rows: int, rejected: int, staged: int | None, mapped: bool, exploded: int
) -> None:
    rest = received + exploded - rows - rejected
    good = (staged is None or staged == received) and (rest == 0 or (mapped and rest > 0))
    good = good and (exploded < rows or exploded == 0)
    actual = result(received, rows, rejected, exploded=exploded)
    if good:
        assert check_conversion(batch(staged, mapped=mapped), actual) is actual
        return
    with pytest.raises(BalanceError, match="counts do not balance"):
        check_conversion(batch(staged, mapped=mapped), actual)


def test_rows_of_elements_are_told_from_records() -> None:
    """Five records: one with four elements, one with one, two without any, one rejected."""
    counts = check_commit(batch(5, mapped=True), [result(5, 5, 1, exploded=3)], Committed(5))
    assert counts == Counts(5, 5, 1, 2, exploded=3)
    assert counts.missing == 0


def test_the_error_says_what_and_where() -> None:
    with pytest.raises(BalanceError) as caught:
        check_conversion(batch(3), result(2, 2))
    assert "stream 's'" in str(caught.value)
    assert "3 records were staged, 2 were read" in str(caught.value)
    assert caught.value.exit_code == 10


def test_a_flush_has_all_lines() -> None:
    check_flush(batch(2, 3), 5)
    check_flush(batch(2, 3), None)
    with pytest.raises(BalanceError, match="6 records were received, 5 are to be committed"):
        check_flush(batch(2, 3), 6)


@given(FEW, st.one_of(st.none(), FEW), st.one_of(st.none(), FEW), st.booleans(), st.booleans())
def test_a_commit_balances_or_fails(
    written: int, rows: int | None, keys: int | None, by_key: bool, may_skip: bool
) -> None:
    if not by_key:
        keys, may_skip = None, False
    reported = Committed(rows, keys, by_key, may_skip)
    if rows is None:
        assert merged_rows("s", written, reported) == 0
        return
    if not by_key:
        good = rows == written
    elif keys is not None and not may_skip:
        good = rows == keys
    else:
        most = written if keys is None else keys
        good = rows <= most and (may_skip or rows > 0 or most == 0)
    if good:
        assert merged_rows("s", written, reported) == written - rows
        return
    with pytest.raises(BalanceError, match=f"{written} rows were written"):
        merged_rows("s", written, reported)


def test_the_counts_of_a_flush() -> None:
    results = [result(10, 7, 1), result(4, 0, 0, 4)]
    reported = Committed(5, 5, by_key=True)
    counts = check_commit(batch(10, 4, mapped=True), results, reported)
    assert counts == Counts(14, 5, 1, 2, 2, 4, 0)
    assert counts.missing == 0


def test_rows_that_a_commit_does_not_tell_are_unconfirmed() -> None:
    for reported in (None, Committed(None, 2, by_key=True)):
        assert check_commit(batch(3), [result(3, 3)], reported) == Counts(3, 3, unconfirmed=3)


def test_counts_add_up() -> None:
    assert Counts(3, 2, 1) + Counts(1, 0, 0, 1) == Counts(4, 2, 1, 1)
    assert Counts(3, 2).missing == 1
