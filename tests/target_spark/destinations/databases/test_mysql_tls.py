"""TLS to MySQL and MariaDB against real servers with certificates of our own. No Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from certificates import certificates
from mysql_servers import PASSWORD, MariaDbServer, MySqlLikeServer

from shared.errors import SettingsError
from target_spark.destinations.databases.database_tables import JdbcSettings, address_of
from target_spark.destinations.databases.mysql.mysql_database import MySql

pytestmark = pytest.mark.server


def started(server: MariaDbServer) -> Iterator[MariaDbServer]:
    if why := server.missing():
        pytest.skip(why)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def tls() -> Iterator[MariaDbServer]:
    server = MariaDbServer()
    files = certificates(server.folder / "tls")
    names = {"ca": "ca.pem", "cert": "server.pem", "key": "server.key"}
    server.options = [f"--ssl-{option}={files / name}" for option, name in names.items()]
    yield from started(server)


@pytest.fixture(scope="module")
def plain() -> Iterator[MariaDbServer]:
    server = MariaDbServer()
    server.options = ["--skip-ssl"]
    yield from started(server)


def cipher(
    server: MySqlLikeServer,
    query: str,
    host: str = "127.0.0.1",
    kind: str = "mysql",
    user: str = "tester",
) -> str:
    """Return the cipher of a session; empty if it is not encrypted."""
    files = f"{server.folder}/tls"
    url = f"jdbc:{kind}://{host}:{server.port}/tests?{query.format(files=files)}"
    place = address_of(JdbcSettings(url=url, user=user, password=PASSWORD))
    connection = MySql().connect(place)
    try:
        cursor = connection.cursor()
        cursor.execute("show session status like 'Ssl_cipher'")
        return str(cursor.fetchone()[1])
    finally:
        connection.close()


def failure(server: MariaDbServer, query: str, host: str = "127.0.0.1") -> str:
    """Return the error and the hint of a session that cannot be opened."""
    with pytest.raises(Exception) as caught:
        cipher(server, query, host)
    actual = MySql().failure(caught.value)
    assert actual is not None, caught.value
    assert PASSWORD not in str(caught.value)
    return f"{actual.message} ({actual.hint})"


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_tls_is_used_where_the_server_offers_it(
    tls: MariaDbServer, plain: MariaDbServer, kind: str
) -> None:
    for query in ("", "sslMode=PREFERRED"):
        assert cipher(tls, query, kind=kind)
        assert cipher(plain, query, kind=kind) == ""


@pytest.mark.parametrize("query", ["sslMode=DISABLED", "sslmode=disable", "useSSL=false"])
def test_switched_off(tls: MariaDbServer, query: str) -> None:
    assert cipher(tls, query) == ""


@pytest.mark.parametrize(
    "query",
    ["sslMode=REQUIRED", "sslMode=trust", "useSSL=true", "sslMode=VERIFY_CA",
     "sslMode=VERIFY_IDENTITY", "sslCa={files}/ca.pem", "sslMode=PREFERRED&sslCa={files}/ca.pem"],
)  # fmt: skip
def test_no_password_without_tls_that_is_asked_for(
    plain: MariaDbServer, tls: MariaDbServer, query: str
) -> None:
    asked = query.format(files=f"{tls.folder}/tls")
    assert "TLS" in failure(plain, asked)


@pytest.mark.parametrize("query", ["sslMode=REQUIRED", "sslMode=trust", "useSSL=true"])
def test_required(tls: MariaDbServer, query: str) -> None:
    assert cipher(tls, query)


@pytest.mark.parametrize("query", ["sslMode=VERIFY_CA", "sslMode=verify-ca", ""])
@pytest.mark.parametrize("name", ["sslCa", "serverSslCert"])
def test_the_authority_is_verified(tls: MariaDbServer, query: str, name: str) -> None:
    assert cipher(tls, f"{query}&{name}={{files}}/ca.pem")
    assert "certificate" in failure(tls, f"{query}&{name}={{files}}/other.pem")
    if query:
        assert "check 'sslCa'" in failure(tls, query)


def test_the_certificate_itself_is_enough(tls: MariaDbServer) -> None:
    assert cipher(tls, "sslMode=verify-full&serverSslCert={files}/server.pem", "localhost")


@pytest.mark.parametrize("query", ["sslMode=VERIFY_IDENTITY", "sslMode=verify-full"])
def test_the_name_is_verified(tls: MariaDbServer, query: str) -> None:
    assert cipher(tls, f"{query}&sslCa={{files}}/ca.pem", "localhost")
    assert "certificate" in failure(tls, f"{query}&sslCa={{files}}/ca.pem", "127.0.0.1")
    assert "certificate" in failure(tls, f"{query}&sslCa={{files}}/other.pem", "localhost")


def test_use_ssl_means_what_each_driver_means(tls: MariaDbServer) -> None:
    """MariaDB's verifies then, MySQL's only encrypts."""
    assert cipher(tls, "useSSL=true", "localhost", "mysql")
    assert cipher(tls, "useSsl=true&serverSslCert={files}/ca.pem", "localhost", "mariadb")
    with pytest.raises(Exception, match="certificate"):
        cipher(tls, "useSsl=true", "localhost", "mariadb")


@pytest.mark.parametrize(
    ("query", "match"),
    [("sslMode=verify", "sslMode"), ("useSSL=maybe", "useSSL"), ("sslCa=/no/such.pem", "sslCa"),
     ("sslCert=/no/such.pem", "sslCert")],
)  # fmt: skip
def test_wrong_settings(query: str, match: str) -> None:
    """Told before a server is asked."""
    place = address_of(JdbcSettings(url=f"jdbc:mysql://127.0.0.1:1/x?{query}", user="u"))
    with pytest.raises(SettingsError, match=match) as caught:
        MySql().connect(place)
    assert caught.value.where.setting == "jdbc.url"


def test_a_password_that_needs_tls_or_cryptography(
    mysql_server: MySqlLikeServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("pymysql._auth._have_cryptography", False)
    # The server remembers the password of a user who has logged in, and asks for less.
    secret = PASSWORD.replace("'", "''")
    mysql_server.run(f"create user newcomer@'127.0.0.1' identified by '{secret}'", "mysql")
    mysql_server.run("grant all on tests.* to newcomer@'127.0.0.1'", "mysql")
    try:
        with pytest.raises(SettingsError, match="sslMode=REQUIRED in the URL, or pip install cry"):
            cipher(mysql_server, "sslMode=DISABLED", user="newcomer")
        assert cipher(mysql_server, "sslMode=REQUIRED", user="newcomer")
    finally:
        mysql_server.run("drop user newcomer@'127.0.0.1'", "mysql")
