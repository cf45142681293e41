"""The tables of the settings with their history, and the return to a commit."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from shared.errors import DestinationError, SettingsError, SingerSparkError, Where
from shared.spark.spark_errors import explain
from shared.storage.urls import shown
from target_spark.destinations.folders.table_folder import writing
from target_spark.destinations.lakes.delta.delta_format import DeltaFormat
from target_spark.destinations.lakes.iceberg.iceberg_format import IcebergFormat
from target_spark.destinations.lakes.run_files import lake_leases, note_files
from target_spark.destinations.lakes.shared_tables import LostCommit, own_session, sync_to_disk
from target_spark.destinations.lakes.table_history import TableCommit, TableHistory
from target_spark.destinations.lakes.table_maintenance import TableMaintenance
from target_spark.load.guards.leases import RunLeases
from target_spark.stream_settings import table_layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from target_spark.destinations.lakes.lake_format import LakeFormat
    from target_spark.destinations.lakes.lake_table import Place
    from target_spark.destinations.lakes.table_history import Maintained
    from target_spark.run_settings import TargetConfig

_log = logging.getLogger(__name__)
_FORMATS: dict[str, type[DeltaFormat] | type[IcebergFormat]] = {
    "delta": DeltaFormat,
    "iceberg": IcebergFormat,
}


def check_maintained(config: TargetConfig) -> None:
    """Raise SettingsError if the tables of the format have nothing to maintain."""
    if config.format not in _FORMATS:
        raise SettingsError(
            f"tables of the format '{config.format}' cannot be maintained",
            where=Where(setting="format"),
            hint=f"`target-spark maintain` is for {', '.join(_FORMATS)}",
        )


def check_format(config: TargetConfig) -> None:
    """Raise SettingsError if the tables do not keep what they were."""
    if config.format not in _FORMATS:
        raise SettingsError(
            f"'{config.format}' does not keep earlier versions of a table",
            where=Where(setting="format"),
            hint="restore a backup of all tables together with the STATE of that time, or load "
            "into `delta` or `iceberg`",
        )


class LakeTables:
    """The Delta or Iceberg tables of the settings.

    Args:
        config: The settings.
        spark: The session.
    """

    def __init__(self, config: TargetConfig, spark: SparkSession) -> None:
        check_format(config)
        self._config = config
        self._form: LakeFormat = _FORMATS[config.format](config)
        self._spark = own_session(spark, self._form.conf)
        self._note_files = note_files(config)

    def histories(self) -> list[TableHistory]:
        """Return all tables that a run has loaded into.

        Raises:
            DestinationError: The tables or their commits cannot be read.
        """
        try:
            with self._explained():
                places = self._form.tables(self._spark)
        except OSError as error:
            raise DestinationError(
                f"'{shown(self._config.path)}' cannot be listed: {error.strerror or error}",
                hint="`path` must be that of the loads",
            ) from error
        results = (self._history(name, place) for name, place in sorted(places.items()))
        return [history for history in results if history is not None and history.is_ours]

    @contextmanager
    def alone(self, histories: Sequence[TableHistory]) -> Iterator[None]:
        """Hold the leases of all streams of tables, so that no run loads into them.

        Raises:
            AlreadyRunningError: A run does.
        """
        settings, leases = self._config.overlapping_runs, lake_leases(self._config)
        with closing(RunLeases(settings)) as held:
            for history in histories:
                for stream in sorted(history.streams):
                    lease = partial(leases, history.place, stream)
                    held.take(stream, history.place.shown, lease)
            yield

    def why_not(self, history: TableHistory, commit: TableCommit) -> str | None:
        """Return why a table cannot return to a commit, in one line; None if it can."""
        try:
            obstacle = self._form.obstacle(self._spark, history.place, commit.version)
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
        place = history.place
        try:
            with self._explained():
                self._form.restore(self._spark, place, commit.version, history.newest.version)
        except LostCommit:
            raise DestinationError(
                f"{place.shown} has changed meanwhile", hint="end all loads into it and run again"
            ) from None
        if place.folder is not None:
            with writing(place.folder):
                sync_to_disk(place.folder)

    def maintain(self, history: TableHistory, *, dry_run: bool) -> Maintained:
        """Compact a table, and remove what nothing needs any more.

        Raises:
            DestinationError: It failed; the table can be read, and the maintenance repeated.
        """
        layout = table_layout(self._config, min(history.streams))
        with self._explained():
            return self._maintenance.maintain(self._spark, history, layout, dry_run=dry_run)

    @cached_property
    def _maintenance(self) -> TableMaintenance:
        return TableMaintenance(self._config, self._form)

    def void_notes(self, history: TableHistory) -> None:
        """Remove the notes of killed runs: the tap will not send their records again.

        Raises:
            DestinationError: The storage failed.
        """
        for stream in sorted(history.streams):
            notes = self._note_files(history.place, stream)
            notes.take()
            notes.close(remove=True)

    def _history(self, name: str, place: Place) -> TableHistory | None:
        try:
            with self._explained(passing=AnalysisException):
                commits = self._form.commits(self._spark, place)
        except AnalysisException as error:
            if place.folder is not None:
                raise explain(error, Where(file=place.folder), DestinationError) from error
            _log.debug("%s is not a table of this format: %s", place.shown, error)
            return None
        return TableHistory(name, place, commits) if commits else None

    @contextmanager
    def _explained(self, passing: type[Exception] | None = None) -> Iterator[None]:
        own = (SingerSparkError, OSError, LostCommit)
        try:
            yield
        except Exception as error:
            if isinstance(error, own if passing is None else (*own, passing)):
                raise
            raise explain(error, Where(), DestinationError) from error
