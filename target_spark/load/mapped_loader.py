"""The loader of mapped streams: under the names and with the columns of stream maps."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from shared.engine.engine import Engine
from shared.errors import SettingsError, Where
from shared.formats.schema_nodes import only_properties
from shared.maps.record_metadata import COLUMNS, REPLACED, record_schema
from shared.maps.stream_maps import outputs, reject_duplicate_names
from shared.settings.checking import tell_unmatched
from target_spark.convert.mapped_rows import source_columns, tell_engine
from target_spark.convert.stream_tables import tell_replaced
from target_spark.core.balance import Loaded
from target_spark.core.load_plans import Batch, LoadPlan, LoadResult, Making, StreamSchema
from target_spark.load.loader import Loader
from target_spark.run_settings import TargetConfig

if TYPE_CHECKING:
    from shared.maps.stream_maps import StreamOutput

_log = logging.getLogger(__name__)

_RULES_OF_PROPERTIES = frozenset(
    {"type", "properties", "required", "title", "description", "examples", "default", "definitions"}
)
"""Keywords of a schema that assert nothing about a record beyond its properties."""


@dataclass(frozen=True)
class MappedResult(LoadResult):
    """The results of a batch for each output.

    Attributes:
        outputs: In the order of the stream's outputs; their files of rejected records are here.
    """

    outputs: tuple[LoadResult, ...] = ()


@dataclass(frozen=True)
class _MappedStream:
    """One name under which a stream is loaded."""

    schema: StreamSchema
    plan: LoadPlan
    making: Making | None
    output: str | None
    reports_rejects: bool

    def of(self, batch: Batch) -> Batch:
        """Return the stream's batch as one of this output."""
        return replace(
            batch,
            stream=self.schema,
            making=self.making,
            output=self.output,
            reports_rejects=self.reports_rejects,
        )


class MappedLoader(Loader):
    """Loads the outputs of stream maps in place of their streams.

    A batch of a stream becomes one batch of each of its outputs, with the same token. Its STATE may
    be emitted when all of them are durable. The engine learns what maps need, and parses their SQL.
    A `Loader` does not call on itself what is overridden here.
    """

    def __init__(self, config: TargetConfig, engine: Engine, *, describes: bool = True) -> None:
        super().__init__(config, engine, describes=describes)
        self._outputs: dict[str, dict[int, tuple[_MappedStream, ...]]] = {}
        self._planned_outputs: dict[str, Sequence[StreamOutput]] = {}
        self._committed: dict[str, dict[str, Loaded]] = {}
        self._logged: set[str] = set()
        self._lock = threading.RLock()

    def plan(self, stream: StreamSchema) -> LoadPlan | None:
        """Plan the load of a new SCHEMA; return what holds for any output, None without one.

        Raises:
            SettingsError: The maps do not fit the stream, or its name or table is that of
                another one.
        """
        plans = [output.plan for output in self._of(stream)]
        if not plans:
            return None
        return LoadPlan(*(any(getattr(p, f.name) for p in plans) for f in fields(LoadPlan)))

    def may_refuse(self, stream: str) -> bool:
        """See `Loader.may_refuse`: of any output."""
        return any(map(super().may_refuse, self._names(stream)))

    def recall(self, stream: StreamSchema, source: str | None = None) -> tuple[int, ...]:
        """See `Loader.recall`: what any output has, as a killed run may have committed some."""
        recall, source = super().recall, source or stream.stream
        segments = (recall(output.schema, source) for output in self._of(stream))
        return max(segments, key=len, default=())

    def convert(self, batch: Batch) -> LoadResult:
        """Convert the batch's files to hidden parts of each output; see `Loader.convert`."""
        done: list[tuple[Batch, LoadResult]] = []
        try:
            for output in self._of(batch.stream):
                own = output.of(batch)
                done.append((own, super().convert(own)))
        except BaseException:
            for own, result in done:
                with contextlib.suppress(Exception):
                    super().abort(own, [result])
            raise
        return _together([result for _, result in done])

    def commit(self, batch: Batch, results: Sequence[LoadResult]) -> Mapping[str, Loaded]:
        """Make the parts of all outputs durable, each output in one step; see `Loader.commit`.

        Repeated after a failure, it skips the outputs that are durable.
        """
        done = self._committed.setdefault(batch.token, {})
        for own, parts in self._split(batch, results):
            if own.stream.stream not in done:
                done |= super().commit(own, parts)
        self._committed.pop(batch.token, None)
        self.delete_rejects(results)
        return done

    def abort(self, batch: Batch, results: Sequence[LoadResult]) -> None:
        """Remove the parts that will not be committed."""
        done = self._committed.get(batch.token, {})
        for own, parts in self._split(batch, results):
            if own.stream.stream not in done:
                super().abort(own, parts)
        self.delete_rejects(results)

    def finish(self, stream: str, *, awaits_state: bool = False) -> Mapping[str, Loaded]:
        """End all outputs of a stream; see `Loader.finish`."""
        entries: dict[str, Loaded] = {}
        for name in self._names(stream):
            entries |= super().finish(name, awaits_state=awaits_state)
        return entries

    def tell_unmatched(self) -> None:
        """See `Loader.tell_unmatched`; tell of entries of `stream_maps`, too."""
        tell_unmatched("stream_maps", self._config.transforms.maps.patterns, self._planned_outputs)
        super().tell_unmatched()

    def activate(self, stream: StreamSchema, version: int) -> None:
        """Activate a table version in the tables of all outputs."""
        for output in self._of(stream):
            super().activate(output.schema, version)

    def check_keys(self, stream: StreamSchema) -> None:
        """Check that the table of a stream can follow its KEYS messages; see `Loader.check_keys`.

        Raises:
            SettingsError: The keys alone cannot be mapped, or see there.
        """
        for output in self._of(stream):
            if output.making is not None:
                raise SettingsError(
                    "KEYS messages, which delete rows, cannot be mapped by the target",
                    where=Where(stream=stream.stream, setting="stream_maps"),
                    hint="map the stream in the tap, or remove `deletes` from it there",
                )
            super().check_keys(output.schema)

    def delete_missing(self, keys: Batch) -> int:
        """Delete the rows whose keys are in none of the files; see `Loader.delete_missing`."""
        return sum(map(super().delete_missing, (own.of(keys) for own in self._of(keys.stream))))

    def _split(
        self, batch: Batch, results: Sequence[LoadResult]
    ) -> list[tuple[Batch, list[LoadResult]]]:
        """Return the batch and the results of each output."""
        outputs = self._of(batch.stream)
        parts: list[list[LoadResult]] = [[] for _ in outputs]
        for result in results:
            if isinstance(result, MappedResult):
                for own, kept in zip(parts, result.outputs, strict=True):
                    own.append(kept)
        return [(output.of(batch), own) for output, own in zip(outputs, parts, strict=True)]

    def _names(self, stream: str) -> tuple[str, ...]:
        with self._lock:
            every = self._outputs.get(stream, {}).values()
            return tuple(dict.fromkeys(one.schema.stream for own in every for one in own))

    def _of(self, stream: StreamSchema) -> tuple[_MappedStream, ...]:
        """Return the outputs of a stream under one of its schemas; plan them for a new schema."""
        with self._lock:
            existing = self._outputs.setdefault(stream.stream, {})
            if stream.serial not in existing:
                existing[stream.serial] = self._planned(stream)
            return existing[stream.serial]

    def _planned(self, stream: StreamSchema) -> tuple[_MappedStream, ...]:
        replaced = REPLACED.intersection(stream.schema.get("properties") or ())
        if replaced and stream.stream not in self._planned_outputs:
            tell_replaced(stream.stream, replaced, add=self._config.add_record_metadata)
        schema, struct = record_schema(stream.schema, add=False), source_columns(stream.schema)
        outcome = outputs(
            self._config.transforms,
            stream.stream,
            schema,
            struct,
            stream.key_properties,
            partial(self._engine.session, "SQL in stream maps"),
        )
        reject_duplicate_names({**self._planned_outputs, stream.stream: outcome})
        outcome = tuple(one for one in outcome if one.stream == stream.are_letters) or outcome
        loaded = []
        for output in outcome:
            self._check(stream.stream, output)
            keys = tuple(output.key_properties)
            planned = replace(
                stream, stream=output.stream, schema=output.schema, key_properties=keys
            )
            plan = super().plan(planned)
            if plan is not None:
                loaded.append((output, planned, plan))
        self._planned_outputs[stream.stream] = outcome
        for output, _, _ in loaded:
            tell_engine(self._engine, stream.stream, output.transform, struct)
        self._log_notes(stream.stream, outcome)
        read = _pruned(schema, _reads(outcome), strict=self._config.validate_records)
        names = tuple(schema.get("properties") or ())
        return tuple(
            _MappedStream(
                planned,
                plan,
                None
                if output.transform is None
                else Making(stream.stream, read, names, output.transform),
                output.stream if len(outcome) > 1 else None,
                reports_rejects=not number,
            )
            for number, (output, planned, plan) in enumerate(loaded)
        )

    def _check(self, stream: str, output: StreamOutput) -> None:
        """Reject a property with the name of a metadata column."""
        created = () if output.transform is None else output.transform.struct().names
        taken = [name for name in created if name in COLUMNS]
        if taken and self._config.add_record_metadata:
            raise SettingsError(
                f"the property '{taken[0]}' of {output.stream!r} is the name of a column that the "
                "target adds",
                where=Where(stream=stream, setting="stream_maps"),
                hint="choose another name, or set `add_record_metadata: false`",
            )

    def _log_notes(self, stream: str, outputs: Sequence[StreamOutput]) -> None:
        lines = [] if outputs else [f"stream '{stream}' is not loaded: removed by stream_maps"]
        for output in outputs:
            lines += [f"stream '{output.stream}': {note}" for note in output.notes]
        for line in lines:
            if line not in self._logged:
                self._logged.add(line)
                _log.info("%s", line)


def _reads(outputs: Sequence[StreamOutput]) -> frozenset[str] | None:
    """Return the properties that outputs need; None for all."""
    reads = [output.transform.reads for output in outputs if output.transform is not None]
    return frozenset[str]().union(*reads) if len(reads) == len(outputs) else None


def _pruned(
    schema: Mapping[str, Any], reads: frozenset[str] | None, *, strict: bool
) -> Mapping[str, Any]:
    """Return the schema without the properties that are not read.

    It is unchanged if records are checked and it asserts more than the types of properties.
    """
    properties = schema.get("properties")
    if not properties or reads is None:
        return schema
    rules = {word for word in schema if not word.startswith(("x-", "$"))} - _RULES_OF_PROPERTIES
    if schema.get("additionalProperties") is not False:
        rules.discard("additionalProperties")
    if rules and strict:
        return schema
    # A schema without properties would accept any record.
    kept = reads & properties.keys() or {next(iter(properties))}
    return only_properties(schema, kept)


def _together(outputs: Sequence[LoadResult]) -> MappedResult:
    """Return the results of all outputs as one; files of rejected records are only in the whole.

    A record counts once, as far as the rejects are reported one by one.
    """
    rejects = tuple(reject for result in outputs for reject in result.rejects)
    again = len(rejects) - len({(reject.file, reject.line) for reject in rejects})
    return MappedResult(
        parts=tuple(part for result in outputs for part in result.parts),
        rows=sum(result.rows for result in outputs),
        rejects=rejects,
        rejected=sum(result.rejected for result in outputs) - again,
        reject_files=tuple(url for result in outputs for url in result.reject_files),
        received=max((result.received for result in outputs), default=0),
        replayed=max((result.replayed for result in outputs), default=0),
        exploded=sum(result.exploded for result in outputs),
        cut=frozenset[str]().union(*(result.cut for result in outputs)),
        undeclared=next((result.undeclared for result in outputs if result.undeclared), {}),
        outputs=tuple(replace(result, reject_files=()) for result in outputs),
    )
