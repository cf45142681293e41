"""Guards: they reject long results, and do not change others."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
import simpleeval
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.maps.expressions import sandbox
from shared.maps.expressions.evaluator import Evaluator, PortableExpression

METER = sandbox.Meter()
texts = st.text(max_size=20)
small = st.one_of(
    st.booleans(),
    st.integers(-1000, 1000),
    st.floats(allow_nan=False),
    st.decimals(allow_nan=False, allow_infinity=False, places=3),
    texts,
    st.lists(st.integers(), max_size=5),
    st.none(),
)


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        actual = function(*args)
    except Exception as error:
        return type(error), str(error)
    return type(actual), repr(actual)


@pytest.mark.parametrize("name", ["added", "multiplied", "remainder"])
@settings(deadline=None)
@given(a=small, b=small)
def test_operators_are_pythons(name: str, a: Any, b: Any) -> None:
    plain = {"added": operator.add, "multiplied": operator.mul, "remainder": operator.mod}[name]
    METER.begin({})
    assert outcome(getattr(METER, name), a, b) == outcome(plain, a, b)


@settings(deadline=None)
@given(
    st.one_of(st.integers(-50, 50), st.floats(-50, 50)),
    st.one_of(st.integers(-50, 50), st.floats(-50, 50)),
)
def test_powers_are_pythons(a: Any, b: Any) -> None:
    assert outcome(sandbox.power, a, b) == outcome(operator.pow, a, b)


CALLS: dict[str, st.SearchStrategy[tuple[Any, ...]]] = {
    "center": st.tuples(st.integers(-5, 60), st.sampled_from([" ", "é", "ab", ""])),
    "ljust": st.tuples(st.integers(-5, 60)),
    "rjust": st.tuples(st.integers(-5, 60), st.sampled_from([" ", "é"])),
    "zfill": st.tuples(st.integers(-5, 60)),
    "expandtabs": st.one_of(st.just(()), st.tuples(st.integers(-3, 12))),
    "replace": st.one_of(
        st.tuples(st.text(max_size=2), texts), st.tuples(texts, texts, st.integers(-3, 5))
    ),
    "join": st.tuples(st.one_of(texts, st.lists(st.one_of(texts, st.integers()), max_size=4))),
    "translate": st.tuples(
        st.dictionaries(st.integers(0, 200), st.one_of(texts, st.none(), st.integers(0, 200)))
    ),
    "encode": st.one_of(
        st.just(()), st.tuples(st.sampled_from(["utf-8", "ascii", "LATIN-1", "UTF_16"]))
    ),
}


@pytest.mark.parametrize("name", sorted(CALLS))
@settings(deadline=None)
@given(data=st.data(), text=st.one_of(texts, st.text("a\t1+-", max_size=10)))
def test_methods_are_pythons(name: str, data: st.DataObject, text: str) -> None:
    args = data.draw(CALLS[name])
    METER.begin({})
    assert outcome(METER.method(text, name), *args) == outcome(getattr(text, name), *args)


def test_every_growing_method_is_guarded() -> None:
    assert set(CALLS) == sandbox.GUARDED
    assert sandbox.ATTRIBUTES[str] >= sandbox.GUARDED


@settings(deadline=None)
@given(
    st.sampled_from(["%s", "%d", "%5.2f", "%-8s|", "%x", "%%", "%(a)s", "%(a)5d", "%c", "%r", "%"]),
    st.text("ab%", max_size=3),
    small,
)
def test_percent_is_pythons(place: str, around: str, value: Any) -> None:
    text = f"{around.replace('%', '%%')}{place}"
    for values in (value, (value,), {"a": value}):
        METER.begin({})
        assert outcome(METER.remainder, text, values) == outcome(operator.mod, text, values)


@settings(deadline=None)
@given(small, st.sampled_from(["", "5", "05", ".2f", "x", ",", "+", ">9", "<9", "é^7", "%", "z"]))
def test_formats_are_pythons(value: Any, spec: str) -> None:
    METER.begin({})
    assert outcome(METER.formatted, value, spec) == outcome(format, value, spec)


@settings(deadline=None)
@given(st.one_of(st.integers(), st.floats(), st.text("0123456789 -_.x", max_size=8), st.none()))
def test_int_and_round_are_pythons(value: Any) -> None:
    assert outcome(sandbox.integer, value) == outcome(int, value)
    assert outcome(sandbox.rounded, value) == outcome(round, value)
    for digits in (-3, 0, 2):
        assert outcome(sandbox.rounded, value, digits) == outcome(round, value, digits)


@settings(deadline=None)
@given(st.lists(st.one_of(st.integers(), st.floats(allow_nan=False), st.booleans()), max_size=6))
def test_sum_is_pythons(items: list[Any]) -> None:
    assert outcome(sandbox.summed, items) == outcome(sum, items)
    assert outcome(sandbox.summed, items, 5) == outcome(sum, items, 5)


@pytest.mark.parametrize("items", [["a"], [[1]], [None], [{}]])
def test_sum_adds_numbers_only(items: list[Any]) -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        sandbox.summed(items)


def test_json_dumps_has_the_options_that_are_data() -> None:
    value = {"b": [1, "é"], "a": None}
    assert sandbox.json_dumps(value, ensure_ascii=False, sort_keys=True, indent=2) == (
        '{\n  "a": null,\n  "b": [\n    1,\n    "é"\n  ]\n}'
    )
    assert sandbox.json_dumps(value, separators=(",", ":")) == '{"b":[1,"\\u00e9"],"a":null}'
    assert sandbox.json_dumps(Decimal("1.5"), default=str) == '"1.5"'
    for options in ({"cls": dict}, {"indent": 17}, {"indent": " " * 17}, {"object_hook": 1}):
        with pytest.raises((TypeError, ValueError)):
            sandbox.json_dumps(value, **options)


@pytest.mark.parametrize("name", ["utf-8", "UTF8", "utf_16", "ascii", "ISO-8859-1", "cp1252"])
def test_encodings_that_are_known(name: str) -> None:
    sandbox.check_encoding(name)


@pytest.mark.parametrize("name", ["idna", "punycode", "zip", "rot13", "", "utf-8\x00", "../x"])
def test_encodings_that_are_not(name: str) -> None:
    with pytest.raises(LookupError):
        sandbox.check_encoding(name)


def test_budget() -> None:
    meter = sandbox.Meter()
    meter.begin({"s": "x" * 100})
    meter.count(sandbox.BUDGET)
    meter.count(100 * 20)
    with pytest.raises(simpleeval.IterableTooLong):
        meter.count(100)
    meter.begin({})
    meter.count(sandbox.BUDGET)
    with pytest.raises(simpleeval.IterableTooLong):
        meter.charged("xyz")


ATOMS = ["a", "b", "s", "l", "o", "1", "2.5", "'t'", "None", "True", "l[0]", "o['k']", "s[:2]"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "==", "<", "and", "or", "in", "is", "|", "&", "^"]
expressions = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.tuples(
            inner,
            st.sampled_from(
                ["+", "-", "*", "/", "//", "%", "==", "<", "and", "or", "in", "is", "|", "&", "^"]
            ),
            inner,
        ).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
        inner.map(lambda t: f"(not {t})"),
        inner.map(lambda t: f"(-{t})"),
        inner.map(lambda t: f"str({t})"),
        inner.map(lambda t: f"int({t})"),
        st.tuples(inner, inner).map(lambda t: f"[{t[0]}, {t[1]}]"),
        st.tuples(inner, inner).map(lambda t: f"{{'k': {t[0]}, 'm': {t[1]}}}"),
        st.tuples(inner, inner).map(lambda t: f"[x for x in {t[0]} if x != {t[1]}]"),
        inner.map(lambda t: f"f'<{{{t}}}>'" if "'" not in t else t),
        inner.map(lambda t: f"({t}).upper()"),
        st.tuples(inner, inner).map(lambda t: f"({t[0]})[{t[1]}]"),
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(
    expressions,
    st.fixed_dictionaries(
        {
            "a": st.one_of(st.none(), st.integers(-9, 9)),
            "b": st.one_of(st.none(), st.floats(-9, 9)),
            "s": st.one_of(st.none(), texts),
            "l": st.one_of(st.none(), st.lists(st.integers(), max_size=3)),
            "o": st.one_of(st.none(), st.just({"k": "v"})),
        }
    ),
)
def test_evaluates_as_the_library_does(text: str, record: dict[str, Any]) -> None:
    """The result equals that of `simpleeval`, which the SDK uses."""
    library = simpleeval.EvalWithCompoundTypes(names=dict(record))
    tree = ast.parse(text, mode="eval").body
    expected = outcome(lambda: library.eval(text, previously_parsed=tree))
    actual = outcome(lambda: Evaluator(PortableExpression(text, tuple(record))).value(dict(record)))
    if isinstance(expected[0], type) and issubclass(expected[0], Exception):
        assert issubclass(actual[0], Exception)
    else:
        assert actual == expected
