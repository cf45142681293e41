"""What chunks of lines, or batch files, come to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tap_spark.send.line_output import ChunkInfo
from tap_spark.send.spool_files import KeyMax, greater_key


@dataclass(frozen=True)
class RowsWritten:
    """Rows, and the greatest replication key in them."""

    rows: int = 0
    key: KeyMax | None = None


def total(chunks: Iterable[ChunkInfo]) -> RowsWritten:
    written = RowsWritten()
    for chunk in chunks:
        written = RowsWritten(written.rows + chunk.rows, greater_key(written.key, chunk.key))
    return written
