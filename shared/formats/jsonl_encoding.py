"""Files of JSON lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from shared.formats.line_encodings import bare_lines, text_bytes
from shared.storage.access import StorageOptions
from shared.storage.files import open_output


class LineFormat:
    """JSON objects, one a line; rows to write are texts that end in a newline."""

    def read(self, url: str, options: StorageOptions | None = None) -> Iterator[pa.Table]:
        """See `Codec`: one column of whole lines, many lines in each value."""
        for block in bare_lines(url, options=options):
            yield pa.table({"value": pa.array([block], pa.large_binary())})

    def write(
        self,
        url: str,
        schema: pa.Schema,
        tables: Iterable[pa.Table],
        compression: str,
        options: StorageOptions | None = None,
        level: int | None = None,
    ) -> None:
        """See `Codec`; the schema's only column holds the lines."""
        with open_output(url, compression, options, level) as sink:
            for table in tables:
                for chunk in table.column(schema.names[0]).chunks:
                    sink.write(text_bytes(chunk))
