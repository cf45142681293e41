"""Rows of columnar files whose text is not UTF-8."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shared.formats.typed_rows import NOT_TEXT, without_bad_text

TEXT = pa.string()
RAW = [b"a", b"\xff\xfe", None, "é".encode(), b"x\xe9", b"b"]


def unchecked(kind: pa.DataType = TEXT) -> pa.Array:
    own = pa.binary() if kind == TEXT else pa.large_binary()
    data = pa.array(RAW, own)
    return pa.Array.from_buffers(kind, len(data), data.buffers())


def coded() -> pa.Array:
    """Return the same values in another order of a dictionary."""
    return pa.DictionaryArray.from_arrays(
        pa.array([4, 3, None, 2, 1, 0], pa.int32()), unchecked().drop_null()
    )


VIEW = pa.array(RAW, pa.binary_view()).view(pa.string_view())
ONES = pa.array([1] * 6, pa.int32())
NESTED = {
    "text": unchecked(),
    "large": unchecked(pa.large_string()),
    "struct": pa.StructArray.from_arrays([unchecked()], ["x"]),
    "list": pa.ListArray.from_arrays(pa.array(range(7), pa.int32()), unchecked()),
    "map": pa.MapArray.from_arrays(
        pa.array(range(7), pa.int32()), pa.array(list("abcdef")), unchecked()
    ),
    "large list": pa.LargeListArray.from_arrays(pa.array(range(7), pa.int64()), unchecked()),
    "list of a size": pa.FixedSizeListArray.from_arrays(unchecked(), 1),
    "dictionary": coded(),
    "struct of a dictionary": pa.StructArray.from_arrays([coded()], ["x"]),
    "list of a dictionary": pa.ListArray.from_arrays(pa.array(range(7), pa.int32()), coded()),
    "list view": pa.ListViewArray.from_arrays(pa.array(range(6), pa.int32()), ONES, unchecked()),
    "struct of a list view": pa.StructArray.from_arrays(
        [pa.ListViewArray.from_arrays(pa.array(range(6), pa.int32()), ONES, coded())], ["x"]
    ),
}


@pytest.mark.parametrize("name", NESTED)
def test_rows_are_told_from_others(name: str, tmp_path: Path) -> None:
    numbers = pa.array(range(6))
    tables = [pa.table({"n": numbers, "t": NESTED[name]})]
    with suppress(pa.ArrowNotImplementedError):  # older Arrow writes no list views
        pq.write_table(tables[0], tmp_path / "f")
        tables.append(pq.read_table(tmp_path / "f"))
    for table in tables:
        kept, refused = without_bad_text(table, 10)
        kept.validate(full=True)
        assert kept["n"].to_pylist() == [0, 2, 3, 5]
        assert [(row.number, row.reason) for row in refused] == [(12, NOT_TEXT), (15, NOT_TEXT)]
        values = [json.loads(row.text) for row in refused]
        assert [value["n"] for value in values] == [1, 4]
        assert ["\ufffd" in str(value["t"]) for value in values] == [True, True]


def test_other_rows_are_the_same_object() -> None:
    table = pa.table({"t": ["a", None], "b": [b"\xff", None], "d": pa.nulls(2)})
    assert without_bad_text(table, 0) == (table, [])
    assert without_bad_text(table, 0)[0] is table
    assert without_bad_text(table.slice(0, 0), 0)[1] == []


@pytest.mark.parametrize("text", [unchecked(), VIEW], ids=["text", "view"])
def test_views(text: pa.Array) -> None:
    views = pa.array([*"vwxyz", None], pa.string_view())
    table = pa.table({"v": views, "b": views.view(pa.binary_view()), "t": text})
    kept, refused = without_bad_text(table, 0)
    assert kept["v"].to_pylist() == ["v", "x", "y", None]
    assert kept["b"].to_pylist() == [b"v", b"x", b"y", None]
    assert kept["t"].to_pylist() == ["a", None, "é", "b"]
    assert [row.number for row in refused] == [2, 5]


def test_dictionaries() -> None:
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), unchecked().slice(0, 2))
    kept, refused = without_bad_text(pa.table({"t": coded}), 0)
    assert kept["t"].cast(pa.string()).to_pylist() == ["a", "a"]
    assert [row.number for row in refused] == [2]


FEW = pa.array(["a", "b"], pa.string_view())
VIEWS = {
    "text": FEW,
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), FEW),
    "list": pa.array([["a", None], None], pa.list_view(pa.string_view())),
    "large list": pa.array([None, ["a", "b"]], pa.large_list_view(pa.string())),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_become_plain(name: str) -> None:
    """Arrow looks for patterns in no view, and decodes no dictionary of views."""
    nested = pa.StructArray.from_arrays([VIEWS[name]], ["x"])
    maps = pa.MapArray.from_arrays([0, 1, 2], pa.array(["k", "l"]), nested)
    table = pa.table({"v": VIEWS[name], "s": nested, "m": maps})
    for rows in (table, table.slice(1)):
        kept, refused = without_bad_text(rows, 0)
        kept.validate(full=True)
        assert "view" not in str(kept.schema)
        assert (kept.to_pylist(), refused) == (rows.to_pylist(), [])
