"""The destination for Delta and Iceberg tables: their common part, over a `LakeFormat`."""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from shared.errors import DestinationError, SingerSparkError, Where
from shared.formats.file_formats import Encoding
from shared.maps.record_metadata import DELETED_AT, TABLE_VERSION
from shared.types.arrow_types import as_nullable
from target_spark.destinations.destination import (
    Destination,
    Flush,
    TableId,
    TableWrite,
    remove_parts,
)
from target_spark.destinations.folders.folder_failures import writing
from target_spark.destinations.folders.table_folder import TableFolder
from target_spark.destinations.lakes.commit_marks import Mark, held, run_of
from target_spark.destinations.lakes.conflicts import repeated
from target_spark.destinations.lakes.disk_sync import sync_to_disk
from target_spark.destinations.lakes.lake_format import LakeFormat, LakeTable, Place
from target_spark.destinations.lakes.merge import activate_sql
from target_spark.destinations.lakes.note_files import NoteFile, note_files
from target_spark.destinations.lakes.pending_parts import pending_folders
from target_spark.destinations.lakes.row_changes import appended, overwritten, recast, upserted
from target_spark.destinations.lakes.table_sessions import configured, own_session
from target_spark.destinations.lakes.views import view_sql
from target_spark.replays import Note
from target_spark.tables.evolution import ANYTHING, TableChange, plan_change

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from target_spark.config import TargetConfig
    from target_spark.core.load_plans import TableName, TableRequest
    from target_spark.tables.version_edit import VersionEdit

_log = logging.getLogger(__name__)

HISTORY = 200
"""Number of commits searched for a mark of ours."""

PARTS = Encoding("parquet", "snappy")
_STEPS = 6


@dataclass
class OpenTable:
    """A table that a stream of this run uses.

    Attributes:
        place: Location of the table.
        folder: Folder for its parts.
        spark: Its own session.
        lock: Allows one commit at a time.
        held: Flushes that wait for the end of the run (`overwrite`).
        tried: Tokens of flushes whose commit has been tried.
        view: Columns of its view that this run has created.
    """

    place: Place
    folder: TableFolder
    spark: SparkSession
    lock: Any
    held: list[Flush] = field(default_factory=list)
    tried: set[str] = field(default_factory=set)
    view: StructType | None = None


class LakeDestination(Destination):
    """See `Destination`.

    Args:
        form: The table format.
        config: The settings.
        spark: Returns the session.
    """

    keeps_notes = True

    def __init__(
        self, form: LakeFormat, config: TargetConfig, spark: Callable[[], SparkSession]
    ) -> None:
        self._form = form
        self._conflicts = config.type_conflicts
        self._spark = spark
        self._folders = pending_folders(config)
        self._note_files = note_files(config)
        self._notes: dict[tuple[str, str], NoteFile] = {}
        self._tables: dict[tuple[str, str], OpenTable] = {}
        self._lock = threading.RLock()
        atexit.register(self._close)

    def table(self, name: TableName) -> TableId:
        """See `Destination`."""
        place = self._form.place(name)
        return TableId((place.folder or place.table).casefold(), place.shown, shared=True)

    def prepare(self, request: TableRequest) -> TableWrite:
        """See `Destination`."""
        folder = self._open(request).folder
        return TableWrite(folder.pending, PARTS, as_nullable(request.struct), folder.options)

    def commit(self, flush: Flush) -> None:
        """See `Destination`."""
        table = self._open(flush.request)
        with table.lock:
            if flush.request.method != "overwrite":
                self._repeat(table, flush.request, lambda _: self._load(table, flush))
                _settle(table)
                remove_parts(flush)
            elif flush.token not in table.tried:
                table.tried.add(flush.token)
                table.held.append(flush)

    def finish(self, request: TableRequest) -> None:
        """See `Destination`. A failed compaction is only logged: all rows are in the table."""
        key = request.stream, self._form.place(request.name).table
        notes = self._notes.pop(key, None)
        if notes is not None:
            notes.close(remove=True)
        if key not in self._tables:
            return
        table = self._open(request)
        with table.lock:
            if table.held:
                self._repeat(table, request, lambda attempt: self._overwrite(table, attempt))
                _settle(table)
                table.held.clear()
            if request.layout.compact:
                self._compact(table, request)
            with self._lock:
                self._tables.pop((request.stream, table.place.table), None)
            table.folder.close()

    def activate(self, request: TableRequest, edit: VersionEdit) -> None:
        """See `Destination`. With `overwrite` all rows belong to the run."""
        if request.method == "overwrite":
            return
        table = self._open(request)
        with table.lock:
            self._repeat(table, request, lambda _: self._edit(table, request, edit))
            _settle(table)

    def recall(self, request: TableRequest) -> Note:
        """See `Destination`."""
        place = self._form.place(request.name)
        with self._lock:
            key = request.stream, place.table
            notes = self._notes.setdefault(key, self._note_files(place, request.stream))
        try:
            left = notes.take()
        except DestinationError as error:
            if place.folder is not None:
                raise
            # A table of a catalog does not need the folder of its note.
            _log.warning("stream '%s': replays are not detected: %s", request.stream, error)
            return Note()
        if not left.entries:
            return left
        table = self._open(request)
        with table.lock:
            found: Note = self._repeat(table, request, lambda _: self._held(table, request, left))
        notes.write(found)
        return found

    def keep(self, request: TableRequest, note: Note) -> None:
        """See `Destination`."""
        notes = self._notes.get((request.stream, self._form.place(request.name).table))
        if notes is not None:
            notes.write(note)

    def close(self) -> None:
        """See `Destination`."""
        for notes in self._notes.values():
            with contextlib.suppress(SingerSparkError):
                notes.close(remove=False)

    def _load(self, table: OpenTable, flush: Flush) -> None:
        """Evolve the table and commit the flush: one attempt."""
        form, base = self._form, None
        is_again = flush.token in table.tried
        if is_again:
            # Before the search: a commit after it makes this one fail.
            base = form.head(table.spark, table.place)
            if self._is_stored(table, flush.token):
                return
        table.tried.add(flush.token)
        request, run = self._storable(flush.request), run_of(flush.token)
        now, change = self._shape(table, request, Mark(run, flush.stream))
        self._view(table, request, now)
        if not flush.parts:
            return
        mark = Mark(run, flush.stream, flush.token)
        size = None if now.size is None else now.size + sum(part.size for part in flush.parts)
        with configured(table.spark, form.light(size)):
            if request.method == "upsert" and request.keys:
                upserted(form, table.spark, table.place, flush, request, now, change, mark)
            elif not form.adopt(table.place, flush, now, change, mark):
                frame = appended(table.spark, flush, change)
                form.append(table.spark, frame, table.place, mark, base)

    def _shape(
        self, table: OpenTable, request: TableRequest, mark: Mark
    ) -> tuple[LakeTable, TableChange]:
        """Evolve the table for the rows; return it and the projection of the rows."""
        form, spark, place = self._form, table.spark, table.place
        for _ in range(_STEPS):
            now = form.describe(spark, place)
            change = self._plan(now, request)
            if now is None or change.create is not None:
                form.create(spark, place, change, request)
            elif change.rewrite:
                self._rewrite(table, request, mark)
            elif _alters(now, change):
                form.alter(spark, place, change, request, mark)
            else:
                return now, change
        raise DestinationError(
            f"{place.shown} still lacks columns for the rows after it was altered"
        )

    def _plan(self, now: LakeTable | None, request: TableRequest) -> TableChange:
        form = self._form
        struct, names = (None, {}) if now is None else (now.struct, now.names)
        return plan_change(struct, request, form.rules, self._conflicts, form.can, names)

    def _rewrite(self, table: OpenTable, request: TableRequest, mark: Mark) -> None:
        """Rewrite the whole table for columns whose types cannot be widened in place."""
        form, spark, place = self._form, table.spark, table.place
        version = form.version(spark, place)
        now = form.describe(spark, place)
        change = self._plan(now, request)
        if now is None or not change.rewrite:
            return  # Another has done it.
        frame, whole = recast(spark, place, now, change)
        form.replace(spark, frame, place, whole, request, mark, version)

    def _overwrite(self, table: OpenTable, attempt: int) -> None:
        last = table.held[-1]
        if attempt and self._is_stored(table, last.token):
            return
        form, run = self._form, run_of(last.token)
        now = form.describe(table.spark, table.place)
        flushes = [replace(held, request=self._storable(held.request)) for held in table.held]
        names = {} if now is None else now.names
        plan = _planner(form, self._conflicts)
        frame, change, request = overwritten(table.spark, flushes, plan, names)
        mark = Mark(run, last.stream, last.token)
        form.replace(table.spark, frame, table.place, change, request, mark)
        self._view(table, request, LakeTable(frame.schema, change.mapping))

    def _view(self, table: OpenTable, request: TableRequest, now: LakeTable) -> None:
        """Create the view of the settings, if its columns have changed."""
        if request.view is not None and table.view != request.view:
            table.spark.sql(view_sql(table.place, request, now.names))
            table.view = request.view

    def _edit(self, table: OpenTable, request: TableRequest, edit: VersionEdit) -> None:
        now = self._form.describe(table.spark, table.place)
        if now is None:
            return
        version, deleted = (now.names.get(name, name) for name in (TABLE_VERSION, DELETED_AT))
        if not {version, deleted} <= set(now.struct.names):
            return
        at = None if edit.hard_delete else edit.at
        statement = activate_sql(table.place.table, version, deleted, edit.version, at)
        self._form.execute(table.spark, statement, table.place, Mark("", request.stream))

    def _compact(self, table: OpenTable, request: TableRequest) -> None:
        try:
            if self._form.describe(table.spark, table.place) is not None:
                self._form.compact(table.spark, table.place, request)
        except Exception as error:
            text = " ".join(str(error).split())[:300]
            _log.warning("%s was not compacted: %s", table.place.shown, text)

    def _is_stored(self, table: OpenTable, token: str) -> bool:
        if self._form.describe(table.spark, table.place) is None:
            return False
        marks = self._form.marks(table.spark, table.place, HISTORY)
        return any(mark is not None and mark.token == token for mark in marks)

    def _held(self, table: OpenTable, request: TableRequest, note: Note) -> Note:
        if self._form.describe(table.spark, table.place) is None:
            return Note()
        return held(note, self._form.marks(table.spark, table.place, HISTORY), request.stream)

    def _storable(self, request: TableRequest) -> TableRequest:
        return replace(request, struct=self._form.storable(request.struct))

    def _repeat(self, table: OpenTable, request: TableRequest, work: Callable[[int], Any]) -> Any:
        where = Where(stream=request.stream)
        return repeated(work, self._form.conflicts, where, shown=table.place.shown)

    def _open(self, request: TableRequest) -> OpenTable:
        place = self._form.place(request.name)
        key = request.stream, place.table
        with self._lock:
            if key not in self._tables:
                spark = self._spark()
                own = own_session(spark, self._form.conf)
                lock = self._lock if own is spark else threading.RLock()
                folder = self._folders(place, uuid.uuid4().hex[:12])
                self._tables[key] = OpenTable(place, folder, own, lock)
            return self._tables[key]

    def _close(self) -> None:
        """Remove the hidden files of this run when the process ends; keep notes."""
        self.close()
        for table in self._tables.values():
            with contextlib.suppress(SingerSparkError):
                table.folder.close()


def _settle(table: OpenTable) -> None:
    """Force the table to disk: only then is a commit durable, and STATE may follow."""
    if table.place.folder is not None:
        with writing(table.place.folder):
            sync_to_disk(table.place.folder)


def _alters(now: LakeTable, change: TableChange) -> bool:
    return change.alters or any(now.names.get(key) != name for key, name in change.renamed.items())


def _planner(form: LakeFormat, conflicts: str) -> Callable[..., TableChange]:
    def plan(struct: Any, request: TableRequest, names: Any) -> TableChange:
        return plan_change(struct, request, form.rules, conflicts, ANYTHING, names)

    return plan
