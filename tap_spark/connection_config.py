"""One item of the setting `connections`: a database or catalog whose tables discovery lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.settings_check import Problem
from shared.spark_settings import text_values
from tap_spark.jdbc.urls import property_problems

KINDS = ("url", "catalog", "path")
"""What a connection may lead to, exactly one of which is needed."""
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
        user: Who logs in.
        password: Of the user.
        driver: Java class of the driver; None for the one that fits the URL.
        package: Maven coordinates of the driver; None for those that fit the URL.
        properties: Further properties of the driver.
        allow_properties: Names of driver properties that are refused otherwise.
        catalog: Name of a Spark catalog.
        path: Folder or URL below which Delta and Iceberg tables lie.
        include: Globs of `schema.table`; a table that fits none is left out.
        exclude: Globs of `schema.table` to leave out all the same.
        views: Whether views are listed.
        stream_prefix: Put before the name of every stream.
        snapshot: Read a table's parts as of one moment, where the database can.
        partitions: Parallel parts of a table; None lets the program choose.
        fetch_size: Rows the driver asks for at a time.
        retries: How often a failed connection is tried again.
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
        "user": {**_NAME, "description": "Who logs in."},
        "password": {"type": "string", "secret": True, "description": "Password of the user."},
        "driver": {
            **_NAME,
            "description": "Java class of the JDBC driver, where the url does not tell it.",
        },
        "package": {
            **_NAME,
            "description": "Maven coordinates of the JDBC driver, where the url does not tell "
            "them, or another version is wanted.",
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
            "description": "Names of driver properties that may be set although they can load "
            "classes, read files or switch off security.",
        },
        "catalog": {
            **_NAME,
            "description": "Name of a Spark catalog (configured in `spark.conf`).",
            "examples": ["spark_catalog"],
        },
        "path": {
            **_NAME,
            "description": "Folder or URL below which Delta and Iceberg tables lie.",
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
            "description": "Globs of `schema.table` to leave out all the same.",
        },
        "views": {"type": "boolean", "default": True, "description": "Whether views are listed."},
        "stream_prefix": {
            "type": "string",
            "default": "",
            "description": "Put before the name of every stream of the connection.",
        },
        "snapshot": {
            "type": "boolean",
            "default": True,
            "description": "Read all parts of a table as of one moment, where the database can "
            "(see docs/databases.md).",
        },
        "partitions": {
            "type": "integer",
            "minimum": 1,
            "description": "Parts of a table that are read in parallel; chosen by the table's "
            "statistics where not set.",
        },
        "fetch_size": {
            "type": "integer",
            "minimum": 1,
            "default": 10_000,
            "description": "Rows the JDBC driver asks for at a time.",
        },
        "retries": {
            "type": "integer",
            "minimum": 0,
            "default": 3,
            "description": "How often a connection that failed for a passing reason is tried "
            "again.",
        },
    },
}


def connection_config(connection: Mapping[str, Any]) -> ConnectionConfig:
    """Give a validated item of `connections` its typed form."""
    values = dict(connection)
    for name in ("include", "exclude", "allow_properties"):
        values[name] = tuple(values[name])
    for name in ("partitions", "fetch_size", "retries"):
        if name in values:
            values[name] = int(values[name])
    values["properties"] = text_values(values["properties"])
    return ConnectionConfig(**values)


def connection_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Cross-field rules of `connections`."""
    connections = settings.get("connections")
    items = connections if isinstance(connections, list) else []
    seen: dict[str, int] = {}
    for index, item in enumerate(items):
        if not isinstance(item, Mapping):
            continue
        yield from (Problem(("connections", index, *at), text) for at, text in _problems(item))
        name = item.get("name")
        if isinstance(name, str) and seen.setdefault(name, index) != index:
            text = f"{name!r} is the name of config['connections'][{seen[name]}] too"
            yield Problem(("connections", index, "name"), text)
    if not settings.get("streams") and not items:
        yield Problem((), "nothing to read: give 'streams', 'connections' or both")


def _problems(item: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    given = [kind for kind in KINDS if kind in item]
    if len(given) != 1:
        listed = ", ".join(map(repr, KINDS))
        yield (), f"give exactly one of {listed}"
    url = item.get("url")
    if isinstance(url, str) and not url.startswith("jdbc:"):
        yield ("url",), "must begin with 'jdbc:'"
    yield from property_problems(item)
    if "url" not in item:
        for name in ONLY_FOR_URL:
            if name in item:
                yield (name,), "has no meaning without 'url'; leave it out"
