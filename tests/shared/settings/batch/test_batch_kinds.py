"""The kinds of value."""

from __future__ import annotations

import pytest
from batch_documents import calm
from hypothesis import given
from hypothesis import strategies as st

from shared.settings.checking import (
    Problem,
    is_number,
    is_whole,
    read,
    redacted,
    schema_problems,
    shown_setting,
)
from shared.settings.kinds import (
    DURATION,
    FLAG,
    LOCATION,
    OPTIONS,
    PREFIX,
    SIZE,
    WORD,
    choice,
    count,
    in_properties,
    listing,
)

CHOICE = choice(("fixed_size", "time_window"))
WORDS = listing(WORD, "words")
ROOTS = listing(LOCATION, "roots", shortest=1)
HUGE = 10**5000
NAN = float("nan")
INFINITY = float("inf")


def faults(kind, value) -> list[Problem]:
    return list(schema_problems(kind, value))


def numbered(value):
    """Return the name of a case without its value: pytest cannot write enormous numbers."""
    return type(value).__name__


RIGHT = [
    (count(), 1, 1),
    (count(), 100, 100),
    (count(), 100.0, 100),
    (count(), 2**63 - 1, 2**63 - 1),
    (count(1000), 1000, 1000),
    (in_properties(count()), "100", 100),
    (in_properties(count()), " 7 ", 7),
    (in_properties(count()), 7, 7),
    (FLAG, True, True),
    (FLAG, False, False),
    (in_properties(FLAG), "true", True),
    (in_properties(FLAG), "False", False),
    (in_properties(FLAG), " TRUE ", True),
    (in_properties(FLAG), False, False),
    (DURATION, 1, 0.001),
    (DURATION, 1500, 1.5),
    (DURATION, 1500.5, 1.5005),
    (DURATION, "1.5s", 1.5),
    (DURATION, "5 minutes", 300.0),
    (DURATION, "250", 0.25),
    (DURATION, "365d", 31_536_000.0),
    (in_properties(DURATION), "5 minutes", 300.0),
    (SIZE, 1, 1),
    (SIZE, 5.0, 5),
    (SIZE, "1 MiB", 1048576),
    (SIZE, "1048576 TiB", 2**60),
    (CHOICE, "fixed_size", "fixed_size"),
    (LOCATION, "out", "out"),
    (LOCATION, ".", "."),
    (LOCATION, "/", "/"),
    (LOCATION, "a b/c d", "a b/c d"),
    (LOCATION, "../out", "../out"),
    (LOCATION, "C:\\data", "C:\\data"),
    (LOCATION, "s3://bucket/a", "s3://bucket/a"),
    (LOCATION, "file:///", "file:///"),
    (LOCATION, "http://host:8080/a@2x", "http://host:8080/a@2x"),
    (LOCATION, "http://host:8080", "http://host:8080"),
    (LOCATION, "abfs://box@account.net/x", "abfs://box@account.net/x"),
    (LOCATION, "simplecache::s3://bucket/a", "simplecache::s3://bucket/a"),
    (PREFIX, "", ""),
    (PREFIX, "a-", "a-"),
    (PREFIX, "a/b-", "a/b-"),
    (PREFIX, "..a", "..a"),
    (PREFIX, "a..", "a.."),
    (WORDS, [], ()),
    (WORDS, ["a", "b*"], ("a", "b*")),
    (ROOTS, ["a"], ("a",)),
    (OPTIONS, {}, {}),
    (OPTIONS, {"a": {"b": [1]}}, {"a": {"b": [1]}}),
]

WRONG = [
    *((count(), value) for value in (0, -1, 2**63, HUGE, -HUGE, 1.5, NAN, INFINITY, 1e30)),
    *((count(), value) for value in (True, False, None, "1", "", [], {}, [1])),
    (count(1000), 1001),
    *((in_properties(count()), value) for value in ("0", "-1", "1.0", "x", "", "1 2", True)),
    *((in_properties(count()), value) for value in ("9" * 19, "9" * 30, "1\n")),
    *((FLAG, value) for value in (0, 1, None, "true", "yes", "", [], {})),
    *((in_properties(FLAG), value) for value in ("yes", "1", "", "tru", 1, 0, None)),
    *((DURATION, value) for value in (0, -1, 0.5, NAN, INFINITY, -INFINITY, HUGE, -HUGE)),
    *((DURATION, value) for value in (True, None, [], {}, "", "0", "0s", "0.5ms", "-1s")),
    *((DURATION, value) for value in ("366d", "9" * 400 + "d", 31_536_000_001, "5 parsecs")),
    *((SIZE, value) for value in (0, -1, 1.5, True, None, [], "0", "0.5B", HUGE, NAN, INFINITY)),
    *((SIZE, value) for value in (2**60 + 1, "1048577 TiB", "9" * 500, "5 Mb")),
    *((CHOICE, value) for value in ("Fixed_Size", "fixed-size", "", None, 1, True, [], {})),
    *((LOCATION, value) for value in ("", " ", " a", "a ", "a\n", "a\nb", "a\x00", "\x7f")),
    *((LOCATION, value) for value in ("s3://", "://x", None, 1, True, [], {})),
    *((LOCATION, value) for value in ("s3://k:pw@b", "s3://k:p/w@b/x", "ftp://u:@h/x")),
    *((PREFIX, value) for value in ("/a", "..", "../a", "a/../b", "a/..", "a\\b", "a\n", "\t")),
    *((PREFIX, value) for value in (None, 1, [])),
    *((WORDS, value) for value in (None, "a", {}, 1, [""], ["a", ""], [1], [None])),
    *((ROOTS, value) for value in ([], [""], ["s3://k:p@b"], "a")),
    *((OPTIONS, value) for value in (None, "a", [], 1, {1: 2})),
]


@pytest.mark.parametrize(("kind", "value", "expected"), RIGHT, ids=numbered)
def test_reads_a_right_value(kind, value, expected):
    assert faults(kind, value) == []
    result = read(kind, value)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(("kind", "value"), WRONG, ids=numbered)
def test_refuses_a_wrong_value(kind, value):
    actual = faults(kind, value)
    assert actual
    for fault in actual:
        assert fault.allowed
        assert len(fault.value) < 100
        assert "\n" not in fault.value


def test_each_wrong_item_of_a_list_is_a_fault():
    actual = faults(WORDS, ["a", "", 3, "b", None])
    assert [fault.path for fault in actual] == [(1,), (2,), (4,)]
    assert [fault.value for fault in actual] == ["''", "3", "null"]


@pytest.mark.parametrize(
    ("value", "near"),
    [
        ("fixed-size", "fixed_size"),
        ("FixedSize", "fixed_size"),
        ("FIXED_SIZE", "fixed_size"),
        ("fixd_size", "fixed_size"),
        ("timewindow", "time_window"),
        ("banana", None),
        (3, None),
    ],
)
def test_names_the_nearest_choice(value, near):
    assert faults(CHOICE, value)[0].nearest == near


@pytest.mark.parametrize(
    ("value", "text"),
    ids=numbered,
    argvalues=[
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (1, "1"),
        (-1.5, "-1.5"),
        (NAN, "nan"),
        ("a", "'a'"),
        ("a\nb", "'a\\nb'"),
        ([1], "a list"),
        ({"a": 1}, "an object"),
        (HUGE, "an enormous number"),
        ("x" * 100, "'" + "x" * 59 + "..."),
        ("s3://key:se/cret@bucket/x", "'s3://***@bucket/x'"),
        ("https://host/x?sig=secret", "'https://host/x?***'"),
    ],
)
def test_shows_a_value_briefly_and_without_secrets(value, text):
    assert shown_setting(value) == text


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("out?x", "out?x"),
        ("s3://bucket/x", "s3://bucket/x"),
        ("http://host:8080/a@2x", "http://host:8080/a@2x"),
        ("s3://a:b@c", "s3://***@c"),
        ("s3://a:b@c@d", "s3://***@d"),
        ("https://h/?a=b", "https://h/?***"),
    ],
)
def test_redacts_a_url(url, text):
    assert redacted(url) == text


@calm
@given(st.text(alphabet=st.characters(exclude_characters="@ \n?"), min_size=1, max_size=20))
def test_no_password_of_a_url_is_shown(password):
    text = shown_setting(f"s3://user:{password}x@bucket/path")
    if not password[0].isdigit():
        assert text == "'s3://***@bucket/path'"


@pytest.mark.parametrize(
    ("value", "whole", "number"),
    ids=numbered,
    argvalues=[
        (1, True, True),
        (1.0, True, True),
        (1.5, False, True),
        (True, False, False),
        (NAN, False, False),
        (INFINITY, False, False),
        ("1", False, False),
        (None, False, False),
        (HUGE, True, True),
    ],
)
def test_tells_numbers_from_other_values(value, whole, number):
    assert is_whole(value) is whole
    assert is_number(value) is number


def test_an_options_value_is_never_shown():
    (fault,) = faults(OPTIONS, "AKIASECRET")
    assert "AKIASECRET" not in repr(fault)
    assert fault.value == "the value (hidden)"


def test_kinds_without_another_spelling_stay_as_they_are():
    for kind in (CHOICE, LOCATION, DURATION, SIZE):
        assert in_properties(kind) is kind
