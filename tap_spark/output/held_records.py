"""Records that wait until Spark surely need not read their stream: none is sent twice."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from tap_spark.output.spool import spool_error

HELD_BYTES = 64 * 1024 * 1024
"""Bound of memory: bytes of records that wait there; more wait in a file of the spool folder."""
_SCHEMA = pa.schema([("record", pa.string())])


@contextmanager
def held(
    records: Iterable[pa.StringArray | None], root: str | None
) -> Iterator[Iterator[pa.StringArray] | None]:
    """Read all records before the first one is sent.

    Args:
        records: The JSON text of each record, in arrays; None if Spark has to read the stream.
        root: Folder of the spool; the system's temporary folder if None.

    Yields:
        The records; None if Spark has to read them.

    Raises:
        DestinationError: The folder cannot be written.
    """
    with tempfile.SpooledTemporaryFile(HELD_BYTES, dir=root) as file:
        with pa.ipc.new_stream(file, _SCHEMA) as writer:
            for texts in records:
                if texts is None:
                    yield None
                    return
                try:
                    writer.write_batch(pa.record_batch([texts], schema=_SCHEMA))
                except OSError as error:
                    raise spool_error(error, Path(root or tempfile.gettempdir())) from error
        file.seek(0)
        yield (batch.column(0) for batch in pa.ipc.open_stream(file))
