"""Expressions evaluated in Python: names, values, errors, and batches of records."""

from __future__ import annotations

import datetime
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.maps.expressions.evaluator import Evaluator, PortableExpression, Task, short_error
from shared.maps.expressions.personal import FUNCTIONS
from shared.maps.expressions.value_kinds import Kind

RECORD: dict[str, Any] = {
    "a": 7,
    "b": "Grüße",
    "c": None,
    "d": Decimal("1.50"),
    "f": 2.5,
    "items": [1, 2, 3],
    "o": {"k": "v", "n": {"m": 1}},
}


def evaluate(text: str, record: dict[str, Any] | None = None, **options: Any) -> Any:
    values = dict(RECORD if record is None else record)
    expression = PortableExpression(text, tuple(values), functions=FUNCTIONS, **options)
    return Evaluator(expression).value(values)


def failure(text: str, record: dict[str, Any] | None = None) -> str:
    with pytest.raises(Exception) as raised:
        evaluate(text, record)
    return short_error(raised.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", 7),
        (" a ", 7),
        ("record['a'] + 1", 8),
        ("_['a'] * 2", 14),
        ("record.a", 7),
        ("record.get('zz', 5)", 5),
        ("record['items']", [1, 2, 3]),
        ("o.n.m", 1),
        ("o['k']", "v"),
        ("o.get('k')", "v"),
        ("list(o.keys())", ["k", "n"]),
        ("a / 2", 3.5),
        ("-a // 2", -4),
        ("-a % 3", 2),
        ("a ** 2", 49),
        ("2 ** -1", 0.5),
        ("a << 2", 28),
        ("a >> 1", 3),
        ("a & 3 | 8", 11),
        ("~a", -8),
        ("d * 2", Decimal("3.00")),
        ("str(d)", "1.50"),
        ("d + 1", Decimal("2.50")),
        ("round(d, 1)", Decimal("1.5")),
        ("f'{a:05d}|{b}|{f:.2f}|{c}'", "00007|Grüße|2.50|None"),
        ("f'{b!r}'", "Grüße"),
        ("f'{f:{a}.1f}'", "    2.5"),
        ("'%s-%03d' % (b, a)", "Grüße-007"),
        ("'%(k)s' % o", "v"),
        ("b'x'.decode()", "x"),
        ("b.upper()", "GRÜSSE"),
        ("b[1:3]", "rü"),
        ("b[-1]", "e"),
        ("b.replace('ü', 'ue')", "Grueße"),
        ("b.encode('latin-1').hex()", "4772fcdf65"),
        ("'-'.join(['x', 'y'])", "x-y"),
        ("'-'.join(str(i) for i in [1, 2])", "1-2"),
        ("'7'.zfill(3)", "007"),
        ("'x'.center(3, '.')", ".x."),
        ("'ab'.translate({97: 'x'})", "xb"),
        ("a if c is None else b", 7),
        ("c or b", "Grüße"),
        ("a and c", None),
        ("not c", True),
        ("1 < a <= 7", True),
        ("1 < a < 7", False),
        ("'ß' in b", True),
        ("4 not in record['items']", True),
        ("[i * 2 for i in record['items'] if i > 1]", [4, 6]),
        ("{k: 1 for k in o}", {"k": 1, "n": 1}),
        ("[*record['items'], 4]", [1, 2, 3, 4]),
        ("{**o, 'z': 1}['z']", 1),
        ("(a, b)[0]", 7),
        ("len({1, 1})", 1),
        ("sum(record['items'])", 6),
        ("sum([d, d], 1)", Decimal("4.00")),
        ("min(3, 1), max([1, 2]), abs(-2)", (1, 2, 2)),
        ("max([], default=4)", 4),
        ("int('12') + int(2.9)", 14),
        ("int('ff', 16)", 255),
        ("float('1e3')", 1000.0),
        ("bool('')", False),
        ("round(2.5), round(1.25, 1), round(1234, -2)", (2, 1.2, 1200)),
        ("md5('a')", "0cc175b9c0f1b6a831c399e269772661"),
        ("sha256('')[:8]", "e3b0c442"),
        ("json.loads('{\"x\": [1, 2.5]}')", {"x": [1, 2.5]}),
        ("json.dumps(o, sort_keys=True, indent=None)", '{"k": "v", "n": {"m": 1}}'),
        ("json.dumps({'x': d}, default=str)", '{"x": "1.50"}'),
        ("datetime.date(2024, 2, 29).isoformat()", "2024-02-29"),
        (
            "datetime.datetime.strptime('2024-05-06', '%Y-%m-%d').date()",
            datetime.date(2024, 5, 6),
        ),
        ("datetime.date(2024, 2, 29).isocalendar().week", 9),
        ("(datetime.date(2024, 1, 2) - datetime.date(2024, 1, 1)).days", 1),
        ("datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc).timestamp()", 1704067200.0),
        ("datetime.timedelta(hours=1).total_seconds()", 3600.0),
        ("hash_value(b, salt='s') == sha256('s' + b)", True),
        ("mask(b, keep_last=2)", "***ße"),
        ("truncate(b, 2)", "Gr"),
        ("redact('call 555-1234 now', '[0-9-]+', '#')", "call # now"),
    ],
)
def test_python_values(text: str, expected: Any) -> None:
    actual = evaluate(text)
    assert actual == expected
    assert type(actual) is type(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("c + 1", "TypeError: unsupported operand type(s) for +: 'NoneType' and 'int'"),
        ("a + c", "TypeError: unsupported operand type(s) for +: 'int' and 'NoneType'"),
        ("a / 0", "ZeroDivisionError: division by zero"),
        ("int('x')", "ValueError: invalid literal for int() with base 10: 'x'"),
        ("o['zz']", "KeyError: 'zz'"),
        ("record['items'][9]", "IndexError: list index out of range"),
        ("a < b", "TypeError: '<' not supported between instances of 'int' and 'str'"),
        ("d + f", "unsupported operand type(s) for +: 'decimal.Decimal' and 'float'"),
        ("md5(c)", "AttributeError: 'NoneType' object has no attribute 'encode'"),
        ("c.upper()", "AttributeError: 'NoneType' object has no attribute 'upper'"),
        ("nope", "NameNotDefined: 'nope' is not defined"),
        ("json.dumps(d)", "TypeError: Object of type Decimal is not JSON serializable"),
        ("len(a)", "TypeError: object of type 'int' has no len()"),
        ("float('inf') - c", "TypeError"),
    ],
)
def test_python_errors(text: str, expected: str) -> None:
    assert expected in failure(text)


def test_error_is_one_short_line() -> None:
    text = failure("int(b)", {"b": "x\ny" * 1000})
    assert "\n" not in text
    assert len(text) < 600


def test_fixed_names_and_self() -> None:
    fixed = {"config": {"rate": 2}, "__stream_name__": "out", "__original_stream_name__": "in"}
    text = "f'{__stream_name__}/{__original_stream_name__}/{self * config[\"rate\"]}'"
    assert evaluate(text, own="a", fixed=fixed) == "out/in/14"


def test_names_of_the_record_do_not_hide_special_ones() -> None:
    record = {"record": 1, "_": 2, "config": 3, "len": 4}
    assert evaluate("record['config']", record, fixed={"config": {}}) == 3
    assert evaluate("config", record, fixed={"config": {"x": 1}}) == {"x": 1}
    assert evaluate("len", record) == 4
    assert evaluate("len('ab')", record) == 2


def test_pop_changes_nothing_for_the_next_record() -> None:
    expression = PortableExpression(
        "config['l'].pop() + n", ("n",), fixed={"config": {"l": [1, 2]}}
    )
    evaluator = Evaluator(expression)
    assert [evaluator.value({"n": n}) for n in (0, 0, 1)] == [2, 2, 3]
    assert expression.fixed == {"config": {"l": [1, 2]}}


def test_comprehension_does_not_leak_its_names() -> None:
    expression = PortableExpression("[a for a in [1, 2]][0] + a", ("a",))
    evaluator = Evaluator(expression)
    assert evaluator.value({"a": 10}) == 11
    assert evaluator.value({"a": 20}) == 21


@settings(deadline=None)
@given(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    st.sampled_from(["a + b", "a == b", "a < b", "a and b", "a or b", "a in b", "str(a) + str(b)"]),
)
def test_same_as_python(a: Any, b: Any, text: str) -> None:
    try:
        expected: Any = eval(text, {"__builtins__": {"str": str}}, {"a": a, "b": b})
    except Exception as error:
        assert failure(text, {"a": a, "b": b}) == short_error(error)
        return
    actual = evaluate(text, {"a": a, "b": b})
    assert actual == expected
    assert type(actual) is type(expected)


def run(
    text: str, columns: dict[str, Any], form: Kind, arrivals: list[Kind | None] | None = None
) -> list[tuple[Any, str | None]]:
    expression = PortableExpression(text, tuple(columns), functions=FUNCTIONS)
    task = Task(expression, arrivals or [None] * len(columns), form)
    actual = task(list(columns.values()) or [pa.array([True, True])])
    return [(row["value"], row["error"]) for row in actual.to_pylist()]


def test_batches_keep_the_order_of_records_and_errors() -> None:
    actual = run("10 // a", {"a": pa.array([5, 0, None, 2])}, Kind("int"))
    assert actual == [
        (2, None),
        (None, "ZeroDivisionError: integer division or modulo by zero"),
        (None, "TypeError: unsupported operand type(s) for //: 'int' and 'NoneType'"),
        (5, None),
    ]


def test_batches_without_records() -> None:
    expression = PortableExpression("a", ("a",))
    actual = Task(expression, [None], Kind("int"))([pa.array([], pa.int64())])
    assert len(actual) == 0
    assert actual.type == pa.struct([("value", pa.int64()), ("error", pa.string())])


def test_expressions_that_read_nothing() -> None:
    assert run("1 + 1", {}, Kind("int")) == [(2, None), (2, None)]


def test_results_of_another_kind_are_errors() -> None:
    columns = {"a": pa.array([1, None])}
    assert run("a or 'x'", columns, Kind("int")) == [
        (1, None),
        (None, "TypeError: the result is of type str, not int"),
    ]


def test_decimals_come_with_every_digit() -> None:
    text = "12345678901234567890.123456789012345678"
    arrivals = [Kind("decimal")]
    actual = run("str(d * 1) if d else d", {"d": pa.array([text, None])}, Kind("str"), arrivals)
    # Python's decimals are computed with 28 digits.
    assert actual == [("12345678901234567890.12345679", None), (None, None)]
    assert run("str(d)", {"d": pa.array([text])}, Kind("str"), arrivals) == [(text, None)]


def test_a_record_too_deep_to_be_read_spoils_no_other() -> None:
    # Deeper than any limit that Python has, or that a validation has set in this process.
    deep = "[" * 50_000 + "]" * 50_000
    columns = {"v": pa.array(["1", deep, None, "[2]"]), "n": pa.array(range(4))}
    arrivals = [Kind("any"), None]
    actual = run("f'{n}{v}'", columns, Kind("str"), arrivals)
    assert [value for value, _ in actual] == ["01", None, "2None", "3[2]"]
    assert [error is None for _, error in actual] == [True, False, True, True]
    assert str(actual[1][1]).startswith("RecursionError: ")


def test_tasks_travel_without_what_they_have_made() -> None:
    task = Task(PortableExpression("a + 1", ("a",)), [None], Kind("int"))
    task([pa.array([1])])
    again = pickle.loads(pickle.dumps(task))
    assert again([pa.array([1, 2])]).field("value").to_pylist() == [2, 3]


def test_one_tree_per_task() -> None:
    task = Task(PortableExpression("a + 1", ("a",)), [None], Kind("int"))
    task([pa.array([1])])
    ready = task._ready
    task([pa.array([1])])
    assert task._ready is ready
