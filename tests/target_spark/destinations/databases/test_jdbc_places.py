"""URLs of databases and what they may say; no server needed."""

from __future__ import annotations

import builtins
import json
import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T  # noqa: N812

from shared.errors import SettingsError
from shared.formats.json_schema import holds_all
from target_spark.destinations.databases.database_tables import (
    DatabaseAddress,
    JdbcSettings,
    address_of,
)
from target_spark.destinations.databases.sink import DATABASES
from target_spark.destinations.databases.staged_columns import hex_text, numbers, staged_json


def place(url: str, **more: Any) -> DatabaseAddress:
    return address_of(JdbcSettings(url, **more))


@pytest.mark.parametrize(
    ("url", "hosts", "ports", "name"),
    [
        ("jdbc:postgresql://h/db", ("h",), (5432,), "db"),
        ("jdbc:postgresql://h:1/db", ("h",), (1,), "db"),
        ("jdbc:postgresql://[::1]:7/db", ("::1",), (7,), "db"),
        ("jdbc:postgresql://a:1,b/db", ("a", "b"), (1, 5432), "db"),
        ("jdbc:postgresql:db", ("localhost",), (5432,), "db"),
        ("jdbc:postgresql:///d%20b", ("localhost",), (5432,), "d b"),
        ("jdbc:mysql://h/db", ("h",), (3306,), "db"),
        ("jdbc:mariadb://h:1/db?useSSL=true", ("h",), (1,), "db"),
    ],
)
def test_urls(url: str, hosts: tuple[str, ...], ports: tuple[int, ...], name: str):
    actual = place(url)
    assert (actual.hosts, actual.ports, actual.name) == (hosts, ports, name)


@pytest.mark.parametrize(
    ("url", "reported"),
    [
        ("jdbc:oracle:thin:@h:1/db", "is not a JDBC URL of a supported database"),
        ("postgresql://h/db", "is not a JDBC URL of a supported database"),
        ("jdbc:postgresql://h/", "does not name a database"),
        ("jdbc:postgresql://me:Secret@h/db", "contains a user or password"),
        ("jdbc:postgresql://h:x/db", "host and port"),
        ("jdbc:mysql://h:65536/db", "host and port"),
        ("jdbc:mysql://h:0/db", "host and port"),
        ("jdbc:mysql://h/db?connectTimeout=Secret", "'connectTimeout' is not a whole number"),
        (
            "jdbc:postgresql://h/db?socketFactory=Secret",
            "the connection property 'socketFactory' is not allowed",
        ),
        ("jdbc:postgresql://h/db?service=Secret", "'service'"),
        ("jdbc:postgresql://h/db?passfile=Secret", "'passfile'"),
        ("jdbc:postgresql://h/db?host=Secret", "'host'"),
        ("jdbc:mysql://h/db?allowLoadLocalInfileInPath=Secret", "'allowLoadLocalInfileInPath'"),
        ("jdbc:mysql://h/db?init_command=Secret", "'init_command'"),
        ("jdbc:mysql://h/db?a%20b=Secret", "'…'"),
    ],
)
def test_urls_that_are_refused(url: str, reported: str):
    with pytest.raises(SettingsError) as caught:
        place(url)
    assert reported in str(caught.value)
    assert "Secret" not in str(caught.value)


def test_options_are_properties_too():
    actual = place("jdbc:postgresql://h/db?sslmode=disable", options={"sslMode": "require"})
    assert dict(actual.properties) == {"sslmode": "require"}
    with pytest.raises(SettingsError, match=r"jdbc\.options"):
        place("jdbc:postgresql://h/db", options={"options": "-c x=y"})


def test_settings_go_before_the_url():
    actual = place("jdbc:postgresql://h/db?user=a&password=b", user="c", password="d")
    assert (actual.user, actual.password) == ("c", "d")
    actual = place("jdbc:postgresql://h/db?user=a&password=b")
    assert (actual.user, actual.password) == ("a", "b")


def test_a_place_is_silent():
    actual = place("jdbc:postgresql://h/db?sslpassword=Secret1", user="me", password="Secret2")
    assert "Secret" not in f"{actual} {actual!r}"
    assert actual.without_secrets("Secret1 Secret2") == "*** ***"
    assert pickle.loads(pickle.dumps(actual)) == actual


@pytest.mark.parametrize(("kind", "package"), [("postgresql", "psycopg"), ("mysql", "pymysql")])
def test_a_missing_driver(monkeypatch: pytest.MonkeyPatch, kind: str, package: str):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.partition(".")[0] == package or name.endswith("mysql_client"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    database = DATABASES[kind]()
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SettingsError, match=rf"pip install 'singer-spark\[{kind}\]'"):
        database.connect(DatabaseAddress(kind, ("h",), (1,), "d"))


SCALARS: list[tuple[Any, Any]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=8)),
    (pa.bool_(), st.booleans()),
]


def typed(depth: int) -> st.SearchStrategy[tuple[Any, Any]]:
    """Return a strategy of types, each with values that it has."""
    scalar = st.sampled_from(SCALARS)
    if not depth:
        return scalar
    inner = typed(depth - 1)

    def nullable(pair):
        return st.none() | pair[1]

    lists = inner.map(lambda p: (pa.list_(p[0]), st.lists(nullable(p), max_size=3)))
    maps = inner.map(
        lambda p: (
            pa.map_(pa.string(), p[0]),
            st.dictionaries(st.text(max_size=2), nullable(p), max_size=3),
        )
    )
    structs = st.tuples(inner, inner).map(
        lambda two: (
            pa.struct([("a", two[0][0]), ('q"\\', two[1][0])]),
            st.fixed_dictionaries({"a": nullable(two[0]), 'q"\\': nullable(two[1])}),
        )
    )
    return scalar | lists | maps | structs


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_json_text_is_the_json_of_the_values(data: st.DataObject):
    kind, values = data.draw(typed(3))
    rows = data.draw(st.lists(st.none() | values, max_size=6))
    start = data.draw(st.integers(0, len(rows)))
    array = pa.array([_pairs(row, kind) for row in rows], kind).slice(start)
    actual = staged_json(array).to_pylist()
    assert [None if text is None else json.loads(text) for text in actual] == rows[start:]


def _pairs(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_map(kind):
        return [(key, _pairs(item, kind.item_type)) for key, item in value.items()]
    if pa.types.is_list(kind):
        return [_pairs(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: _pairs(value[field.name], field.type) for field in kind}
    return value


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=5), max_size=6), st.integers(0, 6))
def test_hex_text_is_the_hex_of_the_values(values: list[bytes | None], start: int):
    actual = hex_text(pa.array(values, pa.binary()).slice(start)).to_pylist()
    assert [None if v is None else bytes.fromhex(v) for v in actual] == values[start:]


def test_numbers_go_on():
    assert numbers(0, 2).to_pylist() == [1, 2]
    assert numbers(2, 2).to_pylist() == [3, 4]


@pytest.mark.parametrize(
    ("old", "new", "holds"),
    [
        (T.IntegerType(), T.LongType(), True),
        (T.LongType(), T.IntegerType(), False),
        (T.LongType(), T.DoubleType(), False),
        (T.IntegerType(), T.DoubleType(), True),
        (T.IntegerType(), T.DecimalType(12, 2), True),
        (T.IntegerType(), T.DecimalType(11, 2), False),
        (T.DecimalType(5, 2), T.DecimalType(6, 3), True),
        (T.DecimalType(5, 2), T.DecimalType(6, 4), False),
        (T.DateType(), T.TimestampNTZType(), True),
        (T.DateType(), T.TimestampType(), False),
        (T.FloatType(), T.DoubleType(), True),
        (T.StringType(), T.IntegerType(), False),
    ],
)
def test_lossless_changes(old: T.DataType, new: T.DataType, holds: bool):
    assert holds_all(old, new) is holds
