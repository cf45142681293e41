"""Slices, indices, repeats and f-strings, against Python itself."""

from __future__ import annotations

import ast
import itertools
from typing import TYPE_CHECKING

import pytest
from comparing import (
    EACH_SHARE,
    WHERE,
    by_python,
    differences,
    differences_of_share,
    differences_without_spark,
    framed,
)
from pyspark.sql.types import StructType

from shared.maps.expressions import scalars
from shared.maps.expressions.columns import compiled
from shared.maps.expressions.operators import binary, contained
from shared.maps.expressions.planned import plan
from shared.maps.expressions.syntax import parse
from shared.maps.expressions.value_kinds import ANY, BOOL, FLOAT, INT, NONE, STR
from shared.maps.expressions.values import Fails, Names, Value, constant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = [None, "", "a", "ab", "Ab cd", "😀é\u0301𐐀z", "--7", "x" * 40]
INTEGERS = [None, 0, 1, -1, 2, -2, 3, -4, 7, 41, -41, 2**31, -(2**31), 2**63 - 1, -(2**63)]
DDL = "s string, i long, j long, b boolean"
STRUCT = StructType().add("s", "string").add("i", "long").add("j", "long").add("b", "boolean")
BOUNDS = ["", "0", "1", "2", "-1", "-3", "40", "-40", "3000000000", "-3000000000", "i"]
SPECS = ["d", "5", "05", "05d", "+", "+06d", " d", "-d", ",", "_", ",d", "12,", ">8", "<8", "^8"]
SPECS += ["*>8", "0<6", "^9d", "+,", "x^+9,d", "1", "030"]
TEXT_SPECS = ["s", "6", "6s", ".0", ".2", ">6", "<6", "^6", "^7", "*^7.1s", "-<9", "{<5", ".9"]


def values() -> list[dict[str, object]]:
    pairs = itertools.product(TEXTS, INTEGERS)
    return [
        {"s": text, "i": i, "j": INTEGERS[at * 7 % len(INTEGERS)], "b": [None, True, False][at % 3]}
        for at, (text, i) in enumerate(pairs)
    ]


def slices() -> list[str]:
    bounds = list(itertools.product(BOUNDS, BOUNDS))
    # One of four, and all with a bound that is a column.
    chosen = [pair for at, pair in enumerate(bounds) if at % 4 == 0 or pair[0] == "i"]
    expressions = [f"s[{low}:{high}]" for low, high in chosen]
    expressions += ["s[i:j]", "s[b:]", "s[:b]", "s[::-1]", "s[::1]", "s[::2]", "s[1:4:2]", "s[::i]"]
    return expressions


def formats() -> list[str]:
    expressions = [f"f'{{i:{spec}}}'" for spec in SPECS]
    expressions += [f"f'{{s:{spec}}}'" for spec in TEXT_SPECS if "{" not in spec]
    expressions += ["f'{s}{i}{b}'", "f'{b:d}'", "f'{{}}{s}'", "f''", "f'a{1}b{None}c{True}'"]
    expressions += ["f'{i:5x}'", "f'{i:,x}'", "f'{s:d}'", "f'{i:s}'", "f'{s:05}'", "f'{s:,}'"]
    return expressions


@pytest.mark.parametrize("expressions", [slices(), formats()], ids=["slices", "formats"])
def test_texts_without_spark_are_as_in_python(expressions: list[str]):
    assert differences_without_spark(STRUCT, expressions, values()) == []


@pytest.mark.spark
@pytest.mark.parametrize("expressions", [slices(), formats()], ids=["slices", "formats"])
@EACH_SHARE
def test_texts_are_as_in_python(spark: SparkSession, expressions: list[str], share: int):
    actual = differences_of_share(spark, DDL, expressions, values(), share)
    assert not actual, "\n".join(actual)


@pytest.mark.spark
def test_operators_and_indices_are_as_in_python(spark: SparkSession):
    # Longer texts than simpleeval makes are an error, here and there.
    every = [record for record in values() if record["i"] is None or abs(int(record["i"])) < 2**31]
    expressions = [f"s[{at}]" for at in ("0", "1", "-1", "-2", "39", "-40", "i", "b", "2**31")]
    expressions += [
        "s + s",
        "s + '!'",
        "'<' + s + '>'",
        "s * 0",
        "s * 3",
        "3 * s",
        "s * b",
        "b * s",
    ]
    expressions += ["s * i", "'' in s", "'b' in s", "'😀' in s", "s in 'xAb cd'", "s not in s"]
    actual = differences(framed(spark, every, DDL), expressions, every, by_python)
    assert not actual, "\n".join(actual)


@pytest.mark.spark
def test_too_long_a_repeat_is_an_error_and_takes_no_memory(spark: SparkSession):
    from pyspark.sql import functions as F  # noqa: N812

    row = spark.createDataFrame([("ab", 2**62), ("", 2**62), ("ab", 50_000)], "s string, i long")
    value = plan(parse("s * i", WHERE), Names(row.schema), WHERE)
    sizes = F.length(value.value()).alias("n"), value.error().alias("e")
    first, empty, long = row.select(*sizes).collect()
    assert first.e.startswith("IterableTooLong")
    assert (empty.n, empty.e) == (0, None)
    assert (long.n, long.e) == (100_000, None)


def of(text: str) -> Value:
    struct = StructType().add("f", "double").add("i", "long").add("s", "string")
    return compiled(parse(text, WHERE), Names(struct), WHERE)[0]


def test_texts_of_known_values_are_known():
    assert of("f'a{1}b{None}{True}{1.5}'").constant == "a1bNoneTrue1.5"
    assert scalars.text_of(constant(1e16)).constant == "1e+16"
    assert scalars.text_of(constant("x")).constant == "x"


def column() -> object:
    raise AssertionError("no column is made while expressions are compiled")


def test_what_only_the_evaluator_knows():
    assert scalars.text_of(Value(FLOAT, column)).column is None
    assert "float" in scalars.text_of(Value(FLOAT, column)).why
    spec = of("f'{f:.2f}'")
    assert spec.column is None and "format of float" in spec.why
    assert of("f'{i:5}'").column is None
    assert of("f'{s:5}'").column is None
    step = scalars.sliced(Value(STR, column), ends(None, None, 2))
    assert step.column is None and "step" in step.why
    assert scalars.index(Value(STR, column), Value(ANY, column)).column is None


@pytest.mark.parametrize("conversion", "rsa")
def test_conversions_change_nothing(conversion):
    text = parse(f"f\"{{'x'!{conversion}}}\"", WHERE)
    assert compiled(text, Names(StructType()), WHERE)[0].constant == "x"


def ends(*existing: object) -> list[Value]:
    return [constant(end) for end in existing]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: scalars.index(Value(STR, column), Value(STR, column)), "string indices"),
        (lambda: contained(Value(INT, column), Value(STR, column)), "requires string"),
        (
            lambda: scalars.sliced(Value(STR, column), [Value(STR, column), *ends(None, None)]),
            "slice indices",
        ),
        (lambda: scalars.sliced(Value(STR, column), ends(None, None, 0)), "cannot be zero"),
    ],
)
def test_what_fails_for_every_record(make, text):
    with pytest.raises(Fails, match=text):
        make()


def test_nothing_that_may_be_none_goes_unchecked():
    nullable, never = Value(STR.or_none(), column), Value(STR, column)
    assert binary(ast.Add(), never, never).error is None
    assert binary(ast.Add(), nullable, never).error is not None
    assert contained(never, nullable).error is not None
    assert scalars.sliced(never, ends(1, None, None)).error is None
    assert scalars.sliced(nullable, ends(1, None, None)).error is not None
    assert scalars.index(never, constant(1)).error is not None
    assert scalars.text_of(nullable).error is None
    assert scalars.text_of(nullable).kind == STR


def test_kinds():
    text, number = Value(STR.or_none(), column), Value(INT.or_none(), column)
    assert binary(ast.Add(), text, text).kind == STR
    assert binary(ast.Mult(), text, number).kind == STR
    assert binary(ast.Mult(), number, text).kind == STR
    assert contained(text, text).kind == BOOL
    assert scalars.text_of(Value(NONE, column)).kind == STR
