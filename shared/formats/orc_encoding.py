"""ORC files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyarrow import orc

from shared.formats.line_encodings import ROW_GROUP_BYTES, check_mark, grouped
from shared.storage.access import StorageOptions
from shared.storage.files import open_output, open_random


class OrcFormat:
    """ORC; instants are written as `timestamp with local time zone`."""

    def read(self, url: str, options: StorageOptions | None = None) -> Iterator[pa.Table]:
        """See `Codec`."""
        check_mark(url, b"ORC", "orc", options)
        with open_random(url, options) as source:
            file = orc.ORCFile(source)
            for stripe in range(file.nstripes):
                yield pa.Table.from_batches([file.read_stripe(stripe)])

    def write(
        self,
        url: str,
        schema: pa.Schema,
        tables: Iterable[pa.Table],
        compression: str,
        options: StorageOptions | None = None,
    ) -> None:
        """See `Codec`."""
        codec = "uncompressed" if compression == "none" else compression
        with (
            open_output(url, options=options) as sink,
            orc.ORCWriter(sink, compression=codec) as writer,
        ):
            writer.write(schema.empty_table())
            for group in grouped(tables, ROW_GROUP_BYTES):
                writer.write(group)
                del group  # before the next one is collected
