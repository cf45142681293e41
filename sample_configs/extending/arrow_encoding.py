"""An encoding of batch files in one file: `arrow`, Arrow IPC files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from shared.encodings.encoding_format import EncodingFormat

if TYPE_CHECKING:
    import pyarrow as pa

    from shared.storage.files import StorageOptions

ENCODING = EncodingFormat(
    name="arrow",
    implementation="arrow_encoding:ArrowCodec",
    suffix=".arrow",
    compressions=("none", "zstd", "lz4"),
    batch_compression="zstd",
)


class ArrowCodec:
    """Reads and writes Arrow IPC files, one record batch after the other."""

    def read(self, url: str, options: StorageOptions | None = None) -> Iterator[pa.Table]:
        """See `Codec.read`."""
        import pyarrow as pa  # noqa: PLC0415, I001
        from shared.storage.files import open_random  # noqa: PLC0415

        with open_random(url, options) as file, pa.ipc.open_file(file) as reader:
            for number in range(reader.num_record_batches):
                yield pa.Table.from_batches([reader.get_batch(number)])

    def write(self, url: str, schema: pa.Schema, tables: Iterable[pa.Table], compression: str,
              options: StorageOptions | None = None) -> None:  # fmt: skip
        """See `Codec.write`."""
        import pyarrow as pa  # noqa: PLC0415, I001
        from shared.storage.files import open_output  # noqa: PLC0415

        how = pa.ipc.IpcWriteOptions(compression={"none": None}.get(compression, compression))
        with (
            open_output(url, "none", options) as to,
            pa.ipc.new_file(to, schema, options=how) as out,
        ):
            for table in tables:
                out.write_table(table, max_chunksize=16_384)
