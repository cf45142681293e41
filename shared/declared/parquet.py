"""Parquet files."""

from __future__ import annotations

from shared.encoding_format import EncodingFormat

ENCODING = EncodingFormat(
    name="parquet",
    implementation="shared.format_columnar:ParquetFormat",
    suffix=".parquet",
    compressions=("none", "snappy", "gzip", "zstd", "lz4"),
    default_compression="snappy",
    batch_compression="snappy",
)
