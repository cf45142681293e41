"""An encoding of batch files in one file: `ipc_stream`, Arrow's streams, which have no footer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from shared.encodings.encoding_format import EncodingFormat

if TYPE_CHECKING:
    import pyarrow as pa

    from shared.storage.access import StorageOptions

ENCODING = EncodingFormat(
    name="ipc_stream",
    implementation="stream_encoding:StreamCodec",
    suffix=".arrows",
    compressions=("none", "zstd", "lz4"),
    batch_compression="zstd",
)


class StreamCodec:
    """Reads and writes record batches, one after the other."""

    def read(self, url: str, options: StorageOptions | None = None) -> Iterator[pa.Table]:
        """See `Codec.read`."""
        import pyarrow as pa  # noqa: PLC0415, I001
        from shared.storage.files import open_random  # noqa: PLC0415

        with open_random(url, options) as file, pa.ipc.open_stream(file) as stream:
            yield stream.schema.empty_table()
            yield from (pa.Table.from_batches([batch]) for batch in stream)

    def write(self, url: str, schema: pa.Schema, tables: Iterable[pa.Table], compression: str,
              options: StorageOptions | None = None) -> None:  # fmt: skip
        """See `Codec.write`."""
        import pyarrow as pa  # noqa: PLC0415, I001
        from shared.storage.files import open_output  # noqa: PLC0415

        how = pa.ipc.IpcWriteOptions(compression={"none": None}.get(compression, compression))
        with (
            open_output(url, "none", options) as to,
            pa.ipc.new_stream(to, schema, options=how) as out,
        ):
            for table in tables:
                out.write_table(table, max_chunksize=16_384)
