"""Every Spark type: DataFrame to JSON text to Arrow, compared with the value it started as."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from shared.formats.json_lines import LineReader
from shared.formats.json_schema import spark_to_json_schema
from shared.formats.schema_nodes import json_schema_to_spark

UTC = timezone.utc
SECOND = 1_000_000
NAN = float("nan")

LEAVES: list[tuple[str, Any]] = [
    ("tinyint(-128)", -128),
    ("smallint(32767)", 32767),
    ("int(-2147483648)", -(2**31)),
    ("9223372036854775807L", 2**63 - 1),
    ("cast('-9223372036854775808' as bigint)", -(2**63)),
    ("cast('0.0000000001' as decimal(38,18))", Decimal("0.0000000001")),
    (
        "cast('-99999999999999999999.999999999999999999' as decimal(38,18))",
        Decimal("-99999999999999999999.999999999999999999"),
    ),
    ("cast('0' as decimal(20,10))", Decimal(0)),
    ("cast('12345678.90' as decimal(10,2))", Decimal("12345678.90")),
    (
        "cast('-12345678901234567890123456789012345678' as decimal(38,0))",
        Decimal("-12345678901234567890123456789012345678"),
    ),
    ("cast('0.000001' as decimal(10,6))", Decimal("0.000001")),
    (
        "cast('0.00000000000000000000000000000000000001' as decimal(38,38))",
        Decimal("0.00000000000000000000000000000000000001"),
    ),
    ("float('0.1')", 0.10000000149011612),
    ("float('3.4028235e38')", 3.4028234663852886e38),
    ("float('1.4e-45')", 1.401298464324817e-45),
    ("float('-Infinity')", -math.inf),
    ("0.1D", 0.1),
    ("double('1.7976931348623157E308')", 1.7976931348623157e308),
    ("double('4.9E-324')", 5e-324),
    ("double('2.2250738585072014E-308')", 2.2250738585072014e-308),
    ("double('NaN')", NAN),
    ("double('Infinity')", math.inf),
    ("double('-Infinity')", -math.inf),
    ("'NaN'", "NaN"),
    ("''", ""),
    (r"'a\u0000b\u2028é\"\\\n\t/😀'", 'a\0b\u2028é"\\\n\t/😀'),
    ("cast('ab' as char(2))", "ab"),
    ("X'00ff10'", b"\x00\xff\x10"),
    ("X''", b""),
    ("true", True),
    ("date'0001-01-01'", date(1, 1, 1)),
    ("date'9999-12-31'", date(9999, 12, 31)),
    ("timestamp'0001-01-01 00:00:00Z'", datetime(1, 1, 1, tzinfo=UTC)),
    (
        "timestamp'9999-12-31 23:59:59.999999Z'",
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ),
    ("timestamp'1969-12-31 23:59:59.000001Z'", datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC)),
    (
        "timestamp'2021-11-07 01:30:00 America/New_York' + interval 1 hour",
        datetime(2021, 11, 7, 6, 30, tzinfo=UTC),
    ),
    ("timestamp_ntz'2020-02-29 12:34:56.123456'", datetime(2020, 2, 29, 12, 34, 56, 123456)),
    ("timestamp_ntz'0001-01-01 00:00:00'", datetime(1, 1, 1)),
    ("time'23:59:59.999999'", 86_400 * SECOND - 1),
    ("cast('12:13:14.123' as time(3))", ((12 * 60 + 13) * 60 + 14) * SECOND + 123_000),
    ("interval '1 02:03:04.000005' day to second", (93_784 * SECOND) + 5),
    ("interval '-0 00:00:00.000001' day to second", -1),
    ("interval '-106751991 04:00:54.775808' day to second", -(2**63)),
    ("interval '0' day", 0),
    ("interval '25' hour", 25 * 3600 * SECOND),
    ("interval '-90' minute", -5400 * SECOND),
    ("interval '2 03' day to hour", 51 * 3600 * SECOND),
    ("interval '-61.5' second", -61_500_000),
    ("interval '-1-02' year to month", -14),
    ("interval '5' month", 5),
    ("interval '-7' year", -84),
    ("interval '178956970-7' year to month", 2**31 - 1),
    ('parse_json(\'{"a":[1,2.50,"x",null,true],"b":{}}\')', None),
]
VARIANT = len(LEAVES) - 1
LEAVES[VARIANT] = (LEAVES[VARIANT][0], '{"a":[1,2.5,"x",null,true],"b":{}}')
SHAPES: list[tuple[str, Any]] = [
    ("{}", lambda v: v),
    ("array({0}, null)", lambda v: [v, None]),
    ("named_struct('x.`y z', {0}, 'n', null)", lambda v: {"x.`y z": v, "n": None}),
    ("map('k.\"1', {0}, 'none', null)", lambda v: [('k."1', v), ("none", None)]),
    ("map({0}, 1)", lambda v: [(v, 1)]),
    ("map(named_struct('a', {0}), 'x')", lambda v: [({"a": v}, "x")]),
    ("array(named_struct('m', map('k', array({0}))))", lambda v: [{"m": [("k", [v])]}]),
]


def _plain(value: Any) -> Any:
    """Convert Arrow's Python values to comparable ones (NaN equal to itself)."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _stored(column: pa.ChunkedArray) -> Any:
    return column.to_pylist()[0]


def _times_as_micros(value: Any) -> Any:
    if hasattr(value, "microsecond") and not isinstance(value, datetime):
        at = datetime.combine(date(1970, 1, 1), value) - datetime(1970, 1, 1)
        return at // timedelta(microseconds=1)
    if isinstance(value, list | tuple):
        return [_times_as_micros(item) for item in value]
    if isinstance(value, dict):
        return {key: _times_as_micros(item) for key, item in value.items()}
    return value


def _cases() -> Iterator[tuple[str, Any]]:
    for index, (expression, value) in enumerate(LEAVES):
        for shape, wrap in SHAPES:
            keyed = shape.startswith("map({0}") or shape.startswith("map(named")
            if keyed and (index == VARIANT or value is None):
                continue
            yield shape.format(expression), wrap(value)


@pytest.fixture
def far_zone(spark: Any) -> Iterator[Any]:
    wanted = {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.timeType.enabled": "true",
    }
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.mark.spark
def test_every_type_at_every_depth_comes_back_as_it_was(far_zone: Any) -> None:
    from shared.formats.record_text import record_json

    cases = list(_cases())
    names = [f'c.{i} `é"' for i in range(len(cases))]
    query = ", ".join(
        f"{sql} as `{n.replace('`', '``')}`" for (sql, _), n in zip(cases, names, strict=True)
    )
    frame = far_zone.sql(f"select {query}")
    text = frame.select(record_json(frame.schema)).collect()[0][0]
    json.loads(text, parse_constant=pytest.fail)
    schema = json.loads(json.dumps(spark_to_json_schema(frame.schema)))
    assert [f.dataType for f in json_schema_to_spark(schema)] == [f.dataType for f in frame.schema]
    for strict in (True, False):
        read = LineReader(schema, envelope=False, strict=strict).read(text.encode())
        assert read.rejects == ()
        for (sql, expected), name in zip(cases, names, strict=True):
            got = _times_as_micros(_stored(read.table.column(name)))
            assert _plain(got) == _plain(expected), sql


@pytest.mark.spark
def test_numbers_are_plain_and_nulls_are_written(spark: Any) -> None:
    from shared.formats.record_text import record_json

    frame = spark.sql(
        "select cast('1E-12' as decimal(38,18)) a, 12345678901234567890BD b, null c,"
        " timestamp_millis(0) t, cast(null as struct<i: interval day>) s"
    )
    text = frame.select(record_json(frame.schema)).collect()[0][0]
    assert text == (
        '{"a":0.000000000001,"b":12345678901234567890,"c":null,'
        '"t":"1970-01-01T00:00:00.000000+00:00","s":null}'
    )
