"""Arrow IPC files."""

from __future__ import annotations

from shared.encodings.encoding_format import EncodingFormat

ENCODING = EncodingFormat(
    name="arrow",
    implementation="shared.formats.arrow_encoding:ArrowFormat",
    suffix=".arrow",
    compressions=("none", "lz4", "zstd"),
    levels={"zstd": 22},
    batch_compression="lz4",
)
