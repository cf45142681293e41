"""A path or URL on the command line as settings: `tap-spark orders.csv`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shared.errors import SettingsError
from shared.settings.checking import redacted
from shared.settings.database_urls import database_login
from shared.settings.loading import FORMATS as FORMATS_OF_SETTINGS
from shared.settings.loading import read_settings_file
from shared.storage.urls import local_path
from tap_spark.sources.source_declaration import COMPRESSED

FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".orc": "orc",
    ".avro": "avro",
    ".txt": "text",
    ".log": "text",
}
"""Endings of files, and what reads them."""

_LONGEST_SETTINGS = 1 << 20


def place_settings(place: str, form: str | None, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that read what a path or URL leads to.

    Args:
        place: A file, a folder, a glob, or the URL of a database.
        form: Format of the files; None to tell it from their names.
        environ: The environment; see `database_login`.

    Returns:
        `connections` for a database and for a folder of tables, else `streams`.

    Raises:
        SettingsError: There is nothing, it cannot be read, or its format is not known.
    """
    database = database_login(place, environ, "TAP_SPARK_")
    if database is not None:
        return {"connections": [{"name": "database", "url": database.url, **database.login}]}
    path = local_path(place)
    if path is not None and not any(sign in place for sign in "*?[{"):
        try:
            _check_local(Path(path), place)
            form = form or table_format(Path(path))
            if form is None and Path(path).is_dir():
                return _folder(Path(path), place)
        except OSError as error:
            raise SettingsError(f"'{place}' cannot be read ({error.strerror})") from error
    detected = form or format_of([place.rsplit("/", 1)[-1]], place)
    return {"streams": [stream_at(place, detected)]}


def stream_at(place: str, form: str) -> dict[str, Any]:
    """Return the settings of the stream that reads files; it has the name of the last part."""
    parts = [part.split(".")[0] for part in reversed(place.split("/"))]
    names = (re.sub(r"\W+", "_", part).strip("_") for part in parts)
    first = next((name for name in names if name), "rows")
    stream = {"name": first, "format": form, "path": place}
    return {**stream, "options": {"sep": "\t"}} if _bare(place).endswith(".tsv") else stream


def _folder(path: Path, place: str) -> dict[str, Any]:
    if any(table_format(inside) for inside in path.iterdir() if inside.is_dir()):
        return {"connections": [{"name": path.resolve().name, "path": place}]}
    names = sorted(file.name for file in path.rglob("*") if _is_visible(file, path))
    return {"streams": [stream_at(place.rstrip("/"), format_of(names, place))]}


def _is_visible(file: Path, root: Path) -> bool:
    inside = file.relative_to(root).parts
    return file.is_file() and not any(part.startswith((".", "_")) for part in inside)


def table_format(path: Path) -> str | None:
    """Return the format of a table's folder; None for anything else."""
    if (path / "_delta_log").is_dir():
        return "delta"
    return "iceberg" if any(path.glob("metadata/*.metadata.json")) else None


def format_of(names: Sequence[str], place: str) -> str:
    """Return the format of files, by their endings.

    Args:
        names: The files.
        place: What holds them, for the error.

    Raises:
        SettingsError: There are none, or several formats, or endings that are not known.
    """
    candidates = {FORMATS.get(ending(name)) for name in names}
    formats = {form for form in candidates if form is not None}
    if len(formats) == 1 and None not in candidates:
        return formats.pop()
    if not names:
        raise SettingsError(f"the folder '{place}' is empty")
    what = (
        f"files of several formats ({', '.join(sorted(formats))})" if formats else "no known ending"
    )
    raise SettingsError(
        f"'{redacted(place)}' has {what}",
        hint="give --format NAME, or a glob such as 'folder/*.csv'",
    )


def ending(name: str) -> str:
    """Return the ending of a file's name, without that of its compression."""
    return Path(_bare(name)).suffix.lower()


def _bare(name: str) -> str:
    """Return a name without the ending of its compression."""
    end = next((end for end in COMPRESSED if name.lower().endswith(end)), "")
    return name[: len(name) - len(end)]


def _check_local(path: Path, place: str) -> None:
    if not path.exists():
        raise SettingsError(
            f"'{place}' does not exist", hint="give a file, a folder, a glob or a URL"
        )
    is_like_settings = path.suffix.lower() in FORMATS_OF_SETTINGS and path.is_file()
    if is_like_settings and path.stat().st_size < _LONGEST_SETTINGS:
        try:
            content = read_settings_file(path)
        except ValueError:
            return
        if {"streams", "connections"} & content.keys():
            raise SettingsError(f"'{place}' holds settings", hint=f"give --config {place}")
