"""Tables of a database: rows are staged on executors and inserted in one transaction.

If a table is replaced, readers see the old rows until all new ones are there.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import logging
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from shared.errors import DestinationError, Pauses, SettingsError, SingerSparkError, Where, repeated
from shared.formats.file_formats import Encoding
from shared.maps.record_metadata import DELETED_AT, TABLE_VERSION
from shared.singer.datasets import DatasetName, table_name
from shared.storage.access import StorageOptions
from shared.storage.owned_folders import OwnedFolder, remove_stale
from shared.storage.urls import join, local_path
from target_spark.core.balance import Committed
from target_spark.core.load_plans import DISCARD, TableName, TableRequest
from target_spark.destinations.databases.database import (
    CONFLICT,
    LOST,
    Database,
    errno_of,
    explain_errors,
    is_alive,
)
from target_spark.destinations.databases.database_tables import (
    Connection,
    DatabaseAddress,
    JdbcSettings,
    TablePlace,
    address_of,
)
from target_spark.destinations.databases.run_resources import (
    DatabaseLease,
    DatabaseLeases,
    Ledger,
    RunResources,
)
from target_spark.destinations.databases.sink import DATABASES, PREFIX, StagingSink
from target_spark.destinations.databases.table_work import (
    TablePlan,
    TableWork,
    keys_of,
    staged_columns,
    staging_tables_of,
)
from target_spark.destinations.destination import (
    Destination,
    Flush,
    RefusedByStoreError,
    TableId,
    TableWrite,
    Tools,
)
from target_spark.destinations.folders.stored_folder import RemoteFolder
from target_spark.destinations.folders.table_folder import writing
from target_spark.destinations.leases import Lease
from target_spark.replays import Note
from target_spark.run_settings import TargetConfig
from target_spark.tables.table_changes import change_lines, legal_name

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from target_spark.tables.version_edit import VersionEdit

_log = logging.getLogger(__name__)


def empty_table(work: TableWork, requests: Sequence[TableRequest]) -> TableWork:
    """Return work on an empty table with the columns that all requests need.

    It is the table itself if others have created it or its triggers and foreign keys, or DDL and
    the new rows are one transaction; otherwise a new one, for `swap_in`.

    Raises:
        DestinationError: The stream's columns have changed their types during the run, and the
            settings do not resolve that. All rows are unchanged.
    """
    sql, cursor = work.sql, work.cursor
    work.check_cascades("load_method 'overwrite'", "load the stream with 'upsert'")
    if work.is_theirs() or sql.has_ties(cursor, work.place):
        for request in requests:
            work.alter(request, work.plan(request))
        work.connection.commit()
        _delete_all(work)
        return work
    is_there = work.described() is not None
    conflicts = dict.fromkeys(chain.from_iterable(map(work.conflicting, requests)))
    if is_there and not conflicts:
        for request in requests:
            work.alter(request, work.plan(request))
        # Readers of an altered table wait for the transaction's end.
        work.connection.commit()
    is_keyed = is_there and all(map(work.is_keyed, requests))
    is_ready = is_keyed and not conflicts
    if is_there and not is_ready:
        _check_attached(work, list(conflicts), is_copied=sql.undoes_ddl or is_keyed)
    if is_there and (is_ready or sql.undoes_ddl):
        _delete_all(work)
    if is_ready:
        return work
    created = work if sql.undoes_ddl else _spare(work, is_keyed)
    if is_keyed or created is work:
        created.drop_columns(conflicts)
    for request in requests:
        created.alter(request, created.plan(request))
    for request in requests:
        created.key(request, created.plan(request))
    return created


def _delete_all(work: TableWork) -> None:
    """Delete all rows; raise SettingsError if a trigger or rule of others keeps some."""
    work.run(work.sql.delete_all(work.place))
    if work.sql.keeps_rows(work.cursor, work.place):
        raise SettingsError(
            f"'overwrite' cannot replace the rows of '{work.place.table}': "
            "a trigger or rule of the table keeps them",
            where=Where(setting="load_method"),
            hint="load the stream with 'upsert', or drop that trigger or rule",
        )


def _check_attached(work: TableWork, conflicts: Sequence[str], *, is_copied: bool) -> None:
    """Raise SettingsError if what others have made of columns would go with them.

    Conflicts are created anew, for other types; with `is_copied`, the other columns stay, with what
    belongs to them.
    """
    table = work.described()
    columns = [column.name for column in table.columns] if table and not is_copied else conflicts
    others = work.sql.attached(work.cursor, work.place, columns)
    if others:
        raise SettingsError(
            f"'overwrite' would create columns of '{work.place.table}' anew for other types or "
            f"keys ({', '.join(conflicts)}), and drop what was made by others: {', '.join(others)}",
            where=Where(setting="load_method"),
            hint="drop that and run again, or choose another table",
        )


def _spare(work: TableWork, is_keyed: bool) -> TableWork:
    """Return work on a new table, a copy of the current one if that has the right keys."""
    created = replace(work, place=TablePlace(work.place.schema, swap_names(work)[0]))
    work.run(work.sql.drop(created.place))
    if is_keyed:
        work.run(work.sql.copy(created.place, work.place))
    return created


def swap_in(work: TableWork, filled: TableWork) -> None:
    """Replace the old table by the filled one from `empty_table`.

    The ledger is written afterwards: if that fails, everything is repeated.
    """
    if filled.place == work.place:
        return
    pairs = [(filled.place, work.place)]
    if work.described() is not None:
        pairs.insert(0, (work.place, TablePlace(work.place.schema, swap_names(work)[1])))
    work.connection.commit()
    work.run(work.sql.rename(pairs))


def swap_names(work: TableWork) -> tuple[str, str]:
    """Return names for the new and the old table, which are removed like staging tables."""
    digest = hashlib.sha256(work.place.table.encode()).hexdigest()[:15]
    return f"{PREFIX}{work.ledger.run}_{digest}n", f"{PREFIX}{work.ledger.run}_{digest}o"


_ATTEMPTS = 8
_PAUSES = Pauses(longest=2.0)
REJECTS = "target-spark-rejects-"
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def repeated_in_session(work: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Repeat work after a conflict with another session or a lost connection."""

    @wraps(work)
    def repeating(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return repeated(
            lambda _: work(*args, **kwargs),
            lambda error: errno_of(error) in {CONFLICT, LOST},
            attempts=_ATTEMPTS,
            pauses=_PAUSES,
        )

    return repeating


def jdbc_destination(config: TargetConfig, _: Tools | None = None) -> JdbcDestination:
    """Return the destination of a configuration; only executors use Spark.

    Raises:
        SettingsError: The database is not supported, or a connection property is not allowed.
    """
    if not isinstance(config.block, JdbcSettings):
        raise SettingsError("a database needs 'jdbc.url'", where=Where(setting="jdbc"))
    return JdbcDestination(
        address_of(config.block),
        conflicts=config.type_conflicts,
        style=config.column_names,
        pending=_rejects_folder(config),
        expiry=config.overlapping_runs.expiry_seconds,
    )


def _rejects_folder(config: TargetConfig) -> OwnedFolder | RemoteFolder | None:
    """Return a folder for rejected records, if they are kept; remove those of killed runs.

    Raises:
        DestinationError: It cannot be written.
    """
    kept = config.failure.policy == "SendToDLQ"
    url = config.staging.root or tempfile.gettempdir()
    path = local_path(url)
    if path is None:
        options = StorageOptions(config.storage_options)
        return RemoteFolder(join(url, "rejects"), uuid.uuid4().hex, options) if kept else None
    root = Path(path)
    remove_stale(root, REJECTS)
    if not kept:
        return None
    with writing(url):
        root.mkdir(parents=True, exist_ok=True)
        return OwnedFolder(root, REJECTS)


class JdbcDestination(Destination):
    """See `Destination`.

    Files of rejected records are in the folder `pending`; None if they are not kept. `conflicts`
    and `style` are the settings `type_conflicts` and `column_names`. The lease of a client that is
    gone ends after `expiry` seconds.
    """

    may_refuse = True

    def __init__(
        self,
        place: DatabaseAddress,
        *,
        conflicts: str = "fail",
        style: str = "keep",
        pending: OwnedFolder | RemoteFolder | None = None,
        expiry: int = 60,
    ) -> None:
        self._place, self._conflicts, self._pending = place, conflicts, pending
        self._database: Database = DATABASES[place.kind]()
        # For columns; schemas and tables keep their names.
        self._rules = replace(self._database.rules, style=style)
        self._run = uuid.uuid4().hex[:12]
        self._resources = RunResources(self._database, self._place, self._run)
        self._leases = DatabaseLeases(self._resources, expiry)
        self._lock = threading.RLock()
        self._idle: Connection | None = None
        self._held: dict[str, list[Flush]] = {}
        self._owners: dict[TablePlace, str] = {}
        self._views: dict[TablePlace, StructType | None] = {}
        self._noted: set[str] = set()
        self._warned: set[str] = set()
        self.keeps_notes = self._database.keeps_notes
        atexit.register(self.close)

    def table(self, name: TableName) -> TableId:
        """See `Destination`. In PostgreSQL the default schema is `public`."""
        parts = self._parts(name)
        fold = self._database.rules.fold
        return TableId(json.dumps([fold(part) for part in parts]), ".".join(parts))

    def dataset(self, name: TableName) -> DatasetName:
        place, parts = self._place, self._parts(name)
        inside = [place.name, *parts] if place.kind == "postgresql" else parts
        return table_name(place.kind, place.hosts[0], place.ports[0], inside)

    def _parts(self, name: TableName) -> list[str]:
        place = self._place
        unnamed = "public" if place.kind == "postgresql" else place.name
        parts = (name.schema or unnamed, name.table)
        return [legal_name(part, self._database.rules) for part in parts]

    def prepare(self, request: TableRequest) -> TableWrite:
        check_request(request)
        with self.work(request) as work:
            if request.method != "overwrite" or work.is_theirs():
                self._warn_computed(request, work.plan(request))
            if request.view is not None:
                same = {name: name for name in request.struct.names}
                self._database.sql.view(work.place, request, same, self._rules)
            columns = staged_columns(self._database, request.struct)
            sink = StagingSink(
                self._place, work.place.schema, self._run, columns, bool(keys_of(request))
            )
        rejects, encoding = self._pending, Encoding("parquet", "none")
        if isinstance(rejects, RemoteFolder):
            return TableWrite(rejects.pending, encoding, request.struct, rejects.options, sink)
        pending = str(self._place if rejects is None else rejects.path)
        return TableWrite(pending, encoding, request.struct, sink=sink)

    def _warn_computed(self, request: TableRequest, plan: TablePlan) -> None:
        """Say once that the database computes columns of the stream by itself."""
        names = [name for name in request.struct.names if name not in plan.mapping]
        names = [name for name in names if name in plan.computed]
        with self._lock:
            is_new = names and request.stream not in self._warned
            self._warned.add(request.stream)
        if is_new:
            listed = ", ".join(f"'{name}'" for name in names)
            _log.warning(
                "stream '%s': values of %s are ignored: the database generates these columns",
                request.stream,
                listed,
            )

    def commit(self, flush: Flush) -> Committed | None:
        if flush.request.method == "overwrite":
            with self._lock:
                held = self._held.setdefault(flush.stream, [])
                if flush.token not in {earlier.token for earlier in held}:
                    held.append(flush)
            return None
        return self._append(flush)

    def abort(self, flush: Flush) -> None:
        """See `Destination`. Staging tables that remain are removed at the end of the run."""
        with contextlib.suppress(SingerSparkError):
            self.drop_staging(flush.request, staging_tables_of([flush]))

    def finish(self, request: TableRequest) -> Committed | None:
        held, committed = self._held.get(request.stream), None
        if held:
            committed = self._replace(held)
            with self._lock:
                self._held.pop(request.stream, None)
        self._end(request)
        return committed

    def activate(self, request: TableRequest, edit: VersionEdit) -> str | None:
        """See `Destination`. With `overwrite` all rows belong to the run."""
        if request.method == "overwrite":
            return None
        rows = self._activate(request, edit)
        return edit.phrase(rows) if rows else None

    def exists(self, request: TableRequest) -> bool:
        with self._looking(request) as work:
            return work.described() is not None

    def preview(self, request: TableRequest) -> Sequence[str]:
        check_request(request)
        with self._looking(request) as work:
            result = work.preview(request)
        return change_lines(result)

    def lease(self, request: TableRequest) -> Lease:
        return DatabaseLease(self._leases, request)

    def recall(self, request: TableRequest) -> Note:
        return self._recall(request) if self.keeps_notes else Note()

    @repeated_in_session
    def keep(self, request: TableRequest, note: Note) -> None:
        # Without the table's lock, which a commit may hold for long.
        with self.work(request) as work:
            self._check_note(work, request, work.ledger.keep(request.stream, note))
            work.connection.commit()
        self._has_note(request, note)

    def close(self) -> None:
        """Remove staged rows that were not loaded; called at the end of the process."""
        atexit.unregister(self.close)
        if idle := self._take_idle():
            with contextlib.suppress(Exception):
                idle.close()
        self._resources.close()
        if self._pending:
            self._pending.close()

    @repeated_in_session
    def _append(self, flush: Flush) -> Committed | None:
        request, committed = flush.request, None
        with self.work(request) as work, work.locked():
            if not work.ledger.has(flush.token):
                result = work.plan(request)
                plan = work.alter(request, result)
                if request.view is not None and self._views.get(work.place) != request.view:
                    work.view(request, plan)
                work.connection.commit()
                self._views[work.place] = request.view
                self.changed(request.stream, change_lines(result.change))
                has_note = work.ledger.has_note(request.stream)
                self._check_note(work, request, has_note)
                plan = work.key(request, plan)
                with self._finding_refused(work, flush, plan):
                    committed = work.insert(request, plan, flush.parts)
                if flush.parts:  # Parts have rows; a flush without any is in no note either.
                    self._add_token(work, flush)
                with self._finding_refused(work, flush, plan):  # deferred constraints
                    work.connection.commit()
            work.connection.commit()
        self.drop_staging(request, staging_tables_of([flush]))
        return committed

    @contextlib.contextmanager
    def _finding_refused(self, work: TableWork, flush: Flush, plan: TablePlan) -> Iterator[None]:
        """Find the rows that the server refuses if the block fails for what is in them.

        Raises:
            RefusedByStoreError: Names them if the staging tables tell their origins.
        """
        try:
            yield
        except Exception as error:
            reason = work.refusal_of(error, flush.request, plan)
            if not reason:
                raise
            work.connection.rollback()
            if flush.write.row_origin is None or flush.request.method == "overwrite":
                raise RefusedByStoreError(reason) from error
            rows = work.refused_rows(flush.request, flush.parts)
            if not rows:
                raise
            raise RefusedByStoreError(rows[0].reason, rows) from error

    @repeated_in_session
    def _replace(self, held: Sequence[Flush]) -> Committed | None:
        """Replace all rows by those of all flushes; readers see the old ones until then."""
        last, result = held[-1], list[Committed]()
        with self.work(last.request) as work, work.locked():
            if not work.ledger.has(last.token):
                requests = {flush.write.struct.json(): flush.request for flush in held}.values()
                backfill, filled = last.request.backfill, work
                if backfill is None:
                    filled = empty_table(work, list(requests))
                else:
                    work.empty_range(list(requests), backfill)
                for flush in held:
                    plan = filled.plan(flush.request)
                    if backfill is not None:
                        work.check_range(flush.request, plan, flush.parts, backfill)
                    with self._finding_refused(filled, flush, plan):
                        result.append(filled.insert(flush.request, plan, flush.parts))
                        if flush is last:
                            filled.check_constraints()
                if last.request.view is not None:
                    filled.view(last.request, plan)
                swap_in(work, filled)
                self._add_token(work, last)
            work.connection.commit()
        self.drop_staging(last.request, [*staging_tables_of(held), *swap_names(work)])
        # With keys, a later flush updates rows of an earlier one: the sum is not the table's.
        by_key = any(one.by_key for one in result)
        return None if by_key or not result else Committed(sum(one.rows or 0 for one in result))

    def _add_token(self, work: TableWork, flush: Flush) -> None:
        rows = sum(part.rows for part in flush.parts)
        proof = self._database.sql.proof(work.cursor, rows)
        work.ledger.add(flush.stream, flush.token, proof)

    def drop_staging(self, request: TableRequest, parts: Sequence[str]) -> None:
        """Remove staging tables; those that remain are removed at the end of the run."""
        try:
            with self.work(request) as work:
                work.drop(work.place.schema, parts)
        except DestinationError as error:
            _log.debug("staging tables are removed at the end of the run: %s", error)

    @repeated_in_session
    def _end(self, request: TableRequest) -> None:
        with self.work(request) as work, work.locked():
            work.ledger.end(request.stream)
            work.connection.commit()

    @repeated_in_session
    def _recall(self, request: TableRequest) -> Note:
        # A killed run's last transaction may still be under way on the server.
        with self.work(request) as work, work.locked():
            note = work.ledger.take(request.stream)
            work.connection.commit()
        self._has_note(request, note)
        return note

    def _check_note(self, work: TableWork, request: TableRequest, is_there: bool) -> None:
        """Raise DestinationError if a later run took this one for dead, and adopted its note."""
        if request.stream in self._noted and not is_there:
            raise DestinationError(
                f"another run has taken over the table '{work.place.table}': this run lost "
                "its connection to the database",
                where=Where(stream=request.stream),
                hint="run again; what was committed is not loaded twice",
            )

    def _has_note(self, request: TableRequest, note: Note) -> None:
        with self._lock:
            (self._noted.add if note.entries else self._noted.discard)(request.stream)

    @repeated_in_session
    def _activate(self, request: TableRequest, edit: VersionEdit) -> int:
        """Remove or mark older rows; return how many."""
        sql, time = self._database.sql, datetime.fromtimestamp(edit.at, timezone.utc)
        with self.work(request) as work, work.locked():
            result = work.described()
            present = {column.name for column in result.columns} if result else set()
            # Columns of the record metadata keep their names, under any rules.
            version = work.place, TABLE_VERSION, edit.version
            if TABLE_VERSION not in present or not (edit.hard_delete or DELETED_AT in present):
                return 0
            if edit.hard_delete:
                query = sql.delete_versions(*version)
            else:
                at = time.strftime("%Y-%m-%d %H:%M:%S.%f")
                query = sql.mark_versions(*version, DELETED_AT, at)
            with work.ledger.kept_proofs():
                work.cursor.execute(query)
                rows = work.cursor.rowcount
            work.connection.commit()
        return rows

    @contextlib.contextmanager
    def work(self, request: TableRequest) -> Iterator[TableWork]:
        """Yield the work on one table, over a session that no other thread uses meanwhile."""
        with self._connected(request) as connection:
            schema = self._resources.schema(connection, request.name.schema)
            work = self._work_in(schema, request, connection)
            self._claim(work.place, request.stream)
            yield work

    @contextlib.contextmanager
    def _looking(self, request: TableRequest) -> Iterator[TableWork]:
        """Yield the work on one table for a look: neither schema nor ledger need be there."""
        with self._connected(request) as connection:
            schema = self._resources.named(connection, request.name.schema)
            yield self._work_in(schema, request, connection)

    @contextlib.contextmanager
    def _connected(self, request: TableRequest) -> Iterator[Connection]:
        where = Where(stream=request.stream)
        with explain_errors(self._database, self._place, where):
            connection = self._session()
            try:
                yield connection
            except BaseException:
                with contextlib.suppress(Exception):
                    connection.close()
                raise
            self._keep_session(connection)

    def _session(self) -> Connection:
        """Return the session that an earlier work has left, if it still answers, or a new one."""
        idle = self._take_idle()
        if idle is not None and is_alive(self._database, idle):
            return idle
        return self._database.connect(self._place)

    def _take_idle(self) -> Connection | None:
        with self._lock:
            idle, self._idle = self._idle, None
        return idle

    def _keep_session(self, connection: Connection) -> None:
        """Leave a session to the next work: a new one takes longer than most statements.

        One is enough, as others would count among the connections that the server admits.
        """
        with contextlib.suppress(Exception):
            connection.rollback()
            with self._lock:
                if self._idle is None:
                    self._idle = connection
                    return
        with contextlib.suppress(Exception):
            connection.close()

    def _work_in(self, schema: str, request: TableRequest, connection: Connection) -> TableWork:
        place = TablePlace(schema, legal_name(request.name.table, self._database.rules))
        cursor = connection.cursor()
        ledger = Ledger(self._database, cursor, place, self._run)
        return TableWork(
            self._database, connection, cursor, place, ledger, self._rules, self._conflicts
        )

    def _claim(self, place: TablePlace, stream: str) -> None:
        """Claim a table like `StreamTables.claim`, if only the server knows its schema."""
        with self._lock:
            owner = self._owners.setdefault(place, stream)
        if owner != stream:
            raise SettingsError(
                f"streams '{owner}' and '{stream}' would share the table '{place.table}'",
                hint="give one of them another name in 'streams'",
            )


def check_request(request: TableRequest) -> None:
    """Raise SettingsError if a setting of the table is not supported by databases."""
    if request.layout.partition_by:
        raise SettingsError(
            "database tables cannot be partitioned by target-spark",
            where=Where(stream=request.stream, setting="partition_by"),
            hint="create the partitioned table yourself; rows go into its partitions",
        )
    if request.contract.types == DISCARD:
        raise SettingsError(
            "'discard' is not supported by databases",
            where=Where(stream=request.stream, setting="schema_contract.types"),
            hint="set it to `freeze`, or to `evolve` with `type_conflicts`",
        )
