"""Expressions that Python computes, as columns of Spark; and the functions that hide things."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from shared.errors import Where
from shared.maps.expressions import planned, python_columns
from shared.maps.expressions.planned import Planned, plan
from shared.maps.expressions.syntax import parse
from shared.maps.expressions.value_kinds import Kind, data_type_of
from shared.maps.expressions.values import Names, Value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.costly]

QUERY = """
select 1 id, cast(1 as int) i, cast(1.25 as decimal(10,4)) d, cast(1.5 as decimal(38,18)) dd,
    cast(0.1 as float) f, cast(1.0 as double) w, double('NaN') x, 'é"q\\n' s, true b,
    date'2020-02-29' dt,
    timestamp'2020-01-01 00:00:00.5' ts, timestamp_ntz'2020-01-01 00:00:00' tn, X'00ff' bi,
    interval '1 02:03:04' day to second iv,
    array(named_struct('p', cast(2.50 as decimal(9,2)), 'q', double('Infinity'))) l,
    map('k', 1.5D) m, parse_json('{"a": [1, 2.5, 123456789012345678901]}') v,
    named_struct('y', 'z') o, cast(null as void) n
union all select 2, null, null, null, null, null, null, null, null, null, null, null, null, null,
    null, null, null, null, null
"""
CONFIG = {"hash_salt": "pepper", "t": {"u": 1}}


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return spark.sql(QUERY)


def names(frame: DataFrame, **options: Any) -> Names:
    return Names(frame.schema, CONFIG, "out", "orig", faker=options.pop("faker", {}), **options)


def planned_as(text: str, frame: DataFrame, kind: Kind | None = None, **options: Any) -> Planned:
    """Plan; with a kind, by Python even if Spark could compute it."""
    where = Where(setting=f"stream_maps.s.{text}")
    expression = parse(text, where)
    actual = plan(expression, names(frame, **options), where)
    if kind is None:
        return actual
    value = Value(kind, why="a test")
    return planned._in_python(
        expression, names(frame, **options), where, value, actual.reads, truth=False
    )


def results(frame: DataFrame, plans: list[Planned]) -> list[list[tuple[Any, str | None]]]:
    """Return value and error of all plans, for each row."""
    columns = [F.col("id")]
    for at, actual in enumerate(plans):
        error = actual.error()
        columns.append(actual.value().alias(f"v{at}"))
        columns.append((F.lit(None) if error is None else error).alias(f"e{at}"))
    rows = frame.select(*columns).orderBy("id").collect()
    return [[(_plain(row[f"v{at}"]), row[f"e{at}"]) for at in range(len(plans))] for row in rows]


def _plain(value: Any) -> Any:
    if type(value).__name__ == "VariantVal":
        return json.loads(value.toJson(), parse_float=Decimal)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.asDict(True) if hasattr(value, "asDict") else value


ANY = Kind("any", nullable=True)
VIEWS = [
    ("i", 1),
    ("d", Decimal("1.2500")),
    ("dd", Decimal("1.5")),
    ("f", Decimal("0.1")),
    ("x", "NaN"),
    ("s", 'é"q\n'),
    ("b", True),
    ("dt", "2020-02-29"),
    ("ts", "2020-01-01T00:00:00.500000+00:00"),
    ("tn", "2020-01-01T00:00:00.000000"),
    ("bi", "AP8="),
    ("iv", "P1DT2H3M4.000000S"),
    ("l", [{"p": Decimal("2.50"), "q": "Infinity"}]),
    ("m", {"k": Decimal("1.5")}),
    ("v", {"a": [1, Decimal("2.5"), 123456789012345678901]}),
    ("o", {"y": "z"}),
    ("n", None),
]


def test_columns_come_as_in_record_messages(frame: DataFrame) -> None:
    first, second = results(frame, [planned_as(name, frame, ANY) for name, _ in VIEWS])
    for (name, expected), actual, empty in zip(VIEWS, first, second, strict=True):
        assert actual == (expected, None), name
        assert empty == (None, None), name


INT, FLOAT, STR, BOOL = Kind("int"), Kind("float"), Kind("str"), Kind("bool")
DECIMAL, DATE, DATETIME = Kind("decimal"), Kind("date"), Kind("datetime")
LIST, PAIR = Kind("list", item=INT), Kind("dict", fields=(("a", INT), ("b", STR)))
MIXED = Kind("list", item=ANY)
NESTED = Kind("dict", fields=(("a", DATETIME), ("b", ANY), ("c", DECIMAL)))
MAP = Kind("dict", values=FLOAT)
NONE_INT = "'NoneType' object cannot be interpreted as an integer"
CREATED = [
    (INT, "i + 1", 2),
    (FLOAT, "f * 2", 0.2),
    (FLOAT, "x", None),
    (STR, "str(d)", "1.2500"),
    (STR, "str(dd)", "1.5"),
    (STR, "str(l)", "[{'p': Decimal('2.50'), 'q': inf}]"),
    (STR, "f'{f} {w} {b}'", "0.1 1.0 True"),
    (BOOL, "d > 1", True),
    (DECIMAL, "d / 3", Decimal("0.4166666667")),
    (DECIMAL, "dd * 2", Decimal("3.000000000000000000")),
    (DATE, "datetime.date(2020, 1, i)", datetime.date(2020, 1, 1)),
    (
        DATETIME,
        "datetime.datetime(2020, 7, i, 1, 2, 3, 5)",
        datetime.datetime(2020, 7, 1, 1, 2, 3, 5),
    ),
    (Kind("timedelta"), "datetime.timedelta(days=i)", "1 day, 0:00:00"),
    (LIST, "[i, i + 1]", [1, 2]),
    (MIXED, "[i, 'x', d]", [1, "x", Decimal("1.2500")]),
    (PAIR, "{'a': i, 'b': s}", {"a": 1, "b": 'é"q\n'}),
    (
        NESTED,
        "{'a': datetime.datetime(2020, 1, i), 'b': [s], 'c': d}",
        {
            "a": datetime.datetime(2020, 1, 1),
            "b": ['é"q\n'],
            "c": Decimal("1.2500000000"),
        },
    ),
    (MAP, "m", {"k": 1.5}),
    (STR, "__stream_name__ + __original_stream_name__", "outorig"),
    (ANY, "config", {"hash_salt": "pepper", "t": {"u": 1}}),
    (INT, "len(record)", 19),
]


def _deep(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _deep(_plain(item)) for name, item in value.items()}
    return [_deep(item) for item in value] if isinstance(value, list) else value


def test_results_have_the_type_that_was_promised(frame: DataFrame) -> None:
    plans = [planned_as(text, frame, kind) for kind, text, _ in CREATED]
    (first, second) = results(frame, plans)
    schema = frame.select(*[p.value().alias(f"c{i}") for i, p in enumerate(plans)]).schema
    for (kind, text, expected), created, actual, field in zip(
        CREATED, plans, first, schema, strict=True
    ):
        assert field.dataType == created.data_type, text
        if kind.name != "decimal":
            assert created.data_type == data_type_of(kind), text
        if text == "x":
            assert actual[0] != actual[0]
            continue
        assert (_deep(actual[0]), actual[1]) == (expected, None), text
    for (_, text, _), (value, error) in zip(CREATED, second, strict=True):
        assert error is None or (value is None and "Error: " in error), text


BAD = [
    (STR, "i", "TypeError: the result is of type int, not str"),
    (INT, "b", "TypeError: the result is of type bool, not int"),
    (BOOL, "i", "TypeError: the result is of type int, not bool"),
    (FLOAT, "s", "TypeError: the result is of type str, not float"),
    (DATE, "datetime.datetime(2020, 1, 1)", "TypeError: the result is of type datetime, not date"),
    (LIST, "s", "TypeError: the result is of type str, not list"),
    (PAIR, "{'z': 1}", "TypeError: the result is of type dict, not dict of a, b"),
    (INT, "2 ** 64", "OverflowError: the result does not fit into 64 bits"),
    (DECIMAL, "d * 10 ** 30", "OverflowError: the result does not fit into decimal(38,10)"),
    (STR, "json.loads('\"\\\\ud800\"')", "UnicodeEncodeError: "),
    (ANY, "json.loads('['*300 + ']'*300)", "ValueError: the result is nested too deeply"),
    (ANY, "{1: 2}", "TypeError: a dict of the result has the key 1"),
    (ANY, "{i}", "TypeError: Object of type set is not JSON serializable"),
    (ANY, "b'x'", "TypeError: Object of type bytes is not JSON serializable"),
    (ANY, "10 ** 38", "OverflowError: the result has more than 38 digits"),
]


def test_other_results_are_errors(frame: DataFrame) -> None:
    first = results(frame, [planned_as(text, frame, kind) for kind, text, _ in BAD])[0]
    for (_, text, expected), (value, error) in zip(BAD, first, strict=True):
        assert value is None, text
        assert error is not None, text
        assert error.startswith(expected), text


def test_frames_without_rows(frame: DataFrame) -> None:
    empty = frame.where("id > 5")
    assert results(empty, [planned_as("i + 1", frame, INT), planned_as("v", frame, ANY)]) == []


def calls(frame: DataFrame) -> list[str]:
    text = frame._jdf.queryExecution().executedPlan().toString()
    return [line for line in text.split("\n") if "ArrowEvalPython" in line]


def test_one_python_call_gives_value_and_error(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1,), (None,)], "i bigint")
    created = planned_as("i + 1", rows, INT)
    chosen = rows.select(created.value().alias("v"), created.error().alias("e"))
    for query in (chosen, chosen.select("v"), chosen.select("e")):
        (call,) = calls(query)
        assert "pythonUDF1" not in call


def test_two_expressions_share_a_worker(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1,), (None,)], "i bigint")
    plans = [planned_as("i + 1", rows, INT), planned_as("str(i)", rows, STR)]
    (call,) = calls(rows.select(*[actual.value() for actual in plans]))
    assert "pythonUDF1" in call


def test_fields_of_nothing_are_errors_but_keep_their_type(frame: DataFrame) -> None:
    text = "TypeError: 'NoneType' object is not subscriptable"
    actual = planned_as("o['y']", frame)
    assert not actual.in_python
    assert actual.data_type.simpleString() == "string"
    assert results(frame, [actual]) == [[("z", None)], [(None, text)]]
    whole = planned_as("l", frame)
    assert whole.source == ("l",)
    assert whole.data_type == frame.schema["l"].dataType


def test_filters_by_truth(frame: DataFrame) -> None:
    where = Where(setting="stream_maps.s.__filter__")
    texts = ("i", "l", "record.get('m')", "fake.name() and i", "str(d) and d", "v", "v # x")
    plans = [plan(parse(text, where), names(frame), where, truth=True) for text in texts]
    assert {actual.data_type.simpleString() for actual in plans} == {"boolean"}
    for text, first, second in zip(texts, *results(frame, plans), strict=True):
        assert first == (True, None), text
        assert second[0] in (False, None), text


def test_times_without_a_zone_are_utc(spark: SparkSession, frame: DataFrame) -> None:
    text = "datetime.datetime.strptime('2024-03-31 02:30:00', '%Y-%m-%d %H:%M:%S')"
    plans = [planned_as(text, frame), planned_as(text, frame, DATETIME)]
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        query = frame.select(*[F.unix_micros(p.value()) for p in plans])
        assert query.distinct().collect() == [(1711852200000000, 1711852200000000)]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


HIDING = [
    "hash_value(s)",
    "hash_value(id)",
    "hash_value(b)",
    "hash_value(s, algorithm='sha512')",
    "hash_value(s, 'other', 'sha224')",
    "hash_value(s, salt=config['hash_salt'], algorithm='sha384')",
    "mask(s)",
    "mask(s, 2)",
    "mask(s, keep_last=0, char='é')",
    "mask(id, 1)",
    "mask(b, 2)",
    "truncate(s, 2)",
    "truncate(s, 0)",
    "truncate(s, length=100)",
    "truncate(b, 3)",
    "redact(s)",
    "redact(s, '[é\"]+')",
    "redact(s, 'q', '\\\\1$0')",
    "redact(id, '[0-9]', '#')",
    "redact(s, '(?i)Q')",
]


def test_functions_that_hide_are_the_same_in_spark_and_python(spark: SparkSession) -> None:
    texts = ["", "a", "abc", "abcd", "abcde", 'é"q\n', "naïve@ex.org", "😀😀😀😀😀😀", "\\$1", None]
    rows = [(at, text, at % 2 == 0 if text else None) for at, text in enumerate(texts)]
    frame = spark.createDataFrame(rows, "id bigint, s string, b boolean")
    compiled = [planned_as(text, frame) for text in HIDING]
    python = [planned_as(text, frame, Kind("str", nullable=True)) for text in HIDING]
    assert not any(actual.in_python for actual in compiled)
    assert all(actual.in_python for actual in python)
    for row in results(frame, [*compiled, *python]):
        for at, text in enumerate(HIDING):
            assert row[at] == row[at + len(HIDING)], text
            assert row[at][1] is None


def test_hiding_what_spark_has_no_text_of(frame: DataFrame) -> None:
    texts = ["hash_value(f)", "mask(d, 2)", "truncate(l, 5)", "redact(o, 'z')", "truncate(dt, 4)"]
    plans = [planned_as(text, frame) for text in texts]
    assert [actual.in_python for actual in plans] == [True, True, True, True, False]
    first, second = results(frame, plans)
    assert first[1:] == [
        ("****00", None),
        ('[{"p"', None),
        ('{"y":"[REDACTED]"}', None),
        ("2020", None),
    ]
    assert second == [(None, None)] * len(texts)


FAKES = ["fake.name()", "fake.email()", "fake.random_int(1, 10**6)", "fake.uuid4()"]


def test_seeded_fakes_depend_on_the_record_alone(frame: DataFrame) -> None:
    options = {"faker": {"seed": 7}}
    plans = [planned_as(text, frame, **options) for text in FAKES]
    twice = frame.unionAll(frame).repartition(3)
    assert all(actual.reads == frozenset(frame.columns) for actual in plans)
    other = [planned_as(text, frame, faker={"seed": 8}) for text in FAKES]
    both = results(frame, [*plans, *other])
    once, others = [row[: len(FAKES)] for row in both], [row[len(FAKES) :] for row in both]
    assert results(twice, plans) == [once[0], once[0], once[1], once[1]]
    assert once[0] != once[1]
    assert others != once


def test_fakes_by_chance_and_in_a_language(frame: DataFrame) -> None:
    plans = [
        planned_as("fake.pystr(40, 40)", frame),
        planned_as("fake.name() if i else None", frame, faker={"locale": "ja_JP"}),
        planned_as("fake.seed_instance(i) or fake.name()", frame),
    ]
    assert all(actual.fresh for actual in plans)
    first, second = results(frame, plans)
    assert first[0][0] != second[0][0]
    assert not first[1][0].isascii()
    assert second[1] == (None, None)
    assert results(frame, plans)[0][2] == first[2]


def test_workers_need_none_of_our_modules(spark: SparkSession, frame: DataFrame) -> None:
    """What travels is unpickled where neither this project nor simpleeval can be imported."""
    from pyspark import cloudpickle

    actual = planned_as("str(d) + hash_value(i)", frame, STR).python
    assert actual is not None
    python_columns.send_by_value()
    data = cloudpickle.dumps(actual.task)
    code = (
        "import sys, pickle, pyarrow as pa\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('shared', 'simpleeval', 'orjson', 'faker'):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "from pyspark import cloudpickle\n"
        "task = cloudpickle.loads(sys.stdin.buffer.read())\n"
        "out = task([pa.array([1]), pa.array(['1.50'])]).to_pylist()\n"
        "sys.stdout.write(out[0]['value'] or out[0]['error'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=data, capture_output=True, cwd=Path("/"), check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().startswith("1.50")
    assert len(data) < 200_000


@pytest.mark.parametrize("text", ["redact(s, 'q')", "str(d)"])
def test_columns_register_what_has_to_travel(frame: DataFrame, text: str) -> None:
    from pyspark import cloudpickle

    for module in python_columns.SENT:
        if module.__name__ in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.unregister_pickle_by_value(module)
    planned_as(text, frame).value()
    registered = cloudpickle.list_registry_pickle_by_value()
    assert {module.__name__ for module in python_columns.SENT} <= registered


def test_key_of_a_record_is_its_json(frame: DataFrame) -> None:
    keys = {row[0] for row in frame.select(python_columns.key(frame.schema)).collect()}
    assert len(keys) == 2
