"""Malformed rows of CSV files: each one is rejected alone, the others are read."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.formats import csv_encoding
from shared.formats.csv_encoding import read_csv
from shared.formats.file_formats import FORMATS, ContentError
from shared.formats.typed_rows import RefusedRow, row_numbers

SHORT = "1 field where the header has 2"
LONG = "3 fields where the header has 2"


def read(
    path: Path, data: bytes
) -> tuple[list[tuple[int, str | None, str | None]], list[RefusedRow]]:
    """Return rows with their numbers, and the rejected rows."""
    path.write_bytes(data)
    rows, actual, before = [], [], 0
    for table, refused in read_csv(str(path)):
        assert table.schema == pa.schema([("id", pa.string()), ("name", pa.string())])
        number: Callable[[int], int] = row_numbers(before, refused)
        values = zip(*(column.to_pylist() for column in table.columns), strict=True)
        rows += [(number(place), *row) for place, row in enumerate(values)]
        actual += refused
        before += table.num_rows + len(refused)
    return rows, actual


def test_ragged_rows(tmp_path: Path) -> None:
    data = b'id,name\n1,a\n2,b,c\n\n3\n4,\n"x, ""y""\nz",2,3\n5,"q\n\nr"\n'
    assert read(tmp_path / "x", data) == (
        [(1, "1", "a"), (4, "4", None), (6, "5", "q\n\nr")],
        [
            RefusedRow(2, LONG, b"2,b,c"),
            RefusedRow(3, SHORT, b"3"),
            RefusedRow(5, LONG, b'"x, ""y""\nz",2,3'),
        ],
    )


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_headers_of_every_kind(tmp_path: Path, end: str, pack: Callable[[bytes], bytes]) -> None:
    text = end.join(["\ufeffid,name", "1,a", "2", '"3",""', ""])
    rows, refused = read(tmp_path / "x", pack(text.encode()))
    assert rows == [(1, "1", "a"), (3, "3", "")]
    assert refused == [RefusedRow(2, SHORT, b"2")]


@pytest.mark.parametrize("data", [b"id,name", b'\xef\xbb\xbf"id","name"', b"\nid,name"])
def test_a_header_without_a_line_end(tmp_path: Path, data: bytes) -> None:
    assert read(tmp_path / "x", data) == ([], [])


@pytest.mark.parametrize("data", [b"\n\n", b'id,"name'])
def test_a_file_without_a_header(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ContentError, match="its header is missing or longer than"):
        read(tmp_path / "x", data)


@pytest.mark.parametrize("rows", [b"", b"\n1\n"])
def test_a_header_longer_than_a_block(tmp_path: Path, rows: bytes) -> None:
    """Behind a header that is cut off there may be rows: it is none of a file without rows."""
    with pytest.raises(ContentError, match="its header is missing or longer than"):
        read(tmp_path / "x", b"a" * (csv_encoding.BLOCK_BYTES + 1) + rows)


@pytest.mark.parametrize("data", [b"a\xe9,b", b"a\xe9,b\n", b"a\xe9,b\n1,2\n"])
def test_a_header_that_is_not_utf8(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ContentError, match="its header is not UTF-8"):
        read(tmp_path / "x", data)


@pytest.mark.parametrize("data", [b"id,name\n1\n", b"id,name\n1,2,3\n4,5,6\n7"])
def test_a_file_of_ragged_rows_only(tmp_path: Path, data: bytes) -> None:
    rows, refused = read(tmp_path / "x", data)
    assert rows == []
    assert [row.number for row in refused] == list(
        range(1, data.count(b"\n1") + data.count(b"\n4") + data.count(b"\n7") + 1)
    )


def test_text_that_is_not_unicode(tmp_path: Path) -> None:
    rows, refused = read(tmp_path / "x", b'id,name\n1,a\n2\n3,J\xfcrgen "J"\n,"\xff""\n"\n5,e\n')
    assert rows == [(1, "1", "a"), (5, "5", "e")]
    why = "property 'name': not UTF-8 text"
    assert refused == [
        RefusedRow(2, SHORT, b"2"),
        RefusedRow(3, why, b'"3","J\xfcrgen ""J"""'),
        RefusedRow(4, why, b',"\xff""\n"'),
    ]


def test_a_quotation_mark_that_is_never_closed(tmp_path: Path, monkeypatch: object) -> None:
    pytest.MonkeyPatch.context()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_encoding, "BLOCK_BYTES", 1000)
        patch.setattr(csv_encoding, "_HEADER_BYTES", 1000)
        with pytest.raises(ContentError, match="a quotation mark is never closed"):
            read(tmp_path / "x", b'id,name\n1,"a\n' + b"2,b\n" * 1000)


def test_readers_of_whole_tables_name_the_row(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"id,name\n1,a\n2,b,c\n")
    with pytest.raises(ContentError, match=f"row 2: {LONG}"):
        list(FORMATS["csv"].read(str(tmp_path / "x")))


@pytest.mark.parametrize("values", [[None], ["x", None, ""], [None, None, "y"], [None, "x", None]])
def test_nulls_of_a_single_column(tmp_path: Path, values: list[str | None]) -> None:
    table = pa.table({"only": pa.array(values, pa.string())})
    FORMATS["csv"].write(str(tmp_path / "x"), table.schema, iter([table]), "none")
    assert pa.concat_tables(FORMATS["csv"].read(str(tmp_path / "x"))) == table


def test_empty_lines(tmp_path: Path) -> None:
    """They are rows of a file with one column, as long as its first line names that."""
    table, refused = zip(*read_csv(only(tmp_path, b"a\n1\n\n2,3\n\xff\n4\n")), strict=True)
    assert [row.to_pylist() for row in table] == [[{"a": "1"}, {"a": None}, {"a": "4"}]]
    assert [row.number for row in refused[0]] == [3, 4]
    (table, _), *_ = read_csv(only(tmp_path, b"\n\na\n1\n\n2\n"))
    assert table.column("a").to_pylist() == ["1", "2"]
    (table, _), *_ = read_csv(only(tmp_path, b"a,b\n\n1,2\n\n"))
    assert table.to_pylist() == [{"a": "1", "b": "2"}]


def only(folder: Path, data: bytes) -> str:
    (folder / "x").write_bytes(data)
    return str(folder / "x")


def test_a_first_row_that_is_long(tmp_path: Path) -> None:
    long = b"x" * 1_000_000
    rows, refused = read(tmp_path / "x", b"id,name\n1," + long + b"\n2\n")
    assert rows == [(1, "1", long.decode())]
    assert len(refused) == 1


FIELD = st.text(st.sampled_from('a",\n ü'), max_size=4)


@given(
    st.lists(st.lists(FIELD, min_size=1, max_size=4), max_size=40),
    st.sampled_from([40, 100, 10_000]),
)
def test_every_row_is_read_or_refused_under_its_number(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], block: int
) -> None:
    quoted = [",".join('"' + field.replace('"', '""') + '"' for field in row) for row in rows]
    data = "".join(f"{line}\n" for line in ["id,name", *quoted])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_encoding, "BLOCK_BYTES", max(block, 2 * max(map(len, data.split("\n")))))
        path = tmp_path_factory.getbasetemp() / "rows.csv"
        read_rows, refused = read(path, data.encode())
    expected = [(n, *row) for n, row in enumerate(rows, 1) if len(row) == 2]
    assert read_rows == expected
    assert [(row.number, row.text.decode()) for row in refused] == [
        (n, quoted[n - 1]) for n, row in enumerate(rows, 1) if len(row) != 2
    ]


@pytest.mark.parametrize("text", ["\n", "", "\nrest, of\nthe file\n", '\n7,""\n'])
def test_a_file_that_ends_within_quotation_marks(tmp_path: Path, text: str) -> None:
    rows, refused = read(tmp_path / "x", f'id,name\n1,a\n2\n3,"b\n{text}'.encode())
    assert rows == [(1, "1", "a")]
    assert [(row.number, row.reason) for row in refused] == [
        (2, SHORT), (3, "a quotation mark is never closed"),
    ]  # fmt: skip
    assert refused[-1].text.startswith(b'"3","b\n')


def test_a_ragged_row_that_ends_within_quotation_marks(tmp_path: Path) -> None:
    rows, refused = read(tmp_path / "x", b'id,name\n1,"a\nb"\n"7,8\n')
    assert rows == [(1, "1", "a\nb")]
    assert [(row.number, row.reason) for row in refused] == [(2, SHORT)]


@pytest.mark.parametrize("data", ['1,5" pipe\n2,b\n', '1,"a\nb"\n2,5"\n', '1,"a\n""b"'])
def test_quotation_marks_elsewhere_do_no_harm(tmp_path: Path, data: str) -> None:
    rows, refused = read(tmp_path / "x", f"id,name\n{data}".encode())
    assert refused == []
    assert len(rows) >= 1
