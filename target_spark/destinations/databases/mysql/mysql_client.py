"""A connection by PyMySQL that sends the server only the offered file."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pymysql
from pymysql.connections import (
    Connection,
    MysqlPacket,
)
from pymysql.constants import CLIENT, CR

from shared.errors import SettingsError, Where
from target_spark.destinations.databases.database_tables import DatabaseAddress

_MODES = {
    "disabled": "disabled", "disable": "disabled", "false": "disabled", "preferred": "preferred",
    "required": "required", "trust": "required",
    "verify_ca": "verify-ca", "verify-ca": "verify-ca",
    "verify_identity": "verify-full", "verify-full": "verify-full",
}  # fmt: skip
"""Words of both drivers for `sslMode`."""

_NO_TLS = "the server does not offer TLS, which 'jdbc' requires"


class GuardedConnection(Connection):  # type: ignore[misc, unused-ignore]
    """A connection that rejects the server's requests for other files of the client."""

    offered: str | None = None
    needs_tls = False
    _begins = False

    def _request_authentication(self) -> None:
        """Log in. Older versions of PyMySQL do so without TLS if the server does not offer it."""
        if self.ssl and not self.server_capabilities & CLIENT.SSL:
            if self.needs_tls:
                raise pymysql.OperationalError(CR.CR_SSL_CONNECTION_ERROR, _NO_TLS)
            self.ssl: bool = False
            self.client_flag &= ~CLIENT.SSL
        super()._request_authentication()

    def _read_query_result(self, unbuffered: bool = False) -> Any:
        self._begins = True
        return super()._read_query_result(unbuffered)

    def _read_packet(self, packet_type: type[MysqlPacket] = MysqlPacket) -> Any:
        packet = super()._read_packet(packet_type)
        begins, self._begins = self._begins, False
        if begins and packet.is_load_local_packet():
            if packet.get_all_data()[1:] != (self.offered or "").encode():
                self.close()
                raise pymysql.OperationalError(
                    0, "the server requested a file that was not offered to it"
                )
            self.offered = None
        return packet


def connect_mysql(place: DatabaseAddress) -> Any:
    """See `Database`."""
    properties = dict(place.properties)
    timeout = properties.pop("connect_timeout", "10000")
    context, is_required = _encryption(place.kind, properties)
    connection = GuardedConnection(
        host=place.hosts[0],
        port=place.ports[0],
        database=place.name,
        user=place.user,
        password=place.password or "",
        charset="utf8mb4",
        autocommit=False,
        local_infile=True,
        # A year is the most that PyMySQL takes.
        connect_timeout=min(31_536_000, max(1, int(timeout) // 1000)),
        ssl=context,
        ssl_disabled=context is None,
        defer_connect=True,
    )
    connection.needs_tls = is_required
    connection.connect()
    return connection


def _encryption(kind: str, properties: Mapping[str, str]) -> tuple[ssl.SSLContext | None, bool]:
    """Return the encryption of a connection by its properties, as the Java driver does.

    By default, TLS is used if the server offers it, and certificates are not verified.

    Returns:
        The TLS context, None without TLS; and whether the password must not go to a server without.

    Raises:
        SettingsError: A mode is unknown, or a file cannot be read.
    """
    mode = _mode(kind, properties)
    if mode == "disabled":
        return None, False
    verifies = mode.startswith("verify") or "ssl_ca" in properties
    context = ssl.create_default_context()
    context.check_hostname = mode == "verify-full"
    context.verify_mode = ssl.CERT_REQUIRED if verifies else ssl.CERT_NONE
    # The server's certificate itself will do for the one of its authority.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if "ssl_ca" in properties:
        with _read("sslCa"):
            context.load_verify_locations(properties["ssl_ca"])
    if "ssl_cert" in properties:
        with _read("sslCert"):
            context.load_cert_chain(properties["ssl_cert"], properties.get("ssl_key"))
    has_files = "ssl_ca" in properties or "ssl_cert" in properties
    return context, mode != "preferred" or has_files


def _mode(kind: str, properties: Mapping[str, str]) -> str:
    supplied = properties.get("sslmode")
    if supplied is None:
        uses = properties.get("usessl", "").lower()
        supplied = {
            "": "preferred",
            "true": "verify-full" if kind == "mariadb" else "required",
        }.get(uses, uses)
    entry = _MODES.get(supplied.lower())
    if entry is None:
        name = "sslMode" if "sslmode" in properties else "useSSL"
        raise SettingsError(
            f"'{supplied}' is not a valid {name}",
            where=Where(setting="jdbc.url"),
            hint="sslMode is one of DISABLED, PREFERRED, REQUIRED, VERIFY_CA, VERIFY_IDENTITY",
        )
    return entry


@contextmanager
def _read(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # also ssl.SSLError
        reason = error.strerror or str(error)
        raise SettingsError(
            f"the file of '{name}' cannot be read: {reason}", where=Where(setting="jdbc.url")
        ) from error
