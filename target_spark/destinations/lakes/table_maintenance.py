"""Maintenance of one table: compaction, and removal of what nothing needs any more."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shared.errors import SettingsError, Where
from shared.storage.access import StorageOptions
from shared.storage.files import open_random
from shared.storage.urls import shown
from target_spark.destinations.lakes.lake_table import OpenTable
from target_spark.destinations.lakes.lake_work import LakeWork
from target_spark.destinations.lakes.run_files import note_files
from target_spark.destinations.lakes.table_history import (
    DAY,
    Maintained,
    TableHistory,
    maintained,
    plan_keep,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from target_spark.core.load_plans import Layout, TableRequest
    from target_spark.destinations.lakes.lake_format import LakeFormat
    from target_spark.run_settings import TargetConfig

Bookmarks = list[tuple[str, Mapping[str, Any]]]


_log = logging.getLogger(__name__)


class TableMaintenance:
    """Maintains tables by the settings.

    Args:
        config: The settings.
        form: The format of the tables.

    Raises:
        SettingsError: The state file of a reader cannot be read.
    """

    def __init__(self, config: TargetConfig, form: LakeFormat) -> None:
        self._settings = config.maintenance
        self._form = form
        self._notes = note_files(config)
        options = StorageOptions(config.storage_options)
        paths = config.maintenance.keep_for_readers
        self._bookmarks = [result for path in paths for result in bookmarks_in(path, options)]

    def maintain(
        self,
        spark: SparkSession,
        history: TableHistory,
        layout: Layout,
        *,
        tokens: Collection[str] = (),
        dry_run: bool = False,
    ) -> Maintained:
        """Maintain a table.

        Args:
            spark: A session of the table.
            history: The table.
            layout: Its layout.
            tokens: Flushes of the current run, which may have to find them again.
            dry_run: Only plan.

        Returns:
            What was done, and what can be restored now.

        Raises:
            DestinationError: A note cannot be read.
            Exception: Spark's.
        """
        form, settings, place, now = self._form, self._settings, history.place, time.time()
        noted = (self._notes(place, stream).tokens() for stream in sorted(history.streams))
        plan = plan_keep(
            history,
            now,
            settings.keep_days * DAY,
            tokens=frozenset(tokens).union(*noted),
            readers=self._readers(spark, history),
            keeps_log=form.keeps_log,
        )
        report = maintained(history, plan, dry_run=dry_run)
        if dry_run:
            return report
        if settings.compact or layout.compact:
            report = replace(report, compacted=form.compact(spark, place, layout))
        if settings.expire:
            report = replace(report, expired=form.expire(spark, place, plan))
        if settings.remove_orphans:
            before = now - max(settings.keep_days, 1) * DAY
            report = replace(report, orphans=form.remove_orphans(spark, place, before))
        return report

    def _readers(self, spark: SparkSession, history: TableHistory) -> dict[str, str]:
        """Return the versions at which readers of the table go on."""
        results = (
            (self._form.position(spark, history.place, bookmark), who)
            for who, bookmark in self._bookmarks
        )
        return {version: who for version, who in results if version is not None}


def bookmarks_in(path: str, options: StorageOptions) -> Bookmarks:
    """Return the bookmarks in a state file of a tap, each with a name for messages.

    Args:
        path: Path or URL of the file: one STATE, or one a line, of which the last one counts.
        options: Options of the storage.

    Raises:
        SettingsError: It cannot be read, or is not a STATE with bookmarks.
    """
    try:
        with open_random(path, options) as source:
            text = source.read().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(path, f"cannot be read ({error})") from None
    for value in _values(text):
        state = value.get("value", value) if isinstance(value, dict) else None
        result = state.get("bookmarks") if isinstance(state, dict) else None
        if isinstance(result, dict):
            name = shown(path)
            marks = result.items()
            return [(f"'{name}', stream '{s}'", m) for s, m in marks if isinstance(m, dict)]
    raise _unusable(path, "is not a STATE with bookmarks")


def _values(text: str) -> Iterator[Any]:
    """Yield what a file may hold as one JSON text: the whole, or its last line."""
    for part in (text, *text.splitlines()[-1:]):
        with suppress(ValueError):
            yield json.loads(part)


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
    form, spark, place = work.form, table.spark, table.place
    try:
        if work.now(table) is None:
            return
        if not maintains:
            form.compact(spark, place, request.layout)
            return
        history = TableHistory(place.shown, place, form.commits(spark, place))
        if history.commits:
            care = TableMaintenance(config, form)
            report = care.maintain(spark, history, request.layout, tokens=table.tried)
            for line in report.lines():
                _log.info("%s", line)
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        what = "maintained" if maintains else "compacted"
        _log.warning("%s was not %s: %s", place.shown, what, text)
