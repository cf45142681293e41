"""The first rows of a stream (`--limit`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tap_spark.state.stream_plans import DriverRows, Slice

if TYPE_CHECKING:
    import pyarrow as pa


def first_slices(slices: Iterable[Slice], most: int) -> Iterator[Slice]:
    """Yield slices until they have so many rows together.

    Spark keeps their rows, so that those that are counted are those that are written.
    """
    for slice_ in slices:
        frame = slice_.frame.limit(most).persist()
        most -= frame.count()
        yield replace(slice_, frame=frame)
        if most <= 0:
            return


def first_rows(rows: DriverRows, most: int) -> DriverRows:
    """Return at most so many of the rows that the driver has read."""
    return replace(rows, records=_first_records(rows.records or (), most))


def _first_records(records: Iterable[pa.StringArray], most: int) -> Iterator[pa.StringArray]:
    for texts in records:
        yield texts[:most]
        most -= len(texts)
        if most <= 0:
            return
