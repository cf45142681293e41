"""URLs of databases on the command line."""

from __future__ import annotations

import pytest

from shared.errors import SettingsError
from shared.settings.database_urls import DatabaseLogin, database_login


@pytest.mark.parametrize(
    ("place", "actual"),
    [
        ("jdbc:sqlite:a.db", DatabaseLogin("jdbc:sqlite:a.db")),
        ("postgresql://h/shop", DatabaseLogin("jdbc:postgresql://h/shop")),
        ("postgres://h:5433/shop", DatabaseLogin("jdbc:postgresql://h:5433/shop")),
        ("mysql://me@h/s?x=1", DatabaseLogin("jdbc:mysql://h/s?x=1", "me")),
        (
            "mariadb://me:p%40ss%2F@h:3307/s",
            DatabaseLogin("jdbc:mariadb://h:3307/s", "me", "p@ss/", is_written=True),
        ),
        ("postgresql://me@[::1]:5432/s", DatabaseLogin("jdbc:postgresql://[::1]:5432/s", "me")),
        ("s3://bucket/a", None),
        ("orders.csv", None),
        ("postgresql", None),
    ],
)
def test_what_a_place_names(place: str, actual: DatabaseLogin | None) -> None:
    assert database_login(place, {}, "TAP_SPARK_") == actual


def test_a_url_that_is_none() -> None:
    with pytest.raises(SettingsError, match=r"^'postgresql://\*\*\*@\[::1/s' is not a URL"):
        database_login("postgresql://me:x@[::1/s", {}, "TAP_SPARK_")


@pytest.mark.parametrize("password", ["12/hush", "hush/1", "hush#", "?hush", "a@b/hush"])
def test_signs_of_a_password_that_end_the_host(password: str) -> None:
    with pytest.raises(SettingsError, match=r"has an @ after its host \(write /, #") as caught:
        database_login(f"postgresql://me:{password}@h/s", {}, "TAP_SPARK_")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("place", ["sqlserver://sa:hush@db/x", "Oracle://db;password=hush"])
def test_databases_that_have_a_jdbc_url_alone(place: str) -> None:
    with pytest.raises(SettingsError, match=r"begins with 'jdbc:(sqlserver|oracle):'") as caught:
        database_login(place, {}, "TAP_SPARK_")
    assert "hush" not in str(caught.value)


def test_the_login_of_the_url_wins_then_our_variables_then_libpq() -> None:
    libpq = {"PGUSER": "pg", "PGPASSWORD": "of pg"}
    ours = {"TAP_SPARK_USER": "our", "TAP_SPARK_PASSWORD": "ours"}
    url = "postgresql://h/s"
    both = database_login(url, {**libpq, **ours}, "TAP_SPARK_")
    assert both is not None
    assert both.login == {"user": "our", "password": "ours"}
    alone = database_login(url, libpq, "TAP_SPARK_")
    assert alone is not None
    assert alone.login == {"user": "pg", "password": "of pg"}
    written = database_login("postgresql://me:hush@h/s", {**libpq, **ours}, "TAP_SPARK_")
    assert written is not None
    assert written.login == {"user": "me", "password": "hush"}
    mysql = database_login("mysql://h/s", libpq, "TAP_SPARK_")
    assert mysql is not None
    assert mysql.login == {}


def test_a_password_in_the_url_is_not_written_into_settings() -> None:
    actual = database_login("mysql://me:hush@h/s", {}, "TAP_SPARK_")
    assert actual is not None
    with pytest.raises(SettingsError, match=r"holds a password.*set TAP_SPARK_PASSWORD") as caught:
        actual.for_settings("TAP_SPARK_PASSWORD")
    assert "hush" not in str(caught.value)
