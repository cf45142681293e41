"""What may be written in an expression, and where a mistake is said to be."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import simpleeval
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructField, StructType, VariantType

from shared.errors import SettingsError, Where
from shared.maps.expressions.columns import compiled
from shared.maps.expressions.syntax import (
    MAX_DEPTH,
    Expression,
    nearest,
    parse,
)
from shared.maps.expressions.values import Names

WHERE = Where(setting="stream_maps.orders.total")
COLUMNS = ("id", "name", "price", "self", "my col")


def message(text: str) -> str:
    """Return the error of parsing."""
    with pytest.raises(SettingsError) as actual:
        parse(text, WHERE)
    return str(actual.value)


@pytest.mark.parametrize(
    "text",
    [
        *("a", "record['a']", "_['a b']", "record.get('a', 1)", "config['x']", "-a ** 2 // 3 % 4"),
        *("a and not b or c", "a < b <= c", "a in [1, 2]", "a is not None", "a if b else c"),
        *("f'{a!r:>{b}} x'", "[*a, 1]", "{'a': 1, **b}", "{1, 2}", "(a, b)", "[x for x in a if x]"),
        *("{x: 1 for x in a}", "sum(x for x in a)", "a[1:2]", "a[::-1]", "md5(str(a)).upper()[:8]"),
        *("datetime.datetime.now()", "json.dumps(record)", "fake.email()", "hash_value(self)"),
        *("__stream_name__", "__original_stream_name__", "__deleted", "_sdc_x", "a << 2 | ~b"),
        *("  a ", "(a +\n b)", "a # why", "1 if a else 'é'", "a.b.c", "''", "round(a, 2)"),
    ],
)
def test_what_is_allowed(text: str) -> None:
    """These are expressions, and simpleeval has the nodes for them."""
    assert parse(text, WHERE).text == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the expression is empty"),
        ("  ", "the expression is empty"),
        ("a +", "at column 4: invalid syntax"),
        ("a = 5", "at column 3"),
        ("a; b", "at column 2"),
        ("import os", "at column 1"),
        ("'abc", "at column 1"),
        ("a\0b", "null bytes"),
        ("lambda: 1", "at column 1: lambda is not available"),
        ("1 + (x := 5)", "at column 6: ':=' is not available"),
        ("{x for x in a}", "at column 1: a set comprehension is not available"),
        ("a @ b", "'@' is not available"),
        ("max(*a)", "at column 5: '*' is not available here"),
        ("(*a, 1)", "at column 2: '*' is not available here"),
        ("dict(**a)", "at column 6: '**' is not available in a call"),
        ("a()()", "at column 1: only functions and methods can be called"),
        ("[int][0]('1')", "at column 1: only functions and methods can be called"),
        ("open('/etc/passwd')", "at column 1: unknown function 'open'"),
        ("1 + flota(a)", "at column 5: unknown function 'flota' (nearest: 'float')"),
        ("eval('1')", "at column 1: unknown function 'eval'"),
        ("__import__('os')", "at column 1: "),
        ("datetime()", "at column 1: 'datetime' is a module, not a function"),
        ("__builtins__", "at column 1: the name '__builtins__' is not available"),
        ("__stream_nam__", "(nearest: '__stream_name__')"),
        ("a.__class__", "at column 1: the attribute '__class__' is not available"),
        ("''._x", "the attribute '_x' is not available"),
        ("a.func_globals", "the attribute 'func_globals' is not available"),
        ("'{0.__class__}'.format(a)", "the attribute 'format' is not available"),
        ("a.format_map(b)", "the attribute 'format_map' is not available"),
        ("...", "at column 1: '...' is not available"),
        (f"1 + {10**400}", "at column 5: an integer of more than 1024 bits"),
        ("  é + lambda: 1", "at column 7"),
        ("(a +\n  lambda: 1)", "line 2, column 3"),
        ("[\n 1,\n x := 2]", "at line 3, column 2"),
        ("a + 'é' + open(b)", "at column 11: unknown function 'open'"),
        ("1" + "0" * 5000, "Exceeds the limit"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    """One line names the setting, the place and what is wrong there."""
    actual = message(text)
    assert said in actual
    assert "setting 'stream_maps.orders.total'" in actual
    assert "\n" not in actual


@pytest.mark.parametrize(
    "text",
    [
        "(" * 300 + "a" + ")" * 300,
        "-" * 5000 + "a",
        "+".join(["a"] * 20_000),
        "[" * 150 + "]" * 150,
        "'" + "x" * 70_000 + "'",
        ".".join(["a"] * 5000),
    ],
)
def test_limits(text: str) -> None:
    """Neither length nor depth brings the parser down."""
    if text.startswith("(("):
        with pytest.raises(SettingsError):
            parse(text, WHERE)
    assert message(text)


def test_depth_counts_nodes() -> None:
    """As many levels as the limit says are fine."""
    assert isinstance(parse("-" * (MAX_DEPTH - 1) + "a", WHERE), Expression)
    assert f"more than {MAX_DEPTH} levels deep" in message("-" * MAX_DEPTH + "a")


@given(st.text(alphabet="ab1 +-*/()[]{}'\"=<>!.,:;\n\\éfif else", max_size=30))
def test_whatever_is_parsed_is_allowed_by_simpleeval(text: str) -> None:
    """Either a SettingsError, or simpleeval knows every node: it never lacks a handler."""
    try:
        expression = parse(text, WHERE)
    except SettingsError as error:
        assert "\n" not in str(error)
        return
    try:
        simpleeval.EvalWithCompoundTypes(names={"a": 1, "b": "x"}).eval(expression.text)
    except simpleeval.FeatureNotAvailable as error:
        pytest.fail(f"{text!r}: {error}")
    except Exception:
        return


def reads_of(text: str, columns: Sequence[str], own: str | None = None) -> set[str]:
    """Return the columns that an expression reads, of any kinds."""
    struct = StructType([StructField(name, VariantType()) for name in columns])
    names = Names(struct, {"id": 1}, own=own, faker={})
    return set(compiled(parse(text, WHERE), names, WHERE)[1])


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("id + price", {"id", "price"}),
        ("record['id']", {"id"}),
        ("_['my col']", {"my col"}),
        ("record.id", {"id"}),
        ("record.get('id', name)", {"id", "name"}),
        ("record.get('nope')", set()),
        ("record.get(name)", set(COLUMNS)),
        ("record.keys()", set(COLUMNS)),
        ("record", set(COLUMNS)),
        ("json.dumps(_)", set(COLUMNS)),
        ("record[name]", set(COLUMNS)),
        ("'id' in record", {"id"}),
        ("name in record", set(COLUMNS)),
        ("'id' in record and record['price']", {"id", "price"}),
        ("config['id']", set()),
        ("__stream_name__", set()),
        ("[id for id in name]", {"name"}),
        ("[x + price for x in id]", {"price", "id"}),
        ("[record for record in name]", {"name"}),
        ("[id for id in id]", {"id"}),
        ("f'{id} {name:>{price}}'", {"id", "name", "price"}),
        ("str(price)", {"price"}),
        ("name.upper()", {"name"}),
        ("fake.name()", set()),
        ("datetime.datetime.now()", set()),
        ("'x'", set()),
        ("id if name else price", {"id", "name", "price"}),
        ("md5(string=name)", {"name"}),
    ],
)
def test_names_read(text: str, read: set[str]) -> None:
    """The expression needs only these columns."""
    assert reads_of(text, COLUMNS) == read


def test_self_reads_the_property_that_is_made() -> None:
    """Or a column of that name, where the property is new."""
    assert reads_of("self + 1", COLUMNS, "price") == {"price"}
    assert reads_of("self + 1", COLUMNS, "new") == {"self"}
    with pytest.raises(SettingsError):
        reads_of("self", ("id",))


def test_nearest() -> None:
    """The nearest name, in its own case; empty if none is near."""
    assert nearest("prise", ["price", "id"]) == " (nearest: 'price')"
    assert nearest("PRICE", ["Price"]) == " (nearest: 'Price')"
    assert nearest("zzz", ["price"]) == ""
