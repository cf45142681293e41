"""The settings `connections`, and streams that read from tables, queries and classes."""

from __future__ import annotations

from typing import Any

import pytest

from shared.errors import InvalidSettingsError
from tap_spark.config import TapConfig, tap_config
from tap_spark.stream_config import ConnectionConfig

SHOP = {"name": "shop", "url": "jdbc:postgresql://h/shop", "user": "u", "password": "hush"}
LAKE = {"name": "lake", "path": "/lake"}


def problems(**settings: Any) -> list[str]:
    with pytest.raises(InvalidSettingsError) as caught:
        tap_config(settings)
    return list(caught.value.problems)


def with_stream(**fields: Any) -> TapConfig:
    return tap_config({"connections": [SHOP], "streams": [{"name": "s", **fields}]})


def stream_problems(**fields: Any) -> list[str]:
    return problems(connections=[SHOP], streams=[{"name": "s", **fields}])


def test_defaults() -> None:
    config = tap_config({"connections": [SHOP]})
    assert config.streams == ()
    assert config.connections == (
        ConnectionConfig(name="shop", url="jdbc:postgresql://h/shop", user="u", password="hush"),
    )


def test_everything_is_typed() -> None:
    supplied = {
        **SHOP,
        "properties": {"ssl": True, "loginTimeout": 5},
        "allow_properties": ["ssl"],
        "include": ["a.*"],
        "exclude": ["a.b"],
        "partitions": 3.0,
        "fetch_size": 7,
    }
    (actual,) = tap_config({"connections": [supplied]}).connections
    assert actual.properties == {"ssl": "true", "loginTimeout": "5"}
    assert (actual.include, actual.exclude, actual.allow_properties) == (
        ("a.*",),
        ("a.b",),
        ("ssl",),
    )
    assert (actual.partitions, actual.fetch_size) == (3, 7)


def test_a_stream_takes_the_only_database() -> None:
    (stream,) = with_stream(format="jdbc", table="public.t").streams
    assert stream.connection == "shop"
    assert stream.database is not None
    assert stream.database.url == SHOP["url"]


@pytest.mark.parametrize(
    ("connection", "wrong"),
    [
        ({"name": "a"}, "needs exactly one of 'url', 'catalog', 'path', 'brokers'"),
        ({**SHOP, "path": "/x"}, "needs exactly one of 'url', 'catalog', 'path', 'brokers'"),
        ({"name": "a", "url": "postgresql://h"}, "['url']: must begin with 'jdbc:'"),
        ({**LAKE, "user": "u"}, "['user']: applies only with 'url'; remove it"),
        ({**LAKE, "fetch_size": 5}, "['fetch_size']: applies only with 'url'; remove it"),
        ({**LAKE, "pth": "u"}, "['pth']: unknown setting; did you mean 'path'?"),
        ({**SHOP, "retries": -1}, "['retries']: -1 is less than the minimum of 0"),
    ],
)
def test_wrong_connections(connection: dict[str, Any], wrong: str) -> None:
    (line,) = problems(connections=[connection])
    assert line.startswith("config['connections'][0]")
    assert line.endswith(wrong)


def test_names_are_unique() -> None:
    (line,) = problems(connections=[SHOP, {**LAKE, "name": "shop"}])
    assert line == (
        "config['connections'][1]['name']: 'shop' is already the name of config['connections'][0]"
    )


def test_nothing_to_read() -> None:
    assert problems() == ["config: nothing to read: set 'streams', 'connections' or both"]


def test_a_wrong_url_is_not_shown() -> None:
    assert "secret" not in str(problems(connections=[{"name": "a", "url": "pg://u:secret@h"}]))


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"format": "jdbc"}, "['table']: is required for the format 'jdbc' (or 'query')"),
        (
            {"format": "jdbc", "table": "t", "query": "SELECT 1"},
            "['query']: excludes 'table'; give one of them",
        ),
        (
            {"format": "jdbc", "table": "t", "connection": "x"},
            "['connection']: 'x' is not a connection with a url; known: ['shop']",
        ),
        ({"format": "sql"}, "['query']: is required for the format 'sql'"),
        ({"format": "delta"}, "['path']: is required for the format 'delta' (or 'table')"),
        (
            {"format": "table", "table": "t", "path": "p"},
            "['path']: does not apply to the format 'table'; remove it",
        ),
        (
            {"format": "table", "table": "t", "replication_method": "LOG_BASED"},
            "['replication_method']: the format 'table' has no log of changes",
        ),
        (
            {"format": "jdbc", "table": "t", "replication_method": "INCREMENTAL"},
            "['replication_key']: is required for INCREMENTAL with the format 'jdbc'",
        ),
        ({"format": "parqet"}, "did you mean 'parquet'?"),
        ({"format": "nothing like it"}, "nor package.module.Class"),
        (
            {"format": "my.Source", "row_count": 5},
            "['row_count']: does not apply to the format 'my.Source'; remove it",
        ),
    ],
)
def test_wrong_streams(fields: dict[str, Any], wrong: str) -> None:
    (line,) = stream_problems(**fields)
    assert line.startswith("config['streams'][0]")
    assert line.endswith(wrong)


def test_a_database_must_be_named_where_there_are_several() -> None:
    (line,) = problems(
        connections=[SHOP, {**SHOP, "name": "other"}],
        streams=[{"name": "s", "format": "jdbc", "table": "t"}],
    )
    assert line.endswith("is required: 'connections' has several with a url")


def test_a_database_must_be_there() -> None:
    (line,) = problems(streams=[{"name": "s", "format": "jdbc", "table": "t"}])
    assert line.endswith("is required: 'connections' has none with a url")


def test_a_python_source() -> None:
    (stream,) = with_stream(format="my.sources.Weather", options={"city": "Ulm"}).streams
    assert stream.is_python_source


def test_packages_follow_from_what_is_read() -> None:
    config = with_stream(format="delta", path="/d")
    assert [package.split(":")[1] for package in config.spark.packages] == [
        "delta-spark_4.1_2.13",
        "postgresql",
    ]
    folders = tap_config({"connections": [LAKE]})
    assert len(folders.spark.packages) == 2
