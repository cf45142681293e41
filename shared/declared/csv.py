"""CSV files."""

from __future__ import annotations

from shared.encoding_format import PACKINGS, EncodingFormat

ENCODING = EncodingFormat(
    name="csv",
    implementation="shared.format_csv:CsvFormat",
    suffix=".csv",
    compressions=PACKINGS,
    batch_compression="gzip",
    rows="texts",
    packed=True,
)
