"""CSV files."""

from __future__ import annotations

from shared.encodings.encoding_format import PACKINGS, EncodingFormat

ENCODING = EncodingFormat(
    name="csv",
    implementation="shared.formats.csv_encoding:CsvFormat",
    suffix=".csv",
    compressions=PACKINGS,
    levels={"gzip": 9},
    batch_compression="gzip",
    rows="texts",
    packed=True,
)
