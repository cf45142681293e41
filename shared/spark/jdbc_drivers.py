"""The JDBC driver for a URL. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Driver:
    """A JDBC driver.

    Attributes:
        database: Short name of the database, a key of the registry of dialects.
        prefixes: How its URLs begin.
        package: Maven coordinates.
        class_name: Java class.
    """

    database: str
    prefixes: tuple[str, ...]
    package: str
    class_name: str


DRIVERS = (
    Driver(
        "postgresql",
        ("jdbc:postgresql:",),
        "org.postgresql:postgresql:42.7.14",
        "org.postgresql.Driver",
    ),
    Driver(
        "mysql", ("jdbc:mysql:",), "com.mysql:mysql-connector-j:9.7.0", "com.mysql.cj.jdbc.Driver"
    ),
    Driver(
        "mysql",
        ("jdbc:mariadb:",),
        "org.mariadb.jdbc:mariadb-java-client:3.5.11",
        "org.mariadb.jdbc.Driver",
    ),
    Driver(
        "sqlserver",
        ("jdbc:sqlserver:",),
        "com.microsoft.sqlserver:mssql-jdbc:13.6.2.jre11",
        "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    ),
    Driver(
        "oracle",
        ("jdbc:oracle:",),
        "com.oracle.database.jdbc:ojdbc11:23.26.4.0.0",
        "oracle.jdbc.OracleDriver",
    ),
    Driver("sqlite", ("jdbc:sqlite:",), "org.xerial:sqlite-jdbc:3.53.4.0", "org.sqlite.JDBC"),
    Driver(
        "duckdb", ("jdbc:duckdb:",), "org.duckdb:duckdb_jdbc:1.5.6.0", "org.duckdb.DuckDBDriver"
    ),
)


def driver_of(url: str) -> Driver | None:
    """Find the driver for a JDBC URL; None if no known driver fits."""
    text = url.strip().lower()
    return next((driver for driver in DRIVERS if text.startswith(driver.prefixes)), None)
