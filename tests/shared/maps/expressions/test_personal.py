"""Functions that hide personal data, in Python and as they are planned."""

from __future__ import annotations

import datetime
import hashlib
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T  # noqa: N812

from shared.errors import SettingsError, Where
from shared.maps.expressions import personal
from shared.maps.expressions.personal import hash_value, mask, redact, truncate
from shared.maps.expressions.planned import Planned, plan
from shared.maps.expressions.syntax import parse
from shared.maps.expressions.values import Names

WHERE = Where(setting="stream_maps.users.email")
STRUCT = T.StructType(
    [
        T.StructField("id", T.LongType()),
        T.StructField("s", T.StringType()),
        T.StructField("f", T.DoubleType()),
        T.StructField("o", T.StructType([T.StructField("k", T.StringType())])),
        T.StructField("other", T.StringType()),
    ]
)


def planning(text: str, **config: Any) -> Planned:
    return plan(parse(text, WHERE), Names(STRUCT, config, "users", "users"), WHERE)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("é", "é"),
        (12, "12"),
        (True, "true"),
        (False, "false"),
        (1.5, "1.5"),
        (Decimal("1.50"), "1.50"),
        ([1, "ä"], '[1,"ä"]'),
        ({"a": None}, '{"a":null}'),
        (datetime.date(2024, 1, 2), "2024-01-02"),
        (datetime.datetime(2024, 1, 2), "2024-01-02T00:00:00"),
        (datetime.timedelta(1), "1 day, 0:00:00"),
    ],
)
def test_text_of_values(value: Any, text: str) -> None:
    assert personal.text_of(value) == text
    assert hash_value(value, salt="s") == hashlib.sha256(f"s{text}".encode()).hexdigest()
    assert truncate(value, 100) == text
    assert redact(value, "[^\x00]+") == personal.REDACTED


def test_none_stays_none() -> None:
    assert hash_value(None, salt="s") is None
    assert mask(None) is None
    assert truncate(None, 1) is None
    assert redact(None) is None
    assert redact(None, "x") is None


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: mask("12345678"), "****5678"),
        (lambda: mask("1234"), "****"),
        (lambda: mask("123"), "***"),
        (lambda: mask(""), ""),
        (lambda: mask("abc", 0), "***"),
        (lambda: mask("abc", keep_last=1, char="#"), "##c"),
        (lambda: mask("😀😀é", 1), "**é"),
        (lambda: truncate("abc", 2), "ab"),
        (lambda: truncate("abc", 0), ""),
        (lambda: redact("x"), "[REDACTED]"),
        (lambda: redact("", replacement="-"), "-"),
        (lambda: redact("a1b22", "[0-9]+"), "a[REDACTED]b[REDACTED]"),
        (lambda: redact("a1b", "[0-9]", r"\0\1$1"), r"a\0\1$1b"),
        (lambda: redact("ÄÖ", "(?i)ä", ""), "Ö"),
        (lambda: redact("none here", "[0-9]"), "none here"),
    ],
)
def test_hiding(call: Any, expected: str) -> None:
    assert call() == expected


@pytest.mark.parametrize(
    "call",
    [
        lambda: hash_value("x"),
        lambda: hash_value("x", salt=""),
        lambda: hash_value("x", salt=5),
        lambda: hash_value(None),
        lambda: hash_value("x", salt="s", algorithm="md5"),
        lambda: hash_value("x", salt="s", algorithm="SHA256"),
        lambda: hash_value("x", salt="s", algorithm=["sha256"]),
        lambda: mask("x", -1),
        lambda: mask("x", True),
        lambda: mask("x", 1.0),
        lambda: mask("x", 1, ""),
        lambda: mask("x", 1, "ab"),
        lambda: mask("x", 1, 7),
        lambda: truncate("x", -1),
        lambda: truncate("x", "1"),
        lambda: truncate("x", 2**31),
        lambda: redact("x", 5),
        lambda: redact("x", "("),
        lambda: redact("x", "y*"),
        lambda: redact("x", "(?=y)"),
        lambda: redact("x", "y", None),
        lambda: redact("x", "y" * 1001),
        lambda: redact("x", "y", "z" * 1001),
        lambda: hash_value(object(), salt="s"),
        lambda: mask({1, 2}),
    ],
)
def test_wrong_options(call: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        call()


@settings(deadline=None)
@given(st.text(), st.integers(0, 10))
def test_mask_keeps_length_and_shows_no_more_than_it_says(text: str, keep: int) -> None:
    actual = mask(text, keep, "\x00")
    assert actual is not None
    assert len(actual) == len(text)
    shown = actual.lstrip("\x00") if "\x00" not in text else ""
    assert len(shown) <= keep
    assert text.endswith(shown)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(min_size=1, max_size=5))
def test_hash_is_that_of_salt_and_text(text: str, salt: str) -> None:
    try:
        data = (salt + text).encode()
    except UnicodeEncodeError:
        return
    for name in personal.ALGORITHMS:
        assert hash_value(text, salt=salt, algorithm=name) == hashlib.new(name, data).hexdigest()


def test_salted_takes_that_of_the_settings_unless_one_is_given() -> None:
    salted = personal.Salted("a")
    assert salted("x") == hash_value("x", salt="a")
    assert salted("x", "b") == salted("x", salt="b") == hash_value("x", salt="b")
    assert salted("x", algorithm="sha512") == hash_value("x", "a", "sha512")
    with pytest.raises(TypeError):
        personal.Salted(None)("x")


@pytest.mark.parametrize(
    "text", ["hash_value(s)", "hash_value(id, algorithm='sha512')", "mask(s)", "redact(s, 'x')"]
)
def test_compiled_where_spark_has_the_text(text: str) -> None:
    actual = planning(text, hash_salt="pepper")
    assert not actual.in_python
    assert actual.data_type == T.StringType()


@pytest.mark.parametrize(
    "text", ["hash_value(f)", "mask(o)", "truncate(s, id)", "redact(s, other)", "mask(s, char=s)"]
)
def test_left_to_python_where_it_has_not(text: str) -> None:
    actual = planning(text, hash_salt="pepper")
    assert actual.in_python
    assert actual.why
    assert actual.data_type == T.StringType()


@pytest.mark.parametrize(
    "text",
    ["hash_value(s)", "'x' + hash_value(s)", "[hash_value(x) for x in [s]]", "hash_value(f)"],
)
@pytest.mark.parametrize("config", [{}, {"hash_salt": ""}, {"hash_salt": 5}, {"hash_salt": None}])
def test_missing_salt_is_told_before_any_record(text: str, config: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"at column \d+: hash_value\(\) needs a salt") as error:
        planning(text, **config)
    assert error.value.where == WHERE
    assert "stream_map_config.hash_salt" in str(error.value)


def test_a_salt_in_the_expression_needs_none_in_the_settings() -> None:
    assert not planning("hash_value(s, salt='x')").in_python
    assert not planning("hash_value(s, config['mine'])", mine="y").in_python


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hash_value(s, salt='')", "salt that is not empty"),
        ("hash_value(s, salt='x', algorithm='md5')", "sha224, sha256, sha384, sha512"),
        ("hash_value()", r"hash_value\(\) missing a required argument: 'value'"),
        ("mask(s, -1)", "not negative"),
        ("mask(s, 1, 'ab')", "one character"),
        ("mask(s, 1, '*', 5)", "too many positional arguments"),
        ("mask(s, value=s)", "multiple values for argument 'value'"),
        ("mask(s, keep=1)", "unexpected keyword argument 'keep'"),
        ("truncate(s)", r"truncate\(\) missing a required argument: 'length'"),
        ("truncate(s, '3')", "needs an integer"),
        ("redact(s, '(')", "does not understand the pattern"),
        ("redact(s, 'x*')", "does not match the empty text"),
    ],
)
def test_wrong_options_are_told_before_any_record(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as error:
        planning(text, hash_salt="pepper")
    assert error.value.where == WHERE
