"""Planning, before any Spark: what is compiled, what is read, what type comes out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as T  # noqa: N812

from shared.errors import SettingsError, Where
from shared.maps.expressions import arrow_results, python_columns
from shared.maps.expressions.planned import Planned, plan
from shared.maps.expressions.syntax import parse
from shared.maps.expressions.value_kinds import Kind, data_type_of, kind_of
from shared.maps.expressions.values import Names

WHERE = Where(setting="stream_maps.orders.total")
STRUCT = T.StructType(
    [
        T.StructField("id", T.LongType(), False),
        T.StructField("small", T.ShortType()),
        T.StructField("f", T.FloatType()),
        T.StructField("s", T.StringType()),
        T.StructField("d", T.DecimalType(38, 18)),
        T.StructField("e", T.DecimalType(10, 2)),
        T.StructField("at", T.TimestampType()),
        T.StructField("l", T.ArrayType(T.DateType())),
        T.StructField("v", T.VariantType()),
        T.StructField("o", T.StructType([T.StructField("k", T.DecimalType(9, 2))]), False),
    ]
)


def planning(text: str, *, truth: bool = False, **options: Any) -> Planned:
    names = Names(STRUCT, {"hash_salt": "x", "rate": 2}, "out", "orders", **options)
    return plan(parse(text, WHERE), names, WHERE, truth=truth)


@pytest.mark.parametrize(
    ("text", "path"),
    [("f", ("f",)), ("record['at']", ("at",)), ("_['l']", ("l",)), ("v", ("v",))],
)
def test_copies_keep_their_type(text: str, path: tuple[str, ...]) -> None:
    actual = planning(text)
    assert actual.source == path
    assert actual.data_type == STRUCT[path[0]].dataType
    assert actual.reads == set(path)
    assert not actual.in_python and actual.error() is None


def test_self_is_the_property_that_is_made() -> None:
    assert planning("self", own="small").source == ("small",)
    assert planning("str(self)", own="d").reads == {"d"}
    with pytest.raises(SettingsError, match="self"):
        planning("self")


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("id + 1", T.LongType()),
        ("id / 2", T.DoubleType()),
        ("s.upper()", T.StringType()),
        ("id > 1", T.BooleanType()),
    ],
)
def test_what_spark_computes(text: str, result: T.DataType) -> None:
    actual = planning(text)
    assert not actual.in_python
    assert actual.why == ""
    assert actual.data_type == result
    assert not actual.fresh


@pytest.mark.parametrize(
    ("text", "result", "reads"),
    [
        ("str(f)", T.StringType(), {"f"}),
        ("str(d) + s", T.StringType(), {"d", "s"}),
        ("d * 2", T.DecimalType(38, 18), {"d"}),
        ("e * 2", T.DecimalType(38, 10), {"e"}),
        ("json.loads(s)", T.VariantType(), {"s"}),
        ("json.dumps(record)", T.StringType(), set(STRUCT.names)),
    ],
)
def test_what_python_computes(text: str, result: T.DataType, reads: set[str]) -> None:
    actual = planning(text)
    assert actual.in_python
    assert actual.why
    assert actual.data_type == result
    assert actual.reads == reads
    assert actual.python is not None
    assert set(actual.python.task.expression.columns) == reads


def test_columns_go_to_python_in_the_order_of_the_record() -> None:
    created = planning("str(d) + s + str(id)").python
    assert created is not None
    assert created.task.expression.columns == ("id", "s", "d")
    assert created.task.expression.own is None
    assert created.task.expression.fixed["__stream_name__"] == "out"
    assert created.task.expression.fixed["__original_stream_name__"] == "orders"


@pytest.mark.parametrize(
    ("text", "fresh"),
    [
        ("rand()", True),
        ("randint(5) + id", True),
        ("datetime.datetime.now().year", True),
        ("datetime.date.today().isoformat()", True),
        ("record['s']", False),
        ("'rand' + s", False),
    ],
)
def test_fresh_values(text: str, fresh: bool) -> None:
    assert planning(text).fresh == fresh


@pytest.mark.parametrize(
    "text", ["id", "s", "d", "v", "f", "s and d", "str(d)", "v # a note", "(id, s)"]
)
def test_filters_are_booleans(text: str) -> None:
    actual = planning(text, truth=True)
    assert actual.data_type == T.BooleanType()
    assert not actual.source


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prise", "at column 1: unknown name 'prise'"),
        ("id + nope", "at column 6"),
        ("hash_value(s, algorithm='x')", "algorithms"),
    ],
)
def test_what_fails_for_every_record_is_told_at_once(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as error:
        planning(text)
    assert error.value.where == WHERE


@pytest.mark.parametrize(
    ("data_type", "expected"),
    [
        (T.LongType(), None),
        (T.FloatType(), None),
        (T.VarcharType(5), None),
        (T.NullType(), None),
        *(
            (data_type, kind_of(data_type))
            for data_type in (T.DateType(), T.BinaryType(), T.TimeType(), T.DayTimeIntervalType())
        ),
        (T.DecimalType(5, 2), Kind("decimal", True, digits=(5, 2))),
        (T.VariantType(), Kind("any", True)),
        (
            T.ArrayType(T.MapType(T.StringType(), T.FloatType())),
            Kind("list", True, item=Kind("dict", True, values=Kind("float", True))),
        ),
    ],
)
def test_how_types_come_to_python(data_type: T.DataType, expected: Kind | None) -> None:
    assert python_columns.arrival(data_type) == expected


INT, STR, ANY = Kind("int"), Kind("str"), Kind("any", nullable=True)
KINDS = [
    *(Kind(name) for name in ("bool", "int", "float", "str", "date", "datetime", "timedelta")),
    Kind("none", nullable=True),
    Kind("list", item=INT),
    Kind("list", item=ANY),
    Kind("list"),
    Kind("dict", values=Kind("list", item=STR)),
    Kind("dict", fields=(("a", INT), ("b", Kind("dict", values=ANY)))),
    Kind("dict"),
    ANY,
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_forms_and_types_of_results_fit(kind: Kind) -> None:
    result = data_type_of(kind)
    form = python_columns.result_kind(kind, STRUCT, [])
    value = python_columns.result_type(form)["value"].dataType
    from pyspark.sql.pandas.types import to_arrow_type

    assert to_arrow_type(value) == arrow_results.storage(form)
    assert arrow_results.is_json(form) or value == result
    assert data_type_of(form) == result


@pytest.mark.parametrize("digits", [(38, 0), (38, 6), (38, 18), (10, 2)], ids=str)
def test_decimals_of_columns_keep_their_type(digits: tuple[int, int]) -> None:
    own, other = T.DecimalType(*digits), T.DecimalType(20, 12)
    struct = T.StructType(
        [
            T.StructField("d", own),
            T.StructField("e", own),
            T.StructField("other", other),
            T.StructField("l", T.ArrayType(own)),
            T.StructField("o", T.StructType([T.StructField("k", own)])),
            T.StructField("ok", T.BooleanType()),
            T.StructField("s", T.StringType()),
        ]
    )
    results = {
        **dict.fromkeys(("d or None", "d or e", "d or e or None", "d if ok else None"), own),
        **dict.fromkeys(("l[0]", "l[0] or d", "o.get('k') or None", "d if s * 2 else None"), own),
        **{"l or None": T.ArrayType(own), "o if ok else None": struct["o"].dataType},
        "d or other": T.DecimalType(38, max(digits[1], 12)),
        "[d, e]": T.ArrayType(own),
        "[o.get('k') * 2]": T.ArrayType(T.DecimalType(38, max(digits[1], 10))),
    }
    names = Names(struct)
    assert {t: plan(parse(t, WHERE), names, WHERE).data_type for t in results} == results


def test_decimals_keep_the_places_of_what_they_are_made_of() -> None:
    decimal = Kind("decimal")
    assert python_columns.result_kind(decimal, STRUCT, ["d", "e"]) == Kind(
        "decimal", digits=(38, 18)
    )
    assert python_columns.result_kind(decimal, STRUCT, ["s"]) == Kind("decimal", digits=(38, 10))
    assert data_type_of(Kind("decimal", digits=(38, 18))) == T.DecimalType(38, 18)


def test_what_travels_needs_nothing_of_ours() -> None:
    """Modules sent by value import only each other, at their top."""
    travelling = {module.__name__ for module in python_columns.SENT}
    for module in python_columns.SENT:
        source = Path(str(module.__file__)).read_text()
        for name in re.findall(r"^(?:from|import) (shared[\w.]*)", source, re.MULTILINE):
            inner = re.search(rf"^from {re.escape(name)} import (.+)$", source, re.MULTILINE)
            parts = inner.group(1).split(", ") if inner else []
            assert name in travelling or all(f"{name}.{part}" in travelling for part in parts)


def test_examples_of_the_docs() -> None:
    text = (Path(__file__).parents[4] / "docs" / "stream-maps.md").read_text()
    text = text.split("## Personal data\n")[1]
    settings = json.loads(re.search(r"```json\n(.*?)```", text, re.DOTALL).group(1))  # type: ignore[union-attr]
    struct = T.StructType([T.StructField("p", T.StringType())])
    for rules in settings["stream_maps"].values():
        for rule in filter(None, rules.values()):
            if "subject" in rule or "postcode" in rule:
                continue
            names = Names(struct, settings["stream_map_config"], "s", "s", own="p")
            assert not plan(parse(rule, WHERE), names, WHERE).in_python
    for function in ("hash_value", "mask", "truncate", "redact"):
        assert f"| `{function}(" in text
