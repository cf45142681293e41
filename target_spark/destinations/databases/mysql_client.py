"""A connection by PyMySQL that gives the server no file but the one that is offered."""

from __future__ import annotations

import ssl
from typing import Any

import pymysql
from pymysql.connections import (
    Connection,
    MysqlPacket,
)

from shared.errors import SettingsError, Where
from target_spark.destinations.databases.place import Place

_SECURE = {"required", "preferred", "verify-ca", "verify_ca", "verify-full", "verify_identity",
           "trust", "true"}  # fmt: skip
_PLAIN = {"disabled", "disable", "false", ""}


class GuardedConnection(Connection):  # type: ignore[misc, unused-ignore]
    """A server may answer any statement by asking for any file of the client: this one refuses."""

    offered: str | None = None
    _begins = False

    def _read_query_result(self, unbuffered: bool = False) -> Any:
        self._begins = True
        return super()._read_query_result(unbuffered)

    def _read_packet(self, packet_type: type[MysqlPacket] = MysqlPacket) -> Any:
        packet = super()._read_packet(packet_type)
        begins, self._begins = self._begins, False
        if begins and packet.is_load_local_packet():
            if packet.get_all_data()[1:] != (self.offered or "").encode():
                self.close()
                raise pymysql.OperationalError(0, "the server asked for a file it was not offered")
            self.offered = None
        return packet


def connect(place: Place) -> Any:
    """Begins a session; see `Database`."""
    properties = dict(place.properties)
    timeout = properties.pop("connect_timeout", "10000")
    return GuardedConnection(
        host=place.hosts[0],
        port=place.ports[0],
        database=place.name,
        user=place.user,
        password=place.password or "",
        charset="utf8mb4",
        autocommit=False,
        local_infile=True,
        connect_timeout=max(1, int(timeout) // 1000),
        **_encryption(properties),
    )


def _encryption(properties: dict[str, str]) -> dict[str, Any]:
    mode = properties.pop("sslmode", properties.pop("usessl", "")).lower()
    files: dict[str, Any] = {
        name: properties[name] for name in ("ssl_ca", "ssl_cert", "ssl_key") if name in properties
    }
    if mode not in _SECURE | _PLAIN:
        raise SettingsError(f"'{mode}' is no sslMode", where=Where(setting="jdbc.url"))
    if mode in _PLAIN and not files:
        return {}
    verifies = mode.startswith("verify") or "ssl_ca" in files
    if not files:
        context = ssl.create_default_context()
        context.check_hostname = mode in {"verify-full", "verify_identity"}
        context.verify_mode = ssl.CERT_REQUIRED if verifies else ssl.CERT_NONE
        return {"ssl": context}
    return {
        **files,
        "ssl_verify_cert": verifies,
        "ssl_verify_identity": mode in {"verify-full", "verify_identity"},
    }
