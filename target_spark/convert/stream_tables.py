"""The tables of a run: who owns them, what each stream asks of its table, how parts are written.

Streams that share a table must not destroy each other's rows. Records whose rows the store has
refused are left out of a further conversion of their files.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyspark.sql.types import StructField, StructType

from shared.errors import MessageError, SettingsError, Where
from shared.formats.spark_types import T
from shared.maps.record_metadata import COLUMNS, REPLACED, stored_columns
from target_spark.config import (
    key_properties,
    stream_settings,
    table_request,
)
from target_spark.core.load_plans import (
    DOCUMENT,
    EVOLVE,
    FREEZE,
    Batch,
    LoadResult,
    StreamSchema,
    TableRequest,
)
from target_spark.core.states import stored_state
from target_spark.destinations.destination import (
    ROW_ORIGIN,
    Destination,
    Flush,
    TableId,
    TableWrite,
)
from target_spark.run_settings import TargetConfig

_log = logging.getLogger(__name__)

_OVERWRITE = "overwrite"


@dataclass(frozen=True)
class _Claim:
    """A table of a stream, and all folders that it is in."""

    stream: str
    table: TableId
    method: str
    partition_by: tuple[str, ...]
    folders: tuple[str, ...]


def _refusal(first: _Claim, second: _Claim) -> SettingsError:
    one, two = first.table, second.table
    shared = f"the table {one.shown}"
    if one.shown != two.shown:
        how = "may be one table" if one.key == two.key else "are nested in each other"
        shared = f"{one.shown} and {two.shown}, which {how}"
    is_lost = _OVERWRITE in (first.method, second.method)
    why = ": with `load_method` 'overwrite', rows of one of them would be lost" if is_lost else ""
    return SettingsError(
        f"streams '{first.stream}' and '{second.stream}' would share {shared}{why}",
        where=Where(stream=second.stream, setting="streams"),
        hint="give one of them another `table` or `schema` in `streams`",
    )


def _partitions(first: _Claim, second: _Claim) -> SettingsError:
    return SettingsError(
        f"streams '{first.stream}' and '{second.stream}' share the table {second.table.shown}, and "
        "ask for different partitions",
        where=Where(stream=second.stream, setting="partition_by"),
        hint="give them the same `partition_by`, or another `table` to one of them",
    )


_BACKFILL = "--backfill"
_CAUSES = {"KEYS": "`deletes` in the tap", _BACKFILL: "`--backfill`"}


def _not_alone(claim: _Claim, other: str, message: str) -> SettingsError:
    setting = _CAUSES.get(message, "`activate_version: true`")
    return SettingsError(
        f"{message} would also remove or mark rows of the stream '{other}', which "
        f"shares the table {claim.table.shown}",
        where=Where(stream=claim.stream, setting="streams"),
        hint=f"give one of them another `table`, or do without {setting}",
    )


_Urls = tuple[str, ...]


@dataclass(eq=False)
class StreamTables:
    """The tables of the streams of a run; methods may be called from any thread.

    Attributes:
        latest: The request that rows of a stream were last written for.
    """

    config: TargetConfig
    destination: Destination
    latest: dict[str, TableRequest] = field(default_factory=dict, init=False)
    _claims: dict[str, _Claim] = field(default_factory=dict, init=False)
    _places: dict[str, dict[str, _Claim]] = field(default_factory=dict, init=False)
    _below: dict[str, dict[str, _Claim]] = field(default_factory=dict, init=False)
    _alone: dict[str, str] = field(default_factory=dict, init=False)
    _claiming: threading.Lock = field(default_factory=threading.Lock, init=False)
    _requests: dict[str, tuple[StreamSchema, TableRequest]] = field(
        default_factory=dict, init=False
    )
    _existing: dict[str, bool] = field(default_factory=dict, init=False)
    _writes: dict[tuple[str, str], TableWrite] = field(default_factory=dict, init=False)
    _traced: set[str] = field(default_factory=set, init=False)
    _refused: dict[tuple[str, str], dict[_Urls, dict[int, str]]] = field(
        default_factory=dict, init=False
    )
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def claim(self, stream: str) -> None:
        """Reserve the table of a stream before anything is written.

        Raises:
            SettingsError: Another stream has the table, and one of them would lose rows, or they
                ask for different partitions.
        """
        own = stream_settings(self.config, stream)
        table, method = self.destination.table(own.name), own.method
        folders = tuple(table.key[:end] for end, char in enumerate(table.key) if char == "/")
        new = _Claim(stream, table, method, own.partition_by, folders)
        with self._claiming:
            for other in self._beside(new):
                if not table.shared or _OVERWRITE in (method, other.method):
                    raise _refusal(other, new)
                if other.stream in self._alone:
                    raise _not_alone(other, stream, self._alone[other.stream])
                asked = {other.partition_by, new.partition_by} - {()}
                if other.table.key == table.key and len(asked) > 1:
                    raise _partitions(other, new)
            replaces = own.backfill is not None and self.config.verification is None
            if replaces and (others := self._named(new)):
                raise _not_alone(new, others[0], _BACKFILL)
            self._claims[stream] = new
            self._places.setdefault(table.key, {})[stream] = new
            for folder in folders:
                self._below.setdefault(folder, {})[stream] = new

    @property
    def streams(self) -> Collection[str]:
        """Return the streams that have claimed their tables."""
        return self._claims.keys()

    def claim_alone(self, stream: str, message: str) -> None:
        """Reserve the right to remove or mark rows that a message of a stream does not name.

        Raises:
            SettingsError: Rows of another stream in the table would be among them.
        """
        with self._claiming:
            self._alone[stream] = message
            claim = self._claims.get(stream)
            if claim is None:
                return
            others = [*(other.stream for other in self._beside(claim)), *self._named(claim)]
            if others:
                raise _not_alone(claim, others[0], message)

    def _beside(self, claim: _Claim) -> list[_Claim]:
        """Return claims of other streams on the same table, or on one in the folder of the other.

        With thousands of streams, a search through all of them would take minutes.
        """
        key = claim.table.key
        near = (
            self._places.get(key, {}),
            self._below.get(key, {}),
            *(self._places.get(folder, {}) for folder in claim.folders),
        )
        every = (other for claims in near for other in claims.values())
        return [other for other in every if other.stream != claim.stream]

    def _named(self, claim: _Claim) -> list[str]:
        """Return other streams that `streams` gives the same table by name, in this run or not."""
        return [
            name for name in self._named_tables.get(claim.table.key, ()) if name != claim.stream
        ]

    @cached_property
    def _named_tables(self) -> Mapping[str, Collection[str]]:
        """Return the streams to which `streams` gives a table by name, by the key of the table."""
        result: dict[str, list[str]] = {}
        for name, block in self.config.streams.items():
            if block.keys() & {"table", "schema"} and set(name).isdisjoint("*?["):
                table = self.destination.table(stream_settings(self.config, name).name)
                result.setdefault(table.key, []).append(name)
        return result

    def is_loaded(self, stream: StreamSchema) -> bool:
        """Return whether a stream is loaded: its table exists, or may be created.

        Raises:
            SettingsError: The table must not be created.
        """
        name = stream.stream
        own = stream_settings(self.config, name)
        rule = own.schema_contract.tables
        if rule == EVOLVE:
            return True
        with self._lock:
            if name not in self._existing:
                self._existing[name] = self.destination.exists(self.request(stream))
            if self._existing[name]:
                return True
        shown = self.destination.table(own.name).shown
        if rule == FREEZE:
            raise SettingsError(
                f"the table {shown} does not exist, and must not be created",
                where=Where(stream=name, setting="schema_contract.tables"),
                hint="create it, or set the contract to `evolve`",
            )
        _log.warning("stream '%s' is ignored: the table %s does not exist", name, shown)
        return False

    def request(self, stream: StreamSchema) -> TableRequest:
        """Return the request of a stream for its table under a schema."""
        existing = self._requests.get(stream.stream)
        own = stream.schema.get("properties") or ()
        if existing is None and (replaced := REPLACED.intersection(own)):
            tell_replaced(stream.stream, replaced, add=self.config.add_record_metadata)
        if existing is None or existing[0] != stream:
            columns = stored_columns(stream.schema, self.config.add_record_metadata)
            request = table_request(self.config, stream, columns)
            if not self.config.denormalized:
                request = as_document(request, view=self.config.generate_view)
            existing = self._requests[stream.stream] = stream, request
        return existing[1]

    def keys(self, stream: StreamSchema) -> tuple[str, ...]:
        """Return the key properties that each record must have."""
        own = COLUMNS if self.config.add_record_metadata else ()
        return tuple(key for key in key_properties(self.config, stream) if key not in own)

    def prepare(self, batch: Batch) -> TableWrite:
        """Return how the parts of a flush are written, until `release`.

        It is the same for all, except that further ones may tell the origins of their rows.
        """
        with self._lock:
            if _key(batch) not in self._writes:
                request = self.latest[batch.stream.stream] = self.request(batch.stream)
                self._writes[_key(batch)] = self.destination.prepare(request)
            write = self._writes[_key(batch)]
        is_traced = batch.stream.stream in self._traced
        return replace(write, row_origin=ROW_ORIGIN) if is_traced else write

    def trace(self, stream: str) -> None:
        """Let the parts of a stream tell the origins of their rows from now on."""
        self._traced.add(stream)

    def leave_out(self, batch: Batch, refused: Mapping[int, str]) -> None:
        """Leave out records whose rows the store has refused, until `release`.

        Args:
            refused: Origin within this conversion → reason.
        """
        with self._lock:
            files = self._refused.setdefault(_key(batch), {})
            urls = tuple(file.url for file in batch.files)
            files[urls] = {**files.get(urls, {}), **refused}

    def left_out(self, batch: Batch) -> Mapping[int, str]:
        """Return the records of a batch to leave out, as in `leave_out`."""
        urls = tuple(file.url for file in batch.files)
        return self._refused.get(_key(batch), {}).get(urls, {})

    def flush(self, batch: Batch, results: Sequence[LoadResult]) -> Flush:
        """Return the flush for the destination to commit or abort."""
        parts = tuple(part for result in results for part in result.parts)
        write, request = self.prepare(batch), self.request(batch.stream)
        name, source = batch.stream.stream, batch.source
        state = None
        if self.destination.stores_state:
            state = stored_state(batch.reached, source, by_key=request.method != "append-only")
        if not all(result.files for result in results if result.parts):
            write = replace(write, row_origin=None)
        return Flush(
            name,
            batch.token,
            write,
            request,
            parts,
            source=source if source != name else None,
            state=state,
        )

    def release(self, batch: Batch) -> None:
        """Forget how the parts of a flush were written: it has been committed or aborted."""
        self._writes.pop(_key(batch), None)
        self._refused.pop(_key(batch), None)


def _key(batch: Batch) -> tuple[str, str]:
    """Return the identity of a flush: outputs of one stream share their token."""
    return batch.stream.stream, batch.token


def tell_replaced(stream: str, names: Iterable[str], *, add: bool) -> None:
    """Log which properties of a stream are not stored, as record metadata has their names."""
    _log.warning(
        "stream '%s': values of %s are %s: record metadata has these names; rename them in the tap",
        stream,
        ", ".join(map(repr, sorted(names))),
        "replaced" if add else "ignored",
    )


def as_document(request: TableRequest, *, view: bool) -> TableRequest:
    """Return the request for a table with one column for the record.

    Raises:
        MessageError: A key property, or a column of `upsert_order_by`, has the name of that column.
    """
    kept = (*request.keys, *request.order_by)
    if DOCUMENT in kept:
        raise MessageError(
            f"an order column or key property named '{DOCUMENT}' cannot be combined with "
            "`denormalized: false`",
            where=Where(stream=request.stream),
            hint="the record itself is stored under this name; set `denormalized: true`",
        )
    own = [field for field in request.struct if field.name not in COLUMNS]
    keys = [field for field in own if field.name in kept]
    metadata = [field for field in request.struct if field.name in COLUMNS]
    return replace(
        request,
        struct=StructType([*keys, StructField(DOCUMENT, T.VariantType(), True), *metadata]),
        view=StructType(own) if view else None,
    )
