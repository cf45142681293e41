"""ORC files."""

from __future__ import annotations

from shared.encodings.encoding_format import EncodingFormat

ENCODING = EncodingFormat(
    name="orc",
    implementation="shared.formats.columnar_encoding:OrcFormat",
    suffix=".orc",
    compressions=("none", "snappy", "zstd", "zlib", "lz4"),
    default_compression="snappy",
    batch_compression=None,
)
