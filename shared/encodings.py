"""Encodings: Arrow tables to files and back, one small class per format.

Everything here runs on the executors (inside `mapInArrow`) and on the driver alike. Line formats
are read as blocks of whole lines, which `shared.json_lines` parses; the others as Arrow tables,
which `shared.typed_rows` brings to the stream's columns. Blocks and tables are bounded, whatever
the size of the file. Compression is told by content, never by a label.
"""

from __future__ import annotations

from collections.abc import Mapping

from shared.format_avro import AvroFormat
from shared.format_base import (
    BLOCK_BYTES,
    ROW_GROUP_BYTES,
    TABLE_ROWS,
    ContentError,
    Encoding,
    Format,
    grouped,
    looks_like,
)
from shared.format_columnar import OrcFormat, ParquetFormat
from shared.format_csv import CsvFormat
from shared.format_lines import (
    LineFormat,
    bare_lines,
    check_lines,
    packed_lines,
    read_lines,
    text_bytes,
)

__all__ = [
    "BATCH_FORMATS",
    "BLOCK_BYTES",
    "FORMATS",
    "ROW_GROUP_BYTES",
    "TABLE_ROWS",
    "ContentError",
    "Encoding",
    "Format",
    "bare_lines",
    "check_lines",
    "grouped",
    "looks_like",
    "packed_lines",
    "read_lines",
    "text_bytes",
]

FORMATS: Mapping[str, Format] = {
    "singer": LineFormat(".singer"),
    "jsonl": LineFormat(".json"),
    "json": LineFormat(".json"),
    "parquet": ParquetFormat(),
    "orc": OrcFormat(),
    "csv": CsvFormat(),
    "avro": AvroFormat(),
}
"""Every format by its name in an `Encoding`."""

BATCH_FORMATS = ("jsonl", "parquet", "csv", "avro")
"""Those that BATCH messages may name."""
