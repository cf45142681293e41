"""Files of one format in a folder per table: `<path>/[<schema>/]<prefix><stream>/part-…`.

With `partition_by` the files are in folders like `country=DE/` there.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import uuid
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from shared.errors import DestinationError, SettingsError, Where, end_each
from shared.formats.arrow_types import arrow_schema
from shared.formats.file_formats import FORMATS, Encoding
from shared.maps.record_metadata import DELETED_AT, TABLE_VERSION
from shared.singer.datasets import DatasetName, place_name
from shared.storage.access import NO_OPTIONS, StorageOptions, make_durable
from shared.storage.urls import join, local_path, shown
from target_spark.core.balance import Committed
from target_spark.core.load_plans import DISCARD, TableName, TableRequest
from target_spark.destinations.destination import (
    Destination,
    Flush,
    Rewrite,
    TableId,
    TableWrite,
    Tools,
)
from target_spark.destinations.files.stored_columns import (
    TableSchema,
    beside,
    check_ours,
    check_replaced,
    contracted,
    data_files,
    merge_columns,
    must_rewrite,
    partition_columns,
    read_table_schema,
    struct_change,
)
from target_spark.destinations.folders.stored_folder import TableFolder, folder_at
from target_spark.destinations.folders.table_folder import (
    FolderChange,
    folder_name,
    is_ours,
    partition_folder,
    table_path,
    writing,
)
from target_spark.destinations.leases import FolderLeases, Lease
from target_spark.run_settings import TargetConfig

if TYPE_CHECKING:
    from target_spark.tables.version_edit import VersionEdit

OVERWRITE = "overwrite"
_COUNTED = frozenset({"parquet", "orc"})
_LONG_REWRITE = 60.0
"""Seconds of a rewrite after which the run says how long it took."""
_REWRITES = "stream '%s': columns change, so that all %d files of '%s' are rewritten"
_log = logging.getLogger(__name__)


def file_destination(config: TargetConfig, tools: Tools) -> FileDestination:
    """Return the destination for files of a configuration.

    Raises:
        SettingsError: The path is missing, or an option is not supported for files.
    """
    if not config.path:
        raise SettingsError("is required: the folder for the files", where=Where(setting="path"))
    form = FORMATS[config.format]
    allowed = form.compressions
    options = {name.lower(): value for name, value in (config.options or {}).items()}
    compression = str(options.pop("compression", form.default_compression)).lower()
    compression = "none" if compression == "uncompressed" else compression
    if compression not in allowed:
        raise SettingsError(
            f"'{compression}' is not one of {', '.join(allowed)}",
            where=Where(setting="options.compression"),
        )
    for name in options:
        raise SettingsError(
            f"{config.format} files have the option `compression` only",
            where=Where(setting=f"options.{name}"),
        )
    return FileDestination(
        config.path if "://" in config.path else str(Path(config.path).expanduser()),
        Encoding(config.format, compression),
        tools.rewrite,
        StorageOptions(config.storage_options),
        FolderLeases(config),
    )


@dataclass(frozen=True)
class _Step:
    """A change of the folder of a stream, kept until its next one: if it is repeated, as it is.

    A change that is planned anew would take what its first attempt has written, before it failed,
    for older rows.

    Attributes:
        key: What the change is for.
        change: The change.
        committed: The rows of its flushes, if their files tell.
        phrase: What has become of older rows, in words.
        columns: The change of the table's columns, line by line.
    """

    key: Hashable
    change: FolderChange
    committed: Committed | None = None
    phrase: str | None = None
    columns: Sequence[str] = ()


class FileDestination(Destination):
    """See `Destination`."""

    stores_state = False

    def __init__(
        self,
        path: str,
        encoding: Encoding,
        rewrite: Rewrite,
        options: StorageOptions = NO_OPTIONS,
        leases: FolderLeases | None = None,
    ) -> None:
        self._leases = leases
        self.path, self.encoding = path, encoding
        self._ending = FORMATS[encoding.format].extension(encoding.compression)
        self.options = options
        self._rewrite = rewrite
        self._run = uuid.uuid4().hex[:12]
        self._folders: dict[str, TableFolder] = {}
        self._held: dict[str, list[Flush]] = {}
        self._steps: dict[str, _Step] = {}
        self._prepared: dict[str, StructType] = {}
        self._lock = threading.RLock()
        self._stamp = 0
        atexit.register(self._close)

    def table(self, name: TableName) -> TableId:
        folder = table_path(self.path, name)
        return TableId(folder.casefold(), f"'{shown(folder)}'")

    def dataset(self, name: TableName) -> DatasetName:
        return place_name(table_path(self.path, name))

    def lease(self, request: TableRequest) -> Lease | None:
        folder = table_path(self.path, request.name)
        return None if self._leases is None else self._leases(folder, request.stream)

    def prepare(self, request: TableRequest) -> TableWrite:
        with self._lock:
            folder, stream = self.folder(request), request.stream
            new, before = self._tables(folder, request)[1], self._prepared.get(stream)
            # What conflicts with a flush that waits for its commit must not be found behind it.
            self._prepared[stream] = merge_columns(before, new.struct, folder.table)
            return self._write(folder, new)

    def preview(self, request: TableRequest) -> Sequence[str]:
        old, new = self._tables(self._closed_folder(request), request)
        return struct_change(old.struct if old else None, new.struct.fields)

    def exists(self, request: TableRequest) -> bool:
        folder = self._closed_folder(request)
        with writing(folder.table, self.options):
            return read_table_schema(folder, self.encoding.format) is not None

    def _tables(
        self, folder: TableFolder, request: TableRequest
    ) -> tuple[TableSchema | None, TableSchema]:
        """Return a table that gets rows, and what it is with the stream's; see `contracted`."""
        if request.contract.types == DISCARD:
            raise SettingsError(
                "'discard' is not supported by files",
                where=Where(stream=request.stream, setting="schema_contract.types"),
                hint="set it to `freeze` or `evolve`, or load into a lake table",
            )
        with writing(folder.table, self.options):
            existing = read_table_schema(folder, self.encoding.format)
            if request.method == OVERWRITE:
                check_replaced(data_files(folder, self.encoding.format), request)
        table = None if request.method == OVERWRITE else existing
        old = table.struct if table else None
        own = request.struct if old is None else contracted(old, request)
        columns = merge_columns(old, own, folder.table)
        named = partition_columns(request, columns, table.partition_by if table else None)
        new = TableSchema(self.encoding.format, columns, named)
        if table is not None:
            before, after = (self._write(folder, one).stored for one in (table, new))
            if must_rewrite(table.format, before, after):
                with writing(folder.table, self.options):
                    check_ours(data_files(folder, table.format), before, after, request)
        return table, new

    def commit(self, flush: Flush) -> Committed | None:
        """See `Destination`. The rows of parts are those of their footers, if they have one."""
        with self._lock:
            if flush.request.method == OVERWRITE:
                self._hold(flush)
                return None
            return self._publish(flush.request, [flush])

    def finish(self, request: TableRequest) -> Committed | None:
        stream, committed = request.stream, None
        with self._lock:
            if stream in self._held:
                committed = self._publish(request, self._held[stream])
            if stream in self._folders:
                self._folders[stream].close()
            for kept in (self._held, self._steps, self._folders, self._prepared):
                kept.pop(stream, None)
        return committed

    def activate(self, request: TableRequest, edit: VersionEdit) -> str | None:
        """See `Destination`. With `overwrite` all rows belong to the run; others' files stay."""
        if request.method == OVERWRITE:
            return None
        with self._lock:
            folder = self.folder(request)
            with folder.locked():
                present = tuple(filter(is_ours, folder.files()))
                existing = read_table_schema(folder, self.encoding.format)
                names = existing.struct.names if existing else []
                if existing is None or not present or not {TABLE_VERSION, DELETED_AT} <= set(names):
                    return None
                is_same = request.source is not None and request.source == existing.source
                if request.replaces_source and is_same:
                    if not edit.has_rows:
                        # The stream has only begun, or is empty: nothing takes the place of rows.
                        return None
                    edit = replace(edit, hard_delete=True)
                key = edit.version, edit.hard_delete
                plan = partial(self._edited, folder, present, existing, edit, key)
                step = self._taken(request.stream, folder, key, plan)
        return None if step is None else step.phrase

    def _taken(
        self, stream: str, folder: TableFolder, key: Hashable, plan: Callable[[], _Step | None]
    ) -> _Step | None:
        """Take the step of a stream, the last one again if it is for the same; return it."""
        last = self._steps.get(stream)
        is_repeated = last is not None and last.key == key
        step = last if is_repeated else plan()
        if step is not None:
            self._steps[stream] = step
            folder.publish(step.change.rest(folder.files()) if is_repeated else step.change)
        return step

    def _edited(
        self,
        folder: TableFolder,
        present: Sequence[str],
        schema: TableSchema,
        edit: VersionEdit,
        key: Hashable,
    ) -> _Step:
        write = self._write(folder, schema)
        pending = {self._pending(write): name for name in present}
        pairs = [(join(folder.table, name), url) for url, name in pending.items()]
        rows = self._rewrite(pairs, _inside(write), edit)
        add = self._renamed({url: pending[url] for url, count in rows.items() if count})
        drop = frozenset(pending[url] for url in rows)
        changed = None
        if write.encoding.format == "parquet":
            old = (join(folder.table, name) for name in drop)
            changed = edit.untouched(old, folder.options) - edit.untouched(add, folder.options)
        if drop and not add and len(drop) == len(present):
            add |= self._schema_part(write)
        phrase = edit.phrase(changed) if drop else None
        return _Step(key, FolderChange(add, drop), phrase=phrase)

    def _close(self) -> None:
        """Remove the hidden files of this run when the process ends."""
        end_each(folder.close for folder in self._folders.values())

    def folder(self, request: TableRequest) -> TableFolder:
        """Return the open folder of a stream's table."""
        stream = request.stream
        if stream not in self._folders:
            self._folders[stream] = self._closed_folder(request).open()
        return self._folders[stream]

    def _closed_folder(self, request: TableRequest) -> TableFolder:
        return folder_at(table_path(self.path, request.name), self._run, self.options)

    def _write(self, folder: TableFolder, table: TableSchema) -> TableWrite:
        return TableWrite(
            folder.pending,
            self.encoding,
            table.struct,
            folder.options,
            partition_by=table.partition_by,
            copies_parts=local_path(folder.pending) is None,
        )

    def _hold(self, flush: Flush) -> None:
        held = self._held.setdefault(flush.stream, [])
        if flush.token not in {earlier.token for earlier in held}:
            with writing(flush.write.pending, self.options):
                if local_path(flush.write.pending) is not None:
                    make_durable(flush.write.pending)
            held.append(flush)

    def _publish(self, request: TableRequest, flushes: Sequence[Flush]) -> Committed | None:
        """Make flushes visible together; with `overwrite`, replace everything before.

        Return the rows of the new files, as their footers tell; None if they do not.
        """
        folder = self.folder(request)
        key = tuple((flush.token, *(part.url for part in flush.parts)) for flush in flushes)
        with folder.locked():
            plan = partial(self._planned, folder, request, flushes, key)
            step = self._taken(request.stream, folder, key, plan)
        if step is None:
            return None
        self.changed(request.stream, step.columns)
        return step.committed

    def _planned(
        self, folder: TableFolder, request: TableRequest, flushes: Sequence[Flush], key: Hashable
    ) -> _Step | None:
        """Plan the step that makes flushes visible; return None if there is no table."""
        # 1. The columns of the table, by its schema file and those of the flushes.
        overwrite = request.method == OVERWRITE
        present = data_files(folder, self.encoding.format)
        if overwrite:
            check_replaced(present, request)
        existing = read_table_schema(folder, self.encoding.format)
        old = None if overwrite else existing
        table = self._merged(folder, old, flushes)
        if table is None:
            return None
        if not old or not present or old.source == request.source:
            table = replace(table, source=request.source)
        write = self._write(folder, table)
        # 2. The files before: dropped, or written again if their format cannot add the columns.
        drop = frozenset(present) if overwrite else frozenset[str]()
        add = {} if old is None else self._renewed(folder, present, old.struct, write, request)
        drop |= {name for name in present if add}
        # 3. The new files. A table without any gets one without rows, which has its columns.
        rows = 0
        for flush in flushes:
            names, count = self._fitting(flush, write)
            add |= names
            rows += count
        if not add and not frozenset(present) - drop:
            add |= self._schema_part(write)
        side = None if old == table and folder.side() else table.to_bytes()
        before = old.struct if old else None
        return _Step(
            key,
            FolderChange(add, drop, side),
            committed=Committed(rows) if write.encoding.format in _COUNTED else None,
            columns=() if overwrite else struct_change(before, table.struct.fields),
        )

    def _merged(
        self, folder: TableFolder, old: TableSchema | None, flushes: Sequence[Flush]
    ) -> TableSchema | None:
        """Return a table as it is with some flushes; None if there is none.

        Raises:
            DestinationError: Their columns do not fit together, or their partitions differ.
        """
        columns = old.struct if old else None
        layouts = {flush.write.partition_by for flush in flushes}
        if old is not None:
            layouts.add(old.partition_by)
        for flush in flushes:
            columns = merge_columns(columns, flush.write.struct, folder.table)
        if columns is None:
            return None
        if len(layouts) > 1:
            raise DestinationError(
                f"the partitions of '{shown(folder.table)}' have changed during the run",
                where=Where(stream=flushes[0].stream, setting="partition_by"),
                hint="run again",
            )
        [layout] = layouts or ((),)
        return TableSchema(self.encoding.format, columns, layout)

    def _renewed(
        self,
        folder: TableFolder,
        names: Sequence[str],
        old: StructType,
        write: TableWrite,
        request: TableRequest,
    ) -> dict[str, str]:
        """Rewrite the table's files if they do not have the new columns; return them."""
        inside, begin = _inside(write), time.monotonic()
        before = replace(write, struct=old).stored
        if not names or not must_rewrite(write.encoding.format, before, inside.struct):
            return {}
        check_ours(names, before, inside.struct, request)
        pending = {self._pending(write): name for name in names}
        pairs = [(join(folder.table, name), url) for url, name in pending.items()]
        text, reported = _REWRITES, (request.stream, len(names), shown(folder.table))
        _log.info(text, *reported)
        self._rewrite(pairs, inside)
        seconds = time.monotonic() - begin
        if seconds > _LONG_REWRITE:
            _log.warning(f"{text}, which took %.0f s; lake tables rewrite none", *reported, seconds)
        return self._renamed(pending)

    def _renamed(self, pending: Mapping[str, str]) -> dict[str, str]:
        """Return names for rewritten files that keep the order of files."""
        ending = f"~{self._next_stamp()}{self._ending}"
        return {url: beside(name, f"{_stem(name)}{ending}") for url, name in pending.items()}

    def _fitting(self, flush: Flush, write: TableWrite) -> tuple[dict[str, str], int]:
        """Return the parts of a flush with their names, and their rows."""
        begin = f"part-{self._next_stamp():013d}-{folder_name(flush.token)}"
        # The part of a partition is in a folder of its name, also while it is hidden.
        names = {
            part.url: beside(
                "" if part.is_lent else part.url.removeprefix(flush.write.pending).lstrip("/"),
                f"{begin}-{number:05d}{self._ending}",
            )
            for number, part in enumerate(part for part in flush.parts if part.rows)
        }
        if not must_rewrite(write.encoding.format, flush.write.stored, write.stored):
            return names, sum(part.rows for part in flush.parts)
        pairs = [(url, self._pending(write)) for url in names]
        rewritten = self._rewrite(pairs, _inside(write))
        return {new: names[old] for old, new in pairs}, sum(rewritten.values())

    def _schema_part(self, write: TableWrite) -> dict[str, str]:
        """Return an empty file that carries the columns of a table without rows, if one can."""
        form = write.encoding.format
        if form == "json":
            return {}
        url, columns = self._pending(write), arrow_schema(write.stored, form)
        FORMATS[form].write(url, columns, (), write.encoding.compression, write.options)
        make_durable(url)
        folders = "/".join([*(partition_folder(name, None) for name in write.partition_by), ""])
        stamp = self._next_stamp()
        return {url: f"{folders}part-{0:013d}-schema-{stamp:013d}{self._ending}"}

    def _pending(self, write: TableWrite) -> str:
        return join(write.pending, f"{uuid.uuid4().hex}{self._ending}")

    def _next_stamp(self) -> int:
        self._stamp = max(self._stamp + 1, int(time.time() * 1000))
        return self._stamp


def _inside(write: TableWrite) -> TableWrite:
    """Return how files of a table are rewritten where they are: with the columns that they have."""
    return replace(write, struct=write.stored, partition_by=())


def _stem(name: str) -> str:
    """Return the name of a file without its folder, the mark of a rewrite and the ending."""
    return name.rpartition("/")[2].partition(".")[0].partition("~")[0]
