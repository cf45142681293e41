"""Methods of text, against Python's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from comparing import EACH_SHARE, WHERE, differences_of_share, differences_without_spark
from pyspark.sql.types import LongType, StringType, StructField, StructType
from sdk_records import NAMES

from shared.errors import SettingsError
from shared.maps.expressions.planned import plan
from shared.maps.expressions.syntax import parse
from shared.maps.expressions.values import Names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTS = [None, "", "a", "aa", ",", " ", "\t", "Σ", "ß", "😀", "\u0301", "ab", "-", "$1", "\\", "."]
DDL = "s string, p string, n long"
STRUCT = StructType(
    [StructField("s", StringType()), StructField("p", StringType()), StructField("n", LongType())]
)

PLAIN = "capitalize isdigit isdecimal isnumeric isspace isalpha isalnum isascii"
WITH_TEXT = "removeprefix removesuffix find rfind index rindex count"
COMPILED = [
    *(f"s.{name}()" for name in ("lower", "upper", "strip", "lstrip", "rstrip")),
    *(f"s.{name}({part})" for name in ("startswith", "endswith") for part in ("p", "'a'", "''")),
    *(f"s.{name}(p)" for name in ("strip", "lstrip", "rstrip")),
    *(f"s.{name}(' a,')" for name in ("strip", "lstrip", "rstrip")),
    "s.strip(None)",
    "s.replace('a', p)",
    "s.replace('aa', '$1')",
    "s.replace('.', '\\\\')",
    "s.split()",
    "s.split(None)",
    "s.split(',')",
    "s.split('.')",
    "s.split('aa')",
    "s.split('\\\\')",
    "s.split('$')",
    "s.split('[')",
    "s.split(' ')",
    "s.split('a', 0)",
    "s.split('a', 1)",
    "s.split('a', maxsplit=2)",
    "s.split(sep=',')",
    "s.split(',', -1)",
    "'abc'.upper()",
    "'a,b'.split(',')[0]",
]
EVALUATED = [
    *(f"s.{name}()" for name in PLAIN.split()),
    *(f"s.{name}({part})" for name in WITH_TEXT.split() for part in ("p", "'a'", "''")),
    "','.join(s.split('a'))",
    "''.join(s.split())",
    *(f"s.{name}(0)" for name in ("zfill", "ljust", "rjust", "center")),
    *(f"s.{name}(-3)" for name in ("zfill", "ljust", "rjust", "center")),
    *(f"s.{name}(9)" for name in ("zfill", "ljust", "rjust", "center")),
    *(f"s.{name}(10, '😀')" for name in ("ljust", "rjust", "center")),
    "s.zfill(True)",
    "s.title()",
    "s.swapcase()",
    "s.casefold()",
    "s.replace(p, 'x')",
    "s.replace('', 'x')",
    "s.replace('a', 'b', 1)",
    "s.split(p)",
    "s.split(None, 1)",
    "s.split('a', n)",
    "s.rsplit('a', 1)",
    "s.partition('a')",
    "s.splitlines()",
    "s.find('a', 2)",
    "s.startswith(('a', 'b'))",
    "s.startswith('a', 1)",
    "p.join(s.split('a'))",
    "s.zfill(n)",
    "s.ljust(5, p)",
    "s.islower()",
    "s.isupper()",
    "s.istitle()",
    "s.expandtabs()",
]


def said_by_python(method: str, *args: str, **keywords: str) -> str:
    """Return Python's error for a wrong call of a method, which differs between versions."""
    with pytest.raises(TypeError) as caught:
        getattr("x", method)(*args, **keywords)
    return str(caught.value)


REFUSED = {
    "s.lower(1)": "takes no arguments (1 given)",
    "s.replace('a')": said_by_python("replace", "a"),
    "s.replace('a', 1)": "must be str, not int",
    "s.startswith(1)": "must be str or a tuple of str, not int",
    "s.strip(1)": "arg must be None or str",
    "s.split('')": "empty separator",
    "s.split(1)": "must be str or None",
    "s.split(separator=',')": said_by_python("split", separator=","),
    "s.zfill('9')": "cannot be interpreted as an integer",
    "s.ljust(9, 'ab')": "exactly one character",
    "','.join(n)": "can only join an iterable",
    "'a'.index('b')": "substring not found",
    "s.no_such_method()": "no_such_method",
    "n.lower()": "lower",
}


def planned(text: str):
    return plan(parse(text, WHERE), Names(STRUCT), WHERE)


def test_what_is_compiled():
    assert [text for text in COMPILED if planned(text).in_python] == []
    assert [text for text in EVALUATED if not planned(text).in_python] == []


def test_the_reason_names_the_method():
    assert "str.replace()" in planned("s.replace(p, 'x')").why
    assert "str.zfill()" in planned("s.zfill(n)").why


@pytest.mark.parametrize(("text", "said"), REFUSED.items())
def test_what_fails_for_every_record_is_refused_with_its_place(text, said):
    with pytest.raises(SettingsError, match="at column") as refused:
        planned(text)
    assert said in str(refused.value)


def text_rows() -> list[dict[str, object]]:
    return [
        {"s": name, "p": PARTS[(at + turn * 5) % len(PARTS)], "n": at % 7 - 2}
        for turn in range(3)
        for at, name in enumerate(NAMES)
    ]


def test_methods_without_spark_are_as_in_python():
    assert differences_without_spark(STRUCT, [*COMPILED, *EVALUATED], text_rows()) == []


@pytest.mark.spark
@EACH_SHARE
def test_methods_are_as_in_python(spark: SparkSession, share: int):
    actual = differences_of_share(spark, DDL, [*COMPILED, *EVALUATED], text_rows(), share)
    assert not actual, "\n".join(actual)
