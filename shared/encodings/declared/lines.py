"""JSON lines: of batch files, of table files, and of staged RECORD messages."""

from __future__ import annotations

from dataclasses import replace

from shared.encodings.encoding_format import PACKINGS, EncodingFormat

JSONL = EncodingFormat(
    name="jsonl",
    implementation="shared.formats.line_encodings:LineFormat",
    suffix=".json",
    compressions=PACKINGS,
    levels={"gzip": 9},
    batch_compression="gzip",
    rows="lines",
    packed=True,
)
JSON = replace(JSONL, name="json", batch_compression=None)
SINGER = replace(JSONL, name="singer", suffix=".singer", batch_compression=None)
