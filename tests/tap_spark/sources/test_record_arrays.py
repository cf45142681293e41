"""JSON text by Arrow's kernels: random values against Python's JSON and Java's spelling."""

from __future__ import annotations

import json
import math
import random
import struct
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tap_spark.sources import record_arrays
from tap_spark.sources.driver_rows import with_exponent
from tap_spark.sources.record_arrays import RecordTexts

ROWS = 300
CHARS = ['"', "\\", "/", "\x00", "\x1f", "\n", "\t", "\x7f", "\u2028", "é", "😀", "a", " "]


def texts(batch: pa.RecordBatch, **more: Any) -> list[str]:
    arrays = RecordTexts(batch.schema.names, **more).of(batch.columns)
    return [text for array in arrays for text in array.to_pylist()]


def column(make: Any, kind: pa.DataType) -> pa.Array:
    return pa.array([None if random.random() < 0.1 else make() for _ in range(ROWS)], kind)


def a_float() -> float:
    bits = random.choice((8, 30, 53, 64))
    if bits < 64:
        return random.choice((1, -1)) * random.getrandbits(bits) / 10 ** random.randrange(12)
    return float(struct.unpack("d", random.randbytes(8))[0])


def a_batch() -> pa.RecordBatch:
    day, moment = date(1, 1, 1), datetime(1970, 1, 1, tzinfo=timezone.utc)
    return pa.record_batch(
        {
            'te"xt': column(lambda: "".join(random.choices(CHARS, k=3)), pa.string()),
            "plain": column(lambda: f"{random.random()}", pa.string()),
            "long": column(lambda: random.randrange(-(2**63), 2**63), pa.int64()),
            "double": column(a_float, pa.float64()),
            "decimal": column(
                lambda: Decimal(random.randrange(-(10**20), 10**20)).scaleb(-6),
                pa.decimal128(30, 6),
            ),
            "word": column(lambda: random.random() < 0.5, pa.bool_()),
            "day": column(lambda: day + timedelta(random.randrange(3_600_000)), pa.date32()),
            "moment": column(
                lambda: moment + timedelta(microseconds=random.randrange(-(10**16), 10**17)),
                pa.timestamp("us", "America/New_York"),
            ),
            "é": pa.array(range(ROWS), pa.int32()),
        }
    )


def as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat(timespec="microseconds")
    if isinstance(value, float) and not math.isfinite(value):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}[str(value)]
    return value.isoformat() if isinstance(value, date) else value


@pytest.mark.parametrize("piece", [1_000, 1 << 24])
def test_random_rows_are_written_as_json(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(record_arrays, "PIECE_BYTES", piece)
    batch = a_batch()
    actual = texts(batch, before="<", after=">\n")
    wanted = [{name: as_json(value) for name, value in row.items()} for row in batch.to_pylist()]
    for text, row in zip(actual, wanted, strict=True):
        assert text.startswith("<") and text.endswith(">\n")
        assert json.loads(text[1:-2], parse_float=_exact(row)) == row


def _exact(row: dict[str, Any]) -> Any:
    """Read a fraction as the decimal if it is the row's, else as a double."""

    def read(text: str) -> Any:
        return Decimal(text) if str(row["decimal"]) == text else float(text)

    return read


def test_floats_are_spelled_as_java_does() -> None:
    values = [a_float() for _ in range(3_000)] + [0.0, -0.0, 1e-3, 1e7, 9999999.999, 5e-324]
    values = [value for value in values if math.isfinite(value)]
    actual = record_arrays.float_text(pa.array(values)).to_pylist()
    for value, text in zip(values, actual, strict=True):
        is_plain = value == 0 or 1e-3 <= abs(value) < 1e7
        assert text == (repr(value) if is_plain else with_exponent(value))


def test_the_least_doubles_have_two_digits_as_in_java() -> None:
    values = [number * 5e-324 for number in (1, 3, 4, 10, 12, -1)]
    wanted = ["4.9E-324", "1.5E-323", "2.0E-323", "4.9E-323", "5.9E-323"]
    assert record_arrays.float_text(pa.array(values)).to_pylist() == [*wanted, "-4.9E-324"]
    assert list(map(with_exponent, values)) == [*wanted, "-4.9E-324"]


def test_text_that_is_not_utf8_is_replaced() -> None:
    data = [b"a\xffb", b'"', None, "é".encode()]
    column = pa.array(data, pa.binary()).cast(pa.string(), safe=False)
    good = pa.array(["�", "", None, "b"])
    texts = RecordTexts(("t", "u"))
    lines = [line for array in texts.of([column, good]) for line in array.to_pylist()]
    assert lines == [
        '{"t":"a�b","u":"�"}',
        '{"t":"\\"","u":""}',
        '{"t":null,"u":null}',
        '{"t":"é","u":"b"}',
    ]
    assert texts.replaced == {"t": 1}


def test_columns_of_json_stay_as_they_are() -> None:
    batch = pa.record_batch({"j": pa.array(['{"a":[1]}', None]), "n": pa.array([1, 2])})
    assert texts(batch, ready=frozenset({0})) == ['{"j":{"a":[1]},"n":1}', '{"j":null,"n":2}']
    empty = pa.array(["", ""])
    assert list(RecordTexts((), frozenset({0})).of([empty])) == [pa.array(["{}", "{}"])]
