"""What expressions must not reach, and how much they may not use."""

from __future__ import annotations

import datetime
import time
import types
from decimal import Decimal
from typing import Any

import pytest
import simpleeval
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.maps.expressions import sandbox
from shared.maps.expressions.evaluator import Evaluator, PortableExpression, short_error
from shared.maps.expressions.personal import FUNCTIONS

SECONDS = 20.0
RECORD: dict[str, Any] = {
    "a": 7,
    "s": "text",
    "long": "x" * 90_000,
    "d": Decimal("1.5"),
    "items": [1, 2, 3],
    "many": list(range(9_000)),
    "o": {"k": "v", "format": "own"},
    "_x": 1,
}


def _words(text: str) -> list[str]:
    return text.split()


def attack(text: str) -> BaseException:
    """Evaluate an expression that must fail, and soon."""
    started = time.monotonic()
    with pytest.raises(Exception) as raised:
        Evaluator(PortableExpression(text, tuple(RECORD), functions=FUNCTIONS)).value(dict(RECORD))
    assert time.monotonic() - started < SECONDS
    return raised.value


@pytest.mark.parametrize(
    "text",
    [
        "s.__class__",
        "s.__class__.__mro__[1].__subclasses__()",
        "''.__class__.__base__",
        "(1).__class__",
        "[].__class__",
        "{}.__class__",
        "record.__class__",
        "o.__init__",
        "md5.__globals__",
        "md5.__code__",
        "mask.__globals__",
        "hash_value.__call__",
        "len.__self__",
        "rand.__self__",
        "json.loads.__globals__",
        "datetime.datetime.__subclasses__()",
        "datetime.datetime.mro()",
        "datetime.__dict__",
        "json.__builtins__",
        "s.func_globals",
        "s.join.__self__",
        "[x for x in [1]].__len__()",
        "(x for x in [1]).gi_frame",
        "f'{s.__class__}'",
        "record._x",
    ],
)
def test_hidden_attributes_are_refused(text: str) -> None:
    assert isinstance(attack(text), simpleeval.FeatureNotAvailable)


@pytest.mark.parametrize(
    "text",
    [
        "'{0.__class__}'.format(s)",
        "'{a}'.format_map(record)",
        "str.format('{0.__class__}', s)",
        "str.format_map('{a}', record)",
        "s.format",
        "o.format",
        "'{}'.format",
        "datetime.datetime.now().__format__('%Y')",
    ],
)
def test_format_is_refused_under_any_name(text: str) -> None:
    assert isinstance(attack(text), simpleeval.FeatureNotAvailable)


@pytest.mark.parametrize(
    "text",
    [
        "f'{a:}{0.__class__}'",
        "f'{a:{\"}{.__class__\"}}'",
        "f'{a:{\"{0.__class__}\"}}'",
        "f'{s:{\"}{0.__class__.__init__.__globals__}{\"}}'",
    ],
)
def test_format_specs_are_no_templates(text: str) -> None:
    """Text of a record in a format spec cannot name attributes."""
    try:
        evaluator = Evaluator(PortableExpression(text, tuple(RECORD)))
    except SyntaxError:
        return
    with pytest.raises((ValueError, simpleeval.InvalidExpression)):
        evaluator.value(dict(RECORD))


@pytest.mark.parametrize(
    "name",
    _words(
        """sys os codecs decoder encoder scanner JSONDecoder JSONEncoder load dump
        detect_encoding __name__ datetime_CAPI _time tzinfo"""
    ),
)
@pytest.mark.parametrize("module", ["json", "datetime"])
def test_modules_show_only_what_is_named(module: str, name: str) -> None:
    assert isinstance(attack(f"{module}.{name}"), simpleeval.InvalidExpression)


def test_no_module_is_reachable() -> None:
    """All names, their attributes, and the attributes of those."""
    seen: list[Any] = [*sandbox.functions(sandbox.Meter()).values(), *FUNCTIONS.values()]
    samples: list[Any] = ["s", b"s", True, 1, 1.5, 1j, Decimal(1), {}, [], (), set()]
    samples += [datetime.datetime.now(datetime.timezone.utc), datetime.date.today()]
    samples += [datetime.time(1), datetime.timedelta(1), datetime.date.today().timetuple()]
    for value in [*samples, *sandbox.CLASSES]:
        kind = value if isinstance(value, type) else type(value)
        seen += [getattr(value, name) for name in sandbox.ATTRIBUTES[kind] if hasattr(value, name)]
    for space in (sandbox.DATETIME, sandbox.JSON):
        seen += space.parts.values()
    for value in seen:
        assert not isinstance(value, types.ModuleType)
        assert not isinstance(value, type) or value in {*sandbox.CLASSES, bool, float}
        if callable(value):
            assert value not in simpleeval.DISALLOW_FUNCTIONS


@pytest.mark.parametrize(
    "name",
    _words(
        """open eval exec compile getattr setattr globals locals vars dir type object super
        __import__ input print breakpoint memoryview bytearray isinstance repr format iter
        next map filter zip range classmethod property id help exit"""
    ),
)
def test_builtins_are_not_there(name: str) -> None:
    assert isinstance(attack(f"{name}('x')"), simpleeval.InvalidExpression)
    assert isinstance(attack(name), simpleeval.InvalidExpression)


@pytest.mark.parametrize(
    "text",
    [
        "(lambda: 1)()",
        "[f for f in [md5]][0]('x')",
        "o['k']()",
        "[md5][0]('x')",
        "json.loads('1', object_hook=md5)",
        "json.loads('1', cls=dict)",
        "json.dumps(o, cls=dict)",
        "json.dumps(o, indent=1000000)",
        "json.dumps(o, separators=(long, long))",
        "min(items, key=md5)",
        "sum([items, items], [])",
        "str(b'x', 'idna')",
        "s.encode('idna')",
        "s.encode('punycode')",
        "s.encode(encoding='zip_codec')",
        "s.encode('../../etc/passwd')",
        "b'x'.decode('rot13')",
        "b'x'.decode(encoding='hex')",
        "items.append(1)",
        "items.extend(items)",
        "items.sort()",
        "o.update(o)",
        "o.setdefault('z', 1)",
        "o.clear()",
        "o.popitem()",
        "dict.fromkeys(items, 1)",
        "int.from_bytes(b'x', 'big')",
        "(5).to_bytes(10**9, 'big')",
        "float.fromhex('1')",
        "datetime.datetime.sys",
        "datetime.datetime.now().tzinfo.x",
        "md5(**o)",
        "md5(*items)",
        "{x for x in items}",
        "s @ s",
        "(yield 1)",
        "await s",
        "(z := 1)",
    ],
)
def test_other_ways_out_are_refused(text: str) -> None:
    try:
        error = attack(text)
    except SyntaxError:
        return
    assert isinstance(error, (simpleeval.InvalidExpression, LookupError, TypeError, ValueError))


@pytest.mark.parametrize(
    "text",
    [
        "9 ** 9 ** 9",
        "10 ** 4000000",
        "2 ** 70000",
        "a ** (a ** a)",
        "(10 ** 9000) ** 9",
        "(10 ** 9000) * (10 ** 19000)",
        "1 << 1000000000",
        "1 << 70000",
        "(1 << 9999) << 9999 << 9999 << 9999 << 9999 << 9999 << 9999 << 9999",
        "round(5, -1000000000)",
        "round(5, 1000000000)",
        "int('9' * 90000)",
        "int(d ** 100000)",
        "round(d ** 100000)",
        "str(10 ** 19000)",
    ],
)
def test_huge_numbers_are_refused(text: str) -> None:
    assert isinstance(attack(text), (simpleeval.NumberTooHigh, ValueError, ArithmeticError))


@pytest.mark.parametrize(
    "text",
    [
        "s * 10 ** 9",
        "10 ** 9 * s",
        "items * 10 ** 9",
        "(1,) * 10 ** 9",
        "b'x' * 10 ** 9",
        "long * 2",
        "long + long",
        "[long] * 2",
        "[[s] * 20000] * 20000",
        "s.ljust(10 ** 9)",
        "s.rjust(10 ** 9)",
        "s.center(10 ** 9)",
        "s.zfill(10 ** 9)",
        "(s + '\\t' * 90000).expandtabs(10 ** 6)",
        "long.replace('x', long)",
        "long.replace('', long)",
        "long.join(items)",
        "long.join([s, s, s])",
        "long.join(s for _ in many)",
        "long.translate({120: long})",
        "'%1000000000d' % a",
        "'%.1000000000f' % 1.5",
        "'%*d' % (10 ** 9, a)",
        "'%.*f' % (10 ** 9, 1.5)",
        "b'%1000000000d' % a",
        "('%(long)s' * 100) % record",
        "('%s' * 3) % (long, long, long)",
        "f'{a:1000000000}'",
        "f'{a:01000000000d}'",
        "f'{1.5:.1000000000f}'",
        "f'{a:{10 ** 9}}'",
        "f'{long}{long}'",
        "str([long, long])",
        "f'{[long, long]}'",
        "[long + s for _ in many]",
        "[x for x in many for y in many]",
        "{x: long + s for x in many}",
        "list(long) + list(long)",
        "json.dumps([[many for _ in many] for _ in many])",
        "[list(long) for _ in many]",
        "[long.upper() for _ in many]",
        "[long[1:] for _ in many]",
        "[long.split('y') for _ in many] + [long.split('x') for _ in many]",
        "[md5(long.lower()) for _ in many]",
    ],
)
def test_long_results_are_refused(text: str) -> None:
    assert isinstance(attack(text), (simpleeval.IterableTooLong, TypeError, ValueError))


def test_literal_percent_and_digits_are_no_widths() -> None:
    expression = PortableExpression("'order 123456789: %s, 100%% of %05.1f' % (s, 2.5)", ("s",))
    assert Evaluator(expression).value({"s": "x"}) == "order 123456789: x, 100% of 002.5"


def test_longer_records_have_a_larger_budget() -> None:
    record = {"s": "ab" * 3_000_000}
    text = "s.upper().lower().strip()[1:].title()[:9]"
    assert Evaluator(PortableExpression(text, ("s",))).value(record) == "Babababab"
    with pytest.raises(simpleeval.IterableTooLong):
        Evaluator(PortableExpression("[s.upper() for _ in 'x' * 100]", ("s",))).value(record)


def test_long_texts_of_records_pass() -> None:
    """What is long already may be worked on; only growing is limited."""
    record = {"s": "ab" * 500_000}
    for text in ("s.upper()", "s[1:]", "s.replace('a', 'b')", "str(s)", "s.strip()", "s.ljust(5)"):
        assert len(Evaluator(PortableExpression(text, ("s",))).value(dict(record))) > 900_000


def test_deep_json_is_an_error_of_its_record() -> None:
    text = "json.loads(s)"
    with pytest.raises(RecursionError):
        Evaluator(PortableExpression(text, ("s",))).value({"s": "[" * 200_000})


def test_patterns_take_linear_time() -> None:
    """Texts and patterns that take other engines for ever."""
    started = time.monotonic()
    record = {"s": "a" * 50_000 + "!"}
    for pattern in ("(a+)+$", "(a|aa)+$", "(a*)*b", "a*a*a*a*a*a*a*a*b", "([a-z]+)*[0-9]"):
        text = f"redact(s, '{pattern}')"
        try:
            Evaluator(PortableExpression(text, ("s",), functions=FUNCTIONS)).value(dict(record))
        except ValueError as error:
            assert "empty" in str(error)
    assert time.monotonic() - started < SECONDS


@pytest.mark.parametrize("pattern", ["(", "a{1001}", "(?=x)", r"(a)\1", "[z-a]", "x" * 2000, "a*"])
def test_patterns_that_cannot_be(pattern: str) -> None:
    expression = PortableExpression("redact(s, p)", ("s", "p"), functions=FUNCTIONS)
    with pytest.raises(ValueError, match="redact"):
        Evaluator(expression).value({"s": "a", "p": pattern})


def test_budget_is_one_of_each_record() -> None:
    evaluator = Evaluator(PortableExpression("len([s + s for s in [s] * 50])", ("s",)))
    for _ in range(300):
        assert evaluator.value({"s": "x" * 900}) == 50


def test_errors_do_not_carry_long_texts() -> None:
    error = attack("int(long)")
    assert len(short_error(error)) <= 600


@settings(max_examples=300, deadline=None)
@given(
    st.recursive(
        st.sampled_from(
            ["a", "s", "items", "o", "d", "json", "datetime", "md5", "0", "'x'", "str"]
        ),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(sorted(dir(str)) + sorted(dir(type)))).map(
                lambda pair: f"({pair[0]}).{pair[1]}"
            ),
            inner.map(lambda text: f"({text})()"),
            inner.map(lambda text: f"[{text}][0]"),
            inner.map(lambda text: f"f'{{{text}}}'".replace("'x'", "1")),
        ),
        max_leaves=6,
    )
)
def test_no_walk_of_attributes_leads_out(text: str) -> None:
    try:
        actual = Evaluator(PortableExpression(text, tuple(RECORD))).value(dict(RECORD))
    except Exception:
        return
    assert not isinstance(actual, types.ModuleType)
    assert not isinstance(actual, type) or actual in {*sandbox.CLASSES, bool, float}


def test_weight_stops_early() -> None:
    inner: list[Any] = ["x" * 1000]
    for _ in range(30):
        inner = [inner, inner]
    started = time.monotonic()
    assert sandbox.value_weight(inner, 10_000) > 10_000
    assert time.monotonic() - started < 1
    # A dict and its key, a list of two, a number and a text.
    assert sandbox.value_weight({"ab": [1, "cd"]}, 100) == 1 + 2 + 2 + 0 + 2


def test_cycles_have_a_weight() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    assert sandbox.value_weight(cycle, 100) > 100
