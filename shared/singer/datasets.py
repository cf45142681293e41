"""Who is told what happens in a run, and the datasets that are named there. Pure.

Their names follow the conventions of OpenLineage, and never hold a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from shared.storage.urls import local_path, shown, split_url

Fields = tuple[tuple[str, str], ...]
"""Names of columns with their types."""


@dataclass(frozen=True)
class Dataset:
    """Something that a run reads or writes, under the names of OpenLineage.

    Attributes:
        name: Its name in the namespace; for a stream that of its messages.
        namespace: Where it is; None for a stream of messages, which has a place in no storage.
        table: Its name among the `tables` of the stream in the run summary, if it has one.
    """

    name: str
    namespace: str | None = None
    fields: Fields = ()
    table: str | None = None

    @property
    def place(self) -> str | None:
        """Where it is, for people: a path, or a URL-like name; None for a stream of messages."""
        if self.namespace is None:
            return None
        return self.name if self.namespace == "file" else f"{self.namespace}/{self.name}"


class RunObserver(Protocol):
    """Told by the summary of a run; called from any thread.

    No method may wait for another system, but for `ended`, which waits for a short time at most.
    """

    def uses(self, stream: str, datasets: Iterable[Dataset], *, is_output: bool) -> None:
        """Take the datasets that a stream reads or writes; they may have been told before."""
        ...

    def counts(self, stream: str, counts: Mapping[str, float]) -> None:
        """Take what was added to counts of a stream; names are those of the run summary."""
        ...

    def ended(self, facts: Mapping[str, Any]) -> None:
        """Take the run summary: the run has ended."""
        ...


def schema_fields(schema: Mapping[str, Any]) -> Fields:
    """Return the properties of a JSON Schema with their types, `date-time` before `string`."""
    return tuple((name, _type_of(kind)) for name, kind in (schema.get("properties") or {}).items())


def _type_of(kind: Any) -> str:
    if not isinstance(kind, Mapping):
        return "any"
    if isinstance(kind.get("format"), str):
        return str(kind["format"])
    types = kind.get("type")
    named = [types] if isinstance(types, str) else types or ()
    return next((str(name) for name in named if name != "null"), "any")


DatasetName = tuple[str, str]

_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss"}
_DATABASES = {"postgresql": "postgres", "sqlserver": "mssql"}
_PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306, "sqlserver": 1433, "oracle": 1521}
_JDBC = re.compile(
    r"jdbc:(?P<kind>[a-z]+):(?:thin:[^@]*@)?(?://(?:[^@/]*@)?(?P<host>\[[^\]]*\]|[^:/;?,]*)"
    r"(?::(?P<port>\d+))?[^/;?]*)?(?P<name>[^;?]*)(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_SERVER_NAME = re.compile(r";\s*database(?:Name)?\s*=\s*([^;]*)", re.IGNORECASE)
_BUCKETS = {"s3", "gs", "abfss"}
"""Schemes whose names begin without a slash."""


def place_name(place: str) -> DatasetName:
    """Return the name of a file, a folder or a glob: of a glob the folder before it."""
    local = local_path(place)
    if local is not None:
        return "file", str(Path(_before_wild(local, "*?[{") or ".").absolute())
    written, netloc, whole = split_url(place)
    scheme = _SCHEMES.get(written.lower(), written.lower())
    # In Azure's URLs, what stands before the @ is a container.
    host = netloc if scheme == "abfss" else netloc.rpartition("@")[2]
    path = _before_wild(whole, "*[{").rstrip("/")
    return f"{scheme}://{host}", (path.lstrip("/") if scheme in _BUCKETS else path) or "/"


def _before_wild(path: str, wild: str) -> str:
    first = next((at for at, letter in enumerate(path) if letter in wild), None)
    return path if first is None else path[:first].rpartition("/")[0]


def table_name(kind: str, host: str, port: int | None, parts: Sequence[str]) -> DatasetName:
    """Return the name of a table of a database server.

    Args:
        kind: As in JDBC URLs.
        port: None for the usual one.
        parts: Names of the database, the schema if there is one, and the table.
    """
    at = port or _PORTS.get(kind)
    return f"{_DATABASES.get(kind, kind)}://{host}{f':{at}' if at else ''}", ".".join(parts)


def jdbc_name(url: str, table: Sequence[str]) -> DatasetName | None:
    """Return the name of a table; None if the URL tells too little.

    Args:
        table: Schema, if it is known, and name of the table.
    """
    match = _JDBC.fullmatch(url.strip())
    if match is None:
        return None
    kind, name, schema = match["kind"].lower(), match["name"], table
    if match["host"] is None:
        # A login may stand behind the name of a protocol: `jdbc:mysql:loadbalance://me:x@host/db`,
        # or in an address: `jdbc:mysql:replication://address=(host=db)(password=x)/db`.
        if re.search(r"password\s*=", name, re.IGNORECASE):
            return None
        if "://" in name and "@" in match["rest"] and "@" not in name:
            return None
        name = name.rpartition("@")[2] if kind in _PORTS or "://" in name else name
        return (f"{kind}:{name}", ".".join(table)) if name else None
    if "=" in match["host"]:  # `(host=db,password=x)`
        return None
    named = _SERVER_NAME.search(match["rest"])
    name = named[1].strip() if named else name.lstrip("/")
    if kind == "postgresql" and len(table) == 1:
        schema = ("public", *table)
    port = int(match["port"]) if match["port"] else None
    # The databases of these are what others call schemas.
    has_schema = kind in {"mysql", "mariadb"} and len(table) > 1
    inside = schema if has_schema or not name else (name, *schema)
    return table_name(kind, match["host"] or "localhost", port, inside)


def catalog_table_name(conf: Mapping[str, str], parts: Sequence[str]) -> DatasetName:
    """Return the name of a table in a catalog of Spark.

    Args:
        conf: Spark's configuration: the address of the catalog, or its warehouse, is the namespace.
        parts: Names of catalog, schema and table, or the last ones of these.
    """
    catalog, inside = (parts[0], parts[1:]) if len(parts) > 2 else ("spark_catalog", parts)  # noqa: PLR2004
    keys = (f"spark.sql.catalog.{catalog}.{key}" for key in ("uri", "warehouse"))
    place = next((conf[key] for key in keys if conf.get(key)), catalog)
    return shown(place) if "://" in place else place, ".".join(inside)
