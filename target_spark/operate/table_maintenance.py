"""Tables of lakes in operation: their history, the return to a commit, and maintenance.

Maintenance compacts files, and removes what nothing needs any more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from shared.errors import DestinationError, SettingsError, SingerSparkError, Where
from shared.spark.spark_errors import explain
from shared.storage.access import StorageOptions
from shared.storage.files import open_random
from shared.storage.urls import shown
from target_spark.config import stream_settings
from target_spark.core.load_plans import Layout, TableRequest
from target_spark.destinations.destination_declaration import check_format
from target_spark.destinations.lakes.delta.delta_format import DeltaFormat
from target_spark.destinations.lakes.iceberg.iceberg_format import IcebergFormat
from target_spark.destinations.lakes.lake_format import LakeFormat
from target_spark.destinations.lakes.lake_table import (
    LeaveOut,
    LostCommit,
    OpenTable,
    Place,
    TableHandle,
    own_session,
    sync_to_disk,
)
from target_spark.destinations.lakes.lake_work import LakeWork
from target_spark.destinations.lakes.run_files import hidden_folder, note_file
from target_spark.destinations.leases import FolderLeases, RunLeases
from target_spark.operate.lake_histories import FormatHistory, history_of
from target_spark.operate.table_history import (
    DAY,
    Maintained,
    TableCommit,
    TableHistory,
    maintained,
    plan_keep,
)
from target_spark.receive.state_file import json_values
from target_spark.run_settings import TargetConfig

_log = logging.getLogger(__name__)


class TableMaintenance:
    """Maintains tables by the settings.

    Raises:
        SettingsError: The state file of a reader cannot be read.
    """

    def __init__(self, config: TargetConfig, kept: FormatHistory[Any]) -> None:
        self._settings = config.maintenance
        self._kept = kept
        self._config = config
        options = StorageOptions(config.storage_options)
        paths = config.maintenance.keep_for_readers
        self._bookmarks = [result for path in paths for result in bookmarks_in(path, options)]

    def maintain(
        self,
        table: TableHandle,
        history: TableHistory,
        layout: Layout,
        *,
        tokens: Collection[str] = (),
        dry_run: bool = False,
    ) -> Maintained:
        """Maintain a table, or only plan it; return what was done and what can be restored now.

        `tokens` are flushes of the current run, which may have to find them again.

        Raises:
            DestinationError: A note cannot be read.
            Exception: Spark's.
        """
        kept, settings, now = self._kept, self._settings, time.time()
        notes = (note_file(self._config, table.place, name) for name in sorted(history.streams))
        plan = plan_keep(
            history,
            now,
            settings.keep_days * DAY,
            tokens=frozenset(tokens).union(*(note.tokens() for note in notes)),
            readers=self._readers(table),
            keeps_log=kept.keeps_log,
        )
        report = maintained(history, plan, dry_run=dry_run)
        if dry_run:
            return report
        if settings.compact or layout.compact:
            report = replace(report, compacted=kept.compact(table, layout))
        if settings.expire:
            report = replace(report, expired=kept.expire(table, plan))
        if settings.remove_orphans:
            before = now - max(settings.keep_days, 1) * DAY
            report = replace(report, orphans=kept.remove_orphans(table, before))
        return report

    def _readers(self, table: TableHandle) -> dict[str, str]:
        """Return the versions at which readers of the table go on."""
        results = ((self._kept.position(table, one), who) for who, one in self._bookmarks)
        return {version: who for version, who in results if version is not None}


def bookmarks_in(path: str, options: StorageOptions) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the bookmarks in a state file of a tap, each with a name for messages.

    Args:
        path: Path or URL of the file: one STATE, or one a line, of which the last one counts.

    Raises:
        SettingsError: It cannot be read, or is not a STATE with bookmarks.
    """
    try:
        with open_random(path, options) as source:
            text = source.read().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(path, f"cannot be read ({error})") from None
    for value in json_values(text):
        state = value.get("value", value) if isinstance(value, dict) else None
        result = state.get("bookmarks") if isinstance(state, dict) else None
        if isinstance(result, dict):
            name = shown(path)
            marks = result.items()
            return [(f"'{name}', stream '{s}'", m) for s, m in marks if isinstance(m, dict)]
    raise _unusable(path, "is not a STATE with bookmarks")


def _unusable(path: str, why: str) -> SettingsError:
    return SettingsError(
        f"the state file '{shown(path)}' {why}; nothing was removed",
        where=Where(setting="maintenance.keep_for_readers"),
        hint="name the state files of taps that read these tables by LOG_BASED",
    )


def look_after(
    config: TargetConfig, work: LakeWork, table: OpenTable, request: TableRequest
) -> None:
    """Compact and maintain the table, if the settings say so; failures are only logged."""
    maintains = config.maintenance.after_run
    if config.verification is not None or not (maintains or request.layout.compact):
        return
    kept, place = history_of(work.form, config), table.place
    table.session()  # Settings that forbid Spark, and a failed start, end the run.
    try:
        if work.now(table) is None:
            return
        if not maintains:
            kept.compact(table, request.layout)
            return
        history = TableHistory(place.shown, place, kept.commits(table))
        if history.commits:
            care = TableMaintenance(config, kept)
            report = care.maintain(table, history, request.layout, tokens=table.tried)
            for line in report.lines():
                _log.info("%s", line)
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        what = "maintained" if maintains else "compacted"
        _log.warning("%s was not %s: %s", place.shown, what, text)


_FORMATS: dict[str, type[DeltaFormat] | type[IcebergFormat]] = {
    "delta": DeltaFormat,
    "iceberg": IcebergFormat,
}


def check_kept(config: TargetConfig, *, maintains: bool = False) -> None:
    """Raise SettingsError if the tables of the format do not keep what they were."""
    cannot, use = "tables of the format '{}' cannot be maintained", "`target-spark maintain`"
    if not maintains:
        cannot = "'{}' does not keep earlier versions of a table"
        use = "restore a backup of all tables together with the STATE of that time; this command"
    check_format(config.format, _FORMATS, cannot, use)


class LakeTables:
    """The Delta or Iceberg tables of the settings.

    Attributes:
        unread: Why tables are not among the histories: their commits cannot be read.
    """

    def __init__(self, config: TargetConfig, spark: SparkSession) -> None:
        self.unread: list[DestinationError] = []
        self._config = config
        form: LakeFormat = _FORMATS[config.format](config)
        self._kept = history_of(form, config)
        self._spark = own_session(spark, config, form.conf)

    def histories(self, needed: Collection[str] | None = None) -> list[TableHistory]:
        """Return all tables that a run has loaded into.

        Args:
            needed: Short names of tables without which nothing can be done; None for all. If others
                cannot be read, they are left out with a warning, unless there is nothing else.

        Raises:
            DestinationError: The tables or their commits cannot be read.
        """
        left_out: list[DestinationError] = []

        def leave_out(name: str, error: DestinationError) -> None:
            # A folder may be the schema of a table, or inside of one.
            above = f"{name}."
            if needed is None or any(
                above.startswith(f"{one}.") or f"{one}.".startswith(above) for one in needed
            ):
                raise error
            _log.warning("'%s' is left out: %s", name, error)
            left_out.append(error)

        try:
            with self._explained():
                places = self._kept.tables(self._spark, leave_out)
        except OSError as error:
            raise DestinationError(
                f"'{shown(self._config.path)}' cannot be listed: {error.strerror or error}",
                hint="`path` must be that of the loads",
            ) from error
        results = [self._history(name, place, leave_out) for name, place in sorted(places.items())]
        if left_out and not any(results):
            raise left_out[-1]
        return [history for history in results if history is not None and history.streams]

    @contextmanager
    def alone(self, histories: Sequence[TableHistory]) -> Iterator[None]:
        """Hold the leases of all streams of tables, so that no run loads into them.

        Raises:
            AlreadyRunningError: A run does.
        """
        settings, leases = self._config.overlapping_runs, FolderLeases(self._config)
        with closing(RunLeases(settings)) as held:
            for history in histories:
                folder = history.place.folder or hidden_folder(self._config, history.place)
                for stream in sorted(history.streams):
                    lease = partial(leases, folder, stream)
                    held.take(stream, history.place.shown, lease)
            yield

    def why_not(self, history: TableHistory, commit: TableCommit) -> str | None:
        """Return why a table cannot return to a commit, in one line; None if it can."""
        try:
            obstacle = self._kept.obstacle(self._handle(history.place), commit.version)
        except SingerSparkError:
            raise
        except Exception as error:
            text = " ".join(str(error).split())[:200]
            obstacle = f"it cannot be read: {text}"
        return obstacle and f"'{history.name}', version {commit.version}: {obstacle}"

    def restore(self, history: TableHistory, commit: TableCommit) -> None:
        """Make a table durably what it was after a commit, in one step.

        Raises:
            DestinationError: It failed, or the table has changed since its history was read.
        """
        table, newest = self._handle(history.place), history.newest.version
        try:
            with self._explained():
                self._kept.restore(table, commit.version, newest)
        except LostCommit:
            raise DestinationError(
                f"{table.place.shown} has changed meanwhile",
                hint="end all loads into it and run again",
            ) from None
        sync_to_disk(table.place.folder)

    def maintain(self, history: TableHistory, *, dry_run: bool) -> Maintained:
        """Compact a table, and remove what nothing needs any more.

        Raises:
            DestinationError: It failed; the table can be read, and the maintenance repeated.
        """
        table = self._handle(history.place)
        layout = stream_settings(self._config, min(history.streams)).layout
        with self._explained():
            return self._maintenance.maintain(table, history, layout, dry_run=dry_run)

    @cached_property
    def _maintenance(self) -> TableMaintenance:
        return TableMaintenance(self._config, self._kept)

    def void_notes(self, history: TableHistory) -> None:
        """Remove the notes of killed runs: the tap will not send their records again.

        Raises:
            DestinationError: The storage failed.
        """
        for stream in sorted(history.streams):
            notes = note_file(self._config, history.place, stream)
            notes.take()
            notes.close(remove=True)

    def _history(self, name: str, place: Place, leave_out: LeaveOut) -> TableHistory | None:
        try:
            with self._explained(Where(file=place.folder or place.shown)):
                commits = self._kept.commits(self._handle(place))
        except SingerSparkError as error:
            if place.folder is None and isinstance(error.__cause__, AnalysisException):
                _log.debug("%s is not a table of this format: %s", place.shown, error)
                return None
            if not isinstance(error, DestinationError):
                raise
            leave_out(name, error)
            self.unread.append(error)
            return None
        return TableHistory(name, place, commits) if commits else None

    def _handle(self, place: Place) -> TableHandle:
        return TableHandle(place, lambda: self._spark)

    @contextmanager
    def _explained(self, where: Where | None = None) -> Iterator[None]:
        try:
            yield
        except (SingerSparkError, OSError, LostCommit):
            raise
        except Exception as error:
            raise explain(error, where, DestinationError) from error
