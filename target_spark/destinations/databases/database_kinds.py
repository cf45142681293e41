"""Every kind of database that can be loaded into; each is imported when it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from target_spark.destinations.databases.database import Database


def _postgresql() -> Database:
    from target_spark.destinations.databases.postgresql.postgresql_database import PostgreSql  # noqa: PLC0415

    return PostgreSql()


def _mysql() -> Database:
    from target_spark.destinations.databases.mysql.mysql_database import MySql  # noqa: PLC0415

    return MySql()


DATABASES: Mapping[str, Callable[[], Database]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
}
"""Every kind of database by the second word of its JDBC URLs."""
