"""URLs of databases on the command line: JDBC's, and `postgresql://me@host/shop` as for psql."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from shared.errors import SettingsError
from shared.settings.checking import redacted

_KINDS = {
    "postgres": "postgresql",
    "postgresql": "postgresql",
    "mysql": "mysql",
    "mariadb": "mariadb",
}
_OTHERS = ("sqlserver", "oracle", "db2", "sqlite", "duckdb")
"""Databases whose own URLs are not read."""
_OF_LIBPQ = {"user": "PGUSER", "password": "PGPASSWORD"}


@dataclass(frozen=True)
class DatabaseLogin:
    """A database and who logs in.

    Attributes:
        url: JDBC URL, without a login.
        user: None if nothing names one.
        password: The same.
        is_written: Whether the URL held the password.
    """

    url: str
    user: str | None = None
    password: str | None = None
    is_written: bool = False

    @property
    def login(self) -> dict[str, str]:
        """Return user and password as settings, as far as they are known."""
        values = {"user": self.user, "password": self.password}
        return {name: value for name, value in values.items() if value}

    def for_settings(self, variable: str) -> DatabaseLogin:
        """Return the same; reject a password that would be written into settings.

        Args:
            variable: The environment variable that holds it instead.

        Raises:
            SettingsError: The URL held the password.
        """
        if self.is_written:
            raise SettingsError(
                "the URL holds a password, which must not be in the settings",
                hint=f"leave it out, and set {variable} in the environment",
            )
        return self


def database_login(place: str, environ: Mapping[str, str], prefix: str) -> DatabaseLogin | None:
    """Return the database that a place on the command line names; None if it names none.

    Args:
        place: The place. The login in a URL wins over the environment's.
        environ: `<prefix>USER` and `<prefix>PASSWORD`; for PostgreSQL also PGUSER and PGPASSWORD.
        prefix: Begin of the program's own variables.

    Raises:
        SettingsError: It begins like a URL of a database, and is none, or must be JDBC's.
    """
    login = {name: environ.get(prefix + name.upper()) for name in _OF_LIBPQ}
    if place.startswith("jdbc:"):
        return DatabaseLogin(place, login["user"], login["password"])
    scheme, colon, _ = place.lstrip().partition(":")
    kind = _KINDS.get(scheme.lower()) if colon else None
    if kind is None:
        if colon and scheme.lower() in _OTHERS and "://" in place:
            raise SettingsError(
                f"a URL that begins with '{scheme}:' names no files",
                hint=f"tap-spark reads it by a URL that begins with 'jdbc:{scheme.lower()}:'",
            )
        return None
    try:
        parts = urlsplit(place)
    except ValueError:  # Its text may hold a password with brackets.
        hint = "write [, ] and @ of a password as %5B, %5D and %40"
        raise SettingsError(f"'{redacted(place)}' is not a URL", hint=hint) from None
    if "@" in f"{parts.path}{parts.query}{parts.fragment}":  # What is before may be a password.
        raise SettingsError(
            f"the URL that begins with '{kind}:' has an @ after its host",
            hint="write /, #, ? and @ of a password or parameter as %2F, %23, %3F and %40",
        )
    if kind == "postgresql":
        login = {name: login[name] or environ.get(_OF_LIBPQ[name]) for name in login}
    user, password = (unquote(text or "") or None for text in (parts.username, parts.password))
    query = f"?{parts.query}" if parts.query else ""
    url = f"jdbc:{kind}://{parts.netloc.rpartition('@')[2]}{parts.path}{query}"
    return DatabaseLogin(
        url, user or login["user"], password or login["password"], is_written=password is not None
    )
