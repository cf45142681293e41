"""The tables of a run: the request of each stream, and how its parts are written."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shared.errors import SettingsError, Where
from shared.maps.record_metadata import COLUMNS, stored_columns
from target_spark.core.load_plans import Batch, LoadResult, StreamSchema, TableRequest
from target_spark.core.schema_contract import EVOLVE, FREEZE
from target_spark.core.stored_states import stored_state
from target_spark.destinations.destination import ROW_ORIGIN, Destination, Flush, TableWrite
from target_spark.load.refusals import Refusals
from target_spark.load.table_owners import TableOwners
from target_spark.stream_settings import (
    key_properties,
    load_method,
    stream_settings,
    table_name,
    table_request,
)
from target_spark.tables.documents import as_document

if TYPE_CHECKING:
    from target_spark.run_settings import TargetConfig

_log = logging.getLogger(__name__)


class StreamTables:
    """The tables of the streams of a run; methods may be called from any thread.

    Args:
        config: The settings.
        destination: Holds the tables.

    Attributes:
        refusals: Records that the destination has refused.
    """

    def __init__(self, config: TargetConfig, destination: Destination) -> None:
        self._config = config
        self._destination = destination
        self._owners = TableOwners()
        self._requests: dict[str, tuple[StreamSchema, TableRequest]] = {}
        self._latest: dict[str, TableRequest] = {}
        self._existing: dict[str, bool] = {}
        self._writes: dict[tuple[str, str], TableWrite] = {}
        self._lock = threading.Lock()
        self.refusals = Refusals()

    def claim(self, stream: str) -> None:
        """Reserve the table of a stream.

        Raises:
            SettingsError: See `TableOwners.claim`.
        """
        table = self._destination.table(table_name(self._config, stream))
        partition_by = stream_settings(self._config, stream).partition_by
        self._owners.claim(stream, table, load_method(self._config, stream), partition_by)

    def is_loaded(self, stream: StreamSchema) -> bool:
        """Return whether a stream is loaded: its table exists, or may be created.

        Raises:
            SettingsError: The table must not be created.
        """
        name = stream.stream
        rule = stream_settings(self._config, name).schema_contract.tables
        if rule == EVOLVE:
            return True
        with self._lock:
            if name not in self._existing:
                self._existing[name] = self._destination.exists(self.request(stream))
            if self._existing[name]:
                return True
        shown = self._destination.table(table_name(self._config, name)).shown
        if rule == FREEZE:
            raise SettingsError(
                f"the table {shown} does not exist, and must not be created",
                where=Where(stream=name, setting="schema_contract.tables"),
                hint="create it, or set the contract to `evolve`",
            )
        _log.warning("stream '%s' is ignored: the table %s does not exist", name, shown)
        return False

    def claim_alone(self, stream: str, message: str) -> None:
        """Reserve the right to remove or mark rows that a message of a stream does not name.

        Raises:
            SettingsError: Rows of another stream are in the table.
        """
        self._owners.claim_alone(stream, message)

    def request(self, stream: StreamSchema) -> TableRequest:
        """Return the request of a stream for its table under a schema."""
        known = self._requests.get(stream.stream)
        if known is None or known[0] != stream:
            columns = stored_columns(stream.schema, self._config.add_record_metadata)
            request = table_request(self._config, stream, columns)
            if not self._config.denormalized:
                request = as_document(request, view=self._config.generate_view)
            known = self._requests[stream.stream] = stream, request
        return known[1]

    def current(self, stream: str) -> TableRequest:
        """Return the last answer of `request` for a stream."""
        return self._requests[stream][1]

    def latest_written(self, stream: str) -> TableRequest | None:
        """Return the request that rows were last written for; None if there were none."""
        with self._lock:
            return self._latest.get(stream)

    def keys(self, stream: StreamSchema) -> tuple[str, ...]:
        """Return the key properties that each record must have."""
        own = COLUMNS if self._config.add_record_metadata else ()
        return tuple(key for key in key_properties(self._config, stream) if key not in own)

    def prepare(self, batch: Batch) -> TableWrite:
        """Return how the parts of a flush are written, until `release`.

        It is the same for all, except that further ones may tell the origins of their rows.
        """
        with self._lock:
            if _key(batch) not in self._writes:
                request = self._latest[batch.stream.stream] = self.request(batch.stream)
                self._writes[_key(batch)] = self._destination.prepare(request)
            write = self._writes[_key(batch)]
        traced = self.refusals.are_traced(batch.stream.stream)
        return replace(write, row_origin=ROW_ORIGIN) if traced else write

    def flush(self, batch: Batch, results: Sequence[LoadResult]) -> Flush:
        """Return the flush for the destination to commit or abort."""
        parts = tuple(part for result in results for part in result.parts)
        write, request = self.prepare(batch), self.request(batch.stream)
        name, source = batch.stream.stream, batch.source
        by_key = request.method != "append-only"
        if not all(result.files for result in results if result.parts):
            write = replace(write, row_origin=None)
        return Flush(
            name,
            batch.token,
            write,
            request,
            parts,
            source=source if source != name else None,
            state=stored_state(batch.reached, source, by_key=by_key),
        )

    def release(self, batch: Batch) -> None:
        """Forget how the parts of a flush were written: it has been committed or aborted."""
        self._writes.pop(_key(batch), None)
        self.refusals.forget(batch)


def _key(batch: Batch) -> tuple[str, str]:
    """Return the identity of a flush: outputs of one stream share their token."""
    return batch.stream.stream, batch.token
