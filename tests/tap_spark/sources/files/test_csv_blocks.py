"""CSV files in blocks: the lines of a whole file, each once, or left to Spark."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T  # noqa: N812

from tap_spark.sources.files import csv_blocks as module
from tap_spark.sources.files import driver_files
from tap_spark.sources.files.csv_blocks import CsvBlocks, PlainCsv, csv_blocks
from tap_spark.sources.files.text_types import typed_column

COMMAS = PlainCsv(",", header=True)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_files, "BLOCK_BYTES", 16)
    monkeypatch.setattr(driver_files, "LONGEST_BLOCK", 64)


def blocks(tmp_path: Path, *files: bytes, start: int = 0) -> CsvBlocks | None:
    parts = []
    for number, data in enumerate(files):
        path = tmp_path / f"{number}.csv"
        path.write_bytes(data)
        parts.append((str(path), start, len(data)))
    return csv_blocks(COMMAS, parts)


def rows(actual: CsvBlocks | None) -> list[tuple[str | None, ...]] | None:
    """Return the rows of all blocks; None if one is left to Spark."""
    assert actual is not None
    read: list[tuple[str | None, ...]] = []
    for block in actual.ranges:
        columns = actual.typed(block, range(actual.width), [T.StringType()] * actual.width)
        if columns is None:
            return None
        read += zip(*(column.to_pylist() for column in columns), strict=True)
    return read


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_blocks_have_each_line_once(tmp_path: Path, end: bytes) -> None:
    lines = [f'{number},"x, ""{number}"""'.encode() for number in range(100)]
    actual = blocks(tmp_path, end + b"a,b" + end + end + end.join(lines))
    assert actual is not None
    assert (actual.header, actual.width) == (("a", "b"), 2)
    assert len(actual.ranges) > 10
    assert rows(actual) == [(str(number), f'x, "{number}"') for number in range(100)]


def test_lines_after_those_read_before(tmp_path: Path) -> None:
    assert rows(blocks(tmp_path, b"a,b\n1,2\n3,4\n", start=8)) == [("3", "4")]


def test_files_without_rows(tmp_path: Path) -> None:
    assert blocks(tmp_path, b"\n\n") is None
    assert rows(blocks(tmp_path, b"a,b")) == []
    assert rows(blocks(tmp_path, b"\n", b"a,b\n", b"a,b\r\n1,2")) == [("1", "2")]


@pytest.mark.parametrize("other", [b"a,c\n1,2\n", b"a\n1\n", b'a,"b\n', b"\xef\xbb\xbfa,b\n"])
def test_layouts_that_differ_or_are_odd_are_left_to_spark(tmp_path: Path, other: bytes) -> None:
    assert blocks(tmp_path, b"a,b\n1,2\n", other) is None


@pytest.mark.parametrize(
    "odd",
    [b"1,2,3\n", b'1,"2\n3"\n', b"1,2\r3,4\n", b"1,\xff\n", b" \n", b"1," + b"x" * 99 + b"\n"],
)
def test_odd_lines_are_left_to_spark(tmp_path: Path, odd: bytes) -> None:
    plain = b"1,2\n" * 20
    actual = blocks(tmp_path, b"a,b\n" + plain + odd + plain)
    assert rows(actual) is None
    assert actual is not None
    assert actual.forms() is None


def test_a_file_that_got_shorter_ends_the_read(tmp_path: Path) -> None:
    actual = blocks(tmp_path, b"a,b\n" + b"1,2\n" * 20)
    (tmp_path / "0.csv").write_bytes(b"a,b\n1,2\n")
    with pytest.raises(OSError, match="truncated"):
        rows(actual)


@given(
    lines=st.lists(st.lists(st.text("a1é \t", max_size=9), min_size=2, max_size=2)),
    end=st.sampled_from(["\n", "\r\n"]),
)
@settings(deadline=None)
def test_blocks_are_read_as_whole_files_are(
    tmp_path_factory: pytest.TempPathFactory, lines: list[list[str]], end: str
) -> None:
    data = end.join(["a,b", *(",".join(line) for line in lines), ""]).encode()
    path = tmp_path_factory.mktemp("blocks") / "a.csv"
    path.write_bytes(data)
    whole = COMMAS.columns(data.replace(b"\r\n", b"\n").removeprefix(b"a,b\n"), 2)
    actual = rows(csv_blocks(COMMAS, [(str(path), 0, len(data))]))
    if whole is None:
        assert actual is None
    else:
        assert actual == list(zip(*(column.to_pylist() for column in whole), strict=True))


VALUES = {
    "long": ["0", "-7", "12345", "9223372036854775807", "007", "-0", "+1", "9223372036854775808"],
    "double": ["1.5", "-0.0", "3", "0.123456789012345", "1e5", ".5"],
    "decimal(38,2)": ["1.50", "-0.00", "123456789012345.10", "1.5", "0.125"],
    "decimal(38,0)": ["1", "-99999999999999999999", "9" * 38, "9" * 39],
    "decimal(9,2)": ["1.50", "1234567.25", "12345678.50"],
    "boolean": ["true", "false", "True", "1"],
    "date": ["2024-02-29", "0001-01-01", "2023-02-29", "2024-2-1"],
    "timestamp_ntz": ["2024-02-29 01:02:03", "2024-02-29T01:02:03.5", "2024-02-29 01:02"],
    "timestamp": [
        "2024-02-29 01:02:03+01:30",
        "2024-02-29T01:02:03.123456Z",
        "2024-02-29 01:02:03",
    ],
    "string": ["x", "-", "1,5", '"', "é"],
}


@given(data=st.data())
@settings(deadline=None)
def test_blocks_whose_forms_are_known_are_read_alike(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    kinds = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    values = [
        st.sampled_from(["", *VALUES[kind][: data.draw(st.integers(2, 9))]]) for kind in kinds
    ]
    lines = data.draw(st.lists(st.tuples(*values), max_size=9))
    quote = data.draw(st.booleans())
    path = tmp_path_factory.mktemp("typed") / "a.csv"
    with path.open("w", newline="") as file:
        style = csv.QUOTE_ALL if quote else csv.QUOTE_MINIMAL
        csv.writer(file, lineterminator="\n", quoting=style).writerows([kinds, *lines])
    actual = csv_blocks(COMMAS, [(str(path), 0, path.stat().st_size)])
    assert actual is not None
    places, types = range(len(kinds)), [parsed(kind) for kind in kinds]
    module._FORMS.clear()
    before = [actual.typed(block, places, types) for block in actual.ranges]
    assert not module._FORMS
    actual.forms()
    assert [actual.typed(block, places, types) for block in actual.ranges] == before


@pytest.mark.parametrize(
    ("dtype", "texts", "values"),
    [
        ("string", ["1", None, " "], ["1", None, " "]),
        ("boolean", ["true", "false", None], [True, False, None]),
        ("long", ["-9223372036854775808", "0"], [-(2**63), 0]),
        ("double", ["1", "-0.5"], [1.0, -0.5]),
        ("decimal(38,2)", ["1.50", "-0.00"], ["1.50", "0.00"]),
        ("decimal(38,0)", ["99999999999999999999"], ["99999999999999999999"]),
        ("date", ["0001-01-01", "9999-12-31"], ["0001-01-01", "9999-12-31"]),
        ("timestamp_ntz", ["2024-02-29T01:02:03.5"], ["2024-02-29 01:02:03.500000"]),
        ("timestamp", ["2024-02-29 01:02:03+01:30"], ["2024-02-28 23:32:03+00:00"]),
        ("long", [None, None], [None, None]),
    ],
)
def test_typed_columns(dtype: str, texts: list[str | None], values: list[object]) -> None:
    actual = typed_column(pa.array(texts, pa.string()), parsed(dtype))
    assert actual is not None
    plain = (str, bool, int, float)
    assert [
        v if v is None or isinstance(v, plain) else str(v) for v in actual.to_pylist()
    ] == values


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        ("long", "01"),
        ("long", "0x10"),
        ("long", "9223372036854775808"),
        ("integer", "1"),
        ("boolean", "1"),
        ("double", "1e5"),
        ("double", "1.2345678901234567"),
        ("double", "NaN"),
        ("decimal(38,2)", "1.5"),
        ("decimal(3,2)", "11.50"),
        ("date", "2023-02-29"),
        ("timestamp_ntz", "2024-01-01"),
        ("timestamp", "2024-01-01 00:00:00"),
    ],
)
def test_values_that_are_written_otherwise_are_left_to_spark(dtype: str, text: str) -> None:
    assert typed_column(pa.array([None, text], pa.string()), parsed(dtype)) is None


def parsed(dtype: str) -> T.DataType:
    field = {"name": "x", "type": dtype, "nullable": True, "metadata": {}}
    return T.StructType.fromJson(json.loads(json.dumps({"fields": [field]})))["x"].dataType
