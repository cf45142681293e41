"""Commits to lake tables: one attempt to load, replace or edit rows, without Spark if it can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.maps.record_metadata import DELETED_AT, TABLE_VERSION
from target_spark.core.balance import Committed
from target_spark.destinations.destination import Flush
from target_spark.destinations.lakes.lake_format import TableFlush
from target_spark.destinations.lakes.lake_table import LakeTable
from target_spark.destinations.lakes.lake_work import LakeWork, planner
from target_spark.destinations.lakes.open_table import OpenTable
from target_spark.destinations.lakes.row_changes import keys_in_parts, overwritten, with_versions
from target_spark.destinations.lakes.table_history import ACTIVATION, Mark, run_of

if TYPE_CHECKING:
    from target_spark.core.load_plans import Backfill, TableRequest
    from target_spark.tables.version_edit import VersionEdit


class TableCommits:
    """Single attempts, which `LakeWork.repeat` repeats.

    Args:
        work: Work on open tables.
    """

    def __init__(self, work: LakeWork) -> None:
        self._work = work
        self._form = work.form

    def load(self, table: OpenTable, flush: Flush) -> Committed | None:
        """Evolve the table and commit the flush: one attempt; return what the commit tells."""
        form, base = self._form, None
        is_again = flush.token in table.tried
        if is_again:
            # Before the search: a commit after it makes this one fail.
            base = form.head(table.spark, table.place)
            if self._work.is_stored(table, flush.token):
                return None
        table.tried.add(flush.token)
        request, run = with_versions(self._work.storable(flush.request)), run_of(flush.token)
        now, change = self._work.shape(table, request, Mark(run, flush.stream))
        self._work.view(table, request, now)
        if not flush.parts:
            return Committed(0)
        mark = self._work.mark(flush, flush.rows)
        rows = TableFlush(table.place, flush, request, now, change, mark)
        keys = keys_in_parts(rows) if request.is_upsert else None
        return self._work.engine(table).load(rows, keys, base)

    def overwrite(self, table: OpenTable, attempt: int) -> Committed | None:
        """Replace rows by those of all flushes that wait: one attempt."""
        last = table.flushes[-1]
        if attempt and self._work.is_stored(table, last.token):
            return None
        if last.request.backfill is not None or self._form.branch is not None:
            return self._replace_rows(table, last.request.backfill)
        form, flushes = self._form, self._work.all_flushes(table)
        plan = planner(form, self._work.conflicts)
        mark = self._work.mark(last, sum(flush.rows for flush in flushes))
        if last.request.view is None and not table.is_copy:
            done = self._work.engine(table).exchange(table.place, flushes, plan, mark)
            if done is not None:
                return done
        now = self._work.now(table)
        # Conditions are of others; a new table in place of this one would lack them.
        if now is not None and (
            form.capabilities(now, last.request).is_theirs
            or not all(rule.column for rule in form.row_rules(now))
        ):
            return self._replace_rows(table, None)
        names = {} if now is None else now.names
        frame, change, request = overwritten(table.spark, flushes, plan, names)
        form.replace(table.spark, frame, table.place, change, request, mark)
        self._work.view(table, request, LakeTable(frame.schema, change.mapping))
        changed = form.changed_rows(table.spark, table.place, mark)
        has_keys = bool(request.keys)
        return Committed(changed, by_key=has_keys, may_skip=has_keys and request.hard_delete)

    def _replace_rows(self, table: OpenTable, backfill: Backfill | None) -> Committed:
        """Replace a range of the table, or all of its rows, by those of all flushes."""
        form, last = self._form, table.flushes[-1]
        mark = self._work.mark(last, sum(flush.rows for flush in table.flushes))
        flushes = self._work.all_flushes(table)
        now = self._work.shaped(table, flushes)
        frame = self._work.rows(table, flushes, now)
        request = flushes[-1].request
        condition = self._work.part_of(table, frame, now, backfill)
        if condition is None:
            change = self._work.plan(now, request)
            form.replace(table.spark, frame, table.place, change, request, mark)
        else:
            form.replace_range(table.spark, frame, table.place, condition, mark)
        self._work.view(table, request, now)
        changed = form.changed_rows(table.spark, table.place, mark)
        has_keys = bool(last.request.keys)
        return Committed(changed, by_key=has_keys, may_skip=has_keys and last.request.hard_delete)

    def edit(self, table: OpenTable, request: TableRequest, edit: VersionEdit) -> bool:
        """Remove or mark older rows; return whether the table has any, marked ones included."""
        engine = self._work.engine(table)
        if not engine.may_have_older(table.place, edit.version):
            return False
        now = self._work.now(table)
        if now is None:
            return False
        self._work.stage(table)
        version, deleted = (now.names.get(name, name) for name in (TABLE_VERSION, DELETED_AT))
        if not {version, deleted} <= set(now.struct.names):
            return False
        run = next(map(run_of, table.tried), "")
        mark = Mark(run, request.stream, ACTIVATION)
        engine.edit(table.place, now, (version, deleted), edit, mark)
        return True
