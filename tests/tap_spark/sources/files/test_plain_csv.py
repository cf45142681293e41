"""Lines of CSV parsed without Spark: what is read, and what is left to Spark."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T  # noqa: N812

from tap_spark.sources.files.csv_blocks import PlainCsv, csv_blocks, plain_csv
from tap_spark.sources.files.text_types import simple_ddl

COMMAS = PlainCsv(",", header=True)


Columns = tuple[tuple[str, ...] | None, list[list[str | None]]]


def read(tmp_path: Path, data: bytes, *, start: int = 0) -> Columns | None:
    """Return the header and the columns of a file of one block; None if Spark must read it."""
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    actual = csv_blocks(COMMAS, [(str(path), start, len(data))])
    if actual is None:
        return None
    texts = [T.StringType()] * actual.width
    read = [actual.typed(block, range(actual.width), texts) for block in actual.ranges]
    (columns,) = read or [[]]
    return None if columns is None else (actual.header, [one.to_pylist() for one in columns])


def test_plain_and_quoted_fields(tmp_path: Path) -> None:
    actual = read(tmp_path, b'a,"b ""c"""\r\n\r\n1,"x, ""y"""\r\n,""\r\n \\ ,\xc3\xa9')
    assert actual == (("a", 'b "c"'), [["1", None, " \\ "], ['x, "y"', None, "é"]])


def test_lines_from_the_middle_have_the_header_of_the_file(tmp_path: Path) -> None:
    actual = read(tmp_path, b"a,b\n1,2\n3,4\n", start=8)
    assert actual == (("a", "b"), [["3"], ["4"]])


@pytest.mark.parametrize(
    "data",
    [
        b"1\n",
        b"1,2,3\n",
        b'1,"2\n',
        b'1,"2" \n',
        b'1, "2"\n',
        b'1,2"\n',
        b'1,"2"3"\n',
        b'1,"2\n3"\n',
        b"1,\xff\n",
        b"1,\xed\xa0\x80\n",
        b"1,\x00\n",
        b"1,2\r3,4\n",
        b"1,2\n \t\n",
        b"\x1f\n1,2\n",
        b"1,\xef\xbb\xbf2\n",
    ],
)
def test_what_parsers_read_differently_is_left_to_spark(tmp_path: Path, data: bytes) -> None:
    assert read(tmp_path, b"a,b\n" + data) is None


@pytest.mark.parametrize("header", [b'a,"b\n', b"a\x00,b\n", b"\xef\xbb\xbfa,b\n", b" \na,b\n"])
def test_odd_headers_are_left_to_spark(tmp_path: Path, header: bytes) -> None:
    assert read(tmp_path, header + b"1,2\n") is None


@pytest.mark.parametrize(
    "options",
    [
        {"quote": "'"},
        {"mode": "PERMISSIVE"},
        {"sep": "||"},
        {"sep": " "},
        {"sep": ",", "delimiter": ","},
        {"encoding": "latin1"},
        {"fs.s3a.endpoint": "x"},
    ],
)
def test_options_that_only_spark_knows(options: dict[str, str]) -> None:
    assert plain_csv(options) is None


def test_separators() -> None:
    assert plain_csv({"sep": "\\t", "header": "false"}) == PlainCsv("\t", header=False)
    assert plain_csv({"Delimiter": ";", "header": "true"}) == PlainCsv(";", True)


@given(rows=st.lists(st.lists(st.text('a",;\\ é\t'), min_size=3, max_size=3)), every=st.booleans())
def test_what_a_writer_wrote_is_read(rows: list[list[str]], every: bool) -> None:
    out = io.StringIO()
    quoting = csv.QUOTE_ALL if every else csv.QUOTE_MINIMAL
    csv.writer(out, quoting=quoting, lineterminator="\n").writerows([["x", "y", "z"], *rows])
    actual = COMMAS.columns(out.getvalue().encode(), 3)
    assert actual is not None
    read = [list(row) for row in zip(*(column.to_pylist() for column in actual), strict=True)]
    assert read == [["x", "y", "z"], *([value or None for value in row] for row in rows)]


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_left_to_spark(data: bytes) -> None:
    actual = COMMAS.columns(data, 2)
    assert actual is None or len(actual) == 2


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("id BIGINT, `x` INT", None),
        ("id BIGINT, name string,at TIMESTAMP", ["bigint", "string", "timestamp"]),
        ("a decimal(10, 2), b Decimal(38,0)", ["decimal(10,2)", "decimal(38,0)"]),
        ("a decimal(39, 2)", None),
        ("a decimal(2, 3)", None),
        ("a decimal", None),
        ("a INT NOT NULL", None),
        ("a: INT", None),
        ("a array<int>, b int", None),
        ("a INT, A INT", None),
        ("", None),
    ],
)
def test_simple_ddl(text: str, types: list[str] | None) -> None:
    actual = simple_ddl(text)
    assert (actual and [f.dataType.simpleString() for f in actual]) == types
