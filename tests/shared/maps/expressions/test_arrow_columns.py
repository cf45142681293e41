"""Columns over Arrow batches: when they are computed, and of what."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from shared.maps.expressions import arrow_functions as F  # noqa: N812
from shared.maps.expressions.arrow_columns import ArrowColumn, Data, Rows
from shared.maps.expressions.value_kinds import INT
from shared.maps.expressions.values import F as CHOSEN
from shared.maps.expressions.values import Unsupported, once, over_arrow, using


def rows(everything: bool = False, **columns: Any) -> Rows:
    arrays = {name: pa.array(values) for name, values in columns.items()}
    return Rows(arrays, len(next(iter(arrays.values()))), everything=everything)


def counted(column: ArrowColumn, calls: list[int]) -> ArrowColumn:
    def compute(actual: Rows) -> Data:
        calls.append(actual.count)
        return actual.data(column)

    return ArrowColumn(compute)


N = F.source(("n",))


def test_a_column_is_computed_once_for_a_batch() -> None:
    calls: list[int] = []
    n = counted(N, calls)
    assert rows(n=[1, 2]).array(n + n).to_pylist() == [2, 4]
    assert calls == [2]


@pytest.mark.parametrize(("numbers", "computed"), [([1, None], 0), ([1, 6], 1), ([6, 7], 1)])
def test_a_branch_is_computed_if_a_row_takes_it(numbers: list[int | None], computed: int) -> None:
    calls: list[int] = []
    chosen = F.when(N > 5, counted(N * 10, calls)).otherwise(N)
    expected = [10 * n if n is not None and n > 5 else n for n in numbers]
    assert rows(n=numbers).array(chosen).to_pylist() == expected
    assert len(calls) == computed


def test_a_trial_computes_every_branch() -> None:
    calls: list[int] = []
    chosen = F.when(F.lit(False), counted(N, calls)).when(N > 5, counted(N, calls))
    assert rows(everything=True, n=[1]).array(chosen).to_pylist() == [None]
    assert len(calls) == 2


@pytest.mark.parametrize("function", ["try_add", "try_subtract", "try_multiply"])
def test_integers_of_more_than_64_bits_are_null(function: str) -> None:
    least, most = -(2**63), 2**63 - 1
    batch = rows(n=[least, 1, None, most, -1], m=[most, most, 1, least, -1])
    actual = batch.array(getattr(F, function)(N, F.source(("m",)))).to_pylist()
    exact = {
        "try_add": [-1, None, None, -1, -2],
        "try_subtract": [None, 1 - most, None, None, 0],
        "try_multiply": [None, most, None, None, 1],
    }
    assert actual == exact[function]


def test_functions_of_python_are_called_for_each_row() -> None:
    value, error = F.each(lambda n: 10 // n, INT, N)
    batch = rows(n=[5, 0, None])
    assert batch.array(value).to_pylist() == [2, None, None]
    first, second, third = batch.array(error).to_pylist()
    assert first is None
    assert second == "ZeroDivisionError: integer division or modulo by zero"
    assert third.startswith("TypeError: ")


def test_elements_of_a_slice_are_those_of_its_own_rows() -> None:
    lists = pa.array([["a"], None, [], ["b", "c"]])
    actual = F.get(F.source(("l",)), F.source(("n",)))
    batch = Rows({"l": lists.slice(1), "n": pa.array([0, 0, 1])}, 3)
    assert batch.array(actual).to_pylist() == [None, None, "c"]


def test_a_column_has_its_type_even_if_all_rows_are_none() -> None:
    maybe = F.when(F.source(("b",)), F.lit(None)).otherwise(F.source(("s",)))
    rows(everything=True, b=[True], s=["a"]).array(maybe)
    batch = rows(b=[True, True], s=["a", "b"])
    assert batch.array(maybe).type == pa.string()
    assert batch.array(F.char_length(maybe)).to_pylist() == [None, None]


@pytest.mark.parametrize("count", [0, 2])
def test_elements_of_a_list_that_all_rows_share(count: int) -> None:
    shared = F.array(F.lit("a"), F.lit("b"))
    batch = Rows({"n": pa.array(range(count), pa.int64())}, count)
    assert batch.array(F.get(shared, N)).to_pylist() == ["a", "b"][:count]


def test_no_text_is_repeated_less_than_never() -> None:
    """A row of another branch may have any number."""
    actual = rows(n=[2, -1, None]).array(F.repeat(F.lit("*"), N))
    assert actual.to_pylist() == ["**", "", None]


def test_what_only_spark_has_is_told() -> None:
    with using(F), pytest.raises(Unsupported, match="regexp_extract_all"):
        CHOSEN.regexp_extract_all(CHOSEN.lit("a"), CHOSEN.lit("b"), CHOSEN.lit(0))
    with pytest.raises(Unsupported):
        rows(n=["a"]).array(F.startswith(N, N))


def test_columns_are_kept_for_each_set_of_functions() -> None:
    created = once(lambda: [over_arrow()])
    with using(F):
        assert created() == [F]
        assert created() is created()
    assert created() == [None]
