"""Names made legal: never two the same, never another one in a later run."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from target_spark.tables.table_changes import (
    NameRules,
    assign_names,
    legal_name,
    matched_names,
)

STYLES = ("keep", "clean", "lower", "upper", "snake")
PG = NameRules(max_bytes=63)
DELTA = NameRules(forbidden=" ,;{}()\n\t=", ignore_case=True, max_bytes=255)


def legal_names(names: list[str], rules: NameRules, renamed: dict[str, str]) -> dict[str, str]:
    return dict(assign_names({name: name for name in names}, rules, renamed))


def legal(name: str, style: str = "keep", **rules: object) -> str:
    return legal_names([name], NameRules(style, **rules), {})[name]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("style", "name", "expected"),
    [
        ("keep", "Order Total ($)", "Order Total ($)"),
        ("keep", "1st", "1st"),
        ("keep", "a.b", "a.b"),
        ("keep", "", "_"),
        ("clean", "Order Total ($)", "Order_Total"),
        ("clean", "a.b", "a_b"),
        ("clean", "$ref", "ref"),
        ("clean", "_id", "_id"),
        ("clean", "1st", "_1st"),
        ("clean", "Größe", "Größe"),
        ("clean", "$", "_"),
        ("lower", "OrderTotal", "ordertotal"),
        ("lower", "2 B", "_2_b"),
        ("upper", "orderTotal", "ORDERTOTAL"),
        ("snake", "orderTotal", "order_total"),
        ("snake", "HTTPServerName", "http_server_name"),
        ("snake", "userID2", "user_id2"),
        ("snake", "order-total", "order_total"),
        ("snake", "order_total", "order_total"),
    ],
)
def test_each_style_has_its_way(style: str, name: str, expected: str) -> None:
    assert legal(name, style) == expected


def test_forbidden_characters_become_an_underscore() -> None:
    assert legal("a b;c", forbidden=" ;") == "a_b_c"
    assert legal("a.b", forbidden=" ;") == "a.b"
    assert legal("a ", last=" ") == "a _"


def test_reserved_words_get_an_underscore_whatever_their_case() -> None:
    reserved = frozenset({"select", "select_"})
    assert legal("Select", reserved=reserved) == "Select__"
    assert legal("selected", reserved=reserved) == "selected"


@pytest.mark.parametrize("style", STYLES)
def test_record_metadata_keeps_its_names(style: str) -> None:
    assert legal("_sdc_extracted_at", style, forbidden="_") == "_sdc_extracted_at"
    names = legal_names(["_SDC_EXTRACTED_AT", "_sdc_extracted_at"], NameRules(style), {})
    assert names["_sdc_extracted_at"] == "_sdc_extracted_at" != names["_SDC_EXTRACTED_AT"]


def test_long_names_are_cut_by_bytes_between_characters() -> None:
    name = "ü" * 40
    created = legal(name, max_bytes=63)
    assert len(created.encode()) <= 63
    assert created.startswith("ü" * 27 + "_")
    assert legal("ü" * 31, max_bytes=63) == "ü" * 31
    both = legal_names([name, name + "x"], PG, {})
    assert len(set(both.values())) == 2


def test_the_one_that_was_legal_keeps_its_name() -> None:
    names = legal_names(["a b", "a$b", "a_b"], NameRules("clean"), {})
    assert names["a_b"] == "a_b"
    assert names["a b"].startswith("a_b_") and names["a$b"].startswith("a_b_")
    assert names["a b"] != names["a$b"]


def test_where_none_was_legal_all_get_a_digest() -> None:
    names = legal_names(["a b", "a$b"], NameRules("clean"), {})
    assert "a_b" not in names.values() and len(set(names.values())) == 2


def test_names_that_differ_by_case_only() -> None:
    rules = NameRules(ignore_case=True)
    names = legal_names(["ID", "Id", "id"], rules, {})
    assert names["id"] == "id"
    assert len({name.lower() for name in names.values()}) == 3
    assert legal_names(["ID", "Id"], rules, {})["ID"] == "ID"
    assert legal_names(["ID", "id"], NameRules(), {}) == {"ID": "ID", "id": "id"}


def test_a_known_name_wins_over_the_one_that_is_legal() -> None:
    names = legal_names(["a_b", "a b"], NameRules("clean"), {"a b": "a_b"})
    assert names["a b"] == "a_b"
    assert names["a_b"].startswith("a_b_")


def test_a_known_name_of_a_column_that_does_not_come_is_not_given_away() -> None:
    assert legal_names(["a_b"], NameRules("clean"), {"a b": "a_b"})["a_b"] != "a_b"


def test_a_digest_has_the_case_of_the_style() -> None:
    names = legal_names(["a b", "a$b"], NameRules("upper"), {})
    assert all(name == name.upper() for name in names.values())


def test_tables_by_the_same_rules() -> None:
    assert legal_name("public-Orders", NameRules("lower")) == "public_orders"
    assert len(legal_name("x" * 100, PG)) == 63


# Tables made by others.


def test_equal_names_are_matched_before_similar_ones() -> None:
    rules = NameRules(ignore_case=True)
    assert matched_names(["id", "ID"], ["ID"], rules, {})["ID"] == "ID"
    assert matched_names(["id"], ["x", "ID"], rules, {}) == {"id": "ID"}
    assert matched_names(["id"], ["ID"], NameRules(), {}) == {"id": "id"}


def test_cleaned_names_are_matched_with_the_spelling_of_the_table() -> None:
    rules = NameRules("snake", ignore_case=True)
    assert matched_names(["orderTotal"], ["Order_Total"], rules, {}) == {
        "orderTotal": "Order_Total"
    }
    assert matched_names(["orderTotal"], ["ordertotal"], rules, {}) == {"orderTotal": "ordertotal"}
    assert matched_names(["orderTotal"], ["orderTotal"], rules, {}) == {"orderTotal": "orderTotal"}


def test_a_column_is_matched_once() -> None:
    rules = NameRules(ignore_case=True)
    names = matched_names(["ID", "Id"], ["id"], rules, {})
    assert sorted(map(len, names.values())) == [2, 11]
    assert matched_names(["x"], ["x"], rules, {"y": "x"})["x"] != "x"


def test_columns_of_our_tables_belong_to_the_names_they_have() -> None:
    rules = NameRules(ignore_case=True)
    assert matched_names(["id"], ["Id"], rules, {}, ours=True)["id"] != "Id"
    assert matched_names(["Id"], ["Id"], rules, {}, ours=True)["Id"] == "Id"


# For any names.

ANY_RULES = st.builds(
    NameRules,
    style=st.sampled_from(STYLES),
    max_bytes=st.sampled_from([None, 30, 63]),
    forbidden=st.sampled_from(["", " ,;{}()\n\t=", ".$"]),
    reserved=st.sampled_from([frozenset(), frozenset({"a", "ab", "select", "_"})]),
    ignore_case=st.booleans(),
)
NAMES = st.lists(
    st.one_of(
        st.text(alphabet="aAbB_. $1ß", max_size=5),
        st.text(max_size=8),
        st.sampled_from(["select", "_sdc_x", "_SDC_x", "a" * 80, "A" * 80, "é" * 40]),
        st.sampled_from(["\u0130", "\u0131", "\u212a", "\ufb01"]),
    ),
    unique=True,
    max_size=9,
)


@given(NAMES, ANY_RULES)
def test_no_two_names_become_the_same(names: list[str], rules: NameRules) -> None:
    created = legal_names(names, rules, {})
    assert list(created) == names
    assert len({rules.fold(name) for name in created.values()}) == len(names)


@given(NAMES, ANY_RULES)
def test_made_names_are_legal(names: list[str], rules: NameRules) -> None:
    for created in legal_names(names, rules, {}).values():
        if created.startswith("_sdc_"):
            continue
        assert created and not set(created) & set(rules.forbidden) - {"_"}
        assert (
            rules.max_bytes is None
            or len(created.encode("utf-8", "surrogatepass")) <= rules.max_bytes
        )
        assert created.lower() not in rules.reserved
        assert rules.style == "keep" or not created[0].isdigit()


@given(NAMES, ANY_RULES)
def test_legal_names_stay(names: list[str], rules: NameRules) -> None:
    created = list(legal_names(names, rules, {}).values())
    assert legal_names(created, rules, {}) == {name: name for name in created}
    assert all(legal_name(name, rules) == name for name in created)


@given(NAMES, ANY_RULES, st.randoms())
def test_the_order_of_arrival_does_not_matter(
    names: list[str], rules: NameRules, chance: random.Random
) -> None:
    shuffled = chance.sample(names, len(names))
    assert legal_names(shuffled, rules, {}) == legal_names(names, rules, {})


@given(NAMES, NAMES, ANY_RULES)
def test_names_once_given_stay_for_ever(
    first: list[str], then: list[str], rules: NameRules
) -> None:
    existing = legal_names(first, rules, {})
    both = list(dict.fromkeys([*then, *first]))
    later = legal_names(both, rules, existing)
    assert {name: later[name] for name in first} == dict(existing)
    assert len({rules.fold(name) for name in later.values()}) == len(both)


@given(NAMES, NAMES, ANY_RULES, st.booleans())
def test_matches_are_one_to_one(
    names: list[str], existing: list[str], rules: NameRules, ours: bool
) -> None:
    created = matched_names(names, existing, rules, {}, ours=ours)
    assert len(set(created.values())) == len(names)
    for name in set(names) & set(existing):
        assert created[name] == name
