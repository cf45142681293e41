"""Row origins: the source of each row of a conversion, as one number in a column.

Rows that a stream map makes can fail long after they were read. The number encodes the piece and
the line (or row) in it; `load.rejected_originals` finds the input line again if a row fails.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from shared.formats.csv_encoding import RefusedRow, row_numbers
from shared.json.json_lines import LinesRead

_LINES = 1 << 40


def origin_of(piece: int, line: int) -> int:
    """Return the origin of a line or row (from 0) of a piece."""
    return piece * _LINES + line


def split_origin(origin: int) -> tuple[int, int]:
    """Return piece and line of an origin."""
    return divmod(origin, _LINES)


def line_origins(piece: int, block: bytes, before: int, found: LinesRead) -> pa.Array:
    """Return the origins of the records read from a block of lines.

    Args:
        piece: Number of the piece.
        block: The lines.
        before: Number of lines read from the file before the block.
        found: The rows that were read.
    """
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    gone = [place for place, _ in found.rejects]
    if found.rows_read < lines:
        texts = enumerate(block.split(b"\n"))
        gone += [number for number, text in texts if not text.strip() and number < lines]
    return _without(origin_of(piece, before), lines, gone)


def row_origins(
    piece: int, before: int, rows: int, refused: Sequence[RefusedRow], gone: Sequence[int]
) -> pa.Array:
    """Return the origins of the rows taken from a table of a file.

    Args:
        piece: Number of the piece.
        before: Number of rows of the file before the table.
        rows: Number of rows of the table.
        refused: Malformed rows that came with the table.
        gone: Rejected rows of the table, from 0.
    """
    number = row_numbers(before, refused)
    missing = [row.number - 1 - before for row in refused]
    missing += [number(place) - 1 - before for place in gone]
    return _without(origin_of(piece, before), rows + len(refused), missing)


def _without(first: int, count: int, gone: Sequence[int]) -> pa.Array:
    """Return `count` numbers from `first` on, without some of them (counted from 0)."""
    numbers = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count), start=first - 1)
    if gone:
        missing = pa.array([first + place for place in gone], pa.int64())
        numbers = numbers.filter(pc.invert(pc.is_in(numbers, missing)))
    return numbers
