"""One item of the setting `connections`: a database or catalog whose tables discovery lists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shared.errors import InvalidSettingsError
from shared.settings.checking import Problem
from shared.settings.kinds import (
    ANY_TEXT,
    NAMES,
    SECRET_VALUES,
    SWITCH,
    TEXT,
    at_least,
    setting,
)
from tap_spark.driver_properties import decoded, property_problems

KINDS = {"url": "a url", "catalog": "a catalog", "path": "a path", "brokers": "brokers"}
"""Kinds of connections, each with its words; an item has exactly one of these settings."""
ONLY_FOR_BROKERS = ("options", "schema_registry")
ONLY_FOR_URL = (
    "user",
    "password",
    "password_variable",
    "driver",
    "package",
    "properties",
    "allow_properties",
    "snapshot",
    "partitions",
    "fetch_size",
    "retries",
    "count_rows",
)
_URL_SECRET = re.compile(r"(?:password|passwd|pwd|secret|token)\w*\s*=\s*([^&;,\s)]+)", re.I)
_URL_LOGIN = re.compile(r"//[^/?#@]*?:([^/?#]*)@|jdbc:oracle:\w+:[^/@]*/([^@]*)@")
_SECRET_NAME = re.compile(r"password|passwd|pwd|secret|token|key$", re.I)


@dataclass(frozen=True)
class ConnectionConfig:
    """One item of `connections`."""

    name: str = setting(TEXT, "Name of the connection.", required=True, examples=["shop"])
    url: str | None = setting(
        TEXT,
        "JDBC URL of a database.",
        secret=True,
        examples=["jdbc:postgresql://db.example.com/shop"],
    )
    user: str | None = setting(TEXT, "User name.")
    password: str | None = setting(ANY_TEXT, "Password of the user.", secret=True)
    password_variable: str | None = setting(
        TEXT,
        "Environment variable that holds the password, if `password` is not set.",
        examples=["SHOP_PASSWORD"],
    )
    driver: str | None = setting(
        TEXT, "Java class of the JDBC driver, if the url does not determine it."
    )
    package: str | None = setting(
        TEXT,
        "Maven coordinates of the JDBC driver, if the url does not determine them, or for another "
        "version.",
        examples=["org.postgresql:postgresql:42.7.14"],
    )
    properties: Mapping[str, str] = setting(
        SECRET_VALUES,
        "Further properties of the JDBC driver.",
        default={},
        examples=[{"ssl": True}],
    )
    allow_properties: tuple[str, ...] = setting(
        NAMES,
        "Names of driver properties to allow, although they can load classes, read files or turn "
        "off security.",
        default=[],
    )
    catalog: str | None = setting(
        TEXT,
        "Name of a Spark catalog (configured in `spark.conf`).",
        examples=["spark_catalog"],
    )
    path: str | None = setting(
        TEXT,
        "Folder or URL with Delta and Iceberg tables below it.",
        examples=["/lake", "s3a://bucket/lake"],
    )
    brokers: str | None = setting(
        TEXT,
        "Brokers of Kafka, as `host:port`, with commas between them.",
        examples=["kafka-1.example.com:9092,kafka-2.example.com:9092"],
    )
    options: Mapping[str, str] = setting(
        SECRET_VALUES,
        "Options of Kafka's consumer for the connection, such as those of SASL and TLS; their "
        "names begin with `kafka.`. Only with `brokers`.",
        default={},
        examples=[{"kafka.security.protocol": "SASL_SSL"}],
    )
    schema_registry: str | None = setting(
        TEXT,
        "URL of the schema registry, with user and password if it asks for them. Only with "
        "`brokers`.",
        secret=True,
        examples=["https://registry.example.com:8081"],
    )
    include: tuple[str, ...] = setting(
        NAMES,
        "Globs of `schema.table`, or of topics, to list.",
        default=["*"],
        examples=[["public.*", "sales.order_*"]],
    )
    exclude: tuple[str, ...] = setting(
        NAMES, "Globs of `schema.table`, or of topics, to exclude, even if included.", default=[]
    )
    views: bool = setting(SWITCH, "Whether to list views.", default=True)
    stream_prefix: str = setting(
        ANY_TEXT, "Prefix of the name of every stream of the connection.", default=""
    )
    snapshot: bool = setting(
        SWITCH,
        "Read all parts of a table in one snapshot, if the database can (see "
        "`tap-spark docs databases`).",
        default=True,
    )
    partitions: int | None = setting(
        at_least(1),
        "Number of parts of a table to read in parallel; chosen from the table's statistics if not "
        "set.",
    )
    fetch_size: int = setting(
        at_least(1),
        "Rows the JDBC driver fetches at a time, at most: fewer if they would be more than 16 MiB.",
        default=10_000,
    )
    retries: int = setting(
        at_least(0),
        "How often to retry after a temporary failure, such as a lost connection.",
        default=3,
    )
    count_rows: bool = setting(
        SWITCH,
        "Let the database count the rows of each read before it begins, and warn if another number "
        "of records was sent. Costs a query for each stream.",
        default=False,
    )


def secrets_of(connection: ConnectionConfig) -> tuple[str, ...]:
    """Return every text of a connection that no message may show, the longest first."""
    found = [connection.password or ""]
    for text in decoded(connection.url or ""):
        found += _URL_SECRET.findall(text)
        found += [part for pair in _URL_LOGIN.findall(text) for part in pair]
    found += [value for name, value in connection.properties.items() if _SECRET_NAME.search(name)]
    return tuple(sorted({text for text in found if text}, key=len, reverse=True))


def with_passwords(settings: Mapping[str, Any], variables: Mapping[str, str]) -> Mapping[str, Any]:
    """Return settings with the passwords that `password_variable` of connections leads to.

    Args:
        settings: All settings, not necessarily valid ones.
        variables: Environment variables; an empty value means not set.

    Raises:
        InvalidSettingsError: Variables are not set; names each of them.
    """
    items = settings.get("connections")
    if not isinstance(items, list):
        return settings
    problems: list[str] = []
    found: list[Any] = []
    for index, item in enumerate(items):
        name = item.get("password_variable") if isinstance(item, Mapping) else None
        if not isinstance(name, str) or "password" in item:
            found.append(item)
        elif variables.get(name):
            found.append({**item, "password": variables[name]})
        else:
            at = f"config['connections'][{index}]['password_variable']"
            problems.append(f"{at}: the environment variable '{name}' is not set (export {name})")
    if problems:
        raise InvalidSettingsError(problems)
    return {**settings, "connections": found}


def connection_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Check the cross-field rules of `connections`."""
    connections = settings.get("connections")
    items = connections if isinstance(connections, list) else []
    seen: dict[str, int] = {}
    for index, item in enumerate(items):
        if not isinstance(item, Mapping):
            continue
        yield from (Problem(("connections", index, *at), text) for at, text in _problems(item))
        name = item.get("name")
        if isinstance(name, str) and seen.setdefault(name, index) != index:
            text = f"{name!r} is already the name of config['connections'][{seen[name]}]"
            yield Problem(("connections", index, "name"), text)
    if not settings.get("streams") and not items:
        yield Problem((), "nothing to read: set 'streams', 'connections' or both")


def _problems(item: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    given = [kind for kind in KINDS if kind in item]
    if len(given) != 1:
        listed = ", ".join(map(repr, KINDS))
        yield (), f"needs exactly one of {listed}"
    url = item.get("url")
    if isinstance(url, str) and not url.startswith("jdbc:"):
        yield ("url",), "must begin with 'jdbc:'"
    yield from property_problems(item)
    if "url" not in item:
        for name in ONLY_FOR_URL:
            if name in item:
                yield (name,), "applies only with 'url'; remove it"
    yield from _broker_problems(item)


def _broker_problems(item: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    if "brokers" not in item:
        for name in ONLY_FOR_BROKERS:
            if name in item:
                yield (name,), "applies only with 'brokers'; remove it"
        return
    options = item.get("options")
    for name in options if isinstance(options, Mapping) else ():
        if not str(name).startswith("kafka."):
            yield ("options", str(name)), "must begin with 'kafka.'"
        if name == "kafka.bootstrap.servers":
            yield ("options", str(name)), "is the setting 'brokers'; remove it"
    registry = item.get("schema_registry")
    if isinstance(registry, str) and not registry.startswith(("http://", "https://")):
        yield ("schema_registry",), "must begin with 'http://' or 'https://'"
