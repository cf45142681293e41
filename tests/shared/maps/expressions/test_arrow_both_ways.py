"""Values between Arrow and Python: how records come, how results go."""

from __future__ import annotations

import datetime
import json
import math
import sys
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.maps.expressions import arrow_results
from shared.maps.expressions.arrow_results import (
    json_result,
    reader,
    records,
    results,
    storage,
    taken,
)
from shared.maps.expressions.value_kinds import ANY, Kind

PLAIN = Kind("str")
NUMBERS = Kind("dict", fields=(("d", Kind("decimal")), ("f", Kind("float")), ("s", PLAIN)))


def read(shape: Kind, *texts: str | None) -> list[Any]:
    return reader(shape)(pa.array(list(texts), pa.string()))


def test_plain_columns_come_as_they_are() -> None:
    assert reader(None)(pa.array([1, None])) == [1, None]
    assert reader(None)(pa.array([None, "é"])) == [None, "é"]


def test_text_that_is_no_text() -> None:
    data = pa.array([b"ok", b"\xff", None], pa.binary())
    broken = pa.Array.from_buffers(pa.string(), 3, data.buffers())
    assert reader(None)(broken) == ["ok", "�", None]


def test_decimals_and_floats_inside() -> None:
    text = '{"d":1.10,"f":1,"s":"NaN"}'
    (actual,) = read(NUMBERS, text)
    assert actual == {"d": Decimal("1.10"), "f": 1.0, "s": "NaN"}
    assert [type(value) for value in actual.values()] == [Decimal, float, str]
    assert str(actual["d"]) == "1.10"


def test_words_for_numbers_that_json_lacks() -> None:
    shape = Kind("list", item=Kind("float"))
    (actual, none) = read(shape, '["NaN","Infinity","-Infinity",1.5,null]', None)
    assert math.isnan(actual[0])
    assert actual[1:] == [math.inf, -math.inf, 1.5, None]
    assert none is None
    assert read(Kind("list", item=PLAIN), '["NaN"]') == [["NaN"]]
    assert read(Kind("dict", values=Kind("float")), '{"NaN":"NaN","a":null}')[0]["a"] is None


def test_integers_of_any_size_where_the_type_is_open() -> None:
    big = 10**30
    assert read(Kind("any"), str(big), "1.5", '[1,{"a":2.0}]') == [big, 1.5, [1, {"a": 2.0}]]
    both = Kind("dict", fields=(("v", Kind("any")), ("d", Kind("decimal"))))
    (actual,) = read(both, f'{{"v":[{big},1.5,{{"x":0.1}}],"d":0.1}}')
    assert actual == {"v": [big, 1.5, {"x": 0.1}], "d": Decimal("0.1")}


def test_without_the_fast_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "orjson", None)
    assert arrow_results._fast_loads() is json.loads
    assert read(Kind("list", item=Kind("float")), '["NaN"]', "[1.5]")[1] == [1.5]


def test_shapes_know_what_they_hold() -> None:
    shape = Kind("list", item=Kind("dict", values=Kind("dict", fields=(("x", Kind("any")),))))
    assert shape.holds("any")
    assert not shape.holds("decimal")


def test_records() -> None:
    plain = reader(None)
    created = records(("a", "b"), [plain, plain], [pa.array([1, 2]), pa.array(["x", None])], 2)
    assert created == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    assert records((), [], [], 2) == [{}, {}]


@pytest.mark.parametrize(
    ("form", "value", "stored"),
    [
        (Kind("none"), None, None),
        (Kind("bool"), True, True),
        (Kind("int"), 2**63 - 1, 2**63 - 1),
        (Kind("float"), 1.5, 1.5),
        (Kind("float"), 3, 3.0),
        (Kind("str"), "é", "é"),
        (Kind("decimal", digits=(38, 2)), Decimal("1.005"), Decimal("1.00")),
        (Kind("decimal", digits=(38, 2)), Decimal("1.015"), Decimal("1.02")),
        (Kind("decimal", digits=(38, 0)), Decimal("1E37"), Decimal(10**37)),
        (Kind("date"), datetime.date(1, 1, 1), datetime.date(1, 1, 1)),
        (
            Kind("datetime"),
            datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
            datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, datetime.timezone.utc),
        ),
        (
            Kind("datetime"),
            datetime.datetime(2024, 1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
            datetime.datetime(2023, 12, 31, 23, tzinfo=datetime.timezone.utc),
        ),
        (Kind("timedelta"), datetime.timedelta(days=-1, microseconds=5), "-1 day, 0:00:00.000005"),
        (Kind("list", item=Kind("int")), (1, None), "[1,null]"),
        (Kind("dict", values=Kind("float")), {"a": 1.5}, '{"a":1.5}'),
        (
            Kind("dict", fields=(("a", Kind("int")), ("b", Kind("str")))),
            {"b": "x"},
            '{"b":"x"}',
        ),
        (Kind("any"), {"a": [1, "x"]}, '{"a":[1,"x"]}'),
    ],
)
def test_results_are_stored_exactly(form: Kind, value: Any, stored: Any) -> None:
    take = taken(form)
    actual = results(
        form, [take(value), take(None) if form.name != "decimal" else None], [None] * 2
    )
    assert actual.type == pa.struct([("value", storage(form)), ("error", pa.string())])
    assert actual.field("value").to_pylist() == [stored, None]


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (Kind("none"), 1),
        (Kind("bool"), 1),
        (Kind("bool"), "true"),
        (Kind("int"), True),
        (Kind("int"), 1.0),
        (Kind("int"), 2**63),
        (Kind("float"), True),
        (Kind("float"), Decimal(1)),
        (Kind("float"), 2**53 + 1),
        (Kind("str"), 1),
        (Kind("str"), b"x"),
        (Kind("decimal", digits=(38, 2)), 1),
        (Kind("decimal", digits=(38, 2)), 1.5),
        (Kind("decimal", digits=(38, 2)), Decimal("NaN")),
        (Kind("decimal", digits=(38, 2)), Decimal("Infinity")),
        (Kind("decimal", digits=(38, 2)), Decimal("1E36")),
        (Kind("decimal", digits=(38, 2)), Decimal("999999999999999999999999999999999999.999")),
        (Kind("date"), datetime.datetime(2024, 1, 1)),
        (Kind("date"), "2024-01-01"),
        (Kind("datetime"), datetime.date(2024, 1, 1)),
        (Kind("timedelta"), 1),
        (Kind("list", item=Kind("int")), "ab"),
        (Kind("list", item=Kind("int")), {1, 2}),
        (Kind("list", item=Kind("int")), [1, "x"]),
        (Kind("dict", values=Kind("int")), {1: 2}),
        (Kind("dict", values=Kind("int")), {"a": "b"}),
        (Kind("dict", fields=(("a", Kind("int")),)), {"b": 1}),
        (Kind("dict", fields=(("a", Kind("int")),)), [1]),
        (Kind("list", item=ANY), "x"),
        (Kind("dict", fields=(("a", Kind("int")), ("b", ANY))), {"a": "x"}),
        (Kind("dict", fields=(("a", Kind("int")), ("b", ANY))), {"c": 1}),
        (Kind("any"), object()),
        (Kind("any"), {1: 1}),
        (Kind("any"), [{1}]),
        (Kind("any"), 10**38),
        (Kind("any"), Decimal("1E100")),
    ],
)
def test_results_of_another_kind_are_refused(form: Kind, value: Any) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        taken(form)(value)


json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**37), 10**37),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(exclude_categories=["Cs"])),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4),
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(json_values)
def test_json_that_is_written_is_what_it_was(value: Any) -> None:
    assert json.loads(json_result(value, ANY)) == value


def test_json_of_other_values() -> None:
    value = {
        "n": [math.nan, math.inf, -math.inf],
        "d": Decimal("1.50"),
        "t": datetime.datetime(2024, 1, 2, 3),
        "k": datetime.date(2024, 1, 2),
        "p": datetime.timedelta(1),
        "u": (1,),
        "e": [],
        "m": {},
    }
    assert json_result(value, ANY) == (
        '{"n":["NaN","Infinity","-Infinity"],"d":1.50,"t":"2024-01-02T03:00:00",'
        '"k":"2024-01-02","p":"1 day, 0:00:00","u":[1],"e":[],"m":{}}'
    )
    dated = Kind("dict", fields=(("t", Kind("datetime")), ("v", ANY)))
    assert json_result({"t": datetime.datetime(2024, 1, 2)}, dated) == (
        '{"t":"2024-01-02T00:00:00+00:00"}'
    )


def test_depth_and_length_of_results() -> None:
    deep: Any = 1
    for _ in range(arrow_results.DEPTH):
        deep = [deep]
    json_result(deep, ANY)
    with pytest.raises(ValueError, match="nested too deeply"):
        json_result([deep], ANY)
    with pytest.raises(OverflowError, match="too long"):
        json_result("é" * (arrow_results.LONGEST_RESULT // 2), ANY)


def test_one_bad_text_spoils_no_other() -> None:
    actual = results(Kind("str"), ["a", "\ud800", "b"], [None, None, None]).to_pylist()
    assert [row["value"] for row in actual] == ["a", None, "b"]
    assert actual[1]["error"].startswith("UnicodeEncodeError: ")
    assert actual[0]["error"] is None


def test_a_batch_of_results_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_results, "LONGEST_BATCH", 10)
    actual = results(Kind("str"), ["12345", None, "67890", "x"], [None] * 4).to_pylist()
    assert [row["value"] for row in actual] == ["12345", None, "67890", None]
    assert actual[3]["error"] == "OverflowError: the results of a batch are too long"


def test_no_results() -> None:
    for form in (Kind("int"), ANY, Kind("list", item=Kind("str"))):
        assert results(form, [], []).type.field("value").type == storage(form)
