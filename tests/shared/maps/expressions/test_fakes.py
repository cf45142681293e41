"""Invented values: what may be called, what a seed decides, what planning says."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import simpleeval
from pyspark.sql import types as T  # noqa: N812

from shared.errors import SettingsError, Where
from shared.maps.expressions.personal import MOST, Fakes, FakeSettings, result_kind
from shared.maps.expressions.planned import Planned, plan
from shared.maps.expressions.syntax import parse
from shared.maps.expressions.values import Names

WHERE = Where(setting="stream_maps.users.email")
STRUCT = T.StructType([T.StructField("id", T.LongType()), T.StructField("s", T.StringType())])


def planning(text: str, faker: dict[str, Any] | None = None) -> Planned:
    return plan(parse(text, WHERE), Names(STRUCT, {}, "users", "users", faker=faker or {}), WHERE)


def invented(settings: FakeSettings, record: int, *names: str) -> list[Any]:
    fakes = Fakes(settings)
    fakes.begin(record)
    return [fakes.attribute(name)() for name in names]


@pytest.mark.parametrize("locale", [None, "de_DE", ["de_DE", "fr_FR", "ja_JP"]])
def test_seed_record_and_label_decide(locale: Any) -> None:
    names = ("name", "address", "pyint", "uuid4", "random_element", "date_of_birth")
    one = FakeSettings(locale, 1, "a")
    assert invented(one, 5, *names) == invented(one, 5, *names)
    assert invented(one, 5, *names) != invented(one, 6, *names)
    assert invented(one, 5, *names) != invented(FakeSettings(locale, 2, "a"), 5, *names)
    assert invented(one, 5, *names) != invented(FakeSettings(locale, 1, "b"), 5, *names)


def test_what_came_before_does_not_matter() -> None:
    settings = FakeSettings(None, 1, "a")
    fakes = Fakes(settings)
    for record in (1, 2, 3):
        fakes.begin(record)
        fakes.attribute("name")()
    fakes.begin(5)
    assert [fakes.attribute("email")()] == invented(settings, 5, "email")


def test_seed_instance_as_in_the_sdk() -> None:
    one, other = Fakes(FakeSettings()), Fakes(FakeSettings())
    for fakes in (one, other):
        assert fakes.attribute("seed_instance")(42) is None
    assert one.attribute("name")() == other.attribute("name")()
    with pytest.raises(TypeError):
        one.attribute("seed_instance")([])


@pytest.mark.parametrize(
    "name",
    [
        *("add_provider", "binary", "csv", "enum", "format", "generator", "get_formatter", "image"),
        *("json", "json_bytes", "parse", "provider", "providers", "pydict", "pyobject", "xml"),
        *("pystr_format", "random", "seed", "set_formatter", "tar", "time_series", "unique", "zip"),
        *("factories", "items", "locales", "optional", "__class__", "_factories", "nothing"),
    ],
)
def test_what_cannot_be_called(name: str) -> None:
    with pytest.raises(simpleeval.FeatureNotAvailable):
        Fakes(FakeSettings()).attribute(name)


@pytest.mark.parametrize(
    ("name", "args", "keywords"),
    [
        ("pystr", (10**9, 10**9), {}),
        ("text", (), {"max_nb_chars": 10**9}),
        ("words", (10**9,), {}),
        ("words", (), {"nb": MOST + 1}),
        ("sentence", (10**9,), {}),
        ("paragraphs", (10**9,), {}),
        ("password", (10**9,), {}),
        ("random_letters", (10**9,), {}),
        ("random_choices", (("a",), 10**9), {}),
        ("lexify", ("?" * (MOST + 1),), {}),
        ("pydecimal", (10**9,), {}),
        ("nic_handles", (10**9,), {}),
    ],
)
def test_how_much_can_be_asked_for(name: str, args: Any, keywords: Any) -> None:
    with pytest.raises(simpleeval.NumberTooHigh):
        Fakes(FakeSettings()).attribute(name)(*args, **keywords)


def test_functions_are_no_arguments() -> None:
    for name, args in (("uuid4", (print,)), ("random_element", ([print],))):
        with pytest.raises(TypeError):
            Fakes(FakeSettings()).attribute(name)(*args)


def test_ranges_may_be_wide() -> None:
    fakes = Fakes(FakeSettings())
    assert 10**9 <= fakes.attribute("random_int")(10**9, 10**10) <= 10**10
    assert fakes.attribute("pyint")(min_value=-(10**9), max_value=-(10**8)) < 0
    assert fakes.attribute("random_element")(["a"]) == "a"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("name", "str"),
        ("email", "str"),
        ("uuid4", "str"),
        ("pyint", "int"),
        ("boolean", "bool"),
        ("pyfloat", "float"),
        ("date_of_birth", "date"),
        ("date_time", "datetime"),
        ("simple_profile", "any"),
        ("seed_instance", "none"),
        ("no_such", "any"),
    ],
)
def test_kinds_of_what_is_invented(name: str, kind: str) -> None:
    settings = FakeSettings(None, 1)
    assert result_kind(name, settings) == kind
    types = {"str": str, "int": int, "bool": bool, "float": float}
    if kind in types:
        assert type(invented(settings, 1, name)[0]) is types[kind]


def test_planning_infers_the_type() -> None:
    actual = planning("fake.email()")
    assert actual.in_python
    assert actual.fresh
    assert actual.reads == frozenset()
    assert actual.data_type == T.StringType()
    assert planning("fake.pyint() + 1").data_type == T.LongType()
    assert planning("fake.date_of_birth()").data_type == T.DateType()


def test_seeded_values_depend_on_the_whole_record() -> None:
    assert planning("fake.email()", {"seed": 1}).reads == {"id", "s"}


def test_unknown_functions_are_told_with_their_place() -> None:
    with pytest.raises(SettingsError, match=r"at column 6: fake has no 'emial'.*'email'") as error:
        planning("s or fake.emial()")
    assert error.value.where == WHERE


def test_unknown_language() -> None:
    with pytest.raises(SettingsError, match="xx_XX") as error:
        planning("fake.name()", {"locale": "xx_XX"})
    assert "faker_config.locale" in str(error.value)


def test_library_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "faker" else find(name, *a)
    )
    with pytest.raises(SettingsError, match=r"singer-spark\[faker\]"):
        planning("fake.name()")


def test_library_that_is_missing_matters_only_for_fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    assert planning("s").source == ("s",)
