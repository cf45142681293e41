"""How much memory and disk a line or a file of any writer may take."""

from __future__ import annotations

MAX_LINE_BYTES = 128 << 20
"""A line of standard input or of a file, and a block of an Avro file: what is held at once."""

MAX_RATIO = 1000
"""How many times its own size a compressed file may hold, beyond `FREE_BYTES`.

Rows that differ by a counter alone pack about 100 times; this is only for content without any.
"""

FREE_BYTES = 1 << 30


def is_bomb(packed: int, plain: int) -> bool:
    """Return whether so many compressed bytes hold more than any data does."""
    return plain > max(FREE_BYTES, MAX_RATIO * packed)


def bomb_text() -> str:
    """Return the reason for a file that is such a bomb."""
    return f"its content is more than {MAX_RATIO} times its size; unpack it first"


def long_text(what: str) -> str:
    """Return the reason for a line or block longer than `MAX_LINE_BYTES`."""
    return f"{what} is longer than {MAX_LINE_BYTES >> 20} MiB"
