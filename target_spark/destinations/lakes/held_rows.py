"""Write-audit-publish: what a run holds back for its tables, and its publication."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import replace

from shared.errors import BalanceError, DestinationError, Where
from shared.storage.urls import join
from target_spark.core.balance import Committed
from target_spark.core.load_plans import TableRequest
from target_spark.destinations.destination import Flush, remove_parts
from target_spark.destinations.lakes.lake_table import (
    ACTIVATION,
    Mark,
    OpenTable,
    Step,
    run_of,
    steps_of,
    summed_commits,
    sync_to_disk,
)
from target_spark.destinations.lakes.lake_work import LakeWork

_log = logging.getLogger(__name__)


class HeldTables:
    """The tables of a run that wait to be published.

    Args:
        opened: Returns the tables of the run, each with its stream.
        finish: Ends the stream of a table once it is published: see `Destination.finish`.
        survives: Copies of tables in a catalog outlive the run, as others see their place.
    """

    def __init__(
        self,
        work: LakeWork,
        opened: Callable[[], list[tuple[str, OpenTable]]],
        finish: Callable[[TableRequest], object],
        *,
        survives: bool,
    ) -> None:
        self._work = work
        self._form = work.form
        self._opened = opened
        self._finish = finish
        self._survives = survives

    def staged(self) -> list[str]:
        """See `Operations`."""
        shown: dict[str, None] = {}
        for _, table in self.waiting():
            if table.copy is None:
                shown[f"branch '{self._form.branch}' of {table.place.shown}"] = None
            elif self.outlives_run(table):
                shown[f"the table {table.copy.place.shown}"] = None
        return list(shown)

    def publish(self) -> None:
        """See `Operations`. Before the first one, all tables are looked at."""
        staged = self.waiting()
        for stream, table in staged:
            self._check_base(table, stream)
        for stream, table in staged:
            with table.lock:
                self._publish(table, stream)

    def waiting(self) -> list[tuple[str, OpenTable]]:
        """Return the tables that wait, each with its stream."""
        return [
            (stream, table) for stream, table in self._opened() if table.is_staged or table.copy
        ]

    def _check_base(self, table: OpenTable, stream: str) -> None:
        if self._work.repeat(table, stream, lambda _: self._form.published(table)) != table.base:
            raise self._has_moved(table, stream)

    def _publish(self, table: OpenTable, stream: str) -> None:
        if table.copy is not None:
            self._publish_copied(table, table.copy, stream)
        elif not self._work.repeat(table, stream, lambda _: self._form.publish(table)):
            raise self._has_moved(table, stream)
        sync_to_disk(table.place.folder)
        table.is_staged, table.copy = False, None
        _log.info("stream '%s': its rows are published in %s", stream, table.place.shown)
        if table.ending is not None:
            self._finish(table.ending)

    def copy(self, table: OpenTable, request: TableRequest) -> Committed | None:
        """Commit all that waits to a copy of the table; return what these commits tell."""
        stream, form = request.stream, self._form
        with table.lock:
            # 1. An overwrite has one commit for all flushes; other methods have one for each step.
            held = table.held if request.method == "overwrite" else steps_of(table.held)
            if not held:
                table.held.clear()
                return None
            folder = join(table.folder.pending, f"audit_{uuid.uuid4().hex[:12]}")
            place = form.copy_place(folder)
            copy = OpenTable(place, table.session, table.folder, table.lock, held, is_copy=True)
            # 2. Remember the version that the copy rests on: `publish` refuses any other.
            base = self._work.repeat(table, stream, lambda _: form.published(table))
            if base is not None:
                self._work.repeat(table, stream, lambda _: form.copy(table, base, copy))
            # 3. Commit to the copy what the table shall get.
            result = self._apply(copy, stream)
            table.held, table.base, table.copied, table.copy = held, base, result, copy
            _log.info("%s: what it will be is in %s", table.place.shown, place.shown)
            return result

    def _apply(self, table: OpenTable, stream: str) -> Committed:
        """Commit all that waits, one step after the other."""
        if any(flush.request.method == "overwrite" for flush in table.flushes):
            done = self._work.repeat(
                table, stream, lambda attempt: self._work.overwrite(table, attempt), table.flushes
            )
            return done or Committed()
        results = [self._step(table, stream, step) for step in table.held]
        return summed_commits([one for one in results if one is not None])

    def _step(self, table: OpenTable, stream: str, step: Step) -> Committed | None:
        """Commit a step; return what the commit of a flush tells."""
        work = self._work
        if isinstance(step, Flush):
            done = work.repeat(table, stream, lambda _: work.load(table, step), [step])
            return done or Committed()
        request, edit = step
        work.repeat(table, stream, lambda _: work.edit(table, request, edit))
        return None

    def _publish_copied(self, table: OpenTable, copy: OpenTable, stream: str) -> None:
        """Make the table what its copy is, in one commit.

        One step is done again, on the table; for several, the rows of the copy replace all.

        Raises:
            BalanceError: The commit tells other numbers than that to the copy.
        """
        methods = {flush.request.method for flush in table.flushes}
        # The cheapest of three ways that leaves one commit: do the only step again, append the rows
        # of all flushes, or replace the rows by those of the copy.
        if len(table.held) == 1 or "overwrite" in methods:
            result = self._apply(table, stream)
        else:
            is_added = methods == {"append-only"} and len(table.flushes) == len(table.held)
            publish = self._append_all if is_added else self._take_rows
            result = self._work.repeat(
                table, stream, lambda _: publish(table, copy, stream), table.flushes
            )
        # What was audited and what is published must be the same rows.
        audited = (table.copied or Committed()).rows
        if None not in (result.rows, audited) and result.rows != audited:
            raise BalanceError(
                f"counts do not balance: {result.rows} rows were published in {table.place.shown}, "
                f"{audited} were audited",
                where=Where(stream=stream),
            )
        for flush in table.flushes:
            remove_parts(flush)
        table.held.clear()

    def _append_all(self, table: OpenTable, *_: object) -> Committed:
        """Append flushes of different columns."""
        form, flushes = self._form, table.flushes
        mark = self._work.mark(flushes)
        if self._work.is_stored(table, flushes[-1].token):
            return Committed()
        held = self._work.all_flushes(table)
        now = self._work.shaped(table, held)
        self._work.view(table, flushes[-1].request, now)
        bare = [replace(flush, request=replace(flush.request, keys=())) for flush in held]
        form.append(table, self._work.rows(table, bare, now), mark)
        return Committed(form.changed_rows(table, mark))

    def _take_rows(self, table: OpenTable, copy: OpenTable, stream: str) -> Committed:
        """Replace all rows by those of the copy."""
        form, flushes = self._form, table.flushes
        run = next(map(run_of, table.tried), "")
        if flushes and self._work.is_stored(table, flushes[-1].token):
            return Committed()
        if flushes:
            now = self._work.shaped(table, self._work.all_flushes(table))
            self._work.view(table, flushes[-1].request, now)
        newest, marks = form.since(table, table.base)
        # Commits of this run (new columns) may lie between; those of others would be lost.
        if any(mark is None or mark.run != run for mark in marks):
            raise self._has_moved(table, stream)
        mark = self._work.mark(flushes) if flushes else Mark(run, stream, ACTIVATION)
        form.take_rows(table, copy, newest, mark)
        return Committed()

    def outlives_run(self, table: OpenTable) -> bool:
        """Return whether the copy of a table can be looked at after the run."""
        return table.place.folder is not None or self._survives

    def _has_moved(self, table: OpenTable, stream: str) -> DestinationError:
        return DestinationError(
            f"others have committed to {table.place.shown} since the run began: its rows were not "
            f"published, they are in {', '.join(self.staged()) or 'no table'}",
            where=Where(stream=stream),
            hint="run again",
        )
