"""Records as expressions see them: names, parts, types; computed by Spark as by Python."""

from __future__ import annotations

import datetime
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from comparing import EACH_SHARE, by_kernels, differences_without_spark, share_of
from compiled_oracle import (
    ERROR,
    WHERE,
    alike,
    differences,
    differences_over_arrow,
    python,
    spark_results,
    value_of,
)
from pyspark.sql import types as T  # noqa: N812

from shared.maps.expressions.planned import plan
from shared.maps.expressions.syntax import parse
from shared.maps.expressions.values import Names

ITEM = T.StructType(
    [
        T.StructField("sku", T.StringType()),
        T.StructField("count", T.IntegerType()),
        T.StructField("day", T.DateType()),
    ]
)
STRUCT = T.StructType(
    [
        T.StructField("id", T.ShortType(), False),
        T.StructField("name", T.StringType()),
        T.StructField("other", T.StringType(), False),
        T.StructField("ok", T.BooleanType()),
        T.StructField("rate", T.FloatType()),
        T.StructField("price", T.DecimalType(10, 2)),
        T.StructField("cost", T.DecimalType(38, 18)),
        T.StructField("day", T.DateType()),
        T.StructField("at", T.TimestampType()),
        T.StructField("wall", T.TimestampNTZType()),
        T.StructField("raw", T.BinaryType()),
        T.StructField("span", T.DayTimeIntervalType()),
        T.StructField("code", T.VarcharType(5)),
        T.StructField("tags", T.ArrayType(T.StringType())),
        T.StructField("sizes", T.ArrayType(T.IntegerType())),
        T.StructField("days", T.ArrayType(T.DateType())),
        T.StructField("item", ITEM),
        T.StructField("items", T.ArrayType(ITEM)),
        T.StructField("props", T.MapType(T.StringType(), T.LongType())),
        T.StructField("a.b", T.LongType()),
        T.StructField("tick`ed", T.LongType()),
        T.StructField("sp ace", T.LongType()),
        T.StructField("record", T.LongType()),
        T.StructField("int", T.LongType()),
        T.StructField("keys", T.LongType()),
        T.StructField("ünï", T.StringType()),
    ]
)
NAMES = Names(
    STRUCT, {"limit": 3, "word": "b", "list": ["a", "b"], "deep": {"x": None}}, "new", "old"
)
EMPTY = dict.fromkeys(STRUCT.names)
UTC = datetime.timezone.utc
FULL = {
    "id": 1,
    "name": "Bob",
    "other": "b",
    "ok": True,
    "rate": 0.1,
    "price": Decimal("3.50"),
    "cost": Decimal("3.500000000000000001"),
    "day": datetime.date(2026, 2, 28),
    "at": datetime.datetime(2026, 2, 28, 12, 30, 0, 123, tzinfo=UTC),
    "wall": datetime.datetime(2026, 2, 28, 12, 30),
    "raw": bytearray(b"\x00\xffab"),
    "span": datetime.timedelta(days=-1, microseconds=5),
    "code": "a",
    "tags": ["a", None, "b"],
    "sizes": [1, 2, None],
    "days": [datetime.date(2026, 1, 1)],
    "item": ("x", 5, datetime.date(1, 1, 1)),
    "items": [("y", None, None), None],
    "props": {"x": 1, "y": None},
    "a.b": 1,
    "tick`ed": 2,
    "sp ace": 3,
    "record": 4,
    "int": 5,
    "keys": 6,
    "ünï": "é",
}
SMALL = {
    **EMPTY,
    "id": -2,
    "other": "",
    "name": "",
    "ok": False,
    "rate": -0.0,
    "price": Decimal("0.00"),
    "cost": Decimal(0),
    "tags": [],
    "sizes": [],
    "days": [],
    "item": (None, None, None),
    "items": [],
    "props": {},
    "int": 0,
}
ROWS = [FULL, SMALL, {**EMPTY, "id": 0, "other": "B\U0001f600"}, {**FULL, "id": 2, "tags": ["b"]}]


def json_record(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as its RECORD message has it, with Decimal for decimals."""

    def item(value: Any) -> Any:
        return None if value is None else dict(zip(ITEM.names, map(text, value), strict=True))

    def text(value: Any) -> Any:
        if isinstance(value, datetime.datetime):
            return value.isoformat(timespec="microseconds")
        return value.isoformat() if isinstance(value, datetime.date) else value

    record = {name: text(value) for name, value in row.items()}
    record["days"] = None if row["days"] is None else [text(day) for day in row["days"]]
    record["item"] = item(row["item"])
    record["items"] = None if row["items"] is None else [item(part) for part in row["items"]]
    record["raw"] = None if row["raw"] is None else "AP9hYg=="
    record["span"] = None if row["span"] is None else "-P0DT23H59M59.999995S"
    return record


EXPRESSIONS = [
    *("record['a.b']", "_['tick`ed'] + 1", "record['sp ace']", "record['record']", "record['int']"),
    *("_['keys']", "ünï", "record.id", "record.name", "_.get('a.b')", "record.get('nope')"),
    *("record.get('nope', 5)", "record.get('name', 'x')", "self", "self + '!'", "__stream_name__"),
    *(
        "__original_stream_name__ + name",
        "config['limit'] + id",
        "config.get('x', 7)",
        "config.word",
    ),
    *("config['list']", "name in config['list']", "config['deep']['x'] is None", "config.deep.x"),
    *("'x' in config", "config['list'][0] + other", "record['nope'] if 'nope' in record else id"),
    *(
        "'nope' not in record",
        "name in record",
        "'name' in record and record['name']",
        "id in record",
    ),
    *("at[:10]", "at[:4]", "at[5:7]", "at[:0]", "at[:11]", "at[-2:]", "at[:10:1]", "wall[:10]"),
    *("rate", "rate + 1", "rate * 3", "rate == 0.1", "day", "at", "wall", "raw", "span", "code"),
    *(
        "day + 'T'",
        "day < '2026-03-01'",
        "at > day",
        "span == '-P0DT23H59M59.999995S'",
        "code == 'a'",
    ),
    *(
        "price",
        "price > 3",
        "price == cost",
        "price >= cost",
        "price < id",
        "cost == 0",
        "not price",
    ),
    *(
        "price is None",
        "price or cost",
        "price in [3.5, id]",
        "price == '3.50'",
        "price if ok else None",
    ),
    *("price > 3.4", "cost > 10000000000000000000", "cost == 3", "price != 350"),
    *("tags", "tags[0]", "tags[-1]", "tags[id]", "tags[2]", "sizes[0] + 1", "sizes[ok]", "days[0]"),
    *(
        "not tags",
        "len(tags)",
        "'a' in tags",
        "name in tags",
        "None in tags",
        "id in sizes",
    ),
    *(
        "id not in sizes",
        "1.0 in sizes",
        "'1' in sizes",
        "True in sizes",
        "days",
        "'2026-01-01' in days",
    ),
    *("tags == []", "[] != sizes", "tags == None", "props == {}", "item == {}", "tags or None"),
    *(
        "item",
        "item['sku']",
        "item.count",
        "item['count']",
        "item['day']",
        "item.day",
        "item.get('sku')",
    ),
    *(
        "item.get('no', 3)",
        "'sku' in item",
        "name in item",
        "item and 1",
        "item is None",
        "not item",
    ),
    *("record['item']['count'] + 1", "items", "items[0]['sku']", "items[0].sku", "items[1]['sku']"),
    *("items[0]['day'] is None", "items[id]['count'] or 5", "props['x']", "props.x", "props['z']"),
    *("props.get('x')", "props.get('z')", "props.get('z', 9)", "'x' in props", "name in props"),
    *("5 in props", "not props", "props['x'] + 1 if 'x' in props else None", "props"),
    *(
        "[id, id + 1]",
        "(name, other)",
        "{'a': id, 'b': name}",
        "[name] if ok else [other]",
        "['a', 'b']",
    ),
    *("[id, 1.5]", "{'a': [id]}", "[[id], [2]]", "{'a': {'b': 1, 'c': id}}['a']['c']", "[id][0]"),
    *(
        "{'a': id}['a']",
        "(id, name)[1]",
        "[10, 20, 30][id]",
        "'abc'[id]",
        "[1, 2][0]",
        "{'a': 1}['a']",
    ),
    *(
        "name == other",
        "name < other",
        "name >= 'B'",
        "name != None",
        "name in ('Bob', '')",
        "'o' in name",
    ),
    *(
        "name in 'xBobx'",
        "name in ['Bob', other]",
        "name in {'Bob': 1}",
        "name in {'', 'a'}",
        "not name",
    ),
    *(
        "name in [1, 'Bob']",
        "name or other",
        "name and other",
        "other or name or 'z'",
        "name and id",
    ),
    *(
        "'yes' if name else 'no'",
        "name if name else None",
        "name is None or name == ''",
        "name * 2",
    ),
    *(
        "'a' + name",
        "name + other if name else other",
        "name[0]",
        "name[1:]",
        "name[-1] if name else ''",
    ),
    *("f'{name}-{id}'", "f'{id:05d}'", "name.upper()", "name.lower() == 'bob'", "str(id) + name"),
    *("int(name) if name == '5' else id", "1 < id < 3 or name", "id == 1 and name == 'Bob' and ok"),
    *("(name or 'x').upper()", "name.upper() if name is not None else None", "1 if id > 0 else 2"),
    *(
        "1 / id",
        "10 // id if id else None",
        "ok and name",
        "ok or name",
        "ok is None",
        "ok == (id == 1)",
    ),
    *(
        "id ** 2 + id * 2 - 1",
        "-id",
        "id & 3",
        "'x' if ok else id",
        "(ok and name) is None",
        "ok + id",
    ),
    *(
        f"'yes' if {name} else 'no'"
        for name in ("day", "at", "wall", "raw", "span", "code", "rate")
    ),
    *("ok == 1", "[ok][0]", "[1, name] == 5", "name < 'b' < other", "len(item)", "sizes[id - 1]"),
    *("(name * 2) is None", "(name * 2) != None", "(other * 2) is None"),
]


@pytest.mark.spark
@EACH_SHARE
def test_records_are_python_s(spark: Any, share: int) -> None:
    """Each expression has Python's value for each record, or is its error."""
    names = Names(NAMES.struct, NAMES.config, "new", "old", own="name")
    records = [json_record(row) for row in ROWS]
    wrong = differences(spark, ROWS, names, share_of(EXPRESSIONS, share), records)
    assert wrong == []


def test_records_are_python_s_without_spark() -> None:
    names = Names(NAMES.struct, NAMES.config, "new", "old", own="name")
    records = [json_record(row) for row in ROWS]
    assert differences_over_arrow(ROWS, names, EXPRESSIONS, records) == []


DIGITS = [(38, 0), (38, 6), (38, 18), (10, 2)]
DECIMALS = T.StructType(
    [
        T.StructField("ok", T.BooleanType()),
        *(T.StructField(f"d{s}", T.DecimalType(p, s)) for p, s in DIGITS),
        *(T.StructField(f"l{s}", T.ArrayType(T.DecimalType(p, s))) for p, s in DIGITS),
        *(
            T.StructField(f"o{s}", T.StructType([T.StructField("k", T.DecimalType(p, s))]))
            for p, s in DIGITS
        ),
    ]
)
OF_DECIMALS = [
    text.format(s)
    for _, s in DIGITS
    for text in (
        *("d{0} or None", "d{0} if ok else None", "d{0} or l{0}[0]", "d{0} or d{0} or None"),
        *("l{0}[0]", "l{0} or None", "o{0} if ok else None", "o{0}.get('k') or None"),
        *("[d{0}]", "d2 or d{0}", "(d{0} or None) == d{0}", "(d{0} if ok else None) is None"),
    )
]


def _decimals(sign: int) -> dict[str, Any]:
    row: dict[str, Any] = {"ok": sign < 0}
    for precision, scale in DIGITS:
        most = Decimal((int(sign < 0), (9,) * precision, -scale))
        row |= {f"d{scale}": most if sign else None, f"l{scale}": [most], f"o{scale}": {"k": most}}
    return row


OF_ALL_DIGITS = [_decimals(1), _decimals(-1), _decimals(0)]


@pytest.mark.spark
def test_decimals_keep_their_digits(spark: Any) -> None:
    assert differences(spark, OF_ALL_DIGITS, Names(DECIMALS), OF_DECIMALS) == []


def test_decimals_keep_their_digits_without_spark() -> None:
    names = Names(DECIMALS)
    assert differences_over_arrow(OF_ALL_DIGITS, names, OF_DECIMALS) == []
    assert differences_without_spark(DECIMALS, OF_DECIMALS, OF_ALL_DIGITS) == []


TIMES = T.StructType(
    [
        T.StructField("at", T.TimestampType()),
        T.StructField("wall", T.TimestampNTZType()),
        T.StructField("s", T.StringType()),
    ]
)
OF_TIMES = Names(TIMES, {"end": "2026-01-01T12:00:00.001Z"})
NOON = datetime.datetime(2026, 1, 1, 12)
AT_NOON = [{"at": NOON.replace(tzinfo=UTC), "wall": NOON, "s": "x"}, dict.fromkeys(TIMES.names)]
TEXTS_AT_NOON = {
    "at": pa.array(["2026-01-01T12:00:00.000000+00:00", None]),
    "wall": pa.array(["2026-01-01T12:00:00.000000", None]),
    "s": pa.array(["x", None]),
}
COMPARED: dict[str, list[Any]] = {
    'at == "2026-01-01T12:00:00Z"': [True, False],
    '"2026-01-01 13:00+01:00" == at': [True, False],
    'at != "2026-01-01T12:00:00.000Z"': [False, True],
    'at >= "2026-01-01T12:00:00Z" if at else None': [True, None],
    '"2026-01-01T12:00:00Z" <= at < config["end"] if at else None': [True, None],
    'at in ("2026-01-01", "2026-01-01T12:00:00")': [True, False],
    'wall <= "2026-01-01T12:00:00" if wall else None': [True, None],
    'wall == "2026-01-01T12:00:00Z"': [False, False],
    's == "2026-01-01T12:00:00Z"': [False, False],
    'at == "2026-01-01"': [False, False],
    'at == "2026-01-01T12:00:00.0000001Z"': [False, False],
    'at == "2026-13-01T12:00:00Z"': [False, False],
}


def test_moments_are_compared_in_any_form() -> None:
    by_python = {}
    for text in COMPARED:
        planned = plan(parse(text, WHERE), OF_TIMES, WHERE)
        assert planned.evaluated is not None
        task = replace(planned.evaluated(), arrivals=[None])
        columns = [TEXTS_AT_NOON[name] for name in task.expression.columns]
        by_python[text] = [row["value"] for row in task(columns).to_pylist()]
    assert by_python == COMPARED
    by_arrow = by_kernels(OF_TIMES, list(COMPARED), AT_NOON)
    assert {text: [value for value, _ in rows] for text, rows in by_arrow.items()} == COMPARED


@pytest.mark.spark
def test_spark_compares_moments_in_any_form(spark: Any) -> None:
    again = {f"{text} if s else {text}": result for text, result in COMPARED.items()}
    assert spark_results(spark, AT_NOON, OF_TIMES, [*COMPARED, *again]) == COMPARED | again


LEFT = {
    *("price in [3.5, id]", "price > 3.4", "price or cost", "cost > 10000000000000000000"),
    *("'x' if ok else id", "name and id", "1 < id < 3 or name", "ok and name", "ok or name"),
    *("[1, name] == 5", "[id, 1.5]", "item and 1", "(id, name)[1]", "(ok and name) is None"),
    *("tags == []", "[] != sizes", "props == {}", "item == {}", "item.get('no', 3)"),
    *("'sku' in item", "name in item", "'x' in props", "name in props", "5 in props"),
    *("props['x']", "props.x", "props['z']", "props.get('x')", "props.get('z')"),
    *("props.get('z', 9)", "props['x'] + 1 if 'x' in props else None", "'abc'[id]", "name * 2"),
    *("f'{id:05d}'", "id ** 2 + id * 2 - 1", "id & 3", "days[0]", "days", "'2026-01-01' in days"),
    *("item", "items", "items[0]['sku']", "items[0].sku", "items[1]['sku']"),
    *("items[0]['day'] is None", "items[id]['count'] or 5", "[id, id + 1]", "(name, other)"),
    *("{'a': id, 'b': name}", "[name] if ok else [other]", "{'a': [id]}", "[[id], [2]]"),
    *("{'a': {'b': 1, 'c': id}}['a']['c']", "[id][0]", "{'a': id}['a']", "[ok][0]"),
    *("(name * 2) is None", "(name * 2) != None", "(other * 2) is None"),
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_what_is_compiled(text: str) -> None:
    """Most of the above is; what is not says why."""
    value = value_of(text, Names(NAMES.struct, NAMES.config, "new", "old", own="name"))
    assert (value.column is not None) is (text not in LEFT), value.why
    assert value.column is not None or value.why


def test_sources_are_columns_as_they_are() -> None:
    """Only a column, or a field of one, has a path."""
    assert value_of("name", NAMES).source == ("name",)
    assert value_of("record['a.b']", NAMES).source == ("a.b",)
    assert value_of("item['day']", NAMES).source == ("item", "day")
    assert value_of("item.sku", NAMES).data_type == T.StringType()
    assert value_of("self", Names(STRUCT, own="at")).source == ("at",)
    for text in ("name + ''", "items[0]['sku']", "name or name", "record", "[name][0]", "'a'"):
        assert value_of(text, NAMES).source == ()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("id", "int"),
        ("id + 1", "int"),
        ("id / 1", "float"),
        ("id + ok", "int"),
        ("ok & ok", "bool"),
        ("id > 1", "bool"),
        ("rate + id", "float"),
        ("rate", "float or None"),
        ("price", "decimal or None"),
        ("price * 2", "decimal"),
        ("name", "str or None"),
        ("name or 'x'", "str"),
        ("name or None", "str or None"),
        ("name and 'x'", "str or None"),
        ("id or 'x'", "any or None"),
        ("id if ok else 1.5", "float"),
        ("id if ok else None", "int or None"),
        ("ok or id", "any or None"),
        ("day", "str or None"),
        ("tags", "list or None"),
        ("item", "dict or None"),
        ("props['x']", "int or None"),
        ("[1, 2]", "list"),
        ("{'a': 1}", "dict"),
        ("None", "none"),
        ("'x'", "str"),
        ("not name", "bool"),
        ("[x for x in tags]", "list"),
        ("f'{id}'", "str"),
    ],
)
def test_kinds(text: str, kind: str) -> None:
    """The kind of a result is known without records."""
    actual = str(value_of(text, NAMES).kind)
    assert actual.removesuffix(" or None") == kind.removesuffix(" or None")
    if "None" in kind and kind != "any or None":
        assert "None" in actual


@pytest.mark.spark
def test_case_of_names_and_errors_of_branches(spark: Any) -> None:
    """A branch that always fails only fails for records that take it."""
    texts = ["1 + 'a' if ok else id", "id or name.nope()", "ok and 1 + None", "id < 1 < 'a'"]
    actual = spark_results(spark, ROWS, NAMES, texts)
    assert actual["1 + 'a' if ok else id"] == [ERROR, -2, 0, ERROR]
    assert actual["id or name.nope()"] == [1, -2, ERROR, 2]
    for text, results in actual.items():
        for row, got in zip(ROWS, results, strict=True):
            assert alike(got, python(text, json_record(row), NAMES)), text


@pytest.mark.spark
def test_conditions(spark: Any) -> None:
    """The truth of operands of any kinds, as a filter asks for it."""
    texts = [
        "name and id > 0",
        "tags or price",
        "not (item and name)",
        "id if ok else name",
        "props",
    ]
    texts += ["name and 1 / id", "True", "'x' if ok else 5", "ok or 1 + 'a'", "1 < id < 3 or name"]
    actual = spark_results(spark, ROWS, NAMES, texts, truth=True)
    assert set(actual) == set(texts)
    for text, results in actual.items():
        for row, got in zip(ROWS, results, strict=True):
            due = python(text, json_record(row), NAMES)
            assert got == (ERROR if isinstance(due, str) and due == ERROR else bool(due)), text


@pytest.mark.spark
def test_the_date_in_the_text_of_a_timestamp(spark: Any) -> None:
    """The first ten characters do not need the whole text, and are the same."""
    from pyspark.sql import functions as F  # noqa: N812

    from shared.formats.record_text import plain_text

    day = 86_400_000_000
    first, last = -719_162 * day, 2_932_897 * day - 1
    moments = [0, -1, 1, day - 1, day, -day, first, first - 1, last, last + 1, 17 * day // 2]
    frame = spark.createDataFrame([(at,) for at in moments], "at bigint")
    frame = frame.select(F.timestamp_micros("at").alias("at"))
    value = value_of("at[:10]", Names(frame.schema))
    assert value.column is not None
    whole = F.substring(plain_text(F.col("at"), T.TimestampType()), 1, 10)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        rows = frame.select(value.column().alias("fast"), whole.alias("whole")).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert [row.fast for row in rows] == [row.whole for row in rows]
