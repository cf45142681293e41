"""Iceberg tables: any snapshot of them, and their changes, by their metadata file."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from shared.errors import SourceError
from shared.formats.spark_conform import Names, conformed
from shared.formats.spark_conform import Path as FieldPath
from shared.spark.session import activate, is_connect
from shared.storage.access import failures, remote
from shared.storage.files import open_input
from shared.storage.urls import join, local_path
from tap_spark.sources.files.paths import escaped
from tap_spark.sources.frame_helpers import col
from tap_spark.sources.lakes.lake_source import (
    START_OVER,
    ChangeReadMode,
    ChangeScan,
    CommitGroup,
    LakeSource,
    LoggedCommit,
    Pinned,
    group_commits,
    with_commit_columns,
    with_compared,
)
from tap_spark.state.stream_plans import Slice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession


_FILE = re.compile(r"v?(\d+)(?:-[^/]*)?(?:\.gz)?\.metadata\.json(?:\.gz)?")
_DELETE_COUNTS = ("added-delete-files", "removed-delete-files", "total-delete-files")


@dataclass(frozen=True)
class IcebergSnapshot:
    """One snapshot.

    Attributes:
        parent: Id of the snapshot before it; None for the first.
        at_micros: Time of the commit, in microseconds since the epoch.
        operation: append, overwrite, delete, replace; empty if unknown.
        summary: Counts, as texts.
        schema_id: The schema it was written with; None if unknown.
    """

    number: int
    parent: int | None
    at_micros: int
    operation: str
    summary: Mapping[str, str]
    schema_id: int | None = None

    def commit(self) -> LoggedCommit:
        """Return the snapshot as a commit; Spark reads no changes if it has delete files."""
        nothing = self.operation == "replace"
        only_new = nothing or self.operation == "append"
        total = self.summary.get("total-delete-files")
        clean = total == "0" and not any(self._count(name) for name in _DELETE_COUNTS)
        how = (
            ChangeReadMode.FEED
            if clean or nothing
            else ChangeReadMode.APPENDED
            if only_new
            else ChangeReadMode.COMPARE
        )
        rows = 0 if nothing else self._count("added-records") + self._count("deleted-records")
        return LoggedCommit(self.number, self.parent, self.at_micros, how, rows, only_new)

    @property
    def rows(self) -> int | None:
        """Return its rows; None if the summary does not tell, or files with deletes hide some."""
        if self.summary.get("total-delete-files") != "0":
            return None
        return self._count("total-records") if "total-records" in self.summary else None

    def _count(self, name: str) -> int:
        text = str(self.summary.get(name, "0"))
        return int(text) if text.isdigit() else 0


@dataclass(frozen=True)
class IcebergMetadata:
    """A table's metadata.

    Attributes:
        table_id: Its UUID; None if unknown.
        current: Id of its newest snapshot; None if it has none.
        snapshots: By id.
        schema_id: Id of today's schema; None if unknown.
        schemas: Schemas by their id, as the format has them.
    """

    table_id: str | None
    current: int | None
    snapshots: Mapping[int, IcebergSnapshot]
    identifiers: tuple[str, ...] = ()
    schema_id: int | None = None
    schemas: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)

    def columns_of(self, kinds: Sequence[str]) -> dict[str, str]:
        """Return the columns of today's schema that are, or contain, one of some types of Iceberg,
        with that type.
        """
        fields = self.schemas.get(self.schema_id or 0, {}).get("fields") or ()
        pairs = ((str(item["name"]), _contained(item["type"], kinds)) for item in fields)
        return {name: kind for name, kind in pairs if kind is not None}

    def chain(self, after: int) -> list[IcebergSnapshot] | None:
        """Return the snapshots after one, up to the newest; None if it is not an ancestor."""
        chain: list[IcebergSnapshot] = []
        number = self.current
        while number != after:
            snapshot = self.snapshots.get(number) if number is not None else None
            if snapshot is None:
                return None
            chain.append(snapshot)
            number = snapshot.parent
        return chain[::-1]

    def names_at(self, schema_id: int | None) -> Names:
        """Return the names of today's fields in an older schema."""
        if schema_id is None or schema_id == self.schema_id:
            return {}
        old = {number: path for path, number in self._paths(schema_id).items()}
        if not old:
            return {}
        now = self._paths(self.schema_id)
        before = {path: old.get(number) for path, number in now.items()}
        return {
            path: None if was is None else was[-1]
            for path, was in before.items()
            if was is None or was[-1] != path[-1]
        }

    def stale_columns(self, schema_id: int | None, columns: Sequence[str]) -> list[str]:
        """Return columns whose rows a destination must get again, though no row changed.

        They, or fields inside them, were renamed, dropped and added again, or added with a value
        for older rows.
        """
        if schema_id is None or schema_id == self.schema_id:
            return []
        if schema_id not in self.schemas:
            return list(columns)
        old = self._paths(schema_id)
        was = {number: path for path, number in old.items()}
        now = self._paths(self.schema_id)
        filled = {number for number, _, has in self._fields(self.schema_id) if has}
        moved = {path[0] for path, number in now.items() if was.get(number, path) != path}
        new = {path: number for path, number in now.items() if number not in was}
        again = {path[0] for path, number in new.items() if path in old or number in filled}
        touched = moved | again
        return [name for name in columns if name in touched]

    def _paths(self, schema_id: int | None) -> dict[FieldPath, int]:
        return {path: number for number, path, _ in self._fields(schema_id)}

    def _fields(self, schema_id: int | None) -> Iterator[tuple[int, FieldPath, bool]]:
        return _fields(self.schemas.get(schema_id) if schema_id is not None else None, ())


def parse_metadata(text: str | bytes) -> IcebergMetadata:
    """Read a metadata file.

    Raises:
        ValueError: It is not a metadata file.
    """
    try:
        document = json.loads(text)
        schemas = {int(each["schema-id"]): each for each in document.get("schemas") or []}
        schema_id = document.get("current-schema-id")
        if not schemas and "schema" in document:
            schema_id = int(document["schema"].get("schema-id", 0))
            schemas = {schema_id: document["schema"]}
        current = document.get("current-snapshot-id")
        snapshots = [_snapshot(each) for each in document.get("snapshots") or []]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"the metadata file is damaged: {error!r}") from error
    today = schemas.get(schema_id) or {}
    named = {number: path for number, path, _ in _fields(today, ())}
    paths = [named.get(number) or () for number in today.get("identifier-field-ids") or []]
    # Identifiers inside structs cannot be key properties.
    whole = all(len(path) == 1 for path in paths)
    return IcebergMetadata(
        document.get("table-uuid"),
        None if current in (None, -1) else int(current),
        {snapshot.number: snapshot for snapshot in snapshots},
        tuple(path[0] for path in paths) if whole else (),
        schema_id,
        schemas,
    )


def newest_file(names: Sequence[str]) -> str | None:
    """Return the newest metadata file among the files of a folder; None without any."""
    numbered = [(int(match.group(1)), name) for name in names if (match := _FILE.fullmatch(name))]
    return max(numbered)[1] if numbered else None


def _snapshot(document: Mapping[str, Any]) -> IcebergSnapshot:
    summary = document.get("summary") or {}
    return IcebergSnapshot(
        int(document["snapshot-id"]),
        document.get("parent-snapshot-id"),
        int(document["timestamp-ms"]) * 1000,
        summary.get("operation", ""),
        summary,
        document.get("schema-id"),
    )


def _contained(node: Any, kinds: Sequence[str]) -> str | None:
    if isinstance(node, str):
        return node if node in kinds else None
    inside = [child["type"] for child in node.get("fields") or ()]
    inside += [node[part] for part in ("element", "key", "value") if part in node]
    return next((kind for child in inside if (kind := _contained(child, kinds))), None)


def _fields(node: Any, base: FieldPath) -> Iterator[tuple[int, FieldPath, bool]]:
    """Yield id, path and whether older rows have a value, of every field at any depth."""
    if not isinstance(node, Mapping):
        return
    for child in node.get("fields") or ():
        path = (*base, str(child["name"]))
        yield int(child["id"]), path, child.get("initial-default") is not None
        yield from _fields(child["type"], path)
    for part in ("element", "key", "value"):
        if f"{part}-id" in node:
            yield int(node[f"{part}-id"]), (*base, part), False
            yield from _fields(node[part], (*base, part))


_logger = logging.getLogger(__name__)
_CHANGE, _ORDINAL, _SNAPSHOT = "_change_type", "_change_ordinal", "_commit_snapshot_id"
_UNKNOWN_TYPES = ("time", "timestamp_ns", "timestamptz_ns", "geometry", "geography")
_CHANGE_FIELDS = (
    T.StructField(_CHANGE, T.StringType()),
    T.StructField(_ORDINAL, T.IntegerType()),
    T.StructField(_SNAPSHOT, T.LongType()),
)


@dataclass(frozen=True)
class IcebergPinned(Pinned):
    """An Iceberg table at a snapshot.

    Attributes:
        location: The table's name, or the path that Spark loads.
        is_file: Whether the location is that metadata file, which fixes the snapshot.
    """

    metadata: IcebergMetadata
    location: str
    is_file: bool


Scan = ChangeScan[IcebergPinned]


class IcebergSource(LakeSource[IcebergPinned]):
    """An Iceberg table."""

    kind, unit = "Iceberg", "snapshot"
    why_compared = "the log does not have deleted rows"
    # Catalogs of other formats take the names of Iceberg's metadata tables for namespaces.
    not_a_table = (*LakeSource.not_a_table, "REQUIRES_SINGLE_PART_NAMESPACE")

    def pin(self, spark: SparkSession) -> IcebergPinned:
        """See `LakeSource.pin`; also sets the identifier fields as key properties."""
        file = None if self.name else _newest_in(spark, str(self.path))
        location = self.name or str(file)
        metadata = self._metadata(spark, location, file)
        try:
            struct = self._load(spark.read, location).schema
        except Exception as error:
            raise self._unknown_type(metadata) or error from None
        self.key_properties = self.stream.key_properties or metadata.identifiers
        return IcebergPinned(
            struct, metadata.current, metadata.table_id, metadata, location, file is not None
        )

    def rows(self, spark: SparkSession, pinned: IcebergPinned, want: T.StructType) -> DataFrame:
        if pinned.position is None:
            return conformed(self._load(self._reader(spark), pinned.location), want).limit(0)
        return self._at(spark, pinned, want, pinned.position)

    def counted_rows(self, pinned: IcebergPinned) -> int | None:
        """See `LakeSource.counted_rows`: by the summary of the snapshot."""
        if pinned.position is None:
            return 0
        snapshot = pinned.metadata.snapshots.get(pinned.position)
        return None if snapshot is None else snapshot.rows

    def first_bookmark(self, pinned: IcebergPinned) -> Mapping[str, Any] | None:
        """See `LakeSource.first_bookmark`; ids are text, as not every JSON parser keeps 64 bits."""
        if pinned.position is None:
            return None
        return {
            "table_id": pinned.table_id,
            "snapshot_id": str(pinned.position),
            "schema_id": pinned.metadata.schema_id,
        }

    def has_position(self, bookmark: Mapping[str, Any]) -> bool:
        snapshot = bookmark.get("snapshot_id")
        if snapshot is not None and not str(snapshot).isdigit():
            raise self.error(f"the bookmark's snapshot_id {snapshot!r} is not a number", START_OVER)
        return snapshot is not None

    def changes(self, scan: Scan) -> Iterator[Slice]:
        pinned, mark = scan.pinned, scan.plan.bookmark
        commits = self._commits(pinned, mark)
        stale = pinned.metadata.stale_columns(mark.get("schema_id"), scan.plan.columns)
        slices = (self._slice(scan, part) for part in group_commits(commits))
        yield from self.with_stale_rows(scan, slices, stale if scan.plan.key_properties else [])

    def _commits(self, pinned: IcebergPinned, mark: Mapping[str, Any]) -> list[LoggedCommit]:
        """Return the commits after a bookmark; one to compare if the table was rolled back.

        Raises:
            SourceError: The bookmark's snapshot does not exist any more.
        """
        metadata, after = pinned.metadata, int(mark["snapshot_id"])
        table_id = mark.get("table_id")
        if table_id is not None and pinned.table_id is not None and table_id != pinned.table_id:
            raise self.error("the table was replaced after the bookmark was written", START_OVER)
        # 1. Follow the parents of the newest snapshot back to the bookmark's.
        chain = metadata.chain(after)
        if chain is not None:
            commits = with_compared([snapshot.commit() for snapshot in chain])
            first = commits[0] if commits else None
            # Appends after an expired snapshot can be read, but not its own rows.
            if first is None or first.only_new or first.before in metadata.snapshots:
                return commits
        newest = metadata.snapshots.get(metadata.current or -1)
        # 2. It is not among them: the table was rolled back, or others have branched off. If the
        #    old snapshot still exists, its rows can be compared with today's.
        if after not in metadata.snapshots or newest is None:
            raise self.error(
                f"the bookmark's snapshot {after} is no longer in the table: it has expired, or "
                "the table was replaced",
                START_OVER,
            )
        return [LoggedCommit(newest.number, after, newest.at_micros, ChangeReadMode.COMPARE)]

    def _slice(self, scan: Scan, part: CommitGroup) -> Slice:
        if part[0].how is ChangeReadMode.COMPARE:
            return self.compared(scan, part)
        if part[0].how is ChangeReadMode.APPENDED:
            new = conformed(self._between(scan, part, ""), scan.want)
            at = F.timestamp_micros(F.lit(part[-1].at_micros))
            return self.fed(scan, part, with_commit_columns(new, F.lit(0), F.lit(False), at))
        want = T.StructType([*scan.want.fields, *_CHANGE_FIELDS])
        rows = conformed(self._between(scan, part, "changes"), want)
        at = _times(part, col(_SNAPSHOT))
        frame = with_commit_columns(rows, col(_ORDINAL), col(_CHANGE) == "DELETE", at)
        return self.fed(scan, part, frame.drop(_CHANGE, _ORDINAL, _SNAPSHOT))

    def _between(self, scan: Scan, part: CommitGroup, table: str) -> DataFrame:
        reader = self._reader(scan.spark).option("end-snapshot-id", part[-1].position)
        if part[0].before is not None:
            reader = reader.option("start-snapshot-id", part[0].before)
        return self._load(reader, scan.pinned.location, table)

    def rows_at(self, scan: Scan, position: int) -> DataFrame:
        return self._at(scan.spark, scan.pinned, scan.want, position)

    def _at(
        self, spark: SparkSession, pinned: IcebergPinned, want: T.StructType, snapshot: int
    ) -> DataFrame:
        """Return the rows of a snapshot; Iceberg reads them with that snapshot's schema."""
        # A metadata file has one current snapshot: no time travel is needed.
        if pinned.is_file and snapshot == pinned.position:
            return conformed(self._load(self._reader(spark), pinned.location), want)
        reader = self._reader(spark).option("versionAsOf", snapshot)
        shown = pinned.metadata.snapshots.get(snapshot)
        names = pinned.metadata.names_at(shown.schema_id if shown is not None else None)
        return conformed(self._load(reader, pinned.location), want, names)

    def _unknown_type(self, metadata: IcebergMetadata) -> SourceError | None:
        """Return the error of a column whose type Spark does not have; None without one."""
        columns = metadata.columns_of(_UNKNOWN_TYPES)
        if not columns:
            return None
        listed = ", ".join(f"{name!r} ({kind})" for name, kind in columns.items())
        return self.error(
            f"Spark cannot read the type of these columns of the table: {listed}",
            "let the writer of the table store them as string or long, or read a copy without them",
        )

    def _metadata(self, spark: SparkSession, location: str, file: str | None) -> IcebergMetadata:
        """Return the newest metadata file; if it cannot be read, what Spark shows of it."""
        if file is None:
            entries = self._load(spark.read, location, "metadata_log_entries")
            file = entries.select("file").collect()[-1].file
        text = _text_of(spark, str(file))
        return self._shown_metadata(spark, location) if text is None else parse_metadata(text)

    def _shown_metadata(self, spark: SparkSession, location: str) -> IcebergMetadata:
        listed = self._load(spark.read, location, "snapshots").select(
            "snapshot_id",
            "parent_id",
            F.unix_micros("committed_at").alias("micros"),
            "operation",
            "summary",
        )
        snapshots = [
            IcebergSnapshot(
                row.snapshot_id, row.parent_id, row.micros, row.operation, row.summary or {}
            )
            for row in listed.collect()
        ]
        refs = self._load(spark.read, location, "refs").filter(col("name") == "main")
        current = refs.select("snapshot_id").first()
        snapshot = None if current is None else int(current.snapshot_id)
        return IcebergMetadata(None, snapshot, {each.number: each for each in snapshots})

    def _reader(self, spark: SparkSession) -> DataFrameReader:
        return spark.read.options(**self.stream.options)

    def _load(self, reader: DataFrameReader, location: str, table: str = "") -> DataFrame:
        if self.name:
            return reader.table(f"{location}.{table}" if table else location)
        activate(reader)
        return reader.format("iceberg").load(f"{location}#{table}" if table else location)


def _times(part: Sequence[LoggedCommit], snapshot: Column) -> Column:
    pairs = [F.lit(value) for commit in part for value in (commit.position, commit.at_micros)]
    return F.timestamp_micros(F.element_at(F.create_map(*pairs), snapshot))


def _newest_in(spark: SparkSession, path: str) -> str:
    """Return the newest metadata file of a table's folder.

    Raises:
        FileNotFoundError: The folder has none.
        PySparkException: Neither this program nor Spark can list it.
    """
    folder = join(path, "metadata")
    name = newest_file(_names_here(folder)) if _reads_here(spark, folder) else None
    name = name or newest_file(_names_in_spark(spark, folder))
    if name is None:
        raise FileNotFoundError(f"there is no Iceberg table at {path}")
    return join(folder, name)


def _reads_here(spark: SparkSession, url: str) -> bool:
    """Return whether this program may know the way to a file, apart from Spark.

    A Spark Connect server has credentials and endpoints of its own for URLs.
    """
    return local_path(url) is not None or not is_connect(spark)


def _names_here(folder: str) -> list[str]:
    """List a folder by the means of this program; nothing if that fails."""
    try:
        if (path := local_path(folder)) is not None:
            return [entry.name for entry in Path(path).iterdir()]
        filesystem, inside = remote(folder)
        with failures(folder):
            return [entry.rpartition("/")[2] for entry in filesystem.ls(inside, detail=False)]
    except OSError:
        return []


def _names_in_spark(spark: SparkSession, folder: str) -> list[str]:
    """List the metadata files of a folder by Spark, which does not read them for it."""
    files = spark.read.format("binaryFile").option("pathGlobFilter", "*.metadata.json*")
    return [
        row.path.rpartition("/")[2] for row in files.load(escaped(folder)).select("path").collect()
    ]


def _text_of(spark: SparkSession, file: str) -> bytes | str | None:
    """Read a metadata file, here or by Spark; None if neither can."""
    if _reads_here(spark, file):
        with suppress(OSError), open_input(file) as source:
            return bytes(source.read())
    try:
        row = spark.read.text(escaped(file), wholetext=True).first()
        text: str | None = row.value if row is not None else None
        json.loads(text or "")
    except Exception:
        _logger.warning("cannot read %s: renamed columns are not detected", file)
        return None
    return text
