"""Encodings: Arrow tables to files and back, one small class per format.

They are declared in `shared.encodings.encoding_format`, and by entry points of other packages.

Everything here runs on the executors (inside `mapInArrow`) and on the driver alike. Line formats
are read as blocks of whole lines, which `shared.formats.json_lines` parses; the others as Arrow
tables, which the target converts to the stream's columns. Blocks and tables are bounded for
files of any size. Compression is detected by content, never by a label.
"""

from __future__ import annotations

from shared.encodings.encoding_format import FORMATS, Encoding
from shared.formats.line_encodings import (
    ContentError,
    bare_lines,
    check_lines,
    packed_lines,
    read_lines,
)

__all__ = [
    "FORMATS",
    "ContentError",
    "Encoding",
    "bare_lines",
    "check_lines",
    "packed_lines",
    "read_lines",
]
