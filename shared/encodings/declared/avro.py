"""Avro files."""

from __future__ import annotations

from shared.encodings.encoding_format import EncodingFormat

ENCODING = EncodingFormat(
    name="avro",
    implementation="shared.formats.avro_encoding:AvroFormat",
    suffix=".avro",
    compressions=("none", "snappy", "deflate", "zstd"),
    default_compression="deflate",
    batch_compression="deflate",
    requires={"fastavro": "singer-spark[avro]", "cramjam": "singer-spark[avro]"},
)
