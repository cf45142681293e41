"""Avro files."""

from __future__ import annotations

from shared.encoding_format import EncodingFormat

ENCODING = EncodingFormat(
    name="avro",
    implementation="shared.format_avro:AvroFormat",
    suffix=".avro",
    compressions=("none", "snappy", "deflate", "zstd"),
    default_compression="deflate",
    batch_compression="deflate",
    requires={"fastavro": "singer-spark[avro]"},
)
