"""The destination of a dry run: executors do all the work but the writing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.formats.arrow_types import as_nullable
from shared.formats.file_formats import Encoding
from target_spark.core.balance import Committed
from target_spark.core.differences import DryRun, PlannedTable
from target_spark.core.load_plans import TableName, TableRequest
from target_spark.destinations.destination import Destination, Flush, TableId, TableWrite

if TYPE_CHECKING:
    import pyarrow as pa

    from target_spark.tables.version_edit import VersionEdit


@dataclass(frozen=True)
class CountingSink:
    """Counts rows and forgets them; see `Sink`."""

    def write(
        self,
        columns: pa.Schema,  # noqa: ARG002
        tables: Iterator[pa.Table],
    ) -> list[dict[str, Any]]:
        rows = size = 0
        for table in tables:
            rows += table.num_rows
            size += table.nbytes
        return [{"kind": "part", "url": "", "rows": rows, "size": size}] if rows else []

    def trial(self) -> CountingSink:
        """See `Sink`: it refuses no row."""
        return self


class DryDestination(Destination):
    """Looks at the tables of another destination, and changes nothing.

    Args:
        real: The destination of the settings.
        run: Collects what would be done.
    """

    def __init__(self, real: Destination, run: DryRun) -> None:
        self._real = real
        self._run = run

    def table(self, name: TableName) -> TableId:
        return self._real.table(name)

    def prepare(self, request: TableRequest) -> TableWrite:
        """See `Destination`. The last SCHEMA of a stream tells the whole change of its table."""
        shown, changes = self.table(request.name).shown, self._real.preview(request)
        self._run.tables[request.stream] = PlannedTable(
            request.stream,
            shown,
            request.method,
            None if changes is None else tuple(changes),
            request.backfill is not None,
        )
        struct = as_nullable(request.struct)
        return TableWrite(shown, Encoding("parquet", "none"), struct, sink=CountingSink())

    def commit(self, flush: Flush) -> Committed:
        return Committed(flush.rows)

    def abort(self, flush: Flush) -> None:
        """See `Destination`."""

    def activate(self, request: TableRequest, edit: VersionEdit) -> None:
        self._run.versions[request.stream] = edit.version

    def exists(self, request: TableRequest) -> bool:
        return self._real.exists(request)

    def close(self) -> None:
        self._real.close()
