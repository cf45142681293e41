"""Address and login of a database, its tables, and the session that reaches them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote

from shared.errors import SettingsError, Where
from shared.settings.kinds import ANY_TEXT, SECRET_VALUES, TEXT, setting


class Cursor(Protocol):
    """The part of a DB-API cursor that is used."""

    @property
    def rowcount(self) -> int:
        """Return the number of rows that the last statement has changed."""

    def execute(self, query: str, args: Sequence[Any] | None = None, /) -> Any:
        """Run one statement; `%` is special only with arguments."""

    def fetchone(self) -> Any:
        """Return the next row, or None."""

    def fetchall(self) -> Any:
        """Return all rows."""


class Connection(Protocol):
    """The part of a DB-API connection that is used; without autocommit."""

    def cursor(self) -> Any:
        """Return a new cursor."""

    def commit(self) -> None:
        """End the transaction."""

    def rollback(self) -> None:
        """Undo the transaction."""

    def close(self) -> None:
        """End the session."""


@dataclass(frozen=True)
class TablePlace:
    """A table with its legal names."""

    schema: str
    table: str


@dataclass(frozen=True)
class FoundColumn:
    """An existing column.

    Attributes:
        sql_type: Type as reported by the database.
        has_default: Whether rows may omit it although it cannot be null.
        generated: Whether the database computes it: rows cannot set it.
        collation: That of its texts, quoted; empty for a type without one, or the default.
        default: Expression of its default, if statements that change the column must repeat it.
        clauses: Other clauses that they must repeat.
    """

    name: str
    sql_type: str
    nullable: bool
    has_default: bool = False
    generated: bool = False
    collation: str = ""
    default: str = ""
    clauses: str = ""


@dataclass(frozen=True)
class FoundTable:
    """An existing table.

    Attributes:
        keys: The unique column sets, with null equal to null.
        own_keys: Names of the indexes among them that target-spark has created for keys.
        has_triggers: Whether triggers or rules of it may fill columns, leave out rows, or route
            them elsewhere.
        has_rules: Whether it has rules for INSERT or UPDATE, which miss rows of an upsert.
    """

    columns: tuple[FoundColumn, ...]
    keys: frozenset[frozenset[str]] = frozenset()
    own_keys: tuple[str, ...] = ()
    has_triggers: bool = False
    has_rules: bool = False


@dataclass(frozen=True)
class StagedRows:
    """Staged rows and how they are loaded.

    Attributes:
        parts: Staging tables, in order of arrival.
        schema: That of the staging tables.
        values: Column of the table → SQL expression over a staging table's columns.
        keys: Key columns of the table; if empty, all rows are appended.
        staged_keys: Their staging columns.
        compared: Key → SQL expression like that in `values`, which is equal to what the table's
            column stores if the column takes both for one value.
        nullable_keys: Those of `keys` that can be null.
        deleted: Staging column that marks rows to delete; None to keep such rows.
        order_by: Column of the table → staging column, of those that tell which row of a key is
            newer; empty if the later arrival is.
        numbers: The rows of the parts, which are numbered from 1: after the first number, up to
            the second one; None for all.
        is_unique: Whether an index keeps the table's rows unique by `keys`.
    """

    parts: tuple[str, ...]
    schema: str
    values: Mapping[str, str]
    keys: tuple[str, ...] = ()
    staged_keys: tuple[str, ...] = ()
    compared: Mapping[str, str] = field(default_factory=dict)
    nullable_keys: frozenset[str] = frozenset()
    deleted: str | None = None
    order_by: Mapping[str, str] = field(default_factory=dict)
    numbers: tuple[int, int] | None = None
    is_unique: bool = True


_URL = re.compile(
    r"jdbc:(?P<kind>[a-z]+):(?://(?P<hosts>[^/?]*)/?)?(?P<name>[^?]*)(?:\?(?P<query>.*))?"
)
_LAST_PORT = 65535
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:\[\]\s]*)(?::(?P<port>\d{1,5}))?")


@dataclass(frozen=True)
class DatabaseAddress:
    """A database and the login; picklable, and silent about secrets.

    Attributes:
        kind: `postgresql`, `mysql` or `mariadb`.
        hosts: Names or addresses.
        ports: One for each host.
        name: That of the database.
        user: None for the driver's default.
        properties: Allowed parameters of the driver, under the driver's own names.
    """

    kind: str
    hosts: tuple[str, ...]
    ports: tuple[int, ...]
    name: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        hosts = ",".join(f"{h}:{p}" for h, p in zip(self.hosts, self.ports, strict=True))
        return f"{self.kind}://{hosts}/{self.name}"

    def without_secrets(self, text: str) -> str:
        """Return a text without the secrets of the login."""
        secrets = [v for n, v in self.properties if "password" in n.lower()]
        for secret in (self.password or "", *secrets):
            text = text.replace(secret, "***") if secret else text
        return text


@dataclass(frozen=True)
class Properties:
    """The properties that URLs and `jdbc.options` of a database may set.

    Attributes:
        port: Default port of the server.
        allowed: Name in lower case → name of the driver's parameter.
        ignored: Names, in lower case, that concern only Java's driver.
    """

    port: int
    allowed: Mapping[str, str]
    ignored: frozenset[str] = frozenset()


def _named(*names: str) -> dict[str, str]:
    """Return parameters of a driver by the names that Java's has for them, in lower case."""
    return {name.replace("_", ""): name for name in names}


_MYSQL = Properties(
    port=3306,
    allowed={
        **_named("sslmode", "usessl", "ssl_ca", "ssl_cert", "ssl_key", "connect_timeout"),
        "serversslcert": "ssl_ca",
    },
    ignored=frozenset(
        {
            "allowlocalinfile",
            "allowpublickeyretrieval",
            "characterencoding",
            "rewritebatchedstatements",
            "servertimezone",
            "sockettimeout",
            "tcpkeepalive",
            "useunicode",
        }
    ),
)
PROPERTIES: Mapping[str, Properties] = {
    "postgresql": Properties(
        port=5432,
        allowed={
            **_named("sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "gssencmode"),
            **_named("channel_binding", "connect_timeout", "application_name"),
        },
        ignored=frozenset(
            {
                "binarytransfer",
                "defaultrowfetchsize",
                "logintimeout",
                "preparethreshold",
                "rewritebatchedinserts",
                "sockettimeout",
                "stringtype",
                "tcpkeepalive",
            }
        ),
    ),
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
}
"""Properties of URLs, by kind of database."""


def address_of(settings: JdbcSettings) -> DatabaseAddress:
    """Return the address and login of the settings.

    Raises:
        SettingsError: The URL cannot be parsed or its database is not supported, or a property of
            the connection is not allowed; never shows a value.
    """
    match = _URL.fullmatch(settings.url.strip())
    if match is None or match["kind"] not in PROPERTIES:
        kinds = ", ".join(f"jdbc:{kind}://" for kind in PROPERTIES)
        raise _wrong("url", f"is not a JDBC URL of a supported database ({kinds})")
    rules = PROPERTIES[match["kind"]]
    login: dict[str, str] = {}
    properties: dict[str, str] = {}
    query = parse_qsl(match["query"] or "", keep_blank_values=True)
    for place, items in (("url", query), ("options", list(settings.options.items()))):
        for name, value in items:
            key = name.lower()
            if key in {"user", "password"}:
                login[key] = value
            elif key == "connecttimeout" and not re.fullmatch(r"-?[0-9]+", value):
                raise _wrong(place, "'connectTimeout' is not a whole number")
            elif key in rules.allowed:
                properties[rules.allowed[key]] = value
            elif key not in rules.ignored:
                raise _unknown(place, name, rules.allowed)
    if "@" in (match["hosts"] or ""):
        raise _wrong("url", "contains a user or password; set 'jdbc.user' and 'jdbc.password'")
    hosts, ports = zip(*_hosts(match["hosts"] or "localhost", rules.port), strict=True)
    name = unquote(match["name"]).strip("/")
    if not name:
        raise _wrong("url", "does not name a database: it must end in /<database>")
    return DatabaseAddress(
        kind=match["kind"],
        hosts=hosts,
        ports=ports,
        name=name,
        user=settings.user or login.get("user"),
        password=settings.password if settings.password is not None else login.get("password"),
        properties=tuple(properties.items()),
    )


def _hosts(text: str, port: int) -> Iterator[tuple[str, int]]:
    for part in text.split(","):
        match = _HOST.fullmatch(part)
        number = port if match is None else int(match["port"] or port)
        if match is None or not 0 < number <= _LAST_PORT:
            raise _wrong("url", "its host and port cannot be parsed")
        yield match["host"].strip("[]") or "localhost", number


def _unknown(setting: str, name: str, allowed: Iterable[str]) -> SettingsError:
    shown = name if re.fullmatch(r"[\w.-]{1,60}", name) else "…"
    return _wrong(
        setting,
        f"the connection property '{shown}' is not allowed",
        f"allowed: {', '.join(sorted(allowed))}",
    )


def _wrong(setting: str, text: str, hint: str = "") -> SettingsError:
    return SettingsError(text, where=Where(setting=f"jdbc.{setting}"), hint=hint)


@dataclass(frozen=True)
class JdbcSettings:
    """A database to load into."""

    url: str = setting(
        TEXT,
        "JDBC URL of a PostgreSQL, MySQL or MariaDB database.",
        required=True,
        secret=True,
        examples=["jdbc:postgresql://localhost:5432/warehouse"],
    )
    user: str | None = setting(TEXT, "User of the database.")
    password: str | None = setting(ANY_TEXT, "Password of the user.", secret=True, repr=False)
    options: Mapping[str, str] = setting(
        SECRET_VALUES,
        "Properties of the connection.",
        unset={},
        repr=False,
        examples=[{"sslmode": "verify-full"}],
    )
