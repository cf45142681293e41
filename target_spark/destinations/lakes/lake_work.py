"""Work on the tables that a run has opened: columns, marks, views, and single attempts to commit.

Engines are tried in order (`first_able`): the packages of a format, then Spark, which starts only
if it has to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, StructField, StructType, TimestampType

from shared.errors import DestinationError, SettingsError, Where
from shared.maps.record_metadata import DELETED_AT, TABLE_VERSION, VERSION_COLUMNS
from target_spark.core.balance import Committed
from target_spark.core.load_plans import (
    Backfill,
    TableRequest,
    outside_range,
    rules_error,
    without_column,
)
from target_spark.destinations.destination import Destination, Flush
from target_spark.destinations.lakes.lake_format import (
    LakeFormat,
    NeedsSparkError,
    TableEngine,
    TableFlush,
)
from target_spark.destinations.lakes.lake_sql import range_sql, view_sql
from target_spark.destinations.lakes.lake_table import (
    ACTIVATION,
    BY_CASE,
    LakeTable,
    Mark,
    OpenTable,
    configured,
    differs_by_case,
    held_part,
    past_conflicts,
    run_of,
)
from target_spark.destinations.lakes.small_flush import keys_in_parts
from target_spark.replays import Note
from target_spark.tables.evolution import plan_change, without_computed
from target_spark.tables.table_changes import (
    ANYTHING,
    OURS,
    TableChange,
    change_lines,
    matched_names,
    of_columns,
)

if TYPE_CHECKING:
    from target_spark.destinations.lakes.spark_engine import SparkEngine
    from target_spark.tables.version_edit import VersionEdit

_log = logging.getLogger(__name__)


T = TypeVar("T")


def first_able(form: LakeFormat, work: Callable[[TableEngine], T]) -> T:
    """Return what `work` returns for the first engine that can do it: a package, or else Spark."""
    for package in form.packages:
        with suppress(NeedsSparkError):
            return work(package)
    return work(spark_engine(form))


def spark_engine(form: LakeFormat) -> SparkEngine:
    """Return Spark as the engine of a format; see `first_able`."""
    from target_spark.destinations.lakes.spark_engine import SparkEngine  # noqa: PLC0415

    return SparkEngine(form)


def first_of(*attempts: Callable[[], T]) -> T:
    """Return what the first attempt returns that does not need Spark, or what the last one does."""
    for attempt in attempts[:-1]:
        with suppress(NeedsSparkError):
            return attempt()
    return attempts[-1]()


HISTORY = 200
"""Number of commits searched for a mark of ours, beside those of a note."""
_STEPS = 6


@dataclass(eq=False)
class LakeWork:
    """Work on open tables, over their format. `load`, `overwrite` and `edit` are single attempts.

    `conflicts` says what becomes of values whose type the column cannot hold; the destination is
    told of changes of columns: see `Destination.changed`.
    """

    form: LakeFormat
    conflicts: str
    destination: Destination
    _left_out: set[tuple[str, tuple[str, ...]]] = field(default_factory=set, init=False)

    def shape(
        self, table: OpenTable, request: TableRequest, mark: Mark
    ) -> tuple[LakeTable, TableChange]:
        """Evolve the table for the rows; return it and the projection of the rows."""
        for _ in range(_STEPS):
            now = self.now(table)
            if now is None:
                created = self._create(table, request)
                if created is not None:
                    return created
                continue
            self.stage(table)
            change = self.plan(now, request)
            if change.rewrite:
                self._rewrite(table, request, mark)
            elif change.alters or not change.renamed.items() <= now.names.items():
                self._alter(table, change, request, mark)
            else:
                return now, change
            if not table.is_copy:
                self.destination.changed(request.stream, change_lines(change))
        if now is None and table.place.folder is not None:
            # With files in the folder, Spark's CREATE TABLE IF NOT EXISTS does nothing.
            raise DestinationError(
                f"{table.place.shown} holds files, but no table of this format",
                hint="choose another 'path', or move the files away",
                lasts=True,
            )
        raise DestinationError(
            f"{table.place.shown} still lacks columns for the rows after it was altered",
            lasts=True,
        )

    def _create(
        self, table: OpenTable, request: TableRequest
    ) -> tuple[LakeTable, TableChange] | None:
        """Create the table for the rows; return what `shape` returns, None if others were first."""
        form, change = self.form, self.plan(None, request)
        first_able(form, lambda engine: engine.create(table, change, request))
        if not table.is_copy:
            self.destination.changed(request.stream, change_lines(change))
        now = self.now(table)
        if now is None or now.names != change.renamed:
            return None
        have = [(one.name, one.dataType, one.nullable) for one in now.struct]
        want = [(one.name, one.dtype, one.nullable) for one in change.create or ()]
        if have != want or form.partition_steps(now, request, change.mapping):
            return None
        self.stage(table)
        return now, replace(change, create=None)

    def _alter(
        self, table: OpenTable, change: TableChange, request: TableRequest, mark: Mark
    ) -> None:
        first_able(self.form, lambda engine: engine.alter(table, change, request, mark))

    def now(self, table: OpenTable) -> LakeTable | None:
        """Return what the table has now; None if it does not exist."""
        return first_able(self.form, lambda engine: engine.describe(table))

    def plan(self, now: LakeTable | None, request: TableRequest) -> TableChange:
        """Return how the table must change for a request; raise if it must not."""
        form = self.form
        struct, names = (None, {}) if now is None else (now.struct, now.names)
        can = form.can if now is None else form.capabilities(now, request)
        if now is not None and now.computed:
            request = self.settable(now, request)
        change = plan_change(struct, request, form.rules, self.conflicts, can, names)
        if now is None:
            return change
        if can.is_theirs:
            self._check_theirs(now, change, request)
        return replace(change, partitions=form.partition_steps(now, request, change.mapping))

    def settable(self, now: LakeTable, request: TableRequest) -> TableRequest:
        """Return a request without the columns that the table computes; say once which."""
        if not now.computed:
            return request
        wanted, columns = request.struct.names, now.struct.names
        properties = of_columns(now.names)
        names = matched_names(wanted, columns, self.form.rules, properties, ours=OURS in now.names)
        shown = self.form.place(request.name).shown
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
        shown = self.form.place(request.name).shown
        for path, _ in change.rewrite[:1]:
            text = f"{shown}, a table of others, would be rewritten for another type of '{path}'"
            raise rules_error(request.stream, text, "set `type_conflicts` to `suffix`")
        for feature in self.form.upgrades(now, change):
            text = f"{shown}, a table of others, would get {feature}, which not all readers support"
            raise rules_error(request.stream, text, "load the stream into another table")

    def _rewrite(self, table: OpenTable, request: TableRequest, mark: Mark) -> None:
        """Rewrite the whole table for columns whose types cannot be widened in place."""
        form, shown = self.form, table.place.shown
        if form.branch is not None:
            raise SettingsError(
                f"{shown} must be rewritten with other types, which a branch cannot have",
                where=Where(stream=request.stream, setting="write_audit_publish"),
                hint="load once without it, or set `type_conflicts` to `suffix`",
            )
        version = form.version(table)
        now = self.now(table)
        change = self.plan(now, request)
        if now is None or not change.rewrite:
            return  # Another has done it.
        frame, whole = spark_engine(form).recast(table, now, change)
        form.replace(table, frame, whole, request, mark, version)

    def shaped(self, table: OpenTable, flushes: Sequence[Flush]) -> LakeTable:
        """Evolve the table for all flushes; return it."""
        mark = Mark(run_of(flushes[-1].token), flushes[-1].stream)
        for request in {flush.request.struct.json(): flush.request for flush in flushes}.values():
            now, _ = self.shape(table, request, mark)
        return now

    def rows(self, table: OpenTable, flushes: Sequence[Flush], now: LakeTable) -> DataFrame:
        """Return the rows of all flushes as the table would store them."""
        settable = [replace(one, request=self.settable(now, one.request)) for one in flushes]
        engine, plan = spark_engine(self.form), self._plan_any
        return engine.rows_of_run(table.spark, settable, plan, now)

    def view(self, table: OpenTable, request: TableRequest, now: LakeTable) -> None:
        """Create the view of the settings, if its columns have changed."""
        if request.view is not None and table.view != request.view and not table.is_copy:
            table.sql(view_sql(table.place, request, now.names))
            table.view = request.view

    def part_of(
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

    def all_flushes(self, table: OpenTable) -> list[Flush]:
        """Return the flushes that wait for the end of the run, with columns of the format."""
        return [replace(one, request=self.storable(one.request)) for one in table.flushes]

    def storable(self, request: TableRequest) -> TableRequest:
        """Return a request with columns of the format, and those of versions, if it has any."""
        struct = self.form.storable(request.struct)
        if request.method == "history":
            own = [field for field in struct if field.name not in VERSION_COLUMNS]
            kinds = (TimestampType(), TimestampType(), BooleanType())
            struct = StructType([*own, *map(StructField, VERSION_COLUMNS, kinds)])
        return replace(request, struct=struct)

    def repeat(
        self,
        table: OpenTable,
        stream: str,
        work: Callable[[int], Any],
        flushes: Iterable[Flush] = (),
    ) -> Any:
        """Return what `work`, called with the number of earlier attempts, returns in the end.

        It is repeated while other writers are in its way; it reads the parts of `flushes`.

        Raises:
            RefusedByStoreError: It failed for what is in some rows.
        """
        form, where, shown = self.form, Where(stream=stream), table.place.shown
        with ExitStack() as stack:
            if any(differs_by_case(flush.write.struct) for flush in flushes):
                stack.enter_context(configured(table.spark, BY_CASE))
            return past_conflicts(work, form.conflicts, where, shown=shown, refusals=form.refusals)

    def mark(self, flushes: Sequence[Flush]) -> Mark:
        """Return the mark of a commit of flushes: it tells the last one, and the rows of all."""
        rows = sum(part.rows for flush in flushes for part in flush.parts)
        last, whole = flushes[-1], self.form.copies
        return Mark(
            run_of(last.token), last.stream, last.token, last.source, last.state, rows, whole
        )

    def is_stored(self, table: OpenTable, token: str) -> bool:
        """Return whether a commit with this token was made."""
        if self.now(table) is None:
            return False
        marks = self._marks(table, HISTORY)
        return any(mark is not None and mark.token == token for mark in marks)

    def held(self, table: OpenTable, stream: str, note: Note) -> Note:
        """Return the part of a note that the table provably holds."""
        if self.now(table) is None:
            return Note()
        # A flush may commit twice: the columns, then the rows.
        return held_part(note, self._marks(table, HISTORY + 2 * len(note.tokens)), stream)

    def _marks(self, table: OpenTable, limit: int) -> Iterable[Mark | None]:
        return first_able(self.form, lambda engine: engine.marks(table, limit))

    def stage(self, table: OpenTable) -> None:
        """Let all commits to an existing table wait for their publication, if that is wanted."""
        form = self.form
        if form.branch is not None and not table.is_staged:
            table.base = form.stage(table)
            table.is_staged = True
            _log.info("%s: commits go to branch '%s'", table.place.shown, form.branch)

    def load(self, table: OpenTable, flush: Flush) -> Committed | None:
        """Evolve the table and commit the flush: one attempt; return what the commit tells."""
        form, base = self.form, None
        # 1. After a failure, the commit may be there all the same: look for its token.
        is_again = flush.token in table.tried
        if is_again:
            # Before the search: a commit after it makes this one fail.
            base = form.head(table)
            if self.is_stored(table, flush.token):
                return None
        table.tried.add(flush.token)
        # 2. Evolve the table. Later attempts see the columns that this one has added.
        request, run = self.storable(flush.request), run_of(flush.token)
        now, change = self.shape(table, request, Mark(run, flush.stream))
        self.view(table, request, now)
        if not flush.parts:
            return Committed(0)
        # 3. Commit the rows, with the token in the commit itself: both or none are in the table.
        mark = self.mark([flush])
        rows = TableFlush(table, flush, request, now, change, mark)
        keys = keys_in_parts(rows) if request.is_upsert else None
        return first_able(self.form, lambda engine: engine.load(rows, keys, base))

    def overwrite(self, table: OpenTable, attempt: int) -> Committed | None:
        """Replace rows by those of all flushes that wait: one attempt."""
        last = table.flushes[-1]
        if attempt and self.is_stored(table, last.token):
            return None
        # A range, or a branch: rows are replaced within the table as it is.
        if last.request.backfill is not None or self.form.branch is not None:
            return self._replace_rows(table, last.request.backfill)
        form, flushes = self.form, self.all_flushes(table)
        plan, mark = self._plan_any, self.mark(flushes)
        if last.request.view is None and not table.is_copy:
            done = first_able(form, lambda engine: engine.exchange(table, flushes, plan, mark))
            if done is not None:
                return done
        now = self.now(table)
        # Conditions are of others; a new table in place of this one would lack them.
        if now is not None and (
            form.capabilities(now, last.request).is_theirs
            or not all(rule.column for rule in form.row_rules(now))
        ):
            return self._replace_rows(table, None)
        names = {} if now is None else now.names
        # Else the table may change in any respect, in one commit that readers see whole.
        frame, change, request = spark_engine(form).overwritten(table, flushes, plan, names)
        form.replace(table, frame, change, request, mark)
        self.view(table, request, LakeTable(frame.schema, change.mapping))
        return self._replaced(table, request, mark)

    def _replace_rows(self, table: OpenTable, backfill: Backfill | None) -> Committed:
        """Replace a range of the table, or all of its rows, by those of all flushes."""
        form, flushes = self.form, self.all_flushes(table)
        mark = self.mark(flushes)
        now = self.shaped(table, flushes)
        frame = self.rows(table, flushes, now)
        request = flushes[-1].request
        condition = self.part_of(table, frame, now, backfill)
        if condition is None:
            change = self.plan(now, request)
            form.replace(table, frame, change, request, mark)
        else:
            form.replace_range(table, frame, condition, mark)
        self.view(table, request, now)
        return self._replaced(table, request, mark)

    def _replaced(self, table: OpenTable, request: TableRequest, mark: Mark) -> Committed:
        changed, has_keys = self.form.changed_rows(table, mark), request.keys
        may_skip = bool(has_keys) and request.hard_delete
        return Committed(changed, by_key=bool(has_keys), may_skip=may_skip)

    def edit(self, table: OpenTable, request: TableRequest, edit: VersionEdit) -> bool:
        """Remove or mark older rows; return whether the table has any, marked ones included."""
        if not first_able(self.form, lambda one: one.may_have_older(table, edit.version)):
            return False
        now = self.now(table)
        if now is None:
            return False
        self.stage(table)
        version, deleted = (now.names.get(name, name) for name in (TABLE_VERSION, DELETED_AT))
        if not {version, deleted} <= set(now.struct.names):
            return False
        run = next(map(run_of, table.tried), "")
        mark = Mark(run, request.stream, ACTIVATION)
        columns = version, deleted
        first_able(self.form, lambda engine: engine.edit(table, now, columns, edit, mark))
        return True

    def _plan_any(
        self, struct: StructType | None, request: TableRequest, names: Mapping[str, str]
    ) -> TableChange:
        """Return the change of a table that may change in any respect; see `Planner`."""
        return plan_change(struct, request, self.form.rules, self.conflicts, ANYTHING, names)
