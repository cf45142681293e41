"""Records that `__explode__` turned into several rows: all rows of a record are loaded, or none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from tempfile import SpooledTemporaryFile

import pyarrow as pa
import pyarrow.compute as pc

_IN_MEMORY = 4 << 20


class WholeRecords:
    """Replaces the rows of a record that failed by the first of them that did.

    The rows of a record follow each other. The last record of an Arrow batch may go on in the next
    one: its rows wait, beyond a few megabytes in a temporary file.

    Args:
        origin: Number of the column with the origins; the column with the errors follows.

    Attributes:
        exploded: Rows without an error, beyond the first of each record.
    """

    def __init__(self, origin: int) -> None:
        self.exploded = 0
        self._at = origin
        self._open: int | None = None
        self._failed: pa.RecordBatch | None = None
        self._file: SpooledTemporaryFile[bytes] | None = None
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self._last: int | None = None

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of records that did not fail, one row of each other, and all else."""
        for rows in self._complete(batches):
            good = rows.column(self._at).filter(rows.column(self._at + 1).is_null()).drop_null()
            if len(good):
                records = pc.count_distinct(good).as_py() - (good[0].as_py() == self._last)
                self.exploded += len(good) - records
                self._last = good[-1].as_py()
            yield rows

    def _complete(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            goes_on = self._going_on(batch)
            self._hold(batch.slice(0, goes_on))
            rows = batch.slice(goes_on)
            if not rows.num_rows:
                continue
            yield from self._held()
            origins = rows.column(self._at)
            self._open = origins[-1].as_py()
            last = len(origins) if self._open is None else pc.index(origins, self._open).as_py()
            if last:
                yield self._settled(rows.slice(0, last))
            self._hold(rows.slice(last))
        yield from self._held()

    def _going_on(self, rows: pa.RecordBatch) -> int:
        """Return how many rows belong to the record that is open."""
        if self._open is None:
            return 0
        others = pc.not_equal(rows.column(self._at), self._open).fill_null(True)
        first = int(pc.index(others, True).as_py())
        return rows.num_rows if first < 0 else first

    def _settled(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of complete records."""
        failed = rows.column(self._at + 1).is_valid()
        if not pc.any(failed).as_py():
            return rows
        origins = rows.column(self._at)
        of_failed, places = origins.filter(failed), pc.indices_nonzero(failed)
        records = of_failed.unique()
        firsts = places.take(pc.index_in(records, of_failed))
        numbers = pa.array(range(rows.num_rows), pa.uint64())
        kept = pc.or_(pc.is_in(numbers, firsts), pc.invert(pc.is_in(origins, records)))
        return rows.filter(kept)

    def _hold(self, rows: pa.RecordBatch) -> None:
        """Keep rows of the record that may go on."""
        if self._failed is not None or not rows.num_rows:
            return
        failed = pc.index(rows.column(self._at + 1).is_valid(), True).as_py()
        if failed >= 0:
            self._failed = rows.slice(failed, 1)
            return
        if self._file is None:
            self._file = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115
            self._writer = pa.ipc.new_stream(self._file, rows.schema)
        assert self._writer is not None  # noqa: S101
        self._writer.write_batch(rows)

    def _held(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows kept: those of a record that is complete now."""
        failed, file, writer = self._failed, self._file, self._writer
        self._open = self._failed = self._file = self._writer = None
        if failed is not None:
            yield failed
        if file is not None:
            with file:
                if writer is not None:
                    writer.close()
                if failed is None:
                    file.seek(0)
                    yield from pa.ipc.open_stream(file)
