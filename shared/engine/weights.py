"""What work costs, in bytes of plain text: the one table by which it is compared with the limit."""

from __future__ import annotations

from shared.formats.file_formats import FORMATS, Encoding

COLUMNAR = 0.25
"""A byte of Parquet, ORC, Avro or Arrow."""
COMPRESSED = 3
"""A byte of compressed text: it holds about three."""
IN_PYTHON = 16
"""A byte whose records Python evaluates one by one, as some stream maps need it: ten maps of 40,000
records take 1.5 seconds."""
IN_PYTHON_COLUMNAR = 64
"""The same for columnar files, which have more records in as many bytes."""
JSON_VALUES = 32
"""A byte of JSON lines that the tap reads: 8 MiB take a second."""


def weight(encoding: Encoding, *, in_python: bool = False) -> float:
    """Return the work of a byte of a file, in bytes of plain text.

    Args:
        encoding: The encoding of the file.
        in_python: Whether Python evaluates an expression for each record.
    """
    if not FORMATS[encoding.format].text:
        return IN_PYTHON_COLUMNAR if in_python else COLUMNAR
    packed = 1 if encoding.compression == "none" else COMPRESSED
    return packed * (IN_PYTHON if in_python else 1)
