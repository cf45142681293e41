"""How much memory and disk a line or a file of any writer may take."""

from __future__ import annotations

MAX_LINE_BYTES = 128 << 20
"""A line of standard input or of a file, and a block of an Avro file: what is held at once."""

MAX_RATIO = 1000
"""How many times its own size a compressed file may hold, beyond `FREE_BYTES`.

Rows that differ by a counter alone pack about 100 times; this is only for content without any.
"""

FREE_BYTES = 1 << 30

TABLE_BYTES = 128 << 20
"""Decoded bytes of a columnar file that are held at once, unless one row has more."""

FREE_NESTED_BYTES = 256 << 20
"""As `FREE_BYTES`, of decoded values that may all stand in one row."""

FREE_OBJECT_BYTES = 2 << 30
"""As `FREE_BYTES`, of the Python objects that the values of an Avro block become."""


def bomb_text() -> str:
    """Return the reason for a file that holds more than `FREE_BYTES` and `MAX_RATIO` allow."""
    return f"its content is more than {MAX_RATIO} times its size; unpack it first"


def decoded_text() -> str:
    """Return the reason for a file whose encoded rows are such a bomb."""
    return f"its rows take more than {MAX_RATIO} times its size in memory"


def long_text(what: str) -> str:
    """Return the reason for a line or block longer than `MAX_LINE_BYTES`."""
    return f"{what} is longer than {MAX_LINE_BYTES >> 20} MiB"
