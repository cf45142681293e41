"""Parquet files."""

from __future__ import annotations

from shared.encodings.encoding_format import EncodingFormat

ENCODING = EncodingFormat(
    name="parquet",
    implementation="shared.formats.columnar_encoding:ParquetFormat",
    suffix=".parquet",
    compressions=("none", "snappy", "gzip", "zstd", "lz4"),
    levels={"gzip": 9, "zstd": 22},
    default_compression="snappy",
    batch_compression="snappy",
)
