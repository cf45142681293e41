"""Mistakes that fail for every record are reported with their place before data is read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from compiled_oracle import WHERE, value_of
from pyspark.sql import types as T  # noqa: N812

from shared.errors import SettingsError
from shared.maps.expressions.columns import MAX_COMPILED_DEPTH
from shared.maps.expressions.syntax import parse
from shared.maps.expressions.values import Names

STRUCT = T.StructType(
    [
        T.StructField("id", T.LongType()),
        T.StructField("price", T.DoubleType()),
        T.StructField("amount", T.DecimalType(10, 2)),
        T.StructField("name", T.StringType()),
        T.StructField("any", T.VariantType()),
        T.StructField("tags", T.ArrayType(T.StringType())),
        T.StructField("item", T.StructType([T.StructField("sku", T.StringType())])),
        T.StructField("props", T.MapType(T.StringType(), T.LongType())),
        T.StructField("int", T.LongType()),
    ]
)
NAMES = Names(STRUCT, {"salt": "x", "n": 0}, "orders", "orders", own="total")


def test_self_is_of_no_property() -> None:
    near = "unknown name 'self': the record has no property 'prise' (nearest: 'price')"
    assert near in message("mask(self)", replace(NAMES, own="prise"))
    assert "'self': a filter has none" in message("self > 1", replace(NAMES, own=None))


def message(text: str, names: Names = NAMES) -> str:
    """Return the error of compiling."""
    with pytest.raises(SettingsError) as actual:
        value_of(text, names)
    return str(actual.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prise * 2", "at column 1: unknown name 'prise' (nearest: 'price')"),
        ("2 * prise", "at column 5: unknown name 'prise' (nearest: 'price')"),
        ("  2 * prise", "at column 7: unknown name 'prise'"),
        ("'é' + str(PRICE)", "at column 11: unknown name 'PRICE' (nearest: 'price')"),
        ("record['prise']", "at column 8: unknown property 'prise' (nearest: 'price')"),
        ("record.prise", "at column 1: unknown property 'prise' (nearest: 'price')"),
        ("record[5]", "at column 8: unknown property '5'"),
        ("item['sko']", "at column 1: KeyError: 'sko' (nearest: 'sku'), for every record"),
        ("config['sald']", "at column 1: KeyError: 'sald' (nearest: 'salt')"),
        ("id if price else zzz", "at column 18: unknown name 'zzz'"),
        ("[x + y for x in tags]", "at column 6: unknown name 'y'"),
        ("(id +\n  prise)", "at line 2, column 3: unknown name 'prise'"),
        ("total", "unknown name 'total'"),
        ("self", "unknown name 'self': the record has no property 'total'"),
        ("fake.name()", "unknown name 'fake': it needs the extra 'faker'"),
        ("float", "at column 1: 'float' is a function: call it"),
        ("datetime", "at column 1: 'datetime' is a module"),
        ("datetime.sys", "'sys'"),
        ("datetime.datetime.noww()", "datetime has no 'noww' (nearest: 'now')"),
        ("json.load_s('1')", "json has no 'load_s' (nearest: 'loads')"),
        ("name + 1", "at column 1: TypeError: "),
        ("1 + (name - 'x')", "at column 6: TypeError: unsupported operand type(s) for -: 'str'"),
        ("name + None", "at column 1: TypeError: "),
        ("id + 'x'", "'int' and 'str', for every record"),
        ("amount * 1.5", "'decimal.Decimal' and 'float', for every record"),
        ("price & 1", "'float' and 'int'"),
        ("-name", "at column 1: TypeError: bad operand type for unary -: 'str'"),
        ("~price", "bad operand type for unary ~: 'float'"),
        ("name < 5", "'<' not supported between instances of 'str' and 'int'"),
        ("id >= None", "'>=' not supported between instances of 'int' and 'NoneType'"),
        ("item < item", "'<' not supported between instances of 'dict' and 'dict'"),
        ("1 in id", "argument of type 'int' is not iterable"),
        ("5 in name", "at column 1: TypeError: "),
        ("tags in {'a'}", "unhashable type: 'list'"),
        ("tags in props", "unhashable type: 'list'"),
        ("id[0]", "'int' object is not subscriptable"),
        ("tags['a']", "list indices must be integers or slices, not str"),
        ("tags[None]", "list indices must be integers or slices, not NoneType"),
        ("price[1:]", "'float' object cannot be sliced"),
        ("id / 0", "at column 1: ZeroDivisionError: division by zero"),
        ("id % config['n']", "ZeroDivisionError"),
        ("1 // 0", "ZeroDivisionError"),
        ("'ab'[7]", "IndexError"),
        ("[1][3]", "IndexError"),
        ("name.uper()", "'str' object has no attribute 'uper' (nearest: 'upper')"),
        ("name.upper", "'upper' is a method of str: call it"),
        ("id.upper()", "'int' object has no attribute 'upper'"),
        ("item.sku()", "the value under 'sku' is not callable"),
        ("None.x", "'NoneType' object has no attribute 'x'"),
        ("item.get()", "get expected 1 or 2 arguments, got 0"),
        ("item.get(key='sku')", "dict.get() takes no keyword arguments"),
        ("name.id", "'str' object has no attribute 'id'"),
        ("10 ** 5000000", "NumberTooHigh"),
        ("f'{prise}'", "unknown name 'prise'"),
        ("len(5)", "TypeError"),
    ],
)
def test_certain_mistakes(text: str, said: str) -> None:
    """One line: the setting, the position, what is wrong, and what may have been meant."""
    actual = message(text)
    assert said in actual
    assert actual.startswith("setting 'stream_maps.orders.total': at ")
    assert "\n" not in actual


@pytest.mark.parametrize(
    "text",
    [
        "1 + 'a' if id else 2",
        "id or 1 + 'a'",
        "id and name < 5",
        "1 < id < 'a'",
        "1 / 0 if id is None else id",
        "[1 / 0 for x in tags]",
        "any + 1",
        "any < 5",
        "any.x",
        "any['x'][0]",
        "any.get('x')",
        "any or id",
        "not any",
        "1 in any",
        "any in [1]",
        "any is None",
        "any == None",
        "-any",
        "any[1:]",
        "any[id]",
        "props[name]",
        "tags[any]",
        "record[name]",
        "record.get(name)",
        "record.keys()",
        "name % id",
        "tags + tags",
        "tags * 2",
        "item | item",
        "id ** price",
        "2 ** id",
        "id ** -1",
        "id << 2",
        "amount + 1",
        "amount < price",
        "-amount",
        "tags == tags",
        "tags[1:]",
        "id is 5",
        "id.real",
        "{1, id}",
        "[*tags, 'x']",
        "{**item}",
        "{name: 1}",
        "sum(x for x in [1, 2])",
        "list(tags)",
        "{'a': 1, 'A': id}",
        "(price or id) + 1",
        "(price or 0) * id",
        "price if id else id",
        "10 ** 30 + id",
        "json.dumps(record, indent=2)",
        "f'{id:{name}}'",
        "'%s' % id",
    ],
)
def test_what_only_some_records_meet_is_no_mistake(text: str) -> None:
    """Those are compiled, or left to the evaluator with a reason."""
    value = value_of(text, NAMES)
    assert value.column is not None or value.why


def test_an_absent_column_may_be_asked_for() -> None:
    """What is known not to be evaluated is not looked at."""
    assert value_of("record['nope'] if 'nope' in record else 1", NAMES).constant == 1
    assert value_of("'nope' in record and record['nope'] > 1", NAMES).constant is False
    assert value_of("'id' not in record or id", NAMES).source == ("id",)
    assert value_of("record.get('nope')", NAMES).constant is None


def test_constants_are_folded() -> None:
    """What is the same for every record is computed once; nothing of unbounded size is."""
    assert value_of("2 * 3 + 4 ** 2 - -1", NAMES).constant == 23
    assert value_of("'a' + config['salt']", NAMES).constant == "ax"
    assert value_of("'x' in config and config.n == 0", NAMES).constant is False
    assert value_of("1 < 2 < 3", NAMES).constant is True
    assert value_of("[1, 2][::-1]", NAMES).constant == [2, 1]
    assert "NumberTooHigh" in message("9 ** 999999")
    assert "IterableTooLong" in message("'%100000000d' % 1")
    assert value_of("__stream_name__ == 'orders'", NAMES).constant is True


def test_too_large_expressions_are_left() -> None:
    """Columns do not grow without bounds, however an expression nests."""
    deep = "id" + " + 1" * (MAX_COMPILED_DEPTH + 5)
    assert "as large as this" in value_of(deep, NAMES).why
    assert value_of("id" + " + 1" * 15, NAMES).column is not None
    nested = "id"
    for _ in range(12):
        nested = f"({nested} % 7)"
    assert "as large as this" in value_of(nested, NAMES).why


def test_the_deepest_expression_that_is_allowed() -> None:
    """Neither parsing nor compiling comes near the depth of Python's stack."""
    text = "(" * 40 + "id" + " + 1)" * 40
    assert parse(text, WHERE).text == text
    assert value_of("not " * 90 + "id", NAMES).why
