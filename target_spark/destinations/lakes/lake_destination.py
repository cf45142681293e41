"""The destination for Delta and Iceberg tables: their common part, over a `LakeFormat`."""

from __future__ import annotations

import atexit
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from shared.errors import (
    BalanceError,
    DestinationError,
    SettingsError,
    SingerSparkError,
    Where,
)
from shared.formats.arrow_types import as_nullable
from shared.formats.file_formats import Encoding
from shared.maps.record_metadata import DELETED_AT, METADATA, TABLE_VERSION
from shared.singer.datasets import DatasetName, catalog_table_name, place_name
from shared.storage.urls import join
from target_spark.core.balance import Committed
from target_spark.core.differences import VANISHED
from target_spark.core.load_plans import outside_range, rules_error, without_column
from target_spark.destinations.destination import (
    Destination,
    Flush,
    RefusedByStoreError,
    TableId,
    TableWrite,
    remove_parts,
)
from target_spark.destinations.folders.table_folder import TableFolder, writing
from target_spark.destinations.lakes.flush_frames import refused_rows
from target_spark.destinations.lakes.held_rows import (
    HeldEdit,
    Step,
    flushes_in,
    rows_found,
    steps_of,
    summed,
)
from target_spark.destinations.lakes.lake_format import LakeFormat, NeedsSparkError, TableFlush
from target_spark.destinations.lakes.lake_sql import activate_sql
from target_spark.destinations.lakes.lake_table import LakeTable, Place
from target_spark.destinations.lakes.row_changes import (
    adopted_rows,
    appended,
    exchanged_rows,
    keys_in_parts,
    merged_rows,
    overwritten,
    range_sql,
    recast,
    rows_of_run,
    upserted,
    versioned,
    view_of,
    view_sql,
    with_versions,
)
from target_spark.destinations.lakes.row_repair import (
    compared_sides,
    repair_statement,
    repairs,
)
from target_spark.destinations.lakes.run_files import (
    NoteFile,
    lake_leases,
    note_files,
    pending_folders,
)
from target_spark.destinations.lakes.shared_tables import (
    BY_CASE,
    configured,
    differs_by_case,
    own_session,
    repeated,
    sync_to_disk,
)
from target_spark.destinations.lakes.table_history import (
    ACTIVATION,
    Mark,
    TableHistory,
    held,
    run_of,
)
from target_spark.destinations.lakes.table_maintenance import TableMaintenance
from target_spark.destinations.leases import Lease
from target_spark.replays import Note
from target_spark.tables.evolution import ANYTHING, TableChange, plan_change, without_computed
from target_spark.tables.legal_names import matched_names
from target_spark.tables.table_changes import OURS, change_lines, of_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from target_spark.core.differences import Verification
    from target_spark.core.load_plans import Backfill, TableName, TableRequest
    from target_spark.run_settings import TargetConfig
    from target_spark.tables.version_edit import VersionEdit

_log = logging.getLogger(__name__)

HISTORY = 200
"""Number of commits searched for a mark of ours, beside those of a note."""

PARTS = Encoding("parquet", "snappy")
_STEPS = 6
_SESSION_LOCK = threading.RLock()
"""Over Spark Connect tables share a session, whose configuration has the mark: also those of the
destination that a KEYS message has within a run."""


@dataclass
class OpenTable:
    """A table that a stream of this run uses.

    Attributes:
        place: Location of the table.
        folder: Folder for its parts.
        sessions: Returns its own session, and starts Spark if it has not been started.
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

    place: Place
    folder: TableFolder
    sessions: Callable[[], SparkSession]
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
        return flushes_in(self.held)

    @cached_property
    def spark(self) -> SparkSession:
        """Return the session of the table."""
        return self.sessions()


class LakeDestination(Destination):
    """See `Destination`.

    Args:
        form: The table format.
        config: The settings.
        spark: Returns the session.
    """

    keeps_notes = True
    may_refuse = True

    def __init__(
        self, form: LakeFormat, config: TargetConfig, spark: Callable[[], SparkSession]
    ) -> None:
        self._form = form
        self.holds_rows = form.copies
        self._config = config
        self._conflicts = config.type_conflicts
        self._spark = spark
        self._shares_session = config.spark.remote is not None
        self._folders = pending_folders(config)
        self._note_files = note_files(config)
        self._leases = lake_leases(config)
        self._notes: dict[tuple[str, str], NoteFile] = {}
        self._tables: dict[tuple[str, str], OpenTable] = {}
        self._left_out = set[tuple[str, tuple[str, ...]]]()
        self._lock = threading.RLock()
        atexit.register(self._close)

    def table(self, name: TableName) -> TableId:
        """See `Destination`."""
        place = self._form.place(name)
        return TableId((place.folder or place.table).casefold(), place.shown, shared=True)

    def dataset(self, name: TableName) -> DatasetName:
        """See `Destination`."""
        place = self._form.place(name)
        if place.folder is not None:
            return place_name(place.folder)
        return catalog_table_name(self._config.spark.conf, place.shown.split(".", 2))

    def prepare(self, request: TableRequest) -> TableWrite:
        """See `Destination`."""
        folder = self._open(request).folder
        return TableWrite(folder.pending, PARTS, as_nullable(request.struct), folder.options)

    def commit(self, flush: Flush) -> Committed | None:
        """See `Destination`."""
        table, committed = self._open(flush.request), None
        with table.lock:
            if flush.request.method != "overwrite" and not self.holds_rows:
                committed = self._repeat(
                    table, flush.stream, lambda _: self._load(table, flush), flush
                )
                _settle(table)
                remove_parts(flush)
            elif flush.token not in table.tried:
                table.tried.add(flush.token)
                table.held.append(flush)
        return committed

    def finish(self, request: TableRequest) -> Committed | None:
        """See `Destination`. Failed upkeep is only logged: all rows are in the table.

        The first call puts rows that are held back into a copy; the second one ends the stream.
        """
        key = request.stream, self._form.place(request.name).table
        if self.holds_rows and key in self._tables and self._tables[key].held:
            return self._copy(self._tables[key], request)
        notes = self._notes.pop(key, None)
        if notes is not None:
            notes.close(remove=False)
        if key not in self._tables:
            return None
        table, committed = self._open(request), None
        with table.lock:
            if table.held:
                committed = self._repeat(
                    table, request.stream, lambda attempt: self._overwrite(table, attempt)
                )
                _settle(table)
                table.held.clear()
            if table.is_staged:
                table.ending = request
            else:
                self._end(table, request)
        return committed

    def activate(self, request: TableRequest, edit: VersionEdit) -> str | None:
        """See `Destination`. With `overwrite` all rows belong to the run."""
        if request.method == "overwrite":
            return None
        table = self._open(request)
        with table.lock:
            if self.holds_rows:
                table.held.append(HeldEdit(request, edit))
                return None
            is_changed = self._repeat(
                table, request.stream, lambda _: self._edit(table, request, edit)
            )
            _settle(table)
        return edit.phrase(None) if is_changed else None

    def audit(self, checks: Callable[[str], Sequence[str]]) -> list[str]:
        """See `Destination`."""
        return [
            f"stream '{stream}': {line}"
            for stream, table in self._staged()
            for line in self._rows_found(table, stream, checks(stream))
        ]

    def staged(self) -> list[str]:
        """See `Destination`."""
        shown: dict[str, None] = {}
        for _, table in self._staged():
            if table.copy is None:
                shown[f"branch '{self._form.branch}' of {table.place.shown}"] = None
            elif self._outlives_run(table):
                shown[f"the table {table.copy.place.shown}"] = None
        return list(shown)

    def publish(self) -> None:
        """See `Destination`. Before the first one, all tables are looked at."""
        staged = self._staged()
        for stream, table in staged:
            self._check_base(table, stream)
        for stream, table in staged:
            with table.lock:
                self._publish(table, stream)

    def _staged(self) -> list[tuple[str, OpenTable]]:
        with self._lock:
            tables = [(key[0], table) for key, table in self._tables.items()]
        return [(stream, table) for stream, table in tables if table.is_staged or table.copy]

    def _rows_found(self, table: OpenTable, stream: str, conditions: Sequence[str]) -> list[str]:
        frame = table.spark.table((table.copy or table).place.table)
        found: list[str] = self._repeat(
            table, stream, lambda _: list(rows_found(frame, conditions))
        )
        return found

    def _check_base(self, table: OpenTable, stream: str) -> None:
        form, spark, place = self._form, table.spark, table.place
        if self._repeat(table, stream, lambda _: form.published(spark, place)) != table.base:
            raise self._has_moved(table, stream)

    def _publish(self, table: OpenTable, stream: str) -> None:
        form, spark, place = self._form, table.spark, table.place
        if table.copy is not None:
            self._publish_copied(table, table.copy, stream)
        elif not self._repeat(table, stream, lambda _: form.publish(spark, place)):
            raise self._has_moved(table, stream)
        _settle(table)
        table.is_staged, table.copy = False, None
        _log.info("stream '%s': its rows are published in %s", stream, place.shown)
        if table.ending is not None:
            self._end(table, table.ending)

    def _copy(self, table: OpenTable, request: TableRequest) -> Committed | None:
        """Commit all that waits to a copy of the table; return what these commits tell."""
        stream, form, spark = request.stream, self._form, table.spark
        with table.lock:
            held = table.held if request.method == "overwrite" else steps_of(table.held)
            if not held:
                table.held.clear()
                return None
            folder = join(table.folder.pending, f"audit_{uuid.uuid4().hex[:12]}")
            place = form.copy_place(folder)
            base = self._repeat(table, stream, lambda _: form.published(spark, table.place))
            if base is not None:
                self._repeat(table, stream, lambda _: form.copy(spark, table.place, base, place))
            copy = OpenTable(place, table.folder, lambda: spark, table.lock, held, is_copy=True)
            found = self._apply(copy, stream)
            table.held, table.base, table.copied, table.copy = held, base, found, copy
            _log.info("%s: what it will be is in %s", table.place.shown, place.shown)
            return found

    def _apply(self, table: OpenTable, stream: str) -> Committed:
        """Commit all that waits, one step after the other."""
        if any(flush.request.method == "overwrite" for flush in table.flushes):
            done = self._repeat(table, stream, lambda attempt: self._overwrite(table, attempt))
            return done or Committed()
        found = []
        for step in table.held:
            if isinstance(step, HeldEdit):
                self._repeat(table, stream, partial(self._edit_again, table, step))
            else:
                done = self._repeat(table, stream, partial(self._load_again, table, step))
                found.append(done or Committed())
        return summed(found)

    def _edit_again(self, table: OpenTable, step: HeldEdit, _: int) -> None:
        self._edit(table, step.request, step.edit)

    def _load_again(self, table: OpenTable, flush: Flush, _: int) -> Committed | None:
        return self._load(table, flush)

    def _publish_copied(self, table: OpenTable, copy: OpenTable, stream: str) -> None:
        """Make the table what its copy is, in one commit.

        One step is done again, on the table; for several, the rows of the copy replace all.

        Raises:
            BalanceError: The commit tells other numbers than that to the copy.
        """
        methods = {flush.request.method for flush in table.flushes}
        if len(table.held) == 1 or "overwrite" in methods:
            found = self._apply(table, stream)
        else:
            is_added = methods == {"append-only"} and len(table.flushes) == len(table.held)
            publish = self._append_all if is_added else self._take_rows
            found = self._repeat(table, stream, lambda _: publish(table, copy, stream))
        audited = (table.copied or Committed()).rows
        if None not in (found.rows, audited) and found.rows != audited:
            raise BalanceError(
                f"counts do not balance: {found.rows} rows were published in {table.place.shown}, "
                f"{audited} were audited",
                where=Where(stream=stream),
            )
        for flush in table.flushes:
            remove_parts(flush)
        table.held.clear()

    def _append_all(self, table: OpenTable, _: OpenTable, stream: str) -> Committed:
        """Append flushes of different columns."""
        form, spark, place, flushes = self._form, table.spark, table.place, table.flushes
        mark = self._mark(flushes[-1], sum(flush.rows for flush in flushes))
        if self._is_stored(table, flushes[-1].token):
            return Committed()
        now = self._shape_all(table, Mark(mark.run, stream))
        bare = [replace(f, request=replace(f.request, keys=())) for f in self._all_flushes(table)]
        form.append(spark, self._rows(table, bare, now), place, mark)
        return Committed(form.changed_rows(spark, place, mark))

    def _shape_all(self, table: OpenTable, mark: Mark) -> LakeTable:
        """Evolve the table for all flushes, in their order; return it."""
        for flush in table.flushes:
            now, _ = self._shape(table, with_versions(self._storable(flush.request)), mark)
            self._view(table, flush.request, now)
        return now

    def _take_rows(self, table: OpenTable, copy: OpenTable, stream: str) -> Committed:
        """Replace all rows by those of the copy."""
        form, spark, place, flushes = self._form, table.spark, table.place, table.flushes
        run = next(map(run_of, table.tried), "")
        if flushes and self._is_stored(table, flushes[-1].token):
            return Committed()
        if flushes:
            self._shape_all(table, Mark(run, stream))
        commits = form.commits(spark, place)
        known = [commit.version for commit in commits]
        later = commits[known.index(table.base) + 1 :] if table.base in known else commits
        if any(commit.mark is None or commit.mark.run != run for commit in later if commit.base):
            raise self._has_moved(table, stream)
        rows = sum(flush.rows for flush in flushes)
        mark = self._mark(flushes[-1], rows) if flushes else Mark(run, stream, ACTIVATION)
        form.take_rows(spark, copy.place, place, known[-1], mark)
        return Committed()

    def _outlives_run(self, table: OpenTable) -> bool:
        return table.place.folder is not None or self._config.staging.root is not None

    def _has_moved(self, table: OpenTable, stream: str) -> DestinationError:
        return DestinationError(
            f"others have committed to {table.place.shown} since the run began: its rows were not "
            f"published, they are in {', '.join(self.staged()) or 'no table'}",
            where=Where(stream=stream),
            hint="run again",
        )

    def _stage(self, table: OpenTable) -> None:
        """Let all commits to an existing table wait for their publication, if that is wanted."""
        form = self._form
        if form.branch is not None and not table.is_staged:
            table.base = form.stage(table.spark, table.place)
            table.is_staged = True
            _log.info("%s: commits go to branch '%s'", table.place.shown, form.branch)

    def _end(self, table: OpenTable, request: TableRequest) -> None:
        self._look_after(table, request)
        with self._lock:
            self._tables.pop((request.stream, table.place.table), None)
        table.folder.close()

    def exists(self, request: TableRequest) -> bool:
        """See `Destination`."""
        return self._described(request) is not None

    def _described(self, request: TableRequest) -> LakeTable | None:
        place = self._form.place(request.name)
        return repeated(
            lambda _: self._form.current(self._own_session, place),
            self._form.conflicts,
            Where(stream=request.stream),
            shown=place.shown,
        )

    def lease(self, request: TableRequest) -> Lease | None:
        """See `Destination`."""
        return self._leases(self._form.place(request.name), request.stream)

    def preview(self, request: TableRequest) -> Sequence[str]:
        """See `Destination`. The columns of a replaced table do not depend on the old ones."""
        wanted = with_versions(self._storable(request))
        if request.method == "overwrite" and request.backfill is None:
            return change_lines(self._plan(None, wanted))
        return change_lines(self._plan(self._described(request), wanted))

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
            found: Note = self._repeat(
                table, request.stream, lambda _: self._held(table, request, left)
            )
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
            with suppress(SingerSparkError):
                notes.close(remove=False)

    def _load(self, table: OpenTable, flush: Flush) -> Committed | None:
        """Evolve the table and commit the flush: one attempt; return what the commit tells."""
        form, base = self._form, None
        is_again = flush.token in table.tried
        if is_again:
            # Before the search: a commit after it makes this one fail.
            base = form.head(table.spark, table.place)
            if self._is_stored(table, flush.token):
                return None
        table.tried.add(flush.token)
        request, run = with_versions(self._storable(flush.request)), run_of(flush.token)
        now, change = self._shape(table, request, Mark(run, flush.stream))
        self._view(table, request, now)
        if not flush.parts:
            return Committed(0)
        mark = self._mark(flush, flush.rows)
        rows = TableFlush(table.place, flush, request, now, change, mark)
        is_upsert = request.method == "upsert" and bool(request.keys)
        keys = keys_in_parts(rows) if is_upsert else None
        done = adopted_rows(form, rows, keys)
        if done is None and is_upsert:
            done = merged_rows(form, rows, keys)
        if done is not None:
            return done
        if flush.write.row_origin is not None:
            refused = refused_rows(table.spark, rows, form.row_rules(now))
            if refused:
                raise RefusedByStoreError(refused[0].reason, refused)
        size = None if now.size is None else now.size + sum(part.size for part in flush.parts)
        with configured(table.spark, form.light(size)):
            if request.method == "history":
                return versioned(form, table.spark, rows, at=time.time())
            if is_upsert:
                return upserted(form, table.spark, rows, keys)
            frame = appended(table.spark, flush, change)
            form.append(table.spark, frame, table.place, mark, base)
            return Committed(form.changed_rows(table.spark, table.place, mark))

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Raise RefusedByStoreError if the block fails for what is in rows."""
        try:
            yield
        except Exception as error:
            broken = self._form.refusals.search(str(error))
            if broken is None:
                raise
            rule = " ".join(broken.group().split()).rstrip(".")
            raise RefusedByStoreError(f"a row breaks a rule of the table: {rule}") from error

    def _shape(
        self, table: OpenTable, request: TableRequest, mark: Mark
    ) -> tuple[LakeTable, TableChange]:
        """Evolve the table for the rows; return it and the projection of the rows."""
        place = table.place
        for _ in range(_STEPS):
            now = self._now(table)
            if now is not None:
                self._stage(table)
            change = self._plan(now, request)
            if now is None or change.create is not None:
                self._create(table, change, request)
            elif change.rewrite:
                self._rewrite(table, request, mark)
            elif _alters(now, change):
                self._alter(table, change, request, mark)
            else:
                return now, change
            if not table.is_copy:
                self.changed(request.stream, change_lines(change))
        raise DestinationError(
            f"{place.shown} still lacks columns for the rows after it was altered",
            lasts=True,
        )

    def _now(self, table: OpenTable) -> LakeTable | None:
        return self._form.current(lambda: table.spark, table.place)

    def _create(self, table: OpenTable, change: TableChange, request: TableRequest) -> None:
        with suppress(NeedsSparkError):
            self._form.created(table.place, change, request)
            return
        self._form.create(table.spark, table.place, change, request)

    def _alter(
        self, table: OpenTable, change: TableChange, request: TableRequest, mark: Mark
    ) -> None:
        with suppress(NeedsSparkError):
            self._form.altered(table.place, change, mark)
            return
        self._form.alter(table.spark, table.place, change, request, mark)

    def _plan(self, now: LakeTable | None, request: TableRequest) -> TableChange:
        form = self._form
        struct, names = (None, {}) if now is None else (now.struct, now.names)
        can = form.can if now is None else form.capabilities(now, request)
        request = self._settable(now, request)
        change = plan_change(struct, request, form.rules, self._conflicts, can, names)
        if now is None:
            return change
        if can.is_theirs:
            self._check_theirs(now, change, request)
        return replace(change, partitions=form.partition_steps(now, request, change.mapping))

    def _settable(self, now: LakeTable | None, request: TableRequest) -> TableRequest:
        """Return a request without the columns that the table computes; say once which."""
        if now is None or not now.computed:
            return request
        wanted, columns = request.struct.names, now.struct.names
        properties = of_columns(now.names)
        names = matched_names(wanted, columns, self._form.rules, properties, ours=OURS in now.names)
        shown = self._form.place(request.name).shown
        settable = without_computed(request, names, now.computed, shown)
        left_out = tuple(name for name in wanted if name not in settable.struct.names)
        if left_out and (request.stream, left_out) not in self._left_out:
            self._left_out.add((request.stream, left_out))
            listed = ", ".join(f"'{name}'" for name in left_out)
            text = "stream '%s': values of %s are ignored: the table %s computes these columns"
            _log.warning(text, request.stream, listed, shown)
        return settable

    def _check_theirs(self, now: LakeTable, change: TableChange, request: TableRequest) -> None:
        """Raise SettingsError if a change needs more of a table of others than columns."""
        shown = self._form.place(request.name).shown
        for path, _ in change.rewrite[:1]:
            text = f"{shown}, a table of others, would be rewritten for another type of '{path}'"
            raise rules_error(request.stream, text, "set `type_conflicts` to `suffix`")
        for feature in self._form.upgrades(now, change):
            text = f"{shown}, a table of others, would get {feature}, which not all readers support"
            raise rules_error(request.stream, text, "load the stream into another table")

    def _rewrite(self, table: OpenTable, request: TableRequest, mark: Mark) -> None:
        """Rewrite the whole table for columns whose types cannot be widened in place."""
        form, spark, place = self._form, table.spark, table.place
        if form.branch is not None:
            raise SettingsError(
                f"{place.shown} must be rewritten with other types, which a branch cannot have",
                where=Where(stream=request.stream, setting="write_audit_publish"),
                hint="load once without it, or set `type_conflicts` to `suffix`",
            )
        version = form.version(spark, place)
        now = self._now(table)
        change = self._plan(now, request)
        if now is None or not change.rewrite:
            return  # Another has done it.
        frame, whole = recast(spark, place, now, change)
        form.replace(spark, frame, place, whole, request, mark, version)

    def _overwrite(self, table: OpenTable, attempt: int) -> Committed | None:
        last = table.flushes[-1]
        if attempt and self._is_stored(table, last.token):
            return None
        if last.request.verification is not None:
            self._verify(table, last.request.verification)
            return None
        if last.request.backfill is not None or self._form.branch is not None:
            return self._replace_rows(table, last.request.backfill)
        form, flushes = self._form, self._all_flushes(table)
        plan = _planner(form, self._conflicts)
        mark = self._mark(last, sum(flush.rows for flush in flushes))
        if last.request.view is None and not table.is_copy:
            done = exchanged_rows(form, table.place, flushes, plan, mark)
            if done is not None:
                return done
        now = self._now(table)
        # Conditions are of others; a new table in place of this one would lack them.
        if now is not None and (
            form.capabilities(now, last.request).is_theirs
            or not all(rule.column for rule in form.row_rules(now))
        ):
            return self._replace_rows(table, None)
        names = {} if now is None else now.names
        frame, change, request = overwritten(table.spark, flushes, plan, names)
        form.replace(table.spark, frame, table.place, change, request, mark)
        self._view(table, request, LakeTable(frame.schema, change.mapping))
        changed = form.changed_rows(table.spark, table.place, mark)
        has_keys = bool(request.keys)
        return Committed(changed, by_key=has_keys, may_skip=has_keys and request.hard_delete)

    def _replace_rows(self, table: OpenTable, backfill: Backfill | None) -> Committed:
        """Replace a range of the table, or all of its rows, by those of all flushes."""
        form, last = self._form, table.flushes[-1]
        mark = self._mark(last, sum(flush.rows for flush in table.flushes))
        flushes = self._all_flushes(table)
        now = self._shaped(table, flushes)
        frame = self._rows(table, flushes, now)
        request = flushes[-1].request
        condition = self._part_of(table, frame, now, backfill)
        if condition is None:
            change = self._plan(now, request)
            form.replace(table.spark, frame, table.place, change, request, mark)
        else:
            form.replace_range(table.spark, frame, table.place, condition, mark)
        self._view(table, request, now)
        changed = form.changed_rows(table.spark, table.place, mark)
        has_keys = bool(last.request.keys)
        return Committed(changed, by_key=has_keys, may_skip=has_keys and last.request.hard_delete)

    def _verify(self, table: OpenTable, wanted: Verification) -> None:
        """Compare the rows of all flushes with the table; repair what differs, if that is wanted.

        Raises:
            DifferenceError: A repair would delete too many rows.
            DestinationError: The table does not exist.
        """
        form, place, last = self._form, table.place, table.flushes[-1]
        flushes = self._all_flushes(table)
        if wanted.repair and not wanted.deletes:
            now: LakeTable | None = self._shaped(table, flushes)
        else:
            now = self._now(table)
        if now is None:
            raise DestinationError(
                f"{place.shown} does not exist",
                where=Where(stream=last.stream),
                hint="load the stream first, or give --repair",
                lasts=True,
            )
        frame = self._rows(table, flushes, now)
        part = self._part_of(table, frame, now, last.request.backfill)
        rows = table.spark.table(place.table)
        sides = compared_sides(frame, rows, now, last.request, wanted, part)
        missing = () if wanted.deletes else self._missing_columns(now, flushes)
        found = sides.difference(last.stream, place.shown, missing)
        repaired = wanted.repaired(can_delete=sides.can_delete, part=part is not None)
        if wanted.repair and found.ranges and repaired:
            if VANISHED in repaired:
                wanted.check_vanished(found)
            found = replace(found, repaired=repaired)
            mark = Mark(run_of(last.token), last.stream, last.token, last.source)
            at = time.time()
            # Read once: Spark cannot plan a MERGE into Iceberg whose source joins the table twice.
            changes = repairs(sides, found, at).localCheckpoint()
            with view_of(table.spark, changes) as view:
                form.execute(table.spark, repair_statement(sides, place.table, view), place, mark)
        wanted.report(found)

    def _part_of(
        self, table: OpenTable, rows: DataFrame, now: LakeTable, backfill: Backfill | None
    ) -> str | None:
        """Return the condition for a range of a table; check that the rows of the run are in it."""
        if backfill is None:
            return None
        if now.names.get(backfill.column, backfill.column) not in now.struct.names:
            raise without_column(backfill, table.place.shown)
        condition = range_sql(backfill, now)
        if rows.where(f"NOT coalesce({condition}, false)").limit(1).count():
            raise outside_range(backfill)
        return condition

    def _missing_columns(self, now: LakeTable, flushes: Sequence[Flush]) -> tuple[str, ...]:
        """Return the stream's columns that the table lacks."""
        request = flushes[-1].request
        added = self._plan(now, request).add
        return tuple(column.source for column in added if not column.source.startswith(METADATA))

    def _all_flushes(self, table: OpenTable) -> list[Flush]:
        """Return the flushes that wait for the end of the run, with columns of the format."""
        return [replace(held, request=self._storable(held.request)) for held in table.flushes]

    def _shaped(self, table: OpenTable, flushes: Sequence[Flush]) -> LakeTable:
        """Evolve the table for all flushes; return it."""
        mark = Mark(run_of(flushes[-1].token), flushes[-1].stream)
        for request in {flush.request.struct.json(): flush.request for flush in flushes}.values():
            now, _ = self._shape(table, request, mark)
        return now

    def _rows(self, table: OpenTable, flushes: Sequence[Flush], now: LakeTable) -> DataFrame:
        """Return the rows of all flushes as the table would store them."""
        plan = _planner(self._form, self._conflicts)
        settable = [replace(one, request=self._settable(now, one.request)) for one in flushes]
        return rows_of_run(table.spark, settable, plan, now.struct, now.names)

    def _view(self, table: OpenTable, request: TableRequest, now: LakeTable) -> None:
        """Create the view of the settings, if its columns have changed."""
        if request.view is not None and table.view != request.view and not table.is_copy:
            table.spark.sql(view_sql(table.place, request, now.names))
            table.view = request.view

    def _edit(self, table: OpenTable, request: TableRequest, edit: VersionEdit) -> bool:
        """Remove or mark older rows; return whether the table has any, marked ones included."""
        with suppress(NeedsSparkError):
            if self._has_none_below(table.place, edit.version):
                return False
        now = self._now(table)
        if now is None:
            return False
        self._stage(table)
        version, deleted = (now.names.get(name, name) for name in (TABLE_VERSION, DELETED_AT))
        if not {version, deleted} <= set(now.struct.names):
            return False
        at = None if edit.hard_delete else edit.at
        run = next(map(run_of, table.tried), "")
        mark = Mark(run, request.stream, ACTIVATION)
        with suppress(NeedsSparkError):
            self._form.activated(table.place, now, (version, deleted), edit.version, at, mark)
            return True
        statement = activate_sql(table.place.table, version, deleted, edit.version, at)
        self._form.execute(table.spark, statement, table.place, mark)
        return True

    def _has_none_below(self, place: Place, version: int) -> bool:
        """Return whether metadata show that all rows of a table are of a version or newer.

        Raises:
            NeedsSparkError: They do not tell.
        """
        now = self._form.looked_up(place)
        if now is None:
            return True
        column = now.names.get(TABLE_VERSION, TABLE_VERSION)
        if column not in now.struct.names:
            return True
        lowest = self._form.lowest(place, column)
        return lowest is None or lowest >= version

    def _look_after(self, table: OpenTable, request: TableRequest) -> None:
        """Compact and maintain the table, if the settings say so; failures are only logged."""
        maintains = self._config.maintenance.after_run
        if self._config.verification is not None or not (maintains or request.layout.compact):
            return
        form, spark, place = self._form, table.spark, table.place
        try:
            if self._now(table) is None:
                return
            if not maintains:
                form.compact(spark, place, request.layout)
                return
            history = TableHistory(place.shown, place, form.commits(spark, place))
            if history.commits:
                care = TableMaintenance(self._config, form)
                report = care.maintain(spark, history, request.layout, tokens=table.tried)
                for line in report.lines():
                    _log.info("%s", line)
        except Exception as error:
            text = " ".join(str(error).split())[:300]
            what = "maintained" if maintains else "compacted"
            _log.warning("%s was not %s: %s", place.shown, what, text)

    def _is_stored(self, table: OpenTable, token: str) -> bool:
        if self._now(table) is None:
            return False
        marks = self._marks(table, HISTORY)
        return any(mark is not None and mark.token == token for mark in marks)

    def _marks(self, table: OpenTable, limit: int) -> Iterable[Mark | None]:
        """Return the marks of the newest commits, without Spark if the format can tell."""
        with suppress(NeedsSparkError):
            return self._form.logged_marks(table.place, limit)
        return self._form.marks(table.spark, table.place, limit)

    def _held(self, table: OpenTable, request: TableRequest, note: Note) -> Note:
        if self._now(table) is None:
            return Note()
        # A flush may commit twice: the columns, then the rows.
        limit = HISTORY + 2 * len(note.tokens)
        return held(note, self._marks(table, limit), request.stream)

    def _storable(self, request: TableRequest) -> TableRequest:
        return replace(request, struct=self._form.storable(request.struct))

    def _repeat(
        self, table: OpenTable, stream: str, work: Callable[[int], Any], *flushes: Flush
    ) -> Any:
        where = Where(stream=stream)
        structs = (flush.write.struct for flush in (*table.flushes, *flushes))

        def tried(attempt: int) -> Any:
            with self._refusing():
                return work(attempt)

        with ExitStack() as stack:
            if any(map(differs_by_case, structs)):
                stack.enter_context(configured(table.spark, BY_CASE))
            return repeated(tried, self._form.conflicts, where, shown=table.place.shown)

    def _mark(self, flush: Flush, rows: int) -> Mark:
        """Return the mark of a flush, or of all flushes whose last one it is."""
        run, whole = run_of(flush.token), self.holds_rows
        return Mark(run, flush.stream, flush.token, flush.source, flush.state, rows, whole)

    def _open(self, request: TableRequest) -> OpenTable:
        place = self._form.place(request.name)
        key = request.stream, place.table
        with self._lock:
            if key not in self._tables:
                self._check_alone(request.stream, place)
                lock = _SESSION_LOCK if self._shares_session else threading.RLock()
                folder = self._folders(place, uuid.uuid4().hex[:12])
                self._tables[key] = OpenTable(place, folder, self._own_session, lock)
            return self._tables[key]

    def _check_alone(self, stream: str, place: Place) -> None:
        """Raise SettingsError if another stream loads a table whose rows are held back."""
        others = [name for name, table in self._tables if table == place.table]
        if self.holds_rows and others:
            raise SettingsError(
                f"{place.shown} is loaded by stream '{others[0]}' too",
                where=Where(stream=stream, setting="write_audit_publish"),
                hint="give each stream a table of its own, or load without it",
            )

    def _own_session(self) -> SparkSession:
        return own_session(self._spark(), self._form.conf)

    def _close(self) -> None:
        """Remove the hidden files of this run when the process ends; keep notes."""
        self.close()
        for table in self._tables.values():
            with suppress(SingerSparkError):
                if table.copy is not None and self._outlives_run(table):
                    for flush in table.flushes:
                        remove_parts(flush)
                else:
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
