"""Settings that `tap-spark init` writes for a path, folder or URL, with comments."""

from __future__ import annotations

import glob
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.errors import DestinationError, SettingsError, SourceError, SparkStartError, Where
from shared.settings.config_text import Comment, without_comments
from shared.settings.database_urls import DatabaseLogin, database_login
from shared.spark.packages import driver_of
from shared.spark.s3a import PACKAGE
from shared.storage.files import open_input
from shared.storage.urls import S3_SCHEMES, join, local_path, split_url
from tap_spark.config import TapConfig, tap_config
from tap_spark.place_argument import FORMATS, ending, format_of, place_settings, stream_at
from tap_spark.sources.files.paths import escaped, list_files
from tap_spark.sources.formats import source_format
from tap_spark.sources.lakes.lake_tables import TableLocation, TableWalk, table_walk
from tap_spark.sources.tables import DiscoveredTable
from tap_spark.stream_config import ConnectionConfig, secrets_of

if TYPE_CHECKING:
    from tap_spark.sources.files.paths import ListedFile


MOST_STREAMS = 1000
_MOST_NOTES = 20
_FIRST_BYTES = 16 * 1024
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NUMBER = re.compile(r"\d+([-_.:T]?\d+)*")
_NAMED_BY_SPARK = re.compile(r"part(_c)?")
_SIGNS = "*?[]{}\\"


def is_folder(place: str) -> bool:
    """Return whether a path or URL leads to a folder; that of a URL is told by its ending."""
    local = local_path(place)
    if local is not None and os.path.exists(local):  # noqa: PTH110
        return os.path.isdir(local)  # noqa: PTH112
    is_file = any(sign in place for sign in _SIGNS) or ending(place) in FORMATS
    return local is None and not is_file


def folder_draft(place: str) -> dict[str, Any]:
    """Return settings, with comments, that read what is in a folder.

    Files at its top become streams; those whose names differ in numbers, dates or UUIDs become one.
    So does each folder below it with files, and a folder with `name=value` folders as a whole.
    Delta and Iceberg tables become a connection.

    Raises:
        SettingsError: There is nothing to read, or too much.
        SourceError: The folder cannot be listed.
    """
    place = place.rstrip("/") or "/"
    walk, tables, folders = _entries(place)
    draft = _Draft()
    if any(table.path == walk.root for table in tables):
        draft.streams.append((stream_at(place, tables[0].format), ()))
        return draft.settings()
    if tables:
        draft.connections.append(_connection(place, tables))
    loose = _listed(place)
    if any(file.partitioned for file in loose):
        draft.add(place, place, loose)
    else:
        for pattern, path, files in _groups(place, loose):
            draft.add(pattern, path, files)
    held = {table.parts[0] for table in tables}
    for folder in folders:
        if folder not in held and "=" not in folder and not folder.startswith((".", "_")):
            inside = join(place, folder)
            draft.add(inside, inside, _listed(inside))
    if not draft.streams and not draft.connections:
        why = "; ".join(draft.skipped[:_MOST_NOTES]) or "no files and no tables"
        raise SettingsError(f"nothing to read in '{place}': {why}", hint="give --format NAME")
    return draft.settings()


def files_draft(stream: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings, with comments, of one stream of files, which need not be there."""
    files: Sequence[ListedFile] = ()
    with suppress(SourceError, OSError):
        files = _listed(stream["path"])
    return _Draft(streams=[(stream, files)]).settings()


@dataclass
class _Draft:
    """What is in a folder: streams with their files, connections, and what nothing reads."""

    streams: list[tuple[Mapping[str, Any], Sequence[ListedFile]]] = field(default_factory=list)
    connections: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def add(self, like: str, path: str | list[str], files: Sequence[ListedFile]) -> None:
        """Add a stream of files, with a name after a path like theirs."""
        if not files:
            return
        try:
            stream = stream_at(like, format_of([_name(file) for file in files], like))
        except SettingsError as error:
            self.skipped.append(error.message)
            return
        if len(self.streams) == MOST_STREAMS:
            raise SettingsError(f"there are more than {MOST_STREAMS} streams", hint="give a glob")
        parent = like.rpartition("/")[0]
        if _NAMED_BY_SPARK.fullmatch(stream["name"]) and parent:
            stream["name"] = stream_at(parent, "")["name"]
        name = self._unused(stream["name"], stream["format"])
        self.streams.append(({**stream, "name": name, "path": path}, files))

    def _unused(self, name: str, form: str) -> str:
        used = {stream["name"] for stream, _ in self.streams}
        numbered = (f"{name}_{number}" for number in range(2, len(used) + 3))
        return next(each for each in (name, f"{name}_{form}", *numbered) if each not in used)

    def settings(self) -> dict[str, Any]:
        more = len(self.skipped) - _MOST_NOTES
        notes = [*self.skipped[:_MOST_NOTES], *([f"{more} more"] if more > 0 else [])]
        settings: dict[str, Any] = {Comment(f"Not read: {note}"): None for note in notes}
        if self.connections:
            settings["connections"] = self.connections
        if self.streams:
            settings["streams"] = []
        for stream, files in self.streams:
            if files:
                size = sum(file.size for file in files)
                settings["streams"].append(Comment(f"{len(files)} file(s), {size:,} bytes"))
            is_first = stream is self.streams[0][0]
            settings["streams"].append(_commented(stream, files, is_first=is_first))
        return settings


def _commented(
    stream: Mapping[str, Any], files: Sequence[ListedFile], *, is_first: bool
) -> dict[str, Any]:
    form = source_format(stream["format"])
    texts = []
    if is_first:
        texts = ["In any stream: columns that identify a row, for targets that upsert:"]
        texts += ["key_properties: [id]"]
    if is_first and form is not None and form.resumes:
        texts += ["In any stream: let later runs (--state) read only new files and lines:"]
        texts += ["replication_method: INCREMENTAL"]
    separator = _separator(files) if stream["format"] == "csv" else None
    options = stream.get("options") or ({"sep": separator} if separator else {})
    return {
        "name": stream["name"],
        "format": stream["format"],
        **{Comment(text): None for text in texts},
        **({"options": options} if options else {}),
        "path": stream["path"],
    }


def _separator(files: Iterable[ListedFile]) -> str | None:
    """Return what separates fields, if the first line has no comma."""
    line = b""
    for file in files:
        with suppress(OSError, ValueError), open_input(file.url) as opened:
            line = opened.read(_FIRST_BYTES).partition(b"\n")[0]
        break
    separator = max((b";", b"\t", b"|"), key=line.count)
    return separator.decode() if separator in line and b"," not in line else None


def _entries(place: str) -> tuple[TableWalk, list[TableLocation], list[str]]:
    try:
        walk = table_walk(place)
        return walk, list(walk.tables(walk.root)), walk.entries(walk.root)[0]
    except (OSError, DestinationError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SourceError(
            f"the folder cannot be listed: {reason}",
            where=Where(file=place),
            hint="check the path and your permissions",
        ) from error


def _connection(place: str, tables: Sequence[TableLocation]) -> dict[str, Any]:
    names = [f"{'/'.join(table.parts)} ({table.format})" for table in tables]
    more = ", ..." if len(names) > _MOST_NOTES else ""
    text = f"{len(names)} table(s) below the folder: {', '.join(names[:_MOST_NOTES])}{more}"
    local = local_path(place)
    whole = place if local is None else str(Path(local).resolve())
    return {"name": stream_at(whole, "")["name"], Comment(text): None, "path": place}


def _groups(
    place: str, files: Iterable[ListedFile]
) -> Iterator[tuple[str, str | list[str], list[ListedFile]]]:
    """Yield files that are alike: a path like theirs, the path that reads them, and the files."""
    groups: dict[str, list[ListedFile]] = {}
    by_name = {_name(file): file for file in files}
    for name in sorted(by_name):
        pattern = name if set(name) & set(_SIGNS) else _NUMBER.sub("*", _UUID.sub("*", name))
        groups.setdefault(pattern, []).append(by_name[name])
    for pattern, alike in groups.items():
        paths = [join(place, _name(file)) for file in alike]
        if len(alike) == 1:
            yield paths[0], paths[0], alike
        else:
            like = join(place, pattern)
            is_exact = sum(fnmatchcase(name, pattern) for name in by_name) == len(alike)
            yield like, like if is_exact else paths, alike


def _name(file: ListedFile) -> str:
    return file.url.rpartition("/")[2]


def _listed(path: str) -> list[ListedFile]:
    local = local_path(path)
    if local is None:
        return list_files((path,))
    whole = str(Path(local).absolute())
    return list_files((escaped(whole) if Path(whole).exists() else whole,))


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
        form: Format of the files; None to tell it from their names.
        environ: `TAP_SPARK_USER` and `TAP_SPARK_PASSWORD` are those of a database.

    Raises:
        SettingsError: There is nothing to read, its format is unknown, or the URL holds a secret.
        SourceError: A folder cannot be listed.
    """
    database = database_login(place, environ, "TAP_SPARK_")
    if database is not None:
        place = database.for_settings(PASSWORD).url
    _check_secrets(place)
    if database is not None:
        draft = _of_database(database, ask)
    elif form is None and is_folder(place):
        draft = folder_draft(place)
    else:
        [stream] = place_settings(place, form, environ)["streams"]
        draft = files_draft(stream)
    if place.startswith(S3_SCHEMES):
        text = "Spark's way to S3. Credentials come from the environment: `tap-spark docs s3`."
        draft = {Comment(text): None, "spark": {"packages": [PACKAGE]}, **draft}
    tap_config(without_comments(draft))
    return draft


def _check_secrets(place: str) -> None:
    probe = ConnectionConfig(name="database", url=place)
    if place.startswith("jdbc:"):
        if secrets_of(probe):
            raise SettingsError(
                "the URL holds a password or another secret, which must not be in the settings",
                hint=f"leave it out, and set {PASSWORD} in the environment",
            )
    elif "://" in place and ("@" in split_url(place)[1] or secrets_of(probe)):
        raise SettingsError(
            "the URL holds a login, which must not be in the settings",
            hint="leave it out; `tap-spark docs s3` says where credentials are found",
        )


def _of_database(database: DatabaseLogin, ask: Ask) -> dict[str, Any]:
    url, user, password = database.url, database.user, database.password
    is_file = getattr(driver_of(url), "database", None) in _IN_A_FILE
    if is_file:
        _check_exists(url)
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


def _check_exists(url: str) -> None:
    """Raise SettingsError if a database's file is missing: its driver would make an empty one."""
    path = re.split(r"[?;]", url.split(":", 2)[2])[0]
    is_path = path and not path.startswith((":", "file:"))
    if is_path and not Path(path).exists():
        raise SettingsError(f"'{path}' does not exist", hint="give the file of the database")


def _database_name(url: str) -> str:
    last = re.split(r"[?;]", url)[0].rstrip("/").rpartition("/")[2].rpartition(":")[2]
    return re.sub(r"\W+", "_", last.split(".")[0]).strip("_") or "database"


def _included(tables: Sequence[DiscoveredTable] | None) -> dict[str, Any]:
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
