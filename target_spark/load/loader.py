"""The one load path: files of a batch in, durable rows of a table out.

`Converter` turns files into hidden parts, and the destination commits them. Guards look at each
step: leases, replays, held flushes, table versions, balance, lineage, expectations, audit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from shared.encodings.encoding_format import imported
from shared.engine.engine import INTO_SERVER, Engine
from shared.errors import AuditError, DestinationError, SettingsError, Where
from shared.formats.schema_nodes import only_properties
from shared.maps.record_metadata import DELETED_AT
from shared.settings.checking import tell_unmatched
from shared.singer.run_summary import RunSummary
from shared.storage.access import StorageOptions, delete
from target_spark.config import REGISTRY, check_deletes, load_methods, stream_settings
from target_spark.convert.batch_files import BatchFiles, reject_duplicates
from target_spark.convert.converter import Converter, rewrite_files
from target_spark.convert.stream_tables import StreamTables
from target_spark.convert.task_reports import record_error
from target_spark.core.balance import Counts, Loaded
from target_spark.core.differences import VANISHED, TableDifference, Verification
from target_spark.core.load_plans import (
    ADDING,
    Batch,
    ConvertAgainError,
    InputFile,
    LoadPlan,
    LoadResult,
    RefusedRecordError,
    Reject,
    StreamSchema,
)
from target_spark.destinations.destination import Destination, Flush, RefusedByStoreError, Tools
from target_spark.destinations.leases import RunLeases
from target_spark.load.guards.balance import BalanceGuard
from target_spark.load.guards.guard import MOMENTS, CommitStep, ConvertStep, EndStep, Guard
from target_spark.load.guards.leases import LeaseGuard
from target_spark.load.guards.lineage import LineageGuard
from target_spark.load.guards.versions import VersionGuard
from target_spark.run_settings import ALLOW, DISCARD, TargetConfig

if TYPE_CHECKING:
    from target_spark.destinations.operations import Operations
    from target_spark.load.guards.expectations import ExpectationGuard
    from target_spark.load.guards.held_flushes import HeldFlushes
    from target_spark.load.guards.replays import ReplayGuard

_log = logging.getLogger(__name__)

COMMIT = "a commit that only Spark can make"
NO_OPERATIONS = "target_spark.destinations.operations:Operations"
CONSENT = (
    "is the source whole? then raise `max_deleted_share` for this run, or run `tap-spark --catalog "
    "keys.json | target-spark verify --deletes --repair --force`"
)


class Loader:
    """Loads batches into the destination of the settings; methods may be called from any thread.

    Args:
        describes: Collect the facts of columns for `describe`.

    Attributes:
        deletes_consumed: Whether `delete_consumed` has an effect.

    Raises:
        SettingsError: Only Spark can load into the destination, and `engine` forbids it.
    """

    def __init__(self, config: TargetConfig, engine: Engine, *, describes: bool = True) -> None:
        self._config = config
        self._engine = engine
        self._loads = config.dry_run is None and config.verification is None
        cleans_up = config.batch_config is not None and config.batch_config.cleanup
        self.deletes_consumed = self._loads and cleans_up
        self._own_options = StorageOptions(config.storage_options)
        self._leaves_out = config.failure.policy in {"LogAndContinue", "SendToDLQ"}
        declared = REGISTRY.get(config.format)
        why = declared.needs_spark(config)
        if why:
            engine.needs(why)
        if declared.has_server:
            engine.weigh(INTO_SERVER)
        tools = Tools(partial(engine.session, COMMIT), partial(rewrite_files, engine))
        self._destination: Destination = declared.open(config, tools)
        self._operations: Operations | None = None
        if config.operates:
            operate = cast("type[Operations]", imported(declared.operate or NO_OPERATIONS))
            self._operations = operate(config, self._destination, tools)
        if config.dry_run is not None:
            from target_spark.destinations.dry_destination import DryDestination  # noqa: PLC0415

            self._destination = DryDestination(self._destination, config.dry_run)
        self._files = BatchFiles(config)
        self._tables = StreamTables(config, self._destination)
        self._converter = Converter(config, engine, self._files, self._tables)
        self._versions = VersionGuard(config, is_supported=declared.supports.versions)
        is_needed = describes or any(own.get("expect") for own in config.streams.values())
        self._expected: ExpectationGuard | None = None
        if is_needed:
            from target_spark.load.guards.expectations import ExpectationGuard  # noqa: PLC0415

            self._expected = ExpectationGuard(config)
        self._ignored: set[str] = set()
        self._replays: ReplayGuard | None = None
        self._held: HeldFlushes | None = None
        self._watch(self._configured_guards())

    def _configured_guards(self) -> tuple[Guard, ...]:
        """Return the guards that the settings ask for, in their order."""
        config, destination, tables = self._config, self._destination, self._tables
        methods = load_methods(config)
        guards: list[Guard] = []
        if config.overlapping_runs.policy != ALLOW:
            leases = RunLeases(config.overlapping_runs)
            guards.append(LeaseGuard(config, leases, destination, tables))
        if config.replays.detect and destination.keeps_notes and methods & ADDING:
            from target_spark.load.guards.replays import ReplayGuard  # noqa: PLC0415

            self._replays = ReplayGuard(config, destination, tables, self._files)
            guards.append(self._replays)
        if destination.holds_rows or "overwrite" in methods:
            from target_spark.load.guards.held_flushes import HeldFlushes  # noqa: PLC0415

            self._held = HeldFlushes(destination)
            guards.append(self._held)
        if config.activate_version:
            guards.append(self._versions)
        lineage = LineageGuard(config, destination)
        destination.changed = lineage.changed
        guards += [BalanceGuard(), lineage]
        if self._expected is not None:
            guards.append(self._expected)
        if self._operations is not None and config.write_audit_publish:
            from target_spark.load.guards.audit import AuditGuard  # noqa: PLC0415

            guards.append(AuditGuard(config, self._operations))
        return tuple(guards)

    def _watch(self, guards: tuple[Guard, ...]) -> None:
        """Let guards look at the steps of the load, each at the moments that it defines."""
        self._guards = guards
        self._at: Mapping[str, Sequence[Callable[..., Any]]] = {
            name: [getattr(g, name) for g in guards if getattr(type(g), name) != nothing]
            for name, nothing in MOMENTS.items()
        }

    def plan(self, stream: StreamSchema) -> LoadPlan | None:
        """Plan the load of a new SCHEMA; return None if the records of its stream are ignored.

        Raises:
            SettingsError: The stream would share its table with another one and lose rows, its
                table must not be created, or dead letters would replace it.
            DestinationError: It cannot be found out whether the table exists.
        """
        config, name = self._config, stream.stream
        self._tables.claim(name)
        if not self._tables.is_loaded(stream):
            # Its files come all the same, and are consumed like those of a removed stream.
            self._ignored.add(name)
            return None
        own = stream_settings(config, name)
        method = own.method
        if stream.are_letters not in {True, False, name}:
            raise SettingsError(
                f"its dead letters are for the output {stream.are_letters!r}",
                where=Where(stream=name, setting="stream_maps"),
                hint='map the stream to this name, or write `"dead_letters":true` for all outputs',
            )
        if stream.are_letters and method == "overwrite":
            raise SettingsError(
                "dead letters would replace all rows of the table",
                where=Where(stream=name, setting="load_method"),
                hint="load them with 'append-only' or 'upsert'",
            )
        discards = config.rows_without_state == DISCARD and config.verification is None
        return LoadPlan(
            overwrites=self._destination.holds_rows or method == "overwrite",
            replaces=method == "overwrite" and not own.overwrite_unfinished,
            # A lease comes before the first record, and so does the note of an earlier run.
            recalls=config.overlapping_runs.policy != ALLOW or self.can_detect_replays(name),
            # Not if they may come again without harm: replays are detected, or replace rows by key.
            discards=discards and method in ADDING and not self.can_detect_replays(name),
        )

    def convert(self, batch: Batch) -> LoadResult:
        """Convert the batch's files into parts that no reader sees, by one Spark job.

        Raises:
            RecordError: A record does not fit its schema and the failure policy does not leave such
                records out; names its line.
            MessageError: A file of a BATCH message is missing, damaged, not what its label says,
                listed twice or outside of the allowed roots; names it.
            DestinationError: The parts cannot be written, or the storage of the files fails or
                does not answer.
            BalanceError: Records are missing among those read and written.
            AlreadyRunningError: Another run loads the stream into the same table.
        """
        if batch.stream.stream in self._ignored:
            return LoadResult()
        # 1. Guards may answer in place of the conversion: a replay has its rows in the table.
        step = ConvertStep(self._files.resolved(batch))
        for see in self._at["before_conversion"]:
            see(step)
        if step.result is not None:
            return step.result
        # 2. Convert. Without a policy for rejects, the first one ends the input at its line.
        result = self._converter.convert(step.batch, self._tables.prepare(step.batch))
        if result.rejected and not self._leaves_out:
            self._destination.abort(self._tables.flush(step.batch, [result]))
            raise record_error(step.batch, result)
        # 3. Guards check what was converted, or take note of it.
        for see in self._at["after_conversion"]:
            result = see(step, result)
        return result

    def commit(self, batch: Batch, results: Sequence[LoadResult]) -> Mapping[str, Loaded]:
        """Make all parts of a batch durable, visible in one step.

        A batch without any input creates the table, or adds columns to it. With `overwrites`, rows
        are kept aside until `finish`: a STATE that covers them must wait for that.

        Returns:
            The balance of the batch and the facts of its columns, by the name of the stream.

        Raises:
            DestinationError: It failed; nothing of the batch is visible. May be repeated.
            ConvertAgainError: The store refuses some rows, which are left out, or not known yet.
            RefusedRecordError: The store refuses a row that the failure policy does not leave out.
            MessageError: Two messages of the batch list the same file.
            BalanceError: The commit has another number of rows than the batch.
            AlreadyRunningError: Another run has taken over the table.
        """
        stream = batch.stream.stream
        if stream in self._ignored:
            return {}
        for see in self._at["before_change"]:
            see(stream)
        if not results:
            batch = replace(batch, stream=replace(batch.stream, has_rows=False))
        # 1. Nothing to do leaves no version in the table's history.
        if not results and not self._changes_table(batch.stream):
            if self._expected is not None:
                self._expected.add(stream, Counts(), {})
            return {stream: Loaded(Counts())}
        reject_duplicates(batch.files, stream)
        # 2. Guards may hold the flush back for the end of the stream, or add what they store with
        #    it.
        step = CommitStep(batch, results, self._tables.flush(batch, results))
        for see in self._at["before_commit"]:
            see(step)
        if not step.is_held:
            try:
                step.committed = self._destination.commit(step.flush)
            except RefusedByStoreError as error:
                raise self._refusal(batch, results, step.flush, error) from error
        # 3. Only now the rejects are of no more use: a failed commit converts again.
        self._tables.release(batch)
        self.delete_rejects(results)
        for see in self._at["after_commit"]:
            see(step)
        return {stream: step.loaded}

    def _changes_table(self, stream: StreamSchema) -> bool:
        """Return whether a flush without rows would replace, create or change the table."""
        request = self._tables.request(stream)
        if request.method == "overwrite":
            return True
        return bool(request.struct.names and self._destination.preview(request))

    def _refusal(
        self,
        batch: Batch,
        results: Sequence[LoadResult],
        flush: Flush,
        error: RefusedByStoreError,
    ) -> Exception:
        """Return what a commit raises whose rows the store has refused."""
        # A store that only says "a row is bad" is asked again with the origin of each row in the
        # parts.
        if not error.rows:
            if flush.write.row_origin is not None:
                return error
            self._tables.trace(batch.stream.stream)
            return ConvertAgainError(str(error))
        rejects, first = list[Reject](), len(results)
        for number, result in enumerate(results):
            parts, own = {part.url for part in result.parts}, replace(batch, files=result.files)
            rows = {row.origin: row.reason for row in error.rows if row.part in parts}
            if rows and self._leaves_out:
                self._tables.leave_out(own, rows)
            elif rows:
                rejects += self._converter.refused(own, flush.write, rows)
                first = min(first, number)
        if self._leaves_out:
            return ConvertAgainError(str(error))
        refused = LoadResult(rejects=tuple(rejects), rejected=len(error.rows))
        return RefusedRecordError(record_error(batch, refused), first)

    def abort(self, batch: Batch, results: Sequence[LoadResult]) -> None:
        """Remove the parts of a batch that will not be committed."""
        if any(result.parts for result in results):
            self._destination.abort(self._tables.flush(batch, results))
        self._tables.release(batch)
        self.delete_rejects(results)

    def delete_rejects(self, results: Iterable[LoadResult]) -> None:
        """Delete the files of rejected records, which are not needed any more."""
        for result in results:
            for url in result.reject_files:
                try:
                    delete(url, self._own_options)
                except OSError as error:
                    _log.debug("a file of rejected records cannot be deleted: %s", error)

    def delete_consumed(self, files: Iterable[InputFile]) -> None:
        """Delete batch files whose rows are durable or ignored, if `batch_config.cleanup` says so.

        Called when STATE that covers them may be emitted, and without effect in a run that loads
        nothing: the files may be all that there is of their rows. Never raises: a file that cannot
        be deleted, or is outside of the roots in the settings, is only logged.

        Args:
            files: Files of BATCH messages; staged ones are ignored.
        """
        if self.deletes_consumed:
            self._files.delete_consumed(files)

    def can_detect_replays(self, stream: str) -> bool:
        """Return whether replayed records of a stream can be detected."""
        return self._replays is not None and stream_settings(self._config, stream).method in ADDING

    def may_refuse(self, stream: str) -> bool:
        """Return whether `commit` may refuse rows of a stream, so that files are read once more."""
        own = stream_settings(self._config, stream)
        return self._destination.may_refuse and own.method != "overwrite"

    def recall(self, stream: StreamSchema, source: str | None = None) -> tuple[int, ...]:
        """Take the lease of a stream, and adopt an earlier run's note.

        Args:
            source: Name of the source stream; by default the same.

        Returns:
            Lines of each segment that may be replayed, in order; 0 for a batch file.

        Raises:
            DestinationError: The table cannot be read.
            AlreadyRunningError: Another run loads the stream into the same table.
        """
        # One guard at most has segments to compare; the others have none to say.
        seen = (see(stream, source or stream.stream) for see in self._at["before_stream"])
        return max(seen, key=len, default=())

    def cover(self, position: int, state: bytes, held: Mapping[str, int]) -> None:
        """Discard the segments that a STATE covers; called before it is emitted.

        Args:
            position: Position of the STATE in the input; see `StateTracker`.
            held: Streams that have failed, by the tap's name, and the position of the STATE that
                their bookmarks are from.

        Raises:
            DestinationError: The note of a table cannot be changed: the STATE must not be emitted.
        """
        for see in self._at["before_state"]:
            see(position, state, held)

    def close(self) -> None:
        """End the run: later ones may adopt its notes and take its leases."""
        self._destination.close()
        for see in self._at["close"]:
            see()

    def finish(self, stream: str, *, awaits_state: bool = False) -> Mapping[str, Loaded]:
        """End a stream whose input has ended well: `overwrite` makes its rows visible.

        Args:
            awaits_state: Whether a STATE was to be expected: rows without one will come again.

        Returns:
            What that changes in the balance of the stream.

        Raises:
            BalanceError: The table has another number of rows than the stream.
        """
        for see in self._at["before_change"]:
            see(stream)
        step = EndStep(stream, awaits_state, self._tables.latest.get(stream))
        for see in self._at["before_end"]:
            see(step)
        if self._config.verification is None:
            # Flushes held back become one table only here, after all of them are complete.
            for flush in step.flushes:
                self._destination.commit(flush)
            if step.request is not None:
                step.committed = self._destination.finish(step.request)
        elif step.flushes and self._operations is not None:
            self._operations.verify(step.flushes, self._config.verification)
        for see in self._at["after_end"]:
            see(step)
        return {} if step.loaded == Loaded(Counts()) else {stream: step.loaded}

    def audit(self) -> None:
        """Check what is expected of all rows of the run, and publish them (`write_audit_publish`).

        Raises:
            AuditError: Something is wrong; nothing was published.
            ExpectationError: Something is wrong, and the rows need no publication.
            DestinationError: It failed; some tables may be published. May be repeated.
            AlreadyRunningError: Another run has taken over a table.
        """
        if not self._config.write_audit_publish or self._operations is None:
            self.check()
            return
        problems = [line for see in self._at["before_publish"] for line in see()]
        if problems:
            raise AuditError(
                f"nothing was published: {'; '.join(problems)}",
                hint=f"the rows are in {', '.join(self._operations.staged()) or 'no table'}",
            )
        self._operations.publish()

    def check(self) -> None:
        """Check the whole run once its input has ended well.

        Raises:
            ExpectationError: Tables are not what is expected of them.
        """
        for see in self._at["check"]:
            see()

    def tell_unmatched(self) -> None:
        """Log entries of `streams` that are for no stream, once the input has ended well."""
        tell_unmatched("streams", {key: key for key in self._config.streams}, self._tables.streams)

    def describe(self, summary: RunSummary) -> None:
        """Add the facts of columns to a summary."""
        if self._expected is not None:
            self._expected.describe(summary)

    def activate(self, stream: StreamSchema, version: int) -> None:
        """Remove rows of versions before an ACTIVATE_VERSION (`hard_delete`), or mark them.

        With `overwrite`, leave out those of the run: a tap that reads a stream again after a
        failure sends its rows anew, with another version.

        Raises:
            DestinationError: It failed; nothing has changed.
            SettingsError: Rows of another stream are in the table.
        """
        config = self._config
        if not config.activate_version or stream.stream in self._ignored:
            return
        if stream_settings(config, stream.stream).method == "overwrite":
            if self._held is not None:
                self._held.leave_out_older(stream.stream, version)
            return
        if self._versions.are_ignored(stream.stream):
            return
        self._tables.claim_alone(stream.stream, "ACTIVATE_VERSION")
        for see in self._at["before_change"]:
            see(stream.stream)
        request = self._tables.request(stream)
        # A destination may hold the change back until `finish`, with no flush in this run.
        self._tables.latest.setdefault(stream.stream, request)
        change = self._destination.activate(request, self._versions.edit(request, version))
        if change is not None:
            self._destination.changed(stream.stream, (change,))

    def check_keys(self, stream: StreamSchema) -> None:
        """Check that the tables of a stream can follow its KEYS messages.

        Raises:
            SettingsError: They cannot, or rows of another stream are in the table.
        """
        if self._loads:
            check_deletes(self._config, stream)
            self._tables.claim_alone(stream.stream, "KEYS")

    def delete_missing(self, keys: Batch) -> int:
        """Delete the rows whose keys are in none of the files, or mark them, in one commit.

        It is a run of `verify --deletes --repair` within this one. Repeated, it changes nothing.
        Returns the number of rows.

        Raises:
            DifferenceError: They are too many; nothing has changed.
            DestinationError: It failed, or the table cannot mark rows; nothing has changed.
            SingerSparkError: See `convert`; a bad key is an error under any failure policy.
        """
        config, stream = self._config, keys.stream
        if not self._loads or not self._destination.exists(self._tables.request(stream)):
            return 0
        for see in self._at["before_change"]:
            see(stream.stream)
        differences: list[TableDifference] = []
        # A loader of its own: same table, but keys alone, no lease (this run has it), and no way to
        # leave a bad key out, as its row would count as gone.
        own = Loader(
            replace(
                config,
                verification=Verification(
                    differences.append,
                    repair=True,
                    deletes=True,
                    most_vanished=stream_settings(config, stream.stream).max_deleted_share,
                    consent=CONSENT,
                ),
                overlapping_runs=replace(config.overlapping_runs, policy=ALLOW),
                failure=replace(config.failure, policy="FailBatch"),
            ),
            self._engine,
        )
        schema = only_properties(stream.schema, stream.key_properties)
        batch = replace(keys, stream=replace(stream, schema=schema))
        try:
            own.commit(batch, [own.convert(batch)])
            own.finish(stream.stream)
        finally:
            own.close()
        return sum(map(_deleted_rows, differences))


def _deleted_rows(difference: TableDifference) -> int:
    """Return how many rows of a table have vanished in the source, and are deleted.

    Raises:
        DestinationError: The table cannot mark them.
    """
    vanished = difference.count(VANISHED)
    if difference.left:
        raise DestinationError(
            f"{vanished} rows of {difference.table} are gone in the source, but it has no column "
            f"'{DELETED_AT}' to mark them",
            where=Where(stream=difference.stream),
            hint="set `hard_delete`, or add the column (a timestamp)",
            lasts=True,
        )
    return vanished
