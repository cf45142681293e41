"""Settings that load into a path or URL: those of a run, and those that `init` writes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shared.errors import SettingsError
from shared.settings.config_text import Comment, without_comments
from shared.settings.database_urls import DatabaseLogin, database_login
from shared.spark.s3a import PACKAGE
from shared.storage.urls import S3_SCHEMES, split_url
from target_spark.config import REGISTRY, target_config
from target_spark.destinations.databases.database_tables import JdbcSettings, address_of
from target_spark.destinations.destination_declaration import Declaration

PREFIX = "TARGET_SPARK_JDBC__"
PASSWORD = f"{PREFIX}PASSWORD"
_LAKES = ("delta", "iceberg")
_DEEPEST = 3
_MOST_FOLDERS = 1000


def place_settings(
    place: str, form: str | None, environ: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """Return the settings that load into a path or URL: `target-spark loaded/`.

    Args:
        place: A folder, or the URL of a database.
        form: The setting `format`; None for its default.
        environ: The environment; see `database_login`.

    Raises:
        SettingsError: It is a file.
    """
    database = database_login(place, environ, PREFIX)
    if database is not None:
        return {"format": form or "jdbc", "jdbc": {"url": database.url, **database.login}}
    if os.path.isfile(place):  # noqa: PTH113
        raise SettingsError(
            f"'{place}' is a file", hint=f"give a folder; for settings, --config {place}"
        )
    return {"path": place, **({} if form is None else {"format": form})}


def destination_draft(place: str, form: str | None, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return settings, with comments, that load into a path or URL.

    Args:
        place: A folder, or the URL of a database.
        form: The setting `format`; None for that of the tables in the folder, or the default.
        environ: `TARGET_SPARK_JDBC__USER` is the user of a database.

    Raises:
        SettingsError: It is a file, the folder has tables of several formats, a setting does not
            fit, or the URL holds a secret.
    """
    database = database_login(place, environ, PREFIX)
    settings = place_settings(place, form, environ)
    if database is not None:
        created = _of_database(settings, database.for_settings(PASSWORD))
    else:
        if "://" in place and "@" in split_url(place)[1]:
            raise SettingsError(
                "the URL holds a login, which must not be in the settings",
                hint="leave it out; `target-spark docs s3` says where credentials are found",
            )
        created = _of_folder(place, form)
    target_config(without_comments(created))
    return created


def _of_database(settings: Mapping[str, Any], database: DatabaseLogin) -> dict[str, Any]:
    url = settings["jdbc"]["url"]
    address = address_of(JdbcSettings(url))
    if address.without_secrets(url) != url or address.password:
        raise SettingsError(
            "the URL holds a password, which must not be in the settings",
            hint=f"leave it out, and set {PASSWORD} in the environment",
        )
    user = database.user
    secret = f"The password stays in the environment: export {PASSWORD}=..., and give --config ENV."
    extra = "postgresql" if address.kind == "postgresql" else "mysql"
    return {
        Comment(f"Needs pip install 'singer-spark[{extra}]'."): None,
        "format": settings["format"],
        **_choices(REGISTRY.get(settings["format"])),
        "jdbc": {**({"user": user} if user else {}), Comment(secret): None, "url": url},
    }


def _of_folder(place: str, form: str | None) -> dict[str, Any]:
    results = set() if "://" in place else set(_formats_in(Path(place)))
    if form is None and len(results) > 1:
        raise SettingsError(
            f"'{place}' has tables of several formats ({', '.join(sorted(results))})",
            hint="give --format NAME, or another folder",
        )
    chosen = form or next(iter(results), "parquet")
    others = ", ".join(name for name in REGISTRY.formats if name not in {chosen, "jdbc"})
    created: dict[str, Any] = {Comment(f"Other formats: {others}."): None, "format": chosen}
    created |= _choices(REGISTRY.get(chosen))
    if place.startswith(S3_SCHEMES):
        created[Comment("Credentials come from the environment: `target-spark docs s3`.")] = None
        created |= {"spark": {"packages": [PACKAGE]}} if chosen in _LAKES else {}
    return {**created, "path": place}


def _choices(declared: Declaration) -> dict[str, Any]:
    """Return comments with settings that can be switched on."""
    able = declared.supports
    texts = []
    if able.upsert:
        texts += ["Replace rows of the same key; streams need key properties:"]
        texts += ["load_method: upsert"]
    if able.overwrite:
        texts += ["Replace the whole tables of these streams in each run:"]
        texts += ['streams: {"daily_*": {load_method: overwrite}}']
    return {Comment(text): None for text in texts}


def _formats_in(folder: Path, depth: int = 0) -> Iterator[str]:
    """Yield the formats of the tables in a folder, by the names of what is in it."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder))[:_MOST_FOLDERS]
    except OSError:
        return
    if "_delta_log" in names:
        yield "delta"
    elif "metadata" in names and any(folder.glob("metadata/*.metadata.json")):
        yield "iceberg"
    else:
        endings = (re.search(r"\.(parquet|json|csv|orc)(\.\w+)?$", name) for name in names)
        yield from (result[1] for result in endings if result is not None)
        for name in names if depth < _DEEPEST else ():
            if not name.startswith((".", "_")) and (folder / name).is_dir():
                yield from _formats_in(folder / name, depth + 1)
