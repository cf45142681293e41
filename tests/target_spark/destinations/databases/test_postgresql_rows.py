"""Rows in the binary form of COPY: what a server reads back, and the bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from database_loads import PG, Loads, request, struct_of, tables
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.errors import RecordError
from shared.formats.arrow_types import spark_to_arrow, struct_to_arrow
from target_spark.destinations.databases.postgresql.postgresql_database import PostgreSql
from target_spark.destinations.databases.postgresql.postgresql_rows import (
    binary_rows,
    numeric_digits,
)
from target_spark.destinations.databases.table_work import staged_columns

NewLoads = Callable[..., Loads]
WIDTHS = {"long": ">q", "int": ">i", "short": ">h", "byte": ">h", "double": ">d", "float": ">f"}


def exact(digits: int, scale: int) -> Decimal:
    """Return a decimal of any number of digits."""
    sign = int(digits < 0)
    return Decimal((sign, tuple(map(int, str(abs(digits)))), -scale))


def sent(columns: str, rows: list[tuple[Any, ...]], start: int = 0, before: int = 0) -> list[Any]:
    """Return the fields of each row as bytes, without the row's number, from a position on."""
    asked = struct_of(columns)
    arrays = [
        pa.array([row[n] for row in rows], field.type)
        for n, field in enumerate(struct_to_arrow(asked))
    ]
    batch = pa.RecordBatch.from_arrays(arrays, names=asked.names).slice(start)
    staged = staged_columns(PostgreSql(), asked)
    actual = fields_of(bytes(binary_rows(batch, staged, before)), batch.num_rows, len(asked) + 1)
    numbers = [(before + n).to_bytes(8, "big") for n in range(1, batch.num_rows + 1)]
    assert [fields[0] for fields in actual] == numbers
    bare = fields_of(bytes(binary_rows(batch, staged, None)), batch.num_rows, len(asked))
    assert bare == [fields[1:] for fields in actual]
    return bare


def fields_of(data: bytes, rows: int, width: int) -> list[Any]:
    """Return the fields of each row."""
    actual, at = [], 0
    for _ in range(rows):
        (count,) = struct.unpack_from(">h", data, at)
        at += 2
        assert count == width
        fields: list[bytes | None] = []
        for _ in range(count):
            (length,) = struct.unpack_from(">i", data, at)
            at += 4
            fields.append(None if length < 0 else data[at : at + length])
            at += max(0, length)
        actual.append(tuple(fields))
    assert at == len(data)
    return actual


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_bytes_are_those_of_the_values(data: st.DataObject):
    integers = {"long": 64, "int": 32, "short": 16, "byte": 8}
    kinds = data.draw(st.lists(st.sampled_from([*integers, "double", "string", "binary"])))
    values = {
        **{k: st.integers(-(2 ** (n - 1)), 2 ** (n - 1) - 1) for k, n in integers.items()},
        "double": st.floats(allow_nan=False),
        "string": st.text(st.characters(exclude_characters="\0", codec="utf-8")),
        "binary": st.binary(),
    }
    created = [st.one_of(st.none(), values[kind]) if data.draw(st.booleans()) else values[kind]
            for kind in kinds]  # fmt: skip
    rows = data.draw(st.lists(st.tuples(*created), min_size=1, max_size=30))
    start = data.draw(st.integers(0, len(rows) - 1))
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(["int", *kinds]))
    actual = sent(columns, [(1, *row) for row in rows], start, before=7)

    def expected(kind: str, value: Any) -> bytes | None:
        if value is None or isinstance(value, bytes):
            return value
        return value.encode() if kind == "string" else struct.pack(WIDTHS[kind], value)

    wanted = [tuple(map(expected, kinds, row)) for row in rows[start:]]
    assert [row[1:] for row in actual] == wanted


OF_A_FIXED_SIZE = {
    "decimal(9.2)": st.integers(-999_999_999, 999_999_999).map(lambda n: exact(n, 2)),
    "decimal(38.10)": st.integers(1 - 10**38, 10**38 - 1).map(lambda n: exact(n, 10)),
    "timestamp": st.datetimes(timezones=st.just(timezone.utc)),
    "timestamp_ntz": st.datetimes(),
    "date": st.dates(),
    "bool": st.booleans(),
    "float": st.floats(width=32),
}


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_columns_of_one_type_are_sent_as_each_alone(data: st.DataObject):
    kinds = data.draw(st.lists(st.sampled_from([*OF_A_FIXED_SIZE]), min_size=2, max_size=8))
    created = (st.one_of(st.none(), OF_A_FIXED_SIZE[kind]) for kind in kinds)
    rows = data.draw(st.lists(st.tuples(*created), min_size=1, max_size=20))
    start = data.draw(st.integers(0, len(rows) - 1))
    together = sent(", ".join(f"c{n} {kind}" for n, kind in enumerate(kinds)), rows, start)
    alone = [sent(f"c {kind}", [(row[n],) for row in rows], start) for n, kind in enumerate(kinds)]
    assert [list(row) for row in together] == [
        [fields[0] for fields in row] for row in zip(*alone, strict=True)
    ]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_digits_are_those_of_the_decimals(data: st.DataObject):
    precision = data.draw(st.integers(1, 38))
    scale = data.draw(st.integers(0, precision))
    whole = 10**precision - 1
    numbers = st.one_of(st.integers(-whole, whole), st.sampled_from([0, whole, -whole]))
    drawn = data.draw(st.lists(st.one_of(st.none(), numbers), min_size=1))
    values = [None if n is None else exact(n, scale) for n in drawn]
    start = data.draw(st.integers(0, len(values) - 1))
    actual = numeric_digits(pa.array(values, pa.decimal128(precision, scale)).slice(start))
    assert actual.scale == scale
    for row, value in enumerate(values[start:]):
        if value is None:
            continue
        number = Fraction(0)
        for place, group in enumerate(actual.groups):
            digits = group[row].as_py()
            assert 0 <= digits < 10_000
            number += digits * Fraction(10_000) ** (actual.weight - place)
        negative = {0: False, 0x4000: True}[actual.signs[row].as_py()]
        assert (-number if negative else number) == Fraction(value)


def test_times_are_counted_from_2000():
    at = datetime(2000, 1, 1, tzinfo=timezone.utc)
    row = (at + timedelta(microseconds=1), at.replace(tzinfo=None), date(1999, 12, 31), True)
    later = [None, None, None, False]
    columns = "a timestamp, b timestamp_ntz, c date, d bool"
    assert sent(columns, [row, tuple(later)]) == [
        (b"\0" * 7 + b"\1", b"\0" * 8, b"\xff" * 4, b"\1"),
        (None, None, None, b"\0"),
    ]


def test_json_has_its_version_before_it():
    actual = sent("a variant, b data", [("[1]", None), (None, {"a": 1, "b": None})])
    assert actual == [(b"\1[1]", None), (None, b'\1{"a":1,"b":null}')]


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 8193])
def test_a_column_without_values(rows: int):
    assert sent("a void, b string, c long", [(None, None, None)] * rows) == [(None,) * 3] * rows


def test_backslashes_before_a_u_are_no_nul_character():
    text = '{"a":"\\\\u0000"}'
    assert sent("a variant, b string", [(text, text)]) == [(b"\1" + text.encode(), text.encode())]
    with pytest.raises(RecordError, match="the text contains a NUL character"):
        sent("a variant", [('{"a":"\\u0000"}',)])


def test_bytes_may_be_zero():
    assert sent("a binary", [(b"\0",), (b"\\u0000",)]) == [(b"\0",), (b"\\u0000",)]


@pytest.mark.server
@pytest.mark.parametrize(
    ("kind", "arrow", "value"),
    [
        ("timestamp", pa.int64(), -(2**63)),
        ("timestamp_ntz", pa.int64(), -(2**63) + 5),
        ("date", pa.int32(), -(2**31)),
        ("date", pa.int32(), 2**31 - 1),
    ],
)
def test_times_that_postgresql_cannot_hold_are_refused(
    pg: PG, new_loads: NewLoads, kind: str, arrow: pa.DataType, value: int
):
    loads, asked = new_loads(pg), request(f"x {kind}")
    sink = loads.destination.prepare(asked).sink
    assert sink is not None
    array = pa.array([value], arrow).cast(spark_to_arrow(asked.struct[0].dataType))
    with pytest.raises(RecordError, match="out of the range"):
        sink.write(struct_to_arrow(asked.struct), iter([pa.table({"x": array})]))


@pytest.mark.server
def test_decimals_of_every_precision(pg: PG, new_loads: NewLoads):
    kinds = [(p, s) for p in (1, 4, 15, 18, 19, 37, 38) for s in (0, 1, 3, 4, 5, 18, p) if s <= p]
    columns = ", ".join(f"c{n} decimal({p}.{s})" for n, (p, s) in enumerate(kinds))
    values = ["9" * 38, "-" + "9" * 38, "0", "1", "-10000", "5" * 38]
    rows = [[exact(int(_cut(v, p)), s) for p, s in kinds] for v in values]
    loads, asked = new_loads(pg), request(columns)
    loads.load(asked, [*rows, [None] * len(kinds)])
    actual = pg.table("select * from t")
    wanted = [[f"{value:f}" for value in row] for row in rows]
    assert [list(row) for row in actual] == [*wanted, [""] * len(kinds)]


def _cut(digits: str, precision: int) -> str:
    """Return the first digits, with the sign."""
    sign = "-" if digits.startswith("-") else ""
    return sign + digits.removeprefix("-")[:precision]


@pytest.mark.server
def test_many_rows_keep_their_order_and_count(pg: PG, new_loads: NewLoads):
    loads, asked = new_loads(pg), request("id long!, x string", "id", "upsert")
    rows = [(n % 9000, str(n)) for n in range(20_000)]
    assert sum(table.num_rows for table in tables(asked.struct, rows)) == len(rows)
    loads.load(asked, rows)
    assert pg.table("select count(*), min(x::int), max(x::int) from t") == [
        ("9000", "11000", "19999")
    ]
