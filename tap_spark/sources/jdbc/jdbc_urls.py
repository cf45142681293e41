"""Options of Spark's reader for a connection, and the secrets of a connection. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shared.errors import SettingsError, Where
from shared.spark.jdbc_drivers import driver_of
from tap_spark.driver_properties import property_problems
from tap_spark.sources.jdbc.read_sessions import session_properties

if TYPE_CHECKING:
    from tap_spark.connection_config import ConnectionConfig


def reader_options(connection: ConnectionConfig) -> dict[str, str]:
    """Return the options with which Spark's reader connects to a database.

    Args:
        connection: One with a URL.

    Raises:
        SettingsError: The URL or a property could load classes, read files or the like, and
            `allow_properties` does not name it.
    """
    where = f"connections['{connection.name}']"
    given: Mapping[str, Any] = {
        "url": connection.url,
        "properties": connection.properties,
        "allow_properties": connection.allow_properties,
    }
    for at, text in property_problems(given):
        setting = where + "".join(f"['{part}']" for part in at)
        raise SettingsError(text, where=Where(setting=setting))
    url = str(connection.url).strip()
    driver = connection.driver or getattr(driver_of(url), "class_name", None)
    own = {name.lower() for name in connection.properties}
    defaults = {k: v for k, v in session_properties(url).items() if k.lower() not in own}
    fixed = {
        "url": url,
        "driver": driver,
        "user": connection.user,
        "password": connection.password,
        "fetchsize": str(connection.fetch_size),
        "preferTimestampNTZ": "true",
    }
    given_values = {name: value for name, value in fixed.items() if value is not None}
    return {**defaults, **connection.properties, **given_values}
