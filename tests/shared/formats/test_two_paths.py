"""Arrow's reader and the exact reader agree on every block, however odd."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T  # noqa: N812

from shared.formats import fast_json, json_lines
from shared.formats.fast_json import BlockRefused, LinesRead
from shared.formats.json_lines import LineReader
from shared.formats.json_schema import spark_to_json_schema
from shared.formats.json_text import NULL, NUMBER, TEXT, WORD

pytestmark = pytest.mark.once


@pytest.fixture(scope="module", autouse=True)
def few_lines() -> Iterator[None]:
    """Let the reader of lines of one spelling read blocks of any size."""
    before, fast_json.LEAST_LINES = fast_json.LEAST_LINES, 0
    yield
    fast_json.LEAST_LINES = before


TYPES: dict[str, T.DataType] = {
    "byte": T.ByteType(),
    "short": T.ShortType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "dec": T.DecimalType(10, 2),
    "dec0": T.DecimalType(38, 0),
    "dec18": T.DecimalType(38, 18),
    "dec38": T.DecimalType(38, 38),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "string": T.StringType(),
    "binary": T.BinaryType(),
    "bool": T.BooleanType(),
    "date": T.DateType(),
    "ts": T.TimestampType(),
    "ntz": T.TimestampNTZType(),
    "time": T.TimeType(6),
    "dt": T.DayTimeIntervalType(0, 3),
    "ym": T.YearMonthIntervalType(0, 1),
    "void": T.NullType(),
    "variant": T.VariantType(),
    "map": T.MapType(T.StringType(), T.LongType()),
    "keyed": T.MapType(T.DateType(), T.ArrayType(T.DecimalType(10, 2), False), False),
    "list": T.ArrayType(T.DoubleType()),
    "dates": T.ArrayType(T.DateType(), False),
    "struct": T.StructType(
        [
            T.StructField("d", T.DateType(), False),
            T.StructField("b", T.BinaryType()),
            T.StructField("f", T.ArrayType(T.StructType([T.StructField("x", T.FloatType())]))),
        ]
    ),
}
NUMBERS = [
    "0", "-0", "1", "1.0", "1e3", "1E+2", "-1.50", "0.1", "127", "128", "-129", "32768", "1e400",
    "1.00000005960464477540", "9007199254740993", "9223372036854775807", "9223372036854775808",
    "-9223372036854775809", "18446744073709551616", "123456789012345678901234567890", "1e-5",
    "99999999.99", "100000000", "0.001", "1e38", "1e-18", "3.5e38", "5e-324", "1e-400", "-0.0",
    "12345678901234567890.123456789012345678", "1.1000", "2e2",
    "1e60", "1e76", "1e-60", "9" * 38, "9" * 77, "9" * 300, "0." + "0" * 50 + "1", "1" + "0" * 45,
    "1e-39", "5.5e-38", "5e-59", "12e-194", "1e-9999", "1e-999999999", "0." + "0" * 21 + "5e-19",
    "99999999999999999999", "100000000000000000000", "1.00000000000000000000000000000000000000000",
]  # fmt: skip
WORDS = [
    "", "a", "1", "1.5", "-1", " 1", "1 ", "+1", ".5", "1.", "NaN", "Infinity", "-Infinity", "nan",
    "inf", "true", "é", "😀", "YQ==", "YQ=", "YWI=", "AP8Q", "YR==", "2020-01-01", "2020-02-30",
    "2020-1-1", "0000-01-01", "2020-01-01T00:00:00", "2020-01-01T00:00:00Z", "2020-01-01 05:06",
    "2020-01-01T05", "2020-01-01T05Z", "2020-01-01T05:06:07.5Z", "2020-01-01T05:06:07.1234567Z",
    "2020-01-01T05:06:07.123456+02:00", "2020-01-01T05:06:07-0130", "2020-01-01T05:06:07+05",
    "2020-01-01T24:00:00Z", "2020-01-01T23:59:60Z", "2020-01-01t05:06:07z", "2020-01-01Z",
    "2001/01/01 00:47", "9999-12-31T23:59:59.999999-23:59", "0001-01-01T00:00:00+23:59",
    "2020-01-01T05:06:07 Z", "2020-01-01T05:06:07.Z", "2020-01-01T05:06:07,5Z", "20200101",
    "2020-01-01T05:06:07+24:00", "2020-01-01T05:06:07+05:60", "2020-13-01T00:00:00Z", "1e5",
    "12:13:14", "12:13:14.5", "24:00:00", "P1DT2H", "-P0DT0H0M0.000001S", "P", "PT", "P1Y2M",
    "-P1Y", "PT0.1234567S", "{}", "[1]", "null", "2020-01-01T05:06:07.123456789+00:00", "5.5.5",
]  # fmt: skip
ODD_STRINGS = [r'"\ud800"', r'"\u0000"', r'"\u00e9\n\/"', '"a\tb"', r'"\x"', r'"\ud83d\ude00"']
CONTAINERS = [
    "[]", "[1,null]", '["NaN",1]', '["2020-01-01"]', '["2020-01-01",null]', "{}", "[[1.50]]",
    '{"a":1,"b":null}', '{"a":1.0}', '{"2020-01-01":[1.5]}', '{"2020-01-01":[1.555]}', '{"x":[1]}',
    '{"d":"2020-01-01","b":"YQ==","f":[{"x":0.1},{"x":"NaN"},null,{}]}', '{"d":null}', '{"b":"YQ"}',
    '{"d":"2020-01-01","z":1}', '{"d":"2020-01-01","f":[]}',
    '{"x":1e2,"y":"é","z":[true,{"q":-0}]}',
]  # fmt: skip
OTHERS = [
    "null",
    "true",
    "false",
    "NaN",
    "Infinity",
    "-Infinity",
    "tru",
    "01",
    "-01",
    "00.5",
    "-.5",
    "-1.",
    "1-1",
    "1/2",
    "-",
    "0x1",
    "+1",
    "1.",
    ".5",
    "",
]
VALUES = [*NUMBERS, *(json.dumps(w) for w in WORDS), *ODD_STRINGS, *CONTAINERS, *OTHERS]
ODD_LINES = [
    b"", b" ", b"\r", b"null", b"5", b"[]", b"{", b"}", b'{"long":1}{"long":2}', b'{"long":1} ',
    b' {"long":1}', b'{"long":1}\r', b'{"long":1} x', b'\xef\xbb\xbf{"long":1}',
    b'{"string":"\xff"}', b'{"q":"\xff"}', b'{"string":"\xc3\xa9"}', b'{"long":1,"long":2}',
    b'{"\\u006cong":5}',
    b"{}null", b'{"q":' + b"[" * 50 + b"]" * 50 + b"}", b'{"long":\r1}', b"'{}'", b"{'long':1}",
    b'{"long":1,}',
]  # fmt: skip


def read_exactly(reader: LineReader, data: bytes) -> LinesRead:
    return reader._read_exact(data.removeprefix(b"\xef\xbb\xbf"), 0)


def plain(read: LinesRead) -> tuple[Any, ...]:
    at = read.extracted_at.cast("int64").to_pylist() if read.extracted_at is not None else None
    versions = read.versions.to_pylist() if read.versions is not None else None
    return (
        [repr(_casted(column)) for column in read.table.columns],
        read.table.num_rows,
        read.rows_read,
        read.rejects,
        at,
        versions,
    )


def _casted(column: Any) -> list[Any]:
    """Return values with years outside Python's as the integers that Spark stores."""
    kind = str(column.type)
    if kind.startswith("timestamp"):
        return column.cast("int64").to_pylist()
    return (column.cast("int32") if kind.startswith("date32") else column).to_pylist()


@functools.cache
def one_column(name: str, required: bool, strict: bool) -> LineReader:
    """Return a reader of one column; making one takes longer than a line."""
    struct = T.StructType([T.StructField(name, TYPES[name], not required or name == "void")])
    return LineReader(spark_to_json_schema(struct), envelope=False, strict=strict)


def one_line(name: str, value: str) -> bytes:
    return (f'{{"{name}":{value}}}' if value else "{}").encode()


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", TYPES)
def test_each_value_alone(name: str, strict: bool) -> None:
    for value in VALUES:
        for required in (True, False):
            reader, data = one_column(name, required, strict), one_line(name, value)
            expected = read_exactly(reader, data)
            try:
                got = reader._fast.read(data)
            except BlockRefused:
                continue
            assert plain(got)[:4] == plain(expected)[:4], (name, value)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[list[str], bool, list[bytes]]:
    names = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=5, unique=True))
    envelope = draw(st.booleans())
    good = {name: [v for v in VALUES if v and _fits(name, v)] for name in names}
    lines: list[bytes] = []
    for _ in range(draw(st.integers(0, 12))):
        if draw(st.integers(0, 9)) == 0:
            lines.append(draw(st.sampled_from(ODD_LINES)))
            continue
        pools = [good[n] if draw(st.integers(0, 15)) else VALUES for n in names]
        pairs = [(n, draw(st.sampled_from(p))) for n, p in zip(names, pools, strict=True)]
        lines.append(_line(pairs, envelope, draw))
    return names, envelope, lines


def _line(pairs: list[tuple[str, str]], envelope: bool, draw: st.DrawFn) -> bytes:
    record = "{" + ",".join(f'"{n}":{v}' for n, v in pairs if v) + "}"
    if not envelope:
        return record.encode()
    at = draw(st.sampled_from(['"2026-11-21T06:20:21.224137+00:00"', "null", '"x"', "5"]))
    version = draw(st.sampled_from(["1", "null", "1.0", '"1"']))
    head = [
        f'"record":{record}',
        f'"time_extracted":{at}',
        f'"version":{version}',
        '"type":"RECORD"',
    ]
    return ("{" + ",".join(draw(st.permutations(head))) + "}").encode()


@functools.cache
def _fits(name: str, value: str) -> bool:
    return not read_exactly(one_column(name, True, True), one_line(name, value)).rejects


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(blocks(), st.booleans(), st.sampled_from([1, 60, 1 << 20]), st.booleans())
def test_blocks_read_alike(
    block: tuple[list[str], bool, list[bytes]], strict: bool, piece: int, required: bool
) -> None:
    names, envelope, lines = block
    fields = [T.StructField(n, TYPES[n], not required or n == "void") for n in names]
    reader = LineReader(
        spark_to_json_schema(T.StructType(fields)), envelope=envelope, strict=strict
    )
    data = b"\n".join(lines)
    before, json_lines.PIECE_BYTES = json_lines.PIECE_BYTES, piece
    try:
        got = reader.read(data)
    finally:
        json_lines.PIECE_BYTES = before
    assert plain(got) == plain(read_exactly(reader, data))


@settings(max_examples=300, deadline=None)
@given(st.floats(width=32, allow_nan=False) | st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_is_read_alike(value: float) -> None:
    for name in ("float", "double"):
        reader, data = one_column(name, False, True), one_line(name, json.dumps(value))
        assert plain(reader.read(data)) == plain(read_exactly(reader, data))


@settings(max_examples=300, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=10,
    )
)
def test_free_json_is_kept_alike(value: Any) -> None:
    schema = {"properties": {"any": {}, "n": {"type": "integer"}}}
    data = json.dumps({"n": 1, "any": value}, ensure_ascii=False).encode(errors="surrogatepass")
    for chosen in (schema, {"type": "object"}):
        reader = LineReader(chosen, envelope=False, strict=True)
        assert plain(reader.read(data)) == plain(read_exactly(reader, data))


PLAIN = ("byte", "long", "dec", "dec0", "float", "double", "string", "bool", "date", "ts", "ntz")


@st.composite
def alike(draw: st.DrawFn) -> tuple[list[str], bytes]:
    """Draw lines of the same names in the same order, with an odd value or name at times.

    Some columns have the same type: their names begin with it.
    """
    column = st.tuples(st.sampled_from(PLAIN), st.sampled_from(["", " 2", " of 3"])).map("".join)
    names = draw(st.lists(column, min_size=1, max_size=6, unique=True))
    pools = [["null", *(v for v in VALUES if v and _fits(n.split()[0], v))] for n in names]
    rows = [[draw(st.sampled_from(pool)) for pool in pools] for _ in range(draw(st.integers(1, 5)))]
    if draw(st.booleans()):
        row, place = draw(st.sampled_from(rows)), draw(st.integers(0, len(names) - 1))
        texts = st.text('",{}:ab\\\r\x00é', max_size=5) | st.text("-./0189", max_size=5)
        row[place] = draw(st.sampled_from(VALUES) | texts)
    spelt = [draw(st.permutations(names)) if draw(st.integers(0, 9)) == 0 else names for _ in rows]
    lines = [
        ",".join(f'"{n}":{v}' for n, v in zip(order, row, strict=True))
        for order, row in zip(spelt, rows, strict=True)
    ]
    return names, "\n".join(f"{{{line}}}" for line in lines).encode()


@pytest.mark.parametrize("envelope", [False, True])
@settings(max_examples=400, deadline=None)
@given(alike(), st.booleans(), st.booleans())
def test_lines_of_one_spelling_are_read_alike(
    envelope: bool, block: tuple[list[str], bytes], strict: bool, required: bool
) -> None:
    names, data = block
    if envelope:
        head = b'{"type":"RECORD","stream":"s","record":'
        tail = b',"time_extracted":"2026-11-21T06:20:21.224137+00:00","version":7}'
        data = b"\n".join(head + line + tail for line in data.split(b"\n"))
    fields = [T.StructField(n, TYPES[n.split()[0]], not required) for n in names]
    reader = LineReader(
        spark_to_json_schema(T.StructType(fields)), envelope=envelope, strict=strict
    )
    assert plain(reader.read(data)) == plain(read_exactly(reader, data))


@pytest.mark.parametrize(
    "line",
    [b'{"type":"RECORD","version":7}', b'{"record":{},"version":7}', b'{"record":5}', b'"record"'],
)
def test_envelopes_without_a_record(line: bytes) -> None:
    reader = LineReader({"properties": {"a": {}}}, envelope=True, strict=True)
    number = LineReader({"properties": {"a": {"type": "integer"}}}, envelope=True, strict=True)
    for each in (reader, number):
        assert plain(each.read(line + b"\n" + line)) == plain(
            read_exactly(each, line + b"\n" + line)
        )


def test_lines_of_one_spelling_need_no_parser() -> None:
    struct = T.StructType([T.StructField(name, TYPES[name]) for name in (*PLAIN, "time")])
    record = (
        b'{"byte":-1,"long":null,"dec":1.50,"dec0":0,"float":1.5,"double":-1.0E-10,"string":"x: y",'
        b'"bool":true,"date":"2020-01-01","ts":"2020-01-01T05:06:07.000000+00:00",'
        b'"ntz":"2020-01-01T05:06:07"'
    )
    for data, plainly in ((record + b"}", True), (record + b',"time":null}', False)):
        schema = spark_to_json_schema(T.StructType(struct.fields[: -1 if plainly else None]))
        actual = LineReader(schema, envelope=False, strict=True).read(data + b"\n" + data)
        assert actual.table.num_rows == 2
        assert (actual.kinds is not None) == plainly
        kinds = {("long", NULL), ("bool", WORD), ("ts", TEXT), ("dec", NUMBER)}
        assert not plainly or kinds < (actual.kinds or set())
