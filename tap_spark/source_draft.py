"""Settings that `tap-spark init` writes for a path or URL, with comments."""

from __future__ import annotations

import glob
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from shared.errors import SettingsError, SourceError, SparkStartError
from shared.settings.config_text import Comment, without_comments
from shared.settings.database_urls import DatabaseLogin, database_login
from shared.spark.jdbc_drivers import driver_of
from shared.storage.s3a import PACKAGE, SCHEMES
from tap_spark.config import TapConfig, tap_config
from tap_spark.connection_config import ConnectionConfig, secrets_of
from tap_spark.folder_draft import files_draft, folder_draft, is_folder
from tap_spark.place_argument import place_settings

if TYPE_CHECKING:
    from tap_spark.sources.connections.connection import DiscoveredTable

_logger = logging.getLogger(__name__)

Ask = Callable[[TapConfig], Sequence["DiscoveredTable"]]
"""Lists the tables of connections; raises SourceError or SparkStartError if it cannot."""

PASSWORD = "TAP_SPARK_PASSWORD"  # noqa: S105
MOST_TABLES = 100
"""Tables that are named one by one in `include`."""
_IN_A_FILE = ("sqlite", "duckdb")


def source_draft(
    place: str, form: str | None, environ: Mapping[str, str], ask: Ask
) -> dict[str, Any]:
    """Return settings, with comments, that read what a path or URL leads to.

    Args:
        place: A file, a folder, a glob, or the URL of a database.
        form: Format of the files; None to tell it from their names.
        environ: `TAP_SPARK_USER` and `TAP_SPARK_PASSWORD` are those of a database.
        ask: Asks a database for its tables.

    Raises:
        SettingsError: There is nothing to read, its format is unknown, or the URL holds a secret.
        SourceError: A folder cannot be listed.
    """
    database = database_login(place, environ, "TAP_SPARK_")
    if database is not None:
        place = database.for_settings(PASSWORD).url
    _check_secrets(place)
    if database is not None:
        made = _of_database(database, ask)
    elif form is None and is_folder(place):
        made = folder_draft(place)
    else:
        [stream] = place_settings(place, form, environ)["streams"]
        made = files_draft(stream)
    if place.startswith(SCHEMES):
        text = "Spark's way to S3. Credentials come from the environment: `tap-spark docs s3`."
        made = {Comment(text): None, "spark": {"packages": [PACKAGE]}, **made}
    tap_config(without_comments(made))
    return made


def _check_secrets(place: str) -> None:
    probe = ConnectionConfig(name="database", url=place)
    if place.startswith("jdbc:"):
        if secrets_of(probe):
            raise SettingsError(
                "the URL holds a password or another secret, which must not be in the settings",
                hint=f"leave it out, and set {PASSWORD} in the environment",
            )
    elif "://" in place and ("@" in urlsplit(place).netloc or secrets_of(probe)):
        raise SettingsError(
            "the URL holds a login, which must not be in the settings",
            hint="leave it out; `tap-spark docs s3` says where credentials are found",
        )


def _of_database(database: DatabaseLogin, ask: Ask) -> dict[str, Any]:
    url, user, password = database.url, database.user, database.password
    is_file = getattr(driver_of(url), "database", None) in _IN_A_FILE
    if is_file:
        _check_there(url)
    item: dict[str, Any] = {"name": _database_name(url), "url": url}
    item |= {"user": user} if user else {}
    login = {"password": password} if password else {}
    asked = tap_config({"connections": [{**item, **login, "retries": 0}]})
    tables: Sequence[DiscoveredTable] | None = None
    try:
        tables = ask(asked)
    except (SourceError, SparkStartError) as error:
        _logger.warning("the database could not be asked for its tables: %s", error)
    if password or (tables is None and not is_file):
        item[Comment(f"The password stays in the environment: export {PASSWORD}=...")] = None
        item["password_variable"] = PASSWORD
    return {"connections": [{**item, **_included(tables)}]}


def _check_there(url: str) -> None:
    """Raise SettingsError if a database's file is missing: its driver would make an empty one."""
    path = re.split(r"[?;]", url.split(":", 2)[2])[0]
    is_path = path and not path.startswith((":", "file:"))
    if is_path and not Path(path).exists():
        raise SettingsError(f"'{path}' does not exist", hint="give the file of the database")


def _database_name(url: str) -> str:
    last = re.split(r"[?;]", url)[0].rstrip("/").rpartition("/")[2].rpartition(":")[2]
    return re.sub(r"\W+", "_", last.split(".")[0]).strip("_") or "database"


def _included(tables: Sequence[DiscoveredTable] | None) -> dict[str, Any]:
    """Return the setting `include`, with comments."""
    if tables is None:
        text = "init could not ask for the tables; --discover lists them."
    elif not 0 < len(tables) <= MOST_TABLES:
        text = f"There are {len(tables)} tables and views."
    else:
        text = "Columns and replication keys are chosen in the catalog (--discover)."
        named = [item for table in tables for item in (_facts(table), _pattern(table))]
        return {Comment(text): None, "include": named}
    return {Comment(text): None, Comment("Globs of `schema.table`:"): None, "include": ["*"]}


def _facts(table: DiscoveredTable) -> Comment:
    keys = ", ".join(table.stream.key_properties)
    kind = "view" if table.is_view else "table"
    return Comment(f"{kind}, {len(table.struct)} column(s), {f'key: {keys}' if keys else 'no key'}")


def _pattern(table: DiscoveredTable) -> str:
    schema = () if table.schema_name is None else (table.schema_name,)
    return ".".join(map(glob.escape, (*schema, table.table_name)))
