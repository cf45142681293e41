"""Names of tables as users write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tap_spark.sources.tables import joined_name, name_parts, warn_of_unmatched
from tap_spark.stream_config import ConnectionConfig


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("t", ("t",)),
        ("public.t", ("public", "t")),
        (" public . t ", ("public", "t")),
        ('sales."Order.Lines"', ("sales", "Order.Lines")),
        ('"say ""hi"""', ('say "hi"',)),
        ("`a``b`.c", ("a`b", "c")),
        ("[a]]b].[c d]", ("a]b", "c d")),
        ("naïve.données", ("naïve", "données")),
        ("a.b.c", ("a", "b", "c")),
    ],
)
def test_parts(text: str, parts: tuple[str, ...]) -> None:
    assert name_parts(text) == parts


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a b", 'a"b', '"a', "a..b", "''; x", '""'])
def test_no_names(text: str) -> None:
    with pytest.raises(ValueError, match="is not a table name"):
        name_parts(text)


@given(
    st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=3), st.sampled_from(['"', "`"])
)
def test_joined_names_can_be_split(parts: list[str], quote: str) -> None:
    assert name_parts(joined_name(parts, quote)) == tuple(parts)


def test_plain_names_stay_plain() -> None:
    assert joined_name(["public", "Order Lines"]) == 'public."Order Lines"'
    assert joined_name(["a", "b"], "`") == "a.b"


def test_patterns_that_no_table_matches(caplog: pytest.LogCaptureFixture) -> None:
    config = ConnectionConfig("shop", include=("*",), exclude=("salaries", "tmp_*", "or*"))
    warn_of_unmatched(config, ["Salaries", "orders"])
    assert caplog.messages == [
        "connection 'shop': no table matches 'salaries' of 'exclude' (did you mean 'Salaries'?)",
        "connection 'shop': no table matches 'tmp_*' of 'exclude'",
    ]
