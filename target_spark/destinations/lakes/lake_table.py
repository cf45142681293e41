"""A table of a lake: where it is, what waits for it in a run, and commits beside other writers.

The mark of a commit says which run has made it, for which stream, and what is true then.

Formats read a commit's mark from the configuration of its session. On a local disk they do not
detect lost commits, nor sync their files: retries, locks and a sync to disk are here.
"""

from __future__ import annotations

import base64
import ctypes
import fcntl
import json
import os
import re
import time
import uuid
import zlib
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from shared.errors import DestinationError, Pauses, SingerSparkError, Where, repeated
from shared.settings.texts import quoted
from shared.spark.s3a import s3a_options
from shared.spark.spark_errors import explain
from shared.storage.access import StorageOptions, failures, remote
from shared.storage.owned_folders import NO_LOCKS
from shared.storage.urls import S3_SCHEMES, join, local_path
from target_spark.core.balance import Committed
from target_spark.core.load_plans import TableName, TableRequest
from target_spark.destinations.destination import Flush, RefusedByStoreError
from target_spark.destinations.folders.stored_folder import TableFolder, libc_function
from target_spark.destinations.folders.table_folder import visible, writing
from target_spark.replays import Note
from target_spark.run_settings import TargetConfig
from target_spark.tables.table_changes import NameRules, TableChange, legal_name

if TYPE_CHECKING:
    from target_spark.tables.version_edit import VersionEdit


DEFAULT = "CURRENT_DEFAULT"
"""Metadata of a column: SQL of the value that rows without the column get."""
GENERATED, IDENTITY = "delta.generationExpression", "delta.identity.start"
"""Metadata of columns that Delta computes."""


def with_column_defaults(struct: StructType) -> StructType:
    """Return columns with the metadata `default` if rows may omit them."""
    columns = []
    for column in struct:
        metadata = dict(column.metadata or {})
        if GENERATED in metadata:
            metadata[DEFAULT] = metadata[GENERATED]
        if DEFAULT in metadata or IDENTITY in metadata:
            metadata["default"] = True
        columns.append(StructField(column.name, column.dataType, column.nullable, metadata))
    return StructType(columns)


@dataclass(frozen=True)
class Place:
    """The location of a table.

    Attributes:
        table: Its name in SQL text, quoted: `delta`.`/path` or `catalog`.`schema`.`table`.
        shown: Its name in messages.
        folder: Path or URL of its folder by the settings; None in a catalog.
    """

    table: str
    shown: str
    folder: str | None = None


@dataclass(frozen=True)
class LakeTable:
    """An existing table.

    Attributes:
        struct: Its columns; `nullable` is false for NOT NULL, and metadata `default` tells that
            rows may omit one.
        names: Stream's name → table's name of columns, as `TableChange.mapping` was stored.
        partitions: Columns it is partitioned by, unchanged (no transforms).
        properties: Properties of the table.
        size: Bytes of its files; None if the format does not know them without reading.
        spec: All partition fields as Spark shows them, for formats that can change them.
        computed: Columns that the table computes itself: rows cannot set them.
    """

    struct: StructType
    names: Mapping[str, str] = field(default_factory=dict)
    partitions: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    size: int | None = None
    spec: tuple[str, ...] = ()
    computed: frozenset[str] = frozenset()


@dataclass
class TableHandle:
    """A table, and the session for work on it.

    Attributes:
        place: Location of the table.
        session: Returns the session for its work, always the same; starts Spark if needed.
    """

    place: Place
    session: Callable[[], SparkSession]

    @property
    def name(self) -> str:
        """Return the name of the table in SQL text."""
        return self.place.table

    @property
    def spark(self) -> SparkSession:
        """Return the session of the table."""
        return self.session()

    @property
    def rows(self) -> DataFrame:
        """Return the rows of the table."""
        return self.spark.table(self.name)

    def sql(self, statement: str) -> DataFrame:
        """Return what a statement yields."""
        return self.spark.sql(statement)

    def alter(self, *actions: str) -> None:
        """Run ALTER TABLE, once for each of these actions."""
        for action in actions:
            self.sql(f"ALTER TABLE {self.name} {action}")

    def properties(self) -> dict[str, str]:
        """Return the properties of the table."""
        return {row[0]: row[1] for row in self.sql(f"SHOW TBLPROPERTIES {self.name}").collect()}

    def overwrite(self, frame: DataFrame, condition: Column | None = None) -> None:
        """Replace the rows of a condition, by default all of them, in one commit."""
        frame.writeTo(self.name).overwrite(F.lit(True) if condition is None else condition)


_IN_CATALOGS = NameRules(style="clean", max_bytes=128, ignore_case=True)


def catalog_place(catalog: str, name: TableName) -> Place:
    """Return the location of a table in a catalog, in the schema `default` if none is set."""
    inside = (legal_name(part, _IN_CATALOGS) for part in (name.schema or "default", name.table))
    parts = (catalog, *inside)
    return Place(quoted(*parts), ".".join(parts))


def literal_path(url: str) -> str:
    """Return a path that Spark reads literally: `[`, `*` and the like would be patterns."""
    if local_path(url) is None:
        return url
    return "".join(f"\\{char}" if char in "*?[]{}\\" else char for char in url)


def absolute(path: str) -> str:
    """Return the setting `path` without a trailing slash; absolute if it is local."""
    local = local_path(path)
    return path.rstrip("/") if local is None else str(Path(local).resolve())


def partition_columns(described: Sequence[str]) -> Iterator[str]:
    """Yield the columns that partition a table, by the names that DESCRIBE TABLE shows."""
    if "# Partition Information" in described:
        for name in described[described.index("# Partition Information") + 1 :]:
            if not name or (name.startswith("# ") and name != "# col_name"):
                return
            if name != "# col_name":
                yield name


LeaveOut = Callable[[str, DestinationError], None]
"""Called with the short name of what cannot be read, and why; raises that if it must be read."""


def folders_of_tables(
    path: str, log: str, options: StorageOptions, leave_out: LeaveOut, file: str = ""
) -> Iterator[tuple[str, ...]]:
    """Yield the folders of tables below a path, one or two levels deep, as names.

    The folder `log` inside of a table shows what it is, if it has a file of the pattern `file`.

    Raises:
        OSError: The path itself cannot be listed.
    """

    def entries(*folders: str) -> Mapping[str, bool]:
        url = join(path, *folders)
        try:
            return _entries(url, options)
        except OSError as error:
            text = f"the folder cannot be listed: {error.strerror or error}"
            leave_out(".".join(folders), DestinationError(text, where=Where(file=url)))
            return {}

    def is_table(inside: Mapping[str, bool], *folders: str) -> bool:
        has_log = inside.get(log, False)
        return has_log and (not file or any(map(re.compile(file).match, entries(*folders, log))))

    for outer in _folders(_entries(path, options)):
        inside = entries(outer)
        if is_table(inside, outer):
            yield (outer,)
            continue
        for inner in _folders(inside):
            if is_table(entries(outer, inner), outer, inner):
                yield (outer, inner)


def tables_in(spark: SparkSession, catalog: str) -> Mapping[str, Place]:
    """Return the tables of all schemas of a catalog, by schema and name."""
    results = {}
    for space in spark.sql(f"SHOW NAMESPACES IN {quoted(catalog)}").collect():
        schema = space[0].strip("`")
        for row in spark.sql(f"SHOW TABLES IN {quoted(catalog, schema)}").collect():
            parts = schema, row["tableName"]
            if not row["isTemporary"]:
                results[".".join(parts)] = Place(
                    quoted(catalog, *parts), ".".join((catalog, *parts))
                )
    return results


def _folders(entries: Mapping[str, bool]) -> list[str]:
    return sorted(name for name, is_folder in entries.items() if is_folder and visible(name))


def _entries(url: str, options: StorageOptions) -> Mapping[str, bool]:
    """Return what is in a folder, with whether it is one itself."""
    path = local_path(url)
    if path is not None:
        return {entry.name: entry.is_dir() for entry in Path(path).iterdir()}
    filesystem, inside = remote(url, options)
    with failures(url, options):
        filesystem.invalidate_cache()
        result = filesystem.ls(inside, detail=True)
    names = ((str(item["name"]).rstrip("/"), item["type"]) for item in result)
    # A store may list a marker file beside the folder of its name.
    ordered = sorted(names, key=lambda one: one[1] == "directory")
    return {name.rpartition("/")[2]: kind == "directory" for name, kind in ordered}


Step = Flush | tuple[TableRequest, "VersionEdit"]
"""What waits: a flush, or an ACTIVATE_VERSION that takes effect after the flushes before it."""


def steps_of(held: Sequence[Step]) -> list[Step]:
    """Return the steps with those flushes merged that one commit can load; none without rows.

    A merged flush has the token, the request and the STATE of its last one.
    """
    return [step for _, group in groupby(held, key=_kind) for step in _merged(list(group))]


def summed_commits(results: Sequence[Committed]) -> Committed:
    """Return what several commits tell together."""
    rows = [one.rows for one in results if one.rows is not None]
    keys = [one.keys for one in results if one.keys is not None]
    return Committed(
        rows=sum(rows) if len(rows) == len(results) else None,
        keys=sum(keys) if results and len(keys) == len(results) else None,
        by_key=any(one.by_key for one in results),
        may_skip=any(one.may_skip for one in results),
    )


def _kind(step: Step) -> Hashable:
    if isinstance(step, Flush):
        return step.request.struct.json(), step.request.keys
    request, _ = step
    return request.stream


def _merged(group: Sequence[Step]) -> Iterator[Step]:
    flushes = [step for step in group if isinstance(step, Flush)]
    if not flushes:
        yield from group
        return
    parts = tuple(part for flush in flushes for part in flush.parts)
    if parts:
        yield replace(flushes[-1], parts=parts)


ORIGIN = "target-spark"
_SHORT_BYTES = 1024
_MOST_PACKED_BYTES = 4096
ACTIVATION = "activation"
"""Stands for the token if older versions of rows were removed or marked."""


@dataclass(frozen=True)
class Mark:
    """The mark of one commit.

    Attributes:
        run: The run that made it.
        stream: Name of the stream.
        token: See `Flush.token`; `ACTIVATION`; None for commits that do not change what rows say.
        source: Name of the stream in the tap, if another.
        state: The STATE that is true for the stream in the table; see `stored_state`.
        rows: Rows of the flush.
        whole: It stands for all earlier flushes of the stream in the run, too.
    """

    run: str
    stream: str
    token: str | None = None
    source: str | None = None
    state: str | None = None
    rows: int | None = None
    whole: bool = False

    @property
    def tap_stream(self) -> str:
        """Return the name of the stream in the tap."""
        return self.source or self.stream

    @property
    def number(self) -> int | None:
        """Return the number of the flush within the run; None if the token lacks one."""
        tail = (self.token or "").rpartition("-")[2]
        return int(tail) if tail.isascii() and tail.isdecimal() else None

    def stands_for(self, tokens: Collection[str]) -> set[str]:
        """Return those flushes of the stream, among the given ones, that the commit has made."""
        last = self.number
        if not self.whole or last is None:
            return {self.token} & set(tokens) if self.token is not None else set()
        numbers = {t: replace(self, token=t).number for t in tokens if run_of(t) == self.run}
        return {token for token, at in numbers.items() if at is not None and at <= last}

    def to_short_text(self) -> str:
        """Return the text for the log of Iceberg, which repeats that of each snapshot in each file.

        A long STATE is packed; one that stays long is left out.
        """
        plain = (self.state or "").encode()
        if len(plain) <= _SHORT_BYTES:
            return self.to_text()
        packed = base64.b64encode(zlib.compress(plain, 9)).decode()
        return self.to_text(packed=packed if len(packed) <= _MOST_PACKED_BYTES else None)

    def to_text(self, **state: str | None) -> str:
        """Return the text to store; `state` may be another form of the STATE."""
        content = {
            "origin": ORIGIN,
            "run": self.run,
            "stream": self.stream,
            "token": self.token,
            "source": self.source,
            "rows": self.rows,
            "whole": self.whole,
            **(state or {"state": self.state}),
        }
        text = json.dumps({name: value for name, value in content.items() if value})
        return text.replace("$", "\\u0024")  # Spark would replace ${...} in its configuration.


def read_mark(text: str | None) -> Mark | None:
    """Return the mark of a stored text; None for a text of others."""
    try:
        content = json.loads(text or "null")
    except ValueError:
        return None
    if not isinstance(content, dict) or content.get("origin") != ORIGIN:
        return None
    state, packed = content.get("state"), content.get("packed")
    return Mark(
        run=str(content.get("run", "")),
        stream=str(content.get("stream", "")),
        token=content.get("token"),
        source=content.get("source"),
        state=zlib.decompress(base64.b64decode(packed)).decode() if packed else state,
        rows=content.get("rows"),
        whole=bool(content.get("whole")),
    )


def held_part(note: Note, marks: Iterable[Mark | None], stream: str) -> Note:
    """Return the part of a note that a table still holds; nothing after a newer commit of others.

    Marks are the newest first; None for those of others.
    """
    results: set[str] = set()
    runs = {run_of(token) for token in note.tokens}
    for mark in marks:
        if mark is None or mark.stream != stream or mark.run not in runs:
            break
        if mark.token not in (None, ACTIVATION):  # A replay activates the version again.
            created = mark.stands_for(note.tokens)
            if not created:
                break
            results |= created
    return note.held(results)


def run_of(token: str) -> str:
    """Return the run of a flush's token."""
    return token.rpartition("-")[0] or token


@dataclass
class OpenTable(TableHandle):
    """A table that a stream of this run uses.

    Attributes:
        folder: Folder for its parts.
        lock: Allows one commit at a time.
        held: What waits for the end of the run: with `overwrite`, or until it is audited.
        tried: Tokens of flushes whose commit has been tried.
        view: Columns of its view that this run has created.
        is_staged: Its commits are not published yet.
        base: What was published when they began.
        ending: The request of a stream that ends when they are published.
        copy: A copy of the table with what waits, to be audited; None if nothing does.
        copied: What the commits to the copy tell.
        is_copy: Whether it is such a copy.
    """

    folder: TableFolder
    lock: Any
    held: list[Step] = field(default_factory=list)
    tried: set[str] = field(default_factory=set)
    view: StructType | None = None
    is_staged: bool = False
    base: str | None = None
    ending: TableRequest | None = None
    copy: OpenTable | None = None
    copied: Committed | None = None
    is_copy: bool = False

    @property
    def flushes(self) -> list[Flush]:
        """Return the flushes that wait."""
        return [step for step in self.held if isinstance(step, Flush)]


T = TypeVar("T")

ATTEMPTS = 30
PAUSES = Pauses(longest=10.0)


class LostCommit(Exception):  # noqa: N818
    """Others have changed the table concurrently; our commit has not changed it."""


def past_conflicts(
    work: Callable[[int], T],
    conflicts: re.Pattern[str],
    where: Where,
    *,
    shown: str,
    refusals: re.Pattern[str] | None = None,
) -> T:
    """Do work, and retry it if it conflicts with other writers of the table.

    Args:
        work: Called with the number of the attempt, from 0.
        conflicts: Matches the text of conflicts, which have not changed anything.
        refusals: Matches the text of errors for what is in some rows.

    Raises:
        DestinationError: It failed for another reason, or `ATTEMPTS` times.
        RefusedByStoreError: It failed for what is in some rows.
    """

    def refusal(error: Exception) -> re.Match[str] | None:
        return None if refusals is None else refusals.search(str(error))

    def is_lost(error: Exception) -> bool:
        if isinstance(error, SingerSparkError | LostCommit):
            return isinstance(error, LostCommit)
        is_conflict = conflicts.search(f"{type(error).__name__}: {error}") is not None
        return is_conflict and refusal(error) is None

    try:
        return repeated(work, is_lost, attempts=ATTEMPTS, pauses=PAUSES)
    except Exception as error:
        broken = refusal(error)
        if broken is not None:
            rule = " ".join(broken.group().split()).rstrip(".")
            raise RefusedByStoreError(f"a row breaks a rule of the table: {rule}") from error
        if isinstance(error, SingerSparkError):
            raise
        if not is_lost(error):
            raise explain(error, where, DestinationError) from error
        raise DestinationError(
            f"{shown}: gave up after {ATTEMPTS} attempts: other writers keep committing",
            where=where,
            hint="run fewer programs that write to this table at the same time",
        ) from error


LONGEST_WAIT = 1800.0
"""Seconds to wait for another program."""
_PAUSE = 0.05


@contextmanager
def one_writer(folder: str | None) -> Iterator[None]:
    """Lock a table against other programs of this machine that lock it, too.

    On a local disk a rename replaces an existing file, so that one of two concurrent versions of a
    table would be lost. Remote storages, file systems without locks, and folders that only a
    catalog knows (None) are not locked.

    Raises:
        DestinationError: Another program holds the lock, or the folder cannot be written.
    """
    path = None if folder is None else local_path(folder)
    if path is None:
        yield
        return
    table = Path(path)
    try:
        table.parent.mkdir(parents=True, exist_ok=True)
        # A hidden sibling: formats may remove unknown files inside of the table.
        lock = table.with_name(f".{table.name}.commit-lock")
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise DestinationError(f"'{table}' cannot be written: {error.strerror}") from error
    try:
        _wait(fd, path)
        yield
    finally:
        os.close(fd)


def _wait(fd: int, path: str) -> None:
    waited = 0.0
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waited >= LONGEST_WAIT:
                text = f"another program has been writing to '{path}' for {LONGEST_WAIT:.0f} s"
                raise DestinationError(text) from None
            time.sleep(_PAUSE)
            waited += _PAUSE
            continue
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
        return


def sync_to_disk(folder: str | None) -> None:
    """Force a table to disk: only then is a commit durable, and STATE may follow.

    Neither Spark nor delta-rs syncs files, and a commit has many of them; so the whole file system
    is synced (`syncfs` on Linux, `sync` elsewhere). Object stores do not need it.

    Raises:
        DestinationError: The disk failed.
    """
    path = None if folder is None else local_path(folder)
    if path is None or not os.path.isdir(path):  # noqa: PTH112
        return
    sync = libc_function("syncfs")
    if sync is None:
        os.sync()
        return
    with writing(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            if sync(descriptor) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), path)
        finally:
            os.close(descriptor)


BY_CASE = {"spark.sql.caseSensitive": "true"}
"""Configuration to read parts whose columns or fields `differs_by_case`."""


_LITERALS = {"spark.sql.parser.escapedStringLiterals": "false"}
"""Statements have the escapes of `lake_sql.text_literal`, whatever `spark.conf` says."""


def own_session(spark: SparkSession, config: TargetConfig, conf: Mapping[str, str]) -> SparkSession:
    """Return a session with its own configuration, or the same one if that is not possible.

    It gets the `storage_options` of the settings, and `conf`; see `LakeFormat`.
    """
    try:
        own = spark.newSession()
    except (AttributeError, NotImplementedError):  # Spark Connect
        own = spark
    for name, value in {**storage_conf(config), **_LITERALS, **conf}.items():
        # Spark Connect warns of a deprecated name that is set, also to its default.
        if name not in _LITERALS or own.conf.get(name, value) != value:
            own.conf.set(name, value)
    return own


def storage_conf(config: TargetConfig) -> dict[str, str]:
    """Return Spark's configuration for S3 from `storage_options`; `spark.conf` has precedence."""
    if config.catalog is not None or not config.path.startswith(S3_SCHEMES):
        return {}
    result = s3a_options(StorageOptions(config.storage_options).for_url(config.path))
    own = config.spark.conf
    return {name: text for name, text in result.items() if f"spark.hadoop.{name}" not in own}


@contextmanager
def configured(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Set the configuration of a session within the block."""
    before = {name: spark.conf.get(name, None) for name in conf}
    for name, value in conf.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


@contextmanager
def view_of(spark: SparkSession, frame: DataFrame) -> Iterator[str]:
    """Yield the quoted name of a view of a frame."""
    name = f"flush_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(name)
    try:
        yield f"`{name}`"
    finally:
        spark.catalog.dropTempView(name)


def commented(frame: DataFrame, change: TableChange) -> DataFrame:
    """Return rows with the columns of `change.create`, and with their comments."""
    columns = []
    for column in change.create or ():
        metadata = {"comment": column.comment} if column.comment else {}
        columns.append(F.col(quoted(column.name)).alias(column.name, metadata=metadata))
    return frame.select(*columns)


def differs_by_case(dtype: Any) -> bool:
    """Return whether a type has columns or fields beside each other that differ in case only."""
    if isinstance(dtype, StructType):
        names = {name.lower() for name in dtype.names}
        return len(names) < len(dtype) or any(differs_by_case(f.dataType) for f in dtype)
    if isinstance(dtype, MapType):
        return differs_by_case(dtype.keyType) or differs_by_case(dtype.valueType)
    return isinstance(dtype, ArrayType) and differs_by_case(dtype.elementType)
