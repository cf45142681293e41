"""The destination for Delta and Iceberg tables: their common part, over a `LakeFormat`."""

from __future__ import annotations

import atexit
import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from shared.errors import DestinationError, SettingsError, Where, end_each
from shared.formats.arrow_types import as_nullable
from shared.formats.file_formats import Encoding
from shared.singer.datasets import DatasetName, catalog_table_name, place_name
from shared.storage.access import StorageOptions
from shared.storage.urls import join
from target_spark.core.balance import Committed
from target_spark.core.load_plans import TableName, TableRequest
from target_spark.destinations.destination import (
    Destination,
    Flush,
    TableId,
    TableWrite,
    remove_parts,
)
from target_spark.destinations.folders.stored_folder import folder_at
from target_spark.destinations.folders.table_folder import folder_name
from target_spark.destinations.lakes.lake_format import LakeFormat
from target_spark.destinations.lakes.lake_table import (
    LakeTable,
    OpenTable,
    Place,
    TableHandle,
    own_session,
    past_conflicts,
    sync_to_disk,
)
from target_spark.destinations.lakes.lake_work import LakeWork, first_able
from target_spark.destinations.lakes.run_files import (
    LocalNoteFile,
    RemoteNoteFile,
    hidden_folder,
    note_file,
    parts_root,
)
from target_spark.destinations.leases import FolderLeases, Lease
from target_spark.replays import Note
from target_spark.run_settings import TargetConfig
from target_spark.tables.table_changes import change_lines

if TYPE_CHECKING:
    from target_spark.destinations.lakes.held_rows import HeldTables
    from target_spark.tables.version_edit import VersionEdit


_log = logging.getLogger(__name__)

PARTS = Encoding("parquet", "snappy")
_SESSION_LOCK = threading.RLock()
"""Over Spark Connect tables share a session, whose configuration has the mark: also those of the
destination that a KEYS message has within a run."""


class LakeDestination(Destination):
    """See `Destination`.

    Attributes:
        ending: Called with each table and its last request before the stream ends, if it is set.
    """

    keeps_notes = True
    may_refuse = True
    ending: Callable[[OpenTable, TableRequest], None] | None = None

    def __init__(
        self, form: LakeFormat, config: TargetConfig, spark: Callable[[], SparkSession]
    ) -> None:
        self._form = form
        self.holds_rows = form.copies
        self._config = config
        self.work = LakeWork(form, config.type_conflicts, self)
        self._spark = spark
        self._shares_session = config.spark.remote is not None
        self._options = StorageOptions(config.storage_options)
        self._search = uuid.uuid4().hex
        self._leases = FolderLeases(config)
        self._notes: dict[tuple[str, str], LocalNoteFile | RemoteNoteFile] = {}
        self._tables: dict[tuple[str, str], OpenTable] = {}
        self._lock = threading.RLock()
        atexit.register(self._close)

    @cached_property
    def _parts_root(self) -> str:
        return parts_root(self._config)

    @cached_property
    def held_tables(self) -> HeldTables:
        """Return the tables that wait to be published."""
        from target_spark.destinations.lakes.held_rows import HeldTables  # noqa: PLC0415

        survives = self._config.staging.root is not None
        return HeldTables(self.work, self._opened, self.finish, survives=survives)

    def table(self, name: TableName) -> TableId:
        place = self._form.place(name)
        return TableId((place.folder or place.table).casefold(), place.shown, shared=True)

    def dataset(self, name: TableName) -> DatasetName:
        place = self._form.place(name)
        if place.folder is not None:
            return place_name(place.folder)
        return catalog_table_name(self._config.spark.conf, place.shown.split(".", 2))

    def prepare(self, request: TableRequest) -> TableWrite:
        folder = self.open_table(request).folder
        return TableWrite(folder.pending, PARTS, as_nullable(request.struct), folder.options)

    def commit(self, flush: Flush) -> Committed | None:
        table, committed = self.open_table(flush.request), None
        with table.lock:
            if flush.request.method != "overwrite" and not self.holds_rows:
                committed = self.work.repeat(
                    table, flush.stream, lambda _: self.work.load(table, flush), [flush]
                )
                sync_to_disk(table.place.folder)
                remove_parts(flush)
            elif flush.token not in table.tried:
                table.tried.add(flush.token)
                table.held.append(flush)
        return committed

    def finish(self, request: TableRequest) -> Committed | None:
        """See `Destination`. Failed upkeep is only logged: all rows are in the table.

        The first call puts rows that are held back into a copy; the second one ends the stream.
        After commits to a branch it is called again once they are published.
        """
        key = request.stream, self._form.place(request.name).table
        if self.holds_rows and key in self._tables and self._tables[key].held:
            return self.held_tables.copy(self._tables[key], request)
        notes = self._notes.pop(key, None)
        if notes is not None:
            notes.close(remove=False)
        if key not in self._tables:
            return None
        table, committed = self.open_table(request), None
        with table.lock:
            if table.held:
                committed = self.work.repeat(
                    table,
                    request.stream,
                    lambda attempt: self.work.overwrite(table, attempt),
                    table.flushes,
                )
                sync_to_disk(table.place.folder)
                table.held.clear()
            if table.is_staged:
                table.ending = request
            else:
                if self.ending is not None:
                    self.ending(table, request)
                with self._lock:
                    self._tables.pop(key, None)
                table.folder.close()
        return committed

    def activate(self, request: TableRequest, edit: VersionEdit) -> str | None:
        """See `Destination`. With `overwrite` all rows belong to the run."""
        if request.method == "overwrite":
            return None
        table = self.open_table(request)
        with table.lock:
            if self.holds_rows:
                table.held.append((request, edit))
                return None
            is_changed = self.work.repeat(
                table, request.stream, lambda _: self.work.edit(table, request, edit)
            )
            sync_to_disk(table.place.folder)
        return edit.phrase(None) if is_changed else None

    def exists(self, request: TableRequest) -> bool:
        return self._described(request) is not None

    def _described(self, request: TableRequest) -> LakeTable | None:
        table = TableHandle(self._form.place(request.name), cache(self._own_session))
        return past_conflicts(
            lambda _: first_able(self._form, lambda engine: engine.describe(table)),
            self._form.conflicts,
            Where(stream=request.stream),
            shown=table.place.shown,
        )

    def lease(self, request: TableRequest) -> Lease | None:
        place = self._form.place(request.name)
        return self._leases(place.folder or hidden_folder(self._config, place), request.stream)

    def preview(self, request: TableRequest) -> Sequence[str]:
        """See `Destination`. The columns of a replaced table do not depend on the old ones."""
        wanted = self.work.storable(request)
        if request.method == "overwrite" and request.backfill is None:
            return change_lines(self.work.plan(None, wanted))
        return change_lines(self.work.plan(self._described(request), wanted))

    def recall(self, request: TableRequest) -> Note:
        place = self._form.place(request.name)
        with self._lock:
            key = request.stream, place.table
            notes = self._notes.setdefault(key, note_file(self._config, place, request.stream))
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
        table = self.open_table(request)
        with table.lock:
            result: Note = self.work.repeat(
                table, request.stream, lambda _: self.work.held(table, request.stream, left)
            )
        notes.write(result)
        return result

    def keep(self, request: TableRequest, note: Note) -> None:
        notes = self._notes.get((request.stream, self._form.place(request.name).table))
        if notes is not None:
            notes.write(note)

    def close(self) -> None:
        end_each(partial(notes.close, remove=False) for notes in self._notes.values())

    def open_table(self, request: TableRequest) -> OpenTable:
        """Return the table of a stream, as the run uses it."""
        place = self._form.place(request.name)
        key = request.stream, place.table
        with self._lock:
            if key not in self._tables:
                if self.holds_rows:
                    self._check_alone(request.stream, place)
                lock = _SESSION_LOCK if self._shares_session else threading.RLock()
                # Parts wait beside the table, or below a root if only a catalog knows its folder.
                base = place.folder or join(self._parts_root, folder_name(place.shown))
                run = uuid.uuid4().hex[:12]
                folder = folder_at(base, run, self._options, self._search).open(restores=False)
                self._tables[key] = OpenTable(place, cache(self._own_session), folder, lock)
            return self._tables[key]

    def _check_alone(self, stream: str, place: Place) -> None:
        """Raise SettingsError if another stream loads a table whose rows are held back."""
        others = [name for name, table in self._tables if table == place.table]
        if others:
            raise SettingsError(
                f"{place.shown} is loaded by stream '{others[0]}' too",
                where=Where(stream=stream, setting="write_audit_publish"),
                hint="give each stream a table of its own, or load without it",
            )

    def _own_session(self) -> SparkSession:
        return own_session(self._spark(), self._config, self._form.conf)

    def _close(self) -> None:
        """Remove the hidden files of this run when the process ends; keep notes."""
        self.close()
        end_each(partial(self._close_table, table) for table in self._tables.values())

    def _close_table(self, table: OpenTable) -> None:
        if table.copy is not None and self.held_tables.outlives_run(table):
            for flush in table.flushes:
                remove_parts(flush)
        else:
            table.folder.close()

    def _opened(self) -> list[tuple[str, OpenTable]]:
        with self._lock:
            return [(key[0], table) for key, table in self._tables.items()]
