"""One item of the setting `connections`: a database or catalog whose tables discovery lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.settings_check import Problem
from shared.spark_settings import text_values
from tap_spark.jdbc.driver_properties import property_problems

KINDS = ("url", "catalog", "path")
"""Kinds of connections; an item has exactly one of these settings."""
ONLY_FOR_URL = (
    "user",
    "password",
    "driver",
    "package",
    "properties",
    "allow_properties",
    "snapshot",
    "partitions",
    "fetch_size",
    "retries",
)


@dataclass(frozen=True)
class ConnectionConfig:
    """One item of `connections`.

    Attributes:
        name: Name of the connection.
        url: JDBC URL of a database.
        user: User name.
        password: Password of the user.
        driver: Java class of the driver; None for the default of the URL.
        package: Maven coordinates of the driver; None for the default of the URL.
        properties: Further properties of the driver.
        allow_properties: Names of driver properties that are rejected by default.
        catalog: Name of a Spark catalog.
        path: Folder or URL with Delta and Iceberg tables below it.
        include: Globs of `schema.table` to list.
        exclude: Globs of `schema.table` to exclude, even if included.
        views: Whether views are listed.
        stream_prefix: Prefix of the name of every stream.
        snapshot: Read all parts of a table in one snapshot, if the database can.
        partitions: Parallel parts of a table; None lets tap-spark choose.
        fetch_size: Rows the driver fetches at a time.
        retries: Retries after a temporary failure.
    """

    name: str
    url: str | None = None
    user: str | None = None
    password: str | None = None
    driver: str | None = None
    package: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    allow_properties: tuple[str, ...] = ()
    catalog: str | None = None
    path: str | None = None
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    views: bool = True
    stream_prefix: str = ""
    snapshot: bool = True
    partitions: int | None = None
    fetch_size: int = 10_000
    retries: int = 3


_NAME = {"type": "string", "minLength": 1}
_NAMES = {"type": "array", "items": _NAME, "uniqueItems": True}

CONNECTION_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name"],
    "properties": {
        "name": {**_NAME, "description": "Name of the connection.", "examples": ["shop"]},
        "url": {
            **_NAME,
            "secret": True,
            "description": "JDBC URL of a database.",
            "examples": ["jdbc:postgresql://db.example.com/shop"],
        },
        "user": {**_NAME, "description": "User name."},
        "password": {"type": "string", "secret": True, "description": "Password of the user."},
        "driver": {
            **_NAME,
            "description": "Java class of the JDBC driver, if the url does not determine it.",
        },
        "package": {
            **_NAME,
            "description": "Maven coordinates of the JDBC driver, if the url does not determine "
            "them, or for another version.",
            "examples": ["org.postgresql:postgresql:42.7.14"],
        },
        "properties": {
            "type": "object",
            "additionalProperties": {"type": ["string", "number", "boolean"], "secret": True},
            "default": {},
            "description": "Further properties of the JDBC driver.",
            "examples": [{"ssl": True}],
        },
        "allow_properties": {
            **_NAMES,
            "default": [],
            "description": "Names of driver properties to allow, although they can load classes, "
            "read files or turn off security.",
        },
        "catalog": {
            **_NAME,
            "description": "Name of a Spark catalog (configured in `spark.conf`).",
            "examples": ["spark_catalog"],
        },
        "path": {
            **_NAME,
            "description": "Folder or URL with Delta and Iceberg tables below it.",
            "examples": ["/lake", "s3a://bucket/lake"],
        },
        "include": {
            **_NAMES,
            "default": ["*"],
            "description": "Globs of `schema.table` to list.",
            "examples": [["public.*", "sales.order_*"]],
        },
        "exclude": {
            **_NAMES,
            "default": [],
            "description": "Globs of `schema.table` to exclude, even if included.",
        },
        "views": {"type": "boolean", "default": True, "description": "Whether to list views."},
        "stream_prefix": {
            "type": "string",
            "default": "",
            "description": "Prefix of the name of every stream of the connection.",
        },
        "snapshot": {
            "type": "boolean",
            "default": True,
            "description": "Read all parts of a table in one snapshot, if the database can (see "
            "docs/databases.md).",
        },
        "partitions": {
            "type": "integer",
            "minimum": 1,
            "description": "Number of parts of a table to read in parallel; chosen from the "
            "table's statistics if not set.",
        },
        "fetch_size": {
            "type": "integer",
            "minimum": 1,
            "default": 10_000,
            "description": "Rows the JDBC driver fetches at a time.",
        },
        "retries": {
            "type": "integer",
            "minimum": 0,
            "default": 3,
            "description": "How often to retry after a temporary failure, such as a lost "
            "connection.",
        },
    },
}


def connection_config(connection: Mapping[str, Any]) -> ConnectionConfig:
    """Turn a validated item of `connections` into its typed form."""
    values = dict(connection)
    for name in ("include", "exclude", "allow_properties"):
        values[name] = tuple(values[name])
    for name in ("partitions", "fetch_size", "retries"):
        if name in values:
            values[name] = int(values[name])
    values["properties"] = text_values(values["properties"])
    return ConnectionConfig(**values)


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
